//! A server of storage as a process of this host, on loopback, and a connection to it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nvme::host::{Client, Options, Queue, Transport};

use crate::{Error, Rockery};

/// The name of its subsystem.
pub const NQN: &str = "nqn.2024-01.org.example:disk";
/// The name of the host that connects.
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5";

/// The same host's identifier.
pub const HOST_ID: &str = "2cd2c43b-a90a-45c1-a8cd-86b33ab273b5";

/// A server. It is killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    metrics: Option<String>,
    folder: PathBuf,
}

impl Server {
    /// Starts `rockery serve nvme` with these words, its control socket and its log in `folder`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(folder: &Path, words: &str) -> Result<Self, Error> {
        let control = folder.join("control").display().to_string();
        let words = format!(
            "serve nvme {words} --subsystem {NQN} --listen 127.0.0.1:0 --control {control}"
        );
        let log = folder.join("log");
        let file = std::fs::File::create(&log).map_err(Error::file(&log))?;
        let mut command = Rockery::built().command();
        command
            .args(words.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file);
        let failed = |source| Error::Start {
            program: words.clone(),
            source,
        };
        let mut child = command.spawn().map_err(failed)?;
        let mut metrics = None;
        for line in child
            .stdout
            .take()
            .into_iter()
            .flat_map(|out| BufReader::new(out).lines())
        {
            let line = line.map_err(failed)?;
            metrics = line
                .strip_prefix("metrics at ")
                .map(str::to_owned)
                .or(metrics);
            let listening = line.strip_prefix("listening on ");
            let address = listening.and_then(|rest| rest.split(',').next());
            if let Some(Ok(address)) = address.map(str::parse) {
                return Ok(Self {
                    child,
                    address,
                    metrics,
                    folder: folder.to_owned(),
                });
            }
        }
        _ = child.wait();
        let output = std::fs::read_to_string(&log).unwrap_or_default();
        Err(Error::Failed {
            command: words,
            output,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its metrics are.
    pub fn metrics(&self) -> Option<&str> {
        self.metrics.as_deref()
    }

    /// Its control socket.
    pub fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The text of its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Runs `rockery` with these words and its control socket; returns what it prints.
    ///
    /// # Errors
    /// When it fails.
    pub fn ask(&self, words: &str) -> Result<String, Error> {
        let mut command = Command::new(Rockery::built().path());
        command
            .args(words.split_whitespace())
            .arg("--control")
            .arg(self.control());
        let failed = |source| Error::Start {
            program: words.to_owned(),
            source,
        };
        let output = command.output().map_err(failed)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(Error::Failed {
                command: words.to_owned(),
                output: text(&output.stderr),
            }),
        }
    }

    /// The metric `rockery_nvme_` and `name`, summed over namespaces.
    ///
    /// # Errors
    /// When it does not answer, or has no such metric.
    pub fn metric(&self, name: &str) -> Result<u64, Error> {
        let said = self.ask("serve metrics")?;
        let name = format!("rockery_nvme_{name}");
        let value = |line: &str| -> Option<u64> {
            let (what, value) = line.rsplit_once(' ')?;
            what.split('{').next().filter(|it| *it == name)?;
            value.parse().ok()
        };
        let values: Vec<u64> = said.lines().filter_map(value).collect();
        match values.is_empty() {
            false => Ok(values.into_iter().sum()),
            true => Err(Error::Failed {
                command: format!("look for {name}"),
                output: said,
            }),
        }
    }

    /// What the server has in use, of all that commands and connections take: empty when no host is there.
    ///
    /// # Errors
    /// As [`Server::metric`].
    pub fn in_use(&self) -> Result<String, Error> {
        let names = [
            "connections",
            "connections_half_open",
            "controllers",
            "commands_in_flight",
            "data_bytes",
        ];
        let values: Result<Vec<_>, Error> = names
            .iter()
            .map(|name| self.metric(name).map(|value| (name, value)))
            .collect();
        let used = values?.into_iter().filter(|(_, value)| *value != 0);
        Ok(used
            .map(|(name, value)| format!("{name} {value}"))
            .collect::<Vec<_>>()
            .join(", "))
    }

    /// Connects to its disk, with so many queues for so many commands each.
    ///
    /// # Panics
    /// When it does not let us.
    pub fn connect(&self, queues: u16, depth: u16) -> (Client, Vec<Queue>) {
        connect(self.address, queues, depth)
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// When its process cannot be waited for.
    pub fn wait(&mut self) -> std::io::Result<std::process::ExitStatus> {
        self.child.wait()
    }

    /// Kills it, and waits until nothing of it is left.
    ///
    /// # Panics
    /// When it is not ours to kill.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }
}

/// Connects to a disk, with so many queues for so many commands each.
///
/// # Panics
/// When its server does not let us.
pub fn connect(address: SocketAddr, queues: u16, depth: u16) -> (Client, Vec<Queue>) {
    let name = NQN.parse().expect("a name");
    let mut client = Client::connect(address, &name, &options()).expect("it answers");
    let queues = client.queues(queues, depth).expect("queues");
    (client, queues)
}

/// How the host of these tests connects.
///
/// # Panics
/// Never: its name is one.
pub fn options() -> Options {
    let host: nvme::Nqn = HOST.parse().expect("a name");
    let host_id = host.to_host_id();
    let transport = Transport::Tcp;
    Options {
        transport,
        host,
        host_id,
        digests: Default::default(),
        congestion: None,
        secrets: None,
        tls: None,
        keep_alive_timeout: nvme::host::KEEP_ALIVE_TIMEOUT,
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
