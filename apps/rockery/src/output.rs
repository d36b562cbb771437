//! Standard output and standard error: all text and data of commands go through here, so that one place
//! decides what happens when they cannot be written, and what a terminal gets of names that others chose.
//!
//! Rust ignores SIGPIPE, because a socket that its peer has closed raises it too. A pipe without a reader,
//! as in `rockery nvme id-ctrl TARGET | head -1`, is therefore an error here: [`Error::OutputClosed`]. The
//! command returns it and so releases what it holds, such as controllers of NVMe targets; then `main` ends
//! the process by SIGPIPE without a message, as cat(1) and other programs end.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::{Error, printable};

/// Prints text, and flushes it. Names in it may come from a peer, a file or another process: control
/// characters but newlines and tabs are escaped, and so are marks that reorder text.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn print(text: impl Display) -> Result<(), Error> {
    bytes(printable::text(&text.to_string()).as_bytes())
}

/// Prints a JSON document as a line.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn json(document: impl Display) -> Result<(), Error> {
    bytes(format!("{}\n", printable::json(&document.to_string())).as_bytes())
}

/// Prints a document that programs read, in a format that has its own escapes, as it is.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn document(text: impl Display) -> Result<(), Error> {
    bytes(text.to_string().as_bytes())
}

/// Moves the cursor of a terminal to its top left corner, and clears what is below.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn clear() -> Result<(), Error> {
    bytes(b"\x1b[H\x1b[2J")
}

/// Prints a line.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn line(text: impl Display) -> Result<(), Error> {
    print(format_args!("{text}\n"))
}

/// Writes data as they are, and flushes them.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|source| match source.kind() {
            io::ErrorKind::BrokenPipe => Error::OutputClosed,
            _ => Error::file("standard output")(source),
        })
}

/// Prints what a server announces when it starts. A server serves also if its announcement cannot be read.
pub(crate) fn announce(text: impl Display) {
    _ = print(text);
}

/// Writes a line to standard error, with escapes as [`print`]. If that cannot be written, the line is lost:
/// there is no other place for it.
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

/// Says on a terminal what a command does that may take seconds. Elsewhere it is silent: logs have results.
macro_rules! stage {
    ($($text:tt)*) => {
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            $crate::output::write_note(format_args!($($text)*));
        }
    };
}
pub(crate) use stage;

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}
