//! More Compare and Writes on an NVMe/RDMA queue than its memory has buffers, in each ending: success, a
//! comparison that fails, and a connection that ends while the pair waits for its data. The queue goes on,
//! and afterwards the target has nothing in use.
//!
//! `rockery run -- rdma_pairs`; host and target are in this process.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use buffer::Buffer;
use nvme::host::{Client, Options, Payload, Queue, Transport, transfer};
use nvme::limits::QUEUE_DATA_BYTES;
use nvme::serve::{
    BackendConfig, Bytes, Config, NamespaceConfig, PortConfig, Server, SubsystemConfig,
    TransportConfig, Tuning,
};
use programs::rdma_queue::{RdmaHost, TIMEOUT};
use programs::storage::{NQN, options};
use tempfile::TempDir;
use wire::nvme::{Command, Fuse, Io};

/// Bytes of a block, and of each half of a pair.
const BLOCK: usize = 4096;
/// Pairs whose data are more than the memory of a queue.
const PAIRS: usize = QUEUE_DATA_BYTES / BLOCK + 400;
/// Connections that end while their pairs wait, and the pairs of each.
const LOST: u8 = 16;
const WAITING: usize = 16;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn start(backend: BackendConfig, port: u16) -> Result<(Server, SocketAddr), String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let port = PortConfig {
        id: None,
        transport: TransportConfig::Rdma,
        tls: false,
        shared_receives: None,
        address,
        subsystems: None,
    };
    let subsystem = SubsystemConfig {
        namespaces: vec![NamespaceConfig::new(1, backend)],
        ..SubsystemConfig::new(NQN.parse().map_err(text)?)
    };
    let config = Config {
        subsystems: vec![subsystem],
        ports: vec![port],
        referrals: Vec::new(),
    };
    let server = Server::start(config, None, Tuning::default()).map_err(text)?;
    Ok((server, address))
}

fn half(kind: Io, fuse: Fuse) -> Command {
    Command {
        flags: fuse as u8,
        ..transfer(kind, 1, 9, 1)
    }
}

fn filled(queue: &Queue, byte: u8) -> Result<Payload, String> {
    let mut buffer: Buffer = queue.buffer(BLOCK).map_err(text)?;
    buffer[..BLOCK].fill(byte);
    Ok(Payload::Out(buffer, BLOCK))
}

/// Whether both halves succeeded. If one fails, both do.
fn compare_and_write(queue: &mut Queue, [expected, new]: [u8; 2]) -> Result<bool, String> {
    let (first, second) = (filled(queue, expected)?, filled(queue, new)?);
    queue
        .submit(half(Io::Compare, Fuse::First), first, 0)
        .and_then(|()| queue.submit(half(Io::Write, Fuse::Second), second, 1))
        .map_err(text)?;
    let mut done = Vec::new();
    while done.len() < 2 {
        queue.wait(&mut done).map_err(text)?;
    }
    let [one, other] = [&done[0], &done[1]].map(|it| it.completion.status());
    match one.is_success() == other.is_success() {
        true => Ok(one.is_success()),
        false => Err(format!("one half succeeded: {one}, {other}")),
    }
}

/// Pairs of one queue, each with a read behind it; every second one fails.
fn many_pairs(address: SocketAddr) -> Result<(), String> {
    let options = Options {
        transport: Transport::Rdma,
        ..options()
    };
    let name = NQN.parse().map_err(text)?;
    let mut client = Client::connect(address, &name, &options).map_err(text)?;
    let mut queue = client.queues(1, 8).map_err(text)?.remove(0);
    let zeros = filled(&queue, 0)?;
    let written = queue.call("Write", transfer(Io::Write, 1, 9, 1), zeros);
    written.map_err(text)?;
    let mut content = 0;
    for pair in 0..PAIRS {
        let is_right = pair % 2 == 0;
        let expected = if is_right { content } else { !content };
        let new = (pair / 2 + 1) as u8;
        if compare_and_write(&mut queue, [expected, new])? != is_right {
            return Err(format!("pair {pair} ended wrongly"));
        }
        content = if is_right { new } else { content };
        let read = Payload::In(queue.buffer(BLOCK).map_err(text)?, BLOCK);
        let done = queue.call("Read", transfer(Io::Read, 1, 9, 1), read);
        let done = done.map_err(|error| format!("behind {pair} pairs: {error}"))?;
        let data = done.buffer.ok_or("Read ended without data")?;
        if data[..BLOCK].iter().any(|byte| *byte != content) {
            return Err(format!("pair {pair} left another content"));
        }
    }
    Ok(())
}

/// Connections that end while the target has RDMA READs for their pairs in its send queue.
fn lost_connections(server: &Server, address: SocketAddr) -> Result<(), String> {
    for number in 1..=LOST {
        let mut host = RdmaHost::new(address, NQN, number, 1)?;
        let queue = &mut host.io[0];
        // Its response finds no receive, and the READs wait behind it.
        queue.memory()[..BLOCK].fill(1);
        queue.send(transfer(Io::Read, 1, 0, 1), queue.keyed(0..BLOCK))?;
        until("the read", || {
            queue.memory()[..BLOCK].iter().all(|it| *it == 0)
        })?;
        for _ in 0..WAITING / 2 {
            queue.send(
                half(Io::Compare, Fuse::First),
                queue.keyed(BLOCK..2 * BLOCK),
            )?;
            queue.send(half(Io::Write, Fuse::Second), queue.keyed(BLOCK..2 * BLOCK))?;
        }
        let held = || server.shared().data_bytes() >= WAITING / 2 * BLOCK;
        until("the pairs", held)?;
    }
    Ok(())
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("waited in vain for {what}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn attempt(backend: BackendConfig, port: u16) -> Result<(), String> {
    let (server, address) = start(backend, port)?;
    let has_nothing = || server.shared().connections() == 0 && server.shared().data_bytes() == 0;
    many_pairs(address)?;
    until("the end of the first host", has_nothing)?;
    lost_connections(&server, address)?;
    until("the end of the lost hosts", has_nothing)?;
    // Nothing is locked either.
    many_pairs(address)?;
    until("the end of the last host", has_nothing)
}

fn main() -> ExitCode {
    let folder = TempDir::new().expect("a folder");
    let size = Bytes(16 << 20);
    let file = BackendConfig::File {
        path: folder.path().join("disk"),
        size: Some(size),
        direct: false,
    };
    for (backend, port) in [(BackendConfig::Memory(size), 4420), (file, 4421)] {
        let what = format!("{backend:?}");
        if let Err(error) = attempt(backend, port) {
            println!("{what}: {error}");
            return ExitCode::FAILURE;
        }
    }
    println!("{PAIRS} pairs, {LOST} lost connections: nothing is in use");
    ExitCode::SUCCESS
}
