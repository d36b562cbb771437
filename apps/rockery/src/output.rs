//! Standard output and standard error: all text and data of commands go through here, so that one place
//! decides what happens when they cannot be written.
//!
//! Rust ignores SIGPIPE, because a socket that its peer has closed raises it too. A pipe without a reader,
//! as in `rockery nvme id-ctrl TARGET | head -1`, is therefore an error here: [`Error::OutputClosed`]. The
//! command returns it and so releases what it holds, such as controllers of NVMe targets; then `main` ends
//! the process by SIGPIPE without a message, as cat(1) and other programs end.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::Error;

/// Prints text as it is, and flushes it.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn print(text: impl Display) -> Result<(), Error> {
    bytes(text.to_string().as_bytes())
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

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}
