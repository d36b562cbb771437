//! `rockery sim` as a person calls it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use parquet::file::reader::{FileReader, SerializedFileReader};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name)
}

fn sim(file: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rockery"))
        .arg("sim")
        .arg(file)
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A small network with a sweep of four runs.
const SWEEP: &str = r#"
title = "A sweep"
topology = { kind = "star", hosts = 3 }
[[workload]]
pattern = "each"
from = ["h[1-2]"]
to = ["h0"]
message = "64KiB"
messages = 20
[sweep]
"nic.default.mtu" = [1024, 4096]
"workload.0.depth" = [1, 8]
"#;

fn sweep_file(folder: &Path) -> PathBuf {
    let path = folder.join("sweep.toml");
    std::fs::write(&path, SWEEP).unwrap();
    path
}

#[test]
fn a_table_for_people_and_json_for_programs() {
    let text = stdout(&sim(
        &example("crs504/mapped.toml"),
        &["--set", "duration=2ms"],
    ));
    assert!(
        text.starts_with("CRS504: DSCP 26 mapped to class 3\n2.000ms of virtual time, seed 0\n"),
        "{text}"
    );
    let end = "no findings.\n\n--tables shows counters of crs504 as RouterOS prints them.\n";
    assert!(
        text.ends_with(end) && !text.contains("[port print]"),
        "{text}"
    );
    let options = ["--set", "duration=2ms", "--tables"];
    let text = stdout(&sim(&example("crs504/mapped.toml"), &options));
    assert!(
        text.starts_with("crs504, as RouterOS prints it\n") && text.contains("[port print]"),
        "{text}"
    );
    assert!(text.ends_with("no findings.\n"), "{text}");
    let json = stdout(&sim(&example("incast.toml"), &["--json", "--seed", "7"]));
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (
            report["seed"].as_u64(),
            report["workloads"][0]["finished"].as_u64()
        ),
        (Some(7), Some(16))
    );
}

#[test]
fn mistakes_are_named_where_they_stand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lab.toml");
    std::fs::write(&path, "[nic.default]\nmut = 4096\n").unwrap();
    let output = sim(&path, &[]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains("lab.toml:2:1: nic.default.mut: there is no field \"mut\" here"),
        "{error}"
    );
    assert!(error.contains("did you mean \"mtu\"?"), "{error}");
    let output = sim(&example("incast.toml"), &["--set", "nic.default.mtu=1500"]);
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("--set:1:19: nic.default.mtu: 1500 is no path MTU")
    );
    let output = sim(&example("incast.toml"), &["--pcap", "s0:99=/dev/null"]);
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("no port is called s0:99; there are: h0, s0:0")
    );
}

#[test]
fn every_file_that_is_asked_for_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let capture = format!("server={}", at("server.pcap"));
    let (csv, parquet, html, json) = (at("a.csv"), at("a.parquet"), at("a.html"), at("a.json"));
    let files = [
        "--csv",
        &csv,
        "--parquet",
        &parquet,
        "--html",
        &html,
        "--json",
        &json,
        "--pcap",
        &capture,
    ];
    let arguments = [["--set", "duration=1ms"].as_slice(), &files].concat();
    stdout(&sim(&example("crs504/ecn-off.toml"), &arguments));
    assert_eq!(
        std::fs::read_to_string(&csv).unwrap().lines().count(),
        1 + 12 + 1
    );
    assert!(
        std::fs::read_to_string(format!("{csv}.ports.csv"))
            .unwrap()
            .contains("crs504:qsfp28-1-1,server,")
    );
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for wanted in [
        "<h2>Findings</h2>",
        "<title>sender0",
        "Longest queues",
        "ECN is off for class 3",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    // Offline: no address that a browser would fetch.
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains(" src="));
    assert_eq!(page.matches("<script>").count(), 1);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(std::fs::metadata(at("server.pcap")).unwrap().len() > 100_000);
    let reader = SerializedFileReader::new(std::fs::File::open(&parquet).unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 13);
    let row = reader
        .get_row_iter(None)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .to_string();
    assert!(
        row.contains("workload: \"storage\", from: \"sender0\", to: \"server\""),
        "{row}"
    );
    assert!(row.contains("completion_us: null"), "{row}");
}

/// A file of each kind that a run can write.
struct Files(tempfile::TempDir);

impl Files {
    const KINDS: [&str; 4] = ["csv", "parquet", "html", "json"];

    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, kind: &str) -> String {
        self.0
            .path()
            .join(format!("a.{kind}"))
            .display()
            .to_string()
    }

    /// Runs a file with all of them; what is printed.
    fn simulated(&self, file: &Path, arguments: &[&str]) -> String {
        let written = Self::KINDS.map(|kind| [format!("--{kind}"), self.at(kind)]);
        let written = written.iter().flatten().map(String::as_str);
        let all: Vec<&str> = arguments.iter().copied().chain(written).collect();
        stdout(&sim(file, &all))
    }

    fn report(&self) -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(self.at("json")).unwrap()).unwrap()
    }

    fn page(&self) -> String {
        std::fs::read_to_string(self.at("html")).unwrap()
    }
}

#[test]
fn where_flows_waited_is_told_port_by_port() {
    let files = Files::new();
    let (csv, parquet) = (files.at("csv"), files.at("parquet"));
    let set = ["--hops", "--set", "duration=3ms"];
    let text = files.simulated(&example("crs504/ecn-off.toml"), &set);
    for wanted in [
        "where storage waited",
        "its slowest: sender",
        "where victim waited",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    let rows = std::fs::read_to_string(format!("{csv}.hops.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 13 * 2, "two ports for each flow");
    assert!(
        rows.contains("\nstorage,0,sender0,server,0,sender0,crs504:qsfp28-2-1,"),
        "{rows}"
    );
    let report = files.report();
    let hops = &report["flows"][0]["hops"];
    assert_eq!(
        (hops[0]["port"].as_str(), hops[1]["to"].as_str()),
        (Some("sender0"), Some("server"))
    );
    assert!(
        hops[0]["paused_us"].as_f64().unwrap() > 0.0
            && hops[1]["waited_us"].as_f64().unwrap() > 0.0
    );
    let page = files.page();
    assert!(
        page.contains("<h2>Where storage waited</h2>") && page.contains("port by port"),
        "{page}"
    );
    let hops = format!("{parquet}.hops.parquet");
    let reader = SerializedFileReader::new(std::fs::File::open(hops).unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 26);
}

#[test]
fn collectives_are_in_every_output() {
    let files = Files::new();
    let (csv, parquet) = (files.at("csv"), files.at("parquet"));
    let set = ["--set", "collective.0.bytes=1MiB", "--hops"];
    let text = files.simulated(&example("collectives/slow-link.toml"), &set);
    assert!(
        text.contains("ring all-reduce") && text.contains("critical path of grads: "),
        "{text}"
    );
    let rows = std::fs::read_to_string(format!("{csv}.collectives.csv")).unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    let columns = |row: &str| row.split(',').count();
    assert_eq!(columns(rows[0]), columns(rows[1]));
    assert!(
        rows[1].starts_with("grads,all-reduce,ring,all,16,1048576,"),
        "{}",
        rows[1]
    );
    let report = files.report();
    let grads = &report["collectives"][0];
    assert_eq!(grads["times_us"].as_array().unwrap().len(), 2);
    assert!(grads["path"]["wire_us"].as_f64().unwrap() > 0.0, "{grads}");
    let page = files.page();
    assert!(page.contains("<h3>Critical path of grads</h3>"), "{page}");
    assert!(page.contains("<h3>Links of collectives</h3>"), "{page}");
    let links = std::fs::read_to_string(format!("{csv}.links.csv")).unwrap();
    assert!(
        links.starts_with("collective,port,next,packets,bytes\ngrads,"),
        "{links}"
    );
    let there = grads["links"].as_array().unwrap().len();
    assert_eq!((links.lines().count() - 1, there > 0), (there, true));
    let reader = std::fs::File::open(format!("{parquet}.collectives.parquet")).unwrap();
    let reader = SerializedFileReader::new(reader).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 1);
    let sweep = stdout(&sim(
        &example("collectives/trees.toml"),
        &[
            "--set",
            "sweep={\"collective.0.algorithm\" = [\"ring\", \"tree\"]}",
            "--csv",
            &csv,
            "--hops",
        ],
    ));
    assert!(sweep.contains("tree all-reduce"), "{sweep}");
    let rows = std::fs::read_to_string(format!("{csv}.collectives.csv")).unwrap();
    assert_eq!(rows.lines().count(), 3, "{rows}");
    let links = std::fs::read_to_string(format!("{csv}.links.csv")).unwrap();
    let run_1 = links.lines().filter(|line| line.starts_with("1,tree,"));
    assert!(links.starts_with("run,collective.0.algorithm,collective,port,"));
    assert!(run_1.count() > 0, "{links}");
}

#[test]
fn a_sweep_is_the_same_on_any_number_of_threads_and_run_by_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = sweep_file(folder.path());
    let rows = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(name);
        let csv = path.display().to_string();
        stdout(&sim(&file, &[&["--csv", csv.as_str()], arguments].concat()));
        std::fs::read_to_string(path).unwrap()
    };
    let (one, two) = (
        rows("1.csv", &["--threads", "1"]),
        rows("2.csv", &["--threads", "2"]),
    );
    assert_eq!(one, two);
    assert_eq!(one.lines().count(), 1 + 4 * 2);
    assert!(
        one.starts_with("run,nic.default.mtu,workload.0.depth,workload,from,"),
        "{one}"
    );
    let points = stdout(&sim(&file, &["--points"]));
    assert_eq!(
        points.lines().nth(3),
        Some("3\tnic.default.mtu=4096\tworkload.0.depth=8")
    );
    let alone = stdout(&sim(&file, &["--point", "3", "--json"]));
    let all = stdout(&sim(&file, &["--json"]));
    assert!(all.ends_with(&alone));
    let table = stdout(&sim(&file, &[]));
    assert_eq!(table.lines().count(), 2 + 1 + 4, "{table}");
    let output = sim(&file, &["--pcap", "h0=x.pcap"]);
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("choose one of the sweep with --point NUMBER")
    );
    let html = folder.path().join("sweep.html");
    stdout(&sim(&file, &["--html", html.to_str().unwrap()]));
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // Each run is a row, in the order of the table; depth has as many values as the MTU, which comes first.
    assert_eq!(page.matches("<tr>").count(), 1 + 4, "{page}");
    for wanted in [
        "4 runs; nic.default.mtu: ",
        "<h2>Findings</h2>",
        "aria-label=\"Goodput\"",
        ">nic.default.mtu</text>",
        "workload.0.depth=8",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(!page.contains("http://") && !page.contains(" src="));
}

#[test]
fn a_file_is_checked_without_being_run() {
    let text = stdout(&sim(&example("incast.toml"), &["--check"]));
    assert_eq!(
        text,
        "16:1 incast, DCQCN and PFC: 17 hosts, 1 switch, 17 links, 16 queue pairs in 1 workload, 1 run\n"
    );
}

/// Two hosts at a switch.
const PAIR: &str = r#"
topology = { kind = "star", hosts = 2 }
[[workload]]
name = "write"
from = ["h0"]
to = ["h1"]
message = "64KiB"
messages = 4
"#;

fn failure(output: &Output) -> String {
    assert_eq!(output.stdout, b"", "nothing is printed");
    assert!(
        output
            .status
            .code()
            .is_some_and(|code| code != 0 && code != 101),
        "{output:?}"
    );
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn long_names_and_deep_paths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let long = "x".repeat(5_000_000);
    std::fs::write(&path, PAIR.replace("write", &long)).unwrap();
    let error = failure(&sim(&path, &[]));
    assert!(
        error.contains("workload[0].name: the text has 5000000 bytes, and 255 are the most"),
        "{error}"
    );
    assert!(error.len() < 2_000, "{} bytes", error.len());
    let path_levels = format!("{}=1", ["a"; 50_000].join("."));
    std::fs::write(&path, PAIR).unwrap();
    let error = failure(&sim(&path, &["--set", &path_levels]));
    assert!(
        error.contains("the path has 50000 levels, and 16 are the most"),
        "{error}"
    );
}

#[test]
fn more_samples_than_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    std::fs::write(&path, PAIR).unwrap();
    for duration in [[].as_slice(), &["--set", "duration=1ms"]] {
        let error = failure(&sim(&path, &[&["--sample", "1ps"], duration].concat()));
        assert!(
            error.contains("more than 4194304 samples by ") && error.contains("--sample"),
            "{error}"
        );
    }
    let json = stdout(&sim(&path, &["--sample", "1us", "--json"]));
    assert!(json.contains("\"series\""));
}

/// A device never ends, and a FIFO without a writer waits for ever.
#[test]
fn files_that_never_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let fifo = at("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    for name in ["/dev/zero", "fifo", "."] {
        let switch = "[[switch]]\nname = \"s0\"\n";
        for (what, text) in [
            ("include[0]", format!("include = [\"{name}\"]\n{PAIR}")),
            (
                "switch[0].sonic",
                format!("{PAIR}{switch}sonic = \"{name}\"\n"),
            ),
            (
                "switch[0].routeros",
                format!("{PAIR}{switch}routeros = [\"{name}\"]\n"),
            ),
        ] {
            let path = at("a.toml");
            std::fs::write(&path, text).unwrap();
            let error = failure(&sim(&path, &[]));
            assert!(
                error.contains(what) && error.contains("where a regular file is needed"),
                "{error}"
            );
        }
    }
    let error = failure(&sim(Path::new("/dev/zero"), &[]));
    assert!(
        error.contains("/dev/zero: it is larger than 16 MiB"),
        "{error}"
    );
    std::fs::File::create(at("large.toml"))
        .unwrap()
        .set_len(17 << 20)
        .unwrap();
    std::fs::write(at("a.toml"), format!("include = [\"large.toml\"]\n{PAIR}")).unwrap();
    let error = failure(&sim(&at("a.toml"), &[]));
    assert!(
        error.contains("include[0]: large.toml: it is larger than 16 MiB"),
        "{error}"
    );
}

#[test]
fn nothing_that_is_read_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("more.toml"), "seed = 3\n").unwrap();
    std::fs::copy(example("sonic/config_db.json"), at("config_db.json")).unwrap();
    std::fs::copy(example("sonic/lab.toml"), at("sonic.toml")).unwrap();
    std::fs::write(at("a.toml"), format!("include = [\"more.toml\"]\n{PAIR}")).unwrap();
    std::os::unix::fs::symlink(at("a.toml"), at("link.json")).unwrap();
    let files = ["a.toml", "more.toml", "config_db.json", "sonic.toml"];
    let before = files.map(|name| std::fs::read(at(name)).unwrap());
    for (file, option, output) in [
        ("a.toml", "--json", at("a.toml")),
        ("a.toml", "--html", at("more.toml")),
        ("a.toml", "--csv", at("link.json")),
        ("a.toml", "--parquet", at("./a.toml")),
        ("a.toml", "--pcap", format!("h0={}", at("more.toml"))),
        ("sonic.toml", "--json", at("config_db.json")),
    ] {
        let error = failure(&sim(Path::new(&at(file)), &[option, &output]));
        assert!(
            error.contains("would be overwritten"),
            "{option} {output}: {error}"
        );
    }
    let after = files.map(|name| std::fs::read(at(name)).unwrap());
    assert!(before == after, "a file that is read was written");
    let (out, same) = (at("out"), at("./out"));
    let error = failure(&sim(
        Path::new(&at("a.toml")),
        &["--json", &out, "--csv", &same],
    ));
    assert!(
        error.contains("two options write it") && !Path::new(&at("out")).exists(),
        "{error}"
    );
}

/// Until then Ctrl-C ends the program, as it does any.
fn until_it_catches_interrupts(process: u32) {
    let begun = Instant::now();
    loop {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        // Bit 1 is SIGINT (proc_pid_status(5)).
        if u64::from_str_radix(caught.trim(), 16).unwrap() >> 1 & 1 == 1 {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it catches no interrupts: {status}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn long_runs_show_a_bar_with_the_time_that_is_left_on_a_terminal() {
    // The shell prints its process id, which is the run's after `exec`: where SIGHUP is ignored, a run goes
    // on when its terminal is closed.
    let command = format!(
        "echo process $$ ; exec {} sim {} --set duration=1000s",
        env!("CARGO_BIN_EXE_rockery"),
        example("crs504/mapped.toml").display()
    );
    // util-linux: gives the program a terminal, and writes what it shows.
    let mut child = Command::new("script");
    child.args([
        "--quiet",
        "--flush",
        "--return",
        "--command",
        &command,
        "/dev/null",
    ]);
    let child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("script (package bsdutils) is there");
    let mut shown = String::new();
    let mut out = child.stdout.take().unwrap();
    let mut bytes = [0; 4096];
    while !(shown.contains("% ") && shown.contains("ETA ")) {
        let read = out.read(&mut bytes).unwrap();
        assert!(read > 0, "it ended without a bar: {shown}");
        shown += &String::from_utf8_lossy(&bytes[..read]);
    }
    assert!(shown.contains("M hops/s"), "{shown}");
    let process = shown
        .split_whitespace()
        .skip_while(|word| *word != "process")
        .nth(1)
        .unwrap();
    assert!(
        Command::new("kill")
            .args(["-KILL", process])
            .status()
            .unwrap()
            .success()
    );
    child.wait().unwrap();
}

#[test]
fn ctrl_c_writes_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("partial.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rockery"));
    child
        .arg("sim")
        .arg(example("crs504/mapped.toml"))
        .args(["--set", "duration=1000s", "--json"])
        .arg(&json);
    let mut child = child.stdout(Stdio::null()).spawn().unwrap();
    until_it_catches_interrupts(child.id());
    std::thread::sleep(Duration::from_millis(500));
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupt.success());
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it does not stop");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["partial"], true);
    assert!(report["hops"].as_u64().unwrap() > 0);
}

/// `rockery sim FILE | head -1`: the reader is gone before the table is printed.
#[test]
fn a_closed_pipe_ends_the_command_without_a_message() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockery"));
    let output = command
        .arg("sim")
        .arg(example("incast.toml"))
        .stdout(writer)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The commands of `sim --help` that set a value: `(file, --set)`.
fn settings_of_the_help() -> Vec<(String, String)> {
    let help = Command::new(env!("CARGO_BIN_EXE_rockery"))
        .args(["sim", "--help"])
        .output()
        .unwrap();
    let help = stdout(&help);
    let words = help.lines().map(|line| line.split_whitespace());
    let with_set = words.filter_map(|words| {
        let words: Vec<&str> = words.collect();
        let set = words.iter().position(|word| *word == "--set")?;
        (words[0] == "rockery").then(|| (words[2].to_owned(), words[set + 1].to_owned()))
    });
    with_set.collect()
}

#[test]
fn settings_of_the_examples_in_the_help_change_the_results() {
    let examples = settings_of_the_help();
    assert!(!examples.is_empty());
    for (file, set) in examples {
        let file = example(file.strip_prefix("examples/").unwrap());
        let short = ["--set", "duration=1ms", "--json"];
        let without = stdout(&sim(&file, &short));
        let with = stdout(&sim(&file, &[&["--set", &set], &short[..]].concat()));
        assert_ne!(without, with, "{set} changes nothing");
    }
}

#[test]
fn a_setting_that_nothing_uses_is_an_error() {
    let file = example("crs504/lab.toml");
    for (set, why) in [
        (
            "qos.default.queue.3.ecn.min=1MB",
            "crs504 has the configuration of a vendor's file",
        ),
        ("nic.spare.mtu=1024", "no host has nic = \"spare\""),
        ("nic.default.willing=true", "only a lab exchanges DCBX"),
    ] {
        let output = sim(&file, &["--set", set]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(why), "{error}");
    }
}

#[test]
fn findings_of_a_severity_give_status_1() {
    let lossy = example("crs504/as-written.toml");
    let status = |file: &Path, severity: &str| {
        let output = sim(file, &["--set", "duration=2ms", "--fail-on", severity]);
        assert!(
            String::from_utf8(output.stdout)
                .unwrap()
                .contains("virtual time")
        );
        output.status.code()
    };
    assert_eq!(status(&lossy, "broken"), Some(1));
    assert_eq!(status(&example("crs504/mapped.toml"), "note"), Some(0));
    assert_eq!(
        sim(&lossy, &["--set", "duration=2ms"]).status.code(),
        Some(0)
    );
    let paused = example("crs504/ecn-off.toml");
    assert_eq!(status(&paused, "broken"), Some(0));
    assert_eq!(status(&paused, "slow"), Some(1));
}

#[test]
fn what_acted_on_no_packet_is_named_on_standard_error_and_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.toml");
    let text = "topology = { kind = \"star\", hosts = 2 }\n[[workload]]\nfrom = [\"h0\"]\nto = [\"h1\"]\n\
                messages = 2\n[qos.default.queue.5]\nweight = 9\n[qos.spare]\nbuffer = \"9MiB\"\n";
    std::fs::write(&file, text).unwrap();
    let output = sim(&file, &["--json"]);
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let notes = report["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 2, "{notes:?}");
    for (note, part) in notes.iter().zip([
        "qos.spare.buffer has no effect: no switch has qos = \"spare\"",
        "qos.default.queue.5 acted on no packet",
    ]) {
        let note = note.as_str().unwrap();
        assert!(
            note.contains(part) && error.contains(note),
            "{note}\n{error}"
        );
    }
}

/// A line for each repetition, in the order of their ends.
#[test]
fn repetitions_are_written_as_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder
        .path()
        .join("repetitions.jsonl")
        .display()
        .to_string();
    let more = [
        "--set",
        "collective.0.repeat=3",
        "--set",
        "collective.0.bytes=1MiB",
    ];
    let given = ["--repetitions", &file, "--json"];
    let report = stdout(&sim(
        &example("collectives/slow-link.toml"),
        &[&more[..], &given].concat(),
    ));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let lines = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let times = report["collectives"][0]["times_us"].as_array().unwrap();
    assert_eq!(lines.len(), 3);
    for ((line, time), number) in lines.iter().zip(times).zip(1..) {
        assert_eq!(line["collective"], "grads");
        assert_eq!(
            (&line["repetition"], &line["repeat"]),
            (&number.into(), &3.into())
        );
        assert_eq!(&line["time_us"], time);
        let busbw = line["busbw_bytes_per_s"].as_f64().unwrap() * time.as_f64().unwrap() / 1e6;
        let bytes = (1 << 20) as f64 * 2.0 * 15.0 / 16.0;
        assert!((busbw / bytes - 1.0).abs() < 1e-9, "{busbw}");
    }
    assert_eq!(
        lines[2]["end_us"],
        report["collectives"][0]["interval_us"][1]
    );
    let sweep = [
        "--set",
        "sweep={\"collective.0.bytes\" = [\"1MiB\", \"2MiB\"]}",
    ];
    let refused = sim(
        &example("collectives/slow-link.toml"),
        &[&sweep[..], &given[..2]].concat(),
    );
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("--repetitions is for one run"), "{said}");
}
