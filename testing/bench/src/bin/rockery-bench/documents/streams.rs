//! TCP beside RDMA over the same veth: iperf3 in both directions, ib_write_bw and ib_read_bw.

use serde_json::Value;

use super::perftest::{self, Ends};
use super::report::{Document, Row};
use super::runner::number;

/// Runs of iperf3, at most.
const ATTEMPTS: usize = 3;
const MIB: f64 = 1_048_576.0;

/// The columns of the rows.
pub(super) fn columns() -> Vec<String> {
    ["iperf3, veth", "RDMA over rockery, veth"]
        .map(str::to_owned)
        .to_vec()
}

/// How iperf3 is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams<'a> {
    /// The document, in names of files.
    pub(super) of: &'a str,
    /// What differs from iperf3's defaults, in words and as options.
    pub(super) what: &'a str,
    pub(super) options: &'a [&'a str],
}

/// A row for each direction in Gb/s, with these published figures beside each. RDMA moves 64 KiB at once:
/// WRITE from the client, READ towards it.
pub(super) fn rows(
    ends: &mut Ends<'_>,
    streams: Streams<'_>,
    published: &[f64],
    document: &mut Document,
) -> Vec<Row> {
    let Streams { of, what, options } = streams;
    let count = if ends.runner.is_quick() {
        "100"
    } else {
        "5000"
    };
    let directions = [
        ("to the server", None, "ib_write_bw"),
        ("from the server", Some("-R"), "ib_read_bw"),
    ];
    let mut rows = Vec::new();
    for (direction, reverse, test) in directions {
        let words: Vec<&str> = options.iter().copied().chain(reverse).collect();
        let found = iperf3(ends, &format!("{of}-iperf3-{test}"), &words);
        let tcp = document.or_missing("iperf3", found).map(|rate| rate / 1e9);
        let text = ends.perftest(
            &format!("{of}-beside-{test}"),
            &[test, "-s", "65536", "-n", count],
        );
        let rdma = document
            .or_missing(test, text)
            .and_then(|text| perftest::bandwidth(&text, 65536))
            .map(|rate| rate * MIB * 8.0 / 1e9);
        rows.push(Row {
            what: format!("{what}, {direction}"),
            unit: "Gb/s",
            here: vec![tcp, rdma],
            published: published.iter().copied().map(Some).collect(),
        });
    }
    rows
}

/// The rate that arrived, in bit/s.
fn iperf3(ends: &mut Ends<'_>, name: &str, options: &[&str]) -> Result<f64, String> {
    let seconds = if ends.runner.is_quick() { "1" } else { "5" };
    let client = [&["iperf3", "-J", "-t", seconds], options, &["-c"]].concat();
    // On a busy machine iperf3 may end with an error in its report and status 0.
    let mut result = Err(String::new());
    for _ in 0..ATTEMPTS {
        result = ends
            .between(name, &["iperf3", "-s"], &client)
            .and_then(|text| rate(&text));
        if result.is_ok() {
            break;
        }
    }
    result
}

/// The rate that arrived in an iperf3 report, in bit/s, or the error in it.
fn rate(report: &str) -> Result<f64, String> {
    let report: Value = serde_json::from_str(report).map_err(|error| error.to_string())?;
    let rate = number(&report, "/end/sum_received/bits_per_second");
    rate.ok_or_else(|| {
        report["error"]
            .as_str()
            .unwrap_or("the report has no rate")
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_rate_or_an_error() {
        let good = r#"{"end": {"sum_received": {"bits_per_second": 7.29e9}}}"#;
        assert_eq!(rate(good), Ok(7.29e9));
        let bad = r#"{"error": "unable to connect to server"}"#;
        assert_eq!(rate(bad), Err("unable to connect to server".to_owned()));
    }
}
