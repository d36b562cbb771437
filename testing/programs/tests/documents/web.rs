//! `rockery web` beside a storage target and a lab with a load: the page in Chromium shows figures that
//! change, and what has ended disappears from it.

use std::fs::{self, DirBuilder, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use buffer::Buffer;
use nvme::host::{Payload, transfer};
use programs::{Browser, Chromium, Rockery, storage};
use serde_json::{Value, json};
use tempfile::TempDir;
use wire::nvme::Io;

/// The page and the programs, on a busy machine.
const SECONDS: u64 = 120;
/// Markup with a script, which a page that does not escape it would run.
const MARKUP: &str = "<img src=x onerror=window.attacked=1>";

/// The runtime folder of a user of its own, and what runs there.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(TempDir::new().expect("a temporary folder"));
        DirBuilder::new()
            .mode(0o700)
            .create(place.sockets())
            .expect("our own folder");
        place
    }

    /// The folder of default control sockets.
    fn sockets(&self) -> PathBuf {
        self.0.path().join("rockery")
    }

    fn rockery(&self, words: &str) -> Command {
        let mut command = Command::new(Rockery::built().path());
        command
            .args(words.split_whitespace())
            .env("XDG_RUNTIME_DIR", self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts a command, and waits for the line that begins with `said`; what follows in that line.
    fn start(&self, words: &str, said: &str) -> (Running, String) {
        self.start_with(words, said, Stdio::inherit())
    }

    /// The same with another standard error.
    fn start_with(&self, words: &str, said: &str, errors: Stdio) -> (Running, String) {
        let mut child = self
            .rockery(words)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("rockery starts");
        let out = child.stdout.take().expect("a pipe");
        let running = Running(child);
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some(rest) = line.strip_prefix(said) {
                return (running, rest.to_owned());
            }
        }
        panic!("rockery {words} did not say {said}");
    }
}

/// A process that ends with this object.
struct Running(Child);

impl Running {
    fn kill(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A thread that goes on until this object is dropped.
struct Load(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Load {
    /// Reads from a target, and writes to it.
    fn of_target(address: &str) -> Self {
        let address = address.parse().expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (_client, mut queues) = storage::connect(address, 1, 4);
            while !stopping.load(Ordering::Relaxed) {
                let read = Payload::In(Buffer::zeroed(4096), 4096);
                let write = Payload::Out(Buffer::zeroed(4096), 4096);
                let read = queues[0].call("Read", transfer(Io::Read, 1, 0, 1), read);
                let write = queues[0].call("Write", transfer(Io::Write, 1, 0, 1), write);
                // A target that was killed ends the load.
                if read.is_err() || write.is_err() {
                    break;
                }
            }
        });
        Self(stop, Some(thread))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        _ = self.1.take().map(JoinHandle::join);
    }
}

/// A server at a default control socket, which answers each command with these bytes, and keeps connections
/// open.
fn answer_with(sockets: &Path, name: &str, bytes: Vec<u8>) {
    let listener = UnixListener::bind(sockets.join(name)).expect("our own folder");
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            _ = BufReader::new(&stream).read_line(&mut line);
            _ = (&stream).write_all(&bytes);
            kept.push(stream);
        }
    });
}

fn opened(address: &str) -> Chromium {
    let mut browser = Chromium::start().expect("chromium starts");
    browser.load(address).expect("the page");
    let sections = "document.querySelectorAll('#live > section').length === 3";
    browser
        .wait_for(&format!("document.body !== null && {sections}"), SECONDS)
        .expect("live counters");
    browser
}

/// The text of the cell in column `at` of the first row whose first cell is `row`, in the table with a label.
fn cell(table: &str, row: &str, at: usize) -> String {
    format!(
        "([...document.querySelectorAll('[aria-label={}] tbody tr')]\
         .find((row) => row.cells[0].textContent === {})?.cells[{at}].textContent ?? '')",
        json!(table),
        json!(row)
    )
}

/// Waits until a cell has a figure above zero, and then until it has another one.
fn expect_to_grow(browser: &mut Chromium, cell: &str) {
    browser
        .wait_for(&format!("parseFloat({cell}) > 0"), SECONDS)
        .expect("a figure");
    let before = browser.text(cell);
    browser
        .wait_for(&format!("{cell} !== {}", json!(before)), SECONDS)
        .expect("another figure");
}

/// Column titles of a table.
fn titles(browser: &mut Chromium, table: &str) -> Vec<String> {
    let titles = format!(
        "[...document.querySelectorAll('[aria-label={}] thead th')].map((cell) => cell.textContent)",
        json!(table)
    );
    let titles = browser.value(&titles).expect("titles");
    let texts = titles
        .as_array()
        .expect("a list")
        .iter()
        .map(|title| title.as_str().unwrap_or_default());
    texts.map(str::to_owned).collect()
}

fn column(browser: &mut Chromium, table: &str, title: &str) -> usize {
    let titles = titles(browser, table);
    titles
        .iter()
        .position(|one| one == title)
        .unwrap_or_else(|| panic!("{title}: {titles:?}"))
}

#[test]
fn figures_of_a_target_change_and_what_has_ended_disappears() {
    let place = Place::new();
    let words = format!(
        "serve nvme --memory 16M --listen 127.0.0.1:0 --subsystem {}",
        storage::NQN
    );
    let (mut target, listens) = place.start(&words, "listening on ");
    let _load = Load::of_target(&listens);
    let (_web, address) = place.start("web --listen 127.0.0.1:0", "");
    let mut browser = opened(&address);

    let (namespaces, hosts) = ("Namespaces", "Hosts");
    for title in ["reads", "writes", "MB"] {
        let at = column_when_there(&mut browser, namespaces, title);
        expect_to_grow(&mut browser, &cell(namespaces, storage::NQN, at));
    }
    // Rates need two samples.
    let rate = column(&mut browser, namespaces, "per s");
    let rated = format!("parseFloat({}) > 0", cell(namespaces, storage::NQN, rate));
    browser.wait_for(&rated, SECONDS).expect("a rate");
    let at = column(&mut browser, namespaces, "in progress");
    let depth = browser.text(&cell(namespaces, storage::NQN, at));
    assert!(
        depth.parse::<f64>().is_ok_and(|depth| depth >= 0.0),
        "{depth}"
    );
    let at = column(&mut browser, hosts, "reads");
    expect_to_grow(&mut browser, &cell(hosts, storage::HOST, at));

    // A table that has the focus keeps it while its figures change.
    let label = json!(namespaces);
    browser
        .value(&format!(
            "document.querySelector('[aria-label={label}]').focus()"
        ))
        .expect("a focus");
    let at = column(&mut browser, namespaces, "reads");
    expect_to_grow(&mut browser, &cell(namespaces, storage::NQN, at));
    assert_eq!(browser.text("document.activeElement.ariaLabel"), namespaces);

    target.kill();
    let none = "live.textContent.includes('None runs: rockery serve nvme') \
                && document.querySelector('#live .problem') === null";
    browser
        .wait_for(none, SECONDS)
        .expect("no target, and no error");
}

fn column_when_there(browser: &mut Chromium, table: &str, title: &str) -> usize {
    let there = format!(
        "document.querySelector('[aria-label={}] tbody tr') !== null",
        json!(table)
    );
    browser.wait_for(&there, SECONDS).expect("a table");
    column(browser, table, title)
}

/// Servers of other versions, or of an attacker who has got into the user's folder.
#[test]
fn text_of_a_server_is_escaped_and_slow_servers_delay_no_others() {
    let place = Place::new();
    let moved = json!({ "requests": 3, "bytes": 4_000_000 });
    let client = json!({
        "id": 1, "client": MARKUP, "has_session": true, "read": moved, "write": moved,
    });
    let report = json!({
        "smb": MARKUP, "at_ns": 5, "refused": 0, "ended": 0, "data_bytes": 0, "unauthenticated_bytes": 0,
        "read": moved, "write": moved, "invalidated": 0, "connections": [client],
    });
    answer_with(
        &place.sockets(),
        "smb-markup.sock",
        format!("{report}\n").into_bytes(),
    );
    answer_with(&place.sockets(), "smb-silent.sock", Vec::new());
    answer_with(&place.sockets(), "smb-endless.sock", vec![b' '; 17 << 20]);
    answer_with(
        &place.sockets(),
        "smb-strange.sock",
        b"{\"smb\": [1]}\n".to_vec(),
    );
    fs::write(place.sockets().join("smb-file.sock"), "no socket").expect("our own folder");
    let words = format!(
        "serve nvme --memory 16M --listen 127.0.0.1:0 --subsystem {}",
        storage::NQN
    );
    let (_target, listens) = place.start(&words, "listening on ");
    let _load = Load::of_target(&listens);
    let (_web, address) = place.start("web --listen 127.0.0.1:0", "");
    let mut browser = opened(&address);

    let at = column_when_there(&mut browser, "Namespaces", "reads");
    expect_to_grow(&mut browser, &cell("Namespaces", storage::NQN, at));
    let shown = browser.text("live.textContent");
    for expected in [
        MARKUP,
        "smb-silent.sock: the server gave no answer in time",
        "smb-endless.sock: the answer of the server has more than",
        "smb-strange.sock: the answer of the server is not valid",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(!shown.contains("smb-file.sock"), "{shown}");
    let markup = "document.querySelectorAll('#live img').length + (window.attacked ?? 0)";
    assert_eq!(browser.value(markup).expect("a count"), 0);
}

#[test]
fn figures_of_a_lab_change_and_it_disappears_with_its_end() {
    let place = Place::new();
    let name = format!("web{}", std::process::id());
    let file = programs::workspace().join("examples/crs504/lab.toml");
    let words = format!("lab up {} --slow 20 --name {name} --json", file.display());
    let (mut lab, _) = place.start(&words, "{");
    let words = format!(
        "lab exec --machine-clock --lab {name} sender0 -- ping -4 -q -i 0.01 -s 1400 server"
    );
    let load = place
        .rockery(&words)
        .stdout(Stdio::null())
        .spawn()
        .expect("rockery starts");
    let _load = Running(load);
    let (_web, address) = place.start("web --listen 127.0.0.1:0", "");
    let mut browser = opened(&address);

    let (ports, hosts) = (format!("Ports of {name}"), format!("Hosts of {name}"));
    let at = column_when_there(&mut browser, &ports, "packets");
    expect_to_grow(&mut browser, &cell(&ports, "sender0", at));
    let at = column(&mut browser, &ports, "Gb/s");
    let rated = format!("parseFloat({}) > 0", cell(&ports, "sender0", at));
    browser.wait_for(&rated, SECONDS).expect("a rate");
    for title in ["ECN marked", "pauses sent", "dropped"] {
        let at = column(&mut browser, &ports, title);
        assert_eq!(browser.text(&cell(&ports, "sender0", at)), "0", "{title}");
    }
    let at = column(&mut browser, &hosts, "frames in");
    expect_to_grow(&mut browser, &cell(&hosts, "sender0", at));
    let status = place
        .rockery("lab ps --json")
        .output()
        .expect("rockery")
        .stdout;
    let status: Vec<Value> = serde_json::Deserializer::from_slice(&status)
        .into_iter()
        .flatten()
        .collect();
    let own = status
        .iter()
        .find(|status| status["name"] == json!(name))
        .expect("the lab");
    let shortest = own["shortest_link_ns"].as_u64().expect("a number");
    let shortest = browser.text(&format!("({shortest}).toLocaleString('en')"));
    let shown = browser.text("live.textContent");
    assert!(shown.contains("slowed down 20 times"), "{shown}");
    assert!(
        shown.contains(&format!("the shortest link takes {shortest} ns")),
        "{shown}"
    );

    let down = place
        .rockery(&format!("lab down {name}"))
        .status()
        .expect("rockery");
    assert!(down.success());
    _ = lab.0.wait();
    // Neither its figures nor an error that names it.
    let gone = format!("!live.textContent.includes({})", json!(name));
    browser
        .wait_for(&gone, SECONDS)
        .expect("no lab, and no error");
}

/// Another user of the machine gets nothing from the page, and takes no place of its clients; the server says
/// once whom it refused.
#[test]
fn other_users_get_no_answer_and_keep_no_other_client_out() {
    let place = Place::new();
    let errors = place.0.path().join("errors");
    let written = File::create(&errors).expect("our own folder");
    let words = "web --listen 127.0.0.1:0";
    let (_web, address) = place.start_with(words, "http://", written.into());
    let address = address.trim_end_matches('/');
    let as_user = |user: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), "--clear-groups", "--"]);
        command
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    };
    let url = format!("http://{address}/api/devices");
    let get = ["curl", "-sf", "-m", "20", &url];
    let own = as_user("0", &get).output().expect("curl runs");
    assert!(
        own.status.success() && own.stdout.starts_with(b"{"),
        "{own:?}"
    );
    let other = as_user("65534", &get).output().expect("curl runs");
    assert!(
        !other.status.success() && other.stdout.is_empty(),
        "{other:?}"
    );

    let (host, port) = address.rsplit_once(':').expect("a port");
    // A shell, which every user may execute: each connection has half of a request.
    let hold = format!(
        "trap '' PIPE; hold() {{ exec {{fd}}<>/dev/tcp/{host}/{port};\n\
         printf 'GET / HTTP/1.1\\r\\nX: ' >&$fd; }}\n\
         for n in {{1..64}}; do hold; done; echo held; while sleep 0.01; do hold; done"
    );
    let mut holder = as_user("65534", &["bash", "-c", &hold])
        .spawn()
        .expect("bash runs");
    let mut line = String::new();
    let out = holder.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    let _holder = Running(holder);
    assert_eq!(line, "held\n");
    for _ in 0..20 {
        let own = as_user("0", &get).output().expect("curl runs");
        assert!(own.status.success(), "{own:?}");
    }
    let said = fs::read_to_string(errors).expect("our own folder");
    let refusal = "closed a connection of user 65534: the page answers user 0";
    assert_eq!(said.matches(refusal).count(), 1, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
