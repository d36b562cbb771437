//! Attacks by hosts without a secret that connect to a server whose every disk needs one, and stay: the
//! discovery service asks for none.

use std::fs;

use nvme::auth::Secret;
use programs::namespace::Process;
use programs::probe::Probe;
use programs::{Job, Machine, Rockery};

use crate::Outcome;
use crate::place::{Effort, Place, memory_limit, peak_memory_mib, v4, wait_for};

const NVME: u16 = 4420;
pub(crate) const NQN: &str = "nqn.2024-01.org.example:disk";
pub(crate) const HOST: &str = "nqn.2024-01.org.example:host";
/// What the victim may lose: the limit for unauthenticated hosts (`UNAUTHENTICATED_BYTES`: 64 MiB), half-open
/// connections, and what the allocator adds.
const MEMORY_MIB: u64 = 192;
/// Additional memory after the attacker's connections have ended.
pub(crate) const KEPT_MIB: u64 = 96;
/// The attacker's addresses: none of the honest host's.
pub(crate) const SOURCES: [&str; 4] = ["10.88.0.31", "10.88.0.32", "10.88.0.33", "10.88.0.34"];

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub(crate) fn secret() -> Result<String, String> {
    Secret::new(&[7; 32], None).map(String::from).map_err(text)
}

/// A target whose only disk needs a secret.
fn serve(place: &Place) -> Result<Process, String> {
    let address = v4(&place.victim);
    let port =
        |kind: &str| format!("[[port]]\ntransport = \"{kind}\"\naddress = \"{address}:{NVME}\"\n");
    let config = format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\n[subsystem.host.\"{HOST}\"]\nsecret = \"{}\"\n\
         [[subsystem.namespace]]\nid = 1\nmemory = \"16MiB\"\n{}{}",
        secret()?,
        port("tcp"),
        port("rdma")
    );
    let path = |name: &str| {
        place
            .folder
            .path()
            .join(name)
            .to_string_lossy()
            .into_owned()
    };
    fs::write(path("config"), config).map_err(text)?;
    let program = Rockery::built().path().to_string_lossy().into_owned();
    let (config, control) = (path("config"), path("control"));
    let words = [
        "prlimit",
        "--nofile=8192",
        &program,
        "serve",
        "nvme",
        "--config",
        &config,
    ];
    let mut server = place
        .victim
        .start_plain(
            &[
                &words[..],
                &["--control", &control, "--connect-timeout", "120"],
            ]
            .concat(),
        )
        .map_err(text)?;
    wait_for(&mut server, "listening on")?;
    Ok(server)
}

/// Whether the host that has the secret reads a block.
fn host_reads(place: &Place) -> Result<(), String> {
    let target = format!("{}:{NVME}", v4(&place.victim));
    let (rockery, secret) = (Rockery::built(), secret()?);
    let program = rockery.path().to_string_lossy();
    let words = [
        &program,
        "nvme",
        "read",
        &target,
        "--transport",
        "rdma",
        "--subsystem",
        NQN,
    ];
    let words = [
        &words[..],
        &["--host", HOST, "--secret", &secret, "--blocks", "1"],
    ]
    .concat();
    match place
        .peer
        .start_plain(&words)
        .and_then(|mut job| job.wait(120))
    {
        Ok(finished) if finished.succeeded() => Ok(()),
        Ok(finished) => Err(format!("a host cannot read: {}", finished.output.trim())),
        Err(error) => Err(format!("a host cannot read: {error}")),
    }
}

pub(crate) fn resident_mib(server: &Process) -> Result<u64, String> {
    command::process::status(server.id(), "VmRSS:")
        .map(|kib| kib / 1024)
        .ok_or("the target has ended".to_owned())
}

/// Gives the attacker its addresses.
pub(crate) fn add_sources(place: &Place) -> Result<(), String> {
    SOURCES.iter().try_for_each(|source| {
        let line = format!("ip address add {source}/24 dev eth0");
        place.attacker.call(&line).map(drop).map_err(text)
    })
}

/// Connections whose REQ names this queue, with entries for 1,024 commands.
fn hold(effort: Effort, queue: u16) -> Outcome {
    let place = Place::new().map_err(text)?;
    add_sources(&place)?;
    let server = serve(&place)?;
    host_reads(&place)?;
    let before = resident_mib(&server)?;
    let probe = Probe::compile_with("cc", "nvme-hold", &["-lrdmacm", "-libverbs"]).map_err(text)?;
    let count = if effort == Effort::Short { 300 } else { 2000 };
    let (program, target) = (
        probe.path().to_string_lossy(),
        v4(&place.victim).to_string(),
    );
    let (port, count, queue) = (NVME.to_string(), i32::to_string(&count), queue.to_string());
    let words = [
        "prlimit",
        "--nofile=16384",
        &program,
        &target,
        &port,
        &count,
        &queue,
        "5",
    ];
    let mut attacker = place
        .attacker
        .start(&[&words[..], &SOURCES].concat())
        .map_err(text)?;
    let said = wait_for(attacker.as_mut(), "established")?;
    host_reads(&place)?;
    attacker.wait(120).map_err(text)?;
    let peak = peak_memory_mib(&server)
        .ok_or("the target has ended")?
        .saturating_sub(before);
    let mut kept = u64::MAX;
    let is_back = programs::machine::until(60, || {
        kept = resident_mib(&server)
            .unwrap_or(u64::MAX)
            .saturating_sub(before);
        Ok(kept <= memory_limit(KEPT_MIB))
    });
    let figures = format!("{}: {peak} MiB more memory, {kept} kept", said.trim());
    match (peak <= memory_limit(MEMORY_MIB), is_back) {
        (true, Ok(true)) => host_reads(&place).map(|()| format!("{figures}; a host reads")),
        _ => Err(figures),
    }
}

pub(crate) fn admin_queues(effort: Effort) -> Outcome {
    hold(effort, 0)
}

/// The variation that names an I/O queue in the REQ, for which a deep queue is right.
pub(crate) fn io_queues(effort: Effort) -> Outcome {
    hold(effort, 1)
}
