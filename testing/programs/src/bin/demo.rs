//! `make demo`: two hosts, the tools that RDMA people use between them, and iperf3 beside.

use std::fs;
use std::time::Instant;

use programs::{Error, Exchange, Machine, Namespace, Pair, Rockery, perftest};

/// Ethernet MTU of the demonstration: RoCEv2 packets carry 4096 bytes then.
const MTU: u32 = 9000;
const SECONDS: u64 = 60;
const MIB_PER_S_IN_GBIT_PER_S: f64 = 8.0 * 1_048_576.0 / 1e9;

/// The programs, with their names in the table. Each takes a second on an otherwise idle machine.
const BANDWIDTH: &[(&str, &str)] = &[
    ("RDMA WRITE", "ib_write_bw -s 65536 -n 50000"),
    ("RDMA READ", "ib_read_bw -s 65536 -n 50000"),
    ("SEND", "ib_send_bw -s 65536 -n 50000"),
    ("SEND", "ib_send_bw -s 4096 -n 500000"),
    ("SEND", "ib_send_bw -s 64 -n 1000000"),
];
const LATENCY: &[(&str, &str)] = &[
    ("SEND", "ib_send_lat -s 64 -n 50000"),
    // Datagrams are lost where a socket's buffer is small, as without root, and perftest then waits for ever:
    // so one at a time.
    ("SEND, UD", "ib_send_lat -c UD -s 64 -n 50000"),
    ("RDMA WRITE", "ib_write_lat -s 64 -n 50000"),
    ("RDMA READ", "ib_read_lat -s 64 -n 50000"),
    ("fetch and add", "ib_atomic_lat -n 50000"),
];

fn main() {
    if let Err(error) = show() {
        eprintln!("demo: {error}");
        std::process::exit(1);
    }
}

fn show() -> Result<(), Error> {
    let start = Instant::now();
    let rockery = Rockery::built();
    let pair = Pair::new(MTU)?.with(&rockery);
    println!(
        "Two hosts (network namespaces), a veth of MTU {MTU} between them, perftest over rockery:\n"
    );
    println!(
        "{:<28}{:>8}{:>10}{:>12}{:>10}{:>10}{:>7}",
        "operation", "bytes", "Gb/s", "messages/s", "p50 us", "p99 us", "cores"
    );
    for (name, line) in BANDWIDTH {
        let (row, cores) = measured(&pair, line)?;
        let [_, average, millions, ..] = row.figures[..] else {
            continue;
        };
        let (gbit, rate) = (average * MIB_PER_S_IN_GBIT_PER_S, millions * 1e6);
        println!(
            "{name:<28}{:>8}{gbit:>10.1}{rate:>12.0}{:>10}{:>10}{cores:>7.2}",
            row.bytes, "", ""
        );
    }
    for (name, line) in LATENCY {
        let (row, cores) = measured(&pair, line)?;
        let [_, _, typical, _, _, p99, ..] = row.figures[..] else {
            continue;
        };
        println!(
            "{name:<28}{:>8}{:>10}{:>12}{typical:>10.2}{p99:>10.2}{cores:>7.2}",
            row.bytes, "", ""
        );
    }
    let (gbit, cores) = iperf3(&pair)?;
    println!(
        "{:<28}{:>8}{gbit:>10.1}{:>12}{:>10}{:>10}{cores:>7.2}",
        "TCP (iperf3)", "", "", "", ""
    );
    println!("\ncores: how many of this machine's were busy, with both hosts and all else.");
    println!("Took {:.0?}.", start.elapsed());
    println!("Try it: {} run -- ibv_devinfo", rockery.path().display());
    Ok(())
}

fn measured(pair: &Pair, line: &str) -> Result<(perftest::Row, f64), Error> {
    let (exchange, cores) = with_cores(|| perftest::run(&pair.left, &pair.right, line))?;
    let failed = || Error::Failed {
        command: line.to_owned(),
        output: described(&exchange),
    };
    if !exchange.client.succeeded() {
        return Err(failed());
    }
    let row = perftest::rows(&exchange.client.output)
        .into_iter()
        .next_back()
        .ok_or_else(failed)?;
    Ok((row, cores))
}

fn described(exchange: &Exchange) -> String {
    format!(
        "server: {}\nclient: {}",
        exchange.server.output, exchange.client.output
    )
}

fn iperf3(pair: &Pair) -> Result<(f64, f64), Error> {
    let plain = |machine: &Namespace, line: &str| {
        machine.start_plain(&line.split_whitespace().collect::<Vec<_>>())
    };
    let _server = plain(&pair.left, "iperf3 -s -1")?;
    pair.left.wait_for_listener(5201, SECONDS)?;
    let client = format!("iperf3 -f g -t 3 -c {}", pair.left.address());
    let (finished, cores) = with_cores(|| {
        use programs::Job;
        plain(&pair.right, &client)?.wait(SECONDS)
    })?;
    let gbit = finished
        .output
        .lines()
        .rev()
        .find(|line| line.ends_with("receiver"))
        .and_then(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let unit = words.iter().position(|word| *word == "Gbits/sec")?;
            words.get(unit.checked_sub(1)?)?.parse().ok()
        });
    let failed = || Error::Failed {
        command: client.clone(),
        output: finished.output.clone(),
    };
    Ok((gbit.ok_or_else(failed)?, cores))
}

/// Runs something, and how many cores were busy meanwhile on this machine.
fn with_cores<T>(run: impl FnOnce() -> Result<T, Error>) -> Result<(T, f64), Error> {
    let (busy, total) = processor_time();
    let result = run()?;
    let (busy_then, total_then) = processor_time();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let passed = (total_then - total).max(1.0);
    Ok((result, (busy_then - busy) / passed * cores as f64))
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait and so on, in ticks. Busy, and all.
fn processor_time() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let total: f64 = ticks.iter().take(8).sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    (total - idle, total)
}
