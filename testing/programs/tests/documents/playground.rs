//! The playground in Chromium and Firefox: as static files with WebAssembly, and as `rockery web` serves it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use programs::{Browser, Chromium, Firefox, Rockery, workspace};
use serde_json::{Value, json};

use crate::reports::{beyond_the_edge, show_at_width};

/// A run in WebAssembly, on a busy machine.
const SECONDS: u64 = 240;
/// The page has completed the run.
const IDLE: &str =
    "document.body?.dataset.state === 'idle' && document.querySelector('#report h2') !== null";
/// Everything that a link has to restore.
const SHOWN: &str = "JSON.stringify([text.value, report.innerHTML, \
                     document.getElementById('command').textContent, \
                     [...dials.querySelectorAll('select, input')].map(({ value }) => value)])";

/// A server of the page, which ends with this object.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts a command whose first line has its address.
    fn start(command: &mut Command) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let out = process.stdout.take().expect("a pipe");
        BufReader::new(out)
            .read_line(&mut line)
            .expect("the server prints its address");
        let at = line
            .find("http://")
            .unwrap_or_else(|| panic!("no address: {line}"));
        let address = line[at..]
            .split([')', ' ', '\n'])
            .next()
            .expect("an address")
            .to_owned();
        Self { process, address }
    }

    /// The built page, behind a server of files.
    fn of_files() -> Self {
        Self::of_folder(built_page())
    }

    /// A folder, behind a server of files.
    pub(crate) fn of_folder(folder: &Path) -> Self {
        let python = [
            "-u",
            "-m",
            "http.server",
            "0",
            "--bind",
            "127.0.0.1",
            "--directory",
        ];
        Self::start(
            Command::new("python3")
                .args(python)
                .arg(folder)
                .stderr(Stdio::null()),
        )
    }

    fn of_rockery() -> Self {
        Self::start(Command::new(Rockery::built().path()).args(["web", "--listen", "127.0.0.1:0"]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// The folder of `make playground`, built once.
fn built_page() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = workspace().join("target/playground/page");
        let output = Command::new(workspace().join("scripts/playground.sh"))
            .arg(&folder)
            .output();
        let output = output.expect("bash starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        folder
    })
}

fn opened(address: &str) -> Chromium {
    let mut browser = Chromium::start().expect("chromium starts");
    open(&mut browser, address);
    browser
}

fn open(browser: &mut impl Browser, address: &str) {
    browser.load(address).expect("the page");
    browser.wait_for(IDLE, SECONDS).expect("a report");
}

/// Types a whole file into the editor.
fn write(browser: &mut impl Browser, file: &str) {
    let expression = format!(
        "text.value = {}, text.dispatchEvent(new Event('input'))",
        json!(file)
    );
    browser.value(&expression).expect("the editor");
}

/// The findings that the command prints for an example.
fn findings(example: &str) -> Vec<Value> {
    let mut command = Command::new(Rockery::built().path());
    let output = command
        .args(["sim", example, "--json"])
        .current_dir(workspace())
        .output()
        .expect("rockery");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["findings"].as_array().expect("findings").clone()
}

fn expect_findings_of_the_command(browser: &mut impl Browser) {
    let report = browser.text("report.textContent");
    let findings = findings("examples/crs504/ecn-off.toml");
    assert!(!findings.is_empty());
    for finding in findings {
        for part in ["seen", "cause", "instead"] {
            let said = finding[part].as_str().expect("text");
            assert!(report.contains(said), "the page does not say: {said}");
        }
    }
}

/// Everything that the page has loaded came from its own server.
fn expect_nothing_foreign(browser: &mut impl Browser) {
    let foreign = "performance.getEntriesByType('resource')\
                   .filter(({ name }) => !name.startsWith(location.origin))\
                   .length";
    assert_eq!(
        browser.value(foreign).expect("a count"),
        0,
        "nothing comes from another server"
    );
}

/// A mistake in line 3 is marked there, with the message of `rockery sim`.
fn expect_mistake_at_its_line(browser: &mut impl Browser) {
    write(browser, "title = \"a\"\n[nic.default]\nmtuu = 1024\n");
    browser
        .wait_for("document.querySelector('#layer .wrong') !== null", SECONDS)
        .expect("a marked line");
    let marked = "[...layer.querySelectorAll('.line')]\
                  .findIndex((line) => line.classList.contains('wrong')) + 1";
    assert_eq!(browser.value(marked).expect("a line"), 3);
    let said = browser.text("problems.textContent");
    let place = browser.text("document.querySelector('[role=tab]').textContent") + ":3";
    assert!(
        said.contains("mtuu") && said.contains("did you mean") && said.contains(&place),
        "{said}"
    );
    let is_dimmed = "report.classList.contains('stale')";
    assert_eq!(browser.value(is_dimmed).expect("a state"), true);
    let is_marked = "document.querySelector('[role=tab]').classList.contains('wrong')";
    assert_eq!(browser.value(is_marked).expect("a state"), true);
}

/// The address has what was typed, and the name of an example that was chosen.
fn expect_address_to_follow(browser: &mut impl Browser) {
    let typed = browser.text("text.value");
    let address = browser.text("location.href");
    browser.open_page().expect("another page");
    browser.load(&address).expect("the page");
    let is_there = format!("window.text?.value === {}", json!(typed));
    browser
        .wait_for(&is_there, SECONDS)
        .expect("what was typed");
    let choose = "(example.value = 'crs504/lab', example.dispatchEvent(new Event('change')))";
    browser.value(choose).expect("a choice");
    browser
        .wait_for("location.hash === '#crs504/lab'", SECONDS)
        .expect("the name of the example");
    browser.wait_for(IDLE, SECONDS).expect("a report");
}

/// No part of the page is wider than the screen, also of a telephone.
fn expect_page_to_fit(browser: &mut Chromium) {
    for width in [1280, 390] {
        show_at_width(browser, width);
        let page = browser.value("document.documentElement.scrollWidth");
        let page = page.expect("a width").as_u64();
        assert!(
            page.is_some_and(|page| page <= u64::from(width)),
            "{page:?}"
        );
        assert_eq!(beyond_the_edge(browser, "#report"), "", "at {width} px");
    }
}

/// Ctrl+Space completes a field, and then its value.
fn expect_completion(browser: &mut impl Browser) {
    write(browser, "[nic.default]\nconges");
    browser
        .value("(text.focus(), text.setSelectionRange(9999, 9999))")
        .expect("the cursor");
    browser.press(" ", true).expect("Ctrl+Space");
    browser
        .wait_for("!choices.hidden", SECONDS)
        .expect("completions");
    browser.press("Enter", false).expect("Enter");
    assert_eq!(browser.text("text.value"), "[nic.default]\ncongestion = ");
    browser.press(" ", true).expect("Ctrl+Space");
    browser
        .wait_for("!choices.hidden", SECONDS)
        .expect("completions");
    assert!(browser.text("choices.textContent").contains("dcqcn"));
}

/// The page runs its timers while the worker runs a network of 1,024 hosts.
fn expect_page_to_answer_during_a_large_run(browser: &mut impl Browser) {
    let timer = "(window.ticks = 0, \
                 setInterval(() => { window.ticks += document.body.dataset.state === 'busy'; }, 20))";
    browser.value(timer).expect("a timer");
    write(
        browser,
        "title = \"large\"\ntopology = { kind = \"fat-tree\", k = 16 }\n\
         [[workload]]\npattern = \"permutation\"\nmessage = \"256KiB\"\nmessages = 2\n",
    );
    browser
        .wait_for(
            "document.querySelectorAll('line[data-link]').length === 3072",
            SECONDS,
        )
        .expect("a report");
    assert!(
        browser.value("window.ticks").expect("a count").as_u64() > Some(9),
        "the timer ran during the run"
    );
}

/// Where pictures of the page are put, for people to look at.
fn picture(name: &str) -> PathBuf {
    let folder = workspace().join("target/playground/pictures");
    fs::create_dir_all(&folder).expect("our own folder");
    folder.join(name)
}

/// The address after "Copy link", opened in another page, shows the same.
fn expect_link_to_restore(browser: &mut impl Browser) {
    browser
        .value("document.getElementById('link').click()")
        .expect("a click");
    let is_copied = "/copied|address bar/.test(document.getElementById('status').textContent)";
    browser.wait_for(is_copied, SECONDS).expect("a link");
    let (shown, address) = (browser.text(SHOWN), browser.text("location.href"));
    browser.open_page().expect("another page");
    open(browser, &address);
    assert_eq!(browser.text(SHOWN), shown);
}

#[test]
fn static_files_run_an_example_with_the_finding_of_the_command() {
    let server = Server::of_files();
    let mut browser = opened(&format!("{}#crs504/ecn-off", server.address));
    expect_findings_of_the_command(&mut browser);
    expect_nothing_foreign(&mut browser);
    let before = browser.text("document.querySelector('.finding').textContent");
    let without_the_last_script = "((dial) => { dial.selectedIndex -= 1; \
                                   dial.dispatchEvent(new Event('change')); })\
                                   (document.querySelector('#dials select'))";
    browser.value(without_the_last_script).expect("a choice");
    let changed = format!(
        "{IDLE} && document.querySelector('.finding')?.textContent !== {}",
        json!(before)
    );
    browser
        .wait_for(&changed, SECONDS)
        .expect("another finding");
    expect_link_to_restore(&mut browser);
    for scheme in ["light", "dark"] {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser
            .command("Emulation.setEmulatedMedia", features)
            .expect("a colour scheme");
        browser
            .screenshot(&picture(&format!("{scheme}.png")))
            .expect("a picture");
        let paper = browser.text("getComputedStyle(document.body).backgroundColor");
        assert_eq!(
            paper,
            if scheme == "light" {
                "rgb(255, 255, 255)"
            } else {
                "rgb(20, 23, 27)"
            }
        );
    }
}

#[test]
fn the_time_slider_colours_links_and_captures_are_pcap_files() {
    let server = Server::of_files();
    let mut browser = opened(&format!("{}#crs504/ecn-off", server.address));
    let strokes = "[...document.querySelectorAll('line[data-link]')]\
                   .map((line) => line.getAttribute('stroke')).join()";
    let whole = browser.text(strokes);
    let slide = |to: &str| format!("moment.value = {to}, moment.dispatchEvent(new Event('input'))");
    browser.value(&slide("0")).expect("the slider");
    assert_ne!(
        browser.text(strokes),
        whole,
        "the first moment is not the whole run"
    );
    browser.value(&slide("-1")).expect("the slider");
    assert_eq!(browser.text(strokes), whole);
    let saved = "new Promise((resolve) => { \
                 URL.createObjectURL = (blob) => { blob.arrayBuffer().then((bytes) => \
                 resolve([bytes.byteLength, new DataView(bytes).getUint32(0, true)])); return '#'; }; \
                 document.getElementById('port').value = 'server'; \
                 document.getElementById('capture').click(); })";
    let saved = browser.value(saved).expect("a file");
    assert_eq!(saved[1], 0xa1b2_3c4d_u32, "nanosecond pcap");
    assert!(saved[0].as_u64() > Some(10_000), "{saved}");
}

#[test]
fn mistakes_are_shown_at_their_line_and_the_editor_completes() {
    let server = Server::of_files();
    let mut browser = opened(&format!("{}#incast/hpcc", server.address));
    expect_mistake_at_its_line(&mut browser);
    expect_completion(&mut browser);
}

#[test]
fn a_network_of_1024_hosts_does_not_block_the_page() {
    let server = Server::of_files();
    let mut browser = opened(&format!("{}#crs504/ecn-off", server.address));
    expect_page_to_answer_during_a_large_run(&mut browser);
}

/// One browser for everything: it takes seconds to start.
#[test]
fn the_page_of_static_files_works_in_firefox() {
    let server = Server::of_files();
    let mut browser = Firefox::start().expect("firefox starts");
    open(&mut browser, &format!("{}#crs504/ecn-off", server.address));
    expect_findings_of_the_command(&mut browser);
    expect_nothing_foreign(&mut browser);
    expect_link_to_restore(&mut browser);
    browser
        .screenshot(&picture("firefox.png"))
        .expect("a picture");
    expect_mistake_at_its_line(&mut browser);
    expect_completion(&mut browser);
    expect_page_to_answer_during_a_large_run(&mut browser);
}

#[test]
fn rockery_web_serves_the_page_with_its_own_simulator() {
    let server = Server::of_rockery();
    let mut browser = opened(&format!("{}#crs504/ecn-off", server.address));
    expect_findings_of_the_command(&mut browser);
    expect_link_to_restore(&mut browser);
    browser
        .wait_for(
            "live.textContent.includes('Devices of this machine')",
            SECONDS,
        )
        .expect("the devices");
    let devices = browser
        .value("fetch('api/devices').then((answer) => answer.json())")
        .expect("JSON");
    assert!(devices["devices"].is_array(), "{devices}");
    let evil = Command::new("curl")
        .args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            "Host: evil.example",
        ])
        .arg(format!("{}api/devices", server.address))
        .output()
        .expect("curl starts");
    assert_eq!(
        String::from_utf8_lossy(&evil.stdout),
        "403",
        "a name that another site had resolved"
    );
    expect_mistake_at_its_line(&mut browser);
    expect_address_to_follow(&mut browser);
    expect_page_to_fit(&mut browser);
}
