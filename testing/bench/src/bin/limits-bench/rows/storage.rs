//! Storage: a disk in memory over RDMA and TCP, nbdkit beside it; over UDP, perftest beside it; and a file
//! beside fio on the same file.

use programs::machine::until;
use programs::namespace::Process;
use programs::{Error, Job as _, Machine as _, Namespace};
use serde_json::Value;

use crate::place::Place;
use crate::row::{Bound, Row, Unit};
use crate::tools::{Column, MIB, SECONDS, perftest, succeeded, words};

const NQN: &str = "nqn.2024-01.org.example:disk";
/// Bytes of each disk: more than the processor keeps close, little enough to be filled at once.
const SIZE: &str = "256M";
const PORT: u16 = 4420;
const NBD_PORT: u16 = 10809;

/// A load: its job for rockery, its options for fio, and the figure that counts.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    job: &'static str,
    fio: &'static str,
    figure: Figure,
}

/// A figure of a load.
#[derive(Clone, Copy)]
enum Figure {
    /// Commands per second.
    PerSecond,
    /// Gigabytes per second.
    Gigabytes,
    /// The median latency in microseconds.
    P50,
    /// The 99th percentile of the latencies in microseconds.
    P99,
}

impl Figure {
    fn unit(self) -> Unit {
        match self {
            Self::PerSecond => Unit::each_second(),
            Self::Gigabytes => Unit::gigabytes(),
            Self::P50 | Self::P99 => Unit::microseconds(),
        }
    }

    /// The bound beside a peer's figure: at most for times, at least for the others.
    fn beside_a_peer(self, ratio: f64) -> Bound {
        match self {
            Self::PerSecond | Self::Gigabytes => Bound::AtLeast(ratio),
            Self::P50 | Self::P99 => Bound::AtMost(1.0 / ratio),
        }
    }

    /// From the output of `rockery nvme bench --json`.
    fn of_ours(self, value: &Value) -> Option<f64> {
        let of = |name: &str| value.get(name).and_then(Value::as_f64);
        match self {
            Self::PerSecond => of("per-second"),
            Self::Gigabytes => Some(of("bytes-per-second")? / 1e9),
            Self::P50 => of("p50-us"),
            Self::P99 => of("p99-us"),
        }
    }

    /// From fio's JSON.
    fn of_fio(self, value: &Value, way: &str) -> Option<f64> {
        let of = |path: &str| {
            value
                .pointer(&format!("/jobs/0/{way}/{path}"))
                .and_then(Value::as_f64)
        };
        match self {
            Self::PerSecond => of("iops"),
            Self::Gigabytes => Some(of("bw_bytes")? / 1e9),
            Self::P50 => Some(of("clat_ns/percentile/50.000000")? / 1e3),
            Self::P99 => Some(of("clat_ns/percentile/99.000000")? / 1e3),
        }
    }
}

const ONE: Load = Load {
    name: "4 KiB random read, depth 1, p50",
    job: "randread:4k:1",
    fio: "--rw=randread --bs=4k --iodepth=1",
    figure: Figure::P50,
};
const TAIL: Load = Load {
    name: "4 KiB random read, depth 1, p99",
    figure: Figure::P99,
    ..ONE
};
const MANY: Load = Load {
    name: "4 KiB random read, depth 128",
    job: "randread:4k:128",
    fio: "--rw=randread --bs=4k --iodepth=128",
    figure: Figure::PerSecond,
};
const DEEP: Load = Load {
    name: "4 KiB random read, depth 32",
    job: "randread:4k:32",
    fio: "--rw=randread --bs=4k --iodepth=32",
    figure: Figure::PerSecond,
};
const LONG: Load = Load {
    name: "1 MiB read, depth 8",
    job: "read:1m:8",
    fio: "--rw=read --bs=1m --iodepth=8",
    figure: Figure::Gigabytes,
};
const LONG_WRITE: Load = Load {
    name: "1 MiB write, depth 8",
    job: "write:1m:8",
    fio: "--rw=write --bs=1m --iodepth=8",
    figure: Figure::Gigabytes,
};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for load in [ONE, TAIL, MANY, LONG, LONG_WRITE] {
        rows.push(memory_by_rdma(load));
        rows.push(memory_by_tcp(load));
    }
    rows.push(file(DEEP));
    rows.push(file(LONG));
    rows.push(file(LONG_WRITE));
    rows.push(over_udp(LONG, "ib_write_bw"));
    rows.push(over_udp(LONG_WRITE, "ib_read_bw"));
    rows
}

/// A target that serves a disk. The next one can have its ports when it is dropped.
struct Target<'a> {
    process: Process,
    server: &'a Namespace,
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        let Self { process, server } = self;
        let killed = process.kill();
        let is_gone = || Ok(process.finished()?.is_some() && !server.awaits_requests()?);
        // The next target reports an error, if there is one.
        _ = killed.and_then(|()| until(SECONDS, is_gone));
    }
}

/// Starts a target with a disk in a namespace.
fn target<'a>(place: &Place, server: &'a Namespace, disk: &str) -> Result<Target<'a>, Error> {
    let address = server.address();
    let control = place.folder()?.join("control");
    let line = format!(
        "{} serve nvme {disk} --subsystem {NQN} --listen {address}:{PORT} --rdma {address}:{PORT} \
         --poll 1000 --control {}",
        place.rockery().display(),
        control.display()
    );
    let process = server.start_plain(&words(&line))?;
    server.wait_for_listener(PORT, SECONDS)?;
    Ok(Target { process, server })
}

/// A load on the target of a namespace.
fn load(
    place: &Place,
    server: &Namespace,
    host: &Namespace,
    over: &str,
    load: Load,
) -> Result<f64, Error> {
    let line = format!(
        "{} nvme bench {}:{PORT} --transport {over} --subsystem {NQN} --job {} --destroy --fill --seconds 1 \
         --warm-up 0.3 --json",
        place.rockery().display(),
        server.address(),
        load.job
    );
    let argv = words(&line);
    let output = succeeded(host.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
    let found = output
        .lines()
        .find_map(|line| load.figure.of_ours(&serde_json::from_str(line).ok()?));
    found.ok_or(Error::Failed {
        command: line,
        output,
    })
}

fn fio(place: &Place, engine: &str, load: Load) -> Result<f64, Error> {
    let line = format!(
        "fio --name=v {engine} {} --size={SIZE} --time_based --runtime=1 --ramp_time=0.3 \
         --output-format=json",
        load.fio
    );
    let argv = words(&line);
    let output = succeeded(place.alone()?.start_plain(&argv)?.wait(SECONDS)?, &argv)?;
    let way = if load.fio.contains("write") {
        "write"
    } else {
        "read"
    };
    let begin = output.find('{').unwrap_or_default();
    let value = serde_json::from_str(&output[begin..]).ok();
    let found = value.and_then(|value: Value| load.figure.of_fio(&value, way));
    found.ok_or(Error::Failed {
        command: line,
        output,
    })
}

/// A load on a disk in memory.
fn on_memory(place: &Place, over: &str, which: Load) -> Result<f64, Error> {
    let alone = place.alone()?;
    let _target = target(place, alone, &format!("--memory {SIZE}"))?;
    load(place, alone, alone, over, which)
}

fn memory_by_rdma(load: Load) -> Row {
    let name = format!("NVMe/RDMA on one host, memory, {}", load.name);
    Row::new(name, load.figure.unit(), move |place| {
        on_memory(place, "rdma", load)
    })
    .beside(
        "NVMe/TCP",
        Some(load.figure.beside_a_peer(1.0)),
        move |place| on_memory(place, "tcp", load),
    )
}

/// Beside nbdkit's disk in memory, which fio reads and writes.
fn memory_by_tcp(load: Load) -> Row {
    let name = format!("NVMe/TCP, memory, {}", load.name);
    let nbd = move |place: &Place| {
        let (alone, port) = (place.alone()?, NBD_PORT.to_string());
        let _peer = alone.start_plain(&[
            "nbdkit",
            "-f",
            "-i",
            "127.0.0.1",
            "-p",
            &port,
            "memory",
            SIZE,
        ])?;
        alone.wait_for_listener(NBD_PORT, SECONDS)?;
        fio(
            place,
            &format!("--ioengine=nbd --uri=nbd://127.0.0.1:{NBD_PORT}"),
            load,
        )
    };
    Row::new(name, load.figure.unit(), move |place| {
        on_memory(place, "tcp", load)
    })
    .beside(
        "nbdkit, fio's nbd engine",
        Some(load.figure.beside_a_peer(1.0)),
        nbd,
    )
}

/// A file, past the page cache, beside fio on the same file.
fn file(which: Load) -> Row {
    let name = format!("NVMe/RDMA on one host, file, {}", which.name);
    let disk = |place: &Place| Ok::<_, Error>(place.folder()?.join("disk").display().to_string());
    let ours = move |place: &Place| {
        let alone = place.alone()?;
        let _target = target(place, alone, &format!("{} --size {SIZE}", disk(place)?))?;
        load(place, alone, alone, "rdma", which)
    };
    Row::new(name, which.figure.unit(), ours).beside(
        "fio, io_uring, the same file",
        Some(which.figure.beside_a_peer(0.9)),
        move |place| {
            let engine = format!("--ioengine=io_uring --direct=1 --filename={}", disk(place)?);
            fio(place, &engine, which)
        },
    )
}

/// Between two network namespaces, beside perftest's programs. What a host reads the target WRITEs, and what
/// it writes the target READs.
fn over_udp(which: Load, program: &'static str) -> Row {
    let name = format!("NVMe/RDMA over UDP, MTU 9000, memory, {}", which.name);
    let ours = move |place: &Place| {
        let pair = place.jumbo()?;
        let _target = target(place, &pair.left, &format!("--memory {SIZE}"))?;
        load(place, &pair.left, &pair.right, "rdma", which)
    };
    Row::new(name, which.figure.unit(), ours).beside(
        format!("`{program}` of 1 MiB"),
        Some(Bound::AtLeast(0.8)),
        move |place| {
            let pair = place.jumbo()?;
            let line = format!("{program} -s 1048576 -n 5000");
            Ok(perftest(&pair.left, &pair.right, &line, Column::Average)? * MIB / 1e9)
        },
    )
}
