//! The place of a measurement: a server process, a client process, and for packets two network namespaces
//! with a veth between them, where this user may make such.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use ::nvme::host::job::Measured;
use command::bench::{Times, Transport};
use command::runtime;

use crate::Error;
use crate::figures::measured_by;

/// MTU of the veth: jumbo frames, which storage networks have.
pub(super) const MTU: &str = "9000";
/// The addresses of its ends, from the block for measuring devices (RFC 2544).
pub(super) const ADDRESSES: [&str; 2] = ["198.18.0.1", "198.18.0.2"];

/// The transport of `rockery nvme bench`.
const fn option(transport: Transport) -> &'static str {
    match transport {
        Transport::Local | Transport::Tcp => "tcp",
        Transport::Rdma | Transport::RdmaUdp => "rdma",
    }
}

/// A process that ends with this value.
#[derive(Debug)]
pub(super) struct Owned(pub(super) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A network namespace, which a process of ours holds.
#[derive(Debug)]
pub(super) struct Held(Owned);

impl Held {
    pub(super) fn new() -> Option<Self> {
        // `cat` waits for an end of its input that never comes while we are there.
        let mut command = Command::new("unshare");
        // Devices are looked up in a /sys that shows this namespace.
        let prepare = "mount -t sysfs sysfs /sys && ip link set lo up && echo && exec cat";
        command.args(["--net", "--mount", "sh", "-c", prepare]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let mut ready = [0];
        let out = child.stdout.as_mut()?;
        let is_there = out.read_exact(&mut ready).is_ok();
        let held = Self(Owned(child));
        is_there.then_some(held)
    }

    pub(super) fn process(&self) -> String {
        self.0.0.id().to_string()
    }

    /// A program in it.
    pub(super) fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.process(), "--net", "--mount"]);
        command
    }

    /// Whether a program in it accepts TCP connections.
    pub(super) fn listens(&self) -> bool {
        ["tcp", "tcp6"].iter().any(|table| {
            let table = std::fs::read_to_string(format!("/proc/{}/net/{table}", self.process()));
            table.is_ok_and(|table| has_listener(&table))
        })
    }

    /// Whether its link comes up: that takes the kernel up to a second after the command.
    fn is_up(&self) -> bool {
        (0..50).any(|_| {
            let up = self.call("grep -qx up /sys/class/net/v0/operstate");
            if !up {
                std::thread::sleep(Duration::from_millis(100));
            }
            up
        })
    }

    pub(super) fn call(&self, words: &str) -> bool {
        let mut command = self.enter();
        command.args(words.split_whitespace()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// Whether a table in the format of `/proc/net/tcp` has a socket in the state LISTEN (0A).
fn has_listener(table: &str) -> bool {
    table
        .lines()
        .any(|line| line.split_whitespace().nth(3) == Some("0A"))
}

/// Two namespaces with a veth between them.
#[derive(Debug)]
pub(super) struct Pair(pub(super) [Held; 2]);

impl Pair {
    pub(super) fn new() -> Option<Self> {
        let ends = [Held::new()?, Held::new()?];
        let peer = ends[1].process();
        let link =
            format!("ip link add v0 mtu {MTU} type veth peer name v0 mtu {MTU} netns {peer}");
        let is_there = ends[0].call(&link)
            && ends.iter().zip(ADDRESSES).all(|(end, address)| {
                end.call(&format!("ip address add {address}/24 dev v0"))
                    && end.call("ip link set v0 up")
            });
        (is_there && ends.iter().all(Held::is_up)).then_some(Self(ends))
    }
}

/// A target that runs, and how to reach it.
#[derive(Debug)]
pub(crate) struct Place {
    transport: Transport,
    target: Owned,
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
    pair: Option<Pair>,
    binary: PathBuf,
    _folder: Folder,
}

/// A folder for the control socket, removed at the end.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn program(binary: &Path, transport: Transport, end: Option<&Held>) -> Command {
    let mut command = end.map_or_else(|| Command::new(binary), Held::enter);
    if end.is_some() {
        command.arg(binary);
    }
    if transport == Transport::RdmaUdp {
        command.args(["run", "--no-same-host", "--"]).arg(binary);
    }
    command
}

impl Place {
    /// Serves a disk, in memory or a file, with the command `binary`: `disk` has the arguments of
    /// `rockery serve nvme`.
    pub(crate) fn new(
        transport: Transport,
        binary: &Path,
        disk: &[String],
        poll_us: u64,
    ) -> Result<Self, Error> {
        let pair = (transport == Transport::RdmaUdp).then(Pair::new).flatten();
        let ip = if pair.is_some() {
            ADDRESSES[0]
        } else {
            "127.0.0.1"
        };
        let folder = Folder(runtime::subfolder(&format!(
            "bench-{}",
            std::process::id()
        ))?);
        let mut command = program(binary, transport, pair.as_ref().map(|pair| &pair.0[0]));
        command
            .args(["serve", "nvme"])
            .args(disk)
            .args(["--poll", &poll_us.to_string()]);
        command.arg("--control").arg(folder.0.join("control"));
        // A free port: TCP finds one, and RDMA has a port space of its own.
        let free =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.map_err(Error::file("a free port"))?.port();
        let address = format!("{ip}:{port}");
        match transport {
            Transport::Local | Transport::Tcp => command.args(["--listen", &address]),
            Transport::Rdma | Transport::RdmaUdp => {
                command.args(["--listen", &address, "--rdma", &address])
            }
        };
        if transport == Transport::RdmaUdp {
            command.arg("--system-verbs");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().map_err(Error::file(binary))?;
        let mut target = Owned(child);
        let out = target
            .0
            .stdout
            .take()
            .ok_or(Error::NothingMeasured(transport.name()))?;
        let mut output = BufReader::new(out);
        let wanted = 1 + usize::from(option(transport) == "rdma");
        let mut listening = 0;
        while listening < wanted {
            let mut line = String::new();
            let bytes = output
                .read_line(&mut line)
                .map_err(Error::file("the target's output"))?;
            if bytes == 0 {
                return Err(Error::NothingMeasured(transport.name()));
            }
            listening += usize::from(line.starts_with("listening"));
        }
        let address = address
            .parse()
            .map_err(|_| Error::NothingMeasured(transport.name()))?;
        Ok(Self {
            transport,
            target,
            _output: output,
            address,
            pair,
            binary: binary.to_owned(),
            _folder: folder,
        })
    }

    /// How it came about, where there is a choice.
    pub(crate) fn remark(&self) -> Option<String> {
        (self.transport == Transport::RdmaUdp).then(|| match self.pair {
            Some(_) => format!("RDMA over UDP: two network namespaces, veth of MTU {MTU}"),
            None => "RDMA over UDP: over loopback, since this user may make no network namespaces \
                     (root may, and unshare --user --map-root-user)"
                .to_owned(),
        })
    }

    /// Measures jobs, one after the other.
    pub(crate) fn measure(&self, jobs: &[String], times: Times) -> Result<Vec<Measured>, Error> {
        let end = self.pair.as_ref().map(|pair| &pair.0[1]);
        let mut command = program(&self.binary, self.transport, end);
        command.args([
            "nvme",
            "bench",
            &self.address.to_string(),
            "--destroy",
            "--fill",
            "--json",
        ]);
        command.args(["--transport", option(self.transport)]);
        command.args([
            "--warm-up",
            &times.warm_up.to_string(),
            "--seconds",
            &times.seconds.to_string(),
            "--rest",
            &times.rest.to_string(),
        ]);
        // Between namespaces and through `run`, each program becomes the next: the number stays.
        command.args(["--target-process", &self.target.0.id().to_string()]);
        if self.transport == Transport::RdmaUdp {
            command.arg("--system-verbs");
        }
        for job in jobs {
            command.args(["--job", job]);
        }
        measured_by(command, &self.binary, jobs.len(), self.transport.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let connection = "   0: 0100007F:4854 0100007F:4853 01 00000000:00000000\n";
        let listener = "   1: 0100007F:4853 00000000:0000 0A 00000000:00000000\n";
        assert!(has_listener(&[head, connection, listener].concat()));
        assert!(!has_listener(&[head, connection].concat()));
    }
}
