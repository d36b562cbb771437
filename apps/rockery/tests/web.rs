//! `rockery web`: runs that need more memory than there is for one.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// The server of a page; it ends with this object.
struct Web {
    process: Child,
    address: String,
}

impl Web {
    fn new(more: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rockery"))
            .args(["web", "--listen", "127.0.0.1:0"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = process.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let address = line.trim().trim_start_matches("http://");
        Self {
            process,
            address: address.trim_end_matches('/').to_owned(),
        }
    }

    /// The status and the body of the answer to a request without a body.
    fn ask(&self, request: &str, host: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// Sends a request for a run of a fabric file.
    fn post(&self, file: &str) -> TcpStream {
        let body = json!({ "do": "run", "text": file }).to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (address, length) = (&self.address, body.len());
        let head = format!(
            "POST /api/sim HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream
    }

    fn run(&self, file: &str) -> Value {
        let mut answer = String::new();
        self.post(file).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{body}"))
    }

    /// The processes of runs.
    fn runs(&self) -> usize {
        let id = self.process.id();
        let listed = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        // Threads of connections start them.
        let threads = std::fs::read_dir(format!("/proc/{id}/task"))
            .unwrap()
            .flatten();
        let of = |path: std::path::PathBuf| std::fs::read_to_string(path.join("children"));
        let all = threads.map(|thread| of(thread.path()).unwrap_or_default());
        let all: Vec<String> = all.chain(listed.ok()).collect();
        let mut ids: Vec<&str> = all
            .iter()
            .flat_map(|text| text.split_whitespace())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const SMALL: &str = "[topology]\nkind = \"star\"\nhosts = 3\n[[workload]]\n\
                     pattern = \"permutation\"\nmessages = 4\n";
/// 65,536 hosts, each with queue pairs to others: some gigabytes.
const LARGE: &str = "[topology]\nkind = \"fat-tree\"\nk = 64\n[[workload]]\npattern = \"permutation\"\n\
                     messages = 1000000\nmessage = \"1MiB\"\ndepth = 4096\nqps = 16\n";

#[test]
fn a_run_that_needs_more_memory_is_refused_and_others_go_on() {
    let web = Web::new(&["--memory", "300MiB"]);
    let refused = web.run(LARGE)["refused"].to_string();
    assert!(
        refused.contains("300MiB") && refused.contains("--memory"),
        "{refused}"
    );
    let small = web.run(SMALL);
    assert!(
        small.get("refused").is_none() && small.get("problems").is_none(),
        "{small}"
    );
}

#[test]
fn a_run_ends_when_its_client_is_gone() {
    let web = Web::new(&[]);
    let endless = SMALL.replace("messages = 4", "messages = 1000000000");
    let client = web.post(&endless);
    while web.runs() == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(web.runs(), 1, "the run is long enough");
    drop(client);
    while web.runs() > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_page_that_is_read_only_has_counters_and_runs_nothing() {
    let web = Web::new(&["--read-only"]);
    let get = |path: &str| web.ask(&format!("GET {path}"), &web.address);
    let (status, page) = get("/");
    assert_eq!(status, 200, "{page}");
    // Each file that the page loads is there, and the simulator's are not.
    for file in ["counters.js", "style.css"] {
        assert!(page.contains(file), "{page}");
    }
    for file in [
        "counters.js",
        "style.css",
        "live.js",
        "devices.js",
        "storage.js",
        "labs.js",
    ] {
        assert_eq!(get(&format!("/{file}")).0, 200, "{file}");
    }
    for file in ["main.js", "editor.js", "engine.js", "worker.js"] {
        assert_eq!(get(&format!("/{file}")).0, 404, "{file}");
    }
    for (name, key) in [
        ("devices", "devices"),
        ("storage", "servers"),
        ("labs", "labs"),
    ] {
        let (status, body) = get(&format!("/api/{name}"));
        let figures: Value = serde_json::from_str(&body).unwrap();
        assert!(
            status == 200 && figures.get(key).is_some(),
            "{name}: {body}"
        );
    }
    for (request, status) in [
        ("POST /api/sim", 403),
        ("GET /api/sim", 404),
        ("PUT /", 405),
        ("DELETE /api/labs", 405),
    ] {
        assert_eq!(web.ask(request, &web.address).0, status, "{request}");
    }
    assert_eq!(web.ask("GET /", "evil.example").0, 403);
    let mut answer = String::new();
    let mut stream = web.post(SMALL);
    let _ = stream.read_to_string(&mut answer);
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(web.runs(), 0);
}

#[test]
fn an_address_that_others_reach_is_for_counters_only() {
    let start = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_rockery"))
            .args(["web", "--listen", "0.0.0.0:0"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let refused = start(&[]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("--read-only"),
        "{said}"
    );
    let mut process = start(&["--read-only"]);
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .trim()
        .trim_start_matches("http://")
        .replace("0.0.0.0", "127.0.0.1");
    let web = Web {
        process,
        address: address.trim_end_matches('/').to_owned(),
    };
    assert_eq!(web.ask("GET /api/labs", &web.address).0, 200);
}
