//! A 100G network with a CRS504: CrystalDiskMark's matrix by ways to the disk, one of them through the lab.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::iser::{self, Series};
use super::local::{self, Local};
use super::perftest::Ends;
use super::report::{Document, Row, Table};
use super::runner::{Runner, number};
use super::smb::{self, Files};
use super::storage::{self, columns, job};
use super::streams::{self, Streams};
use crate::matrix::MATRIX;
use crate::smb::published::{COLUMNS, matrix};

/// The network of the document, for the lab.
const FILES: [(&str, &str); 3] = [
    (
        "lab.toml",
        include_str!("../../../../../../examples/crs504/lab.toml"),
    ),
    (
        "roce.rsc",
        include_str!("../../../../../../examples/crs504/roce.rsc"),
    ),
    (
        "as-printed.rsc",
        include_str!("../../../../../../examples/crs504/as-printed.rsc"),
    ),
];
/// The first host of the file, and where it listens.
const SERVER: (&str, &str) = ("server", "10.0.0.1:4420");
const CLIENT: &str = "sender0";
/// How long a target in the lab may take until it listens.
const START: Duration = Duration::from_secs(15);

const MIB: f64 = 1_048_576.0;
/// Published Gb/s: what iperf reached with several processes, and the peak of CrystalDiskMark.
const IPERF: f64 = 80.0;
const SMB_DIRECT: f64 = 93.0;

/// Measures the matrix on every way that there is.
pub(super) fn measure(runner: &mut Runner) -> Document {
    let mut document = Document::new(
        "\"100G RoCEv2 无损高速网络配置\" (configuring a lossless 100G RoCEv2 network)",
        "date not known (RouterOS 7.17)",
        "CRS504 with 100 Gb/s ports, ConnectX-5, SMB Direct of Windows Server 2022, two drives in RAID-0.",
    );
    let found = storage::series(runner, "crs504-nvme", &["--part", "matrix"]);
    let (mut series, remarks) = document.or_missing("NVMe", found).unwrap_or_default();
    document.remarks = remarks;
    let lab = through_the_lab(runner);
    if let Some((lab, remark)) = document.or_missing("NVMe through the lab's switch", lab) {
        series.push(lab);
        document.remarks.push(remark);
    }
    let files = smb::measure(runner, "crs504", "matrix", &mut document);
    let local = local::measure(runner, "crs504", &jobs(), &mut document);
    let iser = iser::measure(runner, &mut document);
    document.add(table(&series, &files, &iser, &local));
    add_streams(runner, &mut document);
    document
}

/// Jobs of the matrix.
fn jobs() -> Vec<String> {
    let all = ["read", "write"].into_iter().flat_map(|what| {
        MATRIX
            .iter()
            .map(move |(_, how, many)| format!("{how}{what}:{many}"))
    });
    all.collect()
}

/// TCP with one stream and with several, beside RDMA.
fn add_streams(runner: &mut Runner, document: &mut Document) {
    let ends = Ends::new(runner);
    let Some(mut ends) = document.or_missing("TCP beside RDMA", ends) else {
        return;
    };
    let mut rows = Vec::new();
    for (what, options) in [("1 stream", ["-P", "1"]), ("4 streams", ["-P", "4"])] {
        let of = format!("crs504-{}", options[1]);
        let streams = Streams {
            of: &of,
            what,
            options: &options,
        };
        rows.extend(streams::rows(
            &mut ends,
            streams,
            &[IPERF, SMB_DIRECT],
            document,
        ));
    }
    document.add(Table {
        title: "TCP beside RDMA".to_owned(),
        here: streams::columns(),
        published: vec!["iperf, most", "SMB Direct, most"],
        rows,
        differs: "The published iperf was limited by the processor, and SMB Direct by the PCIe link; here \
                  both are processors' work over a veth, and RDMA has one queue pair in each row.",
    });
}

fn table(series: &[Value], files: &Files, iser: &[Series], local: &Local) -> Table {
    let mut here: Vec<String> = columns(series)
        .into_iter()
        .map(|name| format!("NVMe {name}"))
        .collect();
    here.extend(files.columns().into_iter().map(share));
    here.extend(iser.iter().map(|series| series.name.to_owned()));
    here.push(local::COLUMN.to_owned());
    let mut rows = Vec::new();
    for (direction, what) in ["read", "write"].into_iter().enumerate() {
        for (name, how, many) in MATRIX {
            let spec = format!("{how}{what}:{many}");
            let rate = |job: &Value| Some(number(job, "/bytes-per-second")? / MIB);
            let mut here: Vec<Option<f64>> = series
                .iter()
                .map(|series| job(series, &spec).and_then(rate))
                .collect();
            here.extend(files.each(&spec, rate));
            here.extend(
                iser.iter()
                    .map(|series| series.rate(&spec).map(|rate| rate / MIB)),
            );
            here.push(local.rate(&spec).map(|rate| rate / MIB));
            let published = matrix(name).unwrap_or_default();
            let published = published
                .iter()
                .map(|pair| pair.get(direction).copied())
                .collect();
            rows.push(Row {
                what: format!("{what} {name}"),
                unit: "MiB/s",
                here,
                published,
            });
        }
    }
    Table {
        title: "CrystalDiskMark's matrix".to_owned(),
        here,
        published: COLUMNS.to_vec(),
        rows,
        differs: "The published disks are drives and the network is real; here NVMe's disk is memory, the \
                  files of SMB and iSER are in the page cache, and all ends share the processors of one \
                  machine. fio stands for both local columns. Windows is not run: a Windows guest with a \
                  function has no counterpart, and RDMA through the lab's switch stands for the Linux guest \
                  and for Windows at 100G.",
    }
}

/// The column of a transport of files.
fn share(name: String) -> String {
    if name.starts_with("SMB") {
        name
    } else {
        format!("SMB {name}")
    }
}

/// A lab that ends with this value.
struct Lab<'a> {
    runner: &'a mut Runner,
    name: String,
}

impl Lab<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.runner.rockery());
        command.arg("lab").args(words);
        command
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let command = self.command(&["down", &self.name]);
        // A lab that did not start is not there.
        _ = self.runner.run("crs504-lab-down", &command);
    }
}

/// NVMe/RDMA between two hosts of the lab, in the form of a series, and how late the lab was.
fn through_the_lab(runner: &mut Runner) -> Result<(Value, String), String> {
    for (name, text) in FILES {
        runner.provide(name, text)?;
    }
    let (file, control) = (runner.path("lab.toml"), runner.path("lab.sock"));
    let (file, control) = (file.display().to_string(), control.display().to_string());
    let (rockery, is_quick) = (runner.rockery().display().to_string(), runner.is_quick());
    let lab = Lab {
        name: format!("documents-{}", std::process::id()),
        runner,
    };
    let command = lab.command(&["up", "-d", "--name", &lab.name, &file]);
    lab.runner.run("crs504-lab-up", &command)?;
    let inside = |host: &str, words: &[&str]| {
        let mut command = lab.command(&["exec", "--lab", &lab.name, host, "--", &rockery]);
        command.args(words);
        command
    };
    let (host, address) = SERVER;
    let serve = [
        "serve", "nvme", "--memory", "64MiB", "--rdma", address, "--listen", address,
    ];
    let mut target = inside(host, &serve);
    target.args(["--system-verbs", "--control", &control]);
    let (warm_up, seconds) = if is_quick {
        ("0.02", "0.08")
    } else {
        ("0.1", "0.5")
    };
    let bench = [
        "nvme",
        "bench",
        address,
        "--transport",
        "rdma",
        "--system-verbs",
        "--destroy",
        "--fill",
    ];
    let mut bench = inside(CLIENT, &bench);
    bench.args(["--json", "--warm-up", warm_up, "--seconds", seconds]);
    for what in ["read", "write"] {
        MATRIX
            .iter()
            .for_each(|(_, how, many)| _ = bench.args(["--job", &format!("{how}{what}:{many}")]));
    }
    let status = lab.command(&["ps", "--json"]);
    let _target = lab.runner.start(&target)?;
    let text = lab.runner.ask("crs504-lab", &bench, START)?;
    let jobs: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let status = lab.runner.run("crs504-lab-ps", &status)?;
    Ok((
        json!({ "transport": "RDMA, lab", "jobs": jobs }),
        lateness(&status, &lab.name),
    ))
}

/// Whether the lab was in time, in a sentence without its full stop.
fn lateness(status: &str, name: &str) -> String {
    let all = status
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let own = all
        .into_iter()
        .find(|lab| lab["name"] == name)
        .unwrap_or_default();
    match own["valid"].as_bool() {
        Some(true) => {
            "RDMA, lab: packets were delivered in time, so links and switch limit the rates".to_owned()
        }
        _ => {
            "RDMA, lab: packets were delivered later than the links say, because this machine is slower than \
              they are: the rates are those of the machine"
                .to_owned()
        }
    }
}
