//! Strangers at a gateway to SMB: connections that negotiate SMB Direct and set up no session.

use std::net::Ipv4Addr;

use programs::namespace::Process;
use programs::probe::Probe;
use programs::{Job, Namespace, Rockery, Segment};
use tempfile::TempDir;

use crate::Outcome;
use crate::place::{Effort, memory_limit, peak_memory_mib, v4, wait_for};

/// Attackers, each with an address of its own.
const ATTACKERS: u8 = 4;
/// Connections that each of them makes: as many as the gateway admits of one address.
const CONNECTIONS: u32 = 128;
/// What the gateway may take for all of them: the 64 MiB of docs/smb.md, and a quarter for allocators.
const MEMORY_MIB: u64 = 80;
/// How long the attackers may take.
const SECONDS: u64 = 240;
/// A server over TCP that takes connections and reads nothing: requests pile up before it.
const SERVER: &str = "import socket, time\n\
    listener = socket.create_server(('127.0.0.1', 9445), backlog=1024)\n\
    print('listening', flush=True)\n\
    kept = []\n\
    while True: kept.append(listener.accept())\n";

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The gateway, and the machines around it.
struct Place {
    attackers: Vec<Namespace>,
    other: Namespace,
    gateway: Process,
    address: Ipv4Addr,
    stranger: Probe,
    _server: Process,
    _victim: Namespace,
    _folder: TempDir,
    _segment: Segment,
}

impl Place {
    fn new() -> Result<Self, String> {
        let segment = Segment::new(1500).map_err(text)?;
        let victim = segment.namespace(1).map_err(text)?;
        let other = segment.namespace(2).map_err(text)?;
        let attackers: Result<Vec<_>, _> =
            (0..ATTACKERS).map(|it| segment.namespace(3 + it)).collect();
        let folder = TempDir::new().map_err(text)?;
        let mut server = victim
            .start_plain(&["python3", "-c", SERVER])
            .map_err(text)?;
        wait_for(&mut server, "listening")?;
        let (address, control) = (v4(&victim), folder.path().join("control"));
        let line = format!(
            "{} smb gateway --rdma {address}:445 --server 127.0.0.1:9445 --control {}",
            Rockery::built().path().display(),
            control.display()
        );
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut gateway = victim.start_plain(&words).map_err(text)?;
        wait_for(&mut gateway, "listening on")?;
        let stranger =
            Probe::compile_with("cc", "stranger", &["-lrdmacm", "-libverbs"]).map_err(text)?;
        let (attackers, _server, _victim) = (attackers.map_err(text)?, server, victim);
        let (_folder, _segment) = (folder, segment);
        Ok(Self {
            attackers,
            other,
            gateway,
            address,
            stranger,
            _server,
            _victim,
            _folder,
            _segment,
        })
    }

    /// Starts connections of a machine.
    fn start(&self, from: &Namespace, count: u32, kind: &str) -> Result<Process, String> {
        let (rockery, probe) = (Rockery::built(), self.stranger.path().display());
        let line = format!(
            "{} run -- {probe} {} 445 {count} {kind}",
            rockery.path().display(),
            self.address
        );
        from.start_plain(&line.split_whitespace().collect::<Vec<_>>())
            .map_err(text)
    }
}

/// Four addresses make as many connections as they may, all of which do the same; then a fifth address makes
/// one.
fn strangers(kind: &str) -> Outcome {
    let place = Place::new()?;
    let memory = || peak_memory_mib(&place.gateway).ok_or("the gateway has ended");
    // What the gateway needs for its first connection is there before.
    wait_for(&mut place.start(&place.other, 1, kind)?, "made 1 of 1")?;
    let before = memory()?;
    let started: Result<Vec<_>, _> = place
        .attackers
        .iter()
        .map(|from| place.start(from, CONNECTIONS, kind))
        .collect();
    let mut made = 0;
    let mut started = started?;
    for attacker in &mut started {
        let is_there =
            programs::machine::until(SECONDS, || Ok(attacker.output()?.contains("made ")));
        let said = attacker.output().map_err(text)?;
        if !is_there.map_err(text)? {
            return Err(format!("an attacker did not get so far: {said}"));
        }
        let count = said
            .split_whitespace()
            .skip_while(|word| *word != "made")
            .nth(1);
        made += count
            .and_then(|count| count.parse::<u32>().ok())
            .unwrap_or(0);
    }
    if made < CONNECTIONS {
        return Err(format!("{made} connections are no attack"));
    }
    let mut other = place.start(&place.other, 1, "silent")?;
    let said = wait_for(&mut other, "made ")?;
    let grown = memory()?.saturating_sub(before);
    if !said.contains("made 1 of 1") {
        return Err(format!("a fifth address is kept out by {made} connections"));
    }
    if grown > memory_limit(MEMORY_MIB) {
        return Err(format!("{made} connections: {grown} MiB more memory"));
    }
    Ok(format!(
        "{made} connections: {grown} MiB more memory; a fifth address connects"
    ))
}

pub(crate) fn silent(_: Effort) -> Outcome {
    strangers("silent")
}

pub(crate) fn writes(_: Effort) -> Outcome {
    strangers("write")
}

pub(crate) fn reads(_: Effort) -> Outcome {
    strangers("read")
}

pub(crate) fn descriptors(_: Effort) -> Outcome {
    strangers("many")
}
