//! Through one switch of a lab (`rockery lab`), beside what has the same steps and does nothing in them.

use programs::{Error, Job as _, Machine as _};

use crate::place::Place;
use crate::row::{Bound, Row, Unit};
use crate::rows::network;
use crate::tools::{Column, MIB, SECONDS, iperf3_rate, limit, perftest, succeeded, words};

const IPERF3_PORT: u16 = 5201;

pub(crate) fn rows() -> Vec<Row> {
    let bandwidth = |place: &Place| {
        Ok(between(place, "ib_write_bw -s 65536 -n 20000", Column::Average)? * MIB * 8.0 / 1e9)
    };
    let relay = |place: &Place| Ok(limit(place, "relay", "65536", "gigabytes per second")? * 8.0);
    let latency = |place: &Place| between(place, "ib_write_lat -s 64 -n 20000", Column::P50);
    let ping = |place: &Place| limit(place, "relay-ping", "20000", "microseconds p50");
    vec![
        Row::new(
            "`ib_write_bw` 64 KiB through a live switch",
            Unit::gigabits(),
            bandwidth,
        )
        .beside(
            "a ring, a thread and a ring",
            Some(Bound::AtLeast(0.5)),
            relay,
        )
        .beside("iperf3 over a veth", Some(Bound::AtLeast(1.0)), |place| {
            network::iperf3(place.jumbo()?)
        }),
        Row::new(
            "`ib_write_lat` 64 B through a live switch, p50",
            Unit::microseconds(),
            latency,
        )
        .beside(
            "a ring, a thread and a ring",
            Some(Bound::AtMost(2.0)),
            ping,
        ),
        Row::new("`iperf3` through a live switch", Unit::gigabits(), iperf3)
            .beside(
                "a thread between two taps",
                Some(Bound::AtLeast(0.5)),
                |place| path(place, "tap"),
            )
            .beside(
                "two veths and a bridge, as in Mininet",
                Some(Bound::AtLeast(1.0)),
                |place| path(place, "bridge"),
            ),
    ]
}

fn between(place: &Place, line: &str, column: Column) -> Result<f64, Error> {
    let lab = place.lab()?;
    perftest(&lab.host(0), &lab.host(1), line, column)
}

fn iperf3(place: &Place) -> Result<f64, Error> {
    let (server, client) = (place.lab()?.host(0), place.lab()?.host(1));
    let mut serving = server.start(&["iperf3", "-s", "-1"])?;
    server.wait_for_listener(IPERF3_PORT, SECONDS)?;
    let address = server.address().to_string();
    let argv = ["iperf3", "-f", "g", "-t", "2", "-c", &address];
    let output = succeeded(client.run(&argv, SECONDS)?, &argv)?;
    serving.wait(SECONDS)?;
    iperf3_rate(&output)
}

/// The same over another path between two namespaces.
fn path(place: &Place, way: &str) -> Result<f64, Error> {
    let line = format!(
        "{} bench paths --path {way} --mtu 9000 --seconds 2 --json",
        place.rockery().display()
    );
    let argv = words(&line);
    let output = succeeded(place.alone()?.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
    let at = output.find('{').unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(&output[at..]).unwrap_or_default();
    let rows = report["rows"].as_array().into_iter().flatten();
    let rate = rows
        .into_iter()
        .find(|row| row["test"] == "TCP, 1 stream")
        .and_then(|row| row["gbps"].as_f64());
    rate.ok_or(Error::Failed {
        command: line,
        output,
    })
}
