//! The ends of hosts, exports and servers by signals: commands that a process has sent are executed before it
//! ends, or it says that they may come later.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use programs::Rockery;
use programs::machine::until;
use programs::storage::{NQN, Server};
use tempfile::TempDir;

const SECONDS: u64 = 60;
const BLOCK: usize = 4096;
/// The longest write of `rockery nvme write`.
const CHUNK: usize = 1 << 20;
/// For what leaves no trace that could be waited for: that bytes lie in the socket of a stopped process.
const A_MOMENT: Duration = Duration::from_millis(300);

fn signal(name: &str, process: u32) {
    assert!(
        Command::new("kill")
            .args(["-s", name, &process.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// A server that can be stopped and continued; a stopped one could not be killed by its drop otherwise.
struct Stoppable(Server);

impl Stoppable {
    fn start(folder: &Path) -> Self {
        Self(Server::start(folder, "--memory 16M").unwrap())
    }

    fn stop(&self) {
        signal("STOP", self.0.id());
    }

    fn go_on(&self) {
        signal("CONT", self.0.id());
    }

    /// How many writes were executed.
    fn writes(&self) -> u64 {
        let status = self.0.ask("serve status").unwrap();
        let writes = status
            .lines()
            .find_map(|line| line.trim().strip_prefix("\"writes\": "));
        writes.unwrap().trim_end_matches(',').parse().unwrap()
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        self.go_on();
    }
}

/// A client of an NBD export.
struct Nbd(UnixStream);

impl Nbd {
    fn connect(socket: &Path) -> Self {
        let mut client = UnixStream::connect(socket).unwrap();
        client.read_exact(&mut [0; 18]).unwrap();
        let choice = [
            &3_u32.to_be_bytes()[..],
            b"IHAVEOPT",
            &1_u32.to_be_bytes(),
            &0_u32.to_be_bytes(),
        ];
        client.write_all(&choice.concat()).unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        Self(client)
    }

    fn write(&mut self) {
        let head = [
            &0x2560_9513_u32.to_be_bytes()[..],
            &[0, 0, 0, 1],
            &[7; 8],
            &[0; 8],
        ]
        .concat();
        let request = [&head[..], &(BLOCK as u32).to_be_bytes(), &[9; BLOCK]].concat();
        self.0.write_all(&request).unwrap();
    }

    /// The error value of the reply; `None` at the end of the connection.
    fn reply(&mut self) -> Option<u32> {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).ok()?;
        Some(u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]))
    }
}

fn nvme(folder: &Path, words: &str) -> Command {
    let mut command = Rockery::built().command();
    command
        .arg("nvme")
        .args(words.split_whitespace())
        .env("XDG_RUNTIME_DIR", folder);
    // `connect` leaves a process that keeps its standard error: a pipe would not end.
    command.stderr(fs::File::create(folder.join("errors")).unwrap());
    command
}

/// An export in the background, and a client of it whose write lies in the socket of the stopped server.
fn export_with_a_write(folder: &Path, server: &Stoppable) -> Nbd {
    let connected = nvme(
        folder,
        &format!("connect {} --subsystem {NQN}", server.0.address()),
    )
    .output();
    assert!(connected.unwrap().status.success());
    let mut nbd = Nbd::connect(&folder.join("rockery/nvme/disk.sock"));
    server.stop();
    nbd.write();
    std::thread::sleep(A_MOMENT);
    nbd
}

#[test]
fn disconnect_returns_when_the_writes_of_before_are_executed() {
    let folder = TempDir::new().unwrap();
    let server = Stoppable::start(folder.path());
    let mut nbd = export_with_a_write(folder.path(), &server);
    let mut disconnect = nvme(folder.path(), "disconnect").spawn().unwrap();
    std::thread::sleep(A_MOMENT);
    server.go_on();
    assert_eq!(
        nbd.reply(),
        Some(0),
        "the client gets the reply to its write"
    );
    assert!(disconnect.wait().unwrap().success());
    assert_eq!(server.writes(), 1);
    assert!(!folder.path().join("rockery/nvme/disk.sock").exists());
}

#[test]
fn disconnect_says_when_the_target_has_not_shut_down() {
    let folder = TempDir::new().unwrap();
    let server = Stoppable::start(folder.path());
    let _nbd = export_with_a_write(folder.path(), &server);
    let Output { status, .. } = nvme(folder.path(), "disconnect").output().unwrap();
    let said = fs::read_to_string(folder.path().join("errors")).unwrap();
    assert!(
        !status.success() && said.contains("controllers were not shut down"),
        "{said}"
    );
    assert!(
        nvme(folder.path(), "list")
            .output()
            .unwrap()
            .stdout
            .is_empty()
    );
}

/// Starts `rockery nvme export` in the foreground; returns when it listens.
fn export(folder: &Path, server: &Stoppable) -> Child {
    let socket = folder.join("nbd");
    let words = format!(
        "export {} --subsystem {NQN} --nbd unix:{}",
        server.0.address(),
        socket.display()
    );
    let mut child = nvme(folder, &words).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut String::new())
        .unwrap();
    child
}

#[test]
fn a_second_signal_ends_an_export_at_once() {
    let folder = TempDir::new().unwrap();
    let server = Stoppable::start(folder.path());
    for name in ["TERM", "INT"] {
        let mut child = export(folder.path(), &server);
        signal(name, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(0), "after SIG{name}");
        assert!(!folder.path().join("nbd").exists());
    }
    let mut child = export(folder.path(), &server);
    let mut nbd = Nbd::connect(&folder.path().join("nbd"));
    server.stop();
    nbd.write();
    signal("TERM", child.id());
    std::thread::sleep(A_MOMENT);
    assert!(
        child.try_wait().unwrap().is_none(),
        "it waits for the write"
    );
    signal("TERM", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

#[test]
fn a_write_that_is_interrupted_reaches_the_disk_before_the_process_ends() {
    let folder = TempDir::new().unwrap();
    let server = Stoppable::start(folder.path());
    let words = format!("write {} --subsystem {NQN}", server.0.address());
    let mut child = nvme(folder.path(), &words)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&vec![1; CHUNK]).unwrap();
    assert!(until(SECONDS, || Ok(server.writes() == 1)).unwrap());
    server.stop();
    input.write_all(&vec![2; CHUNK]).unwrap();
    std::thread::sleep(A_MOMENT);
    signal("INT", child.id());
    std::thread::sleep(A_MOMENT);
    assert!(
        child.try_wait().unwrap().is_none(),
        "it waits for the write"
    );
    server.go_on();
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    assert_eq!(server.writes(), 2);
}

#[test]
fn a_server_ends_in_order_at_a_signal_and_keeps_its_state() {
    for name in ["TERM", "INT"] {
        let folder = TempDir::new().unwrap();
        let state = folder.path().join("state");
        let disk = folder.path().join("disk");
        let words = format!(
            "{} --size 16MiB --state {} --log info",
            disk.display(),
            state.display()
        );
        let mut server = Server::start(folder.path(), &words).unwrap();
        let (_client, _queues) = server.connect(1, 8);
        server.ask(&format!("serve resize {NQN} 1 32MiB")).unwrap();
        signal(name, server.id());
        assert_eq!(
            server.wait().unwrap().code(),
            Some(0),
            "after SIG{name}: {}",
            server.log()
        );
        assert!(!server.control().exists());
        assert!(
            server
                .log()
                .contains("waiting for the commands that hosts have begun"),
            "{}",
            server.log()
        );
        assert!(fs::read_to_string(&state).unwrap().contains("32MiB"));
    }
}
