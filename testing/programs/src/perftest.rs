//! perftest's eight programs: `ib_{send,write,read,atomic}_{bw,lat}`, and what they print.

use crate::exchange::words_for;
use crate::{Error, Exchange, Finished, Machine, connection};

/// Where its servers listen.
pub const PORT: u16 = 18515;
/// The longest that one run of the matrix may take, with every size, on a busy machine or an emulated one.
const SECONDS: u64 = 300;

/// The message of perftest when it could not measure the processor's clock, as on a busy machine: the
/// messages were transferred, but rates cannot be computed.
const UNCALIBRATED: &str = "Can't produce a report";
/// Runs until it could, at most.
const CALIBRATIONS_MAX: u32 = 12;

/// Files of perftest's XRC domains, which it does not remove: another user could not open them.
const XRC_FILES: [&str; 2] = ["/tmp/xrc_domain_server", "/tmp/xrc_domain_client"];

/// A line of its table: bytes per message, and the columns behind them, whose meaning the program gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Size of a message in bytes.
    pub bytes: u64,
    /// How many messages.
    pub iterations: u64,
    /// The rest. Bandwidth: peak and average in MiB/s, then million messages per second. Latency in
    /// microseconds: least, most, typical, average, deviation, 99 and 99.9 percentile.
    pub figures: Vec<f64>,
}

/// The table in what a perftest program printed.
pub fn rows(output: &str) -> Vec<Row> {
    output.lines().filter_map(row).collect()
}

/// A row has nothing but numbers in it, at least four.
fn row(line: &str) -> Option<Row> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [bytes, iterations, figures @ ..] = fields.as_slice() else {
        return None;
    };
    let figures: Vec<f64> = figures
        .iter()
        .map(|field| field.parse())
        .collect::<Result<_, _>>()
        .ok()?;
    let row = Row {
        bytes: bytes.parse().ok()?,
        iterations: iterations.parse().ok()?,
        figures,
    };
    (row.figures.len() >= 2).then_some(row)
}

/// Runs `line` (a program with its options) between two machines; again where an end could not measure the
/// processor's clock.
///
/// # Errors
/// As [`Exchange::run`].
pub fn run(server: &dyn Machine, client: &dyn Machine, line: &str) -> Result<Exchange, Error> {
    let argv: Vec<&str> = line.split_whitespace().collect();
    let attempt = || match argv.contains(&"-z") {
        true => by_rdma_cm(server, client, &argv),
        false => Exchange::run(server, client, &argv, "-x", PORT, SECONDS),
    };
    let mut last = attempt();
    for _ in 1..CALIBRATIONS_MAX {
        let uncalibrated = |end: &Finished| end.output.contains(UNCALIBRATED);
        if !last
            .as_ref()
            .is_ok_and(|exchange| uncalibrated(&exchange.server) || uncalibrated(&exchange.client))
        {
            break;
        }
        last = attempt();
    }
    // They may not be there, or not be ours.
    XRC_FILES
        .iter()
        .for_each(|file| _ = std::fs::remove_file(file));
    last
}

/// With `-z` both ends find each other by RDMA-CM, and the server listens on no TCP port.
fn by_rdma_cm(
    server: &dyn Machine,
    client: &dyn Machine,
    argv: &[&str],
) -> Result<Exchange, Error> {
    let serving = words_for(server, argv, "-x").join(" ");
    let asking = format!(
        "{} {}",
        words_for(client, argv, "-x").join(" "),
        server.address()
    );
    connection::run((server, &serving), (client, &asking), SECONDS)
}

/// The same, where both ends have to succeed and the client has to print at least one row.
///
/// # Panics
/// When they do not.
#[track_caller]
pub fn expect(server: &dyn Machine, client: &dyn Machine, line: &str) -> Vec<Row> {
    let exchange = match run(server, client, line) {
        Ok(exchange) => exchange.expect_success(),
        Err(error) => panic!("{line}: {error}"),
    };
    let rows = rows(&exchange.client.output);
    assert!(
        !rows.is_empty(),
        "{line} printed no figures:\n{}",
        exchange.client.output
    );
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_bandwidths_is_read() {
        let output = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n\
                      65536      500              37.91              37.90 \t\t   0.000606\n\
                      ---------------------------------------\n";
        let row = Row {
            bytes: 65536,
            iterations: 500,
            figures: vec![37.91, 37.90, 0.000606],
        };
        assert_eq!(rows(output), [row]);
    }

    #[test]
    fn lines_that_are_no_table_are_left_out() {
        assert!(rows(" Mtu             : 1024[B]\n GID: 00:00\n 1 2\n").is_empty());
    }
}
