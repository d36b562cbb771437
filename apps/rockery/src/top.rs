//! `rockery top`: commands, bytes and latencies of running targets; transfers of SMB gateways and dials.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::nvme::latency::Latency;
use ::nvme::serve::{LatencyReport, Report};
use ::smb::serve::{Report as SmbReport, TransferReport};
use server::control::Query;

use crate::control::Socket;
use crate::printable::Printable;
use crate::server_report::ServerReport;
use crate::{Error, output};

/// The servers to show, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// The control socket of the server; all servers of this user that have default sockets if not given.
    #[command(flatten)]
    socket: Socket,
    /// Interval between two pages in seconds, 0.05 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Show one page, for one interval, and end.
    #[arg(long)]
    once: bool,
    /// Show one page for the time since the server started, and end.
    #[arg(long, conflicts_with = "once")]
    total: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "a number of seconds, as in 0.5".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("0.05 to 3600 seconds".to_owned())
    }
}

/// The reports of all servers, by control socket.
type AllSeen = BTreeMap<PathBuf, ServerReport>;

/// Shows it until Ctrl-C, or the end of the last server.
pub(crate) fn show(what: &Top) -> Result<(), Error> {
    let mut before = look(&what.socket)?;
    if what.total {
        return output::print(pages(&before, None));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    // Where there is no such thing as Ctrl-C, the default ends us.
    _ = ctrlc::set_handler(move || stopping.store(true, Ordering::Relaxed));
    let is_terminal = output::is_terminal();
    while sleep(Duration::from_secs_f64(what.interval), &stop) {
        let now = look(&what.socket)?;
        let page = pages(&now, Some(&before));
        // From the top left corner, and nothing of the last page below.
        if is_terminal {
            output::clear()?;
            output::print(page)?;
        } else {
            output::line(page)?;
        }
        if what.once {
            break;
        }
        before = now;
    }
    Ok(())
}

/// A page for each server; under its control socket if there are several.
fn pages(now: &AllSeen, before: Option<&AllSeen>) -> String {
    let mut text = String::new();
    for (path, seen) in now {
        if now.len() > 1 {
            let gap = if text.is_empty() { "" } else { "\n" };
            _ = writeln!(text, "{gap}{}", Printable(&path.display().to_string()));
        }
        text += &match (seen, before.and_then(|before| before.get(path))) {
            (ServerReport::Nvme(now), Some(ServerReport::Nvme(before))) => page(now, before),
            (ServerReport::Nvme(now), _) => page(now, &beginning()),
            (ServerReport::Smb(now), Some(ServerReport::Smb(before))) => {
                smb_page(now, Some(before))
            }
            (ServerReport::Smb(now), _) => smb_page(now, None),
        };
    }
    text
}

/// `false` when it has to end.
fn sleep(time: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}

fn look(socket: &Socket) -> Result<AllSeen, Error> {
    let answers = socket.ask_all(&Query::Report)?.into_iter();
    answers
        .map(|(path, answer)| Ok((path, ServerReport::of(answer)?)))
        .collect()
}

/// Of a server that has done nothing.
fn beginning() -> Report {
    let (ended, namespaces, queues) = (BTreeMap::new(), Vec::new(), Vec::new());
    Report {
        at_ns: 0,
        connections: 0,
        half_open: 0,
        controllers: 0,
        data_bytes: 0,
        ended,
        namespaces,
        queues,
    }
}

type Latencies = [LatencyReport; 3];

fn page(now: &Report, before: &Report) -> String {
    let seconds = now.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
    let mut page = String::new();
    let (connections, controllers) = (now.connections, now.controllers);
    _ = writeln!(
        page,
        "{connections} connections, {controllers} controllers, the last {seconds:.1} s"
    );
    _ = writeln!(page, "NAMESPACE\n{HEADS}");
    for it in &now.namespaces {
        let same = before
            .namespaces
            .iter()
            .find(|was| (&was.subsystem, was.id) == (&it.subsystem, it.id));
        let name = format!("{} {}", Printable(it.subsystem.as_str()), it.id);
        let bytes = |of: fn(&::nvme::serve::NamespaceReport) -> u64| {
            of(it).saturating_sub(same.map_or(0, of)) as f64 / 1e6 / seconds.max(1e-9)
        };
        let (read, written) = (bytes(|it| it.read_bytes), bytes(|it| it.written_bytes));
        line(
            &mut page,
            &name,
            &it.latency,
            same.map(|it| &it.latency),
            seconds,
        );
        _ = writeln!(page, " {read:>7.1} {written:>7.1} {:>6}", it.errors);
    }
    let active = now.queues.iter().filter_map(|it| {
        let key = |it: &::nvme::serve::QueueReport| (it.controller, it.queue, it.id);
        let same = before
            .queues
            .iter()
            .find(|was| key(was) == key(it) && was.subsystem == it.subsystem);
        let mut text = String::new();
        let name = format!(
            "{} {}:{} namespace {}",
            short(&Printable(it.host.as_str()).to_string()),
            it.controller,
            it.queue,
            it.id
        );
        let count = line(
            &mut text,
            &name,
            &it.latency,
            same.map(|it| &it.latency),
            seconds,
        );
        (count > 0).then_some((count, text))
    });
    let mut active: Vec<(u64, String)> = active.collect();
    active.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    if !active.is_empty() {
        _ = writeln!(page, "QUEUE");
    }
    for (_, text) in active.into_iter().take(QUEUES_SHOWN_MAX) {
        _ = writeln!(page, "{}", text.trim_end());
    }
    page
}

/// Transfers of an SMB gateway or dial, of all connections and of each.
fn smb_page(now: &SmbReport, before: Option<&SmbReport>) -> String {
    let seconds = now.at_ns.saturating_sub(before.map_or(0, |it| it.at_ns)) as f64 / 1e9;
    let mut page = String::new();
    let unauthenticated = now.connections.iter().filter(|it| !it.has_session).count();
    let (connections, refused) = (now.connections.len(), now.refused);
    _ = writeln!(
        page,
        "SMB {}: {connections} connections, {unauthenticated} without a session, {refused} refused, the last \
         {seconds:.1} s",
        Printable(&now.smb)
    );
    _ = writeln!(
        page,
        "{:<CLIENT$} {:>9} {:>8} {:>9} {:>8}",
        "CLIENT", "READ/s", "MB/s", "WRITE/s", "MB/s"
    );
    let none = TransferReport::default();
    let mut line = |name: &str, now: [TransferReport; 2], before: [TransferReport; 2]| {
        // A longer name has a line of its own.
        let end = if name.len() > CLIENT { "\n" } else { "" };
        let blanks = CLIENT.saturating_sub(if end.is_empty() { name.len() } else { 0 });
        _ = write!(page, "{name}{end}{:blanks$}", "");
        for (now, before) in now.into_iter().zip(before) {
            let rate =
                |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(1e-9);
            let requests = rate(now.requests, before.requests);
            _ = write!(
                page,
                " {requests:>9.0} {:>8.1}",
                rate(now.bytes, before.bytes) / 1e6
            );
        }
        _ = writeln!(page);
    };
    line(
        "all",
        [now.read, now.write],
        before.map_or([none; 2], |it| [it.read, it.write]),
    );
    for it in now.connections.iter().take(QUEUES_SHOWN_MAX) {
        let same = before.and_then(|before| before.connections.iter().find(|was| was.id == it.id));
        let before = same.map_or([none; 2], |was| [was.read, was.write]);
        line(
            &Printable(&it.client).to_string(),
            [it.read, it.write],
            before,
        );
    }
    page
}

/// Characters of the column of clients.
const CLIENT: usize = 40;

/// Of busy queues, the busiest.
const QUEUES_SHOWN_MAX: usize = 32;

/// The heads of the columns, which fit a terminal of 80 columns.
const HEADS: &str =
    "  READ/s  p50 us p99.9us WRITE/s  p50 us p99.9us OTHER/s RD MB/s WR MB/s ERRORS";

/// A name, and below it a line of commands per second and what they took; returns how many there were. Names
/// are longer than terminals are wide, and would wrap.
fn line(
    page: &mut String,
    name: &str,
    now: &Latencies,
    before: Option<&Latencies>,
    seconds: f64,
) -> u64 {
    let none = Latencies::default();
    let since = |at: usize| now[at].since(&before.unwrap_or(&none)[at]);
    let [reads, writes, others] = [0, 1, 2].map(since);
    let per_second = |it: &Latency| it.total() as f64 / seconds.max(1e-9);
    let us = |it: &Latency, per_mille| {
        it.per_mille_ns(per_mille)
            .map_or("-".to_owned(), microseconds)
    };
    _ = writeln!(page, "{name}");
    for it in [&reads, &writes] {
        _ = write!(
            page,
            " {:>7.0} {:>7} {:>7}",
            per_second(it),
            us(it, 500),
            us(it, 999)
        );
    }
    _ = write!(page, " {:>7.0}", per_second(&others));
    reads.total() + writes.total() + others.total()
}

/// A time in microseconds, with a tenth where it is short.
fn microseconds(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1}", ns as f64 / 1e3),
        _ => (ns / 1000).to_string(),
    }
}

/// The last characters of a name behind a sign that it is longer: the end of a long one identifies it better
/// than its beginning.
fn short(name: &str) -> String {
    const CHARACTERS: usize = 40;
    let skipped = match name.chars().count() {
        0..=CHARACTERS => return name.to_owned(),
        count => count - CHARACTERS + 1,
    };
    format!("\u{2026}{}", name.chars().skip(skipped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use ::nvme::serve::{NamespaceReport, QueueReport};
    use ::smb::serve::ConnectionReport;

    use super::*;

    /// Columns of the narrowest terminal that is usual.
    const COLUMNS: usize = 80;

    fn busy() -> Latencies {
        // 300,000 commands in the bucket of some 80 ms.
        [0, 1, 2].map(|_| LatencyReport {
            counts: vec![(100, 300_000)],
            sum_ns: 1,
        })
    }

    #[test]
    fn a_page_fits_a_terminal_of_80_columns() {
        let host = "nqn.2014-08.org.nvmexpress:uuid:01234567-89ab-cdef-0123-456789abcdef";
        let now = Report {
            at_ns: 1_000_000_000,
            namespaces: vec![NamespaceReport {
                subsystem: "nqn.2026-01.example:disk".parse().unwrap(),
                id: 1,
                bytes: 1 << 40,
                read_bytes: 12_345_678_901,
                written_bytes: 12_345_678_901,
                errors: 99_999,
                in_flight: 0,
                latency: busy(),
            }],
            queues: vec![QueueReport {
                subsystem: "nqn.2026-01.example:disk".parse().unwrap(),
                id: 1,
                host: host.parse().unwrap(),
                controller: 65_000,
                queue: 128,
                latency: busy(),
            }],
            ..beginning()
        };
        let text = page(&now, &beginning());
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        let cells = |line: &str| line.split_whitespace().count();
        let rows: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("300000"))
            .collect();
        assert_eq!(
            rows.iter().map(|row| row.len()).collect::<Vec<_>>(),
            [79, 56],
            "{text}"
        );
        assert_eq!(cells(rows[0]), 10, "{text}");
        assert!(HEADS.len() == rows[0].len(), "{text}");
        // The end of a name that is cut stands behind a sign.
        assert!(text.contains("\n\u{2026}"), "{text}");
        assert!(
            text.contains("0123-456789abcdef 65000:128 namespace 1"),
            "{text}"
        );
    }

    #[test]
    fn a_client_with_a_long_name_has_a_line_of_its_own() {
        let none = TransferReport::default();
        let client = |name: &str| ConnectionReport {
            id: name.len() as u64,
            client: name.to_owned(),
            has_session: true,
            read: none,
            write: none,
        };
        let names = [
            "192.0.2.1:49152",
            "[2001:db8:1234:5678:9abc:def0:1234:5678%storage0]:49152",
        ];
        let now = SmbReport {
            smb: "gateway".to_owned(),
            at_ns: 1_000_000_000,
            refused: 0,
            ended: 0,
            data_bytes: 0,
            unauthenticated_bytes: 0,
            read: none,
            write: none,
            invalidated: 0,
            connections: names.map(client).to_vec(),
        };
        let text = smb_page(&now, None);
        for line in text.lines().skip(1) {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        for name in names {
            assert!(text.contains(name), "{text}");
        }
        let long = text.lines().position(|line| line == names[1]);
        let below = text.lines().nth(long.expect("its own line") + 1);
        assert!(
            below.is_some_and(|line| line.starts_with("      ")),
            "{text}"
        );
    }
}
