//! Standard output, standard error and files: results go through here.
//!
//! Rust ignores SIGPIPE, because a socket that its peer has closed raises it too. A pipe without a reader is
//! therefore an error here, [`Error::OutputClosed`]: the comparison returns it, so that all that it has
//! started ends, and `main` then ends the process by SIGPIPE.

use std::fmt::Display;
use std::io::{self, Write};

use command::bench::Output;
use serde::Serialize;

use crate::Error;

/// Prints a line, and flushes it.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn line(text: impl Display) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|source| match source.kind() {
            io::ErrorKind::BrokenPipe => Error::OutputClosed,
            _ => Error::file("standard output")(source),
        })
}

/// Writes a line to standard error. If that cannot be written, the line is lost: there is no other place for
/// it.
pub(crate) fn write_note(text: impl Display) {
    _ = writeln!(io::stderr().lock(), "{text}");
}

/// As `eprintln!`, which panics when standard error is closed.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::write_note(format_args!($($text)*))
    };
}
pub(crate) use note;

/// The results of a comparison in each of its forms.
pub(crate) trait Printed: Serialize {
    /// Text for a terminal.
    fn table(&self) -> String;
    /// A page that opens offline.
    fn page(&self) -> String;
    /// One JSON document.
    fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Writes the files, and prints the tables or the JSON document.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn write(output: &Output, report: &impl Printed) -> Result<(), Error> {
    if let Some(path) = &output.html {
        std::fs::write(path, report.page()).map_err(Error::file(path))?;
    }
    let is_json_shown = output
        .json
        .as_ref()
        .is_some_and(|path| path.as_os_str() == "-");
    if let Some(path) = output.json.as_ref().filter(|_| !is_json_shown) {
        std::fs::write(path, report.json()).map_err(Error::file(path))?;
    }
    let text = if is_json_shown {
        report.json()
    } else {
        report.table()
    };
    line(text.trim_end())
}
