//! Samba behind SMB Direct on one host: dial (TCP to SMB Direct), gateway (SMB Direct to TCP), Samba.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::machine::until;
use crate::namespace::Process;
use crate::samba::{SHARE, run, smbclient};
use crate::{Finished, Job, Namespace, Rockery, Samba};

/// How long a server may take to listen, and a command to end, on a busy machine.
const SECONDS: u64 = 60;
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The port on which Samba listens, and the addresses of gateway and dial.
const SAMBA: u16 = 1445;
const GATEWAY: SocketAddr = SocketAddr::new(LOOPBACK, 445);
const DIAL: SocketAddr = SocketAddr::new(LOOPBACK, 2445);
/// Addresses of metrics, of the gateway as in the file of the examples.
const METRICS: [(&str, u16); 2] = [("gateway", 9445), ("dial", 9446)];
/// Bytes of the file that is written and read: not a multiple of any size of the protocol.
const FILE_BYTES: u32 = 3_000_003;

/// How gateway and dial are configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setup {
    /// All settings are options of the command line.
    Options,
    /// By the files of `examples/smb`, with the addresses of this place.
    Files,
    /// By options, with `--system-verbs` and the libraries that `rockery run` gives any program.
    SystemVerbs,
}

/// The servers, in a network namespace of their own. Each `rockery smb` has a control socket of its own,
/// because other tests' servers run at the same time.
#[derive(Debug)]
pub struct SmbChain {
    /// `rockery smb dial`.
    pub dial: Process,
    /// `rockery smb gateway`.
    pub gateway: Process,
    /// The server at the end.
    pub samba: Samba,
    /// The network namespace of all of them.
    pub namespace: Namespace,
    folder: TempDir,
    setup: Setup,
}

impl SmbChain {
    /// Starts Samba, a gateway before it, and a dial to that.
    ///
    /// # Panics
    /// When one does not listen.
    pub fn new() -> Self {
        Self::with(Setup::Options)
    }

    /// The same, configured in another way.
    ///
    /// # Panics
    /// When one does not listen.
    pub fn with(setup: Setup) -> Self {
        let namespace = Namespace::alone()
            .expect("a namespace")
            .with(&Rockery::built());
        let samba = Samba::within(&namespace, SAMBA, &[]).expect("Samba starts");
        let folder = TempDir::new().expect("a folder");
        let gateway = start(
            &namespace,
            &folder,
            setup,
            &words("gateway", setup, folder.path()),
        );
        let dial = start(
            &namespace,
            &folder,
            setup,
            &words("dial", setup, folder.path()),
        );
        Self {
            dial,
            gateway,
            samba,
            namespace,
            folder,
            setup,
        }
    }

    /// The address of Samba behind SMB Direct.
    pub fn address(&self) -> SocketAddr {
        DIAL
    }

    /// Starts Samba again, with an empty share, and waits until clients of the dial reach it.
    ///
    /// # Panics
    /// When it does not listen.
    pub fn restart_samba(&mut self) {
        self.samba = Samba::within(&self.namespace, SAMBA, &[]).expect("Samba starts");
        self.wait_until_reached();
    }

    /// Starts the gateway again, and waits until clients of the dial reach Samba.
    ///
    /// # Panics
    /// When it does not listen.
    pub fn restart_gateway(&mut self) {
        self.gateway = self.start("gateway");
        self.wait_until_reached();
    }

    /// The dial refuses clients until it has found that its server is back.
    fn wait_until_reached(&self) {
        let reached = until(SECONDS, || Ok(self.smbclient(&[], "ls").succeeded()));
        assert!(
            reached.expect("smbclient ends"),
            "{}",
            self.smbclient(&[], "ls").output
        );
    }

    /// Starts the dial again.
    ///
    /// # Panics
    /// When it does not listen.
    pub fn restart_dial(&mut self) {
        self.dial = self.start("dial");
    }

    fn start(&self, role: &str) -> Process {
        start(
            &self.namespace,
            &self.folder,
            self.setup,
            &words(role, self.setup, self.folder.path()),
        )
    }

    /// Starts another dial at `listen`, to an SMB Direct server at `server`.
    ///
    /// # Panics
    /// When it does not listen.
    pub fn another_dial(&self, listen: SocketAddr, server: SocketAddr) -> Process {
        let folder = TempDir::new().expect("a folder");
        let words = format!("dial --listen {listen} --server {server}");
        start(&self.namespace, &folder, Setup::Options, &words)
    }

    /// The path of the control socket of `gateway` or `dial`.
    pub fn control(&self, role: &str) -> PathBuf {
        control(&self.folder, role)
    }

    /// Runs a command of rockery, such as `top --total`, with the control socket of `gateway` or `dial`, and
    /// returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn ask(&self, role: &str, words: &str) -> String {
        let rockery = Rockery::built().path().display().to_string();
        let line = format!(
            "{rockery} {words} --control {}",
            self.control(role).display()
        );
        let mut process = self
            .namespace
            .start_plain(&split(&line))
            .expect("it starts");
        process
            .wait(SECONDS)
            .expect("it ends")
            .expect_success()
            .output
    }

    /// The report of `gateway` or `dial`.
    ///
    /// # Panics
    /// When it gives none.
    pub fn report(&self, role: &str) -> Value {
        serde_json::from_str(&self.ask(role, "serve status")).expect("a report is JSON")
    }

    /// The metrics of `gateway` or `dial`, by HTTP.
    ///
    /// # Panics
    /// When it does not serve them.
    pub fn metrics(&self, role: &str) -> String {
        let url = format!("http://{}/metrics", metrics(role));
        let argv = ["curl", "-sSf", "--max-time", "20", &url];
        let mut process = self.namespace.start_plain(&argv).expect("it starts");
        process
            .wait(SECONDS)
            .expect("it ends")
            .expect_success()
            .output
    }

    /// Requests of `gateway` or `dial` whose data moved by RDMA: reads and writes.
    ///
    /// # Panics
    /// When it gives no report.
    pub fn moved(&self, role: &str) -> [u64; 2] {
        let report = self.report(role);
        ["read", "write"].map(|it| report[it]["requests"].as_u64().expect("a number"))
    }

    /// Keys that the gateway has invalidated at the dial, as the gateway and as the dial count them.
    ///
    /// # Panics
    /// When one gives no report.
    pub fn invalidated(&self) -> [u64; 2] {
        ["gateway", "dial"].map(|role| self.report(role)["invalidated"].as_u64().expect("a number"))
    }

    /// The number of connections of `gateway` or `dial`.
    ///
    /// # Panics
    /// When it gives no report.
    pub fn connections(&self, role: &str) -> usize {
        self.report(role)["connections"]
            .as_array()
            .expect("a list")
            .len()
    }

    /// Waits until neither gateway nor dial has a connection or holds data.
    ///
    /// # Panics
    /// When they do for `SECONDS`.
    #[track_caller]
    pub fn wait_until_idle(&self) {
        let is_idle = |role: &&str| {
            let report = self.report(role);
            report["connections"].as_array().is_some_and(Vec::is_empty) && report["data_bytes"] == 0
        };
        let idle =
            until(SECONDS, || Ok(["gateway", "dial"].iter().all(is_idle))).expect("no error");
        assert!(idle, "{} {}", self.report("gateway"), self.report("dial"));
    }

    /// Runs smbclient through the chain.
    ///
    /// # Panics
    /// When it does not end.
    pub fn smbclient(&self, options: &[&str], commands: &str) -> Finished {
        run(
            &self.namespace,
            &smbclient(DIAL, SHARE, options, commands),
            SECONDS,
        )
        .expect("it ends")
    }

    /// Writes a file through the chain, and reads it again under another name.
    ///
    /// # Panics
    /// When the copy differs.
    #[track_caller]
    pub fn there_and_back(&self, options: &[&str]) {
        let (original, copy) = (self.control("original"), self.control("copy"));
        let content: Vec<u8> = (0..FILE_BYTES)
            .map(|it| (it.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        fs::write(&original, &content).expect("our folder");
        let commands = format!(
            "put {} file; get file {}",
            original.display(),
            copy.display()
        );
        self.smbclient(options, &commands).expect_success();
        assert!(
            fs::read(&copy).expect("a copy") == content,
            "{options:?}: the copy differs"
        );
    }
}

impl Default for SmbChain {
    fn default() -> Self {
        Self::new()
    }
}

/// The words behind `rockery smb`, except those that every server gets.
fn words(role: &str, setup: Setup, folder: &Path) -> String {
    let metrics = metrics(role);
    let samba = SocketAddr::new(LOOPBACK, SAMBA);
    if setup == Setup::Files {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/smb");
        let text = fs::read_to_string(examples.join(format!("{role}.toml"))).expect("the example");
        let text = match role {
            "gateway" => text
                .replace(
                    "server = \"127.0.0.1:445\"",
                    &format!("server = \"{samba}\""),
                )
                .replace("192.0.2.1:445", &GATEWAY.to_string()),
            _ => text
                .replace("127.0.0.1:1445", &DIAL.to_string())
                .replace("192.0.2.1", &GATEWAY.ip().to_string()),
        };
        let file = folder.join(format!("{role}.toml"));
        fs::write(&file, text).expect("our folder");
        return format!("{role} --config {}", file.display());
    }
    match role {
        "gateway" => format!("gateway --rdma {GATEWAY} --server {samba} --metrics {metrics}"),
        _ => format!("dial --listen {DIAL} --server {GATEWAY} --metrics {metrics}"),
    }
}

/// Where `gateway` or `dial` serves its metrics.
fn metrics(role: &str) -> SocketAddr {
    let port = METRICS
        .iter()
        .find(|(of, _)| *of == role)
        .expect("gateway or dial")
        .1;
    SocketAddr::new(LOOPBACK, port)
}

fn control(folder: &TempDir, role: &str) -> PathBuf {
    folder.path().join(role)
}

fn split(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Starts `rockery smb`, and waits until it listens.
fn start(namespace: &Namespace, folder: &TempDir, setup: Setup, words: &str) -> Process {
    let rockery = Rockery::built().path().display().to_string();
    let control = control(folder, words.split(' ').next().unwrap_or_default());
    let mut line = format!(
        "{rockery} smb {words} --control {} --log info",
        control.display()
    );
    if setup == Setup::SystemVerbs {
        line = format!("{rockery} run -- {line} --system-verbs");
    }
    let mut process = namespace.start_plain(&split(&line)).expect("it starts");
    let listens =
        until(SECONDS, || Ok(process.output()?.contains("listening on "))).expect("its output");
    assert!(listens, "{words}: {}", process.output().unwrap_or_default());
    process
}
