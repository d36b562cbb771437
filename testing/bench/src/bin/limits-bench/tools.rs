//! Running programs and reading the figures that they print.

use programs::machine::until;
use programs::{Error, Exchange, Finished, Job as _, Machine, Namespace, Pair, perftest};

use crate::place::Place;

/// How long a program may run, in seconds.
pub(crate) const SECONDS: u64 = 120;
/// perftest's and UCX's megabyte.
pub(crate) const MIB: f64 = 1_048_576.0;

pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The output of a program.
///
/// # Errors
/// When it failed.
pub(crate) fn succeeded(finished: Finished, argv: &[&str]) -> Result<String, Error> {
    if finished.succeeded() {
        return Ok(finished.output);
    }
    Err(Error::Failed {
        command: argv.join(" "),
        output: finished.output,
    })
}

/// The figure on the line that begins with `name`.
pub(crate) fn number(output: &str, name: &str) -> Result<f64, Error> {
    let figure = output
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
    figure.ok_or_else(|| Error::Failed {
        command: name.to_owned(),
        output: output.to_owned(),
    })
}

/// A column of what perftest's programs print: of bandwidths the average in MiB/s and millions of messages
/// per second, of latencies p50 and p99 in microseconds.
#[derive(Clone, Copy)]
pub(crate) enum Column {
    Average,
    Rate,
    P50,
    P99,
}

/// A figure of one of perftest's programs between two hosts, or between two processes of one.
pub(crate) fn perftest(
    server: &dyn Machine,
    client: &dyn Machine,
    line: &str,
    column: Column,
) -> Result<f64, Error> {
    let exchange = perftest::run(server, client, line)?;
    let output = format!("{}\n{}", exchange.server.output, exchange.client.output);
    let rows = perftest::rows(&exchange.client.output);
    let index = match column {
        Column::Average => 1,
        Column::Rate | Column::P50 => 2,
        Column::P99 => 5,
    };
    let figure = rows.last().and_then(|row| row.figures.get(index)).copied();
    let figure = figure.filter(|_| exchange.client.succeeded());
    figure.ok_or_else(|| Error::Failed {
        command: line.to_owned(),
        output,
    })
}

/// A figure of perftest between two processes of one host.
pub(crate) fn on_one_host(place: &Place, line: &str, column: Column) -> Result<f64, Error> {
    let alone = place.alone()?;
    perftest(alone, alone, line, column)
}

/// The rate at the receiver of iperf3 in Gb/s, from the output of the client.
pub(crate) fn iperf3_rate(output: &str) -> Result<f64, Error> {
    let gbit = output
        .lines()
        .rev()
        .find(|line| line.ends_with("receiver"))
        .and_then(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let unit = words.iter().position(|word| *word == "Gbits/sec")?;
            words.get(unit.checked_sub(1)?)?.parse().ok()
        });
    gbit.ok_or_else(|| Error::Failed {
        command: "iperf3".to_owned(),
        output: output.to_owned(),
    })
}

/// A figure of the machine by `limits MODE ARGUMENT`.
pub(crate) fn limit(place: &Place, mode: &str, argument: &str, figure: &str) -> Result<f64, Error> {
    let path = place.limits()?.to_string_lossy().into_owned();
    let argv = [path.as_str(), mode, argument];
    number(
        &succeeded(place.alone()?.start_plain(&argv)?.wait(SECONDS)?, &argv)?,
        figure,
    )
}

/// Starts one end of `limits` on the left, waits until it is ready, and runs the other on the right.
pub(crate) fn limits_between(
    place: &Place,
    pair: &Pair,
    left: &str,
    right: &[&str],
) -> Result<(String, String), Error> {
    let path = place.limits()?.to_string_lossy().into_owned();
    let mut passive = pair.left.start_plain(&[&path, left])?;
    until(SECONDS, || Ok(passive.output()?.contains("ready")))?;
    let argv: Vec<&str> = [path.as_str()].iter().chain(right).copied().collect();
    let active = succeeded(pair.right.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
    Ok((succeeded(passive.wait(SECONDS)?, &[&path, left])?, active))
}

/// The last figures that `ucx_perftest` prints: messages, microseconds three times, MB/s twice, messages per
/// second twice.
pub(crate) fn ucx(
    server: &Namespace,
    client: &Namespace,
    line: &str,
    port: u16,
) -> Result<Vec<f64>, Error> {
    let output = succeeded(
        Exchange::run(server, client, &words(line), "-x", port, SECONDS)?.client,
        &[line],
    )?;
    let numbers = |line: &str| -> Vec<f64> {
        line.split_whitespace()
            .filter_map(|w| w.parse().ok())
            .collect()
    };
    let found = output
        .lines()
        .rev()
        .map(numbers)
        .find(|numbers| numbers.len() >= 7);
    found.ok_or(Error::Failed {
        command: line.to_owned(),
        output,
    })
}

/// The rate of all messages that `ucx_perftest` printed, in bytes per second.
pub(crate) fn ucx_rate(figures: &[f64]) -> f64 {
    figures.iter().rev().nth(2).copied().unwrap_or_default() * MIB
}

/// Memory that both programs can map: a file in memory for each end.
pub(crate) struct SharedFiles;

impl SharedFiles {
    const BYTES: u64 = 64 << 20;

    pub(crate) fn new() -> Result<Self, Error> {
        let files = Self;
        for file in files.all() {
            let made = std::fs::File::create(&file).and_then(|made| made.set_len(Self::BYTES));
            made.map_err(|error| Error::Failed {
                command: file,
                output: error.to_string(),
            })?;
        }
        Ok(files)
    }

    /// As the options of a program name them, for both ends.
    pub(crate) fn name(&self) -> String {
        format!("/dev/shm/rockery-bench-{}-{{end}}", std::process::id())
    }

    fn all(&self) -> [String; 2] {
        ["server", "client"].map(|end| self.name().replace("{end}", end))
    }
}

impl Drop for SharedFiles {
    fn drop(&mut self) {
        self.all()
            .iter()
            .for_each(|file| _ = std::fs::remove_file(file));
    }
}
