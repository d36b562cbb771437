//! Medians of repeats, and the tables.

use std::fmt::Write;

use ::bench::{Machine, Spread, median};
use serde::Serialize;

use super::super::matrix::MATRIX;
use super::load::Figures;
use super::published::{self, Copies};
use super::{CONNECTIONS, COPIES};
use command::bench::SmbTransport;

/// Bytes of the units of published figures.
pub(super) const MIB: f64 = 1_048_576.0;
const MB: f64 = 1e6;

/// One job: medians of its repeats, and how far these were apart.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Median {
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// Bytes per second of the slowest and the fastest repeat.
    pub(super) spread: Spread,
    /// Seconds of processor time for 10^9 bytes, of client, gateway and server together; none where no
    /// transfer was complete within the time.
    pub(super) processor_seconds_per_gb: Option<f64>,
}

/// All of one transport.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) transport: &'static str,
    pub(super) jobs: Vec<Median>,
}

/// All results of a comparison, and the conditions under which they were measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) warm_up: f64,
    pub(super) seconds: f64,
    /// Seconds without load between two measurements.
    pub(super) rest: f64,
    pub(super) repeats: u32,
    /// Bytes of the shared file.
    pub(super) size: u64,
    pub(super) remarks: Vec<String>,
    pub(super) matrix_source: &'static str,
    pub(super) copies_source: &'static str,
    pub(super) series: Vec<Series>,
}

impl Median {
    fn new(repeats: &[&Figures]) -> Self {
        let of = |field: fn(&Figures) -> f64| median(repeats.iter().map(|it| field(it)).collect());
        let some = |field: fn(&Figures) -> Option<f64>| {
            let all: Vec<f64> = repeats.iter().filter_map(|it| field(it)).collect();
            (!all.is_empty()).then(|| median(all))
        };
        let figures = Figures {
            job: repeats.first().map(|it| it.job.clone()).unwrap_or_default(),
            per_second: of(|it| it.per_second),
            bytes_per_second: of(|it| it.bytes_per_second),
            mean_us: of(|it| it.mean_us),
            p50_us: of(|it| it.p50_us),
            p99_us: of(|it| it.p99_us),
            // The longest of all is the longest.
            max_us: repeats.iter().map(|it| it.max_us).fold(0.0, f64::max),
            client: of(|it| it.client),
            gateway: some(|it| it.gateway),
            samba: some(|it| it.samba),
        };
        let spread = Spread::of(repeats.iter().map(|it| it.bytes_per_second));
        let all = figures.client
            + figures.gateway.unwrap_or_default()
            + figures.samba.unwrap_or_default();
        let rate = figures.bytes_per_second;
        let processor_seconds_per_gb = (rate > 0.0).then(|| all * 1e9 / rate);
        Self {
            figures,
            spread,
            processor_seconds_per_gb,
        }
    }

    /// Processors that client, gateway and server use, in percent.
    fn processors(&self) -> String {
        let percent = |part: Option<f64>| {
            part.map_or_else(|| "-".to_owned(), |it| format!("{:.0}", it * 100.0))
        };
        let Figures {
            client,
            gateway,
            samba,
            ..
        } = &self.figures;
        format!(
            "{}+{}+{}%",
            percent(Some(*client)),
            percent(*gateway),
            percent(*samba)
        )
    }
}

impl Series {
    pub(super) fn new(transport: SmbTransport, runs: &[Vec<Figures>]) -> Self {
        let count = runs.first().map_or(0, Vec::len);
        let of = |index: usize| {
            Median::new(
                &runs
                    .iter()
                    .filter_map(|run| run.get(index))
                    .collect::<Vec<_>>(),
            )
        };
        Self {
            transport: transport.name(),
            jobs: (0..count).map(of).collect(),
        }
    }

    pub(super) fn job(&self, job: &str) -> Option<&Median> {
        self.jobs.iter().find(|it| it.figures.job == job)
    }
}

/// A row of the matrix: its name, its job, and the published figures in MiB/s.
pub(super) type Row = (String, String, [f64; 5]);

/// The rows of the matrix for `read` or `write`, which is `direction` 0 or 1 of published figures.
pub(super) fn rows(what: &str, direction: usize) -> Vec<Row> {
    let row = |(name, how, many): &(&str, &str, &str)| {
        let published = published::matrix(name).unwrap_or_default();
        let published = published.map(|pair| pair.get(direction).copied().unwrap_or_default());
        ((*name).to_owned(), format!("{how}{what}:{many}"), published)
    };
    MATRIX.iter().map(row).collect()
}

impl Report {
    /// The conditions of the measurement: machine, repeats, durations, file, and remarks.
    pub(super) fn conditions(&self) -> String {
        let Self {
            machine,
            repeats,
            seconds,
            warm_up,
            rest,
            ..
        } = self;
        let size = self.size >> 20;
        let mut text = format!(
            "{machine}. Medians of {repeats}, {seconds} s each after {warm_up} s; a file of {size} MiB, \
             in the page cache."
        );
        if *rest > 0.0 {
            let _ = write!(text, " A rest of {rest} s between two measurements.");
        }
        self.remarks
            .iter()
            .for_each(|remark| _ = write!(text, " {remark}."));
        text
    }
}

/// Everything as text.
pub(super) fn table(report: &Report) -> String {
    let mut text = report.conditions() + "\n";
    matrix(report, &mut text);
    copies(report, &mut text);
    connections(report, &mut text);
    details(report, &mut text);
    let _ = writeln!(text, "\npublished matrix: {}", report.matrix_source);
    let _ = writeln!(text, "published copies: {}", report.copies_source);
    text
}

fn rate(series: &Series, job: &str, unit: f64) -> String {
    series.job(job).map_or_else(
        || "-".to_owned(),
        |it| format!("{:.1}", it.figures.bytes_per_second / unit),
    )
}

fn matrix(report: &Report, text: &mut String) {
    let is_there = |series: &Series| series.job("randread:4k:1").is_some();
    if !report.series.iter().any(is_there) {
        return;
    }
    let _ = write!(text, "\n{:22}", "MiB/s");
    report
        .series
        .iter()
        .for_each(|series| _ = write!(text, "{:>24}", series.transport));
    *text += "   published: ";
    *text += &published::COLUMNS.join("; ");
    for (direction, what) in ["read", "write"].into_iter().enumerate() {
        for (name, job, published) in rows(what, direction) {
            let _ = write!(text, "\n{:22}", format!("{what} {name}"));
            report
                .series
                .iter()
                .for_each(|series| _ = write!(text, "{:>24}", rate(series, &job, MIB)));
            published
                .iter()
                .for_each(|figure| _ = write!(text, "{figure:>10.0}"));
        }
    }
    text.push('\n');
}

fn copies(report: &Report, text: &mut String) {
    let is_there = |series: &Series| series.job("read:1m:8t4").is_some();
    if !report.series.iter().any(is_there) {
        return;
    }
    let _ = write!(text, "\n{:22}", "copies, MB/s");
    report
        .series
        .iter()
        .for_each(|series| _ = write!(text, "{:>24}", series.transport));
    *text += "   published, SMB Direct";
    let published = [
        ("one file", published::SEQUENTIAL),
        ("four files", published::CONCURRENT),
    ];
    for (many, (name, Copies { read, write })) in COPIES.iter().zip(published) {
        for (what, figure) in [("read", read), ("write", write)] {
            let _ = write!(text, "\n{:22}", format!("{what} {name}"));
            let job = format!("{what}:{many}");
            report
                .series
                .iter()
                .for_each(|series| _ = write!(text, "{:>24}", rate(series, &job, MB)));
            let _ = write!(text, "{figure:>10.0}");
        }
    }
    text.push('\n');
}

/// MB/s over several connections with the same number of transfers under way.
fn connections(report: &Report, text: &mut String) {
    let is_there = |series: &Series| series.job("read:1m:2t4").is_some();
    if !report.series.iter().any(is_there) {
        return;
    }
    let _ = write!(text, "\n{:22}", "8 at once, MB/s");
    report
        .series
        .iter()
        .for_each(|series| _ = write!(text, "{:>24}", series.transport));
    for (connections, many) in CONNECTIONS {
        for what in ["read", "write"] {
            let _ = write!(
                text,
                "\n{:22}",
                format!("{what}, connections: {connections}")
            );
            let job = format!("{what}:{many}");
            report
                .series
                .iter()
                .for_each(|series| _ = write!(text, "{:>24}", rate(series, &job, MB)));
        }
    }
    text.push('\n');
}

fn details(report: &Report, text: &mut String) {
    let _ = writeln!(
        text,
        "\n{:24}{:22}{:>10}{:>10}{:>10}{:>11}  {:<14} {:>20} {:>8}",
        "transport",
        "job",
        "mean us",
        "p50",
        "p99",
        "per second",
        "spread",
        "client+gateway+server",
        "CPU s/GB"
    );
    for series in &report.series {
        for median in &series.jobs {
            let it = &median.figures;
            let _ = writeln!(
                text,
                "{:24}{:22}{:10.1}{:10.1}{:10.1}{:11.0}  {:<14} {:>20} {:>8}",
                series.transport,
                it.job,
                it.mean_us,
                it.p50_us,
                it.p99_us,
                it.per_second,
                median.spread.percent_of(it.bytes_per_second),
                median.processors(),
                median
                    .processor_seconds_per_gb
                    .map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"))
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_of_all_parties_and_for_a_billion_bytes() {
        let figures = |bytes_per_second: f64| Figures {
            bytes_per_second,
            client: 0.5,
            gateway: Some(0.3),
            samba: Some(0.2),
            ..Figures::default()
        };
        let all = [figures(1e9), figures(2e9), figures(4e9)];
        let median = Median::new(&all.iter().collect::<Vec<_>>());
        assert!(
            median
                .processor_seconds_per_gb
                .is_some_and(|it| (it - 0.5).abs() < 1e-9)
        );
        assert_eq!(Median::new(&[&figures(0.0)]).processor_seconds_per_gb, None);
        assert_eq!(
            (median.spread, median.processors().as_str()),
            (Spread([1e9, 4e9]), "50+30+20%")
        );
    }

    #[test]
    fn rows_have_the_published_figures_of_their_direction() {
        let rows = rows("write", 1);
        assert_eq!(
            rows[0],
            (
                "SEQ1M Q8T1".to_owned(),
                "write:1m:8".to_owned(),
                [7903.0, 5041.0, 7563.0, 5647.0, 7822.0]
            )
        );
    }
}
