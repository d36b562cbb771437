//! The comparison as a page with plots, which opens offline.

use std::fmt::Write;

use super::model::latencies;
use super::place::Transport;
use super::report::{self, Report, Series, compared};
use crate::html::{Chart, Line, escape, head, rows};

/// Up to which depth latency is plotted.
const DEPTH: usize = 16;

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut page = head("NVMe over RDMA and over TCP");
    let machine = &report.machine;
    let _ = writeln!(
        page,
        "<p class=\"soft\">{}, {} processors, Linux {}. Medians of {}, {} s each after {} s. {}</p>",
        escape(&machine.processor),
        machine.cores,
        escape(&machine.kernel),
        report.repeats,
        report.seconds,
        report.warm_up,
        escape(&report.remarks.join(". "))
    );
    page += "<h2>RDMA beside TCP</h2>\n";
    for kind in [Transport::Rdma, Transport::RdmaUdp] {
        let row = |(what, ratio, published): (&str, f64, Option<f64>)| {
            let published = published.map_or_else(String::new, |ratio| format!("{ratio:.1}"));
            vec![what.to_owned(), format!("{ratio:.1}"), published]
        };
        let all = compared(report, kind);
        if !all.is_empty() {
            page += &rows(&[kind.name(), "here", "published"], all.into_iter().map(row));
        }
    }
    page += "<h2>Plots</h2>\n<div class=\"plots\">\n";
    page += &latency(report);
    for what in ["read", "write"] {
        page += &throughput(report, what);
    }
    page += &stability(report);
    page += "</div>\n<p class=\"soft\">The model is a closed network of one station, whose service time is \
             one over the rate at 128 at once, and a delay: what one command alone takes beyond that (mean \
             value analysis). Where the line of what was measured leaves it, depth costs more than waiting \
             in turn.</p>\n";
    let _ = write!(page, "<h2>As text</h2>\n<pre>{}</pre>\n</body></html>\n", escape(&report::table(report)));
    page
}

fn line(name: String, points: Vec<(f64, f64)>) -> Option<Line> {
    (points.len() > 1).then_some(Line { name, points })
}

fn latency(report: &Report) -> String {
    let networks = report.series.iter().filter(|series| series.kind != Transport::Local);
    let lines = networks.flat_map(|series| {
        let at = |depth: u32| {
            let found = series.job(&format!("randread:4k:{depth}"))?;
            Some((f64::from(depth), found.figures.mean_us))
        };
        let found: Vec<_> = [1, 4, 16].into_iter().filter_map(at).collect();
        let model = model(series).unwrap_or_default();
        [line(series.transport.to_owned(), found), line(format!("{}, model", series.transport), model)]
    });
    let lines = lines.flatten().collect();
    Chart { title: "Mean latency of 4 KiB reads", x: "commands at once", y: "µs", lines, step: false }.svg()
}

/// What the queueing model says of a transport.
fn model(series: &Series) -> Option<Vec<(f64, f64)>> {
    let alone = series.job("randread:4k:1")?.figures.mean_us;
    let service = 1e6 / series.job("randread:4k:128")?.figures.per_second;
    let all = latencies(alone, service, DEPTH);
    Some(all.into_iter().enumerate().map(|(index, latency)| ((index + 1) as f64, latency)).collect())
}

fn throughput(report: &Report, what: &str) -> String {
    let lines = report.series.iter().filter_map(|series| {
        let found = Report::bandwidth(series, what);
        // Powers of two apart: on a scale of powers each has the same room.
        let points = found.iter().map(|(queues, rate)| (f64::from(*queues).log2(), *rate)).collect();
        line(series.transport.to_owned(), points)
    });
    let (title, lines) = (format!("1 MiB sequential {what}"), lines.collect());
    Chart { title: &title, x: "queues, as a power of two", y: "GB/s", lines, step: false }.svg()
}

fn stability(report: &Report) -> String {
    let networks = report.series.iter().filter(|series| series.kind != Transport::Local);
    let lines = networks.filter_map(|series| {
        let found = series.job("randread:4k:128")?;
        let part = report.seconds / found.figures.over_time.len().max(1) as f64;
        let points = found.figures.over_time.iter().zip(1_u32..);
        let points = points.map(|(rate, index)| (f64::from(index) * part, *rate)).collect();
        line(series.transport.to_owned(), points)
    });
    let lines = lines.collect();
    Chart { title: "4 KiB reads, 128 at once", x: "s", y: "per second", lines, step: false }.svg()
}
