//! SMB 3 over InfiniBand: verbs, TCP with windows of 1 MiB, NetPIPE, then files, layer by layer.

use serde_json::Value;

use super::perftest::{self, Ends};
use super::report::{Document, Row, Table};
use super::runner::{Runner, number};
use super::smb::{self, Files};
use crate::smb::published::{CONCURRENT, SEQUENTIAL};

/// Published figures of the layers: MiB/s, MiB/s, us, us; Gb/s of iperf, twice; Mb/s of NetPIPE at 1 MiB.
const READ_BW: f64 = 2275.69;
const WRITE_BW: f64 = 2850.94;
const READ_LATENCY: f64 = 2.40;
const WRITE_LATENCY: f64 = 1.44;
const IPERF: [f64; 2] = [7.29, 5.48];
/// Runs of iperf3, at most.
const ATTEMPTS: usize = 3;
const NETPIPE_PEAK: (u64, f64) = (1 << 20, 7686.283);
/// Percent of the server's processors: the least and the most, one file and several at once.
const CPU: [[f64; 2]; 2] = [[3.0, 5.0], [8.0, 11.0]];

/// The largest message of the sweep.
const SWEEP_MAX: u64 = 8 << 20;

const WIRE: &str = "The published link is InfiniBand at 32 Gb/s between two adapters; here packets go in UDP \
                    through a veth of one machine, so processors do the work of the adapters.";
const TCP: &str = "The published TCP is IP over InfiniBand with large windows; here it is the kernel's TCP \
                   over a veth, where no cable and no adapter limits it.";
const SWEEP: &str = "NetPIPE's published figure is the peak of TCP over InfiniBand, at 1 MiB; here NPtcp \
                     runs over a veth, and ib_send_lat over rockery has the same sizes, as bytes by the \
                     time of one way.";

/// Measures layer by layer.
pub(super) fn measure(runner: &mut Runner) -> Document {
    let mut document = Document::new(
        "\"SMB 3.0 over RDMA 性能测试\" (SMB 3.0 over RDMA performance test), \
         zohead.com/archives/smb3-over-rdma-performance",
        "2012",
        "Two servers with ConnectX-2 at 32 Gb/s back to back, Windows Server 2012 beta, 16 disks in RAID-0.",
    );
    match Ends::new(runner) {
        Ok(mut ends) => {
            document.add_verbs(&mut ends);
            document.add_tcp(&mut ends);
            document.add_sweep(&mut ends);
        }
        Err(reason) => document.miss("verbs, TCP and NetPIPE", reason),
    }
    let groups = smb::measure(runner, "infiniband", "copy", &mut document);
    document.add(files(&groups));
    document.add(server_cpu(&groups));
    document
}

impl Document {
    fn add_verbs(&mut self, ends: &mut Ends<'_>) {
        let count = if ends.runner.is_quick() {
            "100"
        } else {
            "5000"
        };
        let mut rows = Vec::new();
        for (test, published) in [("ib_read_bw", READ_BW), ("ib_write_bw", WRITE_BW)] {
            let text = ends.perftest(
                &format!("infiniband-{test}"),
                &[test, "-s", "65536", "-n", count],
            );
            let found = self
                .or_missing(test, text)
                .and_then(|text| perftest::bandwidth(&text, 65536));
            rows.push(row(format!("{test}, 64 KiB"), "MiB/s", found, published));
        }
        for (test, published) in [
            ("ib_read_lat", READ_LATENCY),
            ("ib_write_lat", WRITE_LATENCY),
        ] {
            let text = ends.perftest(
                &format!("infiniband-{test}"),
                &[test, "-s", "2", "-n", count],
            );
            let found = self
                .or_missing(test, text)
                .and_then(|text| perftest::latency(&text, 2));
            rows.push(row(format!("{test}, 2 B"), "us", found, published));
        }
        self.add(Table {
            title: "Verbs".to_owned(),
            here: vec!["rockery, veth".to_owned()],
            published: vec!["ConnectX-2"],
            rows,
            differs: WIRE,
        });
    }

    fn add_tcp(&mut self, ends: &mut Ends<'_>) {
        let seconds = if ends.runner.is_quick() { "1" } else { "5" };
        let client = ["iperf3", "-J", "-w", "1M", "-t", seconds, "-c"];
        // On a busy machine iperf3 may end with an error in its report and status 0.
        let mut result = Err(String::new());
        for _ in 0..ATTEMPTS {
            result = ends
                .between("infiniband-iperf3", &["iperf3", "-s"], &client)
                .and_then(|text| rate(&text));
            if result.is_ok() {
                break;
            }
        }
        let found = self.or_missing("iperf3", result).map(|rate| rate / 1e9);
        self.add(Table {
            title: "TCP".to_owned(),
            here: vec!["iperf3, veth".to_owned()],
            published: vec!["first figure", "second figure"],
            rows: vec![Row {
                what: "iperf, window 1 MiB".to_owned(),
                unit: "Gb/s",
                here: vec![found],
                published: IPERF.map(Some).to_vec(),
            }],
            differs: TCP,
        });
    }

    fn add_sweep(&mut self, ends: &mut Ends<'_>) {
        let is_quick = ends.runner.is_quick();
        let tcp = self.or_missing("NetPIPE (package netpipe-tcp)", netpipe(ends, is_quick));
        let tcp = tcp.unwrap_or_default();
        let count = if is_quick { "10" } else { "200" };
        let mut texts = Vec::new();
        // -a begins with 2 bytes.
        for (name, size) in [("1", vec!["-s", "1"]), ("all", vec!["-a"])] {
            let words = [vec!["ib_send_lat", "-n", count], size].concat();
            let text = ends.perftest(&format!("infiniband-sweep-{name}"), &words);
            texts.extend(self.or_missing("ib_send_lat, sweep", text));
        }
        let sizes = (0..)
            .map(|power| 1_u64 << power)
            .take_while(|bytes| *bytes <= SWEEP_MAX);
        let rows = sizes.map(|bytes| {
            let us = texts.iter().find_map(|text| perftest::latency(text, bytes));
            let rdma = us.filter(|us| *us > 0.0).map(|us| bytes as f64 * 8.0 / us);
            let tcp = tcp.iter().find(|row| row.0 == bytes).map(|row| row.1);
            let published = (bytes == NETPIPE_PEAK.0).then_some(NETPIPE_PEAK.1);
            Row {
                what: format!("{bytes} B"),
                unit: "Mb/s",
                here: vec![rdma, tcp],
                published: vec![published],
            }
        });
        self.add(Table {
            title: "NetPIPE's sweep".to_owned(),
            here: vec!["ib_send_lat over rockery".to_owned(), "NPtcp".to_owned()],
            published: vec!["NetPIPE, TCP"],
            rows: rows.collect(),
            differs: SWEEP,
        });
    }
}

/// Runs NetPIPE over TCP with powers of two, and returns its rows.
fn netpipe(ends: &mut Ends<'_>, is_quick: bool) -> Result<Vec<(u64, f64, f64)>, String> {
    let file = ends
        .runner
        .path("infiniband-netpipe.out")
        .display()
        .to_string();
    let most = SWEEP_MAX.to_string();
    let mut client = vec!["NPtcp", "-p", "0", "-u", &most, "-o", &file];
    if is_quick {
        client.extend(["-n", "3"]);
    }
    client.push("-h");
    let server: Vec<&str> = client
        .iter()
        .copied()
        .take(5)
        .chain(["-o", "/dev/null"])
        .collect();
    let server = [
        server,
        if is_quick {
            vec!["-n", "3"]
        } else {
            Vec::new()
        },
    ]
    .concat();
    ends.between("infiniband-netpipe", &server, &client)?;
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    Ok(perftest::netpipe(&text))
}

fn row(what: String, unit: &'static str, found: Option<f64>, published: f64) -> Row {
    Row {
        what,
        unit,
        here: vec![found],
        published: vec![Some(published)],
    }
}

/// Jobs of a copy, with the published figures: read, write.
fn copies() -> [(&'static str, &'static str, [f64; 2]); 2] {
    let one = ("one file", "1m:8", [SEQUENTIAL.read, SEQUENTIAL.write]);
    [
        one,
        (
            "four files at once",
            "1m:8t4",
            [CONCURRENT.read, CONCURRENT.write],
        ),
    ]
}

fn files(groups: &Files) -> Table {
    let mut rows = Vec::new();
    for (name, many, published) in copies() {
        for (what, published) in ["read", "write"].into_iter().zip(published) {
            let here = groups.each(&format!("{what}:{many}"), |job| {
                Some(number(job, "/bytes-per-second")? / 1e6)
            });
            let published = vec![Some(published)];
            rows.push(Row {
                what: format!("{what} {name}"),
                unit: "MB/s",
                here,
                published,
            });
        }
    }
    Table {
        title: "Files".to_owned(),
        here: groups.columns(),
        published: vec!["SMB Direct"],
        rows,
        differs: "The published server is Windows on 16 disks, whose local rates were 956.77 MB/s (read) and \
                  735.80 MB/s (write); here Samba serves a file in the page cache of the same machine.",
    }
}

fn server_cpu(groups: &Files) -> Table {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut rows = Vec::new();
    for ((name, many, _), published) in copies().into_iter().zip(CPU) {
        for what in ["read", "write"] {
            let here = groups.each(&format!("{what}:{many}"), |job| {
                let samba = number(job, "/samba")?;
                Some((samba + number(job, "/gateway").unwrap_or_default()) / cores * 100.0)
            });
            let published = published.map(Some).to_vec();
            rows.push(Row {
                what: format!("{what} {name}, server's CPU"),
                unit: "%",
                here,
                published,
            });
        }
    }
    Table {
        title: "Processor time of the server".to_owned(),
        here: groups.columns(),
        published: vec!["SMB Direct, least", "most"],
        rows,
        differs: "The published adapter moves data without the processor; here Samba and the gateway, which \
                  does an adapter's work, are counted together, as a part of all processors of the machine.",
    }
}

/// The rate that arrived in an iperf3 report, in bit/s, or the error in it.
fn rate(report: &str) -> Result<f64, String> {
    let report: Value = serde_json::from_str(report).map_err(|error| error.to_string())?;
    let rate = number(&report, "/end/sum_received/bits_per_second");
    rate.ok_or_else(|| {
        report["error"]
            .as_str()
            .unwrap_or("the report has no rate")
            .to_owned()
    })
}
