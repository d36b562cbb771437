//! Attacks by peers that know the names of a host and a subsystem, and do not complete the TLS handshake.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command as Program, Stdio};
use std::time::{Duration, Instant};

use nvme::tls::TlsKey;
use programs::namespace::Process;
use programs::{Job, Rockery};

use crate::Outcome;
use crate::hold::{HOST, KEPT_MIB, NQN, SOURCES, add_sources, resident_mib};
use crate::place::{Effort, Place, memory_limit, peak_memory_mib, v4, wait_for};

const NVME: u16 = 4420;
/// What the victim may lose: the limit for unauthenticated hosts (`UNAUTHENTICATED_BYTES`: 64 MiB), and half
/// as much for allocators.
const MEMORY_MIB: u64 = 96;
/// Opens connections from each source address in turn, and opens those again that the server has closed.
/// `slow` sends a byte of the ClientHello on each of them in each round, `stalled` all of it at once.
const ATTACKER: &str = "import socket, sys, time\n\
    target, port, count, kind, file, *sources = sys.argv[1:]\n\
    hello, held = open(file, 'rb').read(), []\n\
    class Held:\n\
    \x20   def __init__(self, source):\n\
    \x20       self.source, self.sent = source, 0\n\
    \x20       self.socket = socket.socket()\n\
    \x20       self.socket.settimeout(1)\n\
    \x20       try:\n\
    \x20           self.socket.bind((source, 0))\n\
    \x20           self.socket.connect((target, int(port)))\n\
    \x20           self.socket.setblocking(False)\n\
    \x20           self.is_open = self.more()\n\
    \x20       except OSError:\n\
    \x20           self.is_open = False\n\
    \x20   def more(self):\n\
    \x20       end = min(self.sent + 1, len(hello) - 1) if kind == 'slow' else len(hello)\n\
    \x20       try:\n\
    \x20           self.sent += self.socket.send(hello[self.sent:end])\n\
    \x20           return self.socket.recv(65536) != b''\n\
    \x20       except BlockingIOError:\n\
    \x20           return True\n\
    \x20       except OSError:\n\
    \x20           return False\n\
    for number in range(int(count)):\n\
    \x20   held.append(Held(sources[number % len(sources)]))\n\
    print(sum(it.is_open for it in held), 'of', count, 'opened', flush=True)\n\
    while True:\n\
    \x20   for place, it in enumerate(held):\n\
    \x20       if not it.is_open or not it.more():\n\
    \x20           it.socket.close()\n\
    \x20           held[place] = Held(it.source)\n\
    \x20   time.sleep(0.05)\n";

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn key() -> Result<String, String> {
    TlsKey::new(&[7; 32], None).map(String::from).map_err(text)
}

/// The words with which the host that has the key uses this target.
fn host_words(action: &str, target: &str) -> Result<Vec<String>, String> {
    let key = key()?;
    let words = [
        "nvme",
        action,
        target,
        "--subsystem",
        NQN,
        "--host",
        HOST,
        "--tls-key",
        &key,
    ];
    Ok(words.map(str::to_owned).to_vec())
}

/// The first record that the host with the key sends: a ClientHello with the right binder, which any peer
/// on the path can record and send again.
fn client_hello() -> Result<Vec<u8>, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
    let address = listener.local_addr().map_err(text)?.to_string();
    let mut program = Program::new(Rockery::built().path());
    program.args(host_words("id-ctrl", &address)?);
    program.stdout(Stdio::null()).stderr(Stdio::null());
    let mut host = program.spawn().map_err(text)?;
    let recorded = listener.accept().and_then(|(mut stream, _)| {
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut record = vec![0; 5];
        stream.read_exact(&mut record)?;
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + length, 0);
        stream.read_exact(&mut record[5..])?;
        Ok(record)
    });
    host.kill().and_then(|()| host.wait()).map_err(text)?;
    recorded.map_err(text)
}

/// A target whose only disk needs a TLS key.
fn serve(place: &Place) -> Result<Process, String> {
    let config = format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\n[subsystem.host.\"{HOST}\"]\ntls-key = \"{}\"\n\
         [[subsystem.namespace]]\nid = 1\nmemory = \"16MiB\"\n\
         [[port]]\naddress = \"{}:{NVME}\"\ntls = true\n",
        key()?,
        v4(&place.victim)
    );
    let path = |name: &str| place.folder.path().join(name).display().to_string();
    fs::write(path("config"), config).map_err(text)?;
    let program = Rockery::built().path().display().to_string();
    let (config, control) = (path("config"), path("control"));
    let words = [
        "prlimit",
        "--nofile=8192",
        &program,
        "serve",
        "nvme",
        "--config",
        &config,
        "--control",
        &control,
        // Handshakes end because others need their memory, not because of their time.
        "--connect-timeout",
        "120",
    ];
    let mut server = place.victim.start_plain(&words).map_err(text)?;
    wait_for(&mut server, "listening on")?;
    Ok(server)
}

/// Whether the host that has the key reads a block.
fn host_reads(place: &Place) -> Result<(), String> {
    let target = format!("{}:{NVME}", v4(&place.victim));
    let program = Rockery::built().path().display().to_string();
    let words = [
        vec![program],
        host_words("read", &target)?,
        ["--blocks", "1"].map(str::to_owned).to_vec(),
    ]
    .concat();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let job = place.peer.start_plain(&words);
    match job.and_then(|mut job| job.wait(120)) {
        Ok(finished) if finished.succeeded() => Ok(()),
        Ok(finished) => Err(format!("a host cannot read: {}", finished.output.trim())),
        Err(error) => Err(format!("a host cannot read: {error}")),
    }
}

/// Repeats a connection that is refused, as hosts do; returns the number of tries.
fn host_reads_at_last(place: &Place) -> Result<u32, String> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut tries = 1;
    while let Err(error) = host_reads(place) {
        if Instant::now() > end {
            return Err(format!("{error} ({tries} tries)"));
        }
        tries += 1;
    }
    Ok(tries)
}

fn handshakes(effort: Effort, kind: &str) -> Outcome {
    let place = Place::new().map_err(text)?;
    add_sources(&place)?;
    let server = serve(&place)?;
    host_reads(&place)?;
    let before = resident_mib(&server)?;
    let hello = place.folder.path().join("hello");
    fs::write(&hello, client_hello()?).map_err(text)?;
    let (target, port) = (v4(&place.victim).to_string(), NVME.to_string());
    let count = if effort == Effort::Short { 600 } else { 1000 };
    let (count, hello) = (i32::to_string(&count), hello.display().to_string());
    let words = ["prlimit", "--nofile=16384", "python3", "-c", ATTACKER];
    let arguments = [&target, &port, &count, kind, &hello];
    let mut attacker = place
        .attacker
        .start_plain(&[&words[..], &arguments, &SOURCES].concat())
        .map_err(text)?;
    let said = wait_for(&mut attacker, "opened")?;
    let (reads, mut tries) = (2 * effort.seconds(), 0);
    for _ in 0..reads {
        tries += host_reads_at_last(&place)?;
    }
    attacker.kill().map_err(text)?;
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
        (true, Ok(true)) => Ok(format!(
            "{figures}; a host reads {reads} times in {tries} tries"
        )),
        _ => Err(figures),
    }
}

pub(crate) fn slow_hellos(effort: Effort) -> Outcome {
    handshakes(effort, "slow")
}

pub(crate) fn stalled(effort: Effort) -> Outcome {
    handshakes(effort, "stalled")
}
