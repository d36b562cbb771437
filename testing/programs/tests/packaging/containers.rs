//! `rockery cdi` with podman: containers of another distribution, without rockery in their image.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use programs::{Distribution, Rockery};
use serde_json::Value;
use tempfile::TempDir;

/// Gives the command `$2…` a folder of its own for specifications: `$1` is the only one in it.
const WITH_SPECIFICATION: &str = "mkdir -p /run/cdi && mount -t tmpfs cdi /run/cdi && \
                                  cp \"$1\" /run/cdi/rockery.json && shift && exec \"$@\"";
/// The least that a container can be given: no capability, no way to gain any, an ordinary user.
const WITHOUT_RIGHTS: [&str; 6] = [
    "--cap-drop",
    "all",
    "--security-opt",
    "no-new-privileges",
    "--user",
    "65534:65534",
];
/// Engines raise these limits unless they are given, which a container around this test may forbid.
const LIMITS: [&str; 4] = [
    "--ulimit",
    "nofile=4096:4096",
    "--ulimit",
    "nproc=4096:4096",
];

/// podman with folders of its own.
struct Engine {
    folder: TempDir,
    root: Distribution,
    _prefix: TempDir,
}

impl Engine {
    fn new() -> Self {
        let (prefix, rockery) = Rockery::built().installed();
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("cdi/rockery.json");
        let written = Command::new(rockery)
            .arg("cdi")
            .arg("--output")
            .arg(&file)
            .status();
        assert!(
            written.is_ok_and(|status| status.success()),
            "rockery cdi writes {}",
            file.display()
        );
        let root = Distribution::clean("debian-13", folder.path()).expect("Debian 13");
        Self {
            folder,
            root,
            _prefix: prefix,
        }
    }

    fn specification(&self) -> Value {
        let text =
            fs::read(self.folder.path().join("cdi/rockery.json")).expect("the specification");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Runs a program in a container with the device.
    fn container(&self, options: &[&str], program: &[&str]) -> Command {
        let at = |name: &str| self.folder.path().join(name).to_string_lossy().into_owned();
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            WITH_SPECIFICATION,
            "sh",
            &at("cdi/rockery.json"),
            "podman",
        ]);
        command.args([
            "--runtime",
            "runc",
            "--cgroup-manager",
            "cgroupfs",
            "--storage-driver",
            "vfs",
        ]);
        command.args(["--root", &at("storage"), "--runroot", &at("state")]);
        command.args(["run", "--rm", "--device", "rockery.dev/rdma=all"]);
        command.args(WITHOUT_RIGHTS).args(LIMITS).args(options);
        command.arg("--rootfs").arg(self.root.root()).args(program);
        command
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn passed(mut command: Command) -> String {
    let output = command.output().expect("unshare starts");
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

/// A container in the background, which ends with this object.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn containers_have_devices_without_rights() {
    let engine = Engine::new();
    let edits = &engine.specification()["devices"][0]["containerEdits"];
    assert!(edits.get("deviceNodes").is_none(), "{edits}");
    let devices = passed(engine.container(&["--network", "none"], &["ibv_devices"]));
    assert!(devices.contains("rk_lo"), "{devices}");
    let library = "/opt/rockery/lib/rockery/libibverbs.so.1";
    assert!(Path::new(&engine.root.root()).is_dir());
    let write = format!("test -s {library} && ! test -w {library}");
    passed(engine.container(&["--network", "none"], &["sh", "-c", &write]));
}

#[test]
fn perftest_runs_between_two_containers() {
    let engine = Engine::new();
    let cidfile = engine.folder.path().join("server");
    let options = ["--network", "none", "--cidfile", &cidfile.to_string_lossy()];
    let mut server = engine.container(&options, &["ib_write_bw", "-d", "rk_lo", "-n", "100"]);
    let server = Server(
        server
            .stdout(Stdio::null())
            .spawn()
            .expect("unshare starts"),
    );
    let client = "for try in 1 2 3 4 5 6 7 8 9; do \
                  ib_write_bw -d rk_lo -n 100 127.0.0.1 && exit; sleep 1; done; exit 1";
    let id = (0..600).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        fs::read_to_string(&cidfile)
            .ok()
            .filter(|id| !id.is_empty())
    });
    let network = format!(
        "container:{}",
        id.expect("the container of the server starts")
    );
    let said = passed(engine.container(&["--network", &network], &["sh", "-c", client]));
    assert!(said.contains("65536"), "{said}");
    drop(server);
}
