//! Other transports between processes on one host, as baselines: UCX over shared memory and
//! over the kernel's copy, libfabric over shared memory. UCX has two layers: programs use the upper one (UCP:
//! tags, completions in order), and its `put_bw` over `posix` in the lower one (UCT) is a bare copy.

use bench::Beside;
use programs::machine::until;
use programs::probe::Probe;
use programs::{Error, Exchange, Job, Machine, Namespace};

use super::{Row, SECONDS, SharedFiles, beside, figure, number, succeeded};

const UCX_PORT: u16 = 13338;
const PINGPONG_PORT: u16 = 47592;
const MIB: f64 = 1_048_576.0;
/// Bytes, how many messages of perftest's and of UCX' programs, and how many each way of libfabric's.
const SIZES: [(&str, &str, &str); 3] =
    [("4096", "300000", "20000"), ("65536", "100000", "10000"), ("1048576", "10000", "1000")];

pub(crate) fn measure(alone: &Namespace, limits: &Probe) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (bytes, count, pings) in SIZES {
        eprintln!("UCX and libfabric, {bytes} B");
        rows.extend(streams(alone, bytes, count, pings)?);
    }
    rows.push(latency(alone)?);
    rows.push(events(alone, limits)?);
    Ok(rows)
}

/// The last figures that `ucx_perftest` prints: messages, microseconds three times, MB/s twice, messages per
/// second twice.
fn ucx(alone: &Namespace, transports: &str, test: &str) -> Result<Vec<f64>, Error> {
    let line = format!("env UCX_TLS={transports} ucx_perftest -p {UCX_PORT} -f -w 100 {test}");
    let argv: Vec<&str> = line.split_whitespace().collect();
    let output = succeeded(Exchange::run(alone, alone, &argv, "-x", UCX_PORT, SECONDS)?.client, &[&line])?;
    let numbers =
        |line: &str| -> Vec<f64> { line.split_whitespace().filter_map(|w| w.parse().ok()).collect() };
    let found = output.lines().rev().map(numbers).find(|numbers| numbers.len() >= 7);
    found.ok_or(Error::Failed { command: line, output })
}

/// The lower layer, by one transport.
fn uct(transport: &str) -> String {
    format!("-d memory -x {transport}")
}

fn ucx_stream(alone: &Namespace, transports: &str, test: &str) -> Result<f64, Error> {
    let figures = ucx(alone, transports, test)?;
    let rate = figures.iter().rev().nth(2).copied().unwrap_or_default();
    Ok(rate * MIB / 1e9)
}

/// `fi_pingpong` prints: name of the size, sent, acknowledged, bytes in all, seconds, MB/s, and times.
fn libfabric(alone: &Namespace, bytes: &str, pings: &str) -> Result<f64, Error> {
    let line = format!("fi_pingpong -p shm -e rdm -I {pings} -S {bytes}");
    let argv: Vec<&str> = line.split_whitespace().collect();
    let mut server = alone.start_plain(&argv)?;
    until(SECONDS, || alone.listens(PINGPONG_PORT))?;
    let address = alone.address().to_string();
    let output = succeeded(alone.start_plain(&[&argv[..], &[&address]].concat())?.wait(SECONDS)?, &[&line])?;
    server.wait(SECONDS)?;
    let words: Vec<&str> = output.lines().last().unwrap_or_default().split_whitespace().collect();
    let rate = words.get(5).and_then(|word| word.parse::<f64>().ok());
    Ok(rate.ok_or(Error::Failed { command: line, output })? / 1e3)
}

/// Shared mappings beside UCX over shared memory, and private memory beside the copy by the kernel.
fn streams(alone: &Namespace, bytes: &str, count: &str, pings: &str) -> Result<Vec<Row>, Error> {
    let perftest = |options: &str| {
        let line = format!("ib_write_bw -s {bytes} -n {count}{options}");
        Ok(figure(alone, &line, 1)? * MIB / 1e9)
    };
    let files = SharedFiles::new()?;
    let shared = format!(" --mmap={}", files.name());
    let sized = format!("-s {bytes} -n {count}");
    let put = |transport, layout| {
        ucx_stream(alone, transport, &format!("{} -t put_bw -D {layout} {sized}", uct(transport)))
    };
    let tags = || ucx_stream(alone, "posix", &format!("-t tag_bw {sized}"));
    let row = |name: String, what: &str, Beside { figure, limit, ratio }: Beside| Row {
        name,
        figure: format!("{figure:.1} GB/s"),
        limit: format!("{what} {limit:.1} GB/s"),
        ratio: format!("{ratio:.2}"),
        goal: "above 1".into(),
    };
    let name = format!("`ib_write_bw` {bytes} B, same host");
    Ok(vec![
        row(
            format!("{name}, shared mapping"),
            "UCX `tag_bw` over `posix`",
            beside(|| perftest(&shared), tags)?,
        ),
        row(
            format!("{name}, shared mapping"),
            "UCT `put_bw` over `posix`",
            beside(|| perftest(&shared), || put("posix", "short"))?,
        ),
        row(name.clone(), "UCT `put_bw` over `cma`", beside(|| perftest(""), || put("cma", "zcopy"))?),
        row(
            name,
            "libfabric's `shm`, `fi_pingpong`",
            beside(|| perftest(""), || libfabric(alone, bytes, pings))?,
        ),
    ])
}

/// 8 bytes, one way, with shared mappings.
fn latency(alone: &Namespace) -> Result<Row, Error> {
    eprintln!("UCX, 8 B");
    let files = SharedFiles::new()?;
    let line = format!("ib_write_lat -s 8 -n 100000 --mmap={}", files.name());
    let Beside { figure, limit, ratio } = beside(
        || figure(alone, &line, 2),
        || {
            let figures = ucx(alone, "posix", "-t tag_lat -s 8 -n 1000000")?;
            Ok(figures.get(1).copied().unwrap_or_default())
        },
    )?;
    Ok(Row {
        name: "`ib_write_lat` 8 B, p50, shared mapping".into(),
        figure: format!("{figure:.2} us"),
        limit: format!("UCX `tag_lat` over `posix` {limit:.2} us"),
        ratio: format!("{ratio:.2}"),
        goal: String::new(),
    })
}

/// Two that sleep, woken by events.
fn events(alone: &Namespace, limits: &Probe) -> Result<Row, Error> {
    eprintln!("events");
    let path = limits.path().to_string_lossy().into_owned();
    let wake = || -> Result<f64, Error> {
        let argv = [path.as_str(), "wake", "20000"];
        number(&succeeded(alone.start_plain(&argv)?.wait(SECONDS)?, &argv)?, "microseconds p50")
    };
    let Beside { figure, limit, ratio } = beside(|| figure(alone, "ib_send_lat -e -s 8 -n 20000", 2), wake)?;
    Ok(Row {
        name: "`ib_send_lat -e` 8 B, p50, both asleep, same host".into(),
        figure: format!("{figure:.2} us"),
        limit: format!("eventfd {limit:.2} us"),
        ratio: format!("{ratio:.2}"),
        goal: "at most 1.3".into(),
    })
}
