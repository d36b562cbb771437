//! `rockery lab`: fabric files run live.

mod compare;
mod graph;
mod list;
mod metrics;
mod part;
mod reach;
mod run;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::lab::{Client, Plan, Ready, Status};
use clap::Subcommand;
use fabric_file::Document;

use crate::args::{Run, Settings};
use crate::run as program;
use crate::sim::Files;
use crate::{Error, output};

/// The largest slowdown.
const SLOW_MAX: u32 = 10_000;

/// Commands of a lab.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Start the lab of a fabric file. Without -d it runs until Ctrl-C.
    Up(Up),
    /// Run the workloads of a fabric file live, and print what `rockery sim` prints; --compare simulates it
    /// too.
    Run(run::RunArgs),
    /// Try whether each live host reaches each other one, by TCP over IPv4 and IPv6 and by RDMA.
    ///
    /// Prints each pair and way that fails, with the reason, and exits with 1 if there is one.
    Test(reach::Test),
    /// Print the network of a lab that runs, or of a fabric file, as a graph or a picture.
    Graph(graph::Graph),
    /// A host's part in `rockery lab run`.
    #[command(hide = true)]
    Part,
    /// A host's part in `rockery lab test`.
    #[command(hide = true)]
    Reach,
    /// End a lab and all programs in it.
    Down(Down),
    /// List labs and their hosts.
    Ps {
        /// Name of the only lab to list.
        #[arg(long, value_name = "NAME")]
        lab: Option<String>,
        /// Print one JSON document per lab and line.
        #[arg(long)]
        json: bool,
    },
    /// Run a program in a host, with rockery's libraries.
    ///
    /// It may change interfaces and routes of its host. Its exit status is that of this command.
    Exec(Exec),
    /// Print the counters of a lab's ports, and findings, as `rockery sim` prints a run.
    Report {
        #[command(flatten)]
        lab: Named,
        /// Print one JSON document, as `rockery sim --json` writes it.
        #[arg(long)]
        json: bool,
    },
    /// Print what a switch with a RouterOS or SONiC configuration shows, with the counters of this moment.
    Show {
        /// Name of the lab, if several run.
        #[arg(long, value_name = "NAME")]
        lab: Option<String>,
        /// Name of the switch.
        switch: String,
        /// Words of a table's heading, such as 'queue print' or 'pfc'. All tables, if not given.
        #[arg(default_value = "")]
        command: String,
    },
    /// Take a link down, or bring it up again.
    Link {
        /// Name of the lab, if several run.
        #[arg(long, value_name = "NAME")]
        lab: Option<String>,
        /// The nodes or ports at its ends, such as sender0-crs504. All links between them change.
        #[arg(value_name = "A-B")]
        ends: String,
        /// State of the link from this moment on.
        state: LinkState,
    },
    /// Write packets of a port to a file, in both directions, pause frames included, until the lab ends.
    Pcap {
        /// Name of the lab, if several run.
        #[arg(long, value_name = "NAME")]
        lab: Option<String>,
        /// The port, and a file for Wireshark; `off` in place of the file ends the capture.
        #[arg(value_name = "PORT=FILE", value_parser = crate::args::capture)]
        port: (String, PathBuf),
    },
    /// Change a value of the fabric file while the lab runs: links and thresholds, ECN and PFC of switches,
    /// functions of adapters.
    Set {
        /// Name of the lab, if several run.
        #[arg(long, value_name = "NAME")]
        lab: Option<String>,
        /// As `--set` of `rockery sim`, such as link.0.loss=0.01 or qos.default.pfc.classes=[]; or all links
        /// between two nodes, such as spine0-leaf1.rate=10Gb/s.
        #[arg(value_name = "PATH=VALUE", value_parser = crate::args::setting)]
        value: (String, String),
    },
    /// Print counters in the text format of Prometheus.
    Metrics {
        #[command(flatten)]
        lab: Named,
    },
    /// Show labs and their hosts once a second, until Ctrl-C.
    Top {
        /// Name of the only lab to show.
        #[arg(long, value_name = "NAME")]
        lab: Option<String>,
    },
    /// Start the user's shell in a host.
    Shell {
        /// Name of the lab, if several run.
        #[arg(long, value_name = "NAME")]
        lab: Option<String>,
        /// Leave the clocks of programs as they are, where the lab is slowed down.
        #[arg(long)]
        machine_clock: bool,
        /// Name of the host.
        host: String,
    },
}

/// The options of `rockery lab up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// Fabric file (TOML). Programs run in the hosts that it calls live, or in all hosts if it calls none so.
    file: PathBuf,
    /// Return when the hosts can be entered; `rockery lab down` ends the lab.
    #[arg(short, long)]
    detach: bool,
    /// Name of the lab; that of the file if not given.
    #[arg(long)]
    name: Option<String>,
    /// Value that replaces the file's, as `--set` of `rockery sim`. May be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = crate::args::setting)]
    set: Vec<(String, String)>,
    /// By what factor the hosts' clocks run slower than this machine's, 1 to 10000.
    #[arg(long, value_name = "FACTOR", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOW_MAX)))]
    slow: u32,
    /// Print the names as one JSON document.
    #[arg(long)]
    json: bool,
}

/// Whether a link works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LinkState {
    /// Nothing gets through.
    Down,
    /// Frames get through.
    Up,
}

/// The options of `rockery lab down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Down {
    #[command(flatten)]
    lab: Named,
    /// Exit with status 1 if packets were handled too late for valid results: see `rockery lab ps`.
    #[arg(long)]
    strict: bool,
}

/// The name of a lab, as other commands of labs take it, or as the only argument.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// Name of the lab, if several run.
    #[arg(long = "lab", value_name = "NAME", conflicts_with = "position")]
    option: Option<String>,
    /// Name of the lab, without --lab.
    #[arg(value_name = "LAB")]
    position: Option<String>,
}

impl Named {
    fn name(&self) -> Option<&str> {
        self.option.as_deref().or(self.position.as_deref())
    }
}

/// The options of `rockery lab exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// Name of the lab, if several run.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Leave the program's clocks as they are, where the lab is slowed down.
    #[arg(long)]
    machine_clock: bool,
    /// How the libraries get into the program.
    #[command(flatten)]
    settings: Settings,
    /// Name of the host.
    host: String,
    /// The program and its arguments, after `--` if they are to be told from options.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM ARGUMENTS"
    )]
    program: Vec<OsString>,
}

/// Captures a port into a file, or ends that for the file `off`.
fn capture(client: &Client, port: &str, file: &Path) -> Result<(), Error> {
    let path = match file.to_str() {
        Some("off") => None,
        _ => Some(std::path::absolute(file).map_err(Error::file(file))?),
    };
    let path = path.as_ref().map(|path| path.to_string_lossy());
    Ok(client.capture(port, path.as_deref())?)
}

/// Runs a program in a host.
fn execute(exec: &Exec) -> Result<ExitCode, Error> {
    let settings = Settings {
        lab_clock: !exec.machine_clock,
        ..exec.settings.clone()
    };
    let run = Run {
        settings,
        private: false,
        program: exec.program.clone(),
    };
    enter(exec.lab.as_deref(), &exec.host, run)
}

/// Runs a subcommand of `rockery lab`.
///
/// # Errors
/// When the lab cannot.
pub(crate) fn act(lab: &Lab) -> Result<ExitCode, Error> {
    match lab {
        Lab::Up(what) => up(what)?,
        Lab::Run(what) => {
            let name = format!("run-{}", std::process::id());
            return run::act(what, &plan(&what.file, &what.set, Some(name))?);
        }
        Lab::Test(what) => return reach::act(what),
        Lab::Graph(what) => graph::act(what)?,
        Lab::Part => ::lab::traffic::act(),
        Lab::Reach => ::lab::reach::act(),
        Lab::Down(which) => return down(which),
        Lab::Ps { lab, json } => return list::ps(lab.as_deref(), *json),
        Lab::Report { lab, json } => {
            let report = Client::connect(lab.name())?.report(*json)?;
            match json {
                true => output::json(report.trim_end())?,
                false => output::print(report)?,
            }
        }
        Lab::Show {
            lab,
            switch,
            command,
        } => {
            output::print(Client::connect(lab.as_deref())?.show(switch, command)?)?;
        }
        Lab::Link { lab, ends, state } => link(&Client::connect(lab.as_deref())?, ends, *state)?,
        Lab::Pcap {
            lab,
            port: (port, file),
        } => capture(&Client::connect(lab.as_deref())?, port, file)?,
        Lab::Set { lab, value } => {
            Client::connect(lab.as_deref())?.set(std::slice::from_ref(value))?
        }
        Lab::Metrics { lab } => {
            output::document(metrics::text(&Client::connect(lab.name())?.status()?))?;
        }
        Lab::Top { lab } => match list::top(lab.as_deref())? {},
        Lab::Exec(exec) => return execute(exec),
        Lab::Shell {
            lab,
            machine_clock,
            host,
        } => {
            let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
            let settings = Settings {
                lab_clock: !machine_clock,
                ..Settings::default()
            };
            let run = Run {
                settings,
                private: false,
                program: vec![shell],
            };
            return enter(lab.as_deref(), host, run);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An error of a lab.
fn refused(what: String) -> Error {
    ::lab::LabError::Refused(what).into()
}

/// The plan of a file.
fn plan(file: &Path, set: &[(String, String)], name: Option<String>) -> Result<Plan, Error> {
    let files = Files::of(file);
    let (mut reader, text) = (files.reader(), files.read(file)?);
    let mut document = Document::read(&file.display().to_string(), &text, &mut reader)?;
    for (path, value) in set {
        document.set(path, value)?;
    }
    let stem = || {
        file.file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let name = name.unwrap_or_else(stem);
    Ok(Plan::new(name, document, &mut reader)?)
}

fn up(what: &Up) -> Result<(), Error> {
    let plan = plan(&what.file, &what.set, what.name.clone())?;
    if what.detach {
        return say(what, &::lab::run_detached(plan, what.slow)?);
    }
    // The lab runs until it is ended, also if its announcement cannot be read.
    Ok(::lab::run(plan, what.slow, |ready| _ = say(what, ready))?)
}

fn say(what: &Up, ready: &Ready) -> Result<(), Error> {
    if what.json {
        return output::json(serde_json::to_string(ready).unwrap_or_default());
    }
    ready
        .warnings
        .iter()
        .for_each(|warning| output::note!("rockery: {warning}"));
    output::line(format_args!(
        "lab {} runs: {}",
        ready.name,
        ready.hosts.join(", ")
    ))?;
    match ready.hosts.first() {
        None => Ok(()),
        Some(host) => output::line(format_args!(
            "rockery lab exec --lab {} {host} -- PROGRAM runs a program there",
            ready.name
        )),
    }
}

fn down(which: &Down) -> Result<ExitCode, Error> {
    let client = Client::connect(which.lab.name())?;
    let status = client.status()?;
    client.down()?;
    let lateness = status.lateness;
    if which.strict && !status.valid {
        output::note!(
            "rockery: lab {} was late by {} ns (99.9 %), and its shortest link takes {} ns: {}",
            status.name,
            lateness.p999_ns,
            status.shortest_link_ns,
            advice(slower(&status), status.slowdown)
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The slowdown at which the same lateness in time of the machine would be within bounds.
fn slower(status: &Status) -> u64 {
    let times = status
        .lateness
        .p999_ns
        .div_ceil(status.shortest_link_ns.max(1));
    status
        .slowdown
        .saturating_mul(times.max(1))
        .min(u64::from(SLOW_MAX))
}

/// What makes a lab valid that was late: a slowdown that there is, or a smaller lab.
fn advice(wanted: u64, slowdown: u64) -> String {
    match slowdown >= u64::from(SLOW_MAX) {
        true => format!(
            "--slow {SLOW_MAX}, the most, does not suffice: longer links, fewer hosts or a lower rate"
        ),
        false => format!(
            "start it with --slow {} or more",
            wanted.clamp(1, u64::from(SLOW_MAX))
        ),
    }
}

/// Takes the name of a link apart: names of nodes may have a `-` themselves.
fn link(client: &Client, name: &str, state: LinkState) -> Result<(), Error> {
    let mut refused = ::lab::LabError::Refused(format!("{name} names no link: write A-B"));
    for (at, _) in name.match_indices('-') {
        let ends = [name[..at].to_owned(), name[at + 1..].to_owned()];
        match client.link(ends, state == LinkState::Up) {
            Ok(()) => return Ok(()),
            Err(error) => refused = error,
        }
    }
    Err(refused.into())
}

/// Runs a program in a host.
fn enter(lab: Option<&str>, host: &str, run: Run) -> Result<ExitCode, Error> {
    let entered = Client::connect(lab)?.host(host)?;
    let status = ::lab::enter(&entered, || {
        let error = match program::replace_this_process(&run) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        output::note!("rockery: {}", crate::printable::lines(&error.to_string()));
        error.status()
    })?;
    Ok(ExitCode::from(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_a_slowdown_that_there_is() {
        assert_eq!(advice(300, 100), "start it with --slow 300 or more");
        assert_eq!(advice(90_000, 5_000), "start it with --slow 10000 or more");
        let most = advice(90_000, 10_000);
        assert!(most.contains("does not suffice"), "{most}");
    }
}
