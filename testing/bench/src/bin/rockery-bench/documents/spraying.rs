//! Packet spraying and out-of-order receive, in virtual time.

use serde_json::Value;

use super::report::{Document, Row, Table};
use super::runner::{Runner, number};

/// Fabric files, which include each other.
const FILES: [(&str, &str); 4] = [
    (
        "two-hosts.toml",
        include_str!("../../../../../../examples/spraying/two-hosts.toml"),
    ),
    (
        "two-paths.toml",
        include_str!("../../../../../../examples/spraying/two-paths.toml"),
    ),
    (
        "recovery.toml",
        include_str!("../../../../../../examples/spraying/recovery.toml"),
    ),
    (
        "eight-paths.toml",
        include_str!("../../../../../../examples/spraying/eight-paths.toml"),
    ),
];

/// A published figure: a file, the number of its run, and a figure of the run.
struct Figure {
    what: &'static str,
    unit: &'static str,
    run: (&'static str, &'static str),
    field: Field,
    published: f64,
}

/// A figure of a run.
#[derive(Clone, Copy)]
enum Field {
    /// A field of the report, and its divisor.
    At(&'static str, f64),
    /// The bytes that the receiver's port sends, in percent of those of the sender's port.
    WayBack,
}

impl Field {
    fn of(self, report: &Value) -> Option<f64> {
        match self {
            Self::At(path, unit) => Some(number(report, path)? / unit),
            Self::WayBack => {
                let ports = report["ports"].as_array()?;
                let bytes = |host: &str| {
                    let own = ports.iter().find(|port| port["port"] == host)?;
                    own["bytes"].as_f64()
                };
                let there = bytes("sender").filter(|bytes| *bytes > 0.0)?;
                Some(100.0 * bytes("receiver")? / there)
            }
        }
    }
}

const GBPS: Field = Field::At("/workloads/0/goodput_bps", 1e9);
const SWAPPED: Field = Field::At("/workloads/0/swapped_percent", 1.0);

/// Messages of 64 KiB per microsecond.
const MESSAGES: Field = Field::At("/workloads/0/goodput_bps", 65_536.0 * 8.0 * 1e6);

const FIGURES: [Figure; 9] = [
    gbps(
        "adaptive routing on, one path",
        ("two-hosts.toml", "0"),
        97.66,
    ),
    Figure {
        what: "messages, one path",
        unit: "M/s",
        run: ("two-hosts.toml", "0"),
        field: MESSAGES,
        published: 0.186_272,
    },
    // 0.4 to 0.5 % is published: 66 bytes for three to four packets.
    Figure {
        what: "acknowledgements, of the bytes of data",
        unit: "%",
        run: ("two-hosts.toml", "0"),
        field: Field::WayBack,
        published: 0.45,
    },
    gbps(
        "adaptive routing off, one path",
        ("two-hosts.toml", "1"),
        98.01,
    ),
    gbps(
        "adaptive routing on, two paths",
        ("two-paths.toml", "0"),
        97.66,
    ),
    // Recovery of 500 us from a sequence error, which is fitted to the published figure.
    gbps(
        "adaptive routing off, two paths",
        ("recovery.toml", "4"),
        0.19,
    ),
    Figure {
        what: "out of order, two paths",
        unit: "%",
        run: ("two-paths.toml", "0"),
        field: SWAPPED,
        published: 25.03,
    },
    gbps(
        "adaptive routing on, distances above 200",
        ("eight-paths.toml", "0"),
        97.66,
    ),
    gbps(
        "adaptive routing on, distances above 400",
        ("eight-paths.toml", "1"),
        87.58,
    ),
];

const fn gbps(what: &'static str, run: (&'static str, &'static str), published: f64) -> Figure {
    Figure {
        what,
        unit: "Gb/s",
        run,
        field: GBPS,
        published,
    }
}

/// Simulates all of it.
pub(super) fn measure(runner: &mut Runner) -> Document {
    let mut document = Document::new(
        "\"Nvidia 数据包喷洒技术、自适应路由技术实验验证\" (NVIDIA packet spraying and adaptive routing, tried)",
        "date not known",
        "Two ConnectX-6 Dx at 100 GbE, MTU 4096, ib_write_bw of 64 KiB; a router sprays packets over paths.",
    );
    for (name, text) in FILES {
        let provided = runner.provide(name, text);
        document.or_missing(name, provided);
    }
    let mut rows = Vec::new();
    for Figure {
        what,
        unit,
        run: (file, point),
        field,
        published,
    } in FIGURES
    {
        let name = format!("spraying-{}-{point}", file.trim_end_matches(".toml"));
        let file = runner.path(file).display().to_string();
        let mut words = vec!["sim", &file, "--point", point];
        if runner.is_quick() {
            words.extend(["--set", "duration=4ms"]);
        }
        let report = runner.json(&name, &words);
        let found = document.or_missing(what, report);
        let here = vec![found.and_then(|report| field.of(&report))];
        rows.push(Row {
            what: what.to_owned(),
            unit,
            here,
            published: vec![Some(published)],
        });
    }
    document.add(Table {
        title: "Spraying".to_owned(),
        here: vec!["simulated".to_owned()],
        published: vec!["ConnectX-6 Dx"],
        rows,
        differs: "The published runs take ten minutes on adapters, these milliseconds of virtual time; two \
                  parameters that the document does not give are fitted to its figures: the recovery time of \
                  go-back-N, and the window of unacknowledged packets beyond distance 400.",
    });
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_way_back_is_a_part_of_the_bytes_of_data() {
        let ports = json!([{"port": "sender", "bytes": 1000}, {"port": "receiver", "bytes": 5}]);
        assert_eq!(Field::WayBack.of(&json!({"ports": ports})), Some(0.5));
        assert_eq!(Field::WayBack.of(&json!({"ports": []})), None);
    }
}
