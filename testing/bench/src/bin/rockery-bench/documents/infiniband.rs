//! SMB 3 over InfiniBand: verbs, TCP with windows of 1 MiB, NetPIPE, then files, layer by layer.

use super::local::{self, Local};
use super::perftest::{self, Ends};
use super::report::{Document, Row, Table};
use super::runner::{Runner, number};
use super::smb::{self, Files};
use super::streams::{self, Streams};
use crate::smb::published::{CONCURRENT, Copies, SEQUENTIAL};

/// Published figures of the layers: MiB/s, MiB/s, us, us; Gb/s of iperf, twice; Mb/s of NetPIPE at 1 MiB.
const READ_BW: f64 = 2275.69;
const WRITE_BW: f64 = 2850.94;
const READ_LATENCY: f64 = 2.40;
const WRITE_LATENCY: f64 = 1.44;
const IPERF: [f64; 2] = [7.29, 5.48];
const NETPIPE_PEAK: (u64, f64) = (1 << 20, 7686.283);
/// MB/s of the disks without a network.
const LOCAL: Copies = Copies {
    read: 956.77,
    write: 735.80,
};
/// The job of one file.
const ONE_FILE: &str = "1m:8";
/// Percent of the server's processors: the least and the most, one file and several at once.
const CPU: [[f64; 2]; 2] = [[3.0, 5.0], [8.0, 11.0]];

/// The largest message of the sweep.
const SWEEP_MAX: u64 = 8 << 20;
/// Powers of two around which sizes are measured as well, and how far from them: NetPIPE's default.
const PERTURBED: [u64; 2] = [512 << 10, 1 << 20];
const PERTURBATION: u64 = 3;

/// Bytes, Mb/s and the time of one way in seconds.
type Point = (u64, f64, f64);

const WIRE: &str = "The published link is InfiniBand at 32 Gb/s between two adapters; here packets go in UDP \
                    through a veth of one machine, so processors do the work of the adapters.";
const TCP: &str = "The published TCP is IP over InfiniBand with large windows, and the document does not say \
                   which figure is of which direction; here it is the kernel's TCP over a veth, where no \
                   cable and no adapter limits it. RDMA moves 64 KiB at once: WRITE one way, READ the other.";
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
            document.add_perturbed(&mut ends);
        }
        Err(reason) => document.miss("verbs, TCP and NetPIPE", reason),
    }
    let groups = smb::measure(runner, "infiniband", "copy", &mut document);
    let jobs = copies()
        .into_iter()
        .flat_map(|(_, many, ..)| ["read", "write"].map(|what| format!("{what}:{many}")));
    let jobs: Vec<String> = jobs.collect();
    let local = local::measure(runner, "infiniband", &jobs, &mut document);
    document.add(files(&groups, &local));
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
        let streams = Streams {
            of: "infiniband",
            what: "iperf, window 1 MiB",
            options: &["-w", "1M"],
        };
        let rows = streams::rows(ends, streams, &IPERF, self);
        self.add(Table {
            title: "TCP beside RDMA".to_owned(),
            here: streams::columns(),
            published: vec!["first figure", "second figure"],
            rows,
            differs: TCP,
        });
    }

    fn add_sweep(&mut self, ends: &mut Ends<'_>) {
        let is_quick = ends.runner.is_quick();
        let most = SWEEP_MAX.to_string();
        let tcp = netpipe(ends, "infiniband-netpipe", &["-p", "0", "-u", &most]);
        let tcp = self.or_missing("NetPIPE (package netpipe-tcp)", tcp);
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

    /// Sizes around powers of two, as NetPIPE has them by default: the published curve dips beside its peak.
    fn add_perturbed(&mut self, ends: &mut Ends<'_>) {
        let [least, most] = PERTURBED.map(|bytes| bytes.to_string());
        let perturbation = PERTURBATION.to_string();
        let options = ["-p", &perturbation, "-l", &least, "-u", &most];
        let tcp = netpipe(ends, "infiniband-netpipe-perturbed", &options);
        let tcp = self.or_missing("NetPIPE around powers of two", tcp);
        let tcp = tcp.unwrap_or_default();
        let count = if ends.runner.is_quick() { "10" } else { "200" };
        let mut rows = Vec::new();
        for bytes in PERTURBED.into_iter().flat_map(around) {
            let words = ["ib_send_lat", "-n", count, "-s", &bytes.to_string()];
            let text = ends.perftest(&format!("infiniband-around-{bytes}"), &words);
            let us = self
                .or_missing("ib_send_lat around powers of two", text)
                .and_then(|text| perftest::latency(&text, bytes));
            let rdma = us.filter(|us| *us > 0.0).map(|us| bytes as f64 * 8.0 / us);
            let tcp = tcp.iter().find(|row| row.0 == bytes).map(|row| row.1);
            let published = (bytes == NETPIPE_PEAK.0).then_some(NETPIPE_PEAK.1);
            rows.push(Row {
                what: format!("{bytes} B"),
                unit: "Mb/s",
                here: vec![rdma, tcp],
                published: vec![published],
            });
        }
        self.add(Table {
            title: "NetPIPE around powers of two".to_owned(),
            here: vec!["ib_send_lat over rockery".to_owned(), "NPtcp".to_owned()],
            published: vec!["NetPIPE, TCP"],
            rows,
            differs: SWEEP,
        });
    }
}

/// NetPIPE's sizes around one of its steps.
const fn around(bytes: u64) -> [u64; 3] {
    [bytes - PERTURBATION, bytes, bytes + PERTURBATION]
}

/// Runs NetPIPE over TCP with these options, and returns its rows.
fn netpipe(ends: &mut Ends<'_>, name: &str, options: &[&str]) -> Result<Vec<Point>, String> {
    let file = ends.runner.path(&format!("{name}.out"));
    let file = file.display().to_string();
    let few: &[&str] = if ends.runner.is_quick() {
        &["-n", "3"]
    } else {
        &[]
    };
    let client = [&["NPtcp"], options, few, &["-o", &file, "-h"]].concat();
    let server = [&["NPtcp"], options, few, &["-o", "/dev/null"]].concat();
    ends.between(name, &server, &client)?;
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
    let one = ("one file", ONE_FILE, [SEQUENTIAL.read, SEQUENTIAL.write]);
    [
        one,
        (
            "four files at once",
            "1m:8t4",
            [CONCURRENT.read, CONCURRENT.write],
        ),
    ]
}

fn files(groups: &Files, local: &Local) -> Table {
    let mut rows = Vec::new();
    for (name, many, published) in copies() {
        for (what, published) in ["read", "write"].into_iter().zip(published) {
            let spec = format!("{what}:{many}");
            let mut here = groups.each(&spec, |job| Some(number(job, "/bytes-per-second")? / 1e6));
            here.push(local.rate(&spec).map(|rate| rate / 1e6));
            let of_disks = if what == "read" {
                LOCAL.read
            } else {
                LOCAL.write
            };
            let of_disks = (many == ONE_FILE).then_some(of_disks);
            let published = vec![Some(published), of_disks];
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
        here: groups
            .columns()
            .into_iter()
            .chain([local::COLUMN.to_owned()])
            .collect(),
        published: vec!["SMB Direct", "local, 16 disks in RAID-0"],
        rows,
        differs: "The published server is Windows on 16 disks; here Samba serves a file in the page cache of \
                  the same machine, and fio reads and writes a file of its disk past the page cache.",
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
