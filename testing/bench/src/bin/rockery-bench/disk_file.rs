//! A file for a disk, removed at the end.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// A file of a benchmark. Only a file that it made is removed.
#[derive(Debug)]
pub(super) struct DiskFile(PathBuf);

impl DiskFile {
    /// Makes a sparse file of this size in a folder.
    ///
    /// # Errors
    /// When there is such a file already, or it cannot be made.
    pub(super) fn new(folder: &Path, bytes: u64) -> Result<Self, Error> {
        let folder = folder.canonicalize().map_err(Error::file(folder))?;
        let path = folder.join(format!("rockery-bench-{}.disk", std::process::id()));
        if path.exists() {
            return Err(Error::Exists(path));
        }
        let file = fs::File::create_new(&path).map_err(Error::file(&path))?;
        let made = Self(path);
        file.set_len(bytes).map_err(Error::file(made.path()))?;
        Ok(made)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_until_the_end_and_no_other_one_is_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = DiskFile::new(folder.path(), 1 << 20).expect("a file");
        let path = file.path().to_owned();
        assert_eq!(fs::metadata(&path).expect("a file").len(), 1 << 20);
        assert!(matches!(
            DiskFile::new(folder.path(), 1),
            Err(Error::Exists(_))
        ));
        drop(file);
        assert!(!path.exists());
        assert!(DiskFile::new(&folder.path().join("none"), 1).is_err());
    }
}
