//! What open devices tell about themselves: who has them, their counters, their queue pairs.
//!
//! Each open device listens at an abstract socket name of its network namespace and answers whoever connects,
//! of its own user or root, with one report. The kernel lists the names, and they go with the process: there
//! is nothing to clean up.

use crate::device::Shared;
use crate::sys::{process, unix};
use std::fmt::Write;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PREFIX: &str = "rockery-device-";
/// Changes whenever lines mean something else.
const VERSION: u32 = 2;
/// Queue pairs that a report describes; it counts the rest.
const QUEUE_PAIRS_MAX: usize = 512;
/// A report's longest message; longer ones come in pieces.
const PIECE_BYTES: usize = 16 << 10;
const BACKLOG: i32 = 8;
/// A stopped program does not answer, nor does the child of a fork whose parent is gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// A device that some program has open.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// The process.
    pub pid: u32,
    /// Its program's name, as `ps` has it.
    pub program: String,
    /// Counters by name: those of the protocol, then those of the link.
    pub counters: Vec<(String, u64)>,
    /// All of its queue pairs.
    pub queue_pairs_total: u64,
    /// The first ones, described.
    pub queue_pairs: Vec<QueuePair>,
}

/// A queue pair.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct QueuePair {
    /// Its number.
    pub qpn: u32,
    /// RC, UC, UD and so on.
    pub transport: String,
    /// RESET to ERR.
    pub state: String,
    /// The peer's number; 0 where there is none.
    pub remote_qpn: u32,
    /// The peer's address; empty where there is none.
    pub remote: String,
    /// How it is reached: by packets, or through memory.
    pub path: String,
    /// Packets and bytes of payload.
    pub sent_packets: u64,
    /// Bytes of payload.
    pub sent_bytes: u64,
    /// Packets.
    pub received_packets: u64,
    /// Bytes of payload.
    pub received_bytes: u64,
    /// Packets sent again.
    pub retransmitted_packets: u64,
}

/// Where a device answers.
#[derive(Debug)]
pub(crate) struct Reporter(OwnedFd);

impl Reporter {
    /// Under a name that nobody has.
    pub(crate) fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{}-{number}", process::user(), std::process::id());
        let listener = unix::listen(&name, BACKLOG)?;
        unix::set_nonblocking(listener.as_raw_fd())?;
        Ok(Self(listener))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Answers who asks. Whoever does not read what is sent gets less of it: nobody waits here.
    pub(crate) fn answer(&self, shared: &Shared, device: &str) {
        while let Ok(client) = unix::accept(self.raw()) {
            let may_ask = |user| user == process::user() || user == 0;
            if !unix::peer_user(client.as_raw_fd()).is_ok_and(may_ask) {
                continue;
            }
            let text = describe(shared, device);
            for piece in pieces(&text) {
                if unix::send_now(client.as_raw_fd(), piece.as_bytes()).is_err() {
                    break;
                }
            }
        }
    }
}

/// Whole lines, at most [`PIECE_BYTES`] of them at once.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = match rest.as_bytes().get(..PIECE_BYTES) {
            Some(start) => start.iter().rposition(|&byte| byte == b'\n').map_or(PIECE_BYTES, |at| at + 1),
            None => rest.len(),
        };
        let (piece, after) = rest.split_at_checked(end)?;
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// One fact per line, its parts separated by tabs.
fn describe(shared: &Shared, device: &str) -> String {
    let mut text = String::new();
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let pump = shared.lock();
    let counters = pump.rnic.counters().iter().chain(pump.counters().iter());
    // Writing to a string does not fail.
    let _ = writeln!(text, "report\t{VERSION}");
    let _ = writeln!(text, "device\t{device}");
    let _ = writeln!(text, "pid\t{}", std::process::id());
    let _ = writeln!(text, "program\t{}", program.trim());
    for (name, value) in counters {
        let _ = writeln!(text, "counter\t{name}\t{value}");
    }
    let qpns = pump.rnic.qpns();
    let _ = writeln!(text, "queue_pairs\t{}", qpns.len());
    for qpn in qpns.into_iter().take(QUEUE_PAIRS_MAX) {
        let (Ok((attr, init)), Ok(counters)) = (pump.rnic.query_qp(qpn), pump.rnic.qp_counters(qpn)) else {
            continue;
        };
        let has_peer = attr.destination.value() != 0;
        let remote = if has_peer { attr.vector.destination.to_string() } else { String::new() };
        let lane = pump.rnic.lane(qpn).unwrap_or_default();
        let path = if lane == 0 { "packets" } else { "memory" };
        let _ = writeln!(
            text,
            "queue_pair\t{}\t{}\t{}\t{}\t{remote}\t{path}\t{}\t{}\t{}\t{}\t{}",
            qpn.value(),
            init.kind.name(),
            attr.state.name(),
            attr.destination.value(),
            counters.sent_packets,
            counters.sent_bytes,
            counters.received_packets,
            counters.received_bytes,
            counters.retransmitted_packets,
        );
    }
    text
}

impl Report {
    /// Reads what [`describe`] wrote; `None` if it is of another version, or cut off before the first facts.
    fn parse(text: &str) -> Option<Self> {
        let mut report = Self::default();
        let mut lines = text.lines();
        let version = lines.next()?.strip_prefix("report\t")?;
        if version.parse() != Ok(VERSION) {
            return None;
        }
        for line in lines {
            let mut parts = line.split('\t');
            match (parts.next()?, parts.next()?) {
                ("device", name) => report.device = name.to_owned(),
                ("pid", pid) => report.pid = pid.parse().ok()?,
                ("program", name) => report.program = name.to_owned(),
                ("counter", name) => report.counters.push((name.to_owned(), parts.next()?.parse().ok()?)),
                ("queue_pairs", total) => report.queue_pairs_total = total.parse().ok()?,
                ("queue_pair", qpn) => report.queue_pairs.push(QueuePair::parse(qpn, parts)?),
                _ => {}
            }
        }
        Some(report)
    }
}

impl QueuePair {
    fn parse<'a>(qpn: &str, mut parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (transport, state) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let remote_qpn = parts.next()?.parse().ok()?;
        let (remote, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let mut number = || parts.next()?.parse().ok();
        Some(Self {
            qpn: qpn.parse().ok()?,
            transport,
            state,
            remote_qpn,
            remote,
            path,
            sent_packets: number()?,
            sent_bytes: number()?,
            received_packets: number()?,
            received_bytes: number()?,
            retransmitted_packets: number()?,
        })
    }
}

/// The reports of all devices that are open in this network namespace and may be asked.
pub fn collect() -> Vec<Report> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut names: Vec<&str> = table.lines().filter_map(|line| line.split('@').nth(1)).collect();
    names.retain(|name| name.starts_with(PREFIX));
    names.sort_unstable();
    // The kernel lists a name once more for each connection to it.
    names.dedup();
    names.into_iter().filter_map(|name| Report::parse(&ask(name).ok()?)).collect()
}

/// What one device answers.
fn ask(name: &str) -> io::Result<String> {
    let connection = unix::connect(name)?;
    unix::set_patience(connection.as_raw_fd(), PATIENCE)?;
    let mut text = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match unix::receive(connection.as_raw_fd(), &mut piece)? {
            (0, _) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            (length, _) => text.extend(&piece[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reports_come_in_pieces_of_whole_lines() {
        let text: String = (0..5000).map(|number| format!("counter\tname\t{number}\n")).collect();
        let all: Vec<&str> = pieces(&text).collect();
        assert!(all.len() > 3 && all.iter().all(|piece| piece.len() <= PIECE_BYTES && piece.ends_with('\n')));
        assert_eq!(all.concat(), text);
        assert_eq!(pieces("").count(), 0);
    }

    #[test]
    fn what_is_described_is_understood() {
        let text = "report\t2\ndevice\trk_lo\npid\t7\nprogram\tib_write_bw\ncounter\tsends\t9\n\
                    queue_pairs\t1\nqueue_pair\t5\tRC\tRTS\t6\t10.0.0.1\tmemory\t1\t2\t3\t4\t5\n";
        let report = Report::parse(text).unwrap();
        assert_eq!((report.pid, report.program.as_str(), report.queue_pairs_total), (7, "ib_write_bw", 1));
        assert_eq!(report.counters, [("sends".to_owned(), 9)]);
        let [pair] = &report.queue_pairs[..] else { panic!("{report:?}") };
        assert_eq!((pair.qpn, pair.remote_qpn, pair.retransmitted_packets), (5, 6, 5));
        assert_eq!(pair.path, "memory");
        assert_eq!(Report::parse("report\t1\n"), None);
    }
}
