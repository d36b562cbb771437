//! `rockery bench smb`: a share of Samba over each transport, beside published figures of SMB Direct.
//!
//! The client is one of our own, the same over every transport: SMB 3.0.2, as a guest, neither signed nor
//! encrypted. Reading order: [`message`], [`client`], [`load`], [`place`], [`report`]. In place of Samba,
//! [`memory`] may serve.

mod client;
mod direct;
mod load;
mod memory;
mod message;
mod page;
mod place;
pub(super) mod published;
mod report;
mod samba;
mod tcp;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::bench::Machine;
use ::nvme::host::job::Spec;
use command::bench::{BenchSmb, SmbPart, SmbTransport};

use super::matrix::MATRIX;
use super::repeats::{self, unique};
use crate::{Error, Programs, output};

use client::{Carrier, Client};
use load::{Figures, Load, Local, Target};
use place::{Commands, Place};
use report::{Report, Series};

/// The file on the share.
const FILE: &str = "rockery-bench.data";
/// Copies, one file at a time and four: each with eight transfers of 1 MiB under way.
const COPIES: [&str; 2] = ["1m:8", "1m:8t4"];

/// Connections, and the jobs that have eight transfers of 1 MiB under way over them: Windows opens two
/// connections for an adapter with RDMA by default (`ConnectionCountPerRdmaNetworkInterface`).
const CONNECTIONS: [(u16, &str); 4] = [(1, "1m:8"), (2, "1m:4t2"), (4, "1m:2t4"), (8, "1m:1t8")];

/// The jobs of the chosen parts.
fn jobs(what: &BenchSmb) -> Vec<String> {
    let mut jobs = Vec::new();
    for part in &what.part {
        let rows: Vec<String> = match part {
            SmbPart::Matrix => MATRIX
                .iter()
                .map(|(_, how, many)| format!("{how}?:{many}"))
                .collect(),
            SmbPart::Copy => COPIES.iter().map(|many| format!("?:{many}")).collect(),
            SmbPart::Connections => CONNECTIONS
                .iter()
                .map(|(_, many)| format!("?:{many}"))
                .collect(),
        };
        jobs.extend(
            rows.iter()
                .flat_map(|row| ["read", "write"].map(|what| row.replace('?', what))),
        );
    }
    unique(jobs)
}

/// How each job is measured.
fn load(what: &BenchSmb) -> Load {
    let times = what.repeats.times();
    Load {
        warm_up: Duration::from_secs_f64(times.warm_up),
        time: Duration::from_secs_f64(times.seconds),
        rest: Duration::from_secs_f64(times.rest),
        size: what.size.0,
        others: [what.gateway_process, what.samba_process],
    }
}

/// The options of the process that measures.
fn words(what: &BenchSmb) -> Vec<String> {
    let load = load(what);
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    [
        "--size",
        &what.size.0.to_string(),
        "--warm-up",
        &seconds(load.warm_up),
        "--rest",
        &seconds(load.rest),
        "--seconds",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([seconds(load.time)])
    .collect()
}

/// A folder that is removed at the end, if the benchmark made it; the shared file is removed anyway.
struct Shared {
    folder: PathBuf,
    is_own: bool,
}

impl Shared {
    fn new(what: &BenchSmb) -> Result<Self, Error> {
        let own = || std::env::temp_dir().join(format!("rockery-bench-smb-{}", std::process::id()));
        let folder = what.folder.clone().unwrap_or_else(own);
        let is_own = what.folder.is_none();
        if is_own {
            std::fs::create_dir(&folder).map_err(Error::file(&folder))?;
        }
        let folder = folder.canonicalize().map_err(Error::file(&folder))?;
        let shared = Self { folder, is_own };
        let path = shared.file();
        if path.exists() {
            return Err(Error::Exists(path));
        }
        let filled = Local::open(&path).and_then(|mut file| load::fill(&mut file, what.size.0));
        filled.map_err(Error::file(&path))?;
        Ok(shared)
    }

    fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        _ = std::fs::remove_file(self.file());
        if self.is_own {
            _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Measures, shows and writes.
///
/// # Errors
/// When Samba or a client do not start, or a file cannot be written.
pub(super) fn act(what: &BenchSmb, programs: &Programs) -> Result<(), Error> {
    if let Some(server) = what.measure {
        return measure(what, server);
    }
    if let Some(at) = what.serve {
        return memory::serve(at, what.size.0).map_err(Error::file(format!("SMB server {at}")));
    }
    let rockery = programs.rockery()?;
    let (jobs, shared) = (jobs(what), Shared::new(what)?);
    let mut remarks = Vec::new();
    let runs = repeats::measure(
        &what.repeats,
        &what.transport,
        |it| it.name(),
        |transport| match transport {
            SmbTransport::Local => local(what, &jobs, &shared.file()),
            transport => {
                let commands = Commands {
                    own: programs.own(),
                    rockery: &rockery,
                };
                let place = Place::new(*transport, commands, &shared.folder, what.size.0)?;
                remarks.extend(place.remark().filter(|remark| !remarks.contains(remark)));
                place.measure(&jobs, &words(what))
            }
        },
    )?;
    let series = what
        .transport
        .iter()
        .zip(&runs)
        .map(|(transport, runs)| Series::new(*transport, runs));
    let load = load(what);
    let report = Report {
        machine: Machine::this(),
        warm_up: load.warm_up.as_secs_f64(),
        seconds: load.time.as_secs_f64(),
        rest: load.rest.as_secs_f64(),
        repeats: what.repeats.count(),
        size: what.size.0,
        remarks,
        matrix_source: published::MATRIX_SOURCE,
        copies_source: published::COPIES_SOURCE,
        series: series.collect(),
    };
    output::write(&what.output, &report)
}

/// The same file, without a network.
fn local(what: &BenchSmb, jobs: &[String], file: &Path) -> Result<Vec<Figures>, Error> {
    let run = |(index, job): (usize, &String)| {
        let spec: Spec = job
            .parse()
            .map_err(|_| Error::NothingMeasured("local file"))?;
        load(what).rest_before(index);
        let open = || Ok(Box::new(Local::open(file)?) as Box<dyn Target>);
        load::run(&spec, &load(what), open).map_err(Error::file(file))
    };
    jobs.iter().enumerate().map(run).collect()
}

/// Measures in this process, and prints each result as a line of JSON.
fn measure(what: &BenchSmb, server: SocketAddr) -> Result<(), Error> {
    let cannot = || Error::file(format!("SMB server {server}"));
    for (index, spec) in what.job.iter().enumerate() {
        load(what).rest_before(index);
        let open = || {
            let carrier: Box<dyn Carrier> = match what.transport.iter().any(|it| it.is_direct()) {
                true => Box::new(direct::Direct::connect(server)?),
                false => Box::new(tcp::Tcp::connect(server)?),
            };
            let mut client = Client::open(carrier, &server.ip().to_string(), samba::SHARE, FILE)?;
            client.verify()?;
            if client.longest(spec.write) < spec.bytes {
                let most = client.longest(spec.write);
                return Err(io::Error::other(format!(
                    "the server takes no more than {most} bytes at once"
                )));
            }
            Ok(Box::new(client) as Box<dyn Target>)
        };
        let figures = load::run(spec, &load(what), open).map_err(cannot())?;
        let line = serde_json::to_string(&figures).unwrap_or_default();
        output::line(line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        what: BenchSmb,
    }

    #[test]
    fn jobs_are_rows_of_the_matrix_and_copies_once_each() {
        let jobs = jobs(&Line::parse_from(["bench"]).what);
        // The first job of connections is that of one copy, and of the matrix.
        assert_eq!(jobs.len(), 6 * 2 + 2 + 3 * 2);
        assert!(jobs.iter().all(|job| {
            job.parse::<Spec>()
                .is_ok_and(|spec| spec.to_string() == *job)
        }));
        assert!(
            jobs.contains(&"randwrite:4k:32t16".to_owned())
                && jobs.contains(&"read:1m:8t4".to_owned())
        );
    }
}
