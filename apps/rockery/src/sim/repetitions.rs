//! Repetitions of collectives, written as they end: one line of JSON each.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ::sim::report::RepetitionReport;

use crate::Error;

/// The file that they are written to.
pub(super) struct Repetitions {
    path: PathBuf,
    file: Box<dyn Write>,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

impl Repetitions {
    /// # Errors
    /// When the file cannot be made.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let file: Box<dyn Write> = match path == Path::new("-") {
            true => Box::new(io::stdout()),
            false => Box::new(File::create(path).map_err(Error::file(path))?),
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            error: None,
        })
    }

    /// Writes one, and hands it to the system at once.
    pub(super) fn write(&mut self, one: &RepetitionReport) {
        if self.error.is_none() {
            let line = serde_json::to_string(one).map_err(io::Error::other);
            let written = line.and_then(|line| {
                writeln!(self.file, "{line}")?;
                self.file.flush()
            });
            self.error = written.err();
        }
    }

    /// # Errors
    /// When one could not be written.
    pub(super) fn end(self) -> Result<(), Error> {
        self.error
            .map_or(Ok(()), |error| Err(Error::file(&self.path)(error)))
    }
}
