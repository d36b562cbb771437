//! The guest's control port: a line of shell in, its output with `|` before each line and `=STATUS` out.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::Finished;

pub(super) struct Control {
    writer: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Control {
    /// `None` when nothing is there yet. Answers are waited for as long as `seconds`.
    pub(super) fn connect(socket: &Path, seconds: u64) -> Option<Self> {
        let writer = UnixStream::connect(socket).ok()?;
        writer
            .set_read_timeout(Some(Duration::from_secs(seconds)))
            .ok()?;
        let reader = BufReader::new(writer.try_clone().ok()?);
        Some(Self { writer, reader })
    }

    /// Sends a line, and reads the answer. `None` when the guest has ended.
    pub(super) fn ask(&mut self, line: &str) -> Option<Finished> {
        debug_assert!(!line.contains('\n'), "one line at a time");
        writeln!(self.writer, "{line}").ok()?;
        self.answer()
    }

    /// Reads an answer. The first one comes unasked, when the guest is up.
    pub(super) fn answer(&mut self) -> Option<Finished> {
        let mut output = String::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.reader.read_until(b'\n', &mut line).ok()? == 0 {
                return None;
            }
            let text = String::from_utf8_lossy(&line);
            if let Some(text) = text.strip_prefix('|') {
                output.push_str(text);
            } else if let Some(status) = text.strip_prefix('=') {
                return Some(Finished {
                    status: status.trim().parse().ok(),
                    output,
                });
            }
        }
    }
}
