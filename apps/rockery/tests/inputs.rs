//! Input files that never end, that wait for a writer, or that are too large; names in input files that a
//! terminal would obey; and standard output without a reader, of every command that prints here.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const FABRIC: &str = "title = \"two \\u001b]0;pwn\\u0007\\u202e\"\n[topology]\nkind = \"star\"\nhosts = 3\n\
                      [[workload]]\npattern = \"permutation\"\nmessages = 4\n";
/// A snapshot with names of interfaces that contain escape sequences of terminals.
const SNAPSHOT: &str = "==> sysfs <==\n\
    /sys/class/infiniband/mlx5_0\u{9b}31m/ports/1/link_layer: Ethernet\n\
    /sys/class/infiniband/mlx5_0\u{9b}31m/ports/1/state: 1: DOWN\n\
    /sys/class/infiniband/mlx5_0\u{9b}31m/ports/1/gid_attrs/ndevs/0: eth0\u{202e}\n\
    /sys/class/net/eth0\u{202e}/mtu: 1500\n";

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        fs::write(place.path("fabric.toml"), FABRIC).unwrap();
        fs::write(place.path("host.txt"), SNAPSHOT).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn make_fifo(&self) {
        let made = Command::new("mkfifo").arg(self.path("fifo")).status();
        assert!(made.unwrap().success());
    }

    /// Runs `rockery` with these words in the folder of the place.
    fn rockery(&self, line: &str, stdout: Stdio) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockery"));
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path());
        command
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env("HOME", self.0.path());
        command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped());
        command.spawn().unwrap().wait_with_output().unwrap()
    }
}

/// Commands that read the file `FILE`.
const READERS: &[&str] = &[
    "doctor --host FILE",
    "doctor --switch FILE",
    "doctor --fabric FILE",
    "doctor lldp FILE",
    "doctor matrix FILE",
    "plan FILE --for h0=mlnx@5.8",
    "plan fabric.toml --for h0=mlnx@5.8 --diff FILE",
    "nvme id-ctrl 127.0.0.1:1 --secret @FILE",
    "serve nvme --config FILE",
    "smb gateway --config FILE",
    "smb dial --config FILE",
];

#[test]
fn devices_fifos_folders_and_long_files_are_refused_by_name() {
    let place = Place::new();
    place.make_fifo();
    fs::create_dir(place.path("folder")).unwrap();
    let long = fs::File::create(place.path("long")).unwrap();
    long.set_len(64 << 20).unwrap();
    for reader in READERS {
        for (file, reason) in [
            ("/dev/zero", "regular file"),
            ("fifo", "regular file"),
            ("folder", "regular file"),
            ("long", "MiB"),
        ] {
            let line = reader.replace("FILE", file);
            let ended = place.rockery(&line, Stdio::piped());
            let said = String::from_utf8(ended.stderr).unwrap();
            assert!(!ended.status.success(), "{line}: {said}");
            assert!(
                said.contains(file) && said.contains(reason),
                "{line}: {said}"
            );
        }
    }
}

/// Of a fabric file alone: it may be what another program prints.
#[test]
fn a_fabric_file_may_come_through_a_pipe_that_is_not_too_long() {
    let place = Place::new();
    let checked = |mut text: Box<dyn Read + Send>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockery"));
        command.args(["sim", "/dev/stdin", "--check"]);
        command.current_dir(place.0.path()).stdin(Stdio::piped());
        let mut child = command
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || std::io::copy(&mut text, &mut input));
        let ended = child.wait_with_output().unwrap();
        // A command that refuses the file reads no more of it.
        let _ = writer.join().unwrap();
        ended
    };
    let ended = checked(Box::new(FABRIC.as_bytes()));
    assert!(ended.status.success(), "{ended:?}");
    let ended = checked(Box::new(std::io::repeat(b'#')));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && said.contains("16 MiB"), "{said}");
}

#[test]
fn a_capture_or_record_in_a_fifo_without_a_reader_is_refused() {
    let place = Place::new();
    place.make_fifo();
    for option in ["--pcap", "--record"] {
        let ended = place.rockery(&format!("run {option} fifo -- true"), Stdio::piped());
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(
            !ended.status.success() && said.contains("no process reads"),
            "{option}: {said}"
        );
    }
}

/// Commands that print, and need no server, lab or adapter.
const PRINTERS: &[&str] = &[
    "--help",
    "devices",
    "devices --json",
    "listeners",
    "sim fabric.toml",
    "sim fabric.toml --json -",
    "sim fabric.toml --csv -",
    "plan fabric.toml --for h0=mlnx@5.8",
    "doctor --host host.txt",
    "doctor --host host.txt --json",
    "doctor snapshot",
    "doctor",
    "vf show fabric.toml",
    "completions bash",
    "env",
    "cdi",
    "lab ps",
    "lab ps --json",
];

#[test]
fn a_terminal_gets_no_control_characters_of_names() {
    let place = Place::new();
    let mut shown = 0;
    for line in PRINTERS
        .iter()
        .filter(|line| !line.starts_with("completions"))
    {
        let ended = place.rockery(line, Stdio::piped());
        for said in [ended.stdout, ended.stderr] {
            let said = String::from_utf8(said).unwrap();
            let obeyed = |it: char| it.is_control() && !"\n\t".contains(it) || it == '\u{202e}';
            assert!(!said.contains(obeyed), "{line}: {said:?}");
            shown += usize::from(said.contains("\\u{9b}") || said.contains("\\u009b"));
        }
    }
    assert!(shown >= 2, "{shown} outputs have the names");
}

#[test]
fn no_command_panics_where_its_output_is_a_closed_pipe() {
    let place = Place::new();
    for line in PRINTERS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = place.rockery(line, writer.into());
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(!said.contains("panicked"), "{line}: {said}");
        assert_ne!(ended.status.code(), Some(101), "{line}: {said}");
    }
    assert!(Path::new(env!("CARGO_BIN_EXE_rockery")).exists());
}
