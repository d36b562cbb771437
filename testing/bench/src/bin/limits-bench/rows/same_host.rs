//! Two programs on one host, beside the kernel's copy between processes, copies through mappings that both
//! have, and other transports: UCX over shared memory and over the kernel's copy, libfabric over shared
//! memory. UCX has two layers: programs use the upper one (UCP: tags, completions in order), and its `put_bw`
//! over `posix` in the lower one (UCT) is a bare copy.

use programs::machine::until;
use programs::{Error, Job as _, Machine as _};

use crate::place::Place;
use crate::row::{Bound, Row, Unit};
use crate::tools::{
    Column, MIB, SECONDS, SharedFiles, limit, on_one_host, succeeded, ucx, ucx_rate, words,
};

const UCX_PORT: u16 = 13338;
const PINGPONG_PORT: u16 = 47592;

/// A size of messages: bytes, and how many each program moves.
#[derive(Clone, Copy)]
struct Size {
    bytes: u32,
    /// perftest's and UCX's messages.
    count: u32,
    /// libfabric's, each way.
    pings: u32,
}

const SIZES: [Size; 4] = [
    Size {
        bytes: 4 << 10,
        count: 300_000,
        pings: 20_000,
    },
    Size {
        bytes: 64 << 10,
        count: 100_000,
        pings: 10_000,
    },
    Size {
        bytes: 1 << 20,
        count: 10_000,
        pings: 1_000,
    },
    Size {
        bytes: 4 << 20,
        count: 2_500,
        pings: 250,
    },
];

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(SIZES.map(private_writes));
    rows.extend(
        ["ib_read_bw", "ib_send_bw"].map(|program| others_beside_the_kernel(program, SIZES[1])),
    );
    rows.extend(SIZES.map(shared_writes));
    rows.push(shared_reads(SIZES[1]));
    rows.extend(small_messages());
    rows.extend(shared_latencies());
    rows.push(events());
    rows
}

fn perftest(place: &Place, program: &str, size: Size, options: &str) -> Result<f64, Error> {
    let Size { bytes, count, .. } = size;
    let line = format!("{program} -s {bytes} -n {count}{options}");
    Ok(on_one_host(place, &line, Column::Average)? * MIB / 1e9)
}

fn shared_perftest(place: &Place, program: &str, size: Size) -> Result<f64, Error> {
    let files = SharedFiles::new()?;
    perftest(place, program, size, &format!(" --mmap={}", files.name()))
}

/// A latency with memory that both programs have mapped.
fn shared_latency(place: &Place, line: &str) -> Result<f64, Error> {
    let files = SharedFiles::new()?;
    on_one_host(
        place,
        &format!("{line} --mmap={}", files.name()),
        Column::P50,
    )
}

fn copy(place: &Place, mode: &str, size: Size) -> Result<f64, Error> {
    limit(place, mode, &size.bytes.to_string(), "gigabytes per second")
}

/// The lower layer of UCX by one transport, or the upper one with tags.
fn ucx_stream(place: &Place, transport: &str, test: &str, size: Size) -> Result<f64, Error> {
    let alone = place.alone()?;
    let Size { bytes, count, .. } = size;
    let line = format!(
        "env UCX_TLS={transport} ucx_perftest -p {UCX_PORT} -f -w 100 {test} -s {bytes} -n {count}"
    );
    Ok(ucx_rate(&ucx(alone, alone, &line, UCX_PORT)?) / 1e9)
}

/// `fi_pingpong` prints: name of the size, sent, acknowledged, bytes in all, seconds, MB/s, and times.
fn libfabric(place: &Place, size: Size) -> Result<f64, Error> {
    let alone = place.alone()?;
    let line = format!(
        "fi_pingpong -p shm -e rdm -I {} -S {}",
        size.pings, size.bytes
    );
    let argv = words(&line);
    let mut server = alone.start_plain(&argv)?;
    until(SECONDS, || alone.listens(PINGPONG_PORT))?;
    let address = alone.address().to_string();
    let output = succeeded(
        alone
            .start_plain(&[&argv[..], &[&address]].concat())?
            .wait(SECONDS)?,
        &[&line],
    )?;
    server.wait(SECONDS)?;
    let rate = output
        .lines()
        .last()
        .map(words)
        .and_then(|words| words.get(5)?.parse::<f64>().ok());
    Ok(rate.ok_or(Error::Failed {
        command: line,
        output,
    })? / 1e3)
}

/// Memory of each program's own: the kernel copies it, or both programs do through a ring.
fn private_writes(size: Size) -> Row {
    let name = format!("`ib_write_bw` {} B, same host", size.bytes);
    let (kernel, peer) = (Some(Bound::AtLeast(0.9)), Some(Bound::AtLeast(1.0)));
    Row::new(name, Unit::gigabytes(), move |place| {
        perftest(place, "ib_write_bw", size, "")
    })
    .beside("`process_vm_writev`", kernel, move |place| {
        copy(place, "copy", size)
    })
    .beside("a ring of two `memcpy`", kernel, move |place| {
        copy(place, "ring", size)
    })
    .beside("UCT `put_bw` over `cma`", peer, move |place| {
        ucx_stream(place, "cma", "-d memory -x cma -t put_bw -D zcopy", size)
    })
    .beside("libfabric's `shm`, `fi_pingpong`", peer, move |place| {
        libfabric(place, size)
    })
}

fn others_beside_the_kernel(program: &'static str, size: Size) -> Row {
    let name = format!("`{program}` {} B, same host", size.bytes);
    Row::new(name, Unit::gigabytes(), move |place| {
        perftest(place, program, size, "")
    })
    .beside(
        "`process_vm_writev`",
        Some(Bound::AtLeast(0.9)),
        move |place| copy(place, "copy", size),
    )
}

fn shared_writes(size: Size) -> Row {
    let name = format!("`ib_write_bw` {} B, same host, shared mapping", size.bytes);
    let peer = Some(Bound::AtLeast(1.0));
    Row::new(name, Unit::gigabytes(), move |place| {
        shared_perftest(place, "ib_write_bw", size)
    })
    .beside(
        "`memcpy` between two mappings",
        Some(Bound::AtLeast(0.95)),
        move |place| copy(place, "memcpy", size),
    )
    .beside("UCT `put_bw` over `posix`", peer, move |place| {
        ucx_stream(
            place,
            "posix",
            "-d memory -x posix -t put_bw -D short",
            size,
        )
    })
    .beside("UCX `tag_bw` over `posix`", peer, move |place| {
        ucx_stream(place, "posix", "-t tag_bw", size)
    })
}

fn shared_reads(size: Size) -> Row {
    let name = format!("`ib_read_bw` {} B, same host, shared mapping", size.bytes);
    Row::new(name, Unit::gigabytes(), move |place| {
        shared_perftest(place, "ib_read_bw", size)
    })
    .beside(
        "`memcpy` between two mappings",
        Some(Bound::AtLeast(0.95)),
        move |place| copy(place, "memcpy", size),
    )
}

fn small_messages() -> Vec<Row> {
    let mut rows = Vec::new();
    for (program, goal) in [
        ("ib_send_lat", None),
        ("ib_write_lat", Some(0.5)),
        ("ib_read_lat", None),
    ] {
        let line = format!("{program} -s 8 -n 100000");
        let name = format!("`{program}` 8 B, p50, same host");
        let row = Row::new(name, Unit::microseconds(), move |place| {
            on_one_host(place, &line, Column::P50)
        });
        let row = row.beside("`process_vm_writev`", None, |place| {
            limit(place, "copy", "8", "microseconds")
        });
        rows.push(match goal {
            Some(goal) => row.goal(Bound::AtMost(goal)),
            None => row,
        });
    }
    rows.push(
        Row::new(
            "`ib_atomic_lat`, p50, same host",
            Unit::microseconds(),
            |place| on_one_host(place, "ib_atomic_lat -n 100000", Column::P50),
        )
        .goal(Bound::AtMost(0.5)),
    );
    for program in ["ib_write_bw", "ib_send_bw"] {
        let name = format!("`{program}` 64 B, messages, same host");
        let line = format!("{program} -s 64 -n 3000000");
        let row = Row::new(name, Unit::millions(), move |place| {
            on_one_host(place, &line, Column::Rate)
        });
        rows.push(row.goal(Bound::AtLeast(8.0)));
    }
    rows
}

fn shared_latencies() -> Vec<Row> {
    let written = Row::new(
        "`ib_write_lat` 8 B, p50, shared mapping",
        Unit::microseconds(),
        |place| shared_latency(place, "ib_write_lat -s 8 -n 100000"),
    );
    let tags = |place: &Place| {
        let alone = place.alone()?;
        let line = format!(
            "env UCX_TLS=posix ucx_perftest -p {UCX_PORT} -f -w 100 -t tag_lat -s 8 -n 1000000"
        );
        Ok(ucx(alone, alone, &line, UCX_PORT)?
            .get(1)
            .copied()
            .unwrap_or_default())
    };
    let read = Row::new(
        "`ib_read_lat` 8 B, p50, shared mapping",
        Unit::microseconds(),
        |place| shared_latency(place, "ib_read_lat -s 8 -n 100000"),
    );
    let atomic = Row::new(
        "`ib_atomic_lat`, p50, shared mapping",
        Unit::microseconds(),
        |place| shared_latency(place, "ib_atomic_lat -n 100000"),
    );
    let messages = Row::new(
        "`ib_write_bw` 64 B, messages, shared mapping",
        Unit::millions(),
        |place| {
            let files = SharedFiles::new()?;
            let line = format!("ib_write_bw -s 64 -n 3000000 --mmap={}", files.name());
            on_one_host(place, &line, Column::Rate)
        },
    );
    vec![
        written.goal(Bound::AtMost(0.25)).beside(
            "UCX `tag_lat` over `posix`",
            Some(Bound::AtMost(1.0)),
            tags,
        ),
        read.goal(Bound::AtMost(0.25)),
        atomic.goal(Bound::AtMost(0.5)),
        messages.goal(Bound::AtLeast(8.0)),
    ]
}

/// Two programs that sleep, woken by events.
fn events() -> Row {
    Row::new(
        "`ib_send_lat -e` 8 B, p50, both asleep, same host",
        Unit::microseconds(),
        |place| on_one_host(place, "ib_send_lat -e -s 8 -n 20000", Column::P50),
    )
    .beside("eventfd", Some(Bound::AtMost(1.3)), |place| {
        limit(place, "wake", "20000", "microseconds p50")
    })
}
