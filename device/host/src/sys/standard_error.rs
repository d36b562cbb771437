//! Standard error of the program, for reasons that `errno` cannot express.

use os::write_signals::without_signals;
use std::fmt::Display;
use std::io;

/// Writes a line to standard error. If that cannot be written, the line is lost: there is no other place for
/// it. `eprintln!` would panic in a call of the program, and a panic ends the device.
pub fn note(text: impl Display) {
    let _ = write(format!("{text}\n").as_bytes());
}

/// Writes bytes to standard error with one call. The standard library's lock of it is not taken: a forked
/// child could find it taken by a thread that the child does not have.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    without_signals(|| {
        // SAFETY: the call reads as many bytes as the slice has.
        let written =
            unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        if written < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// The test starts itself with a standard error that no process reads any more.
    #[test]
    fn a_closed_standard_error_loses_the_note_and_nothing_else() {
        const CHILD: &str = "ROCKERY_TEST_NOTES";
        if std::env::var_os(CHILD).is_some() {
            super::note("a note");
            return;
        }
        let (read, closed) = std::io::pipe().unwrap();
        drop(read);
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture", &name])
            .env(CHILD, "1")
            .stderr(closed);
        let ended = command.output().unwrap();
        assert!(
            ended.status.success(),
            "{}",
            String::from_utf8_lossy(&ended.stdout)
        );
    }
}
