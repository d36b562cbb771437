//! Our host with a target that has lower limits than ours: short queues, short transfers, and failing reads.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use nvme::host::{Client, Job, MOMENTS, Namespace, bench, bench_threads};
use wire::nvme::fabrics::Connect;
use wire::nvme::identify::IDENTIFY_SIZE;
use wire::nvme::property::{self, Capabilities};
use wire::nvme::tcp::{CommonHeader, Data, Digests, ENCODED_MAX, Frame, Header, Initialize, flag};
use wire::nvme::{Admin, Command, Completion, Fabrics, Io, Status};

use crate::live::options;
use crate::support::{SUBSYSTEM, nqn};

/// CAP.MQES: 32 entries.
const ENTRIES_MAX: u16 = 31;
/// MDTS, in pages of CAP.MPSMIN (8 KiB): 32 KiB.
const TRANSFER_MAX: u8 = 2;
const BLOCK: usize = 512;

/// The observations of the target.
#[derive(Default)]
struct Seen {
    /// The size of the longest queue that the host created, 0-based.
    entries: AtomicU16,
    reads: AtomicUsize,
}

/// Serves one connection; every other read fails if `fails`.
struct LimitedTarget {
    stream: TcpStream,
    seen: Arc<Seen>,
    fails: bool,
}

impl LimitedTarget {
    fn send(&mut self, header: &Header, flags: u8, data: &[u8]) -> std::io::Result<()> {
        let mut head = [0; ENCODED_MAX];
        let end = header.encode(flags, Digests::default(), data.len(), 4, &mut head);
        self.stream.write_all(&[&head[..end], data].concat())
    }

    fn respond(&mut self, cid: u16, status: Status, result: u64) -> std::io::Result<()> {
        self.send(
            &Header::Response(Completion {
                result,
                ..Completion::new(cid, status)
            }),
            0,
            &[],
        )
    }

    fn give(&mut self, cid: u16, data: &[u8]) -> std::io::Result<()> {
        let header = Data {
            cid,
            tag: 0,
            offset: 0,
            length: data.len() as u32,
        };
        self.send(
            &Header::ControllerData(header),
            flag::LAST | flag::SUCCESS,
            data,
        )
    }

    fn serve(&mut self) -> std::io::Result<()> {
        loop {
            let mut head = [0; CommonHeader::SIZE];
            self.stream.read_exact(&mut head)?;
            let (common, _) = CommonHeader::split(&head).unwrap();
            let mut rest = vec![0; common.length as usize - head.len()];
            self.stream.read_exact(&mut rest)?;
            let frame = Frame::parse(&common, Digests::default(), 1 << 20).unwrap();
            match Header::parse(frame.kind, &rest).unwrap() {
                Header::InitializeRequest(_) => {
                    let response = Initialize {
                        format: 0,
                        alignment: 0,
                        digests: 0,
                        limit: 1 << 20,
                    };
                    self.send(&Header::InitializeResponse(response), 0, &[])?;
                }
                Header::Command(command) => self.command(&command)?,
                other => panic!("{other:?}"),
            }
        }
    }

    fn command(&mut self, command: &Command) -> std::io::Result<()> {
        let cid = command.cid;
        if command.opcode == wire::nvme::opcode::FABRICS {
            let result = match Fabrics::parse(command.fabrics_type()) {
                Some(Fabrics::Connect) => {
                    self.seen
                        .entries
                        .fetch_max(Connect::parse(command).size, Ordering::Relaxed);
                    1
                }
                Some(Fabrics::PropertyGet) => property(command),
                _ => 0,
            };
            return self.respond(cid, Status::SUCCESS, result);
        }
        if command.opcode == Admin::Identify as u8 {
            let mut data = vec![0; IDENTIFY_SIZE];
            data[77] = TRANSFER_MAX;
            return self.give(cid, &data);
        }
        if command.opcode == Io::Read as u8 {
            let count = self.seen.reads.fetch_add(1, Ordering::Relaxed);
            let blocks = (command.cdw12 & 0xffff) as usize + 1;
            return match self.fails && count % 2 == 1 {
                true => self.respond(cid, Status::UNRECOVERED_READ.permanent(), 0),
                false => self.give(cid, &vec![0; blocks * BLOCK]),
            };
        }
        // Set Features: the maximum number of queues.
        self.respond(cid, Status::SUCCESS, 0x007f_007f)
    }
}

fn property(command: &Command) -> u64 {
    let capabilities = Capabilities {
        entries_max: ENTRIES_MAX,
        ready_timeout: 1,
        page_min: 1,
    };
    match wire::nvme::fabrics::Property::parse(command).map(|it| it.offset) {
        Some(property::CAPABILITIES) => capabilities.bits(),
        _ => 1,
    }
}

fn start(fails: bool) -> (SocketAddr, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Seen::default()));
    let all = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = Arc::clone(&all);
            std::thread::spawn(move || {
                LimitedTarget {
                    stream,
                    seen,
                    fails,
                }
                .serve()
            });
        }
    });
    (address, seen)
}

const DISK: Namespace = Namespace {
    nsid: 1,
    blocks: 1 << 20,
    block_size: BLOCK,
};

fn job(depth: usize) -> Job {
    let (time, warm_up) = (Duration::from_millis(500), Duration::ZERO);
    let (write, random, bytes) = (false, true, BLOCK);
    Job {
        write,
        random,
        bytes,
        depth,
        warm_up,
        time,
        block: false,
        target: None,
    }
}

#[test]
fn queues_and_transfers_stay_within_what_the_controller_takes() {
    let (address, seen) = start(false);
    let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options(1, false)).unwrap();
    assert_eq!(
        (
            client.controller().depth_max,
            client.controller().transfer_max
        ),
        (ENTRIES_MAX, 32 << 10)
    );
    let mut queues = client.queues(2, 128).unwrap();
    assert_eq!(seen.entries.load(Ordering::Relaxed), ENTRIES_MAX);
    assert!(
        queues
            .iter()
            .all(|queue| queue.depth() == usize::from(ENTRIES_MAX))
    );
    // A job with more outstanding commands than the queues hold uses what they hold.
    let figures = bench(&mut queues, &DISK, &job(128)).unwrap();
    assert!(figures.errors == 0 && figures.latency.total() > 0);
}

/// Failed commands moved no data: they count as errors, and not as throughput.
#[test]
fn a_measurement_does_not_count_failed_commands_as_throughput() {
    for run in [bench as fn(&mut _, &_, &_) -> _, bench_threads] {
        let (address, seen) = start(true);
        let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options(1, false)).unwrap();
        let mut queues = client.queues(1, 1).unwrap();
        let figures = run(&mut queues, &DISK, &job(1)).unwrap();
        let (all, succeeded) = (
            seen.reads.load(Ordering::Relaxed) as u64,
            figures.latency.total(),
        );
        assert_eq!(
            figures.first_error,
            Some(Status::UNRECOVERED_READ.permanent())
        );
        // Depth 1, and every other command fails; the last one may not be counted.
        assert!(
            succeeded.abs_diff(figures.errors) <= 1 && succeeded + figures.errors <= all,
            "{figures:?}"
        );
        assert!(all - succeeded - figures.errors <= 1, "{all} {figures:?}");
        let seconds = succeeded as f64 / figures.per_second;
        assert!(seconds >= 0.5 && figures.bytes_per_second == figures.per_second * BLOCK as f64);
        let parts = figures.over_time.iter().sum::<f64>() * 0.5 / MOMENTS as f64;
        assert!(parts.round() as u64 <= succeeded);
        assert!(figures.errors_over_time.iter().sum::<u64>() <= figures.errors);
    }
}
