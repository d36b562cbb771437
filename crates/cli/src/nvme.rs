//! `rockery nvme`: rockery as a host of NVMe over TCP and RDMA.

use std::io::{Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use ::nvme::Nqn;
use ::nvme::host::{
    Client, Figures, Job, Options, Payload, Tls, Transport, bench, bench_threads, discover, fill, transfer,
};
use ::nvme::tls::Version;
use clap::Subcommand;
use wire::nvme::tcp::Digests;
use wire::nvme::{Io, text};

use crate::Error;
use crate::bench::{Measured, Spec};
use crate::export::{self, Connect, Export, Name};
use crate::proofs::Proofs;

const NQN: &str = "nqn.2024-01.org.rockery:disk";
const HOST: &str = "nqn.2024-01.org.rockery:host";
/// Commands at once of reading and writing whole ranges.
const DEPTH: u16 = 8;

/// What to do with a target.
#[derive(Debug, Subcommand)]
pub(crate) enum Nvme {
    /// Ask a discovery service which subsystems there are.
    Discover(Target),
    /// Say what a controller is, and which namespaces it has.
    IdCtrl(Target),
    /// Write blocks of a namespace to standard output.
    Read(Range),
    /// Write standard input to blocks of a namespace.
    Write(Range),
    /// Measure a namespace.
    Bench(Bench),
    /// Serve a namespace to NBD clients (nbdcopy, qemu-img, fio, nbd-client) until interrupted.
    ///
    /// Neither end needs privileges or a kernel module: qemu-img convert disk.qcow2 nbd+unix:///?socket=PATH
    Export(Export),
    /// The same in the background: prints where NBD clients find it.
    Connect(Connect),
    /// Show what is connected.
    List,
    /// End what was connected.
    Disconnect {
        /// Its name.
        #[arg(default_value = "disk")]
        name: Name,
    },
}

/// Where, and as whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The target: an address or a name, and a port.
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// Over what: `tcp` or `rdma`.
    #[arg(long, value_name = "NAME", default_value_t)]
    transport: Transport,
    /// Over RDMA, use this system's own libibverbs and librdmacm, for adapters made of hardware.
    #[arg(long)]
    system_verbs: bool,
    /// The subsystem.
    #[arg(long, value_name = "NQN", default_value = NQN)]
    subsystem: Nqn,
    /// This host's name.
    #[arg(long, value_name = "NQN", default_value = HOST)]
    host: Nqn,
    /// Protect headers and data with digests.
    #[arg(long)]
    digests: bool,
    /// TCP's congestion control, or `system` for the system's own.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Who it proves to be.
    #[command(flatten)]
    proofs: Proofs,
    /// How the key is named: 1, or 0 for targets that know nothing newer.
    #[arg(long, value_name = "VERSION", default_value = "1", value_parser = ["0", "1"])]
    tls_identity: String,
}

/// Which blocks.
#[derive(Debug, clap::Args)]
pub(crate) struct Range {
    /// Where.
    #[command(flatten)]
    target: Target,
    /// The namespace.
    #[arg(long, default_value_t = 1)]
    namespace: u32,
    /// The first block.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// How many; to the end otherwise. Writing ends with its input.
    #[arg(long)]
    blocks: Option<u64>,
}

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// Where.
    #[command(flatten)]
    target: Target,
    /// The namespace.
    #[arg(long, default_value_t = 1)]
    namespace: u32,
    /// Also measure writes, which destroys what is in the namespace.
    #[arg(long)]
    destroy: bool,
    /// What to measure: randread, randwrite, read or write, the size of a command, and how many at once,
    /// on how many queues of one thread (randread:4k:32x16) or of a thread each (randread:4k:32t16). May be
    /// repeated.
    #[arg(long, value_name = "JOB")]
    job: Vec<Spec>,
    /// Write the whole namespace before: reading what was never written is faster than reading.
    #[arg(long, requires = "destroy")]
    fill: bool,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds before each.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    warm_up: f64,
    /// The target's process, where it is on this host: its processor time is measured as well.
    #[arg(long, value_name = "PID")]
    target_process: Option<u32>,
    /// Sleep while waiting, instead of polling.
    #[arg(long)]
    block: bool,
    /// Print JSON, one document per measurement.
    #[arg(long)]
    json: bool,
}

impl Nvme {
    /// Whom this process talks to itself.
    fn target(&self) -> Option<&Target> {
        match self {
            Self::Discover(target) | Self::IdCtrl(target) => Some(target),
            Self::Read(range) | Self::Write(range) => Some(&range.target),
            Self::Bench(bench) => Some(&bench.target),
            Self::Export(export) => Some(&export.remote.target),
            Self::Connect(_) | Self::List | Self::Disconnect { .. } => None,
        }
    }
}

impl Target {
    fn address(&self) -> Result<SocketAddr, Error> {
        let found = self.address.to_socket_addrs().ok().and_then(|mut all| all.next());
        found.ok_or_else(|| Error::NoSuchHost(self.address.clone()))
    }

    fn options(&self) -> Options {
        Options {
            transport: self.transport,
            host: self.host.clone(),
            host_id: self.host.to_host_id(),
            digests: Digests { header: self.digests, data: self.digests },
            congestion: Some(self.congestion.clone()).filter(|name| name != "system"),
            secrets: self.proofs.secrets(),
            tls: self.proofs.tls_key().map(|key| Tls { key, version: self.version() }),
        }
    }

    fn version(&self) -> Version {
        if self.tls_identity == "0" { Version::Names } else { Version::Digest }
    }

    pub(crate) fn place(&self) -> &str {
        &self.address
    }

    pub(crate) fn subsystem(&self) -> &Nqn {
        &self.subsystem
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// The same on a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![self.address.clone()];
        for (option, value) in [
            ("--transport", self.transport.to_string()),
            ("--subsystem", self.subsystem.to_string()),
            ("--host", self.host.to_string()),
            ("--congestion", self.congestion.clone()),
            ("--tls-identity", self.tls_identity.clone()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        words.extend(self.proofs.words());
        let flags = [("--digests", self.digests), ("--system-verbs", self.system_verbs)];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| (*flag).to_owned()));
        words
    }

    pub(crate) fn connect(&self) -> Result<Client, Error> {
        Ok(Client::connect(self.address()?, &self.subsystem, &self.options())?)
    }
}

/// Prints a line. Who reads it may have gone, which is no reason to panic.
fn say(line: std::fmt::Arguments<'_>) -> Result<(), Error> {
    writeln!(std::io::stdout().lock(), "{line}").map_err(Error::file("standard output"))
}

/// Does what was asked.
pub(crate) fn act(what: Nvme) -> Result<(), Error> {
    if what.target().is_some_and(|it| it.transport == Transport::Rdma && !it.system_verbs) {
        return crate::run::over_our_devices();
    }
    match what {
        Nvme::Discover(target) => show_discovered(&target),
        Nvme::IdCtrl(target) => show_controller(&target),
        Nvme::Read(range) => read(&range),
        Nvme::Write(range) => write(&range),
        Nvme::Bench(what) => measure(&what),
        Nvme::Export(what) => export::export(what),
        Nvme::Connect(what) => export::connect(&what),
        Nvme::List => export::list(),
        Nvme::Disconnect { name } => export::disconnect(&name),
    }
}

fn show_discovered(target: &Target) -> Result<(), Error> {
    for found in discover(target.address()?, &target.options())? {
        say(format_args!(
            "{:8} {:4} {} {} {}{}",
            found.kind,
            found.transport,
            found.address,
            found.service,
            found.subsystem,
            if found.tls { " tls" } else { "" }
        ))?;
    }
    Ok(())
}

fn show_controller(target: &Target) -> Result<(), Error> {
    let mut client = target.connect()?;
    let it = client.controller().identified;
    let of = |field: &[u8]| text::of(field).unwrap_or_default().to_owned();
    say(format_args!("subsystem   {}", of(&it.subsystem)))?;
    say(format_args!("model       {} ({}), firmware {}", of(&it.model), of(&it.serial), of(&it.firmware)))?;
    say(format_args!(
        "controller  {}, version {}.{}",
        it.controller_id,
        it.version >> 16,
        it.version >> 8 & 0xff
    ))?;
    say(format_args!("transfers   up to {} KiB", client.controller().transfer_max >> 10))?;
    for namespace in client.namespaces()? {
        let size = ::nvme::serve::Bytes(namespace.blocks * namespace.block_size as u64);
        say(format_args!(
            "namespace   {}: {} blocks of {} bytes, {size}",
            namespace.nsid, namespace.blocks, namespace.block_size
        ))?;
    }
    Ok(())
}

fn read(range: &Range) -> Result<(), Error> {
    let mut client = range.target.connect()?;
    let namespace = client.namespace(range.namespace)?;
    let mut queue = client.queues(1, DEPTH)?.remove(0);
    let most = (client.controller().transfer_max / namespace.block_size) as u64;
    let end = range.blocks.map_or(namespace.blocks, |blocks| range.start.saturating_add(blocks));
    let (mut start, mut out) = (range.start, std::io::stdout().lock());
    while start < end {
        let count = most.min(end - start) as u32;
        let length = count as usize * namespace.block_size;
        let payload = Payload::In(queue.buffer(length)?, length);
        let done = queue.call("Read", transfer(Io::Read, namespace.nsid, start, count), payload)?;
        let data = done.buffer.as_deref().and_then(|bytes| bytes.get(..length)).unwrap_or_default();
        out.write_all(data).map_err(Error::file("standard output"))?;
        start += u64::from(count);
    }
    Ok(())
}

fn write(range: &Range) -> Result<(), Error> {
    let mut client = range.target.connect()?;
    let namespace = client.namespace(range.namespace)?;
    let mut queue = client.queues(1, DEPTH)?.remove(0);
    let most = client.controller().transfer_max / namespace.block_size * namespace.block_size;
    let (mut start, mut input) = (range.start, std::io::stdin().lock());
    loop {
        let mut buffer = queue.buffer(most)?;
        let mut length = 0;
        while length < most {
            match input.read(&mut buffer[length..most]).map_err(Error::file("standard input"))? {
                0 => break,
                bytes => length += bytes,
            }
        }
        if length == 0 {
            break;
        }
        // The last block is filled up with zeros.
        let count = length.div_ceil(namespace.block_size) as u32;
        let payload = Payload::Out(buffer, count as usize * namespace.block_size);
        queue.call("Write", transfer(Io::Write, namespace.nsid, start, count), payload)?;
        start += u64::from(count);
    }
    queue.call("Flush", transfer(Io::Flush, namespace.nsid, 0, 1), Payload::None)?;
    Ok(())
}

/// Latency over depth, then depth, then bandwidth.
const JOBS: &[&str] = &[
    "randread:4k:1",
    "randread:4k:4",
    "randread:4k:16",
    "randread:4k:128",
    "randwrite:4k:1",
    "randwrite:4k:128",
    "read:128k:32",
    "write:128k:32",
    "read:1m:8",
    "write:1m:8",
];

fn measure(what: &Bench) -> Result<(), Error> {
    let mut client = what.target.connect()?;
    let namespace = client.namespace(what.namespace)?;
    let all: Vec<Spec> = JOBS.iter().filter_map(|text| text.parse().ok()).collect();
    let jobs = if what.job.is_empty() { &all } else { &what.job };
    let most = |of: fn(&Spec) -> u16| jobs.iter().map(of).max().unwrap_or(1);
    let mut queues = client.queues(most(|job| job.queues), most(|job| job.depth))?;
    if what.fill {
        fill(&mut queues[0], &namespace, client.controller().transfer_max)?;
    }
    if !what.json {
        say(format_args!(
            "                     per second       MB/s   mean us    p50    p99  p99.9      max  processor"
        ))?;
    }
    for spec in jobs.iter().filter(|job| what.destroy || !job.write) {
        let job = Job {
            warm_up: Duration::from_secs_f64(what.warm_up),
            time: Duration::from_secs_f64(what.seconds),
            block: what.block,
            target: what.target_process,
            ..spec.job()
        };
        let queues = &mut queues[..usize::from(spec.queues)];
        let figures = match spec.threads {
            true => bench_threads(queues, &namespace, &job)?,
            false => bench(queues, &namespace, &job)?,
        };
        // The admin queue has been silent meanwhile.
        client.keep_alive()?;
        if what.json {
            say(format_args!("{}", Measured::new(spec, &figures).to_json()))?;
        } else {
            print(spec, &figures)?;
        }
    }
    Ok(())
}

fn print(spec: &Spec, figures: &Figures) -> Result<(), Error> {
    let us = |ns: u64| ns as f64 / 1000.0;
    let latency = &figures.latency;
    let [p50, p99, p999] = [500, 990, 999].map(|it| us(latency.per_mille_ns(it)));
    say(format_args!(
        "{:20} {:10.0} {:10.0} {:9.1} {p50:6.1} {p99:6.1} {p999:6.1} {:8.1} {:9.0}%",
        spec.to_string(),
        figures.per_second,
        figures.bytes_per_second / 1e6,
        us(latency.mean_ns()),
        us(latency.max_ns()),
        figures.processor * 100.0
    ))
}
