//! A view in a mount namespace: for programs that do not use the C library, and scripts that start such.
//!
//! `/sys/class` and `/dev` become folders in memory, with their former entries mounted back into them, and
//! the files of the view beside them. Other processes do not see the mounts, which end with the last process.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use super::folder;
use super::tree::{Entry, Tree};
use crate::Error;
use crate::sys;

/// Folders to which the view adds an entry; one within another comes after that.
const GROWN: [&str; 3] = ["sys/class", "dev", "sys/class/net"];
/// Entries that such a folder may have.
const ENTRIES_MAX: usize = 4096;

/// Moves this process there.
///
/// # Errors
/// When it may not, or when a mount fails.
pub(super) fn enter(tree: &Tree) -> Result<(), Error> {
    sys::own_mounts().map_err(Error::NoNamespace)?;
    for grown in GROWN {
        let part = part_of(tree, Path::new(grown));
        if part.is_empty() {
            continue;
        }
        let path = Path::new("/").join(grown);
        grow(&path, &part).map_err(Error::file(path))?;
    }
    Ok(())
}

/// The part of the tree below this folder, with paths relative to it.
fn part_of(tree: &Tree, folder: &Path) -> Tree {
    let is_elsewhere = |path: &Path| {
        let mut within = GROWN.iter().filter(|grown| path.starts_with(grown));
        within.any(|grown| Path::new(grown) > folder && Path::new(grown).starts_with(folder))
    };
    let inside = |(path, entry): (&PathBuf, &Entry)| {
        if is_elsewhere(path) {
            return None;
        }
        Some((path.strip_prefix(folder).ok()?.into(), entry.clone()))
    };
    // Counters are left out: without the library their values would never change.
    tree.iter()
        .filter(|(_, entry)| **entry != Entry::Counter)
        .filter_map(inside)
        .collect()
}

fn grow(folder: &Path, tree: &Tree) -> io::Result<()> {
    let before = File::open(folder)?;
    let names: Vec<_> = fs::read_dir(folder)?
        .take(ENTRIES_MAX)
        .collect::<Result<_, _>>()?;
    // The covered folder stays reachable through the open file.
    let covered = PathBuf::from(format!("/proc/self/fd/{}", before.as_raw_fd()));
    // Without 0755 the kernel refuses to create what others own in a sticky folder.
    sys::mount(
        "tmpfs",
        folder,
        Some("tmpfs"),
        sys::Mount::Memory,
        "mode=0755",
    )?;
    let is_ours = |name: &OsStr| tree.keys().any(|path| path.iter().next() == Some(name));
    for entry in names.iter().filter(|entry| !is_ours(&entry.file_name())) {
        let (from, to) = (
            covered.join(entry.file_name()),
            folder.join(entry.file_name()),
        );
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        if kind.is_dir() {
            DirBuilder::new().mode(0o755).create(&to)?;
        } else {
            File::create(&to)?;
        }
        sys::mount(&from, &to, None, sys::Mount::Bind, "")?;
    }
    folder::write(folder, tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_seen_from_its_folder() {
        let tree = Tree::from([
            (
                "dev/infiniband/rdma_cm".into(),
                Entry::Link("/dev/null".into()),
            ),
            ("dev/infiniband/counter".into(), Entry::Counter),
            ("sys/class/a/b".into(), Entry::File("c".into())),
            ("sys/class/net/d/e".into(), Entry::File("f".into())),
        ]);
        let names = |folder: &str| -> Vec<PathBuf> {
            part_of(&tree, Path::new(folder)).into_keys().collect()
        };
        assert_eq!(names("sys/class"), [Path::new("a/b")]);
        assert_eq!(names("sys/class/net"), [Path::new("d/e")]);
        let part = part_of(&tree, Path::new("dev"));
        assert_eq!(
            part.keys().collect::<Vec<_>>(),
            [Path::new("infiniband/rdma_cm")]
        );
    }
}
