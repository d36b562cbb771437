//! The results of `rockery bench paths`, as a table, as JSON and as a page.

use std::fmt::Write;

use ::bench::{Machine, Table};
use ::report::{escape, head, rows};
use command::bench::Way;
use serde::Serialize;

use crate::output::Printed;

/// The limits within which the figures are valid.
pub(super) const LIMITS: &str = "Both ends are network namespaces, without a hypervisor: what interrupts and \
                                 exits cost a virtual machine, the reason for most of the published \
                                 difference, does not appear here. Live functions are those of an adapter in \
                                 rockery lab, whose rates are above what the machine does.";

/// Where published figures are from.
pub(super) const SOURCE: &str = "liaoya, \"SR-IOV是什么？性能能好到什么程度？\" (what SR-IOV is, and how good \
                                 it gets), 3 September 2020: virtual machine to another host over 10 GbE, \
                                 iperf3";

/// Published Gb/s of a virtual switch, and of a function.
pub(super) const fn published(way: Way, streams: u32) -> Option<f64> {
    match (way, streams) {
        (Way::Bridge, 1) => Some(2.21),
        (Way::Bridge, 5) => Some(8.68),
        (Way::Function, 1) => Some(3.21),
        (Way::Function, 5) => Some(9.57),
        _ => None,
    }
}

/// One measurement of one path.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Row {
    pub(super) path: &'static str,
    pub(super) test: String,
    /// Payload that the receiver got.
    pub(super) gbps: f64,
    /// The slowest and the fastest second, in Gb/s.
    pub(super) slowest: Option<f64>,
    pub(super) fastest: Option<f64>,
    /// Processor time of both ends and of a switch that is a program or a lab, per 10^9 bytes.
    pub(super) cpu_seconds_per_gb: f64,
    pub(super) published: Option<f64>,
}

/// All results, and the conditions under which they were measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) seconds: u32,
    pub(super) mtu: u32,
    pub(super) rows: Vec<Row>,
    pub(super) remarks: Vec<String>,
    pub(super) limits: &'static str,
    pub(super) source: &'static str,
}

const HEAD: [&str; 7] = [
    "path",
    "test",
    "Gb/s",
    "slowest second",
    "fastest second",
    "CPU s per GB",
    "published Gb/s",
];

impl Report {
    fn conditions(&self) -> String {
        format!(
            "{}. {} s each, MTU {}.",
            self.machine, self.seconds, self.mtu
        )
    }

    fn cells(&self) -> impl Iterator<Item = Vec<String>> {
        let shown = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
        };
        self.rows.iter().map(move |row| {
            vec![
                row.path.to_owned(),
                row.test.clone(),
                shown(Some(row.gbps)),
                shown(row.slowest),
                shown(row.fastest),
                format!("{:.3}", row.cpu_seconds_per_gb),
                shown(row.published),
            ]
        })
    }
}

impl Printed for Report {
    fn table(&self) -> String {
        let mut figures = Table::new(2, HEAD);
        self.cells().for_each(|cells| figures.push(cells));
        let mut text = format!("{}\n\n{}\n", self.conditions(), figures.text());
        self.remarks
            .iter()
            .for_each(|remark| _ = writeln!(text, "{remark}"));
        let _ = writeln!(text, "{}\nPublished: {}.", self.limits, self.source);
        text
    }

    fn page(&self) -> String {
        let mut page = head("Paths between two ends of one host");
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(&self.conditions()));
        page += &rows(&HEAD, self.cells());
        for text in self.remarks.iter().map(String::as_str).chain([self.limits]) {
            let _ = writeln!(page, "<p>{}</p>", escape(text));
        }
        let _ = write!(
            page,
            "<p class=\"soft\">Published: {}.</p>\n</body></html>\n",
            escape(self.source)
        );
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_the_figures_and_what_they_cannot_show() {
        let row = Row {
            path: "macvlan",
            test: "TCP, 5 streams".to_owned(),
            gbps: 12.345,
            slowest: Some(11.0),
            fastest: None,
            cpu_seconds_per_gb: 0.4321,
            published: published(Way::Bridge, 5),
        };
        let report = Report {
            machine: Machine::this(),
            seconds: 3,
            mtu: 1500,
            rows: vec![row],
            remarks: vec!["tap switch: no /dev/net/tun".to_owned()],
            limits: LIMITS,
            source: SOURCE,
        };
        for text in [report.table(), report.page()] {
            for wanted in [
                "12.35",
                "11.00",
                "0.432",
                "8.68",
                "without a hypervisor",
                "liaoya",
                "no /dev/net/tun",
            ] {
                assert!(text.contains(wanted), "{wanted}: {text}");
            }
        }
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["rows"][0]["cpu-seconds-per-gb"], 0.4321);
        assert_eq!(json["rows"][0]["fastest"], serde_json::Value::Null);
    }
}
