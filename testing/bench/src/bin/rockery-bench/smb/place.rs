//! Where a measurement takes place: Samba or a server in memory, for SMB Direct the gateway before it, and a
//! process that measures.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use command::bench::SmbTransport;

use super::super::place::{ADDRESSES, Held, MTU, Owned, Pair};
use super::load::Figures;
use super::samba::Samba;
use crate::Error;
use crate::figures::measured_by;

/// The programs of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commands<'a> {
    /// This program, which measures, and serves memory.
    pub(super) own: &'a Path,
    /// The command `rockery`, which is the gateway, and runs programs on its devices.
    pub(super) rockery: &'a Path,
}

/// Servers that run, and how to reach them.
#[derive(Debug)]
pub(super) struct Place {
    transport: SmbTransport,
    // Dropped in this order: what serves, then what it serves from, then where it runs.
    gateway: Option<Started>,
    server: Server,
    address: SocketAddr,
    own: PathBuf,
    rockery: PathBuf,
    pair: Option<Pair>,
}

/// The server of the file.
#[derive(Debug)]
enum Server {
    Samba(Samba),
    Memory(Started),
}

impl Server {
    fn process(&self) -> u32 {
        match self {
            Self::Samba(samba) => samba.process(),
            Self::Memory(server) => server.process.0.id(),
        }
    }
}

/// A running server of rockery. Its output is not read after the line that says that it listens.
#[derive(Debug)]
struct Started {
    process: Owned,
    _output: BufReader<ChildStdout>,
}

/// A free port: TCP finds one, and RDMA has a port space of its own.
fn free_port() -> Result<u16, Error> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    Ok(free.map_err(Error::file("a free port"))?.port())
}

/// A program in a namespace, on rockery's devices if the transport is SMB Direct.
fn in_place(
    program: &Path,
    rockery: &Path,
    transport: SmbTransport,
    end: Option<&Held>,
) -> Command {
    let mut words: Vec<&OsStr> = Vec::new();
    match transport {
        SmbTransport::Direct | SmbTransport::MemoryDirect => {
            words.extend([rockery.as_os_str(), "run".as_ref(), "--".as_ref()]);
        }
        SmbTransport::DirectUdp => {
            let run = ["run", "--no-same-host", "--"].map(OsStr::new);
            words.push(rockery.as_os_str());
            words.extend(run);
        }
        SmbTransport::Local
        | SmbTransport::Tcp
        | SmbTransport::TcpVeth
        | SmbTransport::MemoryTcp => {}
    }
    words.push(program.as_os_str());
    match end {
        Some(end) => {
            let mut command = end.enter();
            command.args(words);
            command
        }
        None => {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        }
    }
}

impl Started {
    /// Starts a gateway.
    fn gateway(mut command: Command, rdma: SocketAddr, server: SocketAddr) -> Result<Self, Error> {
        command.args([
            "smb",
            "gateway",
            "--system-verbs",
            "--rdma",
            &rdma.to_string(),
        ]);
        command.args(["--server", &server.to_string()]);
        Self::start(command, "rockery smb gateway")
    }

    /// Starts a server of a file of so many bytes in memory.
    fn memory(own: &Path, at: SocketAddr, size: u64) -> Result<Self, Error> {
        let mut command = Command::new(own);
        command.args([
            "smb",
            "--serve",
            &at.to_string(),
            "--size",
            &size.to_string(),
        ]);
        Self::start(command, "a server in memory")
    }

    /// Starts it and waits until it listens.
    fn start(mut command: Command, what: &'static str) -> Result<Self, Error> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Owned(command.spawn().map_err(Error::file(what))?);
        let nothing = Error::NothingMeasured(what);
        let Some(out) = process.0.stdout.take() else {
            return Err(nothing);
        };
        let mut output = BufReader::new(out);
        let mut line = String::new();
        while !line.starts_with("listening") {
            line.clear();
            if output.read_line(&mut line).map_err(Error::file(what))? == 0 {
                return Err(nothing);
            }
        }
        Ok(Self {
            process,
            _output: output,
        })
    }
}

impl Place {
    /// Starts Samba with a share of `folder`, or a server of `size` bytes in memory, and for SMB Direct a
    /// gateway before it.
    pub(super) fn new(
        transport: SmbTransport,
        commands: Commands<'_>,
        folder: &Path,
        size: u64,
    ) -> Result<Self, Error> {
        let Commands { own, rockery } = commands;
        let pair = if transport.is_apart() {
            Some(Pair::new().ok_or(Error::NoPair)?)
        } else {
            None
        };
        let end = pair.as_ref().map(|pair| &pair.0[0]);
        let at = |ip: &str, port: u16| {
            let address = format!("{ip}:{port}").parse::<SocketAddr>();
            address.map_err(|_| Error::NothingMeasured(transport.name()))
        };
        let reached = if end.is_some() {
            ADDRESSES[0]
        } else {
            "127.0.0.1"
        };
        let server_ip = if transport.is_direct() {
            "127.0.0.1"
        } else {
            reached
        };
        let server_at = at(server_ip, free_port()?)?;
        let server = match transport.is_in_memory() {
            true => Server::Memory(Started::memory(own, server_at, size)?),
            false => Server::Samba(Samba::start(folder, server_at, end)?),
        };
        let (gateway, address) = match transport.is_direct() {
            true => {
                let address = at(reached, free_port()?)?;
                let command = in_place(rockery, rockery, transport, end);
                (
                    Some(Started::gateway(command, address, server_at)?),
                    address,
                )
            }
            false => (None, server_at),
        };
        Ok(Self {
            transport,
            gateway,
            server,
            address,
            own: own.to_owned(),
            rockery: rockery.to_owned(),
            pair,
        })
    }

    /// How it came about.
    pub(super) fn remark(&self) -> Option<String> {
        let text = match self.transport {
            SmbTransport::Local | SmbTransport::Tcp => return None,
            SmbTransport::TcpVeth => format!("TCP, veth: two network namespaces, MTU {MTU}"),
            SmbTransport::Direct => {
                "SMB Direct: the gateway reaches Samba over loopback".to_owned()
            }
            SmbTransport::MemoryTcp | SmbTransport::MemoryDirect => {
                "memory: a server of rockery's in place of Samba, over loopback".to_owned()
            }
            SmbTransport::DirectUdp => {
                format!("SMB Direct over UDP: two network namespaces, veth of MTU {MTU}")
            }
        };
        Some(text)
    }

    /// Measures jobs, one after the other. `words` are the other options of the process that measures.
    pub(super) fn measure(&self, jobs: &[String], words: &[String]) -> Result<Vec<Figures>, Error> {
        let client = self.pair.as_ref().map(|pair| &pair.0[1]);
        let mut command = in_place(&self.own, &self.rockery, self.transport, client);
        command.args(["smb", "--transport", self.transport.option()]);
        command
            .args(["--measure", &self.address.to_string()])
            .args(words);
        command.args(["--samba-process", &self.server.process().to_string()]);
        if let Some(gateway) = &self.gateway {
            // In a namespace and through `run`, each program becomes the next: the number stays.
            command.args(["--gateway-process", &gateway.process.0.id().to_string()]);
        }
        jobs.iter().for_each(|job| _ = command.args(["--job", job]));
        measured_by(command, &self.own, jobs.len(), self.transport.name())
    }
}
