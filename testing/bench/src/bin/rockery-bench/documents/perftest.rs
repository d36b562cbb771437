//! perftest, iperf3 and NetPIPE between two network namespaces, and what they print.

use std::process::Command;
use std::time::{Duration, Instant};

use command::program::{is_executable, locate};

use super::runner::{Runner, Server, UNCALIBRATED};
use crate::Error;
use crate::place::{ADDRESSES, Held, Pair};

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(10);
/// How often the sockets of a server are read until it listens.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often perftest is run until it could measure the processor's clock.
const RUNS: u32 = 5;

/// Programs at the two ends of a veth.
pub(super) struct Ends<'a> {
    pub(super) runner: &'a mut Runner,
    pair: Pair,
}

impl<'a> Ends<'a> {
    /// Two namespaces with a veth of MTU 9000.
    pub(super) fn new(runner: &'a mut Runner) -> Result<Self, String> {
        let reason = "this user may make no network namespaces (root may, and \
                   unshare --user --map-root-user)";
        Ok(Self {
            runner,
            pair: Pair::new().ok_or(reason)?,
        })
    }

    /// The first or the second end.
    pub(super) fn end(&self, index: usize) -> Option<&Held> {
        self.pair.0.get(index)
    }

    fn command(end: &Held, words: &[&str]) -> Command {
        let mut command = end.enter();
        command.args(words);
        command
    }

    /// Runs `server` at one end and `client` with the server's address at the other, and returns what the
    /// client printed.
    pub(super) fn between(
        &mut self,
        name: &str,
        server: &[&str],
        client: &[&str],
    ) -> Result<String, String> {
        installed(name_of(server))?;
        let [one, other] = &self.pair.0;
        let (server, mut client) = (Self::command(one, server), Self::command(other, client));
        client.arg(ADDRESSES[0]);
        let mut result = Err(String::new());
        for _ in 0..RUNS {
            let mut serving = self.runner.start(&server)?;
            wait_for_listener(one, &mut serving);
            result = self.runner.ask(name, &client, START);
            if !result
                .as_ref()
                .is_err_and(|reason| reason.contains(UNCALIBRATED))
            {
                break;
            }
        }
        result
    }

    /// perftest over rockery, at both ends with these options.
    pub(super) fn perftest(&mut self, name: &str, words: &[&str]) -> Result<String, String> {
        let rockery = self.runner.rockery().display().to_string();
        let mut all = vec![rockery.as_str(), "run", "--no-same-host", "--"];
        all.extend(words);
        // No warning about clocks that change.
        all.push("-F");
        self.between(name, &all, &all)
    }
}

/// Waits until the server at this end listens, has ended, or is too late. Not every client can tell that its
/// server does not listen yet: iperf3 writes a refused connection to its report, and exits with 0.
fn wait_for_listener(end: &Held, server: &mut Server) {
    let until = Instant::now() + START;
    while !end.listens() && !server.has_ended() && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The program that words start, where rockery starts it as well.
fn name_of<'a>(words: &[&'a str]) -> &'a str {
    let at = words
        .iter()
        .position(|word| *word == "--")
        .map_or(0, |at| at + 1);
    words.get(at).copied().unwrap_or_default()
}

/// Whether a program is on the path; else the reason why it is not used.
pub(super) fn installed(program: &str) -> Result<(), String> {
    let found = match locate(program.as_ref(), std::env::var_os("PATH").as_deref()) {
        None => Err(Error::NoSuchProgram(program.to_owned())),
        Some(path) if !is_executable(&path) => Err(Error::NotExecutable(path)),
        Some(_) => Ok(()),
    };
    found.map_err(|error| error.to_string())
}

/// The row of numbers for messages of so many bytes, in perftest's table.
fn row(text: &str, bytes: u64) -> Option<Vec<f64>> {
    let rows = text.lines().map(|line| {
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        numbers.unwrap_or_default()
    });
    rows.into_iter()
        .find(|row| row.len() > 3 && row.first() == Some(&(bytes as f64)))
}

/// Average bandwidth in MiB/s, which perftest calls MB/sec: bytes, iterations, peak, average, rate.
pub(super) fn bandwidth(text: &str, bytes: u64) -> Option<f64> {
    row(text, bytes)?.get(3).copied()
}

/// Typical latency in microseconds: bytes, iterations, least, longest, typical.
pub(super) fn latency(text: &str, bytes: u64) -> Option<f64> {
    row(text, bytes)?.get(4).copied()
}

/// The rows of NetPIPE's output file: bytes, Mb/s, one-way time in seconds.
pub(super) fn netpipe(text: &str) -> Vec<(u64, f64, f64)> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let bytes = words.next()?.parse().ok()?;
        Some((
            bytes,
            words.next()?.parse().ok()?,
            words.next()?.parse().ok()?,
        ))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_from_the_row_of_their_size() {
        let text = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                    2          1000             9.91               9.01                 4.724\n \
                    65536      1000             2345.10            2275.69              0.036411\n";
        assert_eq!(
            (bandwidth(text, 65536), bandwidth(text, 64)),
            (Some(2275.69), None)
        );
        let text = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
                    2       1000          1.40           9.99         1.44                1.50\n";
        assert_eq!(latency(text, 2), Some(1.44));
    }

    #[test]
    fn the_file_of_netpipe_has_three_columns() {
        let text = "       1     0.391234    0.00001950\n 1048576  7686.283000    0.00104081\n";
        assert_eq!(
            netpipe(text),
            [(1, 0.391234, 0.0000195), (1_048_576, 7686.283, 0.00104081)]
        );
    }

    #[test]
    fn the_program_is_behind_that_of_rockery() {
        assert_eq!(
            name_of(&["/bin/rockery", "run", "--", "ib_read_bw", "-a"]),
            "ib_read_bw"
        );
        assert_eq!(name_of(&["iperf3", "-s"]), "iperf3");
        assert!(
            installed("rockery-no-such-program")
                .is_err_and(|reason| reason.contains("no such program"))
        );
    }
}
