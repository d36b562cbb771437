//! `rockery bench nvme`: the measurements, their transports and repeats.

use std::time::Duration;

use ::bench::Machine;
use ::nvme::host::{bench_local, bench_local_threads, fill_local};
use ::nvme::serve::Bytes;
use ::nvme::store::{Memory, Store};

use super::matrix::{JOBS, MATRIX, in_one_thread, sequential};
use super::output::Output;
use super::place::{Place, Transport};
use super::repeats::{Repeats, unique};
use super::report::{Report, Series};
use crate::Error;
use ::nvme::host::job::{Measured, Spec};

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

/// The options of `rockery bench nvme`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchNvme {
    /// Transports to measure, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "local,rdma,rdma-udp,tcp")]
    transport: Vec<Transport>,
    /// Parts of the comparison, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "latency,throughput,stability,matrix")]
    part: Vec<Part>,
    /// Size of the disk in memory, with a unit.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    size: Bytes,
    #[command(flatten)]
    repeats: Repeats,
    /// How long the target polls idle connections before it sleeps, in microseconds.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 1000)]
    poll: u64,
    /// Let one thread work all queues, instead of a thread per job. With fewer processors than jobs this
    /// measures the transport more than the scheduler.
    #[arg(long)]
    one_thread: bool,
    #[command(flatten)]
    output: Output,
}

impl BenchNvme {
    fn jobs(&self) -> Vec<String> {
        let mut jobs = Vec::new();
        for part in &self.part {
            match part {
                Part::Latency => {
                    jobs.extend([1, 4, 16].map(|depth| format!("randread:4k:{depth}")))
                }
                Part::Throughput => {
                    let queues = JOBS
                        .iter()
                        .filter(|count| !self.repeats.quick || [1, 8].contains(*count));
                    jobs.extend(
                        queues.flat_map(|count| {
                            ["read", "write"].map(|what| sequential(what, *count))
                        }),
                    );
                }
                Part::Stability => jobs.push("randread:4k:128".to_owned()),
                Part::Matrix => jobs.extend(MATRIX.iter().flat_map(|(_, how, many)| {
                    ["read", "write"].map(|what| format!("{how}{what}:{many}"))
                })),
            }
        }
        if self.one_thread {
            jobs.iter_mut().for_each(|job| *job = in_one_thread(job));
        }
        unique(jobs)
    }
}

/// Measures, shows and writes.
///
/// # Errors
/// When target or host do not start, or a file cannot be written.
pub(super) fn act(what: &BenchNvme) -> Result<(), Error> {
    let jobs = what.jobs();
    let mut remarks = Vec::new();
    let runs = what.repeats.measure(
        &what.transport,
        |it| it.name(),
        |transport| match transport {
            Transport::Local => local(what, &jobs),
            transport => {
                let disk = ["--memory".to_owned(), what.size.to_string()];
                let place = Place::new(*transport, &disk, what.poll)?;
                remarks.extend(place.remark().filter(|remark| !remarks.contains(remark)));
                place.measure(&jobs, what.repeats.times())
            }
        },
    )?;
    let (warm_up, seconds) = what.repeats.times();
    let series = what
        .transport
        .iter()
        .zip(&runs)
        .map(|(transport, runs)| Series::new(*transport, runs));
    what.output.write(&Report {
        machine: Machine::this(),
        warm_up,
        seconds,
        repeats: what.repeats.count(),
        one_thread: what.one_thread,
        remarks,
        series: series.collect(),
    })
}

/// The same store, without a network.
fn local(what: &BenchNvme, jobs: &[String]) -> Result<Vec<Measured>, Error> {
    let cannot = |source| Error::File {
        path: "memory".into(),
        source,
    };
    let store = Store::Memory(Memory::new(what.size.0).map_err(cannot)?);
    fill_local(&store, what.size.0).map_err(cannot)?;
    let (warm_up, seconds) = what.repeats.times();
    let measure = |job: &String| {
        let spec: Spec = job.parse().map_err(|_| Error::NothingMeasured("local"))?;
        let (warm_up, time) = (
            Duration::from_secs_f64(warm_up),
            Duration::from_secs_f64(seconds),
        );
        let job = ::nvme::host::Job {
            warm_up,
            time,
            ..spec.job()
        };
        let figures = match spec.threads {
            true => bench_local_threads(&store, what.size.0, &job, spec.queues),
            false => bench_local(&store, what.size.0, &job),
        };
        let figures = figures.map_err(cannot)?;
        Ok(Measured::new(&spec, &figures))
    };
    jobs.iter().map(measure).collect()
}
