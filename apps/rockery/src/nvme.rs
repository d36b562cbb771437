//! `rockery nvme`: an NVMe-oF host over TCP and RDMA.

use std::io::Read;
use std::time::Duration;

use ::nvme::host::{
    Client, Controller, Figures, HostError, Job, Namespace, Payload, Queue, bench, bench_threads,
    discover, fill, transfer,
};
use buffer::Buffer;
use clap::Subcommand;
use wire::nvme::{Io, Status, text};

use crate::Error;
use crate::ending::Orderly;
use crate::export::{self, Connect, Export, Name};
use crate::gen_key::{self, GenKey};
use crate::output;
use crate::printable::Printable;
use crate::sys::EndSignals;
use crate::target::Target;
use ::nvme::host::job::{Measured, Spec};

/// Queue depth of `read` and `write`.
const DEPTH: u16 = 8;

/// The commands of an NVMe-oF host.
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// List the subsystems of a discovery service.
    Discover(Target),
    /// Print what a controller is (Identify Controller), and its namespaces.
    IdCtrl(Target),
    /// Write blocks of a namespace to standard output.
    Read(Range),
    /// Write standard input to blocks of a namespace.
    ///
    /// If the input ends within a block, the rest of this block keeps its content, as on a block device: the
    /// block is read first.
    Write(Range),
    /// Measure latency and throughput of a namespace.
    Bench(BenchArgs),
    /// Export a namespace to NBD clients (nbdcopy, qemu-img, fio, nbd-client) until interrupted.
    ///
    /// Neither end needs privileges or a kernel module: qemu-img convert disk.qcow2 nbd+unix:///?socket=PATH
    Export(Export),
    /// Export a namespace in the background, and print the NBD URI of the export.
    Connect(Connect),
    /// List the exports that `connect` started.
    List,
    /// Print a new secret for DH-HMAC-CHAP, or a new pre-shared key for TLS.
    GenKey(GenKey),
    /// End an export that `connect` started.
    Disconnect {
        /// Name of the export: the --name of `connect`.
        #[arg(default_value = "disk")]
        name: Name,
    },
}

/// A range of logical blocks of a namespace.
#[derive(Debug, clap::Args)]
pub(crate) struct Range {
    /// The target, and how to connect to it.
    #[command(flatten)]
    target: Target,
    /// ID of the namespace, from 1.
    #[arg(long, default_value_t = 1)]
    namespace: u32,
    /// First logical block, from 0.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Number of logical blocks to read; to the end of the namespace if not given. `write` ends with its
    /// input.
    #[arg(long)]
    blocks: Option<u64>,
}

/// The options of `rockery nvme bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// The target, and how to connect to it.
    #[command(flatten)]
    target: Target,
    /// ID of the namespace, from 1.
    #[arg(long, default_value_t = 1)]
    namespace: u32,
    /// Measure writes as well, which destroys the content of the namespace. A --job that writes needs it.
    #[arg(long)]
    destroy: bool,
    /// Job: randread, randwrite, read or write; bytes of a command; queue depth; then the number of queues,
    /// worked by one thread (randread:4k:32x16) or by a thread each (randread:4k:32t16). May be repeated.
    #[arg(long, value_name = "JOB")]
    job: Vec<Spec>,
    /// Write the whole namespace first: blocks that were never written are read faster than others.
    #[arg(long, requires = "destroy")]
    fill: bool,
    /// Duration of each measurement in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    /// Duration of the load before each measurement in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    warm_up: f64,
    /// Rest after each measurement in seconds, without load, up to a day: drives and processors cool down.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = ::command::bench::rest)]
    rest: Duration,
    /// Process ID of the target, if it runs on this host: its processor time is measured as well.
    #[arg(long, value_name = "PID")]
    target_process: Option<u32>,
    /// Sleep until completions arrive, instead of polling.
    #[arg(long)]
    block: bool,
    /// Print JSON, one document per measurement.
    #[arg(long)]
    json: bool,
}

impl HostCommand {
    /// The target to which this process itself connects.
    fn target(&self) -> Option<&Target> {
        match self {
            Self::Discover(target) | Self::IdCtrl(target) => Some(target),
            Self::Read(range) | Self::Write(range) => Some(&range.target),
            Self::Bench(bench) => Some(&bench.target),
            Self::Export(export) => Some(&export.remote.target),
            Self::Connect(_) | Self::List | Self::GenKey(_) | Self::Disconnect { .. } => None,
        }
    }
}

/// Runs a subcommand.
pub(crate) fn act(what: HostCommand) -> Result<(), Error> {
    if what.target().is_some_and(|it| it.is_over_our_devices()) {
        return crate::run::over_our_devices();
    }
    match what {
        HostCommand::Discover(target) => show_discovered(&target),
        HostCommand::IdCtrl(target) => show_controller(&target),
        HostCommand::Read(range) => read(&range),
        HostCommand::Write(range) => write(&range),
        HostCommand::Bench(what) => measure(&what),
        HostCommand::Export(what) => export::export(what),
        HostCommand::Connect(what) => export::connect(&what),
        HostCommand::List => export::list(),
        HostCommand::GenKey(what) => gen_key::print(&what),
        HostCommand::Disconnect { name } => export::disconnect(&name),
    }
}

fn show_discovered(target: &Target) -> Result<(), Error> {
    let listed = discover(target.address()?, &target.options());
    for found in listed.map_err(|source| target.unreachable(source))? {
        output::line(format_args!(
            "{:8} {:4} {} {} {}{}",
            found.kind,
            found.transport,
            Printable(&found.address),
            Printable(&found.service),
            Printable(&found.subsystem),
            if found.tls { " tls" } else { "" }
        ))?;
    }
    Ok(())
}

fn show_controller(target: &Target) -> Result<(), Error> {
    let mut client = target.connect()?;
    let it = client.controller().identified;
    let of = |field: &[u8]| Printable(text::text_of(field).unwrap_or_default()).to_string();
    output::line(format_args!("subsystem   {}", of(&it.subsystem)))?;
    output::line(format_args!(
        "model       {} ({}), firmware {}",
        of(&it.model),
        of(&it.serial),
        of(&it.firmware)
    ))?;
    output::line(format_args!(
        "controller  {}, version {}.{}",
        it.controller_id,
        it.version >> 16,
        it.version >> 8 & 0xff
    ))?;
    output::line(format_args!(
        "transfers   up to {} KiB",
        client.controller().transfer_max >> 10
    ))?;
    for nsid in client.namespace_ids()? {
        // A namespace of another command set or with another format does not hide the others.
        let namespace = match client.namespace(nsid) {
            Ok(namespace) => namespace,
            Err(HostError::Status { what, status }) => {
                output::line(format_args!("namespace   {nsid}: {what}: {status}"))?;
                continue;
            }
            Err(error) if error.is_of_namespace() => {
                output::line(format_args!("namespace   {nsid}: {error}"))?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let size = ::nvme::serve::Bytes(namespace.blocks * namespace.block_size as u64);
        output::line(format_args!(
            "namespace   {}: {} blocks of {} bytes, {size}",
            namespace.nsid, namespace.blocks, namespace.block_size
        ))?;
        let ::nvme::host::Identifiers { uuid, nguid } = client.identifiers(namespace.nsid)?;
        if let Some(uuid) = uuid {
            output::line(format_args!("            uuid {uuid}"))?;
        }
        if let Some(nguid) = nguid {
            output::line(format_args!("            nguid {nguid}"))?;
        }
    }
    Ok(())
}

/// Shuts down the controller, so that the target executes no command after this process has ended. A failure
/// matters where commands may be outstanding: after an error.
fn shut_down(client: &Client, result: Result<(), Error>) -> Result<(), Error> {
    if let Err(error) = client.shut_down()
        && result.is_err()
    {
        output::note!("rockery: the target may still execute commands of before: {error}");
    }
    result
}

fn read(range: &Range) -> Result<(), Error> {
    let mut client = range.target.connect()?;
    let read = read_with(range, &mut client);
    shut_down(&client, read)
}

fn read_with(range: &Range, client: &mut Client) -> Result<(), Error> {
    let namespace = client.namespace(range.namespace)?;
    let mut queue = client.queues(1, DEPTH)?.remove(0);
    let most = (client.controller().transfer_max / namespace.block_size) as u64;
    let end = range.blocks.map_or(namespace.blocks, |blocks| {
        range.start.saturating_add(blocks)
    });
    let mut start = range.start;
    while start < end {
        let count = most.min(end - start) as u32;
        let length = count as usize * namespace.block_size;
        let payload = Payload::In(queue.buffer(length)?, length);
        let done = queue.call(
            "Read",
            transfer(Io::Read, namespace.nsid, start, count),
            payload,
        )?;
        let data = done
            .buffer
            .as_deref()
            .and_then(|bytes| bytes.get(..length))
            .unwrap_or_default();
        output::bytes(data)?;
        start += u64::from(count);
    }
    Ok(())
}

/// Writes, and shuts down the controller in every case: no command reaches the disk after the process ends.
fn write(range: &Range) -> Result<(), Error> {
    let signals = EndSignals::block();
    let mut client = range.target.connect()?;
    let orderly = Orderly::begin(signals, &client)?;
    let written = write_with(range, &mut client, &orderly);
    shut_down(&client, written)
}

fn write_with(range: &Range, client: &mut Client, orderly: &Orderly) -> Result<(), Error> {
    let namespace = client.namespace(range.namespace)?;
    let mut queue = client.queues(1, DEPTH)?.remove(0);
    let most = client.controller().transfer_max / namespace.block_size * namespace.block_size;
    let (mut start, mut input) = (range.start, std::io::stdin().lock());
    loop {
        let mut buffer = queue.buffer(most)?;
        let mut length = 0;
        while length < most {
            match input
                .read(&mut buffer[length..most])
                .map_err(Error::file("standard input"))?
            {
                0 => break,
                bytes => length += bytes,
            }
        }
        if length == 0 {
            break;
        }
        let count = length.div_ceil(namespace.block_size);
        let rest = length % namespace.block_size;
        if rest != 0 {
            let last = start + count as u64 - 1;
            let before = orderly.command(|| read_block(&mut queue, &namespace, last))?;
            let end = count * namespace.block_size;
            buffer[length..end].copy_from_slice(&before[rest..namespace.block_size]);
        }
        let (payload, count) = (
            Payload::Out(buffer, count * namespace.block_size),
            count as u32,
        );
        let command = transfer(Io::Write, namespace.nsid, start, count);
        orderly.command(|| queue.call("Write", command, payload))?;
        start += u64::from(count);
    }
    let flush = transfer(Io::Flush, namespace.nsid, 0, 1);
    orderly.command(|| queue.call("Flush", flush, Payload::None))?;
    Ok(())
}

/// One block, of which a write replaces the beginning.
fn read_block(queue: &mut Queue, namespace: &Namespace, block: u64) -> Result<Buffer, Error> {
    let length = namespace.block_size;
    let payload = Payload::In(queue.buffer(length)?, length);
    let command = transfer(Io::Read, namespace.nsid, block, 1);
    let read = queue.call("Read", command, payload)?;
    Ok(read.buffer.ok_or(HostError::Buffer)?)
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

fn measure(what: &BenchArgs) -> Result<(), Error> {
    if let Some(job) = what.job.iter().find(|job| job.write && !what.destroy) {
        return Err(Error::NeedsDestroy(job.to_string()));
    }
    let signals = EndSignals::block();
    let mut client = what.target.connect()?;
    _ = Orderly::begin(signals, &client)?;
    let measured = measure_with(what, &mut client);
    shut_down(&client, measured)
}

fn measure_with(what: &BenchArgs, client: &mut Client) -> Result<(), Error> {
    let namespace = client.namespace(what.namespace)?;
    let all: Vec<Spec> = JOBS.iter().filter_map(|text| text.parse().ok()).collect();
    let jobs = if what.job.is_empty() { &all } else { &what.job };
    let jobs = within_limits(jobs, client.controller(), namespace.block_size);
    let most = |of: fn(&Spec) -> u16| jobs.iter().map(of).max().unwrap_or(1);
    let mut failures = Failures::default();
    let mut queues = client.queues(most(|job| job.queues), most(|job| job.depth))?;
    if what.fill {
        output::stage!("rockery: filling the namespace");
        fill(&mut queues[0], &namespace, client.controller().transfer_max)?;
    }
    if !what.json {
        output::line(format_args!(
            "                     per second       MB/s   mean us    p50    p99  p99.9      max  processor \
                 errors"
        ))?;
    }
    if what.job.is_empty() && !what.destroy {
        output::note!("rockery: writes are not measured: --destroy allows them");
    }
    let jobs = jobs.iter().filter(|job| what.destroy || !job.write);
    for (index, spec) in jobs.enumerate() {
        if index > 0 {
            std::thread::sleep(what.rest);
        }
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
        failures.count(&figures);
        if what.json {
            output::json(Measured::new(spec, &figures).to_json())?;
        } else {
            print(spec, &figures)?;
        }
    }
    failures.result()
}

/// The jobs within the limits of the target; changes are reported on standard error.
fn within_limits(jobs: &[Spec], controller: &Controller, block_size: usize) -> Vec<Spec> {
    let Controller {
        transfer_max,
        depth_max,
        ..
    } = *controller;
    let fitted = |job: &Spec| {
        let fitting = job.within(transfer_max, block_size, depth_max);
        if fitting != *job {
            output::note!(
                "{job} is measured as {fitting}: the target takes {} KiB a command (MDTS) and {depth_max} \
                 commands at once on a queue (MQES)",
                transfer_max >> 10
            );
        }
        fitting
    };
    jobs.iter().map(fitted).collect()
}

/// Commands that failed, in all measurements.
#[derive(Default)]
struct Failures {
    count: u64,
    first: Option<Status>,
}

impl Failures {
    fn count(&mut self, figures: &Figures) {
        self.count += figures.errors;
        self.first = self.first.or(figures.first_error);
    }

    fn result(self) -> Result<(), Error> {
        match self.first {
            None => Ok(()),
            Some(first) => Err(Error::CommandsFailed {
                count: self.count,
                first,
            }),
        }
    }
}

fn print(spec: &Spec, figures: &Figures) -> Result<(), Error> {
    let us = |ns: u64| ns as f64 / 1000.0;
    let latency = &figures.latency;
    let [p50, p99, p999] = [500, 990, 999].map(|it| us(latency.per_mille_ns(it)));
    output::line(format_args!(
        "{:20} {:10.0} {:10.0} {:9.1} {p50:6.1} {p99:6.1} {p999:6.1} {:8.1} {:9.0}% {:10}",
        spec.to_string(),
        figures.per_second,
        figures.bytes_per_second / 1e6,
        us(latency.mean_ns()),
        us(latency.max_ns()),
        figures.processor * 100.0,
        figures.errors
    ))?;
    match pause(figures) {
        Some(pause) => output::line(format_args!("{:20} {pause}", "")),
        None => Ok(()),
    }
}

/// Pauses from this length on are printed.
const PAUSE: Duration = Duration::from_millis(100);

/// A pause in which a thread of the host saw no command finish, and whether the machine was too busy for it.
fn pause(figures: &Figures) -> Option<String> {
    (figures.longest_pause >= PAUSE).then(|| {
        format!(
            "no command of one thread finished for {:.2} s; threads waited for a processor for {:.0} % \
             of the time",
            figures.longest_pause.as_secs_f64(),
            figures.processor_wait * 100.0
        )
    })
}
