//! Two users of one machine, and storage: commands of one user get no answers of the other's processes, and
//! change no file and end no process that the other has named.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use programs::Rockery;
use programs::machine::until;
use programs::storage::{HOST, NQN, Server};
use tempfile::TempDir;

const SECONDS: u64 = 60;
/// A user without privileges.
const NOBODY: &str = "65534";

/// The distribution's, which every user can run.
const PYTHON: &str = "/usr/bin/python3";
/// Takes the name that root's rockery would use: a folder, a socket in it that records all that it receives,
/// and a link to root's file in the place of a record.
const SQUATTER: &str = r#"
import os, socket, sys
folder, precious, heard = sys.argv[1:]
os.umask(0)
os.mkdir(folder, 0o777)
os.mkdir(folder + "/nvme", 0o777)
os.symlink(precious, folder + "/nvme/disk.json")
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(folder + "/nvme.sock")
    listener.listen(16)
    print("ready", flush=True)
    while True:
        stream = listener.accept()[0]
        open(heard, "ab").write(stream.makefile("rb").readline())
        stream.close()
"#;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Rockery where all users may run it, and a folder that all users share.
struct Machine {
    shared: TempDir,
    _prefix: TempDir,
    rockery: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let (prefix, rockery) = Rockery::built().installed();
        let shared = TempDir::new().unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        Self {
            shared,
            _prefix: prefix,
            rockery,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shared.path().join(name)
    }

    /// A program of a user without `XDG_RUNTIME_DIR`.
    fn command(&self, user: &str, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", user, "--regid", user, "--clear-groups"])
            .arg(program);
        command
            .env_remove("XDG_RUNTIME_DIR")
            .env("TMPDIR", self.shared.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs rockery; whether it succeeded, and what it printed.
    fn run(&self, user: &str, words: &str) -> (bool, String) {
        let done = self
            .command(user, &self.rockery)
            .args(words.split_whitespace())
            .output()
            .unwrap();
        (
            done.status.success(),
            String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
        )
    }
}

#[test]
fn a_folder_of_another_user_is_not_used() {
    let machine = Machine::new();
    let (folder, heard, said) = (
        machine.path("rockery-0"),
        machine.path("heard"),
        machine.path("said"),
    );
    let own = TempDir::new().unwrap();
    let precious = own.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    let mut squatter = machine.command(NOBODY, Path::new(PYTHON));
    squatter
        .args(["-c", SQUATTER])
        .args([&folder, &precious, &heard]);
    let _squatter = Ended(
        squatter
            .stdout(fs::File::create(&said).unwrap())
            .spawn()
            .unwrap(),
    );
    assert!(
        until(SECONDS, || Ok(
            fs::read(&said).unwrap_or_default() == b"ready\n"
        ))
        .unwrap()
    );

    let secret = "DHHC-1:00:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi:";
    for words in [
        format!("serve secrets {NQN} {HOST} --secret {secret}"),
        "serve status".to_owned(),
        "serve nvme --memory 1M --listen 127.0.0.1:0".to_owned(),
        "top --once".to_owned(),
        "nvme list".to_owned(),
        "nvme connect 127.0.0.1:1".to_owned(),
        "nvme disconnect".to_owned(),
    ] {
        let (succeeded, said) = machine.run("0", &words);
        let told = [
            &*folder.display().to_string(),
            "user 65534",
            "XDG_RUNTIME_DIR",
        ];
        let is_told = told.iter().all(|word| said.contains(word));
        assert!(!succeeded && is_told, "{words}: {said}");
    }
    // Where a path is given, it is the process that is looked at.
    let (succeeded, said) = machine.run(
        "0",
        &format!("serve status --control {}/nvme.sock", folder.display()),
    );
    assert!(
        !succeeded && said.contains("a process of user 65534"),
        "{said}"
    );
    assert_eq!(
        fs::read(&heard).unwrap_or_default(),
        b"",
        "nothing was sent"
    );
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn each_user_has_a_server_and_finds_it() {
    let machine = Machine::new();
    let mut servers = Vec::new();
    for (user, name) in [
        ("0", "nqn.2024-01.org.example:root"),
        (NOBODY, "nqn.2024-01.org.example:nobody"),
    ] {
        let said = machine.path(&format!("said-{user}"));
        let mut server = machine.command(user, &machine.rockery);
        server.args([
            "serve",
            "nvme",
            "--memory",
            "1M",
            "--listen",
            "127.0.0.1:0",
            "--subsystem",
            name,
        ]);
        let output = fs::File::create(&said).unwrap();
        servers.push(Ended(
            server
                .stdout(output.try_clone().unwrap())
                .stderr(output)
                .spawn()
                .unwrap(),
        ));
        let is_up =
            || Ok(fs::read_to_string(&said).is_ok_and(|said| said.contains("listening on")));
        assert!(
            until(SECONDS, is_up).unwrap(),
            "{:?}",
            fs::read_to_string(&said)
        );
        let (succeeded, status) = machine.run(user, "serve status");
        assert!(succeeded && status.contains(name), "{status}");
    }
    // Only root is answered, no other user, even with the path of root's socket.
    let control = |user: &str| {
        format!(
            "serve status --control {}/rockery-{user}/nvme.sock",
            machine.shared.path().display()
        )
    };
    assert!(!machine.run(NOBODY, &control("0")).0);
    let (succeeded, said) = machine.run("0", &control(NOBODY));
    assert!(
        !succeeded && said.contains("a process of user 65534"),
        "root sends no secrets there: {said}"
    );
    assert!(machine.run(NOBODY, "serve status").0 && machine.run("0", "serve status").0);
}

/// A record that names another process ends neither that process nor the connection.
#[test]
fn disconnecting_ends_the_process_that_exports_and_no_other() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), "--memory 16M").unwrap();
    // `connect` leaves a process that keeps its standard error: a pipe would not end.
    let errors = folder.path().join("errors");
    let run = |words: &str| {
        let mut command = Command::new(Rockery::built().path());
        command
            .arg("nvme")
            .args(words.split_whitespace())
            .env("XDG_RUNTIME_DIR", folder.path());
        let done = command
            .stderr(fs::File::create(&errors).unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned()
            + &fs::read_to_string(&errors).unwrap();
        (done.status.success(), said)
    };
    let (connected, uri) = run(&format!("connect {} --subsystem {NQN}", server.address()));
    assert!(connected, "{uri}");
    let record = folder.path().join("rockery/nvme/disk.json");
    let right = fs::read_to_string(&record).unwrap();
    let number: u32 = right
        .split(['"', ':', ','])
        .find_map(|word| word.parse().ok())
        .unwrap();
    let mut innocent = Ended(Command::new("sleep").arg("600").spawn().unwrap());
    fs::write(
        &record,
        right.replace(&number.to_string(), &innocent.0.id().to_string()),
    )
    .unwrap();
    let (ended, said) = run("disconnect");
    assert!(
        !ended && said.contains("neither is ended") && said.contains(&number.to_string()),
        "{said}"
    );
    assert!(innocent.0.try_wait().unwrap().is_none());
    assert!(run("list").1.contains(uri.trim()));
    fs::write(&record, right).unwrap();
    let (ended, said) = run("disconnect");
    assert!(ended, "{said}");
    assert_eq!(run("list").1, "");
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[test]
fn an_export_replaces_no_file_that_is_no_socket() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), "--memory 16M").unwrap();
    let precious = folder.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    let mut command = Command::new("timeout");
    command
        .arg(SECONDS.to_string())
        .arg(Rockery::built().path());
    command.args([
        "nvme",
        "export",
        &server.address().to_string(),
        "--subsystem",
        NQN,
        "--nbd",
    ]);
    let done = command
        .arg(format!("unix:{}", precious.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        !done.status.success() && said.contains("it is a regular file"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}
