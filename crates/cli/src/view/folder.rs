//! A view in a folder, which `librockery-view.so` answers from.
//!
//! The program replaces this process, so nobody would take a folder away at its end. Its name comes from what
//! is in it instead: whoever needs the same view uses the same folder, and the oldest ones go.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::tree::{Entry, Tree};
use crate::Error;
use crate::sys;

/// Folders that are kept for a user. A machine has one for each network namespace, and one more whenever
/// an address changes.
const FOLDERS_MAX: usize = 256;

/// The folder that holds `tree`, made or found.
///
/// # Errors
/// When it can be written nowhere.
pub(super) fn of(tree: &Tree) -> Result<PathBuf, Error> {
    let name = format!("view-{:016x}", digest(tree));
    let mut last = None;
    for base in bases() {
        match written(&base, &name, tree) {
            Ok(folder) => return Ok(folder),
            Err(source) => last = Some(Error::File { path: base, source }),
        }
    }
    Err(last.unwrap_or_else(|| Error::File { path: name.into(), source: io::ErrorKind::NotFound.into() }))
}

/// Where folders of this user may lie: in memory and gone with the login, if there is such a place.
fn bases() -> Vec<PathBuf> {
    let runtime: Option<OsString> = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let own = format!("rockery-{}", sys::user());
    let shared = [std::env::temp_dir(), PathBuf::from("/dev/shm")].map(|folder| folder.join(&own));
    runtime.map(|folder| PathBuf::from(folder).join("rockery")).into_iter().chain(shared).collect()
}

fn digest(tree: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, entry) in tree {
        path.hash(&mut hasher);
        match entry {
            Entry::File(line) => line.hash(&mut hasher),
            Entry::Link(to) => to.hash(&mut hasher),
        }
    }
    hasher.finish()
}

fn written(base: &Path, name: &str, tree: &Tree) -> io::Result<PathBuf> {
    own(base)?;
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

/// Makes a folder that only this user can write to, or sees that it is one: whoever could write there could
/// show the program what they like.
fn own(base: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(base) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = base.symlink_metadata()?;
    if !found.is_dir() || found.uid() != sys::user() || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others could write there"));
    }
    Ok(())
}

/// Writes what is not there as it should be. Several may do so at once, all of them the same.
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
            Entry::File(line) => fs::write(&aside, format!("{line}\n"))?,
            Entry::Link(to) => symlink(to, &aside)?,
        }
        fs::rename(&aside, &path)?;
    }
    Ok(())
}

fn is_there(path: &Path, entry: &Entry) -> bool {
    match entry {
        Entry::File(line) => fs::read_to_string(path).is_ok_and(|text| text.strip_suffix('\n') == Some(line)),
        Entry::Link(to) => fs::read_link(path).is_ok_and(|there| there == *to),
    }
}

/// Takes the oldest folders away where there are too many. What another process takes away meanwhile, or
/// cannot be, is no loss.
fn prune(base: &Path, keep: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let is_view =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("view-"));
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
        let link = ("dev/infiniband/uverbs1".into(), Entry::Link("/dev/null".into()));
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
        assert!(is_there(&folder.join("dev/infiniband/uverbs1"), &Entry::Link("/dev/null".into())));
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
