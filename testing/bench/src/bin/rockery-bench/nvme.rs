//! `rockery bench nvme`: the measurements, their transports and repeats.

use std::time::Duration;

use ::bench::Machine;
use ::nvme::host::{bench_local, bench_local_threads, fill_local};
use ::nvme::store::{FileStore, Memory, Store};
use command::bench::{BenchNvme, Part, Times, Transport};

use super::disk_file::DiskFile;
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
    let disk = Disk::new(what)?;
    let mut remarks = Vec::new();
    let runs = repeats::measure(
        &what.repeats,
        &what.transport,
        |it| it.name(),
        |transport| match transport {
            Transport::Local => local(what, &jobs, &disk),
            transport => {
                let place = Place::new(*transport, &rockery, &disk.served(), what.poll)?;
                remarks.extend(place.remark().filter(|remark| !remarks.contains(remark)));
                place.measure(&jobs, what.repeats.times())
            }
        },
    )?;
    remarks.push(memory_bandwidth());
    let Times {
        warm_up,
        seconds,
        rest,
    } = what.repeats.times();
    let series = what
        .transport
        .iter()
        .zip(&runs)
        .map(|(transport, runs)| Series::new(*transport, runs));
    let report = Report {
        machine: Machine::this(),
        warm_up,
        seconds,
        rest,
        disk: disk.in_words(),
        repeats: what.repeats.count(),
        one_thread: what.one_thread,
        remarks,
        series: series.collect(),
    };
    output::write(&what.output, &report)
}

/// The disk that is served: memory of the target, or a file.
struct Disk {
    size: u64,
    file: Option<DiskFile>,
    is_cached: bool,
}

/// Bytes of a logical block: the default of `rockery serve nvme`.
const BLOCK_BYTES: usize = 4096;

impl Disk {
    fn new(what: &BenchNvme) -> Result<Self, Error> {
        let file = what.disk.as_deref();
        Ok(Self {
            size: what.size.0,
            file: file
                .map(|folder| DiskFile::new(folder, what.size.0))
                .transpose()?,
            is_cached: what.cached,
        })
    }

    /// The arguments of `rockery serve nvme`.
    fn served(&self) -> Vec<String> {
        let Some(file) = &self.file else {
            return vec!["--memory".to_owned(), self.size.to_string()];
        };
        let cached = self.is_cached.then(|| "--cached".to_owned());
        let path = file.path().display().to_string();
        std::iter::once(path).chain(cached).collect()
    }

    /// The same for use without a target.
    fn store(&self) -> std::io::Result<Store> {
        let Some(file) = &self.file else {
            return Ok(Store::Memory(Memory::new(self.size)?));
        };
        let file = FileStore::open(file.path(), BLOCK_BYTES, false, !self.is_cached)?;
        Ok(Store::File(file.into()))
    }

    fn in_words(&self) -> String {
        let mib = self.size >> 20;
        match (&self.file, self.is_cached) {
            (None, _) => format!("memory disk of {mib} MiB"),
            (Some(_), true) => format!("a file of {mib} MiB through the page cache"),
            (Some(_), false) => {
                format!("a file of {mib} MiB past the page cache, where the file system can")
            }
        }
    }
}

/// Why there is no column of memory bandwidth, and what would read it: a sentence without its full stop.
fn memory_bandwidth() -> String {
    const COUNTERS: &str = "/sys/bus/event_source/devices";
    let names = std::fs::read_dir(COUNTERS).map(|all| {
        let names = all
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.starts_with("uncore_imc") || name.starts_with("amd_umc"))
            .collect::<Vec<_>>()
    });
    match names.unwrap_or_default().first() {
        None => "Memory bandwidth is not measured: this machine shows no counters of its memory controllers \
                 (uncore_imc of Intel, amd_umc of AMD), as virtual machines do not"
            .to_owned(),
        Some(name) => format!(
            "Memory bandwidth is not measured: perf stat -a on the events of {name} shows it beside a run"
        ),
    }
}

/// The same store, without a network.
fn local(what: &BenchNvme, jobs: &[String], disk: &Disk) -> Result<Vec<Measured>, Error> {
    let cannot = |source| Error::File {
        path: disk
            .file
            .as_ref()
            .map_or_else(|| "memory".into(), |file| file.path().to_owned()),
        source,
    };
    let store = disk.store().map_err(cannot)?;
    fill_local(&store, what.size.0).map_err(cannot)?;
    let Times {
        warm_up,
        seconds,
        rest,
    } = what.repeats.times();
    let measure = |(index, job): (usize, &String)| {
        if index > 0 {
            std::thread::sleep(Duration::from_secs_f64(rest));
        }
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
    jobs.iter().enumerate().map(measure).collect()
}
