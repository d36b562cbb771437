//! A target under load for a long time: hosts come and go, namespaces come and go, a disk is written and
//! checked block by block, and the server's memory, descriptors and threads stay what they were. Whenever no
//! host is connected, it has neither connections, controllers nor commands, and no memory of data buffers.
//!
//! `cargo run --release -p rockery-programs --bin soak -- [SECONDS]`, one hour by default.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use buffer::Buffer;
use command::process::status;
use nvme::host::{HostError, Payload, discover, transfer};
use programs::ledger::{BLOCK, Writer};
use programs::storage::{NQN, Server, options};
use programs::{Error, Ledger, Loss};
use tempfile::TempDir;
use wire::nvme::Io;

const BLOCKS: usize = 8192;
const DEPTH: u16 = 32;
/// One round of everything.
const ROUND: Duration = Duration::from_secs(5);
/// Rounds before memory is compared: after them, every kind of memory has been used once.
const WARM_UP_ROUNDS: u32 = 2;
/// How much more memory may be held than after the first rounds: allocators keep some, a leak does not stop.
const GROWTH_KB_MAX: u64 = 8 << 10;

/// The resources that the server holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    resident_kb: u64,
    descriptors: usize,
    threads: u64,
}

impl Held {
    fn by(process: u32) -> Option<Self> {
        let field = |name: &str| status(process, name);
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"))
            .ok()?
            .count();
        Some(Self {
            resident_kb: field("VmRSS:")?,
            descriptors,
            threads: field("Threads:")?,
        })
    }
}

fn main() -> ExitCode {
    let seconds = std::env::args()
        .nth(1)
        .map_or(Ok(3600), |text| text.parse());
    let Ok(seconds) = seconds else {
        eprintln!("soak: how many seconds?");
        return ExitCode::from(2);
    };
    match soak(Duration::from_secs(seconds)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

fn soak(time: Duration) -> Result<bool, Failure> {
    let folder = TempDir::new().map_err(Error::file("a temporary folder"))?;
    let disk = folder.path().join("disk").display().to_string();
    let words = format!("{disk} --size {} --metrics 127.0.0.1:0", BLOCKS * BLOCK);
    let server = Server::start(folder.path(), &words)?;
    let mut ledger = Ledger::new(1, 0, BLOCKS);
    let (began, mut round, mut first) = (Instant::now(), 0, None);
    println!(
        "{:>8} {:>10} {:>12} {:>6} {:>8}",
        "seconds", "commands", "resident kB", "files", "threads"
    );
    let mut commands = 0;
    while began.elapsed() < time || round <= WARM_UP_ROUNDS {
        commands += one_round(&server, &mut ledger, round)?;
        round += 1;
        let held = Held::by(server.id()).ok_or(Failure::Gone)?;
        let Held {
            resident_kb,
            descriptors,
            threads,
        } = held;
        println!(
            "{:>8} {commands:>10} {resident_kb:>12} {descriptors:>6} {threads:>8}",
            began.elapsed().as_secs()
        );
        if round <= WARM_UP_ROUNDS {
            first = Some(held);
        } else if let Some(first) = first
            && (resident_kb > first.resident_kb + GROWTH_KB_MAX || descriptors > first.descriptors)
        {
            println!("it held {first:?} after the first rounds, and {held:?} now");
            return Ok(false);
        }
    }
    Ok(true)
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Program(#[from] Error),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the server ended during the round")]
    Gone,
    #[error("no host is connected, and the server has {0} in use")]
    InUse(String),
    #[error("blocks do not have what was written: {0:?}")]
    Wrong(Vec<programs::ledger::Wrong>),
}

/// Hosts that connect and disconnect, one that writes, changes at run time; then everything is read. No host
/// is connected at its end.
fn one_round(server: &Server, ledger: &mut Ledger, round: u32) -> Result<u64, Failure> {
    let until = Instant::now() + ROUND;
    let (mut client, mut queues) = server.connect(2, DEPTH);
    let mut commands = 0;
    while Instant::now() < until {
        let mut writer = Writer::new(
            ledger,
            &mut queues[0],
            1,
            DEPTH.into(),
            u64::from(round) << 32 | commands,
        );
        commands += writer.run(|completed| completed < 2000)?;
        server.ask(&format!("serve add {NQN} --id 7 --memory 4M"))?;
        discover(server.address(), &options())?;
        {
            let (_client, mut others) = server.connect(4, DEPTH);
            for (queue, start) in others.iter_mut().zip(0..) {
                let payload = Payload::In(Buffer::zeroed(1 << 20), 1 << 20);
                queue.call("Read", transfer(Io::Read, 7, start, 256), payload)?;
            }
            // One goes in the middle of its answers.
            let payload = Payload::In(Buffer::zeroed(1 << 20), 1 << 20);
            others[0].submit(transfer(Io::Read, 7, 0, 256), payload, 0)?;
            others[0].poll(&mut Vec::new())?;
        }
        server.ask(&format!("serve remove {NQN} 7"))?;
        server.ask("serve metrics")?;
        client.keep_alive()?;
    }
    let wrong = ledger.check_disk(&mut queues[1], 1, Loss::Process)?;
    if !wrong.is_empty() {
        return Err(Failure::Wrong(wrong));
    }
    drop((client, queues));
    // The last connection's thread ends a moment after its host.
    programs::machine::until(20, || Ok(server.metric("connections")? == 0))?;
    match server.in_use()? {
        used if used.is_empty() => Ok(commands),
        used => Err(Failure::InUse(used)),
    }
}
