//! Servers as users start them: names and identifiers that tell disks apart, and names of files that mean the
//! same after a restart in another folder.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use programs::Rockery;
use tempfile::TempDir;

/// A server in a working directory, and what it printed.
struct Server {
    child: Child,
    name: String,
    address: String,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn rockery(folder: &Path, words: &str) -> Command {
    let mut command = Command::new(Rockery::built().path());
    command
        .args(words.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

/// What a command prints on standard output, and on standard error.
fn run(folder: &Path, words: &str) -> (String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = rockery(folder, words).output().unwrap();
    let [said, log] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(status.success(), "{words}: {log}");
    (said, log)
}

impl Server {
    fn start(folder: &Path, words: &str) -> Self {
        let log = folder.join(format!("log-{}", fs::read_dir(folder).unwrap().count()));
        let words = format!("serve nvme {words} --listen 127.0.0.1:0");
        let mut command = rockery(folder, &words);
        command
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let (mut name, mut address) = (String::new(), String::new());
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((subsystem, _)) = line.split_once(" namespace ") {
                subsystem.clone_into(&mut name);
            }
            if let Some(at) = line.strip_prefix("listening on ") {
                at.clone_into(&mut address);
                break;
            }
        }
        assert!(
            !address.is_empty(),
            "{words}: {}",
            fs::read_to_string(&log).unwrap()
        );
        Self {
            child,
            name,
            address,
            log,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// What our host sees: name, serial number, UUIDs and NGUIDs, without the controller's identifier.
    fn seen(&self, folder: &Path) -> String {
        let (said, _) = run(folder, &format!("nvme id-ctrl {}", self.address));
        assert!(
            said.contains("uuid") && said.contains("nguid") && said.contains(&self.name),
            "{said}"
        );
        said.lines()
            .filter(|line| !line.starts_with("controller"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The values behind a word.
    fn values(&self, folder: &Path, word: &str) -> Vec<String> {
        let seen = self.seen(folder);
        let values = seen
            .lines()
            .filter_map(|line| line.trim().strip_prefix(word));
        values.map(|value| value.trim().to_owned()).collect()
    }
}

#[test]
fn two_files_are_two_disks_and_a_restart_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let start =
        |number: u8, words: &str| Server::start(folder, &format!("{words} --control c{number}"));
    let (first, second) = (start(1, "a.img --size 1MiB"), start(2, "b.img --size 1MiB"));
    assert_ne!(first.name, second.name);
    for word in ["uuid", "nguid"] {
        assert_ne!(
            first.values(folder, word),
            second.values(folder, word),
            "{word}"
        );
    }
    // The same name does not make them one disk.
    let name = "--subsystem nqn.2024-01.org.example:disk";
    let (third, fourth) = (
        start(3, &format!("c.img --size 1MiB {name}")),
        start(4, &format!("d.img --size 1MiB {name}")),
    );
    assert_eq!(third.name, fourth.name);
    for word in ["uuid", "nguid"] {
        assert_ne!(
            third.values(folder, word),
            fourth.values(folder, word),
            "{word}"
        );
    }
    let seen = first.seen(folder);
    assert_eq!(start(5, "a.img").seen(folder), seen, "one file is one disk");
    drop(first);
    assert_eq!(start(6, "./a.img").seen(folder), seen, "after a restart");

    let memory = [start(7, "--memory 1MiB"), start(8, "--memory 1MiB")];
    assert_ne!(memory[0].name, memory[1].name);
}

/// A server with the lines of another one is a path to its disk.
#[test]
fn printed_identifiers_make_another_server_a_path_to_the_disk() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let first = Server::start(folder, "a.img --size 1MiB --control one");
    let (lines, _) = run(folder, "serve identifiers --control one");
    let lines = lines.replace(
        "[[subsystem.namespace]]\n",
        "[[subsystem.namespace]]\nfile = \"b.img\"\nsize = 1048576\n",
    );
    fs::write(
        folder.join("path.toml"),
        format!("{lines}[[port]]\naddress = \"127.0.0.1:0\"\n"),
    )
    .unwrap();
    let second = Server::start(folder, "--config path.toml --control two");
    assert_eq!(second.seen(folder), first.seen(folder));

    // The options do the same, here with what earlier versions derived from the names.
    let (lines, _) = run(folder, "serve identifiers --former");
    let value = |key: &str| {
        let line = lines
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{key} = \"")))
            .unwrap();
        line.trim_end_matches('"').to_owned()
    };
    let options = ["uuid", "nguid", "serial"]
        .map(|key| format!("--{key} {}", value(key)))
        .join(" ");
    let subsystem = "--subsystem nqn.2024-01.org.rockery:disk";
    let former = Server::start(
        folder,
        &format!("c.img --size 1MiB {subsystem} {options} --control three"),
    );
    assert_eq!(
        former.values(folder, "uuid"),
        ["49413ec9-4ecd-8654-b5eb-9cf5fa054add"]
    );
    assert_eq!(
        former.values(folder, "nguid"),
        ["ef425865220241aaf0a65581a1313037"]
    );
    assert!(former.seen(folder).contains("4e42390ebf14e688"));
}

/// Everything that is kept names files in the same way in every folder.
#[test]
fn relative_paths_mean_the_same_after_a_restart_in_another_folder() {
    let folder = TempDir::new().unwrap();
    let (here, elsewhere) = (folder.path().join("here"), folder.path().join("elsewhere"));
    for folder in [&here, &elsewhere] {
        fs::create_dir(folder).unwrap();
    }
    let control = folder.path().join("control").display().to_string();
    let state = here.join("state.toml").display().to_string();
    let server = Server::start(
        &here,
        &format!("a.img --size 1MiB --state state.toml --control {control}"),
    );
    run(
        &here,
        &format!(
            "serve add {} b.img --size 1MiB --control {control}",
            server.name
        ),
    );
    run(
        &elsewhere,
        &format!(
            "serve add {} ../elsewhere/c.img --size 1MiB --control {control}",
            server.name
        ),
    );
    let written = "blocks of a file that is not to be lost";
    let mut write = rockery(
        &here,
        &format!("nvme write {} --namespace 1", server.address),
    );
    let mut child = write.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), written.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let (config, _) = run(&elsewhere, &format!("serve config --control {control}"));
    for (folder, name) in [(&here, "a.img"), (&here, "b.img")] {
        assert!(
            config.contains(&format!("\"{}\"", folder.join(name).display())),
            "{config}"
        );
    }
    let (name, seen) = (server.name.clone(), server.seen(&here));
    drop(server);

    fs::write(elsewhere.join("config.toml"), config).unwrap();
    for words in [
        format!("--state {state}"),
        "--config config.toml".to_owned(),
    ] {
        let server = Server::start(&elsewhere, &format!("{words} --control {control}"));
        assert_eq!(
            (&server.name, server.seen(&elsewhere)),
            (&name, seen.clone()),
            "{words}"
        );
        let (read, _) = run(
            &elsewhere,
            &format!("nvme read {} --blocks 1", server.address),
        );
        assert!(read.starts_with(written), "{words}");
        assert!(
            !elsewhere.join("a.img").exists() && !elsewhere.join("b.img").exists(),
            "{words}"
        );
    }
}

#[test]
fn bytes_that_hosts_do_not_reach_are_reported() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    for name in ["odd.img", "added.img", "listed.img"] {
        fs::write(folder.join(name), vec![1; 1_000_001]).unwrap();
    }
    let has = |text: &str, numbers: &[&str]| {
        assert!(
            numbers.iter().all(|number| text.contains(number)),
            "{numbers:?}: {text}"
        );
    };
    let server = Server::start(folder, "odd.img --control one");
    has(&server.log(), &["odd.img", "1000001", "999424", "577"]);
    let ask = |words: &str| run(folder, &format!("serve {words} --control one")).1;
    has(
        &ask(&format!("add {} added.img --block-size 512", server.name)),
        &["added.img", "1000001", "999936"],
    );
    has(
        &ask(&format!("resize {} 1 1000100", server.name)),
        &["odd.img", "1000100", "999424"],
    );
    assert_eq!(ask(&format!("resize {} 1 1003520", server.name)), "");
    let front = Server::start(folder, "listed.img --size 64KiB --control two");
    has(&front.log(), &["listed.img", "1000001", "65536"]);
    drop(front);
    let text = r#"
        [[subsystem]]
        nqn = "nqn.2024-01.org.example:disk"
        [[subsystem.namespace]]
        id = 1
        file = "listed.img"
        read-only = true
        size = "2MiB"
        [[port]]
        address = "127.0.0.1:0"
    "#;
    fs::write(folder.join("config.toml"), text).unwrap();
    let larger = Server::start(folder, "--config config.toml --control two");
    has(
        &larger.log(),
        &["listed.img", "1000001", "2097152", "999424"],
    );
    drop(larger);
    let whole = Server::start(folder, "whole.img --size 1MiB --control two");
    assert_eq!(whole.log(), "");
}

#[test]
fn a_host_uses_the_only_subsystem_and_does_not_choose_among_several() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let server = Server::start(folder, "--memory 1MiB --control one");
    assert_eq!(
        run(folder, &format!("nvme read {} --blocks 1", server.address))
            .0
            .len(),
        4096
    );
    let other = "nqn.2024-01.org.example:other";
    run(
        folder,
        &format!("serve add-subsystem {other} --serial A1 --control one"),
    );
    let refused = rockery(folder, &format!("nvme id-ctrl {}", server.address))
        .output()
        .unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    let told = [other, &server.name, "--subsystem"];
    assert!(
        !refused.status.success() && told.iter().all(|word| said.contains(word)),
        "{said}"
    );
    let named = run(
        folder,
        &format!("nvme id-ctrl {} --subsystem {other}", server.address),
    )
    .0;
    assert!(named.contains("(A1)"), "{named}");
}
