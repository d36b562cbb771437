//! `rockery serve`: storage, and what a server that runs is told.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::nvme::Nqn;
use ::nvme::auth::Credentials;
use ::nvme::limits::CONNECT_TIMEOUT;
use ::nvme::serve::{
    BackendConfig, BlockSize, Bytes, Command, Config, Control, NamespaceConfig, PortConfig, Receives,
    ReferralConfig, Report, Server, SubsystemConfig, TransportConfig, Tuning, ask, serve_metrics,
};
use clap::Subcommand;

use crate::log::Log;
use crate::proofs::Proofs;
use crate::sys::allow_descriptors;
use crate::{Error, run};

/// The name of a subsystem that was given none.
const NQN: &str = "nqn.2024-01.org.rockery:disk";
/// Where NVMe/TCP is served when nobody says otherwise.
const ADDRESS: &str = "[::]:4420";

/// What to serve, or what to tell a server.
#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// Serve files, block devices and memory as NVMe namespaces over TCP.
    Nvme(Box<Nvme>),
    /// What a server serves, and to whom.
    Status(Socket),
    /// What a server serves, as a file that --config reads.
    Config(Socket),
    /// What a server has done, as Prometheus reads it.
    Metrics(Socket),
    /// Add a namespace.
    Add {
        /// The subsystem.
        nqn: Nqn,
        /// A file or block device.
        file: Option<PathBuf>,
        /// Its number; the lowest that is free otherwise.
        #[arg(long)]
        id: Option<u32>,
        /// How the namespace is made.
        #[command(flatten)]
        disk: Disk,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Remove a namespace; its file stays.
    Remove {
        /// The subsystem.
        nqn: Nqn,
        /// The namespace.
        id: u32,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Change a namespace's size.
    Resize {
        /// The subsystem.
        nqn: Nqn,
        /// The namespace.
        id: u32,
        /// Its size, as in 10GiB.
        size: Bytes,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Add a subsystem.
    AddSubsystem {
        /// Its name.
        nqn: Nqn,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Remove a subsystem with its namespaces; their files stay.
    RemoveSubsystem {
        /// Its name.
        nqn: Nqn,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Say which hosts may use a subsystem: all, if none is named.
    Hosts {
        /// The subsystem.
        nqn: Nqn,
        /// The hosts.
        hosts: Vec<Nqn>,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Say what a host proves itself with; it then has to, and hosts without may not come. Nothing, if
    /// nothing is said.
    Secrets {
        /// The subsystem.
        nqn: Nqn,
        /// The host.
        host: Nqn,
        /// What it has.
        #[command(flatten)]
        proofs: Proofs,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Listen on one more address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// In TLS 1.3.
        #[arg(long)]
        tls: bool,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
    /// Say how a group of namespaces is reached through a port (ANA).
    Access {
        /// The subsystem.
        nqn: Nqn,
        /// The port's number.
        port: u16,
        /// The group's number.
        group: u32,
        /// How.
        #[arg(value_parser = access)]
        access: ::nvme::serve::Access,
        /// The server.
        #[command(flatten)]
        socket: Socket,
    },
}

fn access(text: &str) -> Result<::nvme::serve::Access, String> {
    let names = "optimized, non-optimized, inaccessible, persistent-loss or change";
    serde_json::from_value(text.into()).map_err(|_| names.to_owned())
}

/// What a host has to prove itself with, if with anything.
fn credentials(proofs: &Proofs) -> Option<Credentials> {
    let (secrets, tls_key) = (proofs.secrets(), proofs.tls_key());
    (secrets.is_some() || tls_key.is_some()).then_some(Credentials { secrets, tls_key })
}

/// How a namespace is made.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Disk {
    /// Serve this much memory instead of a file.
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Serve nothing, this large: writes vanish, reads are zeros. For measuring the rest.
    #[arg(long, value_name = "SIZE")]
    null: Option<Bytes>,
    /// Make the file at least this large; one that is not there is made, and takes no room yet.
    #[arg(long)]
    size: Option<Bytes>,
    /// Bytes of a block: 512 or 4096.
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    block_size: Option<BlockSize>,
    /// Let hosts read only.
    #[arg(long)]
    read_only: bool,
    /// Use the page cache. Without this, it is kept out where the file system can do that.
    #[arg(long)]
    cached: bool,
}

fn block_size(text: &str) -> Result<BlockSize, String> {
    BlockSize::try_from(text.parse::<u32>().map_err(|error| error.to_string())?)
}

impl Disk {
    fn backend(&self, file: Option<PathBuf>) -> Option<BackendConfig> {
        match (file, self.memory, self.null) {
            (Some(path), None, None) => {
                Some(BackendConfig::File { path, size: self.size, direct: !self.cached })
            }
            (None, Some(bytes), None) => Some(BackendConfig::Memory(bytes)),
            (None, None, Some(bytes)) => Some(BackendConfig::Null(bytes)),
            _ => None,
        }
    }

    fn namespace(&self, id: u32, file: Option<PathBuf>) -> Option<NamespaceConfig> {
        Some(NamespaceConfig {
            id,
            backend: self.backend(file)?,
            block_size: self.block_size.unwrap_or(BlockSize::B4096),
            read_only: self.read_only,
            group: 1,
        })
    }
}

/// Which server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Socket {
    /// The server's control socket.
    #[arg(long, value_name = "PATH", default_value_os_t = control_socket())]
    control: PathBuf,
}

/// Where servers of this user listen to `rockery serve`.
pub(crate) fn control_socket() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    folder.unwrap_or_else(|| std::env::temp_dir().join("rockery")).join("rockery-nvme.sock")
}

const EXAMPLES: &str = "\
Examples:
  A disk of 10 GiB that takes room as it is written:
    rockery serve nvme disk.img --size 10GiB

  On another machine, with the kernel's own initiator:
    nvme discover -t tcp -a ADDRESS -s 4420
    nvme connect -t tcp -a ADDRESS -s 4420 -n nqn.2024-01.org.rockery:disk

  While it runs:
    rockery serve add nqn.2024-01.org.rockery:disk other.img
    rockery serve resize nqn.2024-01.org.rockery:disk 1 20GiB";

/// Serve NVMe namespaces.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Nvme {
    /// Files and block devices, one namespace each.
    files: Vec<PathBuf>,
    /// How the namespaces are made.
    #[command(flatten)]
    disk: Disk,
    /// The subsystem's name.
    #[arg(long, value_name = "NQN", default_value = NQN)]
    subsystem: Nqn,
    /// Only this host may use it. May be repeated.
    #[arg(long, value_name = "NQN")]
    host: Vec<Nqn>,
    /// Listen here. May be repeated.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = ADDRESS)]
    listen: Vec<SocketAddr>,
    /// Listen here in TLS 1.3. May be repeated. Keys of hosts are told by `rockery serve secrets`, or are in
    /// the file.
    #[arg(long, value_name = "ADDRESS:PORT")]
    tls: Vec<SocketAddr>,
    /// Listen here for RDMA. May be repeated. Over rockery's devices unless --system-verbs is said.
    #[arg(long, value_name = "ADDRESS:PORT")]
    rdma: Vec<SocketAddr>,
    /// Let all RDMA connections share this many receives, instead of one for each command that could come.
    #[arg(long, value_name = "COUNT")]
    shared_receives: Option<Receives>,
    /// Use this system's own libibverbs and librdmacm, for RDMA adapters made of hardware.
    #[arg(long)]
    system_verbs: bool,
    /// Name another discovery service to hosts that ask. May be repeated.
    #[arg(long, value_name = "ADDRESS:PORT")]
    referral: Vec<SocketAddr>,
    /// Read what to serve from a file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "memory", "null"])]
    config: Option<PathBuf>,
    /// Keep what is changed at run time in this file, and begin with what it has.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Look at idle connections for so long before sleeping: faster answers for processor time.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    poll: u64,
    /// How long a connection may take to say who it is, and to prove it.
    #[arg(long, value_name = "SECONDS", default_value_t = CONNECT_TIMEOUT.as_secs())]
    patience: u64,
    /// TCP's congestion control, or `system` for the system's own.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Answer Prometheus at http://ADDRESS:PORT/metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// What is logged.
    #[command(flatten)]
    log: Log,
    /// Where `rockery serve` commands reach this server.
    #[command(flatten)]
    socket: Socket,
}

impl Nvme {
    fn config(&self) -> Result<Config, Error> {
        if let Some(path) = &self.config {
            return Ok(Config::read(path).map_err(::nvme::serve::ServeError::from)?);
        }
        let files: Vec<_> = match self.files.is_empty() {
            true => vec![None],
            false => self.files.iter().cloned().map(Some).collect(),
        };
        let numbered = (1..).zip(files);
        let namespaces: Option<Vec<_>> = numbered.map(|(id, file)| self.disk.namespace(id, file)).collect();
        let is_stateful = self.state.as_ref().is_some_and(|path| path.exists());
        let namespaces = namespaces.or(is_stateful.then(Vec::new)).ok_or(Error::NothingToServe)?;
        let hosts: BTreeSet<Nqn> = self.host.iter().cloned().collect();
        let hosts = (!hosts.is_empty()).then_some(hosts);
        let nqn = self.subsystem.clone();
        let subsystem = SubsystemConfig { hosts, namespaces, ..SubsystemConfig::new(nqn) };
        let tcp = self.listen.iter().map(|address| port(*address, TransportConfig::Tcp));
        let tls =
            self.tls.iter().map(|address| PortConfig { tls: true, ..port(*address, TransportConfig::Tcp) });
        let shared_receives = self.shared_receives;
        let over_rdma = |address| PortConfig { shared_receives, ..port(address, TransportConfig::Rdma) };
        let rdma = self.rdma.iter().map(|address| over_rdma(*address));
        Ok(Config {
            subsystems: vec![subsystem],
            ports: tcp.chain(tls).chain(rdma).collect(),
            referrals: self.referral.iter().map(|address| ReferralConfig { address: *address }).collect(),
        })
    }
}

fn port(address: SocketAddr, transport: TransportConfig) -> PortConfig {
    PortConfig { id: None, transport, tls: false, shared_receives: None, address, subsystems: None }
}

/// Does what was asked.
pub(crate) fn act(what: Serve) -> Result<(), Error> {
    let (socket, command) = match what {
        Serve::Nvme(nvme) => return serve(&nvme),
        Serve::Status(socket) => (socket, Command::Status),
        Serve::Config(socket) => return print_config(&socket),
        Serve::Metrics(socket) => return print_metrics(&socket),
        Serve::Add { nqn, file, id, disk, socket } => {
            let id = match id {
                Some(id) => id,
                None => free_number(&socket, &nqn)?,
            };
            let namespace = disk.namespace(id, file.map(absolute)).ok_or(Error::NothingToServe)?;
            (socket, Command::AddNamespace { nqn, namespace })
        }
        Serve::Remove { nqn, id, socket } => (socket, Command::RemoveNamespace { nqn, id }),
        Serve::Resize { nqn, id, size, socket } => (socket, Command::Resize { nqn, id, size }),
        Serve::AddSubsystem { nqn, socket } => (socket, Command::AddSubsystem(SubsystemConfig::new(nqn))),
        Serve::RemoveSubsystem { nqn, socket } => (socket, Command::RemoveSubsystem { nqn }),
        Serve::Hosts { nqn, hosts, socket } => {
            let hosts = (!hosts.is_empty()).then(|| hosts.into_iter().collect());
            (socket, Command::Hosts { nqn, hosts })
        }
        Serve::Secrets { nqn, host, proofs, socket } => {
            (socket, Command::Credentials { nqn, host, credentials: credentials(&proofs) })
        }
        Serve::Listen { address, tls, socket } => {
            (socket, Command::AddPort(PortConfig { tls, ..port(address, TransportConfig::Tcp) }))
        }
        Serve::Access { nqn, port, group, access, socket } => {
            (socket, Command::Access { nqn, port, group, access })
        }
    };
    let answer = ask(&socket.control, &command)?;
    if answer.as_object().is_some_and(|fields| !fields.is_empty()) {
        _ = writeln!(std::io::stdout().lock(), "{answer:#}");
    }
    Ok(())
}

/// The server may run in another folder.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn current_config(socket: &Socket) -> Result<Config, Error> {
    let answer = ask(&socket.control, &Command::Config)?;
    Ok(serde_json::from_value(answer).map_err(::nvme::serve::ControlError::Answer)?)
}

fn print_config(socket: &Socket) -> Result<(), Error> {
    _ = write!(std::io::stdout().lock(), "{}", current_config(socket)?.to_text());
    Ok(())
}

fn print_metrics(socket: &Socket) -> Result<(), Error> {
    let answer = ask(&socket.control, &Command::Report)?;
    let report: Report = serde_json::from_value(answer).map_err(::nvme::serve::ControlError::Answer)?;
    _ = write!(std::io::stdout().lock(), "{}", report.to_prometheus());
    Ok(())
}

fn free_number(socket: &Socket, nqn: &Nqn) -> Result<u32, Error> {
    let config = current_config(socket)?;
    let subsystem = config.subsystems.iter().find(|it| it.nqn == *nqn);
    let taken: BTreeSet<u32> = subsystem.iter().flat_map(|it| &it.namespaces).map(|it| it.id).collect();
    Ok((1..).find(|id| !taken.contains(id)).unwrap_or(1))
}

fn serve(nvme: &Nvme) -> Result<(), Error> {
    let congestion = Some(nvme.congestion.clone()).filter(|name| name != "system");
    let (poll, patience) = (Duration::from_micros(nvme.poll), Duration::from_secs(nvme.patience));
    let tuning = Tuning { poll, congestion, patience };
    let config = nvme.config()?;
    let wants_rdma = config.ports.iter().any(|port| port.transport == TransportConfig::Rdma);
    if wants_rdma && !nvme.system_verbs {
        return run::over_our_devices();
    }
    nvme.log.begin();
    allow_descriptors();
    let control = Control::listen(&nvme.socket.control).map_err(Error::file(&nvme.socket.control))?;
    let server = Server::start(config, nvme.state.clone(), tuning)?;
    let metrics = nvme.metrics.map(|address| serve_metrics(server.shared(), address)).transpose()?;
    announce(&server, metrics);
    let server = Arc::new(Mutex::new(server));
    control.serve(&server).map_err(Error::file(&nvme.socket.control))
}

/// Says what is served and where, in lines that a script can read.
fn announce(server: &Server, metrics: Option<SocketAddr>) {
    let mut out = std::io::stdout().lock();
    for subsystem in server.target().subsystems() {
        for namespace in subsystem.namespaces() {
            let size = Bytes(namespace.bytes());
            _ = writeln!(out, "{} namespace {}: {size}", subsystem.name(), namespace.nsid());
        }
    }
    if let Some(address) = metrics {
        _ = writeln!(out, "metrics at http://{address}/metrics");
    }
    for address in server.addresses() {
        _ = writeln!(out, "listening on {address}");
    }
    _ = out.flush();
}
