//! `rockery device-plugin` with a kubelet on Google's implementation of gRPC and protobuf, which is
//! `probe/kubelet.py`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use programs::Rockery;
use serde_json::{Value, json};
use tempfile::TempDir;

const RESOURCE: &str = "rdma/hca_shared_devices_a";
const SOCKET: &str = "rockery-rdma-hca_shared_devices_a.sock";

/// A process that ends with this value.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The kubelet in Python.
struct Kubelet {
    _process: Owned,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Kubelet {
    fn new(folder: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("probe/kubelet.py");
        let mut command = Command::new("/usr/bin/python3");
        command
            .arg(script)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3");
        let (input, output) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        Self {
            _process: Owned(process),
            input,
            output: BufReader::new(output),
        }
    }

    fn ask(&mut self, words: &Value) -> Value {
        writeln!(self.input, "{words}")
            .expect("packages python3-grpcio and python3-protobuf are needed");
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{words}: no answer"))
    }
}

/// An installation, the folder of sockets, and a plugin with these options.
struct Node {
    _prefix: TempDir,
    rockery: PathBuf,
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        let (prefix, rockery) = Rockery::built().installed();
        Self {
            _prefix: prefix,
            rockery,
            folder: TempDir::new().unwrap(),
        }
    }

    fn plugin(&self, options: &[&str]) -> Owned {
        let mut command = Command::new(&self.rockery);
        command
            .args(["device-plugin", "--resource", RESOURCE, "--folder"])
            .arg(self.folder.path());
        Owned(command.args(options).spawn().unwrap())
    }
}

#[test]
fn a_kubelet_registers_lists_and_allocates() {
    let node = Node::new();
    let mut kubelet = Kubelet::new(node.folder.path());
    let _plugin = node.plugin(&["--count", "3"]);
    assert_eq!(
        kubelet.ask(&json!(["registration"])),
        json!(["v1beta1", SOCKET, RESOURCE])
    );
    assert_eq!(
        kubelet.ask(&json!(["options"])),
        json!({ "pre-start": false, "preferred": false })
    );
    let devices = json!([
        ["rockery-0", "Healthy"],
        ["rockery-1", "Healthy"],
        ["rockery-2", "Healthy"]
    ]);
    assert_eq!(kubelet.ask(&json!(["watch"])), devices);
    let given = kubelet.ask(&json!([
        "allocate",
        [["rockery-1"], ["rockery-0", "rockery-2"]]
    ]));
    assert_eq!(
        given.as_array().map(Vec::len),
        Some(2),
        "one answer for each container: {given}"
    );
    assert_eq!(given[0], given[1]);
    // The same as in the specification of `rockery cdi`.
    let specification = Command::new(&node.rockery)
        .arg("cdi")
        .output()
        .unwrap()
        .stdout;
    let specification: Value = serde_json::from_slice(&specification).unwrap();
    let edits = &specification["devices"][0]["containerEdits"];
    let envs = given[0]["envs"].as_object().unwrap();
    assert_eq!(envs.len(), edits["env"].as_array().unwrap().len());
    for variable in edits["env"].as_array().unwrap() {
        let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
        assert_eq!(envs[name], value);
    }
    let mounts = edits["mounts"].as_array().unwrap().iter();
    let mounts: Vec<_> = mounts
        .map(|it| json!([it["containerPath"], it["hostPath"], true]))
        .collect();
    assert_eq!(given[0]["mounts"], json!(mounts));
    assert!(
        Path::new(mounts[0][1].as_str().unwrap())
            .join("libibverbs.so.1")
            .exists()
    );
    assert_eq!(given[0]["cdi"], json!([]));
}

#[test]
fn devices_that_are_not_there_are_refused() {
    let node = Node::new();
    let mut kubelet = Kubelet::new(node.folder.path());
    let _plugin = node.plugin(&["--count", "1"]);
    kubelet.ask(&json!(["registration"]));
    for ids in [
        json!(["rockery-1"]),
        json!([]),
        json!(["rockery-0", "mlx5_0"]),
    ] {
        let refused = kubelet.ask(&json!(["allocate", [ids]]));
        assert_eq!(refused["error"], "INVALID_ARGUMENT", "{refused}");
    }
    assert!(
        kubelet
            .ask(&json!(["allocate", [["rockery-0"]]]))
            .is_array(),
        "it serves on"
    );
}

#[test]
fn with_cdi_containers_get_the_name_of_the_device() {
    let node = Node::new();
    let mut kubelet = Kubelet::new(node.folder.path());
    let _plugin = node.plugin(&["--cdi"]);
    kubelet.ask(&json!(["registration"]));
    assert_eq!(
        kubelet.ask(&json!(["watch"])).as_array().map(Vec::len),
        Some(100),
        "the default"
    );
    let given = kubelet.ask(&json!(["allocate", [["rockery-99"]]]));
    assert_eq!(
        given,
        json!([{ "envs": {}, "mounts": [], "cdi": ["rockery.dev/rdma=all"] }])
    );
}

#[test]
fn a_kubelet_that_starts_again_or_later_finds_the_plugin() {
    let node = Node::new();
    let _plugin = node.plugin(&["--count", "2"]);
    let socket = node.folder.path().join(SOCKET);
    while !socket.exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut kubelet = Kubelet::new(node.folder.path());
    kubelet.ask(&json!(["registration"]));
    let devices = kubelet.ask(&json!(["watch"]));
    kubelet.ask(&json!(["restart"]));
    assert_eq!(
        kubelet.ask(&json!(["registration"])),
        json!(["v1beta1", SOCKET, RESOURCE])
    );
    assert_eq!(kubelet.ask(&json!(["watch"])), devices);
    // A kubelet also removes the sockets of all plugins when it starts.
    fs::remove_file(&socket).unwrap();
    kubelet.ask(&json!(["registration"]));
    assert_eq!(kubelet.ask(&json!(["watch"])), devices);
    assert!(
        kubelet
            .ask(&json!(["allocate", [["rockery-1"]]]))
            .is_array()
    );
}

#[test]
fn devices_are_unhealthy_while_the_libraries_are_gone() {
    let node = Node::new();
    let mut kubelet = Kubelet::new(node.folder.path());
    let _plugin = node.plugin(&["--count", "1"]);
    kubelet.ask(&json!(["registration"]));
    assert_eq!(
        kubelet.ask(&json!(["watch"])),
        json!([["rockery-0", "Healthy"]])
    );
    let libraries = node.rockery.parent().unwrap().join("../lib/rockery");
    let aside = libraries.with_file_name("aside");
    fs::rename(&libraries, &aside).unwrap();
    assert_eq!(
        kubelet.ask(&json!(["next_list"])),
        json!([["rockery-0", "Unhealthy"]])
    );
    fs::rename(&aside, &libraries).unwrap();
    assert_eq!(
        kubelet.ask(&json!(["next_list"])),
        json!([["rockery-0", "Healthy"]])
    );
}
