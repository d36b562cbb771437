//! Between two network namespaces, through UDP sockets.

use programs::machine::until;
use programs::{Error, Job as _, Machine as _, Pair};

use crate::place::Place;
use crate::row::{Bound, Row, Unit};
use crate::tools::{
    Column, MIB, SECONDS, iperf3_rate, limits_between, number, perftest, succeeded,
};

/// BTH and ICRC: what a packet of a SEND has beside its payload.
const PACKET_OVERHEAD: u32 = 16;
const IPERF3_PORT: u16 = 5201;

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (mtu, goal) in [(9000, 0.6), (1500, 0.4)] {
        for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
            rows.push(bandwidth(program, mtu, goal));
        }
    }
    rows.extend(latencies());
    rows.push(
        Row::new("`ib_send_bw` 64 B", Unit::millions(), |place| {
            between(place.jumbo()?, "ib_send_bw -s 64 -n 3000000", Column::Rate)
        })
        .goal(Bound::AtLeast(1.5)),
    );
    rows
}

fn between(pair: &Pair, line: &str, column: Column) -> Result<f64, Error> {
    perftest(&pair.left, &pair.right, line, column)
}

fn pair_of(place: &Place, mtu: u32) -> Result<&Pair, Error> {
    if mtu == 9000 {
        place.jumbo()
    } else {
        place.ethernet()
    }
}

/// 64 KiB messages, beside raw UDP with segments as long as the packets, and beside TCP.
fn bandwidth(program: &'static str, mtu: u32, goal: f64) -> Row {
    let payload = if mtu == 9000 { 4096 } else { 1024 };
    let ours = move |place: &Place| {
        let line = format!("{program} -s 65536 -n 60000");
        Ok(between(pair_of(place, mtu)?, &line, Column::Average)? * MIB * 8.0 / 1e9)
    };
    Row::new(
        format!("`{program}` 64 KiB, MTU {mtu}"),
        Unit::gigabits(),
        ours,
    )
    .beside(
        "raw UDP with GSO",
        Some(Bound::AtLeast(goal)),
        move |place| raw_bandwidth(place, pair_of(place, mtu)?, payload + PACKET_OVERHEAD),
    )
    .beside("iperf3 over TCP", Some(Bound::AtLeast(1.0)), move |place| {
        iperf3(pair_of(place, mtu)?)
    })
}

/// Medians beside those of raw UDP, and tails beside medians.
fn latencies() -> Vec<Row> {
    [("ib_send_lat", 1.5), ("ib_write_lat", 4.0)]
        .into_iter()
        .flat_map(|(program, goal)| {
            let latency = move |place: &Place, column| {
                between(
                    place.jumbo()?,
                    &format!("{program} -s 64 -n 100000"),
                    column,
                )
            };
            let median = Row::new(
                format!("`{program}` 64 B, p50"),
                Unit::microseconds(),
                move |place| latency(place, Column::P50),
            );
            let tail = Row::new(
                format!("`{program}` 64 B, p99"),
                Unit::microseconds(),
                move |place| latency(place, Column::P99),
            );
            [
                median.beside(
                    "raw UDP, both spinning",
                    Some(Bound::AtMost(goal)),
                    raw_latency,
                ),
                tail.beside("its p50", Some(Bound::AtMost(2.0)), move |place| {
                    latency(place, Column::P50)
                }),
            ]
        })
        .collect()
}

fn raw_bandwidth(place: &Place, pair: &Pair, segment: u32) -> Result<f64, Error> {
    let (address, segment) = (pair.left.address().to_string(), segment.to_string());
    let (sink, _) = limits_between(place, pair, "sink", &["source", &address, &segment, "1"])?;
    number(&sink, "gigabits per second")
}

/// Datagrams as long as a SEND of 64 bytes.
fn raw_latency(place: &Place) -> Result<f64, Error> {
    let pair = place.jumbo()?;
    let address = pair.left.address().to_string();
    let (_, ping) = limits_between(place, pair, "pong", &["ping", &address, "80", "100000"])?;
    number(&ping, "microseconds p50")
}

/// TCP over a veth.
pub(crate) fn iperf3(pair: &Pair) -> Result<f64, Error> {
    let _server = pair.left.start_plain(&["iperf3", "-s", "-1"])?;
    pair.left.wait_for_listener(IPERF3_PORT, SECONDS)?;
    let address = pair.left.address().to_string();
    let argv = ["iperf3", "-f", "g", "-t", "2", "-c", &address];
    let output = succeeded(pair.right.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
    // The port of the next server is free when this one has ended.
    until(SECONDS, || Ok(!pair.left.listens(IPERF3_PORT)?))?;
    iperf3_rate(&output)
}
