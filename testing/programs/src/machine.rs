//! A machine of a test, on which programs run.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::Error;

/// Interval at which conditions without an event are polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The result of a program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// Its output, stdout and stderr in the order in which they came.
    pub output: String,
}

impl Finished {
    /// Whether its status is 0.
    pub fn succeeded(&self) -> bool {
        self.status == Some(0)
    }

    /// Itself, when it succeeded.
    ///
    /// # Panics
    /// With all that it printed, when it failed.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(
            self.succeeded(),
            "status {:?}:\n{}",
            self.status,
            self.output
        );
        self
    }
}

/// A running program. Dropping it kills it.
pub trait Job {
    /// The output of the program so far.
    ///
    /// # Errors
    /// When its machine is gone.
    fn output(&mut self) -> Result<String, Error>;

    /// The result, if the program has ended.
    ///
    /// # Errors
    /// When its machine is gone.
    fn finished(&mut self) -> Result<Option<Finished>, Error>;

    /// Kills the program (SIGKILL).
    ///
    /// # Errors
    /// When its machine is gone.
    fn kill(&mut self) -> Result<(), Error>;

    /// Waits until its output has this text.
    ///
    /// # Panics
    /// With its output, when that does not come within `seconds`, or its machine is gone.
    #[track_caller]
    fn expect_output(&mut self, text: &str, seconds: u64) {
        let in_time = until(seconds, || Ok(self.output()?.contains(text))).expect("its output");
        assert!(
            in_time,
            "{text:?} is not in:\n{}",
            self.output().expect("its output")
        );
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`Error::TooLate`] when that does not come within `seconds`.
    fn wait(&mut self, seconds: u64) -> Result<Finished, Error> {
        let mut last = None;
        let ended = until(seconds, || {
            last = self.finished()?;
            Ok(last.is_some())
        })?;
        match last {
            Some(finished) if ended => Ok(finished),
            _ => {
                let output = self.output()?;
                self.kill()?;
                Err(Error::TooLate {
                    what: "the end of a program".to_owned(),
                    seconds,
                    output,
                })
            }
        }
    }
}

/// A machine on which programs run.
pub trait Machine {
    /// The name of the machine in messages.
    fn name(&self) -> &str;

    /// The IPv4 address at which the other machines reach it.
    fn address(&self) -> IpAddr;

    /// The IPv6 address at which the other machines reach it.
    fn address_v6(&self) -> IpAddr;

    /// Starts a program. Its RDMA device is the machine's: rockery, or the kernel's rxe.
    ///
    /// # Errors
    /// When it cannot be started. A program that is not there may also be one that finishes with status 127.
    fn start(&self, argv: &[&str]) -> Result<Box<dyn Job + '_>, Error>;

    /// Its table of TCP sockets, as Linux prints it.
    ///
    /// # Errors
    /// When the machine is gone.
    fn tcp_sockets(&self) -> Result<String, Error>;

    /// Whether a program awaits requests by RDMA-CM.
    ///
    /// # Errors
    /// When the machine is gone.
    fn awaits_requests(&self) -> Result<bool, Error>;

    /// The RDMA device's name, and the index of the GID that `address` gave it, if programs need these.
    fn device(&self) -> Option<(&str, u32)>;

    /// Runs a program to its end.
    ///
    /// # Errors
    /// When it cannot be started, or does not end within `seconds`.
    fn run(&self, argv: &[&str], seconds: u64) -> Result<Finished, Error> {
        self.start(argv)?.wait(seconds)
    }

    /// Whether something accepts TCP connections on `port`.
    ///
    /// # Errors
    /// When the machine is gone.
    fn listens(&self, port: u16) -> Result<bool, Error> {
        Ok(listens(&self.tcp_sockets()?, port))
    }

    /// Waits until something does.
    ///
    /// # Errors
    /// [`Error::TooLate`] when nothing does within `seconds`.
    fn wait_for_listener(&self, port: u16, seconds: u64) -> Result<(), Error> {
        if until(seconds, || self.listens(port))? {
            return Ok(());
        }
        Err(self.does_not_listen(port, seconds))
    }

    /// The error for that.
    fn does_not_listen(&self, port: u16, seconds: u64) -> Error {
        let what = format!("listening on TCP port {port} of {}", self.name());
        Error::TooLate {
            what,
            seconds,
            output: String::new(),
        }
    }
}

/// The words of a line, as [`Machine::start`] takes them.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Polls until `happened` returns true, or `seconds` have passed: then it returns `false`.
///
/// # Errors
/// The errors of `happened`.
pub fn until(
    seconds: u64,
    mut happened: impl FnMut() -> Result<bool, Error>,
) -> Result<bool, Error> {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if happened()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether a table in the format of `/proc/net/tcp` has a listener (state 0A) on `port`.
fn listens(table: &str, port: u16) -> bool {
    let local = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields
            .next()
            .is_some_and(|address| address.ends_with(&local))
            && fields.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     0: 0100007F:4853 00000000:0000 0A 00000000:00000000\n\
                     1: 0100007F:4854 0100007F:4853 01 00000000:00000000\n";
        assert!(listens(table, 0x4853));
        assert!(!listens(table, 0x4854));
        assert!(!listens(table, 80));
    }
}
