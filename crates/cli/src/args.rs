//! The command line. Its help is the first documentation that anyone reads.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  What RDMA programs see on this machine:
    rockery run -- ibv_devices
    rockery run -- ibv_devinfo -v

  Bandwidth between two hosts, with the tool that everyone uses:
    host1$ rockery run -- ib_write_bw
    host2$ rockery run -- ib_write_bw host1

  What crosses the wire, for Wireshark:
    host2$ rockery run --pcap write.pcapng -- ib_write_bw host1

  What every program's device is doing, twice a second:
    rockery devices --watch 0.5

  Programs that know only sockets, over RDMA:
    host1$ rockery run --sockets -- iperf3 -s
    host2$ rockery run --sockets -- iperf3 -c host1

  By hand, for a program that something else starts:
    eval \"$(rockery env)\"";

const SIM_EXAMPLES: &str = "\
Examples:
  What a switch's configuration does to storage traffic before it is live:
    rockery sim examples/crs504/lab.toml

  The same without ECN, as a page with plots:
    rockery sim examples/crs504/lab.toml --set qos.default.queue.3.ecn.min=10GB --html report.html

  What crosses a port, pause frames included, for Wireshark:
    rockery sim examples/incast.toml --pcap h0=incast.pcap

  Every run of a sweep, on all cores, as one table:
    rockery sim examples/spraying/recovery.toml --csv recovery.csv";

/// Runs unmodified RDMA programs on a RoCEv2 device made of software: no RDMA NIC, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(name = "rockery", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What rockery does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program that uses RDMA, on rockery's devices.
    ///
    /// The program finds rockery's libibverbs.so.1 where it looks for the distribution's, and one device for
    /// each network interface that is up. It replaces this process: signals and its exit status are its own.
    #[command(after_help = EXAMPLES)]
    Run(Run),
    /// List the devices of this host, and the programs that have them open.
    ///
    /// A device is named after its network interface. Programs of other users are not shown, except to root.
    Devices(Devices),
    /// List the ports where programs await connections by RDMA-CM.
    ///
    /// The kernel's tables (ss, netstat) do not know them.
    Listeners {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serve storage over the network, and tell a server that runs what to serve.
    ///
    /// Hosts reach it with the kernel's own initiator: nvme connect -t tcp -a ADDRESS -s 4420 -n NQN
    #[command(subcommand)]
    Serve(Box<crate::serve::Serve>),
    /// Show what a server of storage does just now: commands, bytes, latencies, by namespace and queue.
    ///
    /// On a terminal until Ctrl-C; elsewhere one page after the other.
    Top(crate::top::Top),
    /// Use and measure storage that somebody serves over NVMe/TCP or NVMe/RDMA, without privileges.
    #[command(subcommand)]
    Nvme(crate::nvme::Nvme),
    /// Measure this machine: comparisons that people publish, with tables, JSON and a page of plots.
    #[command(subcommand)]
    Bench(crate::bench::Bench),
    /// Print the variables that `run` sets, for a shell to read.
    ///
    /// Use it where rockery cannot start the program itself: eval "$(rockery env)"
    Env(Settings),
    /// Run a network in virtual time, from a fabric file.
    ///
    /// The devices are those that `run` gives programs; switches, links and what is transferred are described
    /// in the file (docs/fabric-file.md). The same file and seed give the same results.
    #[command(after_help = SIM_EXAMPLES)]
    Sim(Sim),
    /// Print the completions of a shell.
    ///
    /// For bash: rockery completions bash >~/.local/share/bash-completion/completions/rockery
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// What to run in virtual time, and what to write.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Sim {
    /// The fabric file (TOML). With a table [sweep] in it, every combination of its values is run.
    pub(crate) file: PathBuf,
    /// Seed of everything that is left to chance; instead of the file's.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Set what a field of the file would say: nic.default.mtu=1024, workload.*.depth=16. May be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Threads: for one run, or runs at a time in a sweep. Results are the same with any number.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Option<u32>,
    /// Only check the file, and print what it describes.
    #[arg(long)]
    pub(crate) check: bool,
    /// Write all results as JSON; `-` is standard output.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Write one row per flow as CSV, and beside it FILE.ports.csv with one row per port and queue.
    /// With - for FILE, flows only, to standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write one row per flow as Parquet.
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// Write what crosses a port's link to a file that Wireshark opens, pause frames included. Ports are
    /// called h0, sw0:3 or crs504:qsfp28-1-1. May be repeated.
    #[arg(long, value_name = "PORT=FILE", value_parser = capture)]
    pub(crate) pcap: Vec<(String, PathBuf)>,
    /// Write a report with plots and a picture of the network, which opens offline.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Look at queues and rates this often, for JSON and plots. With --html, 200 times if not given.
    #[arg(long, value_name = "TIME", value_parser = timespan)]
    pub(crate) sample: Option<fabric::Span>,
    /// Keep where each flow's data waited, was marked, paused and lost, port by port: for the table, JSON and
    /// the page; beside --csv and --parquet as FILE.hops.csv and FILE.hops.parquet.
    #[arg(long)]
    pub(crate) hops: bool,
    /// Run only this run of a sweep, counted from 0.
    #[arg(long, value_name = "NUMBER", conflicts_with = "points")]
    pub(crate) point: Option<usize>,
    /// Print the runs of the sweep, one per line, and run none.
    #[arg(long)]
    pub(crate) points: bool,
}

/// A path and a value, as `--set` takes them.
fn setting(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("write PATH=VALUE, such as nic.default.mtu=1024")?;
    Ok((path.trim().to_owned(), value.trim().to_owned()))
}

/// A port and a file.
fn capture(text: &str) -> Result<(String, PathBuf), String> {
    let (port, file) = text.split_once('=').ok_or("write PORT=FILE, such as h0=h0.pcap")?;
    Ok((port.to_owned(), PathBuf::from(file)))
}

/// A time with its unit.
fn timespan(text: &str) -> Result<fabric::Span, String> {
    use fabric::file::units::{Quantity, Timespan};
    Timespan::parse(text).map(|time| time.0).ok_or_else(|| format!("write {}", Timespan::GRAMMAR))
}

/// What to list, and how.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Devices {
    /// Print JSON, one document per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print again after so many seconds, until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    #[arg(value_parser = interval)]
    pub(crate) watch: Option<Duration>,
    /// Show counters that are 0 as well.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Seconds, as a person writes them.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let is_sensible = |seconds: &f64| (0.01..=86_400.0).contains(seconds);
    let seconds = seconds.filter(is_sensible).ok_or("a number of seconds from 0.01 to 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// How senders react to congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Congestion {
    /// A window that shrinks when packets are lost: for networks that drop.
    Window,
    /// DCQCN: rates follow the CNPs that receivers of ECN-marked packets send.
    Dcqcn,
    /// Neither: for networks that never drop.
    Off,
}

impl Congestion {
    /// As the library reads it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Dcqcn => "dcqcn",
            Self::Off => "off",
        }
    }
}

/// How a program sees the devices in `/sys` and `/dev`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum View {
    /// A library answers the C library's functions that take a path. Needs no rights at all.
    #[default]
    Preload,
    /// Files are mounted for the program: also seen by what does not use the C library. Needs root or user
    /// namespaces, and keeps programs that are started one by one from reading each other's memory.
    Namespace,
    /// Not at all.
    None,
}

/// How the libraries get into a program, and how its devices behave.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Settings {
    /// Show the program only this device: its name, its interface or one of its addresses. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    /// Write what the program's devices send and receive to a file that Wireshark opens (pcapng).
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Place RDMA WRITEs and READ responses in whatever order their packets arrive, as adapters do behind
    /// switches that spray packets. Needed at both ends. Otherwise a packet out of order is sent again.
    #[arg(long)]
    pub(crate) out_of_order: bool,
    /// How senders react to congestion.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) congestion: Option<Congestion>,
    /// Reach programs on this host by packets, as programs elsewhere are, and not through shared memory. A
    /// capture asks for the same.
    #[arg(long)]
    pub(crate) no_same_host: bool,

    /// How the program sees the devices in /sys/class/infiniband and /dev/infiniband, as UCX, NCCL and ibstat
    /// want to.
    #[arg(long, value_enum, value_name = "HOW", default_value = "preload")]
    pub(crate) view: View,

    /// Turn the program's sockets of IPv4 and IPv6 into rsockets: what it sends goes by RDMA to a program at
    /// the other end whose sockets are rsockets too. For programs that know nothing of RDMA.
    #[arg(long)]
    pub(crate) sockets: bool,

    /// Load the libraries with LD_PRELOAD as well: for programs that bring a library path of their own.
    #[arg(long)]
    pub(crate) preload: bool,
}

/// A program, and how the libraries get into it.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// How the libraries get into a program, and how its devices behave.
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The program and its arguments, behind `--`.
    #[arg(required = true, last = true, value_name = "PROGRAM ARGUMENTS")]
    pub(crate) program: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_does_not_contradict_itself() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_stands_behind_two_dashes_is_the_programs() {
        let args = Args::parse_from(["rockery", "run", "--", "ib_write_bw", "--preload"]);
        let Command::Run(run) = args.command else { panic!("not run") };
        assert!(!run.settings.preload);
        assert_eq!(run.program, ["ib_write_bw", "--preload"]);
    }
}
