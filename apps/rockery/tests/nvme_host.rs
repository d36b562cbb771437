//! `rockery nvme` as the host of a target on loopback, and commands whose standard output is a closed pipe.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

const NQN: &str = "nqn.2024-01.org.example:disk";
const BLOCK: usize = 4096;
const BLOCKS: usize = 64;
/// SIGPIPE on every architecture of Linux but MIPS, Alpha and SPARC, which have the same number.
const BROKEN_PIPE: i32 = 13;

fn rockery() -> Command {
    Command::new(env!("CARGO_BIN_EXE_rockery"))
}

/// A pipe without a reader, as standard output.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A target with one disk in memory. It ends with this.
struct Target {
    process: Child,
    address: String,
    folder: TempDir,
}

impl Target {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut process = serve(folder.path(), Stdio::piped());
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
        Self {
            process,
            address: address.expect("the server listens"),
            folder,
        }
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// Runs `rockery nvme` with this action and these options, and passes `input` to it.
    fn host(&self, action: &str, options: &[&str], input: &[u8]) -> Output {
        let mut command = rockery();
        command
            .args(["nvme", action, &self.address])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut host = command.spawn().unwrap();
        host.stdin.take().unwrap().write_all(input).unwrap();
        host.wait_with_output().unwrap()
    }

    #[track_caller]
    fn write(&self, start: &str, data: &[u8]) {
        let written = self.host("write", &["--start", start], data);
        assert!(written.status.success(), "{written:?}");
    }

    fn read(&self) -> Vec<u8> {
        let read = self.host("read", &[], &[]);
        assert!(read.status.success(), "{read:?}");
        read.stdout
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Starts a target that listens on a free port, with its control socket in the folder.
fn serve(folder: &Path, output: Stdio) -> Child {
    let size = format!("{}KiB", (BLOCKS * BLOCK) >> 10);
    let mut command = rockery();
    command
        .args(["serve", "nvme", "--memory", &size, "--subsystem", NQN])
        .args(["--listen", "127.0.0.1:0", "--control"])
        .arg(folder.join("control"))
        .stdout(output);
    command.spawn().unwrap()
}

#[test]
fn the_error_for_a_name_that_is_no_nqn_names_its_option() {
    let target = Target::start();
    let named = ["--subsystem", NQN];
    for (options, right, wrong) in [
        (&["--host", "NOT-AN-NQN"][..], "--host", "--subsystem"),
        (
            &[&["--host", "x"][..], &named].concat(),
            "--host",
            "--subsystem",
        ),
        (&["--subsystem", "x"], "--subsystem", "--host"),
    ] {
        let refused = target.host("id-ctrl", options, &[]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success(), "{options:?}");
        assert!(
            said.contains(right) && !said.contains(wrong),
            "{options:?}: {said}"
        );
    }
}

#[test]
fn a_write_that_ends_within_a_block_keeps_the_rest_of_the_block() {
    let target = Target::start();
    let mut disk = vec![0x11; BLOCKS * BLOCK];
    target.write("0", &disk);
    // In the middle of the disk, in its last block, and less than a block.
    for (start, length) in [
        (2, 3 * BLOCK + 100),
        (BLOCKS - 2, 2 * BLOCK - 1),
        (9, 1),
        (20, 2 * BLOCK),
    ] {
        let data = vec![start as u8; length];
        target.write(&start.to_string(), &data);
        disk[start * BLOCK..][..length].copy_from_slice(&data);
        assert!(target.read() == disk, "{length} bytes from block {start}");
    }
}

/// The commands that print, with what they need.
fn printing(target: &Target) -> Vec<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (address, control) = (&target.address, target.control().display().to_string());
    let example = root.join("examples/incast.toml").display().to_string();
    let lines = [
        format!("nvme id-ctrl {address}"),
        format!("nvme discover {address}"),
        format!("nvme read {address}"),
        format!("nvme bench {address} --job randread:4k:1 --seconds 0.1 --warm-up 0"),
        format!("nvme bench {address} --job randread:4k:1 --seconds 0.1 --warm-up 0 --json"),
        format!("serve status --control {control}"),
        format!("serve config --control {control}"),
        format!("serve metrics --control {control}"),
        format!("serve identifiers --control {control}"),
        "serve identifiers --former".to_owned(),
        format!("top --total --control {control}"),
        format!("top --once --interval 0.1 --control {control}"),
        format!("sim {example}"),
        format!("sim {example} --check"),
        format!("sim {example} --json -"),
        format!("vf show {}", root.join("examples/functions.toml").display()),
        "devices".to_owned(),
        "devices --json".to_owned(),
        "doctor snapshot".to_owned(),
        "doctor".to_owned(),
        "doctor --json".to_owned(),
        "completions bash".to_owned(),
    ];
    lines
        .iter()
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

/// As cat(1) and other programs do: `rockery nvme id-ctrl … | head -1` prints one line.
#[test]
fn commands_end_silently_when_their_standard_output_is_closed() {
    let target = Target::start();
    // It does not end by itself.
    let watch = ["devices", "--watch", "0.1"].map(str::to_owned).to_vec();
    for arguments in printing(&target).into_iter().chain([watch]) {
        let mut command = rockery();
        command.args(&arguments).stdin(Stdio::null());
        let ended = command.stdout(closed()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(
            ended.status.signal(),
            Some(BROKEN_PIPE),
            "{arguments:?}: {said}"
        );
        // Notes for standard error may come before the first line.
        assert!(
            !said.to_lowercase().contains("pipe"),
            "{arguments:?}: {said}"
        );
    }
}

/// Errors of standard output other than a closed pipe are reported.
#[test]
fn commands_report_that_their_output_cannot_be_written() {
    let target = Target::start();
    for arguments in printing(&target) {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut command = rockery();
        command.args(&arguments).stdin(Stdio::null()).stdout(full);
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{arguments:?}");
        assert!(
            said.contains("standard output: No space left"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn a_server_whose_announcement_cannot_be_read_serves() {
    let folder = TempDir::new().unwrap();
    let process = serve(folder.path(), closed());
    let mut target = Target {
        process,
        address: String::new(),
        folder,
    };
    let control = target.control();
    let status = loop {
        let mut ask = rockery();
        ask.args(["serve", "status", "--control"]).arg(&control);
        let asked = ask.output().unwrap();
        if asked.status.success() {
            break String::from_utf8(asked.stdout).unwrap();
        }
        assert!(
            target.process.try_wait().unwrap().is_none(),
            "the server ended"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(status.contains(NQN), "{status}");
}

#[test]
fn the_record_of_a_running_export_that_is_not_understood_is_named_and_stays() {
    use std::os::unix::fs::DirBuilderExt;
    let base = TempDir::new().unwrap();
    let folder = base.path().join("rockery/nvme");
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder).unwrap();
    for name in ["running", "ended"] {
        std::fs::write(folder.join(format!("{name}.json")), "{}").unwrap();
    }
    let listener = std::os::unix::net::UnixListener::bind(folder.join("running.sock")).unwrap();
    let mut list = rockery();
    list.args(["nvme", "list"]);
    let listed = list.env("XDG_RUNTIME_DIR", base.path()).output().unwrap();
    drop(listener);
    let said = String::from_utf8_lossy(&listed.stderr);
    assert!(
        listed.status.success() && listed.stdout.is_empty(),
        "{said}"
    );
    assert!(
        said.contains("running.json is of a running export"),
        "{said}"
    );
    assert!(folder.join("running.json").exists(), "{said}");
    assert!(!folder.join("ended.json").exists(), "{said}");
}
