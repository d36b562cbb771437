//! Connections, sockets over RDMA and UCX, each beside what it has to be compared with.

use std::time::Duration;

use bench::{Beside, median};
use programs::machine::until;
use programs::probe::Probe;
use programs::{Error, Exchange, Machine, Pair, Rockery};

use super::{MIB_PER_S_IN_GBIT_PER_S, ROUNDS, Row, SECONDS, beside, number, perftest_row, succeeded};

const UCX_PORT: u16 = 13337;
/// How long an rsocket's server takes to listen, which no table shows.
const LISTENING: Duration = Duration::from_millis(500);

pub(crate) fn measure() -> Result<Vec<Row>, Error> {
    let pair = Pair::new(9000)?.with(&Rockery::built());
    let mut rows = vec![stream(&pair)?, round_trip(&pair)?];
    for test in ["ucp_put_bw", "tag_bw"] {
        rows.push(ucx(&pair, test)?);
    }
    let pair = Pair::new(1500)?.with(&Rockery::built());
    rows.push(opening(&pair)?);
    rows.push(setup(&pair)?);
    Ok(rows)
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// One figure of `rstream`, which prints: name, bytes, transfers, iterations, total, seconds, Gb/s, µs.
fn rstream(pair: &Pair, options: &str, column: usize) -> Result<f64, Error> {
    let mut server = pair.left.start(&words(&format!("rstream {options}")))?;
    std::thread::sleep(LISTENING);
    let line = format!("rstream {options} -s {}", pair.left.address());
    let output = succeeded(pair.right.run(&words(&line), SECONDS)?, &[&line])?;
    server.wait(SECONDS)?;
    let figures: Vec<&str> = output.lines().last().map(words).unwrap_or_default();
    let found = figures.get(column).and_then(|word| word.trim_end_matches('s').parse().ok());
    found.ok_or(Error::Failed { command: line, output })
}

/// A stream of 64 KiB, held against SENDs of as much.
fn stream(pair: &Pair) -> Result<Row, Error> {
    eprintln!("rstream 64 KiB");
    let send = || {
        let row = perftest_row(pair, "ib_send_bw -s 65536 -n 30000")?;
        Ok(row.figures.get(1).copied().unwrap_or_default() * MIB_PER_S_IN_GBIT_PER_S)
    };
    let Beside { figure, limit, ratio } = beside(|| rstream(pair, "-T b -S 65536 -C 10000 -I 1", 6), send)?;
    Ok(Row {
        name: "`rstream` 64 KiB, MTU 9000".into(),
        figure: format!("{figure:.1} Gb/s"),
        limit: format!("`ib_send_bw` {limit:.1} Gb/s"),
        ratio: format!("{ratio:.2}"),
        goal: "at least 0.8".into(),
    })
}

/// 64 bytes there and back, held against the same program over TCP.
fn round_trip(pair: &Pair) -> Result<Row, Error> {
    eprintln!("rstream 64 B, there and back");
    let test = |kind: &str| Ok(2.0 * rstream(pair, &format!("-T b {kind} -S 64 -C 1 -I 30000"), 7)?);
    let Beside { figure, limit, ratio } = beside(|| test(""), || test("-T s"))?;
    Ok(Row {
        name: "`rstream` 64 B, there and back".into(),
        figure: format!("{figure:.1} us"),
        limit: format!("TCP {limit:.1} us"),
        ratio: format!("{ratio:.2}"),
        goal: "below 1".into(),
    })
}

/// 64 KiB by UCX, held against UCX over TCP.
fn ucx(pair: &Pair, test: &str) -> Result<Row, Error> {
    eprintln!("UCX {test}");
    let over = |variables: &str| -> Result<f64, Error> {
        let line =
            format!("env {variables} ucx_perftest -p {UCX_PORT} -f -w 1000 -n 20000 -s 65536 -t {test}");
        let exchange = Exchange::run(&pair.left, &pair.right, &words(&line), "-x", UCX_PORT, SECONDS)?;
        let output = succeeded(exchange.client, &[&line])?;
        // Iterations, three times, MB/s of the last part and of all, messages per second twice.
        let figures = output.lines().rev().map(words).find(|words| words.len() >= 7);
        let found = figures.and_then(|figures| figures.iter().rev().nth(2)?.parse::<f64>().ok());
        found.ok_or(Error::Failed { command: line, output })
    };
    let (rdma, tcp) = ("UCX_TLS=rc UCX_NET_DEVICES=rk_eth0:1", "UCX_TLS=tcp UCX_NET_DEVICES=eth0");
    let Beside { figure, limit, ratio } = beside(|| over(rdma), || over(tcp))?;
    Ok(Row {
        name: format!("UCX `{test}` 64 KiB over `rc_verbs`, MTU 9000"),
        figure: format!("{figure:.0} MB/s"),
        limit: format!("UCX over TCP {limit:.0} MB/s"),
        ratio: format!("{ratio:.2}"),
        goal: "at least 2".into(),
    })
}

/// A thousand connections at once.
fn opening(pair: &Pair) -> Result<Row, Error> {
    eprintln!("cmtime");
    let address = pair.left.address();
    let mut server = pair.left.start(&words(&format!("cmtime -b {address} -c 1000")))?;
    until(SECONDS, || pair.left.awaits_requests())?;
    let line = format!("cmtime -s {address} -c 1000");
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let output = succeeded(pair.right.run(&words(&line), SECONDS)?, &[&line])?;
        let each = output.lines().find_map(|line| line.strip_prefix("connect ")?.split_whitespace().last());
        let each: Option<f64> = each.and_then(|word| word.parse().ok());
        rates.push(1e6 / each.ok_or(Error::Failed { command: line.clone(), output })?);
    }
    server.kill()?;
    until(SECONDS, || Ok(!pair.left.awaits_requests()?))?;
    Ok(Row {
        name: "`cmtime -c 1000`, connecting".into(),
        figure: format!("{:.0} connections/s", median(rates)),
        limit: String::new(),
        ratio: String::new(),
        goal: "at least 5,000".into(),
    })
}

/// Connections one after the other: how long each takes.
fn setup(pair: &Pair) -> Result<Row, Error> {
    eprintln!("setting up connections");
    let probe = Probe::compile_with("cc", "setup", &["-lrdmacm", "-libverbs"])?;
    let (path, address) = (probe.path().display().to_string(), pair.left.address());
    let line = format!("{path} connect {address} 3000");
    let (mut p50s, mut p99s, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let mut server = pair.left.start(&words(&format!("{path} listen {address}")))?;
    until(SECONDS, || pair.left.awaits_requests())?;
    for _ in 0..ROUNDS {
        let output = succeeded(pair.right.run(&words(&line), SECONDS)?, &[&line])?;
        p50s.push(number(&output, "milliseconds p50")?);
        p99s.push(number(&output, "milliseconds p99")?);
        rates.push(number(&output, "opened and closed per second")?);
    }
    server.kill()?;
    until(SECONDS, || Ok(!pair.left.awaits_requests()?))?;
    Ok(Row {
        name: "a connection alone, from `rdma_getaddrinfo` to RTS".into(),
        figure: format!("p50 {:.2} ms, p99 {:.2} ms", median(p50s), median(p99s)),
        limit: format!("{:.0} opened and closed per second", median(rates)),
        ratio: String::new(),
        goal: "p99 below 2 ms".into(),
    })
}
