//! `make bench`: rockery beside the limits of what it stands on, in one run, as a table for
//! `docs/performance.md`.
//!
//! Machines differ and their speed varies while they work, so what counts are ratios: each figure is measured
//! several times, each time between two measurements of its limit, and the median ratio is taken.

mod connections;
mod peers;
mod storage;

use std::fs;
use std::path::Path;

use bench::{Beside, Machine, Table, median};
use programs::machine::until;
use programs::probe::Probe;
use programs::{Error, Job, Machine as _, Namespace, Pair, Rockery, perftest};

/// How often each figure is measured.
const ROUNDS: usize = 3;
const SECONDS: u64 = 120;
const MIB_PER_S_IN_GBIT_PER_S: f64 = 8.0 * 1_048_576.0 / 1e9;
/// BTH and ICRC: what a packet of a SEND has beside its payload.
const PACKET_OVERHEAD: u32 = 16;
const BEGIN: &str = "<!-- made by `make bench` -->";
const END: &str = "<!-- end of what `make bench` makes -->";

/// A line of the table.
struct Row {
    name: String,
    figure: String,
    limit: String,
    ratio: String,
    goal: String,
}

fn main() {
    // What takes a minute, without the rest: shown, and not written down.
    let asked = |name: &str| std::env::args().any(|argument| argument == name);
    let (outcome, is_part) = if asked("--same-host") {
        (measure_same_host(), true)
    } else if asked("--peers") {
        (measure_peers(), true)
    } else if asked("--connections") {
        (connections::measure(), true)
    } else if asked("--storage") {
        (storage::measure(), true)
    } else {
        (measure(), false)
    };
    let table = match outcome {
        Ok(rows) => table(&rows),
        Err(error) => {
            eprintln!("bench: {error}");
            std::process::exit(1);
        }
    };
    println!("{table}");
    if is_part {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance.md");
    if let Err(error) = record(&page, &table) {
        eprintln!("bench: {}: {error}", page.display());
        std::process::exit(1);
    }
}

fn measure_same_host() -> Result<Vec<Row>, Error> {
    let (alone, limits) = place()?;
    let mut rows = same_host(&alone, &limits)?;
    rows.extend(peers::measure(&alone, &limits)?);
    Ok(rows)
}

fn measure_peers() -> Result<Vec<Row>, Error> {
    let (alone, limits) = place()?;
    peers::measure(&alone, &limits)
}

fn place() -> Result<(Namespace, Probe), Error> {
    Ok((Namespace::alone()?.with(&Rockery::built()), Probe::compile("limits")?))
}

fn measure() -> Result<Vec<Row>, Error> {
    let (rockery, limits, queue_pairs) =
        (Rockery::built(), Probe::compile("limits")?, Probe::compile("many_queue_pairs")?);
    let mut rows = Vec::new();
    for (mtu, payload, goal) in [(9000, 4096, 0.6), (1500, 1024, 0.4)] {
        let pair = Pair::new(mtu)?.with(&rockery);
        let tcp = iperf3(&pair)?;
        for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
            eprintln!("{program}, MTU {mtu}");
            rows.push(bandwidth(&pair, &limits, program, (mtu, payload), (goal, tcp))?);
        }
    }
    let pair = Pair::new(9000)?.with(&rockery);
    for (program, goal) in [("ib_send_lat", 1.5), ("ib_write_lat", 4.0)] {
        eprintln!("{program}");
        rows.extend(latency(&pair, &limits, program, goal)?);
    }
    eprintln!("message rate");
    rows.push(message_rate(&pair)?);
    eprintln!("many queue pairs");
    let alone = Namespace::alone()?.with(&rockery);
    rows.extend(many_queue_pairs(&alone, &queue_pairs)?);
    rows.extend(same_host(&alone, &limits)?);
    rows.extend(peers::measure(&alone, &limits)?);
    rows.extend(connections::measure()?);
    rows.extend(storage::measure()?);
    Ok(rows)
}

/// Two programs on one host, held against the kernel's copy from one process to another.
fn same_host(alone: &Namespace, limits: &Probe) -> Result<Vec<Row>, Error> {
    let path = limits.path().to_string_lossy().into_owned();
    let copy = |bytes: &str, figure: &str| -> Result<f64, Error> {
        let argv = [path.as_str(), "copy", bytes];
        number(&succeeded(alone.start_plain(&argv)?.wait(SECONDS)?, &argv)?, figure)
    };
    let mut rows = shared(alone, copy("65536", "gigabytes per second")?)?;
    for (program, bytes, options) in [
        ("ib_write_bw", "4096", "-n 300000"),
        ("ib_write_bw", "65536", "-n 100000"),
        ("ib_write_bw", "1048576", "-n 10000"),
        ("ib_read_bw", "65536", "-n 100000"),
        ("ib_send_bw", "65536", "-n 100000"),
    ] {
        eprintln!("{program} {bytes}, same host");
        let line = format!("{program} -s {bytes} {options}");
        let Beside { figure, limit, ratio } = beside(
            || Ok(figure(alone, &line, 1)? * 1_048_576.0 / 1e9),
            || copy(bytes, "gigabytes per second"),
        )?;
        rows.push(Row {
            name: format!("`{program}` {bytes} B, same host"),
            figure: format!("{figure:.1} GB/s"),
            limit: format!("`process_vm_writev` {limit:.1} GB/s"),
            ratio: format!("{ratio:.2}"),
            goal: if bytes == "4096" { String::new() } else { "at least 0.9, and 12.2 GB/s".into() },
        });
    }
    for (program, goal) in [("ib_send_lat", ""), ("ib_write_lat", "1.3 us"), ("ib_read_lat", "1.3 us")] {
        eprintln!("{program}, same host");
        let line = format!("{program} -s 8 -n 100000");
        let Beside { figure, limit, ratio } =
            beside(|| figure(alone, &line, 2), || copy("8", "microseconds"))?;
        rows.push(Row {
            name: format!("`{program}` 8 B, p50, same host"),
            figure: format!("{figure:.2} us"),
            limit: format!("`process_vm_writev` {limit:.2} us"),
            ratio: format!("{ratio:.2}"),
            goal: goal.into(),
        });
    }
    for (line, column, unit, goal) in [
        ("ib_atomic_lat -n 100000", 2, "us, p50", "0.5 us"),
        ("ib_write_bw -s 64 -n 3000000", 2, "million messages/s", "8 million"),
        ("ib_send_bw -s 64 -n 3000000", 2, "million messages/s", "8 million"),
    ] {
        eprintln!("{line}, same host");
        let figures = (0..ROUNDS).map(|_| figure(alone, line, column)).collect::<Result<_, _>>()?;
        rows.push(Row {
            name: format!("`{line}`, same host"),
            figure: format!("{:.2} {unit}", median(figures)),
            limit: String::new(),
            ratio: String::new(),
            goal: goal.into(),
        });
    }
    Ok(rows)
}

/// Memory that both programs can map: a file in memory for each end.
struct SharedFiles;

impl SharedFiles {
    const BYTES: u64 = 64 << 20;

    fn new() -> Result<Self, Error> {
        let files = Self;
        for file in files.all() {
            let made = std::fs::File::create(&file).and_then(|made| made.set_len(Self::BYTES));
            made.map_err(|error| Error::Failed { command: file, output: error.to_string() })?;
        }
        Ok(files)
    }

    /// As the options of a program name them, for both ends.
    fn name(&self) -> String {
        format!("/dev/shm/rockery-bench-{}-{{end}}", std::process::id())
    }

    fn all(&self) -> [String; 2] {
        ["server", "client"].map(|end| self.name().replace("{end}", end))
    }
}

impl Drop for SharedFiles {
    fn drop(&mut self) {
        self.all().iter().for_each(|file| _ = std::fs::remove_file(file));
    }
}

fn shared(alone: &Namespace, limit: f64) -> Result<Vec<Row>, Error> {
    let files = SharedFiles::new()?;
    [
        ("ib_write_lat -s 8 -n 100000", 2, "us, p50", "0.25 us"),
        ("ib_read_lat -s 8 -n 100000", 2, "us, p50", "0.25 us"),
        ("ib_atomic_lat -n 100000", 2, "us, p50", "0.5 us"),
        ("ib_write_bw -s 64 -n 3000000", 2, "million messages/s", "8 million"),
        ("ib_write_bw -s 4096 -n 1000000", 1, "GB/s", ""),
        ("ib_write_bw -s 65536 -n 100000", 1, "GB/s", "40 GB/s"),
        ("ib_write_bw -s 1048576 -n 10000", 1, "GB/s", "40 GB/s"),
        ("ib_read_bw -s 65536 -n 100000", 1, "GB/s", "40 GB/s"),
    ]
    .map(|(line, column, unit, goal)| {
        eprintln!("{line}, shared mapping");
        let whole = format!("{line} --mmap={}", files.name());
        let rounds = (0..ROUNDS).map(|_| figure(alone, &whole, column)).collect::<Result<_, _>>();
        let scale = if unit == "GB/s" { 1_048_576.0 / 1e9 } else { 1.0 };
        rounds.map(|rounds| Row {
            name: format!("`{line}`, shared mapping"),
            figure: format!("{:.2} {unit}", median(rounds) * scale),
            limit: if scale == 1.0 { String::new() } else { format!("`process_vm_writev` {limit:.1} GB/s") },
            ratio: String::new(),
            goal: goal.into(),
        })
    })
    .into_iter()
    .collect()
}

/// A figure beside its limit, in all rounds.
fn beside(
    figure: impl FnMut() -> Result<f64, Error>,
    limit: impl FnMut() -> Result<f64, Error>,
) -> Result<Beside, Error> {
    bench::beside(ROUNDS, figure, limit)
}

/// A figure of a program between two processes of one host.
fn figure(alone: &Namespace, line: &str, column: usize) -> Result<f64, Error> {
    let exchange = perftest::run(alone, alone, line)?;
    let output = format!("{}\n{}", exchange.server.output, exchange.client.output);
    let rows = perftest::rows(&exchange.client.output);
    let found = rows.last().and_then(|row| row.figures.get(column)).copied();
    found.ok_or_else(|| Error::Failed { command: line.to_owned(), output })
}

/// 64 KiB messages, held against raw UDP with segments as long as the packets.
fn bandwidth(
    pair: &Pair,
    limits: &Probe,
    program: &str,
    (mtu, payload): (u32, u32),
    (goal, tcp): (f64, f64),
) -> Result<Row, Error> {
    let line = format!("{program} -s 65536 -n 60000");
    let measured = || {
        let row = perftest_row(pair, &line)?;
        Ok(row.figures.get(1).copied().unwrap_or_default() * MIB_PER_S_IN_GBIT_PER_S)
    };
    let Beside { figure, limit, ratio } =
        beside(measured, || raw_bandwidth(pair, limits, payload + PACKET_OVERHEAD))?;
    Ok(Row {
        name: format!("`{program}` 64 KiB, MTU {mtu}"),
        figure: format!("{figure:.1} Gb/s"),
        limit: format!("raw UDP with GSO {limit:.1} Gb/s"),
        ratio: format!("{ratio:.2}; {:.2} of iperf3's {tcp:.1} Gb/s", figure / tcp),
        goal: format!("at least {goal}, and above iperf3"),
    })
}

fn latency(pair: &Pair, limits: &Probe, program: &str, goal: f64) -> Result<[Row; 2], Error> {
    let line = format!("{program} -s 64 -n 200000");
    let mut p99s = Vec::new();
    let measured = || {
        let row = perftest_row(pair, &line)?;
        let [_, _, p50, _, _, p99, ..] = row.figures[..] else {
            return Err(Error::Failed { command: line.clone(), output: format!("{:?}", row.figures) });
        };
        p99s.push(p99);
        Ok(p50)
    };
    let Beside { figure: p50, limit, ratio } = beside(measured, || raw_latency(pair, limits))?;
    let p99 = median(p99s);
    Ok([
        Row {
            name: format!("`{program}` 64 B, p50"),
            figure: format!("{p50:.2} us"),
            limit: format!("raw UDP, both spinning, {limit:.2} us"),
            ratio: format!("{ratio:.2}"),
            goal: format!("at most {goal}"),
        },
        Row {
            name: format!("`{program}` 64 B, p99"),
            figure: format!("{p99:.2} us"),
            limit: format!("its p50, {p50:.2} us"),
            ratio: format!("{:.2}", p99 / p50),
            goal: "at most 2".into(),
        },
    ])
}

fn message_rate(pair: &Pair) -> Result<Row, Error> {
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let row = perftest_row(pair, "ib_send_bw -s 64 -n 3000000")?;
        rates.push(row.figures.get(2).copied().unwrap_or_default());
    }
    let rate = median(rates);
    Ok(Row {
        name: "`ib_send_bw` 64 B".into(),
        figure: format!("{rate:.2} million messages/s"),
        limit: String::new(),
        ratio: String::new(),
        goal: "at least 1.5 million".into(),
    })
}

/// What a queue pair costs that does nothing, and what a message costs among many.
fn many_queue_pairs(alone: &Namespace, probe: &Probe) -> Result<[Row; 3], Error> {
    let path = probe.path().to_string_lossy().into_owned();
    let run = |queue_pairs: &str, rounds: &str, figure: &str| -> Result<f64, Error> {
        let argv = [path.as_str(), "-d", "rk_lo", queue_pairs, rounds];
        let output = succeeded(alone.run(&argv, SECONDS)?, &argv)?;
        number(&output, figure)
    };
    let (mut ratios, mut ones, mut manies) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let one = run("2", "200000", "nanoseconds per message")?;
        let many = run("10000", "40", "nanoseconds per message")?;
        ratios.push(many / one);
        ones.push(one);
        manies.push(many);
    }
    let bytes = run("1000000", "0", "bytes per queue pair")?;
    let opening = (0..ROUNDS).map(|_| run("2", "0", "nanoseconds to open"));
    let opening = median(opening.collect::<Result<_, _>>()?);
    Ok([
        Row {
            name: "a message among 10,000 active queue pairs".into(),
            figure: format!("{:.0} ns", median(manies)),
            limit: format!("between one pair of them, {:.0} ns", median(ones)),
            ratio: format!("{:.2}", median(ratios)),
            goal: "at most 2".into(),
        },
        Row {
            name: "an idle queue pair of a million".into(),
            figure: format!("{bytes:.0} bytes"),
            limit: String::new(),
            ratio: String::new(),
            goal: "at most 8192".into(),
        },
        Row {
            name: "opening a device".into(),
            figure: format!("{:.2} ms", opening / 1e6),
            limit: String::new(),
            ratio: String::new(),
            goal: "below 10 ms".into(),
        },
    ])
}

fn perftest_row(pair: &Pair, line: &str) -> Result<perftest::Row, Error> {
    let exchange = perftest::run(&pair.left, &pair.right, line)?;
    let output = format!("{}\n{}", exchange.server.output, exchange.client.output);
    let rows = perftest::rows(&exchange.client.output);
    let failed = || Error::Failed { command: line.to_owned(), output };
    rows.into_iter().next_back().filter(|_| exchange.client.succeeded()).ok_or_else(failed)
}

/// Starts one end of `limits` on the left, waits until it is ready, and runs the other on the right.
fn with_limits(pair: &Pair, limits: &Probe, left: &str, right: &[&str]) -> Result<(String, String), Error> {
    let path = limits.path().to_string_lossy().into_owned();
    let mut passive = pair.left.start_plain(&[&path, left])?;
    until(SECONDS, || Ok(passive.output()?.contains("ready")))?;
    let argv: Vec<&str> = [path.as_str()].iter().chain(right).copied().collect();
    let active = succeeded(pair.right.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
    Ok((succeeded(passive.wait(SECONDS)?, &[&path, left])?, active))
}

fn raw_bandwidth(pair: &Pair, limits: &Probe, segment: u32) -> Result<f64, Error> {
    let (address, segment) = (pair.left.address().to_string(), segment.to_string());
    let (sink, _) = with_limits(pair, limits, "sink", &["source", &address, &segment, "1"])?;
    number(&sink, "gigabits per second")
}

fn raw_latency(pair: &Pair, limits: &Probe) -> Result<f64, Error> {
    let address = pair.left.address().to_string();
    // As long as a SEND of 64 bytes.
    let (_, ping) = with_limits(pair, limits, "pong", &["ping", &address, "80", "100000"])?;
    number(&ping, "microseconds p50")
}

fn iperf3(pair: &Pair) -> Result<f64, Error> {
    let _server = pair.left.start_plain(&["iperf3", "-s", "-1"])?;
    pair.left.wait_for_listener(5201, SECONDS)?;
    let address = pair.left.address().to_string();
    let argv = ["iperf3", "-f", "g", "-t", "4", "-c", &address];
    let output = succeeded(pair.right.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
    let gbit = output.lines().rev().find(|line| line.ends_with("receiver")).and_then(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unit = words.iter().position(|word| *word == "Gbits/sec")?;
        words.get(unit.checked_sub(1)?)?.parse().ok()
    });
    gbit.ok_or_else(|| Error::Failed { command: argv.join(" "), output })
}

fn succeeded(finished: programs::Finished, argv: &[&str]) -> Result<String, Error> {
    if finished.succeeded() {
        return Ok(finished.output);
    }
    Err(Error::Failed { command: argv.join(" "), output: finished.output })
}

/// The figure on the line that begins with `name`.
fn number(output: &str, name: &str) -> Result<f64, Error> {
    let figure = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
    figure.ok_or_else(|| Error::Failed { command: name.to_owned(), output: output.to_owned() })
}

fn table(rows: &[Row]) -> String {
    let Machine { processor, cores, .. } = Machine::this();
    let mut table = Table::new(1, ["what", "measured", "limit, in the same run", "ratio", "goal"]);
    for Row { name, figure, limit, ratio, goal } in rows {
        table.push([name, figure, limit, ratio, goal]);
    }
    format!("Medians of {ROUNDS}, on {cores} cores ({processor}).\n\n{}", table.markdown())
}

/// Puts the table between its marks in the page.
fn record(page: &Path, table: &str) -> std::io::Result<()> {
    let text = fs::read_to_string(page)?;
    let marks = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = marks else {
        return Err(std::io::Error::other("the marks between which the table goes are gone"));
    };
    fs::write(page, format!("{before}{BEGIN}\n{table}{END}{after}"))
}
