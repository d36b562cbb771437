//! Paths of this program and of the command `rockery`: comparisons start both.

use std::path::{Path, PathBuf};

use command::program::beside;

use crate::Error;

/// This program, and the command that is measured.
#[derive(Debug)]
pub(crate) struct Programs {
    own: PathBuf,
    given: Option<PathBuf>,
}

impl Programs {
    /// `given` is the path of the command, if the user names it.
    ///
    /// # Errors
    /// When `/proc` does not have the path of this program.
    pub(crate) fn new(given: Option<PathBuf>) -> Result<Self, Error> {
        let own = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
        Ok(Self { own, given })
    }

    /// The path of this program.
    pub(crate) fn own(&self) -> &Path {
        &self.own
    }

    /// The path of the command `rockery`.
    ///
    /// # Errors
    /// When it is neither named nor found.
    pub(crate) fn rockery(&self) -> Result<PathBuf, Error> {
        let search = || beside(&self.own, "rockery", std::env::var_os("PATH").as_deref());
        let found = self.given.clone().or_else(search);
        found.ok_or_else(|| Error::NoRockery(self.own.clone()))
    }
}
