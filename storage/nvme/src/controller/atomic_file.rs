//! A file that is replaced atomically, for settings of hosts that persist through power loss.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use server::settings;

/// Bytes of such a file at most: reservations have a few hundred for each registered host.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A JSON file that exists while there is a value to keep.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    path: PathBuf,
}

impl AtomicFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The value in the file; `None` when the file does not exist.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        match settings::read(&self.path, FILE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file atomically, or removes it for `None`; the change is on the medium when this returns.
    pub(crate) fn store<T: Serialize>(&self, kept: Option<&T>) -> io::Result<()> {
        let folder = self
            .path
            .parent()
            .filter(|it| !it.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        match kept {
            None => match fs::remove_file(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                removed => removed?,
            },
            Some(kept) => {
                fs::create_dir_all(folder)?;
                let new = self.path.with_extension("new");
                let mut file = File::create(&new)?;
                file.write_all(&serde_json::to_vec(kept)?)?;
                file.sync_all()?;
                fs::rename(&new, &self.path)?;
            }
        }
        File::open(folder)?.sync_all()
    }
}
