//! A host that writes a disk by seed, and connects again whenever its connection breaks, until a file stops
//! it; then it reads all that it wrote. All writes that the target acknowledged have to be there, each time.
//!
//! `storage-writer ADDRESS:PORT TRANSPORT STOP`: it stops when there is a file STOP.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nvme::host::{Client, HostError, Options, Queue, Transport};
use programs::ledger::Writer;
use programs::storage::{NQN, options};
use programs::{Ledger, Loss};

const BLOCKS: usize = 512;
const DEPTH: u16 = 16;
/// Commands between two looks at what is on the disk.
const COMMANDS: u64 = 150;
/// How long the target may be away.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    match run() {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("storage-writer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, address, transport, stop] = &words[..] else {
        return Err("storage-writer ADDRESS:PORT TRANSPORT STOP".into());
    };
    let transport: Transport = transport.parse()?;
    let (address, options) = (
        address.parse()?,
        Options {
            transport,
            ..options()
        },
    );
    let mut ledger = Ledger::new(1, 0, BLOCKS);
    let (mut connections, mut commands) = (0, 0);
    loop {
        let stops = Path::new(stop).exists();
        let (_client, mut queues) = connect(address, &options)?;
        let queue = queues.first_mut().ok_or("no queue")?;
        connections += 1;
        println!("connected {connections}");
        loop {
            match round(&mut ledger, queue, stops, &mut commands) {
                Err(error) if is_of_the_connection(&error) => println!("disconnected: {error}"),
                Err(error) => return Err(error.into()),
                Ok(wrong) if !wrong.is_empty() => return Err(format!("wrong: {wrong:?}").into()),
                Ok(_) if stops => {
                    return Ok(format!("{commands} commands, {connections} connections"));
                }
                Ok(_) if Path::new(stop).exists() => {}
                Ok(_) => {
                    println!("round");
                    continue;
                }
            }
            break;
        }
    }
}

/// Writes, unless it is the last round, and reads everything.
fn round(
    ledger: &mut Ledger,
    queue: &mut Queue,
    is_last: bool,
    commands: &mut u64,
) -> Result<Vec<programs::ledger::Wrong>, HostError> {
    let wrong = ledger.check_disk(queue, 1, Loss::Process)?;
    if is_last || !wrong.is_empty() {
        return Ok(wrong);
    }
    let began = *commands;
    let mut writer = Writer::new(ledger, queue, 1, DEPTH.into(), began);
    writer.run(|completed| {
        *commands = began + completed;
        completed < COMMANDS
    })?;
    Ok(wrong)
}

fn connect(address: SocketAddr, options: &Options) -> Result<(Client, Vec<Queue>), Box<dyn Error>> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let connected = Client::connect(address, &NQN.parse()?, options).and_then(|mut client| {
            let queues = client.queues(1, DEPTH)?;
            Ok((client, queues))
        });
        match connected {
            Ok(connected) => return Ok(connected),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Whether another connection may do better.
fn is_of_the_connection(error: &HostError) -> bool {
    !matches!(
        error,
        HostError::Status { .. } | HostError::Buffer | HostError::Full
    )
}
