//! `rockery import`: files of other simulators and of training jobs as fabric files.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ::sim::input;
use fabric_file::{Document, Network};
use imports::{
    Imported, Input, RANKS_PER_SERVER_MAX, Servers, chakra, goal, hpcc, htsim, nccl, simai,
};
use units::{Bandwidth, Quantity as _};

use crate::{Error, output};

/// The form of the files.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Import {
    /// A topology of HPCC's model for ns-3, with its flows and its configuration.
    Hpcc {
        /// What the configuration names as TOPOLOGY_FILE
        topology: PathBuf,
        /// What the configuration names as FLOW_FILE
        #[arg(long, value_name = "FILE")]
        flows: Option<PathBuf>,
        /// The configuration: congestion control, thresholds, buffers
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        to: Destination,
    },
    /// A topology of htsim, with a connection matrix.
    Htsim {
        /// The .topo file
        topology: PathBuf,
        /// The .cm file
        #[arg(long, value_name = "FILE")]
        matrix: Option<PathBuf>,
        /// Unit of the matrix's start times: htsim's programs for UEC, RoCE and Swift take microseconds
        #[arg(long, value_enum, default_value_t = StartUnit::Us)]
        start_unit: StartUnit,
        #[command(flatten)]
        to: Destination,
    },
    /// A topology of SimAI's generator, with a workload and SimAI.conf.
    Simai {
        /// What gen_Topo_Template.py has written
        topology: PathBuf,
        /// Layers, and the collectives of each
        #[arg(long, value_name = "FILE")]
        workload: Option<PathBuf>,
        /// The configuration, SimAI.conf
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        to: Destination,
    },
    /// A schedule of LogGOPSim and ATLAHS: what ranks send, receive and compute.
    Goal {
        /// The schedule, as text
        schedule: PathBuf,
        #[command(flatten)]
        network: Assumed,
        #[command(flatten)]
        to: Destination,
    },
    /// Execution traces of Chakra, one for each rank.
    Chakra {
        /// NAME.0.et NAME.1.et …
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        #[command(flatten)]
        network: Assumed,
        #[command(flatten)]
        to: Destination,
    },
    /// The collectives in a log of NCCL: NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING.
    Nccl {
        /// The log of all ranks, or of one
        log: PathBuf,
        #[command(flatten)]
        network: Assumed,
        #[command(flatten)]
        to: Destination,
    },
}

/// The unit of start times.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum StartUnit {
    /// Times are in microseconds
    Us,
    /// Times are in picoseconds
    Ps,
}

/// Where the fabric file goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Destination {
    /// Folder for fabric.toml and the lists that it names. Without it fabric.toml is printed
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// The network of files that say nothing of one.
#[derive(Debug, clap::Args)]
pub(crate) struct Assumed {
    /// Ranks of a server, each with an adapter. With one, all are at one switch; with more, those that have
    /// one place in their servers are
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_PER_SERVER_MAX)))]
    ranks_per_server: u32,
    /// Rate of each adapter
    #[arg(long, value_name = "RATE", default_value = "400Gb/s", value_parser = rate)]
    rate: Bandwidth,
}

impl Assumed {
    fn servers(&self) -> Servers {
        Servers {
            ranks: self.ranks_per_server,
            rate: self.rate.0,
        }
    }
}

fn rate(text: &str) -> Result<Bandwidth, String> {
    Bandwidth::parse(text).ok_or_else(|| format!("a rate is {}", Bandwidth::GRAMMAR))
}

/// A file that was read.
struct Text {
    name: String,
    text: String,
}

impl Text {
    fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self {
            name: path.display().to_string(),
            text: input::read_text(path).map_err(Error::file(path))?,
        })
    }

    fn read_if_given(path: Option<&PathBuf>) -> Result<Option<Self>, Error> {
        path.map(|path| Self::read(path)).transpose()
    }

    fn input(&self) -> Input<'_> {
        Input {
            name: &self.name,
            text: &self.text,
        }
    }
}

/// Carries out an import: what is read is printed, or written into the folder.
///
/// # Errors
/// Files that cannot be read or are not of the form, and a destination that has files already.
pub(crate) fn act(what: &Import) -> Result<(), Error> {
    match what {
        Import::Hpcc {
            topology,
            flows,
            config,
            to,
        } => {
            let topology = Text::read(topology)?;
            let flows = Text::read_if_given(flows.as_ref())?;
            let config = Text::read_if_given(config.as_ref())?;
            to.give(&hpcc::import(&hpcc::HpccFiles {
                topology: topology.input(),
                flows: flows.as_ref().map(Text::input),
                config: config.as_ref().map(Text::input),
            })?)
        }
        Import::Htsim {
            topology,
            matrix,
            start_unit,
            to,
        } => {
            let topology = Text::read(topology)?;
            let matrix = Text::read_if_given(matrix.as_ref())?;
            to.give(&htsim::import(&htsim::HtsimFiles {
                topology: topology.input(),
                matrix: matrix.as_ref().map(Text::input),
                start_unit: match start_unit {
                    StartUnit::Us => htsim::StartUnit::Microseconds,
                    StartUnit::Ps => htsim::StartUnit::Picoseconds,
                },
            })?)
        }
        Import::Simai {
            topology,
            workload,
            config,
            to,
        } => {
            let topology = Text::read(topology)?;
            let workload = Text::read_if_given(workload.as_ref())?;
            let config = Text::read_if_given(config.as_ref())?;
            to.give(&simai::import(&simai::SimaiFiles {
                topology: topology.input(),
                workload: workload.as_ref().map(Text::input),
                config: config.as_ref().map(Text::input),
            })?)
        }
        Import::Goal {
            schedule,
            network,
            to,
        } => to.give(&goal::import(
            Text::read(schedule)?.input(),
            network.servers(),
        )?),
        Import::Nccl { log, network, to } => {
            to.give(&nccl::import(Text::read(log)?.input(), network.servers())?)
        }
        Import::Chakra {
            traces,
            network,
            to,
        } => to.give(&chakra(traces, network.servers())?),
    }
}

fn chakra(paths: &[PathBuf], servers: Servers) -> Result<Imported, Error> {
    let mut files = Vec::new();
    for path in paths {
        let bytes = input::read(path).map_err(Error::file(path))?;
        files.push((path.display().to_string(), bytes));
    }
    let traces: Vec<chakra::Trace<'_>> = files
        .iter()
        .map(|(name, bytes)| chakra::Trace { name, bytes })
        .collect();
    let title = files.first().map_or("", |(name, _)| name);
    Ok(chakra::import(title, &traces, servers)?)
}

impl Destination {
    /// Writes or prints, once it is certain that a fabric file can say so.
    fn give(&self, imported: &Imported) -> Result<(), Error> {
        check(imported)?;
        match &self.out {
            None if imported.lists.is_empty() => output::print(&imported.fabric)?,
            None => return Err(Error::ListsNeedFolder),
            Some(folder) => {
                fs::create_dir_all(folder).map_err(Error::file(folder))?;
                let path = folder.join("fabric.toml");
                let lists = imported.lists.iter();
                let lists = lists.map(|list| (folder.join(&list.name), &list.text));
                let files: Vec<(PathBuf, &String)> =
                    lists.chain([(path.clone(), &imported.fabric)]).collect();
                // Nothing is written where a part of it could not be.
                if let Some((there, _)) = files.iter().find(|(path, _)| path.exists()) {
                    return Err(Error::IsThere(there.clone()));
                }
                for (path, text) in files {
                    write(&path, text)?;
                }
                output::print(format_args!("rockery sim {}\n", path.display()))?;
            }
        }
        for note in &imported.notes {
            output::note!("{note}");
        }
        Ok(())
    }
}

/// Refuses what no fabric file can describe.
fn check(imported: &Imported) -> Result<(), Error> {
    let mut files = |name: &str| {
        let list = imported.lists.iter().find(|list| list.name == name);
        let text = list.map(|list| list.text.clone());
        text.ok_or_else(|| format!("{name} is not there"))
    };
    let document = Document::read("fabric.toml", &imported.fabric, &mut files)?;
    let file = document.fields()?;
    Network::build(&document, &file, &mut files)?;
    Ok(())
}

/// Writes a file that is not there yet.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    let file = File::create_new(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Error::IsThere(path.to_owned()),
        _ => Error::file(path)(error),
    })
}
