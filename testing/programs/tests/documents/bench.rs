//! `rockery bench documents`: its rows are what the programs printed, read here a second time from their own
//! output, and what cannot be measured is named.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::{Rockery, perftest};
use serde_json::Value;
use tempfile::TempDir;

/// Runs some parts, and returns the report and the folder with outputs.
fn documents(parts: &str, path: Option<&Path>) -> (Value, String, TempDir) {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut command = Command::new(Rockery::built().path());
    command.args(["bench", "documents", "--quick", "--part", parts]);
    command
        .arg("--keep")
        .arg(at("kept"))
        .arg("--json")
        .arg(at("json"))
        .arg("--html")
        .arg(at("html"));
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(at("json")).unwrap()).unwrap();
    for document in report["documents"].as_array().unwrap() {
        assert!(!document["title"].as_str().unwrap().is_empty() && !document["date"].is_null());
        for table in document["tables"].as_array().unwrap() {
            assert!(table["differs"].as_str().unwrap().ends_with('.'), "{table}");
            let columns = |name: &str| table[name].as_array().unwrap().len();
            for row in table["rows"].as_array().unwrap() {
                let cells = |name: &str| row[name].as_array().unwrap().len();
                assert_eq!(
                    (cells("here"), cells("published")),
                    (columns("here"), columns("published"))
                );
            }
        }
    }
    let page = fs::read_to_string(at("html")).unwrap();
    assert!(
        !page.contains("src=") && !page.contains("href=") && page.contains("<h2>Commands</h2>")
    );
    (report, said, folder)
}

/// The figures of a row, here and published, in the first document.
fn row(document: &Value, title: &str, what: &str) -> (Vec<Option<f64>>, Vec<Option<f64>>) {
    let tables = document["tables"].as_array().unwrap();
    let table = tables.iter().find(|table| table["title"] == title);
    let rows = table.unwrap_or_else(|| panic!("no table {title}: {document:#}"))["rows"]
        .as_array()
        .unwrap();
    let row = rows
        .iter()
        .find(|row| row["what"] == what)
        .unwrap_or_else(|| panic!("no row {what}"));
    let numbers = |name: &str| {
        row[name]
            .as_array()
            .unwrap()
            .iter()
            .map(Value::as_f64)
            .collect()
    };
    (numbers("here"), numbers("published"))
}

fn kept(folder: &TempDir, name: &str) -> String {
    let path = folder.path().join("kept").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn kept_json(folder: &TempDir, name: &str) -> Value {
    serde_json::from_str(&kept(folder, name)).unwrap()
}

/// The number in a column of the line that begins with `first`.
fn column(text: &str, first: &str, column: usize) -> Option<f64> {
    let mut lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .find(|words| words.first() == Some(&first))?
        .get(column)?
        .parse()
        .ok()
}

#[test]
fn infiniband_has_each_layer_as_its_program_printed_it() {
    let (report, said, folder) = documents("infiniband", None);
    let document = &report["documents"][0];
    assert_eq!(document["missing"], Value::Array(Vec::new()), "{said}");
    assert!(
        said.contains("SMB 3.0 over RDMA") && said.contains("2012") && said.contains("2275.69"),
        "{said}"
    );
    expect_perftest(document, &folder);
    expect_iperf(document, &folder);
    expect_netpipe(document, &folder);
    expect_files_over_smb(document, &folder);
}

/// The rows of verbs have the bandwidths and latencies of perftest.
fn expect_perftest(document: &Value, folder: &TempDir) {
    for (test, published) in [("ib_read_bw", 2275.69), ("ib_write_bw", 2850.94)] {
        let printed = column(&kept(folder, &format!("infiniband-{test}.txt")), "65536", 3);
        assert!(printed.is_some_and(|rate| rate > 0.0));
        let expected = (vec![printed], vec![Some(published)]);
        assert_eq!(row(document, "Verbs", &format!("{test}, 64 KiB")), expected);
    }
    for (test, published) in [("ib_read_lat", 2.4), ("ib_write_lat", 1.44)] {
        let text = kept(folder, &format!("infiniband-{test}.txt"));
        assert_eq!(perftest::rows(&text).len(), 1, "{text}");
        let expected = (vec![column(&text, "2", 4)], vec![Some(published)]);
        assert_eq!(row(document, "Verbs", &format!("{test}, 2 B")), expected);
    }
}

/// TCP has the rate of iperf3 in each direction, and RDMA beside it that of perftest.
fn expect_iperf(document: &Value, folder: &TempDir) {
    for (direction, test) in [
        ("to the server", "ib_write_bw"),
        ("from the server", "ib_read_bw"),
    ] {
        let iperf = kept_json(folder, &format!("infiniband-iperf3-{test}.txt"));
        let what = format!("iperf, window 1 MiB, {direction}");
        let (here, published) = row(document, "TCP beside RDMA", &what);
        // Divided as the comparison does it: a product of the quotient may differ in its last digit.
        let printed = iperf["end"]["sum_received"]["bits_per_second"].as_f64();
        let is_reverse = iperf["start"]["test_start"]["reverse"].as_i64() == Some(1);
        assert_eq!(is_reverse, direction.starts_with("from"), "{direction}");
        let rdma = kept(folder, &format!("infiniband-beside-{test}.txt"));
        let rdma = column(&rdma, "65536", 3).map(|rate| rate * 1_048_576.0 * 8.0 / 1e9);
        assert_eq!(here, [printed.map(|rate| rate / 1e9), rdma], "{direction}");
        assert_eq!(published, [Some(7.29), Some(5.48)]);
    }
}

/// The rows of NetPIPE have its rates, and those of our sweep.
fn expect_netpipe(document: &Value, folder: &TempDir) {
    let netpipe = kept(folder, "infiniband-netpipe.out");
    let sweep = kept(folder, "infiniband-sweep-all.txt");
    for bytes in [2_u64, 1 << 20, 8 << 20] {
        let us = column(&sweep, &bytes.to_string(), 4).unwrap();
        let (here, published) = row(document, "NetPIPE's sweep", &format!("{bytes} B"));
        assert_eq!(
            here,
            [
                Some(bytes as f64 * 8.0 / us),
                column(&netpipe, &bytes.to_string(), 1)
            ]
        );
        assert_eq!(published, [(bytes == 1 << 20).then_some(7686.283)]);
    }
    let (here, _) = row(document, "NetPIPE's sweep", "1 B");
    assert!(here.iter().all(Option::is_some));
    let around = kept(folder, "infiniband-netpipe-perturbed.out");
    for bytes in [(1_u64 << 20) - 3, 1 << 20, (1 << 20) + 3] {
        let text = kept(folder, &format!("infiniband-around-{bytes}.txt"));
        let us = column(&text, &bytes.to_string(), 4).unwrap();
        let what = format!("{bytes} B");
        let (here, published) = row(document, "NetPIPE around powers of two", &what);
        let tcp = column(&around, &bytes.to_string(), 1);
        assert!(tcp.is_some(), "{bytes}: {around}");
        assert_eq!(here, [Some(bytes as f64 * 8.0 / us), tcp]);
        assert_eq!(published, [(bytes == 1 << 20).then_some(7686.283)]);
    }
}

/// The rows of files have the rates and the processor times of SMB, in columns of two groups.
fn expect_files_over_smb(document: &Value, folder: &TempDir) {
    let groups = ["local,tcp,direct", "tcp-veth,direct-udp"];
    for (index, group) in groups.into_iter().enumerate() {
        let smb = kept_json(folder, &format!("infiniband-smb-{group}.json"));
        let jobs = smb["series"][1]["jobs"].as_array().unwrap();
        let job = jobs
            .iter()
            .find(|job| job["job"] == "write:1m:8t4")
            .unwrap();
        let at = index * 3 + 1;
        let (here, published) = row(document, "Files", "write four files at once");
        assert_eq!(
            here[at].map(|rate| rate * 1e6),
            job["bytes-per-second"].as_f64()
        );
        assert_eq!(published, [Some(959.0), None]);
        let (here, published) = row(
            document,
            "Processor time of the server",
            "write four files at once, server's CPU",
        );
        assert!(here[at].is_some() && published == [Some(8.0), Some(11.0)]);
    }
    let (here, published) = row(document, "Files", "write one file");
    assert_eq!(published, [Some(502.0), Some(735.8)]);
    let local = local_rate(folder, "infiniband-fio-write-1m-8.txt", "write");
    assert_eq!(here.last(), Some(&Some(local / 1e6)));
}

/// The rate in a report of fio in bytes per second.
fn local_rate(folder: &TempDir, name: &str, what: &str) -> f64 {
    let rate = kept_json(folder, name)["jobs"][0][what]["bw_bytes"].as_f64();
    rate.filter(|rate| *rate > 0.0)
        .unwrap_or_else(|| panic!("{name} has no rate"))
}

#[test]
fn functions_and_spraying_have_the_figures_of_paths_and_simulations() {
    let (report, said, folder) = documents("functions,spraying", None);
    let (functions, spraying) = (&report["documents"][0], &report["documents"][1]);
    let paths = kept_json(&folder, "functions-paths.json");
    let printed = paths["rows"].as_array().unwrap();
    // On a busy machine a path may have no figure: then the reason is there.
    let mut tests: Vec<&str> = printed
        .iter()
        .filter_map(|row| row["test"].as_str())
        .collect();
    tests.dedup();
    assert!(tests.contains(&"RDMA WRITE, 64 KiB"), "{said}");
    for test in tests {
        let rates = printed
            .iter()
            .filter(|row| row["test"] == test)
            .map(|row| row["gbps"].as_f64());
        let (here, published) = row(functions, "Paths", test);
        assert_eq!(
            here.into_iter().filter(Option::is_some).collect::<Vec<_>>(),
            rates.collect::<Vec<_>>()
        );
        let expected = if test == "TCP, 5 streams" {
            Some([Some(8.68), Some(9.57)])
        } else {
            None
        };
        assert!(
            expected.is_none_or(|expected| published == expected),
            "{said}"
        );
    }
    let reasons = paths["remarks"].as_array().unwrap();
    assert!(
        reasons
            .iter()
            .all(|reason| said.contains(reason.as_str().unwrap())),
        "{said}"
    );
    let goodput = |name: &str, index: usize| {
        kept_json(&folder, name)["workloads"][index]["goodput_bps"]
            .as_f64()
            .map(|rate| rate / 1e9)
    };
    let (here, published) = row(functions, "Functions", "five streams");
    assert_eq!(
        (here, published),
        (vec![goodput("functions-sim.json", 0)], vec![Some(9.57)])
    );
    let (here, published) = row(spraying, "Spraying", "adaptive routing on, two paths");
    assert_eq!(
        (here[0], published[0]),
        (goodput("spraying-two-paths-0.json", 0), Some(97.66))
    );
    let (here, _) = row(spraying, "Spraying", "adaptive routing off, two paths");
    assert_eq!(here[0], goodput("spraying-recovery-4.json", 0));
    let swapped =
        kept_json(&folder, "spraying-two-paths-0.json")["workloads"][0]["swapped_percent"].as_f64();
    assert_eq!(
        row(spraying, "Spraying", "out of order, two paths"),
        (vec![swapped], vec![Some(25.03)])
    );
    expect_acknowledgements(spraying, &folder);
}

/// The way back has the bytes that the receiver's port sent, beside those of the sender's.
fn expect_acknowledgements(spraying: &Value, folder: &TempDir) {
    let run = kept_json(folder, "spraying-two-hosts-0.json");
    let bytes = |host: &str| {
        let mut ports = run["ports"].as_array().unwrap().iter();
        let own = ports.find(|port| port["port"] == host).unwrap();
        own["bytes"].as_f64().unwrap()
    };
    let what = "acknowledgements, of the bytes of data";
    let (here, published) = row(spraying, "Spraying", what);
    assert_eq!(here, [Some(100.0 * bytes("receiver") / bytes("sender"))]);
    assert_eq!(published, [Some(0.45)]);
}

#[test]
fn the_matrix_has_every_way_to_the_disk_also_through_the_lab() {
    let (report, said, folder) = documents("crs504", None);
    let document = &report["documents"][0];
    let missing: Vec<_> = document["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["what"])
        .collect();
    let of_iser = |it: &Value| {
        it.as_str()
            .is_some_and(|it| it.starts_with("iSER, read") || it.starts_with("iSER, write"))
    };
    assert!(missing.iter().all(|it| of_iser(it)), "{said}");
    let (here, published) = row(document, "CrystalDiskMark's matrix", "read RND4K Q32T16");
    let all = [2603.0, 1683.0, 662.0, 301.0, 1425.0];
    assert_eq!(published, all.map(Some));
    let nvme = kept_json(&folder, "crs504-nvme.json");
    let of = |series: &Value, job: &str| {
        let jobs = series["jobs"].as_array().unwrap().iter();
        jobs.clone()
            .find(|it| it["job"] == job)
            .and_then(|it| it["bytes-per-second"].as_f64())
    };
    let printed: Vec<_> = nvme["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| of(it, "randread:4k:32t16"))
        .collect();
    let rates: Vec<_> = here
        .iter()
        .map(|rate| rate.map(|rate| rate * 1_048_576.0))
        .collect();
    assert_eq!(rates[..4], printed, "{said}");
    let lab = kept(&folder, "crs504-lab.txt");
    let lab = lab
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lab = lab
        .into_iter()
        .find(|it| it["job"] == "randread:4k:32t16")
        .unwrap();
    assert_eq!(rates[4], lab["bytes-per-second"].as_f64());
    assert!(said.contains("RDMA, lab: packets were delivered"), "{said}");
    assert_eq!(rates.len(), 4 + 1 + 5 + 2 + 1, "{said}");
    let local = local_rate(&folder, "crs504-fio-randread-4k-32t16.txt", "read");
    assert_eq!(here.last(), Some(&Some(local / 1_048_576.0)));
    let (here, published) = row(document, "TCP beside RDMA", "4 streams, to the server");
    let iperf = kept_json(&folder, "crs504-4-iperf3-ib_write_bw.txt");
    let printed = iperf["end"]["sum_received"]["bits_per_second"].as_f64();
    assert_eq!(here[0], printed.map(|rate| rate / 1e9));
    assert_eq!(
        iperf["start"]["test_start"]["num_streams"].as_i64(),
        Some(4)
    );
    assert_eq!(published, [Some(80.0), Some(93.0)]);
    assert!(!kept(&folder, "crs504-lab-ps.txt").is_empty());
    iser_is_what_its_programs_printed(document, &folder, &said);
}

/// The columns of iSER, read again from what libiscsi's programs printed, and from the target's counters.
fn iser_is_what_its_programs_printed(document: &Value, folder: &TempDir, said: &str) {
    let after = |text: &str, word: &str| {
        let found = text
            .rsplit_once(word)
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        found.unwrap_or_else(|| panic!("no {word}: {text}"))
    };
    let mut read = 0.0;
    for (row_name, job, bytes) in [
        ("read SEQ128K Q32T1", "read-128k-32", 131_072.0),
        ("read RND4K Q32T1", "randread-4k-32", 4096.0),
        ("read RND4K Q1T1", "randread-4k-1", 4096.0),
        ("write SEQ128K Q32T1", "write-128k-32", 131_072.0),
    ] {
        let (here, _) = row(document, "CrystalDiskMark's matrix", row_name);
        let printed = [0, 1].map(|end| {
            let text = kept(folder, &format!("crs504-iser-{end}-{job}.txt"));
            let per_second: f64 = match job.starts_with("write") {
                true => after(&text, "Sending ") / after(&text, "Run completed in "),
                false => after(&text, "iops average "),
            };
            Some(per_second * bytes / 1_048_576.0)
        });
        assert!(
            printed.iter().all(|rate| *rate > Some(0.0)),
            "{row_name}: {printed:?}"
        );
        assert_eq!(here[10..12], printed, "{row_name}: {said}");
        if !job.starts_with("write") {
            read += printed.iter().flatten().sum::<f64>() * 1_048_576.0;
        }
    }
    for what in [
        "read SEQ1M Q8T1",
        "write SEQ1M Q1T1",
        "read RND4K Q32T16",
        "write RND4K Q32T1",
    ] {
        assert_eq!(
            row(document, "CrystalDiskMark's matrix", what).0[10..12],
            [None, None],
            "{what}"
        );
        assert!(
            said.lines()
                .any(|line| line.starts_with("missing: iSER") && line.contains(what)),
            "{said}"
        );
    }
    // The bytes went through the target's RDMA device: each reader ran for a second, and 64 MiB were written
    // over packets.
    let devices = kept_json(folder, "crs504-iser-devices.txt");
    let programs = devices["devices"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|it| it["programs"].as_array());
    let target = programs
        .flatten()
        .find(|program| program["program"] == "tgtd")
        .unwrap();
    let counter = |name: &str| target["counters"][name].as_f64().unwrap();
    assert!(counter("sent_bytes") > read / 2.0, "{read}: {target}");
    assert!(counter("received_bytes") >= f64::from(64 << 20), "{target}");
}

/// What measurements between two namespaces start.
const PLACE: [&str; 9] = [
    "setpriv", "timeout", "unshare", "nsenter", "sh", "mount", "ip", "cat", "grep",
];

/// The path of an installed program.
fn installed(program: &str) -> PathBuf {
    let found = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(|it| Path::new(it).join(program));
    found
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{program}"))
}

/// A folder that is the whole path: other programs are not installed.
fn path_with(programs: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for program in PLACE.iter().chain(programs) {
        symlink(installed(program), folder.path().join(program)).unwrap();
    }
    folder
}

/// On a busy machine a server may listen seconds after its start. iperf3 reports a refused connection with
/// exit status 0.
#[test]
fn a_client_starts_when_its_server_listens() {
    let folder = path_with(&["sleep"]);
    let late = format!(
        "#!/bin/sh\n[ \"$1\" = -s ] && sleep 3\nexec {} \"$@\"\n",
        installed("iperf3").display()
    );
    let program = folder.path().join("iperf3");
    fs::write(&program, late).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (report, said, _folder) = documents("infiniband", Some(folder.path()));
    let what = "iperf, window 1 MiB, to the server";
    let (here, _) = row(&report["documents"][0], "TCP beside RDMA", what);
    assert!(here[0].is_some_and(|rate| rate > 0.0), "{said}");
}

#[test]
fn programs_that_are_missing_are_named_with_the_reason() {
    let folder = path_with(&["iperf3", "ib_read_bw"]);
    let (report, said, _folder) = documents("infiniband", Some(folder.path()));
    let document = &report["documents"][0];
    let missing = document["missing"].as_array().unwrap();
    let reason = |what: &str| {
        let found = missing
            .iter()
            .find(|it| it["what"].as_str().unwrap().starts_with(what));
        found.unwrap_or_else(|| panic!("{what} is not missing: {said}"))["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        reason("NetPIPE").contains("NPtcp: no such program"),
        "{said}"
    );
    assert!(
        reason("ib_write_bw").contains("ib_write_bw: no such program"),
        "{said}"
    );
    assert!(!reason("files over local,tcp,direct").is_empty());
    assert!(
        row(document, "Verbs", "ib_read_bw, 64 KiB").0[0].is_some(),
        "{said}"
    );
    assert_eq!(row(document, "Verbs", "ib_write_bw, 64 KiB").0, [None]);
    assert!(said.contains("missing: NetPIPE"), "{said}");
    let (report, said, _folder) = documents("crs504", Some(folder.path()));
    let missing = report["documents"][0]["missing"].as_array().unwrap();
    let iser = missing
        .iter()
        .find(|it| it["what"] == "iSER")
        .unwrap_or_else(|| panic!("{said}"));
    let reason = iser["reason"].as_str().unwrap();
    assert!(
        reason.contains("tgtd: no such program") && reason.contains("package tgt"),
        "{reason}"
    );
}
