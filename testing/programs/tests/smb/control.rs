//! Several SMB gateways and dials on one host: each has a control socket of its own, and the commands that
//! report find all of them.

use std::path::PathBuf;

use programs::namespace::Process;
use programs::{Finished, Job, Namespace, Rockery};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take on a busy machine.
const SECONDS: u64 = 60;

/// A network namespace, and a folder for the default sockets.
struct Place {
    namespace: Namespace,
    runtime: TempDir,
}

impl Place {
    fn new() -> Self {
        let namespace = Namespace::with_rockery();
        Self {
            namespace,
            runtime: TempDir::new().expect("a folder"),
        }
    }

    fn start(&self, words: &str) -> Process {
        let rockery = Rockery::built().path().display().to_string();
        let runtime = format!("XDG_RUNTIME_DIR={}", self.runtime.path().display());
        let words = words.split_whitespace();
        let argv: Vec<&str> = ["env", &runtime, &rockery]
            .into_iter()
            .chain(words)
            .collect();
        self.namespace.start_plain(&argv).expect("it starts")
    }

    fn serve(&self, words: &str) -> Process {
        let mut process = self.start(&format!("smb {words}"));
        process.expect_output("listening on ", SECONDS);
        process
    }

    fn run(&self, words: &str) -> Finished {
        self.start(words).wait(SECONDS).expect("it ends")
    }

    /// What `rockery serve status` prints.
    fn status(&self) -> Value {
        serde_json::from_str(&self.run("serve status").expect_success().output).expect("JSON")
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.runtime.path().join("rockery").join(name)
    }
}

const DIAL: &str = "dial --listen 127.0.0.1:2445 --server 127.0.0.1:445";
/// Servers beside that dial: the last one without a control socket.
const OTHERS: [&str; 4] = [
    "dial --listen 127.0.0.1:2446 --server 127.0.0.1:445",
    "gateway --rdma 127.0.0.1:445 --server 127.0.0.1:1445",
    "gateway --rdma [::1]:446 --rdma 127.0.0.1:447 --server 127.0.0.1:1445",
    "dial --listen 127.0.0.1:2447 --server 127.0.0.1:445 --control none",
];
/// The default sockets of all these.
const SOCKETS: [&str; 4] = [
    "smb-dial-127.0.0.1-2445.sock",
    "smb-dial-127.0.0.1-2446.sock",
    "smb-gateway-127.0.0.1-445.sock",
    "smb-gateway-::1-446.sock",
];

fn names(status: &Value) -> Vec<String> {
    let all = status.as_object().expect("an object");
    all.keys().cloned().collect()
}

#[test]
fn the_report_of_the_only_server_needs_no_socket() {
    let place = Place::new();
    let _dial = place.serve(DIAL);
    assert_eq!(place.status()["smb"], "dial", "the report itself");
    let top = place.run("top --total").expect_success().output;
    assert!(top.starts_with("SMB dial: "), "{top}");
}

#[test]
fn gateways_and_dials_on_one_host_have_sockets_of_their_own() {
    let place = Place::new();
    let _dial = place.serve(DIAL);
    let _others = OTHERS.map(|words| place.serve(words));
    let sockets = SOCKETS.map(|name| place.socket(name).display().to_string());
    let all = place.status();
    assert_eq!(names(&all), sockets);
    assert_eq!(
        (&all[&sockets[1]]["smb"], &all[&sockets[3]]["smb"]),
        (&"dial".into(), &"gateway".into())
    );
    for how in ["--total", "--once --interval 0.1"] {
        let pages = place.run(&format!("top {how}")).expect_success().output;
        assert_eq!(pages.matches("SMB dial: ").count(), 2, "{pages}");
        assert_eq!(pages.matches("SMB gateway: ").count(), 2, "{pages}");
        assert!(
            sockets.iter().all(|path| pages.contains(path.as_str())),
            "{pages}"
        );
    }
    let metrics = place.run("serve metrics");
    assert!(
        !metrics.succeeded() && metrics.output.contains(&sockets[2]),
        "{}",
        metrics.output
    );
    let one = place
        .run(&format!("serve metrics --control {}", sockets[2]))
        .expect_success()
        .output;
    assert!(
        one.contains("rockery_smb_ended_total{role=\"gateway\"} 0"),
        "{one}"
    );
}

#[test]
fn the_socket_that_a_killed_server_leaves_is_no_server() {
    let place = Place::new();
    let mut dial = place.serve(DIAL);
    let _others = OTHERS.map(|words| place.serve(words));
    let sockets = SOCKETS.map(|name| place.socket(name).display().to_string());
    dial.kill().expect("it is ours");
    assert!(place.socket(SOCKETS[0]).exists());
    assert_eq!(names(&place.status()), &sockets[1..]);
    let _dial = place.serve(DIAL);
    assert_eq!(names(&place.status()), sockets);
}

#[test]
fn a_socket_that_another_server_has_is_an_error() {
    let place = Place::new();
    let _first = place.serve("dial --listen 127.0.0.1:2445 --server 127.0.0.1:445");
    let taken = place
        .socket("smb-dial-127.0.0.1-2445.sock")
        .display()
        .to_string();
    // The address is free in another network namespace; the folder is the same.
    let other = Place {
        namespace: Place::new().namespace,
        runtime: place.runtime,
    };
    let refused = other.run("smb dial --listen 127.0.0.1:2445 --server 127.0.0.1:445");
    assert!(!refused.succeeded(), "{}", refused.output);
    assert!(
        refused.output.contains(&taken) && refused.output.contains("--control"),
        "{}",
        refused.output
    );
    let own = place_socket(&other);
    other.serve(&format!(
        "dial --listen 127.0.0.1:2445 --server 127.0.0.1:445 --control {own}"
    ));
}

fn place_socket(place: &Place) -> String {
    place
        .runtime
        .path()
        .join("other.sock")
        .display()
        .to_string()
}
