//! A file that keeps what hosts have set of a namespace when the power goes.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A file that is there while something has to be kept.
#[derive(Debug)]
pub(crate) struct Keeper {
    path: PathBuf,
}

impl Keeper {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// What it has.
    pub(crate) fn kept<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has it keep this, whole or not at all, and on the medium.
    pub(crate) fn keep<T: Serialize>(&self, kept: Option<&T>) -> io::Result<()> {
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
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
