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
        _ = writeln!(page, " {read:>9.1} {written:>10.1} {:>6}", it.errors);
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
        "{:<44} {:>9} {:>10} {:>9} {:>10}",
        "CLIENT", "READ/s", "MB/s", "WRITE/s", "MB/s"
    );
    let none = TransferReport::default();
    let mut line = |name: &str, now: [TransferReport; 2], before: [TransferReport; 2]| {
        _ = write!(page, "{name:<44}");
        for (now, before) in now.into_iter().zip(before) {
            let rate =
                |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(1e-9);
            let requests = rate(now.requests, before.requests);
            _ = write!(
                page,
                " {requests:>9.0} {:>10.1}",
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

/// Of busy queues, the busiest.
const QUEUES_SHOWN_MAX: usize = 32;

const HEADS: &str =
    "    READ/s  p50 us p99.9 us   WRITE/s  p50 us p99.9 us OTHER/s READ MB/s WRITE MB/s ERRORS";

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
            .map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3))
    };
    _ = writeln!(page, "{name}");
    for it in [&reads, &writes] {
        _ = write!(
            page,
            " {:>9.0} {:>7} {:>8}",
            per_second(it),
            us(it, 500),
            us(it, 999)
        );
    }
    _ = write!(page, " {:>7.0}", per_second(&others));
    reads.total() + writes.total() + others.total()
}

/// The last characters of a name: the end of a long one identifies it better than its beginning.
fn short(name: &str) -> String {
    const CHARACTERS: usize = 24;
    let skipped = name.chars().count().saturating_sub(CHARACTERS);
    name.chars().skip(skipped).collect()
}
