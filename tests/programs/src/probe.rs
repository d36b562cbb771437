//! C programs of our own: what no tool shows, on the distribution's library and on ours alike.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Error, system};

/// A compiled program.
#[derive(Debug)]
pub struct Probe {
    path: PathBuf,
    _folder: TempDir,
}

impl Probe {
    /// Compiles `probe/NAME.c` against the distribution's headers and libibverbs.
    ///
    /// # Errors
    /// When there is no compiler or no header: `build-essential` and `libibverbs-dev` have them.
    pub fn compile(name: &str) -> Result<Self, Error> {
        Self::compile_with("cc", name, &["-libverbs"])
    }

    /// The same with another compiler, or other libraries.
    ///
    /// # Errors
    /// When the compiler or a header is not there.
    pub fn compile_with(compiler: &str, name: &str, libraries: &[&str]) -> Result<Self, Error> {
        let folder = TempDir::new().map_err(Error::file("a temporary folder"))?;
        let path = folder.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("probe/{name}.c"));
        let (output, source) = (path.to_string_lossy(), source.to_string_lossy());
        let compile = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", &output, &source];
        system::call(&[&compile, libraries].concat())?;
        Ok(Self { path, _folder: folder })
    }

    /// Where it lies on this host.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
