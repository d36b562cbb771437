//! Standard output, standard error and files: results go through here.
//!
//! Rust ignores SIGPIPE, because a socket that its peer has closed raises it too. A pipe without a reader is
//! therefore an error here, [`Error::OutputClosed`]: the comparison returns it, so that all that it has
//! started ends, and `main` then ends the process by SIGPIPE.
//!
//! Texts may come from programs, peers and servers that are measured: control characters, and marks that
//! reorder text, have escapes.

use std::fmt::Display;
use std::io::{self, Write};

use command::bench::Output;
use command::printable;
use serde::Serialize;

use crate::Error;

/// Prints a line, and flushes it.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn line(text: impl Display) -> Result<(), Error> {
    written(&printable::text(&text.to_string()))
}

/// The tables or the JSON document, for a terminal.
fn shown(report: &impl Printed, is_json: bool) -> String {
    if is_json {
        printable::json(&report.json())
    } else {
        printable::text(report.table().trim_end())
    }
}

fn written(text: &str) -> Result<(), Error> {
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
    _ = writeln!(
        io::stderr().lock(),
        "{}",
        printable::text(&text.to_string())
    );
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
    written(&shown(report, is_json_shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a measured program has said, as a report has it.
    #[derive(Serialize)]
    struct Said(&'static str);

    impl Printed for Said {
        fn table(&self) -> String {
            format!("{}\n", self.0)
        }

        fn page(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let said = Said("a\tb\u{1b}]0;pwn\u{7}\u{202e}");
        assert_eq!(shown(&said, false), "a\tb\\u{1b}]0;pwn\\u{7}\\u{202e}");
        let json = shown(&said, true);
        assert_eq!(json, r#""a\tb\u001b]0;pwn\u0007\u202e""#);
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), said.0);
    }
}
