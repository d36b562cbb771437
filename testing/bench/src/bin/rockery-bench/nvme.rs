//! `rockery bench nvme`: the measurements, their transports and repeats.

use std::time::Duration;

use ::bench::Machine;
use ::nvme::host::{bench_local, bench_local_threads, fill_local};
use ::nvme::store::{Memory, Store};
use command::bench::{BenchNvme, Part, Transport};

use super::matrix::{JOBS, MATRIX, in_one_thread, sequential};
use super::place::Place;
use super::repeats::{self, unique};
use super::report::{Report, Series};
use crate::{Error, Programs, output};
use ::nvme::host::job::{Measured, Spec};

/// The jobs of the chosen parts.
fn jobs(what: &BenchNvme) -> Vec<String> {
    let mut jobs = Vec::new();
    for part in &what.part {
        match part {
            Part::Latency => jobs.extend([1, 4, 16].map(|depth| format!("randread:4k:{depth}"))),
            Part::Throughput => {
                let queues = JOBS
                    .iter()
                    .filter(|count| !what.repeats.quick || [1, 8].contains(*count));
                jobs.extend(
                    queues.flat_map(|count| ["read", "write"].map(|what| sequential(what, *count))),
                );
            }
            Part::Stability => jobs.push("randread:4k:128".to_owned()),
            Part::Matrix => jobs.extend(MATRIX.iter().flat_map(|(_, how, many)| {
                ["read", "write"].map(|what| format!("{how}{what}:{many}"))
            })),
        }
    }
    if what.one_thread {
        jobs.iter_mut().for_each(|job| *job = in_one_thread(job));
    }
    unique(jobs)
}

/// Measures, shows and writes.
///
/// # Errors
/// When target or host do not start, or a file cannot be written.
pub(super) fn act(what: &BenchNvme, programs: &Programs) -> Result<(), Error> {
    let jobs = jobs(what);
    let rockery = programs.rockery()?;
    let mut remarks = Vec::new();
    let runs = repeats::measure(
        &what.repeats,
        &what.transport,
        |it| it.name(),
        |transport| match transport {
            Transport::Local => local(what, &jobs),
            transport => {
                let disk = ["--memory".to_owned(), what.size.to_string()];
                let place = Place::new(*transport, &rockery, &disk, what.poll)?;
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
    let report = Report {
        machine: Machine::this(),
        warm_up,
        seconds,
        repeats: what.repeats.count(),
        one_thread: what.one_thread,
        remarks,
        series: series.collect(),
    };
    output::write(&what.output, &report)
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
