//! `rockery bench paths`: ways from one virtual machine or container to another on one host, as a published
//! comparison of SR-IOV functions with a virtual switch measured them.

mod lab;
mod place;
mod report;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use ::bench::Machine;
use command::bench::{BenchPaths, Way};
use serde_json::Value;

use crate::{Error, Programs};
use place::{Place, output};
use report::{Report, Row};

/// Measures, shows and writes.
///
/// # Errors
/// When namespaces cannot be made, nothing could be measured, or a file cannot be written.
pub(super) fn act(what: &BenchPaths, programs: &Programs) -> Result<(), Error> {
    let rockery = programs.rockery()?;
    if !what.inside {
        return enter(programs.own());
    }
    let mut report = Report {
        machine: Machine::this(),
        seconds: what.seconds,
        mtu: what.mtu,
        rows: Vec::new(),
        remarks: Vec::new(),
        limits: report::LIMITS,
        source: report::SOURCE,
    };
    for way in &what.path {
        match measure(*way, &rockery, what) {
            Ok((rows, remarks)) => {
                report.rows.extend(rows);
                report.remarks.extend(remarks);
            }
            Err(reason) => report.remarks.push(format!("{}: {reason}", way.name())),
        }
    }
    if report.rows.is_empty() {
        report
            .remarks
            .iter()
            .for_each(|remark| crate::output::note!("{remark}"));
        return Err(Error::NothingMeasured("paths"));
    }
    crate::output::write(&what.output, &report)
}

/// Starts this command again in namespaces of its own, in which it may make interfaces.
fn enter(own: &Path) -> Result<(), Error> {
    let mut unshare = Command::new("unshare");
    if os::user() != 0 {
        unshare.args(["--user", "--map-root-user"]);
    }
    let error = unshare
        .args(["--net", "--mount"])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .exec();
    Err(Error::NoNamespace(error))
}

/// Rows of one path, and what could not be measured of it.
type Measured = (Vec<Row>, Vec<String>);

fn measure(way: Way, rockery: &Path, what: &BenchPaths) -> Result<Measured, String> {
    let place = Place::new(way, rockery, what.mtu)?;
    let (mut rows, mut remarks) = (Vec::new(), Vec::new());
    for streams in [1, 5] {
        match tcp(&place, way, streams, what.seconds) {
            Ok(row) => rows.push(row),
            Err(reason) => remarks.push(format!("{}, {streams} streams: {reason}", way.name())),
        }
    }
    match rdma(&place, rockery, way, what.seconds) {
        Ok(row) => rows.push(row),
        Err(reason) => remarks.push(format!("{}, RDMA: {reason}", way.name())),
    }
    Ok((rows, remarks))
}

fn tcp(place: &Place, way: Way, streams: u32, seconds: u32) -> Result<Row, String> {
    let switch = place.switch_seconds();
    let server = place.serve("iperf3", &["-s"])?;
    let (streams_text, seconds_text) = (streams.to_string(), seconds.to_string());
    let arguments = [
        "-J",
        "-c",
        place.address(),
        "-P",
        &streams_text,
        "-t",
        &seconds_text,
    ];
    // Where no server listens yet, iperf3 prints the error as JSON, without this, and exits with 0.
    let text = place.ask("iperf3", &arguments, "\"sum_received\"")?;
    drop(server);
    let result: Value = serde_json::from_str(&text).map_err(|error| format!("iperf3: {error}"))?;
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let parts = result["intervals"].as_array().into_iter().flatten();
    let mut rates: Vec<f64> = parts
        .filter(|part| number(&part["sum"]["seconds"]) > 0.5)
        .map(|part| number(&part["sum"]["bits_per_second"]) / 1e9)
        .collect();
    rates.sort_by(f64::total_cmp);
    let sum = &result["end"]["sum_received"];
    let cpu = &result["end"]["cpu_utilization_percent"];
    let ends = (number(&cpu["host_total"]) + number(&cpu["remote_total"])) / 100.0
        * number(&sum["seconds"]);
    let busy = ends + place.switch_seconds() - switch;
    Ok(Row {
        path: way.name(),
        test: format!(
            "TCP, {streams} {}",
            if streams == 1 { "stream" } else { "streams" }
        ),
        gbps: number(&sum["bits_per_second"]) / 1e9,
        slowest: rates.first().copied(),
        fastest: rates.last().copied(),
        cpu_seconds_per_gb: busy / (number(&sum["bytes"]) / 1e9).max(1e-9),
        published: report::published(way, streams),
    })
}

fn rdma(place: &Place, rockery: &Path, way: Way, seconds: u32) -> Result<Row, String> {
    let rockery = rockery.display().to_string();
    let switch = place.switch_seconds();
    let seconds_text = seconds.to_string();
    let test = [
        "ib_write_bw",
        "-s",
        "65536",
        "-D",
        &seconds_text,
        "--report_gbits",
    ];
    let run = |peer: Option<&str>| {
        // The shell's `times` prints the processor time of its children.
        let mut words = vec![
            "-c",
            "\"$@\" && times",
            "sh",
            rockery.as_str(),
            "run",
            "--no-same-host",
            "--",
        ];
        words.extend(test);
        words.extend(peer);
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let words = |all: &[String]| all.to_vec();
    let (server, client) = (run(None), run(Some(place.address())));
    let server = place.serve(
        "sh",
        &words(&server)
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    )?;
    let client: Vec<&str> = client.iter().map(String::as_str).collect();
    let text = place.ask("sh", &client, "BW average")?;
    let other = output(server)?;
    let gbps = bandwidth(&text).ok_or("ib_write_bw printed no bandwidth")?;
    let busy = place::child_seconds(&text) + place::child_seconds(&other) + place.switch_seconds()
        - switch;
    Ok(Row {
        path: way.name(),
        test: "RDMA WRITE, 64 KiB".to_owned(),
        gbps,
        slowest: None,
        fastest: None,
        cpu_seconds_per_gb: busy / (gbps * f64::from(seconds) / 8.0).max(1e-9),
        published: None,
    })
}

/// The average that ib_write_bw prints, in Gb/s: bytes, iterations, peak, average, rate.
fn bandwidth(text: &str) -> Option<f64> {
    let fields = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = fields
        .into_iter()
        .find(|fields| fields.len() == 5 && fields[0] == "65536")?;
    row[3].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bandwidth_is_the_average_of_the_row() {
        let text = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n \
                    65536      88244            0.00               23.13              0.044118\n---\n";
        assert_eq!(bandwidth(text), Some(23.13));
        assert_eq!(bandwidth("65536 1"), None);
    }
}
