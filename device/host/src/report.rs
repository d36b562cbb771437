//! Reports of open devices: the program that has a device open, its counters and its queue pairs.
//!
//! Each open device listens at an abstract socket name of its network namespace, and sends one report to each
//! client of its own user or root that connects. The kernel lists the names, and removes them with the
//! process, so nothing has to be cleaned up.

use crate::progress::shared::Shared;
use crate::shm::Method;
use link::unix;
use rnic::Streamed;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PREFIX: &str = "rockery-device-";
/// Version of the format of a report.
const VERSION: u32 = 2;
/// Limit of queue pairs that a report describes; it counts the others.
const QUEUE_PAIRS_MAX: usize = 512;
/// Limit of streams that a report describes.
const STREAMS_MAX: usize = 64;
/// Longest message of a report; longer ones are split.
const PIECE_BYTES: usize = 16 << 10;
const BACKLOG: i32 = 8;
/// The longest report that is read: that of [`QUEUE_PAIRS_MAX`] queue pairs and of many more counters than
/// exist takes a quarter of it.
const REPORT_BYTES_MAX: usize = 256 << 10;
/// The longest name in a report.
const NAME_BYTES_MAX: usize = 64;
/// Time that a device may take for its whole report. A stopped program does not answer, nor does the child of
/// a fork whose parent has ended.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Time that all devices of one user may take together, so that a user who creates names of devices that do
/// not answer hides only the own devices from root.
const TIMEOUT_PER_USER: Duration = Duration::from_secs(3);
/// Time that all devices may take.
const TIMEOUT_IN_ALL: Duration = Duration::from_secs(15);
/// Limit of devices of one user that are queried: a network namespace has room for 1,022.
const DEVICES_PER_USER_MAX: usize = 1024;

/// Result of [`collect`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Reports {
    /// The devices that answered.
    pub reports: Vec<Report>,
    /// Number of devices of permitted users that sent no valid report in time.
    pub unanswered: usize,
}

/// An open device of a program. Its texts come from another process: names have no control characters.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// ID of the process that has the device open.
    pub pid: u32,
    /// Name of the program, as in `ps`.
    pub program: String,
    /// Counters by name: those of the protocol, then those of the link.
    pub counters: Vec<(String, u64)>,
    /// All of its queue pairs.
    pub queue_pairs_total: u64,
    /// The first queue pairs, with details.
    pub queue_pairs: Vec<QueuePair>,
    /// Copy methods of streams of long requests to programs on this host.
    pub streams: Vec<Stream>,
}

/// WRITEs or READs of about the same length that follow each other through a shared-memory channel. Their
/// copy methods are measured while they run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stream {
    /// The channel's number, as in the log.
    pub channel: u16,
    /// `WRITE` or `READ`.
    pub operation: String,
    /// Upper bound of the request lengths of this stream, in bytes; the lower bound is half of it.
    pub bytes_max: u32,
    /// Copy method of the next request: `rings` or `kernel`.
    pub method: String,
    /// The last measured rate of the rings, in MB/s; 0 if there is none.
    pub rings_mb_per_s: u64,
    /// The last measured rate of the kernel's copy, in MB/s; 0 if there is none.
    pub kernel_mb_per_s: u64,
}

/// A queue pair.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct QueuePair {
    /// Queue pair number.
    pub qpn: u32,
    /// RC, UC, UD and so on.
    pub transport: String,
    /// RESET to ERR.
    pub state: String,
    /// The peer's number; 0 where there is none.
    pub remote_qpn: u32,
    /// The peer's address; empty where there is none.
    pub remote: String,
    /// Transport to the peer: `packets` or `memory` (a shared-memory channel).
    pub path: String,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Bytes of payload that were sent.
    pub sent_bytes: u64,
    /// Packets that were received.
    pub received_packets: u64,
    /// Bytes of payload that were received.
    pub received_bytes: u64,
    /// Number of retransmitted packets.
    pub retransmitted_packets: u64,
    /// Number of expirations of the ACK timeout.
    pub timeouts: u64,
}

/// The listening socket for the reports of a device.
#[derive(Debug)]
pub(crate) struct Reporter(OwnedFd);

impl Reporter {
    /// Listens at a name that no other device has.
    pub(crate) fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{}-{number}", os::user(), std::process::id());
        let listener = unix::listen(&name, BACKLOG)?;
        unix::set_nonblocking(listener.as_raw_fd())?;
        Ok(Self(listener))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sends a report to each client that has connected. It does not block: a client that does not read gets
    /// only what fits its socket's buffer.
    pub(crate) fn answer(&self, shared: &Shared, device: &str) {
        while let Ok(client) = unix::accept(self.raw()) {
            let may_ask = |user| user == os::user() || user == 0;
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
            Some(start) => start
                .iter()
                .rposition(|&byte| byte == b'\n')
                .map_or(PIECE_BYTES, |at| at + 1),
            None => rest.len(),
        };
        let (piece, after) = rest.split_at_checked(end)?;
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The text of a report: one fact per line, its parts separated by tabs.
fn describe(shared: &Shared, device: &str) -> String {
    let mut text = String::new();
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let mut pump = shared.lock();
    let counters = pump
        .rnic
        .port()
        .counters()
        .iter()
        .chain(pump.counters().iter());
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
        let (Ok((attr, init)), Ok(counters)) =
            (pump.rnic.query_qp(qpn), pump.rnic.qp_counters(qpn))
        else {
            continue;
        };
        let has_peer = attr.destination.value() != 0;
        let remote = if has_peer {
            attr.vector.destination.to_string()
        } else {
            String::new()
        };
        let channel = pump.rnic.channel(qpn).unwrap_or_default();
        let path = if channel == 0 { "packets" } else { "memory" };
        let _ = writeln!(
            text,
            "queue_pair\t{}\t{}\t{}\t{}\t{remote}\t{path}\t{}\t{}\t{}\t{}\t{}\t{}",
            qpn.value(),
            init.kind.name(),
            attr.state.name(),
            attr.destination.value(),
            counters.sent_packets,
            counters.sent_bytes,
            counters.received_packets,
            counters.received_bytes,
            counters.retransmitted_packets,
            counters.local_ack_timeout_err,
        );
    }
    for (channel, stream) in pump.shm.measured_streams().take(STREAMS_MAX) {
        let operation = match stream.kind {
            Streamed::Write => "WRITE",
            Streamed::Read => "READ",
            Streamed::Send => "SEND",
        };
        let method = if stream.method == Method::Call {
            "kernel"
        } else {
            "rings"
        };
        let [rings, kernel] = [stream.ring, stream.call].map(|rate| (rate * 1e3) as u64);
        let bytes = stream.longest;
        let _ = writeln!(
            text,
            "stream\t{channel}\t{operation}\t{bytes}\t{method}\t{rings}\t{kernel}"
        );
    }
    text
}

impl Report {
    /// Parses the text of [`describe`]; `None` if it is of another version, truncated before the first facts,
    /// or has contents that [`describe`] does not write.
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
                ("device", name) => report.device = printable(name),
                ("pid", pid) => report.pid = pid.parse().ok()?,
                ("program", name) => report.program = printable(name),
                ("counter", name) => report
                    .counters
                    .push((word(name)?, parts.next()?.parse().ok()?)),
                ("queue_pairs", total) => report.queue_pairs_total = total.parse().ok()?,
                ("queue_pair", qpn) => report.queue_pairs.push(QueuePair::parse(qpn, parts)?),
                ("stream", channel) => report.streams.push(Stream::parse(channel, parts)?),
                _ => {}
            }
        }
        Some(report)
    }
}

/// A name that any program can choose, with its control characters replaced, which a terminal would
/// interpret.
fn printable(name: &str) -> String {
    let plain = |it: char| {
        if it.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            it
        }
    };
    name.chars().take(NAME_BYTES_MAX).map(plain).collect()
}

/// A name that rockery itself chooses.
fn word(name: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain)).then(|| name.to_owned())
}

impl QueuePair {
    fn parse<'a>(qpn: &str, mut parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (transport, state) = (word(parts.next()?)?, word(parts.next()?)?);
        let remote_qpn = parts.next()?.parse().ok()?;
        let remote = match parts.next()? {
            "" => String::new(),
            address => address.parse::<IpAddr>().ok()?.to_string(),
        };
        let path = word(parts.next()?)?;
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
            // Devices of an earlier version do not report it.
            timeouts: number().unwrap_or(0),
        })
    }
}

impl Stream {
    fn parse<'a>(channel: &str, mut parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        Some(Self {
            channel: channel.parse().ok()?,
            operation: word(parts.next()?)?,
            bytes_max: parts.next()?.parse().ok()?,
            method: word(parts.next()?)?,
            rings_mb_per_s: parts.next()?.parse().ok()?,
            kernel_mb_per_s: parts.next()?.parse().ok()?,
        })
    }
}

/// The reports of all open devices in this network namespace that may be queried: of this user, and of every
/// user for root.
pub fn collect() -> Reports {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut names: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split('@').nth(1))
        .collect();
    names.retain(|name| name.starts_with(PREFIX));
    names.sort_unstable();
    // The kernel lists a name again for each connection to it.
    names.dedup();
    Collector::default().ask_all(&names)
}

/// Number of queried devices of each user, and the time that they took.
#[derive(Debug, Default)]
struct Collector {
    spent: HashMap<u32, (usize, Duration)>,
}

impl Collector {
    fn ask_all(&mut self, names: &[&str]) -> Reports {
        let (start, mut found) = (Instant::now(), Reports::default());
        for name in names {
            let Some((connection, user, process)) = connected(name) else {
                continue;
            };
            let left = TIMEOUT_IN_ALL
                .saturating_sub(start.elapsed())
                .min(self.left(user))
                .min(TIMEOUT);
            let asked = Instant::now();
            let text = if left.is_zero() {
                None
            } else {
                receive(&connection, asked + left)
            };
            let (devices, spent) = self.spent.entry(user).or_default();
            (*devices, *spent) = (*devices + 1, *spent + asked.elapsed());
            match text.and_then(|text| Report::parse(&text)) {
                // The kernel's process ID takes precedence, where the process has one in this PID namespace.
                Some(report) => found.reports.push(Report {
                    pid: process.unwrap_or(report.pid),
                    ..report
                }),
                None => found.unanswered += 1,
            }
        }
        found
    }

    /// Time that the user's next device may take.
    fn left(&self, user: u32) -> Duration {
        match self.spent.get(&user) {
            Some((devices, _)) if *devices >= DEVICES_PER_USER_MAX => Duration::ZERO,
            Some((_, spent)) => TIMEOUT_PER_USER.saturating_sub(*spent),
            None => TIMEOUT_PER_USER,
        }
    }
}

/// Connects to a device; returns its user and its process ID in this PID namespace. `None` for a device of
/// another user, whose report is not trusted, and where the connection would block.
fn connected(name: &str) -> Option<(OwnedFd, u32, Option<u32>)> {
    let connection = unix::connect_now(name).ok()?;
    let user = unix::peer_user(connection.as_raw_fd()).ok()?;
    let process = unix::peer_process(connection.as_raw_fd())
        .ok()
        .filter(|process| *process != 0);
    (user == os::user() || os::user() == 0).then_some((connection, user, process))
}

/// Receives the report of a device; `None` if it is not complete in time, or is too long.
fn receive(connection: &OwnedFd, until: Instant) -> Option<String> {
    let mut text = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !unix::is_readable_within(connection.as_raw_fd(), left) {
            return None;
        }
        match unix::receive_now(connection.as_raw_fd(), &mut piece).ok()? {
            0 => return Some(String::from_utf8_lossy(&text).into_owned()),
            length if text.len() + length > REPORT_BYTES_MAX => return None,
            length => text.extend_from_slice(&piece[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reports_come_in_pieces_of_whole_lines() {
        let text: String = (0..5000)
            .map(|number| format!("counter\tname\t{number}\n"))
            .collect();
        let all: Vec<&str> = pieces(&text).collect();
        assert!(
            all.len() > 3
                && all
                    .iter()
                    .all(|piece| piece.len() <= PIECE_BYTES && piece.ends_with('\n'))
        );
        assert_eq!(all.concat(), text);
        assert_eq!(pieces("").count(), 0);
    }

    #[test]
    fn what_is_described_is_understood() {
        let text = "report\t2\ndevice\trk_lo\npid\t7\nprogram\tib_write_bw\ncounter\tsends\t9\n\
                    queue_pairs\t1\nqueue_pair\t5\tRC\tRTS\t6\t10.0.0.1\tmemory\t1\t2\t3\t4\t5\t6\n\
                    stream\t1\tREAD\t65536\tkernel\t5100\t9400\n";
        let report = Report::parse(text).unwrap();
        assert_eq!(
            (
                report.pid,
                report.program.as_str(),
                report.queue_pairs_total
            ),
            (7, "ib_write_bw", 1)
        );
        assert_eq!(report.counters, [("sends".to_owned(), 9)]);
        let [pair] = &report.queue_pairs[..] else {
            panic!("{report:?}")
        };
        assert_eq!(
            (pair.qpn, pair.remote_qpn, pair.retransmitted_packets),
            (5, 6, 5)
        );
        let [stream] = &report.streams[..] else {
            panic!("{report:?}")
        };
        assert_eq!(
            (
                stream.operation.as_str(),
                stream.bytes_max,
                stream.method.as_str()
            ),
            ("READ", 65536, "kernel")
        );
        assert_eq!(
            (stream.rings_mb_per_s, stream.kernel_mb_per_s),
            (5100, 9400)
        );
        assert_eq!((pair.path.as_str(), pair.timeouts), ("memory", 6));
        let earlier = Report::parse(&text.replace("\t5\t6\n", "\t5\n")).expect("a report");
        assert_eq!(
            (
                earlier.queue_pairs[0].retransmitted_packets,
                earlier.queue_pairs[0].timeouts
            ),
            (5, 0)
        );
        assert_eq!(Report::parse("report\t1\n"), None);
    }

    #[test]
    fn control_characters_of_another_process_reach_no_terminal() {
        let text = "report\t2\ndevice\trk_lo\npid\t7\nprogram\t\x1b[2J\x1b]0;x\x07y\u{9b}1m\n";
        let report = Report::parse(text).unwrap();
        assert!(
            !report.program.contains(char::is_control),
            "{:?}",
            report.program
        );
        let of = |line: &str| Report::parse(&format!("report\t2\n{line}\n"));
        assert!(of("counter\tsends\t1").is_some());
        assert_eq!(of("counter\t\x1b[2J\t1"), None);
        assert_eq!(of(&format!("counter\t{}\t1", "y".repeat(150))), None);
        assert_eq!(
            of("queue_pair\t5\tRC\tRTS\t6\t\x1b[31m\tmemory\t1\t2\t3\t4\t5"),
            None
        );
        assert_eq!(
            of("queue_pair\t5\tR\x1bC\tRTS\t6\t10.0.0.1\tmemory\t1\t2\t3\t4\t5"),
            None
        );
    }

    /// A device of another program, which runs `answers` for each connection.
    fn fake(answers: impl Fn(RawFd) + Send + 'static) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}test-{}-{number}", std::process::id());
        let listener = unix::listen(&name, BACKLOG).unwrap();
        std::thread::spawn(move || {
            while let Ok(client) = unix::accept(listener.as_raw_fd()) {
                answers(client.as_raw_fd());
            }
        });
        name
    }

    const HEAD: &str = "report\t2\ndevice\trk_lo\npid\t4294967295\nprogram\tx\n";

    #[test]
    fn a_report_counts_with_the_process_that_the_kernel_names() {
        let name = fake(|client| unix::send(client, HEAD.as_bytes(), None).unwrap());
        let found = Collector::default().ask_all(&[&name]);
        assert_eq!(
            found.reports.iter().map(|it| it.pid).collect::<Vec<_>>(),
            [std::process::id()]
        );
    }

    #[test]
    fn a_report_without_end_is_given_up_by_size() {
        let piece = "counter\ty\t5\n".repeat(1000);
        let sent = std::sync::Arc::new(AtomicU32::new(0));
        let counted = std::sync::Arc::clone(&sent);
        let name = fake(move |client| {
            _ = unix::send(client, HEAD.as_bytes(), None);
            while unix::send(client, piece.as_bytes(), None).is_ok() {
                counted.fetch_add(piece.len() as u32, Ordering::Relaxed);
            }
        });
        let found = Collector::default().ask_all(&[&name]);
        assert_eq!((found.reports.len(), found.unanswered), (0, 1));
        // The contents of the socket's buffer come on top of the bytes that were read.
        assert!(sent.load(Ordering::Relaxed) < 8 << 20);
    }

    #[test]
    fn a_slow_device_does_not_keep_the_others_out() {
        let slow = fake(|client| {
            _ = unix::send(client, HEAD.as_bytes(), None);
            while unix::send(client, b"counter\ty\t5\n", None).is_ok() {
                std::thread::sleep(TIMEOUT / 20);
            }
        });
        let honest = fake(|client| unix::send(client, HEAD.as_bytes(), None).unwrap());
        let found = Collector::default().ask_all(&[&slow, &honest]);
        assert_eq!((found.reports.len(), found.unanswered), (1, 1));
    }

    #[test]
    fn a_user_whose_devices_do_not_answer_is_asked_for_a_bounded_time() {
        let mut collector = Collector::default();
        collector.spent.insert(7, (1, TIMEOUT_PER_USER));
        collector
            .spent
            .insert(8, (DEVICES_PER_USER_MAX, Duration::ZERO));
        assert_eq!(
            [7, 8, 9].map(|user| collector.left(user).is_zero()),
            [true, true, false]
        );
    }
}
