//! Folders of this user for sockets, records and views, which last as long as the login or the machine.
//!
//! Without `XDG_RUNTIME_DIR` they are in a folder that all users share, where another user can create any
//! name first. So each folder has the user ID in its name, and is used only if no other user can write to it:
//! a server that answers there, and a record that names a process, are then this user's own.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Permission bits of a folder.
const WRITABLE_BY_ALL: u32 = 0o002;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Bytes of the longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct FolderError {
    /// The path of the folder.
    pub path: PathBuf,
    /// The error of the operation.
    pub source: io::Error,
}

/// Makes a private folder at this path, or checks that there is one.
fn private(path: PathBuf) -> Result<PathBuf, FolderError> {
    match make_private(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(FolderError { path, source }),
    }
}

/// The folder of this user: `rockery` in `XDG_RUNTIME_DIR`, where that is set and this user's own, or else
/// `rockery-UID` in `TMPDIR` or `/tmp`.
///
/// # Errors
/// When it cannot be made, or another user could write to it.
pub fn folder() -> Result<PathBuf, FolderError> {
    private(own().unwrap_or_else(|| shared(&std::env::temp_dir())))
}

/// A folder in the user's folder.
///
/// # Errors
/// As [`folder`].
pub fn subfolder(name: &str) -> Result<PathBuf, FolderError> {
    private(folder()?.join(name))
}

/// The folder of this user in `XDG_RUNTIME_DIR`. The variable may come from another user, as with `su`: that
/// user's folder is not used.
pub fn own() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())?;
    let found = base.metadata().ok()?;
    let is_own = found.is_dir() && found.uid() == os::user() && found.mode() & WRITABLE_BY_ALL == 0;
    is_own.then(|| base.join("rockery"))
}

/// The folder of this user in a folder that all users share.
pub fn shared(base: &Path) -> PathBuf {
    base.join(format!("rockery-{}", os::user()))
}

/// Makes a folder that only this user can write to, or checks that a folder is one.
///
/// # Errors
/// With the owner, and what to do, when another user could write to it or replace it.
pub fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = folder.symlink_metadata()?;
    let (user, owner) = (os::user(), found.uid());
    let base = folder
        .parent()
        .filter(|base| !base.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let base_mode = base.metadata()?.mode();
    let wrong = if owner != user {
        format!(
            "it belongs to user {owner}, who could serve user {user} false answers there: have it removed"
        )
    } else if !found.is_dir() {
        "it is not a folder: remove it".to_owned()
    } else if found.mode() & WRITABLE_BY_OTHERS != 0 {
        format!(
            "other users can write to it (mode {:o}): chmod 700 it",
            found.mode() & 0o7777
        )
    } else if base_mode & WRITABLE_BY_ALL != 0 && base_mode & STICKY == 0 {
        format!(
            "any user can replace it, since {} has no sticky bit: chmod +t that",
            base.display()
        )
    } else {
        return Ok(());
    };
    let text = format!("{wrong}, or set XDG_RUNTIME_DIR to a folder of user {user} alone");
    Err(io::Error::new(ErrorKind::PermissionDenied, text))
}

/// Reads a file of a private folder; not through a symbolic link, and a regular file of this user only.
///
/// # Errors
/// As `open`, and when it is anything else.
pub fn read(path: &Path) -> io::Result<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != os::user() {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "it is not a regular file of this user",
        ));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file of a private folder, whole or not at all. A file of the same name is replaced, and not
/// written to: symbolic links are not followed.
///
/// # Errors
/// As `open` and `write`.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension(format!("{}", std::process::id()));
    let written = || {
        // Fails where anything has this name, a symbolic link included.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&aside, path)
    };
    _ = fs::remove_file(&aside);
    written().inspect_err(|_| _ = fs::remove_file(&aside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_is_used_only_if_no_other_user_can_write_to_it_or_replace_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("folder");
        let refused = |path: &Path, why: &str| {
            let error = make_private(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(
                error.to_string().contains(why) && error.to_string().contains("XDG_RUNTIME_DIR"),
                "{error}"
            );
        };
        make_private(&folder).unwrap();
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        make_private(&folder).unwrap();
        allow(&folder, 0o770);
        refused(&folder, "mode 770");
        allow(&folder, 0o755);
        make_private(&folder).unwrap();
        allow(base.path(), 0o777);
        refused(&folder, "no sticky bit");
        allow(base.path(), 0o1777);
        make_private(&folder).unwrap();
        // A link of this user's to a folder of this user's: another user's link has another owner.
        let link = base.path().join("link");
        symlink(&folder, &link).unwrap();
        refused(&link, "it is not a folder");
    }

    #[test]
    fn files_are_neither_read_nor_written_through_links() {
        let base = tempfile::tempdir().unwrap();
        let (own, link) = (base.path().join("own"), base.path().join("link.json"));
        write(&own, "kept").unwrap();
        assert_eq!(
            (
                read(&own).unwrap().as_str(),
                own.metadata().unwrap().mode() & 0o777
            ),
            ("kept", 0o600)
        );
        symlink(&own, &link).unwrap();
        assert!(read(&link).is_err());
        write(&link, "new").unwrap();
        assert_eq!(
            (read(&own).unwrap().as_str(), read(&link).unwrap().as_str()),
            ("kept", "new")
        );
        // The temporary name of the new file is not followed as a link either.
        let aside = link.with_extension(std::process::id().to_string());
        symlink(&own, &aside).unwrap();
        write(&link, "newer").unwrap();
        assert_eq!(
            (read(&own).unwrap().as_str(), read(&link).unwrap().as_str()),
            ("kept", "newer")
        );
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2);
    }
}
