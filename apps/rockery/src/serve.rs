//! `rockery serve`: the NVMe-oF target, and the commands that change a running one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::nvme::Nqn;
use ::nvme::auth::Credentials;
use ::nvme::identifier::{Nguid, Serial, Uuid};
use ::nvme::limits::CONNECT_TIMEOUT;
use ::nvme::serve::{
    BackendConfig, BlockSize, Bytes, Command, Config, NamespaceConfig, PortConfig, Receives,
    ReferralConfig, Report, Server, SubsystemConfig, TransportConfig, Tuning, default_nqn,
    serve_metrics,
};
use clap::Subcommand;
use serde_json::Value;
use server::control::{Control, ControlError, Query, ask};

use crate::args::tcp_congestion;
use crate::control::Socket;
use crate::credentials::CredentialArgs;
use crate::log::Log;
use crate::sys::{EndSignals, allow_descriptors};
use crate::{Error, ending, identifiers, output, printable, run};

/// NQN of the subsystem without `--subsystem` before it depended on machine and disk.
const FORMER_NQN: &str = "nqn.2024-01.org.rockery:disk";
/// Address and port of NVMe/TCP without `--listen`.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 4420);

/// The commands of `rockery serve`.
#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// Serve files, block devices and memory as NVMe namespaces over TCP and RDMA.
    Nvme(Box<ServeNvme>),
    /// Print what a server serves and which hosts are connected, as JSON. If several servers of this user run
    /// and --control is not given: an object with the control socket of each.
    Status(Socket),
    /// Print the configuration of a server, as a file that --config reads.
    Config(Socket),
    /// Print the identifiers of a server's subsystems and disks, as lines of a file that --config reads: a
    /// server with these lines is another path to the same disk.
    Identifiers {
        /// Print those that rockery gave a disk when they depended on the NQN and the namespace ID alone.
        #[arg(long)]
        former: bool,
        /// NQN of the subsystem at that time.
        #[arg(requires = "former", default_value = FORMER_NQN)]
        nqn: Nqn,
        /// ID of the namespace at that time.
        #[arg(long, requires = "former", default_value_t = 1)]
        id: u32,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Print the metrics of a server in the text format of Prometheus.
    Metrics(Socket),
    #[command(flatten)]
    Change(Change),
}

/// A namespace that is added to a running server.
#[derive(Debug, clap::Args)]
pub(crate) struct AddNamespace {
    /// NQN of the subsystem.
    nqn: Nqn,
    /// Path of a regular file or block device.
    file: Option<PathBuf>,
    /// Namespace ID, from 1; the lowest free one if not given.
    #[arg(long)]
    id: Option<u32>,
    /// The backing of the namespace.
    #[command(flatten)]
    disk: Disk,
    /// The control socket of the server.
    #[command(flatten)]
    socket: Socket,
}

impl AddNamespace {
    fn command(self) -> Result<(Socket, Command), Error> {
        let Self {
            nqn,
            file,
            id,
            disk,
            socket,
        } = self;
        let id = match id {
            Some(id) => id,
            None => free_number(&socket, &nqn)?,
        };
        let namespace = disk
            .namespace(id, file.map(absolute))
            .ok_or(Error::NothingToServe)?;
        Ok((socket, Command::AddNamespace { nqn, namespace }))
    }
}

/// The commands that change a running server.
#[derive(Debug, Subcommand)]
pub(crate) enum Change {
    /// Add a namespace.
    Add(AddNamespace),
    /// Remove a namespace; its file stays.
    Remove {
        /// NQN of the subsystem.
        nqn: Nqn,
        /// ID of the namespace, from 1.
        id: u32,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Change the size of a namespace, and of its file.
    Resize {
        /// NQN of the subsystem.
        nqn: Nqn,
        /// ID of the namespace, from 1.
        id: u32,
        /// New size in bytes, with a unit: 10GiB, 512MiB.
        size: Bytes,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Add a subsystem without namespaces.
    AddSubsystem {
        /// NQN of the subsystem.
        nqn: Nqn,
        /// Serial number of the subsystem, at most 20 characters. Default: derived from machine and NQN.
        #[arg(long, value_name = "TEXT")]
        serial: Option<Serial>,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Remove a subsystem with its namespaces; their files stay.
    RemoveSubsystem {
        /// NQN of the subsystem.
        nqn: Nqn,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Set the hosts that may use a subsystem: every host, if none is given.
    Hosts {
        /// NQN of the subsystem.
        nqn: Nqn,
        /// Host NQNs, separated by spaces.
        hosts: Vec<Nqn>,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Set the credentials of a host. It must present them from then on, and hosts without credentials are
    /// refused. Without options, the credentials of the host are removed.
    Secrets {
        /// NQN of the subsystem.
        nqn: Nqn,
        /// NQN of the host.
        host: Nqn,
        /// Credentials of the host.
        #[command(flatten)]
        credentials: CredentialArgs,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Listen on one more address, for NVMe/TCP.
    Listen {
        /// IP address and TCP port, as 192.0.2.1:4420, [::]:4420 or [fe80::1%eth0]:4420.
        #[arg(value_parser = link::address::socket)]
        address: SocketAddr,
        /// Accept TLS 1.3 only.
        #[arg(long)]
        tls: bool,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Set the ANA state of a group of namespaces on a port.
    Access {
        /// NQN of the subsystem.
        nqn: Nqn,
        /// Port ID, as `rockery serve config` prints it.
        port: u16,
        /// ANA group ID, from 1.
        group: u32,
        /// ANA state: optimized, non-optimized, inaccessible, persistent-loss or change.
        #[arg(value_parser = access)]
        access: ::nvme::serve::Access,
        /// The control socket of the server.
        #[command(flatten)]
        socket: Socket,
    },
}

fn access(text: &str) -> Result<::nvme::serve::Access, String> {
    let names = "optimized, non-optimized, inaccessible, persistent-loss or change";
    serde_json::from_value(text.into()).map_err(|_| names.to_owned())
}

/// The credentials that a host has to present; `None` if no option was given.
fn credentials(given: &CredentialArgs) -> Option<Credentials> {
    let (secrets, tls_key) = (given.secrets(), given.tls_key());
    (secrets.is_some() || tls_key.is_some()).then_some(Credentials { secrets, tls_key })
}

/// The backing of a namespace, and its properties.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Disk {
    /// Serve a disk in memory of this size, such as 256MiB, instead of a file. Its content is lost with the
    /// server.
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Serve a disk of this size without storage, such as 1GiB: writes are discarded, reads return zeros. For
    /// measuring everything else.
    #[arg(long, value_name = "SIZE")]
    null: Option<Bytes>,
    /// Extend the file to this size, such as 10GiB, if it is smaller. A missing file is created, sparse.
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Size of a logical block in bytes: 512 or 4096. Default: 4096.
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    block_size: Option<BlockSize>,
    /// Refuse writes of hosts.
    #[arg(long)]
    read_only: bool,
    /// UUID of the disk, for servers that are paths to one disk. Default: derived from machine, file, NQN and
    /// namespace ID, so that no other disk has it.
    #[arg(long, value_name = "UUID")]
    uuid: Option<Uuid>,
    /// NGUID of the disk, 32 hexadecimal digits. Default: derived from --uuid, or as the UUID is.
    #[arg(long, value_name = "NGUID")]
    nguid: Option<Nguid>,
    /// Use the kernel's page cache. Without this option files are opened with O_DIRECT where the file system
    /// supports it.
    #[arg(long)]
    cached: bool,
}

fn block_size(text: &str) -> Result<BlockSize, String> {
    BlockSize::try_from(text.parse::<u32>().map_err(|error| error.to_string())?)
}

impl Disk {
    fn backend(&self, file: Option<PathBuf>) -> Option<BackendConfig> {
        match (file, self.memory, self.null) {
            (Some(path), None, None) => Some(BackendConfig::File {
                path,
                size: self.size,
                direct: !self.cached,
            }),
            (None, Some(bytes), None) => Some(BackendConfig::Memory(bytes)),
            (None, None, Some(bytes)) => Some(BackendConfig::Null(bytes)),
            _ => None,
        }
    }

    fn namespace(&self, id: u32, file: Option<PathBuf>) -> Option<NamespaceConfig> {
        Some(NamespaceConfig {
            block_size: self.block_size.unwrap_or(BlockSize::B4096),
            read_only: self.read_only,
            uuid: self.uuid,
            nguid: self.nguid,
            ..NamespaceConfig::new(id, self.backend(file)?)
        })
    }
}

const EXAMPLES: &str = "\
Examples:
  A sparse disk of 10 GiB:
    rockery serve nvme disk.img --size 10GiB

  On another machine, with the kernel's NVMe/TCP host:
    nvme discover -t tcp -a ADDRESS -s 4420
    nvme connect -t tcp -a ADDRESS -s 4420 -n NQN

  With a name of one's own, and while it runs:
    rockery serve nvme disk.img --subsystem nqn.2024-01.org.example:disk
    rockery serve add nqn.2024-01.org.example:disk other.img
    rockery serve resize nqn.2024-01.org.example:disk 1 20GiB";

/// Serve NVMe namespaces.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeNvme {
    /// Paths of regular files and block devices: one namespace each, with IDs from 1.
    files: Vec<PathBuf>,
    /// The backing of the namespaces.
    #[command(flatten)]
    disk: Disk,
    /// NQN of the subsystem. Default: derived from this machine and the first file, so that no other disk has
    /// it; it is printed at the start. For a disk in memory it is another one at each start.
    #[arg(long, value_name = "NQN")]
    subsystem: Option<Nqn>,
    /// Serial number of the subsystem, at most 20 characters. Default: derived from machine and NQN.
    #[arg(long, value_name = "TEXT")]
    serial: Option<Serial>,
    /// NQN of a host that may use the subsystem; without this option every host may. May be repeated.
    #[arg(long, value_name = "NQN")]
    host: Vec<Nqn>,
    /// IP address and port to listen on for NVMe/TCP. May be repeated. Default: [::]:4420, which accepts IPv4
    /// too; none where --tls is given, so that no data leave unencrypted.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = link::address::socket)]
    listen: Vec<SocketAddr>,
    /// IP address and port to listen on for NVMe/TCP in TLS 1.3. May be repeated. Pre-shared keys of hosts
    /// are set by `rockery serve secrets` or in the configuration file.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = link::address::socket)]
    tls: Vec<SocketAddr>,
    /// IP address and port to listen on for NVMe/RDMA, on rockery's devices unless --system-verbs is given.
    /// May be repeated.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = link::address::socket)]
    rdma: Vec<SocketAddr>,
    /// Number of receives in one shared receive queue for all RDMA connections, instead of one receive per
    /// queue entry of each connection.
    #[arg(long, value_name = "COUNT")]
    shared_receives: Option<Receives>,
    /// Use the distribution's libibverbs and librdmacm, for hardware adapters.
    #[arg(long)]
    system_verbs: bool,
    /// IP address and port of another discovery service to list in the discovery log page. May be repeated.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = link::address::socket)]
    referral: Vec<SocketAddr>,
    /// Configuration file (TOML) with subsystems, namespaces and ports.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "memory", "null"])]
    config: Option<PathBuf>,
    /// State file: read at the start if it exists, and written before each change that commands make.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// How long threads poll idle connections before they sleep, in microseconds: lower latency for more
    /// processor time.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    poll: u64,
    /// Time within which a new connection has to send Connect and to authenticate, in seconds; it is closed
    /// after that.
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value_t = CONNECT_TIMEOUT.as_secs())]
    connect_timeout: u64,
    /// TCP congestion control algorithm of the kernel, or `system` for the system's default.
    #[arg(long, value_name = "NAME", default_value = "system", value_parser = tcp_congestion)]
    congestion: String,
    /// IP address and port of an HTTP server for Prometheus (/metrics).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = link::address::socket)]
    metrics: Option<SocketAddr>,
    /// Level and format of the log.
    #[command(flatten)]
    log: Log,
    /// The control socket for the other `rockery serve` commands.
    #[command(flatten)]
    socket: Socket,
}

impl ServeNvme {
    fn config(&self) -> Result<Config, Error> {
        if let Some(path) = &self.config {
            return Ok(Config::read(path).map_err(::nvme::serve::ServeError::from)?);
        }
        let files: Vec<_> = match self.files.is_empty() {
            true => vec![None],
            false => self.files.iter().cloned().map(Some).collect(),
        };
        let numbered = (1..).zip(files);
        let namespaces: Option<Vec<_>> = numbered
            .map(|(id, file)| self.disk.namespace(id, file))
            .collect();
        // The state has all subsystems.
        let is_stateful = self.state.as_ref().is_some_and(|path| path.exists());
        let subsystems = match is_stateful {
            true => Vec::new(),
            false => vec![self.subsystem(namespaces.ok_or(Error::NothingToServe)?)?],
        };
        let by_default = self.listen.is_empty() && self.tls.is_empty();
        let tcp = self
            .listen
            .iter()
            .chain(by_default.then_some(&ADDRESS))
            .map(|address| port(*address, TransportConfig::Tcp));
        let tls = self.tls.iter().map(|address| PortConfig {
            tls: true,
            ..port(*address, TransportConfig::Tcp)
        });
        let shared_receives = self.shared_receives;
        let over_rdma = |address| PortConfig {
            shared_receives,
            ..port(address, TransportConfig::Rdma)
        };
        let rdma = self.rdma.iter().map(|address| over_rdma(*address));
        Ok(Config {
            subsystems,
            ports: tcp.chain(tls).chain(rdma).collect(),
            referrals: self
                .referral
                .iter()
                .map(|address| ReferralConfig { address: *address })
                .collect(),
        })
    }

    fn subsystem(&self, namespaces: Vec<NamespaceConfig>) -> Result<SubsystemConfig, Error> {
        let has_identifier = self.disk.uuid.is_some() || self.disk.nguid.is_some();
        if has_identifier && namespaces.len() > 1 {
            return Err(Error::OneIdentifier(namespaces.len()));
        }
        let derived =
            || default_nqn(namespaces.first().ok_or(Error::NothingToServe)?).map_err(Error::from);
        let nqn = self.subsystem.clone().map_or_else(derived, Ok)?;
        let hosts: BTreeSet<Nqn> = self.host.iter().cloned().collect();
        let hosts = (!hosts.is_empty()).then_some(hosts);
        Ok(SubsystemConfig {
            hosts,
            namespaces,
            serial: self.serial.clone(),
            ..SubsystemConfig::new(nqn)
        })
    }
}

fn port(address: SocketAddr, transport: TransportConfig) -> PortConfig {
    PortConfig {
        id: None,
        transport,
        tls: false,
        shared_receives: None,
        address,
        subsystems: None,
    }
}

/// Runs a server, or sends a command to a running one.
pub(crate) fn act(what: Serve) -> Result<(), Error> {
    match what {
        Serve::Nvme(nvme) => serve(&nvme),
        Serve::Status(socket) => print_status(&socket),
        Serve::Config(socket) => print_config(&socket),
        Serve::Identifiers {
            former: true,
            nqn,
            id,
            ..
        } => output::print(identifiers::former(&nqn, id)),
        Serve::Identifiers { socket, .. } => {
            let status = ask(&socket.path()?, &Command::Status)?;
            output::print(identifiers::of_status(&status))
        }
        Serve::Metrics(socket) => print_metrics(&socket),
        Serve::Change(change) => {
            let (socket, command) = command_of(change)?;
            print(&ask(&socket.path()?, &command)?)
        }
    }
}

/// The control socket of the server that is to change, and the command for it.
fn command_of(change: Change) -> Result<(Socket, Command), Error> {
    Ok(match change {
        Change::Add(add) => add.command()?,
        Change::Remove { nqn, id, socket } => (socket, Command::RemoveNamespace { nqn, id }),
        Change::Resize {
            nqn,
            id,
            size,
            socket,
        } => (socket, Command::Resize { nqn, id, size }),
        Change::AddSubsystem {
            nqn,
            serial,
            socket,
        } => (
            socket,
            Command::AddSubsystem(SubsystemConfig {
                serial,
                ..SubsystemConfig::new(nqn)
            }),
        ),
        Change::RemoveSubsystem { nqn, socket } => (socket, Command::RemoveSubsystem { nqn }),
        Change::Hosts { nqn, hosts, socket } => {
            let hosts = (!hosts.is_empty()).then(|| hosts.into_iter().collect());
            (socket, Command::Hosts { nqn, hosts })
        }
        Change::Secrets {
            nqn,
            host,
            credentials: given,
            socket,
        } => (
            socket,
            Command::Credentials {
                nqn,
                host,
                credentials: credentials(&given),
            },
        ),
        Change::Listen {
            address,
            tls,
            socket,
        } => (
            socket,
            Command::AddPort(PortConfig {
                tls,
                ..port(address, TransportConfig::Tcp)
            }),
        ),
        Change::Access {
            nqn,
            port,
            group,
            access,
            socket,
        } => (
            socket,
            Command::Access {
                nqn,
                port,
                group,
                access,
            },
        ),
    })
}

fn print(answer: &Value) -> Result<(), Error> {
    if let Some(warning) = answer.get("warning").and_then(Value::as_str) {
        output::note!("rockery: warning: {}", printable::lines(warning));
    } else if answer.as_object().is_some_and(|fields| !fields.is_empty()) {
        return output::line(format_args!("{answer:#}"));
    }
    Ok(())
}

fn print_status(socket: &Socket) -> Result<(), Error> {
    let mut answers = socket.ask_all(&Query::Status)?;
    if let [(_, answer)] = &answers[..] {
        print(answer)
    } else {
        let by_socket = answers
            .drain(..)
            .map(|(path, answer)| (path.display().to_string(), answer));
        print(&Value::Object(by_socket.collect()))
    }
}

/// The server may run in another folder.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn current_config(socket: &Socket) -> Result<Config, Error> {
    let answer = ask(&socket.path()?, &Command::Config)?;
    Ok(serde_json::from_value(answer).map_err(ControlError::Answer)?)
}

fn print_config(socket: &Socket) -> Result<(), Error> {
    output::document(current_config(socket)?.to_text())
}

fn print_metrics(socket: &Socket) -> Result<(), Error> {
    let answer = socket.ask_one(&Query::Report)?;
    if let Ok(report) = serde_json::from_value::<::smb::serve::Report>(answer.clone()) {
        return output::document(report.to_prometheus());
    }
    let report: Report = serde_json::from_value(answer).map_err(ControlError::Answer)?;
    output::document(report.to_prometheus())
}

fn free_number(socket: &Socket, nqn: &Nqn) -> Result<u32, Error> {
    let config = current_config(socket)?;
    let subsystem = config.subsystems.iter().find(|it| it.nqn == *nqn);
    let taken: BTreeSet<u32> = subsystem
        .iter()
        .flat_map(|it| &it.namespaces)
        .map(|it| it.id)
        .collect();
    Ok((1..).find(|id| !taken.contains(id)).unwrap_or(1))
}

fn serve(nvme: &ServeNvme) -> Result<(), Error> {
    let congestion = Some(nvme.congestion.clone()).filter(|name| name != "system");
    let poll = Duration::from_micros(nvme.poll);
    let connect_timeout = Duration::from_secs(nvme.connect_timeout);
    let tuning = Tuning {
        poll,
        congestion,
        connect_timeout,
        ..Tuning::default()
    };
    nvme.log.begin();
    let config = nvme.config()?;
    let wants_rdma = config
        .ports
        .iter()
        .any(|port| port.transport == TransportConfig::Rdma);
    if wants_rdma && !nvme.system_verbs {
        return run::over_our_devices();
    }
    allow_descriptors();
    let path = nvme.socket.path()?;
    let signals = EndSignals::block();
    let control = Arc::new(Control::listen(&path).map_err(Error::file(&path))?);
    let server = Server::start(config, nvme.state.clone(), tuning)?;
    let metrics = nvme
        .metrics
        .map(|address| serve_metrics(server.shared(), address))
        .transpose()?;
    let server = Arc::new(server);
    let (ended, ended_control) = (Arc::clone(&server), Arc::clone(&control));
    ending::at_first_signal(signals, move |_| end(&ended, &ended_control))?;
    announce(&server, metrics);
    let served = server.serve_control(&control).map_err(Error::file(path));
    server.end()?;
    served
}

/// Ends the server and this process: no command of a host is executed afterwards. What commands have changed
/// is in the state file already.
fn end(server: &Server, control: &Control) -> ! {
    tracing::info!("asked to end: waiting for the commands that hosts have begun");
    let ended = server.end();
    control.remove_file();
    match ended {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            output::note!("rockery: {error}");
            std::process::exit(1)
        }
    }
}

/// Prints namespaces and addresses, in lines that a script can read.
fn announce(server: &Server, metrics: Option<SocketAddr>) {
    let mut text = String::new();
    for subsystem in server.target().subsystems() {
        for namespace in subsystem.namespaces() {
            let size = Bytes(namespace.bytes());
            _ = writeln!(
                text,
                "{} namespace {}: {size}",
                subsystem.name(),
                namespace.nsid()
            );
        }
    }
    if let Some(address) = metrics {
        _ = writeln!(text, "metrics at http://{address}/metrics");
    }
    for (address, transport) in server.listeners() {
        // Scripts read the address of plain TCP to the end of the line.
        let suffix = match transport {
            "TCP" => String::new(),
            other => format!(", {other}"),
        };
        _ = writeln!(text, "listening on {address}{suffix}");
    }
    output::announce(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        nvme: ServeNvme,
    }

    #[test]
    fn the_connect_timeout_has_its_former_name_as_an_alias() {
        for option in ["--connect-timeout", "--patience"] {
            let parsed = CommandLine::parse_from(["serve", "--memory", "1MiB", option, "7"]);
            assert_eq!(parsed.nvme.connect_timeout, 7, "{option}");
        }
    }
}
