//! Connections, sockets over RDMA and UCX between two hosts, each beside what it has to be compared with.

use std::path::Path;
use std::time::Duration;

use programs::machine::until;
use programs::{Error, Machine as _, Pair};

use crate::place::Place;
use crate::row::{Bound, Row, Unit};
use crate::tools::{Column, MIB, SECONDS, number, perftest, succeeded, ucx, ucx_rate, words};

const UCX_PORT: u16 = 13337;
/// How long an rsocket's server takes to listen, which no table shows.
const LISTENING: Duration = Duration::from_millis(500);

pub(crate) fn rows() -> Vec<Row> {
    let opening = Row::new(
        "`cmtime -c 1000`, connecting",
        Unit::each_second(),
        |place| opening(place.ethernet()?),
    );
    let tail = Row::new(
        "a connection alone, from `rdma_getaddrinfo` to RTS, p99",
        Unit::milliseconds(),
        |place| setup(place, "milliseconds p99"),
    );
    let each = Row::new(
        "connections opened and closed one by one",
        Unit::each_second(),
        |place| setup(place, "opened and closed per second"),
    );
    vec![
        stream(),
        round_trip(),
        over_ucx("ucp_put_bw"),
        over_ucx("tag_bw"),
        opening.goal(Bound::AtLeast(5000.0)),
        tail.goal(Bound::AtMost(2.0)),
        each,
    ]
}

/// One figure of `rstream`, which prints: name, bytes, transfers, iterations, total, seconds, Gb/s, µs.
fn rstream(pair: &Pair, options: &str, column: usize) -> Result<f64, Error> {
    let mut server = pair.left.start(&words(&format!("rstream {options}")))?;
    std::thread::sleep(LISTENING);
    let line = format!("rstream {options} -s {}", pair.left.address());
    let output = succeeded(pair.right.run(&words(&line), SECONDS)?, &[&line])?;
    server.wait(SECONDS)?;
    let figures: Vec<&str> = output.lines().last().map(words).unwrap_or_default();
    let found = figures
        .get(column)
        .and_then(|word| word.trim_end_matches('s').parse().ok());
    found.ok_or(Error::Failed {
        command: line,
        output,
    })
}

/// A stream of 64 KiB, beside SENDs of as much.
fn stream() -> Row {
    Row::new("`rstream` 64 KiB, MTU 9000", Unit::gigabits(), |place| {
        rstream(place.jumbo()?, "-T b -S 65536 -C 10000 -I 1", 6)
    })
    .beside("`ib_send_bw`", Some(Bound::AtLeast(0.8)), |place| {
        let pair = place.jumbo()?;
        let average = perftest(
            &pair.left,
            &pair.right,
            "ib_send_bw -s 65536 -n 30000",
            Column::Average,
        )?;
        Ok(average * MIB * 8.0 / 1e9)
    })
}

/// 64 bytes there and back, beside the same program over TCP.
fn round_trip() -> Row {
    let test = |place: &Place, kind: &str| {
        Ok(2.0
            * rstream(
                place.jumbo()?,
                &format!("-T b {kind} -S 64 -C 1 -I 30000"),
                7,
            )?)
    };
    Row::new(
        "`rstream` 64 B, there and back",
        Unit::microseconds(),
        move |place| test(place, ""),
    )
    .beside("TCP", Some(Bound::AtMost(1.0)), move |place| {
        test(place, "-T s")
    })
}

/// 64 KiB by UCX, beside UCX over TCP.
fn over_ucx(test: &'static str) -> Row {
    let over = move |place: &Place, variables: &str| {
        let pair = place.jumbo()?;
        let line = format!(
            "env {variables} ucx_perftest -p {UCX_PORT} -f -w 1000 -n 20000 -s 65536 -t {test}"
        );
        Ok(ucx_rate(&ucx(&pair.left, &pair.right, &line, UCX_PORT)?) / 1e9)
    };
    let name = format!("UCX `{test}` 64 KiB over `rc_verbs`, MTU 9000");
    Row::new(name, Unit::gigabytes(), move |place| {
        over(place, "UCX_TLS=rc UCX_NET_DEVICES=rk_eth0:1")
    })
    .beside("UCX over TCP", Some(Bound::AtLeast(2.0)), move |place| {
        over(place, "UCX_TLS=tcp UCX_NET_DEVICES=eth0")
    })
}

/// Runs a client while a server of the same program waits for requests; returns what the client printed.
fn with_server(pair: &Pair, server: &str, client: &str) -> Result<String, Error> {
    let mut server = pair.left.start(&words(server))?;
    until(SECONDS, || pair.left.awaits_requests())?;
    let output = succeeded(pair.right.run(&words(client), SECONDS)?, &[client])?;
    server.kill()?;
    until(SECONDS, || Ok(!pair.left.awaits_requests()?))?;
    Ok(output)
}

/// A thousand connections at once.
fn opening(pair: &Pair) -> Result<f64, Error> {
    let address = pair.left.address();
    let client = format!("cmtime -s {address} -c 1000");
    let output = with_server(pair, &format!("cmtime -b {address} -c 1000"), &client)?;
    let each = output
        .lines()
        .find_map(|line| line.strip_prefix("connect ")?.split_whitespace().last());
    let each: Option<f64> = each.and_then(|word| word.parse().ok());
    Ok(1e6
        / each.ok_or(Error::Failed {
            command: client,
            output,
        })?)
}

/// Connections one after the other: how long each takes.
fn setup(place: &Place, figure: &str) -> Result<f64, Error> {
    let (pair, probe) = (place.ethernet()?, Path::display(place.setup()?).to_string());
    let address = pair.left.address();
    let client = format!("{probe} connect {address} 3000");
    number(
        &with_server(pair, &format!("{probe} listen {address}"), &client)?,
        figure,
    )
}
