//! Network namespaces of this host as machines.

use std::fs::{self, File};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::{NamedTempFile, TempPath};

use crate::{Error, Finished, Job, Machine, Rockery, system};

/// A network namespace with its loopback up. All processes in it end with it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    address: IpAddr,
    address_v6: IpAddr,
    rockery: Option<Rockery>,
}

impl Namespace {
    /// Creates a namespace with these addresses; the caller that connects it assigns them.
    ///
    /// # Errors
    /// When that is not allowed: it takes root, or a user namespace (`scripts/as-root.sh`).
    pub fn new(address: IpAddr, address_v6: IpAddr) -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rockery-{}-{number}", std::process::id());
        // From a network namespace of its own: afterwards `ip` goes back to where it was, and in a user
        // namespace it may not go back to the host's.
        system::line(&format!("unshare --net ip netns add {name}"))?;
        let namespace = Self {
            name,
            address,
            address_v6,
            rockery: None,
        };
        namespace.call("ip link set lo up")?;
        // Duplicate address detection keeps an IPv6 address, and so its GID, away for a second.
        namespace
            .call("sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0")?;
        Ok(namespace)
    }

    /// Creates a namespace without a peer: programs in it reach each other over its loopback.
    ///
    /// # Errors
    /// As [`Namespace::new`].
    pub fn alone() -> Result<Self, Error> {
        Self::new(
            IpAddr::from([127, 0, 0, 1]),
            IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1]),
        )
    }

    /// The same, where programs see the device of rockery as it was built.
    ///
    /// # Panics
    /// When it cannot be created, or rockery cannot be built.
    #[track_caller]
    pub fn with_rockery() -> Self {
        Self::alone().expect("a namespace").with(&Rockery::built())
    }

    /// The same, where programs see rockery's device.
    pub fn with(mut self, rockery: &Rockery) -> Self {
        self.rockery = Some(rockery.clone());
        self
    }

    /// Its name, as `ip netns` has it.
    pub fn netns(&self) -> &str {
        &self.name
    }

    /// Runs a program that prepares a test, without rockery.
    ///
    /// # Errors
    /// When it fails.
    pub fn call(&self, line: &str) -> Result<String, Error> {
        system::line(&format!("ip netns exec {} {line}", self.name))
    }

    /// Starts a program without rockery, whatever the namespace has.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_plain(&self, argv: &[&str]) -> Result<Process, Error> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).args(argv);
        Process::start(command)
    }

    /// As [`Namespace::start_plain`], for a line of words.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn start_line(&self, line: &str) -> Process {
        let argv: Vec<&str> = line.split_whitespace().collect();
        self.start_plain(&argv)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn processes(&self) -> Vec<String> {
        let pids = system::line(&format!("ip netns pids {}", self.name)).unwrap_or_default();
        pids.split_whitespace().map(str::to_owned).collect()
    }
}

impl Machine for Namespace {
    fn name(&self) -> &str {
        &self.name
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn address_v6(&self) -> IpAddr {
        self.address_v6
    }

    fn start(&self, argv: &[&str]) -> Result<Box<dyn Job + '_>, Error> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]);
        if let Some(rockery) = &self.rockery {
            command
                .arg(rockery.path())
                .arg("run")
                .args(rockery.options())
                .arg("--");
        }
        command.args(argv);
        Ok(Box::new(Process::start(command)?))
    }

    fn tcp_sockets(&self) -> Result<String, Error> {
        self.call("cat /proc/net/tcp /proc/net/tcp6")
    }

    fn awaits_requests(&self) -> Result<bool, Error> {
        let Some(rockery) = &self.rockery else {
            return Ok(false);
        };
        let listed = self.call(&format!("{} listeners", rockery.path().display()))?;
        Ok(!listed.is_empty())
    }

    fn device(&self) -> Option<(&str, u32)> {
        None
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let processes = self.processes();
        if !processes.is_empty() {
            let mut kill = vec!["kill", "-KILL"];
            kill.extend(processes.iter().map(String::as_str));
            // `kill` fails for processes that have ended meanwhile, which is no error.
            _ = system::call(&kill);
        }
        if let Err(error) = system::line(&format!("ip netns del {}", self.name)) {
            eprintln!("{error}");
        }
    }
}

/// A process of this host. Its output goes to a file, so that a child that lives longer does not keep a pipe
/// open.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: TempPath,
}

impl Process {
    /// Starts the program, with its output in a temporary file.
    pub(crate) fn start(mut command: Command) -> Result<Self, Error> {
        let file = NamedTempFile::new().map_err(Error::file("a temporary file"))?;
        let (file, output) = file.into_parts();
        let copy = |file: &File| file.try_clone().map_err(Error::file(output.to_path_buf()));
        command
            .stdin(Stdio::null())
            .stdout(copy(&file)?)
            .stderr(copy(&file)?);
        let program = format!("{command:?}");
        let child = command
            .spawn()
            .map_err(|source| Error::Start { program, source })?;
        Ok(Self { child, output })
    }

    /// The process ID, for signals other than SIGKILL.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Job for Process {
    fn output(&mut self) -> Result<String, Error> {
        let bytes = fs::read(&self.output).map_err(Error::file(self.output.to_path_buf()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn finished(&mut self) -> Result<Option<Finished>, Error> {
        let ended = self
            .child
            .try_wait()
            .map_err(Error::file("a child process"))?;
        let Some(status) = ended else { return Ok(None) };
        Ok(Some(Finished {
            status: status.code(),
            output: self.output()?,
        }))
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().map_err(Error::file("a child process"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
