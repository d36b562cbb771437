//! `rockery bench nvme`: which measurements, where, how often.

use std::path::PathBuf;
use std::time::Duration;

use ::nvme::host::{bench_local, bench_local_threads, fill_local};
use ::nvme::serve::Bytes;
use ::nvme::store::{Memory, Store};
use indicatif::ProgressBar;

use super::job::{Measured, Spec};
use super::place::{Place, Transport};
use super::report::{Machine, Report, Series};
use super::{page, report};
use crate::Error;

/// Jobs of the sequential measurement: each is a thread with a queue.
pub(super) const JOBS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The matrix of CrystalDiskMark: how, bytes, commands at once and threads.
pub(super) const MATRIX: [(&str, &str, &str); 6] = [
    ("SEQ1M Q8T1", "", "1m:8"),
    ("SEQ1M Q1T1", "", "1m:1"),
    ("SEQ128K Q32T1", "", "128k:32"),
    ("RND4K Q32T16", "rand", "4k:32t16"),
    ("RND4K Q32T1", "rand", "4k:32"),
    ("RND4K Q1T1", "rand", "4k:1"),
];

/// A part of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Part {
    /// 4 KiB random reads, 1, 4 and 16 at once.
    Latency,
    /// 1 MiB sequential, by 1 to 64 jobs.
    Throughput,
    /// 4 KiB random reads, 128 at once, and how steady they are.
    Stability,
    /// The matrix of CrystalDiskMark.
    Matrix,
}

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Nvme {
    /// Over which transports.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "local,rdma,rdma-udp,tcp")]
    transport: Vec<Transport>,
    /// Which parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "latency,throughput,stability,matrix")]
    part: Vec<Part>,
    /// Bytes of the disk in memory.
    #[arg(long, default_value = "256MiB")]
    size: Bytes,
    /// Seconds of each measurement. The published test has 60.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Seconds before each.
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// How often each is made; medians are shown, with the lowest and the highest.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// How long the target looks at idle connections before it sleeps.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 1000)]
    poll: u64,
    /// One thread works all queues, where jobs are threads of their own otherwise. With fewer processors than
    /// jobs, that measures transports more than the scheduler.
    #[arg(long)]
    one_thread: bool,
    /// A few seconds in all: to see that it works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Write everything as JSON; `-` is standard output, in place of the tables.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write a page with plots, which opens offline.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Nvme {
    fn jobs(&self) -> Vec<String> {
        let mut jobs = Vec::new();
        for part in &self.part {
            match part {
                Part::Latency => jobs.extend([1, 4, 16].map(|depth| format!("randread:4k:{depth}"))),
                Part::Throughput => {
                    let queues = JOBS.iter().filter(|count| !self.quick || [1, 8].contains(*count));
                    jobs.extend(
                        queues.flat_map(|count| ["read", "write"].map(|what| sequential(what, *count))),
                    );
                }
                Part::Stability => jobs.push("randread:4k:128".to_owned()),
                Part::Matrix => {
                    jobs.extend(MATRIX.iter().flat_map(|(_, how, many)| {
                        ["read", "write"].map(|what| format!("{how}{what}:{many}"))
                    }))
                }
            }
        }
        if self.one_thread {
            jobs.iter_mut().for_each(|job| *job = in_one_thread(job));
        }
        // Parts overlap; what is measured once is not measured twice.
        let mut unique: Vec<String> = Vec::new();
        for job in jobs {
            if !unique.contains(&job) {
                unique.push(job);
            }
        }
        unique
    }

    /// Seconds before, and of, a measurement.
    fn time(&self) -> (f64, f64) {
        if self.quick { (0.02, 0.08) } else { (self.warm_up, self.seconds) }
    }
}

/// 1 MiB sequential by so many jobs, one command at once of each.
pub(super) fn sequential(what: &str, jobs: u16) -> String {
    if jobs == 1 { format!("{what}:1m:1") } else { format!("{what}:1m:1t{jobs}") }
}

/// The same job without threads of its own.
pub(super) fn in_one_thread(job: &str) -> String {
    let (kind, many) = job.rsplit_once(':').unwrap_or(("", job));
    format!("{kind}:{}", many.replace('t', "x"))
}

/// Measures, shows and writes.
///
/// # Errors
/// When target or host do not start, or a file cannot be written.
pub(super) fn act(what: &Nvme) -> Result<(), Error> {
    let jobs = what.jobs();
    let repeats = if what.quick { 1 } else { what.repeats };
    let progress = ProgressBar::new(u64::from(repeats) * what.transport.len() as u64);
    let mut runs: Vec<Vec<Vec<Measured>>> = vec![Vec::new(); what.transport.len()];
    let mut remarks = Vec::new();
    // Round by round: what changes on the machine meanwhile changes it for all transports.
    for _ in 0..repeats {
        for (transport, runs) in what.transport.iter().zip(&mut runs) {
            progress.set_message(transport.name());
            let found = match transport {
                Transport::Local => local(what, &jobs)?,
                transport => {
                    let disk = ["--memory".to_owned(), what.size.to_string()];
                    let place = Place::new(*transport, &disk, what.poll)?;
                    let remark = place.remark().filter(|remark| !remarks.contains(remark));
                    remarks.extend(remark);
                    place.measure(&jobs, what.time())?
                }
            };
            runs.push(found);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let (warm_up, seconds) = what.time();
    let series = what.transport.iter().zip(&runs).map(|(transport, runs)| Series::new(*transport, runs));
    let report = Report {
        machine: Machine::this(),
        warm_up,
        seconds,
        repeats,
        one_thread: what.one_thread,
        remarks,
        series: series.collect(),
    };
    if let Some(path) = &what.html {
        std::fs::write(path, page::page(&report)).map_err(Error::file(path))?;
    }
    let is_json_shown = what.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    match &what.json {
        Some(path) if !is_json_shown => {
            std::fs::write(path, report.to_json()).map_err(Error::file(path))?;
        }
        _ => {}
    }
    let text = if is_json_shown { report.to_json() } else { report::table(&report) };
    use std::io::Write as _;
    writeln!(std::io::stdout().lock(), "{text}").map_err(Error::file("standard output"))
}

/// The same store, without a network.
fn local(what: &Nvme, jobs: &[String]) -> Result<Vec<Measured>, Error> {
    let cannot = |source| Error::File { path: PathBuf::from("memory"), source };
    let store = Store::Memory(Memory::new(what.size.0).map_err(cannot)?);
    fill_local(&store, what.size.0).map_err(cannot)?;
    let (warm_up, seconds) = what.time();
    let measure = |job: &String| {
        let spec: Spec = job.parse().map_err(|_| Error::NothingMeasured("local"))?;
        let (warm_up, time) = (Duration::from_secs_f64(warm_up), Duration::from_secs_f64(seconds));
        let job = ::nvme::host::Job { warm_up, time, ..spec.job() };
        let figures = match spec.threads {
            true => bench_local_threads(&store, what.size.0, &job, spec.queues),
            false => bench_local(&store, what.size.0, &job),
        };
        let figures = figures.map_err(cannot)?;
        Ok(Measured::new(&spec, &figures))
    };
    jobs.iter().map(measure).collect()
}
