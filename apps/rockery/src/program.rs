//! Refusing programs in which rockery could not work.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use command::program::{is_executable, locate};

use crate::Error;
use crate::elf::{self, OURS};

const SETUID_OR_SETGID: u32 = 0o6000;

/// The file that `name` starts, when `search` (the value of PATH) is the path.
///
/// # Errors
/// When there is none, or when our libraries could never be loaded into it.
pub(crate) fn find(name: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, Error> {
    let path = locate(name, search).ok_or_else(|| missing(name))?;
    check_executable(&path)?;
    Ok(path)
}

fn missing(name: &OsStr) -> Error {
    Error::NoSuchProgram(name.to_string_lossy().into_owned())
}

fn check_executable(path: &Path) -> Result<(), Error> {
    let metadata = path.metadata().map_err(Error::file(path))?;
    let mode = metadata.permissions().mode();
    if !is_executable(path) {
        return Err(Error::NotExecutable(path.to_owned()));
    }
    if mode & SETUID_OR_SETGID != 0 {
        return Err(Error::Privileged(path.to_owned()));
    }
    // A program that is executable and not readable cannot be checked.
    let Ok(mut file) = File::open(path) else {
        return Ok(());
    };
    match elf::read(&mut file).map_err(Error::file(path))? {
        // A script: the programs that it starts are not known yet.
        None => Ok(()),
        Some(elf) if (elf.machine, elf.bits) != (OURS.0, 64) => Err(Error::Architecture {
            path: path.to_owned(),
            theirs: elf::machine_name(elf.machine),
            ours: OURS.1,
        }),
        Some(elf) if !elf.dynamic => Err(Error::Static(path.to_owned())),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(name: &str, content: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn error_of(path: &Path) -> Error {
        find(path.as_os_str(), None).unwrap_err()
    }

    #[test]
    fn programs_are_found_on_the_path() {
        let (folder, path) = file("tool", b"#!/bin/sh\n", 0o755);
        let search = folder.path().as_os_str();
        assert_eq!(find(OsStr::new("tool"), Some(search)).unwrap(), path);
        let error = find(OsStr::new("no-such-tool"), Some(search)).unwrap_err();
        assert!(matches!(error, Error::NoSuchProgram(_)));
        assert_eq!(error.status(), 127);
    }

    #[test]
    fn a_file_without_the_executable_bit_is_no_program() {
        let (_folder, path) = file("notes", b"text", 0o644);
        assert!(matches!(error_of(&path), Error::NotExecutable(_)));
    }

    #[test]
    fn a_setuid_program_would_ignore_our_library() {
        let (_folder, path) = file("su", b"#!/bin/sh\n", 0o4755);
        assert!(matches!(error_of(&path), Error::Privileged(_)));
    }

    #[test]
    fn a_program_of_another_architecture_is_named() {
        let mut header = vec![0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 243;
        let (_folder, path) = file("foreign", &header, 0o755);
        assert!(error_of(&path).to_string().contains("RISC-V"));
    }

    #[test]
    fn a_static_program_is_named() {
        let mut header = vec![0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18..20].copy_from_slice(&OURS.0.to_le_bytes());
        let (_folder, path) = file("static", &header, 0o755);
        assert!(matches!(error_of(&path), Error::Static(_)));
    }
}
