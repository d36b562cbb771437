//! Runs each fuzzer for a short while, one on each processor. CI runs this by `cargo test`: an optimized
//! build takes longer than the fuzzers run. Long runs use `FUZZ_SECONDS=600` and `--release`.

// The coverage instructions are in this program too, and require the runtime that they call.
use libfuzzer_sys as _;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process, thread};

/// How long each fuzzer may run in CI, unless `FUZZ_SECONDS` sets another time.
const SECONDS: u32 = 10;

/// How long the canary gets: it has been found within a second of work each time, on a machine shared by
/// seven.
const CANARY_SECONDS: u32 = 120;

/// A fuzzer, with its program and its seeds.
struct Fuzzer {
    name: &'static str,
    program: &'static str,
    /// Extracts the seed from a captured frame.
    seed: fn(&[u8]) -> Option<Vec<u8>>,
    /// How many of these the captures have at least.
    seeds_min: usize,
}

/// Every fuzzer that must find nothing.
const FUZZERS: &[Fuzzer] = &[
    Fuzzer {
        name: "transport",
        program: env!("CARGO_BIN_EXE_transport"),
        seed: transport_of,
        seeds_min: 1000,
    },
    Fuzzer {
        name: "frame",
        program: env!("CARGO_BIN_EXE_frame"),
        seed: |frame| Some(frame.to_vec()),
        seeds_min: 1000,
    },
    Fuzzer {
        name: "device",
        program: env!("CARGO_BIN_EXE_device"),
        seed: steps_of,
        seeds_min: 1000,
    },
    Fuzzer {
        name: "mad",
        program: env!("CARGO_BIN_EXE_mad"),
        seed: mad_of,
        seeds_min: 30,
    },
    Fuzzer {
        name: "nvme_pdu",
        program: env!("CARGO_BIN_EXE_nvme_pdu"),
        seed: nvme_of,
        seeds_min: 100,
    },
    Fuzzer {
        name: "nvme_target",
        program: env!("CARGO_BIN_EXE_nvme_target"),
        seed: nvme_steps_of,
        seeds_min: 50,
    },
    Fuzzer {
        name: "nbd",
        program: env!("CARGO_BIN_EXE_nbd"),
        seed: nbd_of,
        seeds_min: 50,
    },
    Fuzzer {
        name: "smb_direct",
        program: env!("CARGO_BIN_EXE_smb_direct"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "smb_relay",
        program: env!("CARGO_BIN_EXE_smb_relay"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "record",
        program: env!("CARGO_BIN_EXE_record"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "nvme_auth",
        program: env!("CARGO_BIN_EXE_nvme_auth"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "configurations",
        program: env!("CARGO_BIN_EXE_configurations"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "shown",
        program: env!("CARGO_BIN_EXE_shown"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "lab_frame",
        program: env!("CARGO_BIN_EXE_lab_frame"),
        seed: tapped,
        seeds_min: 1000,
    },
    Fuzzer {
        name: "lab_record",
        program: env!("CARGO_BIN_EXE_lab_record"),
        seed: ringed,
        seeds_min: 1000,
    },
    Fuzzer {
        name: "lldp",
        program: env!("CARGO_BIN_EXE_lldp"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "subnet",
        program: env!("CARGO_BIN_EXE_subnet"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "ipoib",
        program: env!("CARGO_BIN_EXE_ipoib"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "fault_rules",
        program: env!("CARGO_BIN_EXE_fault_rules"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "trace",
        program: env!("CARGO_BIN_EXE_trace"),
        seed: |_| None,
        seeds_min: 0,
    },
    Fuzzer {
        name: "traffic",
        program: env!("CARGO_BIN_EXE_traffic"),
        seed: traffic_of,
        seeds_min: 30,
    },
    Fuzzer {
        name: "imports",
        program: env!("CARGO_BIN_EXE_imports"),
        seed: |_| None,
        seeds_min: 0,
    },
];

/// A line of each kind of file, with numbers from a frame.
fn traffic_of(frame: &[u8]) -> Option<Vec<u8>> {
    let byte = |place: usize| frame.get(place).copied();
    let (from, to, bytes) = (byte(29)? % 8, byte(33)? % 8, frame.len());
    let (which, text) = match byte(5)? % 3 {
        0 => (
            0,
            format!("from,to,bytes,start_ns\nh{from},h{to},{bytes},{from}\n"),
        ),
        1 => (
            1,
            format!("{bytes} {}.5\n{} 100\n", byte(29)? % 100, 2 * bytes),
        ),
        _ => (
            2,
            format!("Nodes 8\nConnections 1\n{from}->{to} start {from}.5 size {bytes}\n"),
        ),
    };
    Some([&[which][..], text.as_bytes()].concat())
}

fn transport_of(frame: &[u8]) -> Option<Vec<u8>> {
    let (headers, datagram) = wire::FrameHeaders::parse(frame).ok()?;
    let (transport, _) = wire::split_icrc(datagram)?;
    (headers.udp.destination_port == wire::ROCE_PORT).then(|| transport.to_vec())
}

/// One step of the device's fuzzer: a packet, and the device sends what it has.
fn steps_of(frame: &[u8]) -> Option<Vec<u8>> {
    let transport = transport_of(frame)?;
    let length = transport.len().min(255);
    Some([&[0, 0x2c, length as u8], &transport[..length]].concat())
}

/// A frame without anything left to do, as a tap gives it.
fn tapped(frame: &[u8]) -> Option<Vec<u8>> {
    Some([&[0; 10][..], frame].concat())
}

/// A record of a lab host's device: from 10.0.0.1 to 10.0.0.2, and the transport headers of a packet.
fn ringed(frame: &[u8]) -> Option<Vec<u8>> {
    let transport = transport_of(frame)?;
    let address = |last| [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, last]].concat();
    let length = transport.len().min(28);
    Some(
        [
            &[0; 8][..],
            &address(1)[..],
            &address(2)[..],
            &[0, 64, 0, 192],
            &transport[..length],
        ]
        .concat(),
    )
}

/// The payload of a TCP segment to or from a target.
fn nvme_of(frame: &[u8]) -> Option<Vec<u8>> {
    let is_tcp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&6);
    let ports = [frame.get(34..36)?, frame.get(36..38)?];
    if !is_tcp || !ports.contains(&&4420_u16.to_be_bytes()[..]) {
        return None;
    }
    let data = frame.get(34 + usize::from(*frame.get(46)? >> 4) * 4..)?;
    (data.len() >= 8).then(|| data.to_vec())
}

/// Steps of the target's fuzzer: a command of the kernel as it came, and once more framed anew.
fn nvme_steps_of(frame: &[u8]) -> Option<Vec<u8>> {
    let pdu = nvme_of(frame)?;
    let command = pdu.get(8..72).filter(|_| pdu[0] == 4)?;
    Some([&[0, 2, 72], &pdu[..72], &[0x92, 64], command].concat())
}

/// A client that negotiates, and one request that is made of a packet: no capture has NBD.
fn nbd_of(frame: &[u8]) -> Option<Vec<u8>> {
    let request = frame.get(18..34).filter(|_| frame.len() < 200)?;
    let hello = [
        &[64, 0, 0, 0, 3][..],
        b"IHAVEOPT",
        &[0, 0, 0, 7, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let kind = [0x25, 0x60, 0x95, 0x13, 0, 0, 0, frame[20] % 8];
    let place = [
        0,
        0,
        0,
        0,
        0,
        request[0] % 16,
        0,
        0,
        0,
        0,
        request[1] % 4,
        0,
    ];
    Some([&hello[..], &kind, &request[..8], &place].concat())
}

fn mad_of(frame: &[u8]) -> Option<Vec<u8>> {
    let transport = transport_of(frame)?;
    let (packet, payload) = wire::Packet::parse(&transport).ok()?;
    (packet.dest == wire::Qpn::GSI).then(|| payload.to_vec())
}

fn seconds() -> u32 {
    env::var("FUZZ_SECONDS").map_or(SECONDS, |text| {
        text.parse().expect("FUZZ_SECONDS is a number")
    })
}

/// A folder that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("rockery-fuzz-{name}-{}", process::id()));
        fs::create_dir_all(&path).expect("a folder for the corpus");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// `artifacts` is where the bytes go that make the fuzzer fail.
fn run(program: &str, corpus: &Folder, artifacts: &Path, seconds: u32) -> Output {
    fs::create_dir_all(artifacts).expect("a folder for what is found");
    Command::new(program)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-timeout=10", "-rss_limit_mb=1024", "-max_len=512"])
        .arg(&corpus.0)
        .output()
        .expect("the fuzzer starts")
}

/// Runs one fuzzer; returns the last line of its log.
fn finds_nothing(fuzzer: &Fuzzer) -> String {
    let corpus = Folder::new(fuzzer.name);
    let seeds = plant(&corpus, fuzzer.seed);
    assert!(seeds >= fuzzer.seeds_min, "{}: {seeds} seeds", fuzzer.name);
    let artifacts = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("artifacts")
        .join(fuzzer.name);
    let output = run(fuzzer.program, &corpus, &artifacts, seconds());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} found something:\n{log}",
        fuzzer.name
    );
    log.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn no_fuzzer_finds_anything() {
    let next = AtomicUsize::new(0);
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(fuzzer) = FUZZERS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    println!("{}: {}", fuzzer.name, finds_nothing(fuzzer));
                }
            });
        }
    });
    assert!(
        next.into_inner() >= FUZZERS.len() + processors,
        "every fuzzer ran"
    );
}

#[test]
fn the_canary_is_found() {
    let corpus = Folder::new("canary");
    let output = run(
        env!("CARGO_BIN_EXE_canary"),
        &corpus,
        &corpus.0,
        CANARY_SECONDS,
    );
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success(),
        "the fuzzer is blind: it did not find the fault that is there:\n{log}"
    );
    assert!(
        log.contains("the canary sings"),
        "it stopped for another reason:\n{log}"
    );
}

/// Fills a corpus with packets of the golden captures; returns how many.
fn plant(corpus: &Folder, seed: fn(&[u8]) -> Option<Vec<u8>>) -> usize {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/captures");
    let mut count = 0;
    for entry in fs::read_dir(captures).expect("the golden captures") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        for frame in frames_of(&fs::read(&path).expect("a capture")) {
            if let Some(bytes) = seed(frame) {
                fs::write(corpus.0.join(format!("seed-{count}")), bytes).expect("a seed");
                count += 1;
            }
        }
    }
    count
}

/// The frames of a little-endian classic pcap file.
fn frames_of(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    bytes = &bytes[24..];
    while let Some((header, rest)) = bytes.split_first_chunk::<16>() {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let (frame, after) = rest.split_at(length);
        frames.push(frame);
        bytes = after;
    }
    frames
}
