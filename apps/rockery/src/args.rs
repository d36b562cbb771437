//! Arguments of commands, and of options that several commands have.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

/// The hosts and switches to look at.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Doctor {
    /// Action other than finding faults
    #[command(subcommand)]
    pub(crate) action: Option<DoctorAction>,
    /// Snapshot of another host, instead of this host; NAME is the host in the fabric file
    #[arg(long, num_args = 1.., value_name = "[NAME=]SNAPSHOT")]
    pub(crate) host: Vec<String>,
    /// Earlier snapshot of each --host, in their order, or of this host: counters are what they grew by since
    #[arg(long, num_args = 1.., value_name = "SNAPSHOT")]
    pub(crate) before: Vec<PathBuf>,
    /// Running configuration of a switch, or outputs of its commands, or both; NAME is the switch in the
    /// fabric file. Of SONiC also the files of one switch: config_db.json, qos.json, buffers.json,
    /// port_config.ini
    #[arg(long, num_args = 1.., value_name = "[NAME=]FILE")]
    pub(crate) switch: Vec<String>,
    /// Outputs of InfiniBand tools: ibnetdiscover, iblinkinfo, ibqueryerrors, perfquery, ibstat, or the
    /// tables of ibdiagnet (ibdiagnet2.db_csv)
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub(crate) infiniband: Vec<PathBuf>,
    /// Fabric file that hosts, switches and links are compared with
    #[arg(long, value_name = "FILE")]
    pub(crate) fabric: Option<PathBuf>,
    /// DSCP of RDMA data, where neither hosts nor the fabric file say it
    #[arg(long, value_name = "DSCP", value_parser = clap::value_parser!(u8).range(0..=63))]
    pub(crate) dscp: Option<u8>,
    /// DSCP of congestion notifications (CNP), where neither hosts nor the fabric file say it
    #[arg(long, value_name = "DSCP", value_parser = clap::value_parser!(u8).range(0..=63))]
    pub(crate) cnp_dscp: Option<u8>,
    /// Findings that end with status 1: errors, all, or single rules by their names; others are printed only
    #[arg(
        long,
        num_args = 1..,
        value_name = "error|warning|RULE",
        default_value = "warning",
        value_parser = fail_on
    )]
    pub(crate) fail_on: Vec<FailingFindings>,
    /// Print findings as JSON: the same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Format of the findings
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: FindingsFormat,
}

/// A kind of findings that end with status 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FailingFindings {
    /// Findings of this severity, and worse ones.
    Severity(doctor::Severity),
    /// Findings of one rule.
    Rule(&'static str),
}

/// `error`, `warning`, or the name of a rule.
fn fail_on(text: &str) -> Result<FailingFindings, String> {
    match text {
        "error" => return Ok(FailingFindings::Severity(doctor::Severity::Error)),
        "warning" => return Ok(FailingFindings::Severity(doctor::Severity::Warning)),
        _ => {}
    }
    let names = || doctor::RULES.iter().map(|entry| entry.rule);
    let found = names()
        .find(|rule| *rule == text)
        .map(FailingFindings::Rule);
    found.ok_or_else(|| match vendors::text::nearest(text, names()) {
        Some(near) => format!("there is no rule of this name; did you mean {near}?"),
        None => {
            "it is error, warning or the name of a rule, as in docs/reference/rules.md".to_owned()
        }
    })
}

/// The formats of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FindingsFormat {
    /// A page for a person
    Text,
    /// All that was read, judged and found
    Json,
    /// SARIF 2.1.0, which code scanning and editors show beside the lines
    Sarif,
    /// JUnit's XML, a test case for each adapter and group of ports
    Junit,
    /// Workflow commands of GitHub Actions, an annotation for each finding
    Github,
}

/// The actions of doctor besides finding faults.
#[derive(Debug, Subcommand)]
pub(crate) enum DoctorAction {
    /// Print the facts of this host, for --host on another one.
    ///
    /// The snapshot has addresses, interfaces, firewall rules and SMB mounts: read it before you publish it.
    Snapshot,
    /// Test whether RoCEv2 packets reach hosts: at which size, with which marks, and without loss.
    ///
    /// Needs neither an RDMA adapter nor root. Packets are sent only to the named hosts, 50 a second at most;
    /// load is sent only where both ends give --load.
    Probe(crate::probe::Probe),
    /// Put probes of several hosts together: which pair has which fault, and what such pairs have in common.
    Matrix {
        /// Output of rockery doctor probe --json, one file for each host
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print pairs and faults as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the LLDP and DCBX advertisements of neighbours, in the terms of 802.1Qaz.
    Lldp {
        /// Capture in classic pcap format: tcpdump -w lldp.pcap ether proto 0x88cc
        #[arg(required_unless_present = "interface", conflicts_with = "interface")]
        capture: Option<PathBuf>,
        /// Listen on this interface instead, which needs CAP_NET_RAW
        #[arg(long, value_name = "IF")]
        interface: Option<String>,
        /// How long to listen: switches send a frame every 30 seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 35)]
        seconds: u32,
        /// Print neighbours as JSON
        #[arg(long)]
        json: bool,
    },
}

/// The simulation to run, and the files to write.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Sim {
    /// Fabric file (TOML, 16 MiB at most). With a table [sweep] in it, every combination of its values is
    /// run.
    pub(crate) file: PathBuf,
    /// Seed of all random numbers, instead of the file's.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Field of the file and its value, instead of the file's: nic.default.mtu=1024, workload.*.depth=16. May
    /// be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Number of threads, 1 to 64: for one run, or runs at a time in a sweep. Results are the same with any
    /// number.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Option<u32>,
    /// Check the file, print how many hosts, switches, links and queue pairs it describes, and run nothing.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the formulas of the file's models with their numbers: parameters, operations, and what ranks
    /// exchange; and run nothing.
    #[arg(long, conflicts_with_all = ["check", "points", "fail_on"])]
    pub(crate) explain: bool,
    /// JSON file for all results; `-`, or no name, is standard output.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// CSV file for one row per queue pair; FILE.ports.csv beside it has one row per port and queue. With -
    /// for FILE, queue pairs only, to standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Parquet file for one row per queue pair.
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// File for one line of JSON per repetition of a collective, written as soon as it is over at all ranks;
    /// - is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) repetitions: Option<PathBuf>,
    /// Queue pair whose life is printed before the report: WORKLOAD/HOST/NUMBER, without number or host
    /// where one is meant. Behind it :PSN, for one packet. It tells what was posted, enqueued, marked,
    /// paused, trimmed, sent, lost, sent again, acknowledged and completed.
    #[arg(long, value_name = "QP[:PSN]")]
    pub(crate) trace: Option<String>,
    /// File for the life of the queue pair, instead of standard output.
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub(crate) trace_out: Option<PathBuf>,
    /// Format of the life of the queue pair.
    #[arg(long, value_enum, value_name = "FORMAT", requires = "trace", default_value_t = LifeFormat::Text)]
    pub(crate) trace_format: LifeFormat,
    /// Port and pcap file for the frames on its link, in both directions, PFC frames included. Port names
    /// are h0, sw0:3 or crs504:qsfp28-1-1. May be repeated.
    #[arg(long, value_name = "PORT=FILE", value_parser = capture)]
    pub(crate) pcap: Vec<(String, PathBuf)>,
    /// HTML file for a report with plots and a picture of the network, which opens offline; of a sweep with
    /// the runs as a table, and plots over the field with the most values.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Interval, with a unit (such as 20us), at which queues and rates of all ports are sampled, for JSON and
    /// plots; 4,194,304 samples at most. With --html, and without --skip-steady, 200 times in a run if not
    /// given.
    #[arg(long, value_name = "TIME", value_parser = timespan)]
    pub(crate) sample: Option<fabric::Span>,
    /// Print the counters of each switch of a vendor as its system prints them, before the report.
    #[arg(long)]
    pub(crate) tables: bool,
    /// Record at which ports the data of each queue pair waited and was marked, paused and lost: for the
    /// table, JSON and HTML; beside --csv and --parquet as FILE.hops.csv and FILE.hops.parquet.
    #[arg(long)]
    pub(crate) hops: bool,
    /// Skip times in which all transfers go on at steady rates. Completion times and counters are estimates
    /// within about 1 %, latencies and packet orders are those of the rest of the run (docs/sim.md).
    #[arg(long, conflicts_with_all = ["sample", "pcap", "hops", "trace"])]
    pub(crate) skip_steady: bool,
    /// Exit with status 1 if there is a finding of this severity or a worse one: broken (data was lost, or a
    /// transfer cannot go on), slow, note.
    #[arg(long, value_enum, value_name = "SEVERITY", conflicts_with_all = ["check", "points"])]
    pub(crate) fail_on: Option<FailOn>,
    /// Number of the one run of a sweep to make, from 0.
    #[arg(long, value_name = "NUMBER", conflicts_with = "points")]
    pub(crate) point: Option<usize>,
    /// Print the number and values of each run of the sweep, one per line, and run nothing.
    #[arg(long)]
    pub(crate) points: bool,
}

impl Sim {
    /// How steady states are skipped, where the option is given.
    pub(crate) fn skipping(&self) -> Option<sim::world::SkipSteady> {
        self.skip_steady
            .then_some(sim::world::SkipSteady::ONE_PERCENT)
    }
}

/// The formats of a queue pair's life, as those of `rockery trace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LifeFormat {
    /// A line for each event
    Text,
    /// A JSON document in a line for each event
    Json,
    /// Chrome's trace events, for ui.perfetto.dev and chrome://tracing
    Perfetto,
}

impl From<LifeFormat> for sim::report::LifeFormat {
    fn from(format: LifeFormat) -> Self {
        match format {
            LifeFormat::Text => Self::Text,
            LifeFormat::Json => Self::Json,
            LifeFormat::Perfetto => Self::Perfetto,
        }
    }
}

/// The severities of findings, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FailOn {
    /// Data was lost, or a transfer failed or cannot go on.
    Broken,
    /// It works, and much worse than it could.
    Slow,
    /// A remark: neither an error nor a loss of performance.
    Note,
}

impl FailOn {
    /// The findings that are as severe or more severe.
    pub(crate) fn matching(self, report: &sim::report::Report) -> usize {
        use sim::report::Severity;
        let least = match self {
            Self::Broken => Severity::Broken,
            Self::Slow => Severity::Slow,
            Self::Note => Severity::Note,
        };
        let findings = report.findings.iter();
        findings.filter(|finding| finding.severity <= least).count()
    }
}

/// A path and a value, as `--set` takes them.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let (path, value) = text
        .split_once('=')
        .ok_or("write PATH=VALUE, such as nic.default.mtu=1024")?;
    Ok((path.trim().to_owned(), value.trim().to_owned()))
}

/// A port and a file.
pub(crate) fn capture(text: &str) -> Result<(String, PathBuf), String> {
    let (port, file) = text
        .split_once('=')
        .ok_or("write PORT=FILE, such as h0=h0.pcap")?;
    Ok((port.to_owned(), PathBuf::from(file)))
}

/// A time with its unit.
fn timespan(text: &str) -> Result<fabric::Span, String> {
    use units::{Quantity, Timespan};
    Timespan::parse(text)
        .map(|time| time.0)
        .ok_or_else(|| format!("write {}", Timespan::GRAMMAR))
}

/// The options of `rockery devices`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Devices {
    /// Print JSON, one document per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Interval in seconds (0.01 to 86400) after which the list is printed again, until interrupted.
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
    let seconds = seconds
        .filter(is_sensible)
        .ok_or("a number of seconds from 0.01 to 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// The name of a TCP congestion control that the kernel has, or `system`.
pub(crate) fn tcp_congestion(name: &str) -> Result<String, String> {
    if name != "system" {
        nvme::congestion::check(name)?;
    }
    Ok(name.to_owned())
}

/// Congestion control of senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Congestion {
    /// A window that shrinks when packets are lost: for networks that drop.
    Window,
    /// DCQCN: rates follow the CNPs that receivers of ECN-marked packets send.
    Dcqcn,
    /// No congestion control: for networks that never drop.
    Off,
}

impl Congestion {
    /// The value of `ROCKERY_CONGESTION`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Dcqcn => "dcqcn",
            Self::Off => "off",
        }
    }
}

/// How a program sees the devices in `/sys` and `/dev`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum View {
    /// A library answers the C library's functions that take a path. Needs no rights at all.
    Preload,
    /// Files are mounted for the program: programs that do not use the C library see them too. Needs root or
    /// user namespaces, and keeps programs that are started one by one from reading each other's memory.
    Namespace,
    /// The program sees no devices in `/sys` and `/dev`.
    None,
}

/// How the libraries get into a program, and how its devices behave.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Settings {
    /// Device that the program sees, by its name, interface or IP address; other devices are hidden. May be
    /// repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    /// Name of the program's first device, such as mlx5_0, for programs that choose devices by name.
    /// Repeated: of the next ones, in the order of `rockery devices`. Other programs see the usual names.
    #[arg(long = "as", value_name = "NAME", value_parser = device_name)]
    pub(crate) names: Vec<String>,
    /// Capture file (pcapng, for Wireshark) for the packets that the program's devices send and receive.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// File for the program's verbs calls: posts, completions, and the time between them. A workload of
    /// `rockery sim` replays it (`replay` in docs/reference/fabric-file.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// File for the program's trace: every verbs call, request, completion, event and change of state, with
    /// time and thread. `rockery trace` prints it, `rockery explain` finds mistakes in it.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Bytes that the trace has at most, with a unit as in 64MiB; 1GiB where it is not given. Later events
    /// are counted and left out.
    #[arg(long, value_name = "BYTES", requires = "trace", value_parser = crate::trace_limit::limit)]
    pub(crate) trace_limit: Option<u64>,
    /// Accept packets of RDMA WRITEs and READ responses in any order, as adapters do behind switches that
    /// spray packets. Needed at both ends. Without it a packet out of order is sent again.
    #[arg(long)]
    pub(crate) out_of_order: bool,
    /// Congestion control of senders.
    #[arg(long, value_enum, value_name = "ALGORITHM")]
    pub(crate) congestion: Option<Congestion>,
    /// Send packets to programs on this host as well, instead of using shared memory. --pcap implies this.
    #[arg(long)]
    pub(crate) no_same_host: bool,

    /// Fault that the program meets, such as `post_send: fail ENOMEM after 100`, several with semicolons
    /// between them, or a file of them in TOML (docs/faults.md). May be repeated.
    #[arg(long, value_name = "RULE|FILE", value_parser = crate::fault_rules::rules)]
    pub(crate) fault: Vec<faults::Rules>,
    /// File to which a line of JSON is appended for each fault that happens.
    #[arg(long, value_name = "FILE", requires = "fault")]
    pub(crate) fault_journal: Option<PathBuf>,

    /// How the program sees the devices in /sys/class/infiniband and /dev/infiniband, where UCX, NCCL and
    /// ibstat look for them. The default is preload, and none with --no-preload.
    #[arg(long, value_enum, value_name = "METHOD")]
    pub(crate) view: Option<View>,

    /// Turn the program's IPv4 and IPv6 sockets into rsockets: data goes by RDMA if the program at the other
    /// end uses rsockets too. For programs that use sockets only.
    #[arg(long, conflicts_with = "no_preload")]
    pub(crate) sockets: bool,

    /// Set LD_LIBRARY_PATH only, and not LD_PRELOAD: programs with a bundled libibverbs, as many Python
    /// packages have, then use that one and find no rockery device. There is no view by preloading either.
    #[arg(long)]
    pub(crate) no_preload: bool,
    /// The default; accepted for scripts of earlier versions.
    #[arg(long, hide = true, conflicts_with = "no_preload")]
    pub(crate) preload: bool,

    /// Whether the program's clocks and waits are those of the lab that it is in, as `rockery lab exec` has
    /// it.
    #[arg(skip)]
    pub(crate) lab_clock: bool,
}

impl Settings {
    /// How the program sees the devices in `/sys` and `/dev`.
    pub(crate) fn view(&self) -> View {
        self.view.unwrap_or(if self.no_preload {
            View::None
        } else {
            View::Preload
        })
    }
}

/// A name that a device may have.
fn device_name(text: &str) -> Result<String, String> {
    match host::settings::is_device_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a name has letters, digits, _ and -, such as mlx5_0".to_owned()),
    }
}

/// A program, and how the libraries get into it.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// How the libraries get into a program, and how its devices behave.
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Run the program in a network namespace of its own with loopback only, where no other user's program
    /// holds UDP port 4791. Both ends of a connection are in it: --private -- sh -c 'SERVER & CLIENT'. Needs
    /// root or user namespaces.
    #[arg(long)]
    pub(crate) private: bool,
    /// The program and its arguments, after `--` if they are to be told from options.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM ARGUMENTS"
    )]
    pub(crate) program: Vec<OsString>,
}
