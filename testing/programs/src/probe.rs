//! C programs of our own, for checks that no tool has, on the distribution's library and on rockery's.

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
        let compile = [
            compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", &output, &source,
        ];
        system::call(&[&compile, libraries].concat())?;
        Ok(Self {
            path,
            _folder: folder,
        })
    }

    /// Where it lies on this host.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Benchmarks run outside CI: a probe that was renamed would be missed there otherwise.
    #[test]
    fn every_probe_that_a_program_or_test_compiles_exists() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut folders = ["src", "tests"].map(|folder| package.join(folder)).to_vec();
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                    continue;
                }
                if entry
                    .path()
                    .extension()
                    .is_none_or(|extension| extension != "rs")
                {
                    continue;
                }
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let calls = [
                    concat!("Probe::compile", "(\""),
                    concat!("Probe::compile_with", "(\"cc\", \""),
                ];
                for name in calls.iter().flat_map(|call| text.split(call).skip(1)) {
                    let name = name.split('"').next().unwrap();
                    let source = package.join(format!("probe/{name}.c"));
                    assert!(
                        source.exists(),
                        "{}: {}",
                        entry.path().display(),
                        source.display()
                    );
                    seen += 1;
                }
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
