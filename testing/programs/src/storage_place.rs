//! Storage between a server of ours and the Linux kernel as its host.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::machine::until;
use crate::namespace::Process;
use crate::storage::{HOST, HOST_ID, NQN};
use crate::{Error, Guest, Job, Machine, Namespace, Rockery, Segment};

/// How long anything may take.
const SECONDS: u64 = 60;

/// A server in a namespace, and a guest that is its host.
#[derive(Debug)]
pub struct StoragePlace {
    folder: TempDir,
    /// Where servers run.
    pub server: Namespace,
    /// The guest with the NVMe host.
    pub guest: Guest,
    _segment: Segment,
}

impl StoragePlace {
    /// Both, on one network.
    ///
    /// # Panics
    /// When the host of this test cannot make them.
    pub fn new() -> Self {
        Self::with(Segment::storage_guest)
    }

    /// The same with a kernel whose NVMe host can authenticate and encrypt.
    ///
    /// # Panics
    /// As [`StoragePlace::new`].
    pub fn authenticating() -> Self {
        Self::with(Segment::authenticating_guest)
    }

    fn with(guest: impl FnOnce(&Segment, u8) -> Result<Guest, Error>) -> Self {
        let segment = Segment::new(1500).expect("a segment");
        let server = segment.namespace(1).expect("a namespace");
        let guest = guest(&segment, 11).expect("a guest");
        segment
            .introduce(&server, &guest)
            .expect("they hear each other");
        let place = Self {
            folder: TempDir::new().expect("a folder"),
            server,
            guest,
            _segment: segment,
        };
        place.shell("/sbin/modprobe nvme_tcp");
        place.shell("/sbin/modprobe ext4");
        place
    }

    /// A file of the server's.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn argv(&self, words: &str) -> Vec<String> {
        let rockery = Rockery::built().path().display().to_string();
        let control = format!("--control {}", self.file("control").display());
        format!("{rockery} serve {words} {control}")
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }

    /// Starts a server with these words and waits until it listens on port 4420.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn serve(&self, words: &str) -> Process {
        self.serve_without_state(&format!("{words} --state {}", self.file("state").display()))
    }

    /// The same without a state file.
    ///
    /// # Panics
    /// When the server does not listen.
    #[track_caller]
    pub fn serve_without_state(&self, words: &str) -> Process {
        let argv = self.argv(&format!("nvme {words}"));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let server = self.server.start_plain(&argv).expect("it starts");
        self.server
            .wait_for_listener(4420, SECONDS)
            .expect("it listens");
        server
    }

    /// Runs a command of the server; returns its output.
    ///
    /// # Panics
    /// When the command fails.
    #[track_caller]
    pub fn tell(&self, words: &str) -> String {
        let argv = self.argv(words);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let mut told = self.server.start_plain(&argv).expect("it starts");
        told.wait(SECONDS).expect("in time").expect_success().output
    }

    /// A line of shell in the guest, which has to succeed; returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn shell(&self, line: &str) -> String {
        self.guest
            .shell(line)
            .expect("the guest answers")
            .expect_success()
            .output
    }

    /// The same for nvme-cli.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn nvme(&self, words: &str) -> String {
        self.shell(&format!("nvme {words}"))
    }

    /// Copies a program of this host to the guest's `/tmp`, under its name: as a disk that only can be read.
    /// Nothing else may listen on port 4420 meanwhile.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn bring(&self, program: &Path) {
        let name = program
            .file_name()
            .expect("a program")
            .to_string_lossy()
            .into_owned();
        let plain = self.file(&name).display().to_string();
        let strip = ["strip", "-o", &plain, &program.display().to_string()];
        let mut stripped = self
            .server
            .start_plain(&strip)
            .expect("binutils is installed");
        stripped.wait(SECONDS).expect("in time").expect_success();
        let whole = std::fs::metadata(&plain)
            .expect("a file")
            .len()
            .next_multiple_of(4096);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&plain)
            .expect("a file");
        file.set_len(whole).expect("room");
        let argv = self.argv(&format!("nvme {plain} --read-only --subsystem {NQN}"));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let mut server = self.server.start_plain(&argv).expect("it starts");
        self.server
            .wait_for_listener(4420, SECONDS)
            .expect("it listens");
        self.connect("--nr-io-queues 1");
        self.shell(&format!(
            "dd if=/dev/nvme0n1 of=/tmp/{name} bs=1M 2>/dev/null && chmod +x /tmp/{name}"
        ));
        self.nvme(&format!("disconnect -n {NQN}"));
        server.kill().expect("it is ours");
        server.wait(SECONDS).expect("it ends");
    }

    /// Connects the guest to the subsystem by TCP, and waits for its first disk.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn connect(&self, options: &str) {
        self.connect_over("tcp", options);
    }

    /// The same by any transport.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn connect_over(&self, transport: &str, options: &str) {
        let address = self.server.address();
        let host = format!("-q {HOST} -I {HOST_ID}");
        self.nvme(&format!(
            "connect -t {transport} -a {address} -s 4420 -n {NQN} {host} {options}"
        ));
        self.wait_for_disk();
    }

    /// Waits until the guest has its first disk, for ten seconds at most: what uses the disk fails otherwise.
    ///
    /// # Panics
    /// When the guest does not answer.
    #[track_caller]
    pub fn wait_for_disk(&self) {
        self.shell(
            "i=0; until [ -b /dev/nvme0n1 ] || [ $i = 100 ]; do i=$((i+1)); sleep 0.1; done",
        );
    }

    /// Waits until a line of shell in the guest prints this.
    ///
    /// # Panics
    /// When that takes too long; with the end of the kernel's log.
    #[track_caller]
    pub fn wait_until_printed(&self, line: &str, wanted: &str) {
        let is_printed = || Ok(self.guest.shell(line)?.output.trim() == wanted);
        assert!(
            until(SECONDS, is_printed).expect("the guest answers"),
            "{line} does not print {wanted}: {}",
            self.shell("dmesg | tail")
        );
    }
}

impl Default for StoragePlace {
    fn default() -> Self {
        Self::new()
    }
}
