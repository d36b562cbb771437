//! Finding a program as execvp(3) does, and programs of one installation beside each other.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const ANY_EXECUTE: u32 = 0o111;

/// The file that `name` starts, when `search` (the value of PATH) is the path; `None` if there is no such
/// file. As in a shell, a file that is not executable is found only if there is no other.
pub fn locate(name: &OsStr, search: Option<&OsStr>) -> Option<PathBuf> {
    let direct = Path::new(name);
    if direct.components().count() > 1 || name.as_encoded_bytes().contains(&b'/') {
        return direct.is_file().then(|| direct.to_owned());
    }
    let folders = search.into_iter().flat_map(std::env::split_paths);
    let files = folders
        .map(|folder| folder.join(direct))
        .filter(|path| path.is_file());
    let mut found = None;
    for path in files {
        if is_executable(&path) {
            return Some(path);
        }
        found.get_or_insert(path);
    }
    found
}

/// Whether a file has an executable bit.
pub fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.permissions().mode() & ANY_EXECUTE != 0)
}

/// Another program of the installation that `own`, the path of a program, is part of: the executable file in
/// the same folder, or else the one on `search` (the value of PATH).
pub fn beside(own: &Path, name: &str, search: Option<&OsStr>) -> Option<PathBuf> {
    let sibling = own.with_file_name(name);
    let found = match is_program(&sibling) {
        true => Some(sibling),
        false => locate(name.as_ref(), search),
    };
    found.filter(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && is_executable(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn place(folder: &Path, name: &str, mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn programs_are_found_on_the_path_executable_ones_first() {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let search = std::env::join_paths([first.path(), second.path()]).unwrap();
        let found = |name: &str| locate(name.as_ref(), Some(&search));
        let notes = place(first.path(), "tool", 0o644);
        assert_eq!(found("tool"), Some(notes.clone()));
        let tool = place(second.path(), "tool", 0o755);
        assert_eq!(found("tool"), Some(tool));
        assert_eq!(found("no-such-tool"), None);
        // A path is not searched for.
        assert_eq!(locate(notes.as_os_str(), None), Some(notes));
        assert_eq!(found("folder/tool"), None);
    }

    #[test]
    fn the_program_in_the_same_folder_comes_before_the_path() {
        let [here, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let own = here.path().join("rockery");
        let found = || beside(&own, "rockery-bench", Some(elsewhere.path().as_os_str()));
        assert_eq!(found(), None);
        let other = place(elsewhere.path(), "rockery-bench", 0o755);
        assert_eq!(found(), Some(other));
        let sibling = place(here.path(), "rockery-bench", 0o644);
        assert_ne!(found(), Some(sibling), "it is not executable");
        let sibling = place(here.path(), "rockery-bench", 0o755);
        assert_eq!(found(), Some(sibling));
    }
}
