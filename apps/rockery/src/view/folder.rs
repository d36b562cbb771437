//! A view in a folder, from which `librockery-view.so` serves files.
//!
//! The program replaces this process, so no process is left that could remove the folder afterwards.
//! Therefore the folder's name is a digest of its content: programs with the same view share one folder, and
//! the oldest folders are removed.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::tree::{Entry, Tree};
use crate::{Error, runtime};

/// Folders that are kept for a user. A machine has one for each network namespace, and one more whenever
/// an address changes.
const FOLDERS_MAX: usize = 256;

/// The folder that holds `tree`, made or found.
///
/// # Errors
/// When it can be written nowhere.
pub(super) fn of(tree: &Tree) -> Result<PathBuf, Error> {
    in_one_of(
        runtime::own(),
        &[std::env::temp_dir(), PathBuf::from("/dev/shm")],
        tree,
    )
}

/// In `XDG_RUNTIME_DIR`, which is in memory and removed at logout, if it exists. Otherwise in a folder that
/// all users share, under a name with the user ID; if another user has taken that name, under a random one.
fn in_one_of(own: Option<PathBuf>, shared: &[PathBuf], tree: &Tree) -> Result<PathBuf, Error> {
    let name = format!("view-{:016x}", digest(tree));
    let mut last = None;
    let named = shared.iter().map(|folder| runtime::shared(folder));
    for base in own.into_iter().chain(named) {
        match written(&base, &name, tree) {
            Ok(folder) => return Ok(folder),
            Err(source) => last = Some(Error::File { path: base, source }),
        }
    }
    for folder in shared {
        let made = private(folder).and_then(|base| written(&base, &name, tree));
        match made {
            Ok(folder) => return Ok(folder),
            Err(source) => {
                last = Some(Error::File {
                    path: folder.clone(),
                    source,
                })
            }
        }
    }
    Err(last.unwrap_or_else(|| Error::File {
        path: name.into(),
        source: io::ErrorKind::NotFound.into(),
    }))
}

/// Entries of a shared folder that are searched for one of this user.
const ENTRIES_MAX: usize = 1 << 16;

/// A folder of this user within `shared` whose name ends at random: one that was made before, or a new one.
fn private(shared: &Path) -> io::Result<PathBuf> {
    let prefix = format!("rockery-{}-", os::user());
    let is_ours = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
            && path.is_dir()
            && runtime::make_private(path).is_ok()
    };
    let entries = fs::read_dir(shared)?
        .take(ENTRIES_MAX)
        .flatten()
        .map(|entry| entry.path());
    match entries.filter(is_ours).min() {
        Some(found) => Ok(found),
        None => {
            let made = shared.join(format!("{prefix}{:016x}", getrandom::u64()?));
            runtime::make_private(&made)?;
            Ok(made)
        }
    }
}

fn digest(tree: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, entry) in tree {
        path.hash(&mut hasher);
        match entry {
            Entry::File(line) => line.hash(&mut hasher),
            Entry::Link(to) => to.hash(&mut hasher),
            Entry::Counter | Entry::Live(_) => {}
        }
    }
    hasher.finish()
}

fn written(base: &Path, name: &str, tree: &Tree) -> io::Result<PathBuf> {
    // Another user who could write there could show the program other devices.
    runtime::make_private(base)?;
    let folder = base.canonicalize()?.join(name);
    let is_new = !folder.exists();
    write(&folder, tree)?;
    // In use: so that it is not among the oldest.
    File::open(&folder)?.set_modified(SystemTime::now())?;
    if is_new {
        prune(base, &folder);
    }
    Ok(folder)
}

/// Writes the files that are missing or differ. Several processes may do so at once, with the same content.
///
/// # Errors
/// When something cannot be written.
pub(super) fn write(folder: &Path, tree: &Tree) -> io::Result<()> {
    for (path, entry) in tree {
        let path = folder.join(path);
        if is_there(&path, entry) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let aside = path.with_extension(format!("{}", std::process::id()));
        match entry {
            Entry::File(line) | Entry::Live(line) => fs::write(&aside, format!("{line}\n"))?,
            Entry::Link(to) => symlink(to, &aside)?,
            Entry::Counter => fs::write(&aside, "0\n")?,
        }
        fs::rename(&aside, &path)?;
    }
    Ok(())
}

fn is_there(path: &Path, entry: &Entry) -> bool {
    match entry {
        Entry::File(line) | Entry::Live(line) => {
            fs::read_to_string(path).is_ok_and(|text| text.strip_suffix('\n') == Some(line))
        }
        Entry::Link(to) => fs::read_link(path).is_ok_and(|there| there == *to),
        Entry::Counter => path.exists(),
    }
}

/// Removes the oldest folders where there are too many. Errors are ignored: another process may remove the
/// same folders.
fn prune(base: &Path, keep: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    let is_view = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("view-"))
    };
    let age = |path: PathBuf| Some((path.metadata().ok()?.modified().ok()?, path));
    let views = entries.flatten().map(|entry| entry.path()).filter(is_view);
    let mut views: Vec<_> = views.filter(|path| path != keep).filter_map(age).collect();
    views.sort();
    let spare = (views.len() + 1).saturating_sub(FOLDERS_MAX);
    for (_, path) in views.iter().take(spare) {
        _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    fn tree(line: &str) -> Tree {
        let link = (
            "dev/infiniband/uverbs1".into(),
            Entry::Link("/dev/null".into()),
        );
        Tree::from([("sys/a/b".into(), Entry::File(line.to_owned())), link])
    }

    #[test]
    fn what_was_damaged_is_put_right() {
        let base = tempfile::tempdir().unwrap();
        let tree = tree("one");
        let folder = written(base.path(), "view-1", &tree).unwrap();
        fs::write(folder.join("sys/a/b"), "two").unwrap();
        fs::remove_file(folder.join("dev/infiniband/uverbs1")).unwrap();
        assert_eq!(written(base.path(), "view-1", &tree).unwrap(), folder);
        assert_eq!(fs::read_to_string(folder.join("sys/a/b")).unwrap(), "one\n");
        assert!(is_there(
            &folder.join("dev/infiniband/uverbs1"),
            &Entry::Link("/dev/null".into())
        ));
    }

    #[test]
    fn different_views_have_different_names() {
        assert_eq!(digest(&tree("one")), digest(&tree("one")));
        assert_ne!(digest(&tree("one")), digest(&tree("two")));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = written(base.path(), "view-1", &tree("one")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_name_that_another_has_taken_leads_to_another_folder() {
        let shared = tempfile::tempdir().unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let taken = shared.path().join(format!("rockery-{}", os::user()));
        // Like a folder of another user: this user can write there, and so can others.
        fs::create_dir(&taken).unwrap();
        fs::set_permissions(&taken, fs::Permissions::from_mode(0o777)).unwrap();
        let all = [shared.path().to_owned()];
        let folder = in_one_of(Some(taken.clone()), &all, &tree("one")).unwrap();
        assert!(
            !folder.starts_with(&taken) && folder.starts_with(shared.path()),
            "{}",
            folder.display()
        );
        // The next program finds it again, and leaves no further one.
        assert_eq!(in_one_of(None, &all, &tree("one")).unwrap(), folder);
        let other = in_one_of(None, &all, &tree("two")).unwrap();
        assert_eq!(other.parent(), folder.parent());
        assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_is_not_followed() {
        let shared = tempfile::tempdir().unwrap();
        fs::create_dir(shared.path().join("elsewhere")).unwrap();
        let link = shared.path().join("link");
        symlink("elsewhere", &link).unwrap();
        assert_eq!(
            written(&link, "view-1", &tree("one")).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        assert_eq!(
            fs::read_dir(shared.path().join("elsewhere"))
                .unwrap()
                .count(),
            0
        );
    }

    #[test]
    fn a_folder_that_others_can_replace_is_not_used() {
        let shared = tempfile::tempdir().unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = written(&shared.path().join("own"), "view-1", &tree("one")).unwrap_err();
        assert!(error.to_string().contains("replace"), "{error}");
    }

    #[test]
    fn the_oldest_go_and_the_newest_stays() {
        let base = tempfile::tempdir().unwrap();
        for age in 1..=FOLDERS_MAX as u64 + 2 {
            let folder = base.path().join(format!("view-{age}"));
            fs::create_dir(&folder).unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            File::open(&folder).unwrap().set_modified(time).unwrap();
        }
        let newest = written(base.path(), "view-0", &tree("one")).unwrap();
        assert!(newest.exists() && base.path().join("view-1").exists());
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), FOLDERS_MAX);
    }
}
