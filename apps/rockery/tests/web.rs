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
