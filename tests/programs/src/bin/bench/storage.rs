//! Storage: a disk in memory over RDMA and TCP, nbdkit beside it; over UDP, perftest beside it; and a file
//! beside fio on the same file.

use bench::{Beside, median};
use programs::{Error, Job, Machine, Namespace, Pair, Rockery};
use serde_json::Value;
use tempfile::TempDir;

use super::{ROUNDS, Row, SECONDS, beside, perftest_row, succeeded};

const NQN: &str = "nqn.2024-01.org.example:disk";
/// Bytes of each disk: more than the processor keeps close, little enough to be filled at once.
const SIZE: &str = "256M";
const NBD_PORT: u16 = 10809;

/// What is measured: as rockery names it, and as fio does.
struct Load {
    name: &'static str,
    job: &'static str,
    fio: &'static str,
}

const ONE: Load = Load {
    name: "4 KiB random read, 1 at once",
    job: "randread:4k:1",
    fio: "--rw=randread --bs=4k --iodepth=1",
};
const MANY: Load = Load {
    name: "4 KiB random read, 128 at once",
    job: "randread:4k:128",
    fio: "--rw=randread --bs=4k --iodepth=128",
};
const LONG: Load =
    Load { name: "1 MiB read, 8 at once", job: "read:1m:8", fio: "--rw=read --bs=1m --iodepth=8" };
const LONG_WRITE: Load =
    Load { name: "1 MiB write, 8 at once", job: "write:1m:8", fio: "--rw=write --bs=1m --iodepth=8" };

/// What came of it.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    gigabytes: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Figures {
    fn text(&self, load: &Load) -> String {
        match load.job {
            "randread:4k:1" => format!("{:.1} us p50, {:.1} us p99", self.p50_us, self.p99_us),
            job if job.starts_with("randread") => format!("{:.0}/s", self.per_second),
            _ => format!("{:.1} GB/s", self.gigabytes),
        }
    }

    /// How much better it is than another.
    fn over(&self, other: &Self, load: &Load) -> f64 {
        match load.job {
            "randread:4k:1" => other.p50_us / self.p50_us,
            job if job.starts_with("randread") => self.per_second / other.per_second,
            _ => self.gigabytes / other.gigabytes,
        }
    }

    fn medians(all: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(all.iter().map(field).collect());
        Self {
            per_second: of(|it| it.per_second),
            gigabytes: of(|it| it.gigabytes),
            p50_us: of(|it| it.p50_us),
            p99_us: of(|it| it.p99_us),
        }
    }
}

pub(crate) fn measure() -> Result<Vec<Row>, Error> {
    let alone = Namespace::alone()?;
    let folder = TempDir::new().map_err(Error::file("a temporary folder"))?;
    let bench = Bench { server: &alone, host: &alone, folder: &folder };
    let mut rows = bench.memory()?;
    rows.extend(bench.file()?);
    let pair = Pair::new(9000)?.with(&Rockery::built());
    rows.extend(Bench { server: &pair.left, host: &pair.right, folder: &folder }.over_udp(&pair)?);
    Ok(rows)
}

struct Bench<'a> {
    /// Where the target runs, and where hosts do.
    server: &'a Namespace,
    host: &'a Namespace,
    folder: &'a TempDir,
}

impl Bench<'_> {
    fn serve(&self, disk: &str, port: u16) -> Result<Box<dyn Job>, Error> {
        let address = self.server.address();
        let line = format!(
            "{} serve nvme {disk} --subsystem {NQN} --listen {address}:{port} --rdma {address}:{port} \
             --poll 1000 --control {}",
            Rockery::built().path().display(),
            self.folder.path().join(format!("control{port}")).display()
        );
        let server = self.server.start_plain(&line.split_whitespace().collect::<Vec<_>>())?;
        self.server.wait_for_listener(port, SECONDS)?;
        Ok(Box::new(server))
    }

    fn ours(&self, transport: &str, port: u16, load: &Load) -> Result<Figures, Error> {
        let line = format!(
            "{} nvme bench {}:{port} --transport {transport} --subsystem {NQN} --job {} --destroy --fill \
             --seconds 1 --warm-up 0.3 --json",
            Rockery::built().path().display(),
            self.server.address(),
            load.job
        );
        let argv: Vec<&str> = line.split_whitespace().collect();
        let output = succeeded(self.host.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
        let found = output.lines().find_map(|line| {
            let value: Value = serde_json::from_str(line).ok()?;
            let of = |name: &str| value.get(name).and_then(Value::as_f64);
            Some(Figures {
                per_second: of("per-second")?,
                gigabytes: of("bytes-per-second")? / 1e9,
                p50_us: of("p50-us")?,
                p99_us: of("p99-us")?,
            })
        });
        found.ok_or(Error::Failed { command: line, output })
    }

    fn fio(&self, engine: &str, load: &Load) -> Result<Figures, Error> {
        let line = format!(
            "fio --name=v {engine} {} --size={SIZE} --time_based --runtime=1 --ramp_time=0.3 \
             --output-format=json",
            load.fio
        );
        let argv: Vec<&str> = line.split_whitespace().collect();
        let output = succeeded(self.host.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
        let way = if load.fio.contains("write") { "write" } else { "read" };
        let begin = output.find('{').unwrap_or_default();
        let found = serde_json::from_str(&output[begin..]).ok().and_then(|value: Value| {
            let of = |path: &str| value.pointer(&format!("/jobs/0/{way}/{path}")).and_then(Value::as_f64);
            Some(Figures {
                per_second: of("iops")?,
                gigabytes: of("bw_bytes")? / 1e9,
                p50_us: of("clat_ns/percentile/50.000000")? / 1e3,
                p99_us: of("clat_ns/percentile/99.000000")? / 1e3,
            })
        });
        found.ok_or(Error::Failed { command: line, output })
    }

    /// A disk in memory; over TCP beside nbdkit's, which fio asks.
    fn memory(&self) -> Result<Vec<Row>, Error> {
        let _server = self.serve(&format!("--memory {SIZE}"), 4420)?;
        let port = NBD_PORT.to_string();
        let _peer =
            self.host.start_plain(&["nbdkit", "-f", "-i", "127.0.0.1", "-p", &port, "memory", SIZE])?;
        self.host.wait_for_listener(NBD_PORT, SECONDS)?;
        let nbd = format!("--ioengine=nbd --uri=nbd://127.0.0.1:{NBD_PORT}");
        let mut rows = Vec::new();
        for (load, rdma_goal, tcp_goal) in [
            (ONE, "2.5 us, p99 5 us", "10.0 us (SPDK)"),
            (MANY, "1.45 million/s", "706,000/s (SPDK)"),
            (LONG, "11.8 GB/s", "7.4 GB/s (SPDK)"),
            (LONG_WRITE, "11.8 GB/s", "8.2 GB/s (SPDK)"),
        ] {
            eprintln!("NVMe, {}", load.name);
            let (mut rdma, mut tcp, mut peer) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                rdma.push(self.ours("rdma", 4420, &load)?);
                tcp.push(self.ours("tcp", 4420, &load)?);
                peer.push(self.fio(&nbd, &load)?);
            }
            let [rdma, tcp, peer] = [rdma, tcp, peer].map(|all| Figures::medians(&all));
            rows.push(Row {
                name: format!("NVMe/RDMA on one host, memory disk, {}", load.name),
                figure: rdma.text(&load),
                limit: String::new(),
                ratio: format!("{:.2} of TCP", rdma.over(&tcp, &load)),
                goal: rdma_goal.into(),
            });
            rows.push(Row {
                name: format!("NVMe/TCP, memory disk, {}", load.name),
                figure: tcp.text(&load),
                limit: format!("nbdkit, fio's nbd engine {}", peer.text(&load)),
                ratio: format!("{:.2}", tcp.over(&peer, &load)),
                goal: tcp_goal.into(),
            });
        }
        Ok(rows)
    }

    /// Between two network namespaces, beside perftest's programs. What a host reads the target WRITEs, and
    /// what it writes the target READs.
    fn over_udp(&self, pair: &Pair) -> Result<Vec<Row>, Error> {
        let _server = self.serve(&format!("--memory {SIZE}"), 4440)?;
        let mut rows = Vec::new();
        for (load, program) in [(LONG, "ib_write_bw"), (LONG_WRITE, "ib_read_bw")] {
            eprintln!("NVMe over UDP, {}", load.name);
            let line = format!("{program} -s 1048576 -n 5000");
            let Beside { figure, limit, ratio } = beside(
                || Ok(self.ours("rdma", 4440, &load)?.gigabytes),
                || {
                    let row = perftest_row(pair, &line)?;
                    Ok(row.figures.get(1).copied().unwrap_or_default() * 1_048_576.0 / 1e9)
                },
            )?;
            rows.push(Row {
                name: format!("NVMe/RDMA over UDP, MTU 9000, memory disk, {}", load.name),
                figure: format!("{figure:.1} GB/s"),
                limit: format!("`{program}` of 1 MiB {limit:.1} GB/s"),
                ratio: format!("{ratio:.2}"),
                goal: "at least 0.8".into(),
            });
        }
        Ok(rows)
    }

    /// A file, past the page cache, beside fio on the same file.
    fn file(&self) -> Result<Vec<Row>, Error> {
        let path = self.folder.path().join("disk").display().to_string();
        let _server = self.serve(&format!("{path} --size {SIZE}"), 4430)?;
        let direct = format!("--ioengine=io_uring --direct=1 --filename={path}");
        let mut rows = Vec::new();
        let deep = Load {
            name: "4 KiB random read, 32 at once",
            job: "randread:4k:32",
            fio: "--rw=randread --bs=4k --iodepth=32",
        };
        for load in [deep, LONG, LONG_WRITE] {
            eprintln!("NVMe on a file, {}", load.name);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(self.ours("rdma", 4430, &load)?);
                theirs.push(self.fio(&direct, &load)?);
            }
            let [ours, theirs] = [ours, theirs].map(|all| Figures::medians(&all));
            rows.push(Row {
                name: format!("NVMe/RDMA on one host, file, {}", load.name),
                figure: ours.text(&load),
                limit: format!("fio, io_uring, the same file {}", theirs.text(&load)),
                ratio: format!("{:.2}", ours.over(&theirs, &load)),
                goal: "at least 0.9".into(),
            });
        }
        Ok(rows)
    }
}
