//! The comparison as a page with plots, which opens offline.

use std::fmt::Write;

use super::output::Printed;
use super::published::Published;
use super::report::{self, Report, compared};
use ::nvme::host::job::Measured;
use ::report::{Chart, Line, escape, head, rows};
use command::bench::Transport;

impl Printed for Report {
    fn table(&self) -> String {
        report::table(self)
    }

    fn page(&self) -> String {
        page(self)
    }
}

/// The whole HTML page, with plots and tables.
fn page(report: &Report) -> String {
    let mut page = head("NVMe over RDMA and over TCP");
    let _ = writeln!(
        page,
        "<p class=\"soft\">{}. Medians of {}, {} s each after {} s{}; {}; {}. {}</p>",
        escape(&report.machine.to_string()),
        report.repeats,
        report.seconds,
        report.warm_up,
        report.rest_in_words(),
        escape(&report.disk),
        report.threads(),
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
            page += &rows(
                &[kind.name(), "here", "published"],
                all.into_iter().map(row),
            );
        }
    }
    if let Some(source) = report.source() {
        let _ = writeln!(page, "<p class=\"soft\">Published: {}.</p>", escape(source));
    }
    page += "<h2>Plots</h2>\n<div class=\"plots\">\n";
    page += &latency(report);
    for what in ["read", "write"] {
        page += &throughput(report, what);
    }
    page += &stability(report);
    page += &errors(report);
    page += &processors(report);
    page += "</div>\n<p class=\"soft\">The model is a closed network of one station, whose service time is \
             one over the rate at 128 at once, and a delay: what one command alone takes beyond that (mean \
             value analysis). Where the line of what was measured leaves it, depth costs more than waiting \
             in turn.</p>\n";
    let _ = write!(
        page,
        "<h2>As text</h2>\n<pre>{}</pre>\n</body></html>\n",
        escape(&report::table(report))
    );
    page
}

fn line(name: String, points: Vec<(f64, f64)>) -> Option<Line> {
    (points.len() > 1).then_some(Line { name, points })
}

fn latency(report: &Report) -> String {
    let networks = report
        .series
        .iter()
        .filter(|series| series.kind != Transport::Local);
    let lines = networks.flat_map(|series| {
        let at = |depth: u32| {
            let found = series.job(&format!("randread:4k:{depth}"))?;
            Some((f64::from(depth), found.figures.mean_us))
        };
        let found: Vec<_> = [1, 4, 16].into_iter().filter_map(at).collect();
        let model = series.model().unwrap_or_default().into_iter().zip(1_u32..);
        let model = model
            .map(|(latency, depth)| (f64::from(depth), latency))
            .collect();
        [
            line(series.transport.to_owned(), found),
            line(format!("{}, model", series.transport), model),
        ]
    });
    let published = published(report).filter_map(|(name, it)| {
        let [alone, ..] = it.latency_us;
        line(name, vec![(1.0, alone), (16.0, alone + it.growth_us)])
    });
    let lines = lines.flatten().chain(published).collect();
    Chart {
        title: "Mean latency of 4 KiB reads",
        x: "commands at once",
        y: "µs",
        lines,
        step: false,
    }
    .svg()
}

/// The document's own figures, once for each of its transports.
fn published(report: &Report) -> impl Iterator<Item = (String, Published)> {
    let of = |kind: Transport| report.series.iter().find(|series| series.kind == kind);
    let rdma = of(Transport::Rdma).or(of(Transport::RdmaUdp));
    let all = [
        ("RDMA, published", rdma),
        ("TCP, published", of(Transport::Tcp)),
    ];
    all.into_iter()
        .filter_map(|(name, series)| Some((name.to_owned(), series?.published?)))
}

/// Powers of two apart: on a scale of powers each has the same room.
fn power(jobs: u16) -> f64 {
    f64::from(jobs).log2()
}

fn throughput(report: &Report, what: &str) -> String {
    let lines = report.series.iter().filter_map(|series| {
        let points = Report::bandwidth(series, what)
            .iter()
            .map(|(jobs, rate)| (power(*jobs), *rate))
            .collect();
        line(series.transport.to_owned(), points)
    });
    let published = published(report).filter_map(|(name, it)| {
        let peak = it.bandwidth[usize::from(what == "write")];
        line(
            name,
            vec![(power(it.saturates_at), peak), (power(64), peak)],
        )
    });
    let (title, lines) = (
        format!("1 MiB sequential {what}"),
        lines.chain(published).collect(),
    );
    Chart {
        title: &title,
        x: "jobs, as a power of two",
        y: "GB/s",
        lines,
        step: false,
    }
    .svg()
}

/// Lines of values over time, one for each network transport, of the job with 128 commands at once.
fn over_time(report: &Report, of: impl Fn(&Measured, f64) -> Vec<f64>) -> Vec<Line> {
    let networks = report
        .series
        .iter()
        .filter(|series| series.kind != Transport::Local);
    let lines = networks.filter_map(|series| {
        let figures = &series.job("randread:4k:128")?.figures;
        let part = report.seconds / figures.over_time.len().max(1) as f64;
        let points = of(figures, part).into_iter().zip(1_u32..);
        line(
            series.transport.to_owned(),
            points
                .map(|(rate, index)| (f64::from(index) * part, rate))
                .collect(),
        )
    });
    lines.collect()
}

fn stability(report: &Report) -> String {
    let lines = over_time(report, |figures, _| figures.over_time.clone());
    Chart {
        title: "4 KiB reads, 128 at once",
        x: "s",
        y: "per second",
        lines,
        step: false,
    }
    .svg()
}

fn errors(report: &Report) -> String {
    let rate = |errors: &u64, part: f64| *errors as f64 / part;
    let lines = over_time(report, |it, part| {
        it.errors_over_time
            .iter()
            .map(|all| rate(all, part))
            .collect()
    });
    Chart {
        title: "Errors of 4 KiB reads, 128 at once",
        x: "s",
        y: "per second",
        lines,
        step: false,
    }
    .svg()
}

fn processors(report: &Report) -> String {
    let networks = report
        .series
        .iter()
        .filter(|series| series.kind != Transport::Local);
    let lines = networks.flat_map(|series| {
        let all = Report::sequential(series, "read");
        let of = |side: fn(&Measured) -> f64| {
            all.iter()
                .map(|(jobs, median)| (power(*jobs), side(&median.figures) * 100.0))
                .collect()
        };
        let target = of(|it| it.target_processor.unwrap_or_default());
        let name = |side: &str| format!("{}, {side}", series.transport);
        [
            line(name("host"), of(|it| it.host_processor)),
            line(name("target"), target),
        ]
    });
    let (title, lines) = ("Processor time of 1 MiB reads", lines.flatten().collect());
    Chart {
        title,
        x: "jobs, as a power of two",
        y: "% of a processor",
        lines,
        step: false,
    }
    .svg()
}
