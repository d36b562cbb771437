//! Medians of repeats, and the tables.

use std::fmt::Write;

use ::bench::{Machine, Spread, median};
use serde::Serialize;

use super::matrix::{JOBS, MATRIX, in_one_thread, sequential};
use super::model::latencies;
use super::published::{self, Published};
use super::steady::Steadiness;
use ::nvme::host::job::Measured;
use command::bench::Transport;

/// Up to which depth latency is shown.
const DEPTH: usize = 16;

/// One measurement: medians of its repeats, and how far these were apart.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Median {
    #[serde(flatten)]
    pub(super) figures: Measured,
    /// Commands per second of the slowest and the fastest repeat.
    pub(super) spread: Spread,
    /// The mean latency of the fastest and the slowest repeat.
    pub(super) spread_us: Spread,
    /// How the rate of the typical repeat went over its time.
    pub(super) steadiness: Option<Steadiness>,
}

/// All of one transport.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) transport: &'static str,
    #[serde(skip)]
    pub(super) kind: Transport,
    /// The document's own figures.
    pub(super) published: Option<Published>,
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
    /// The disk that is served.
    pub(super) disk: String,
    pub(super) repeats: u32,
    pub(super) one_thread: bool,
    pub(super) remarks: Vec<String>,
    pub(super) series: Vec<Series>,
}

impl Median {
    fn new(repeats: &[&Measured]) -> Self {
        let of = |field: fn(&Measured) -> f64| median(repeats.iter().map(|it| field(it)).collect());
        let per_second = of(|it| it.per_second);
        let some = |field: fn(&Measured) -> Option<f64>| {
            let all: Vec<f64> = repeats.iter().filter_map(|it| field(it)).collect();
            (!all.is_empty()).then(|| median(all))
        };
        let typical = repeats.iter().min_by(|one, other| {
            (one.per_second - per_second)
                .abs()
                .total_cmp(&(other.per_second - per_second).abs())
        });
        Self {
            figures: Measured {
                job: typical.map(|it| it.job.clone()).unwrap_or_default(),
                per_second,
                bytes_per_second: of(|it| it.bytes_per_second),
                commands: repeats.iter().map(|it| it.commands).sum(),
                errors: repeats.iter().map(|it| it.errors).sum(),
                mean_us: of(|it| it.mean_us),
                p50_us: of(|it| it.p50_us),
                p99_us: of(|it| it.p99_us),
                p999_us: of(|it| it.p999_us),
                // The longest of all is the longest.
                max_us: repeats.iter().map(|it| it.max_us).fold(0.0, f64::max),
                host_processor: of(|it| it.host_processor),
                target_processor: some(|it| it.target_processor),
                host_processor_wait: of(|it| it.host_processor_wait),
                longest_pause_us: repeats
                    .iter()
                    .map(|it| it.longest_pause_us)
                    .fold(0.0, f64::max),
                host_switches: of(|it| it.host_switches),
                target_switches: some(|it| it.target_switches),
                interrupts: some(|it| it.interrupts),
                cores: typical.map(|it| it.cores.clone()).unwrap_or_default(),
                over_time: typical.map(|it| it.over_time.clone()).unwrap_or_default(),
                errors_over_time: typical
                    .map(|it| it.errors_over_time.clone())
                    .unwrap_or_default(),
            },
            spread: Spread::of(repeats.iter().map(|it| it.per_second)),
            spread_us: Spread::of(repeats.iter().map(|it| it.mean_us)),
            steadiness: typical.and_then(|it| Steadiness::of(&it.over_time)),
        }
    }

    /// Processors that host and target use, in percent.
    fn processors(&self) -> String {
        let percent = |part: f64| format!("{:.0}", part * 100.0);
        let target = self
            .figures
            .target_processor
            .map_or_else(|| "-".to_owned(), percent);
        format!("{}+{target}%", percent(self.figures.host_processor))
    }

    /// Commands that failed, as a part of all.
    fn error_rate(&self) -> f64 {
        let all = self.figures.commands + self.figures.errors;
        self.figures.errors as f64 / all.max(1) as f64
    }

    /// Microseconds of processor time that a command takes on both sides.
    pub(super) fn processor_us(&self) -> f64 {
        let all = self.figures.host_processor + self.figures.target_processor.unwrap_or_default();
        all * 1e6 / self.figures.per_second.max(1.0)
    }
}

impl Series {
    pub(super) fn new(kind: Transport, runs: &[Vec<Measured>]) -> Self {
        let count = runs.first().map_or(0, Vec::len);
        let of = |index: usize| {
            Median::new(
                &runs
                    .iter()
                    .filter_map(|run| run.get(index))
                    .collect::<Vec<_>>(),
            )
        };
        let published = match kind {
            Transport::Local => None,
            Transport::Rdma | Transport::RdmaUdp => Some(published::RDMA),
            Transport::Tcp => Some(published::TCP),
        };
        Self {
            transport: kind.name(),
            kind,
            published,
            jobs: (0..count).map(of).collect(),
        }
    }

    pub(super) fn job(&self, job: &str) -> Option<&Median> {
        let in_one_thread = in_one_thread(job);
        self.jobs
            .iter()
            .find(|it| it.figures.job == job || it.figures.job == in_one_thread)
    }

    /// Mean latencies at depths from 1 on, as the queueing model has them.
    pub(super) fn model(&self) -> Option<Vec<f64>> {
        let alone = self.job("randread:4k:1")?.figures.mean_us;
        let service = 1e6 / self.job("randread:4k:128")?.figures.per_second;
        Some(latencies(alone, service, DEPTH))
    }
}

impl Report {
    /// The sequential measurements by jobs.
    pub(super) fn sequential<'a>(series: &'a Series, what: &str) -> Vec<(u16, &'a Median)> {
        JOBS.into_iter()
            .filter_map(|jobs| Some((jobs, series.job(&sequential(what, jobs))?)))
            .collect()
    }

    /// Bandwidth in GB/s by jobs, where it was measured.
    pub(super) fn bandwidth(series: &Series, what: &str) -> Vec<(u16, f64)> {
        let all = Self::sequential(series, what).into_iter();
        all.map(|(jobs, median)| (jobs, median.figures.bytes_per_second / 1e9))
            .collect()
    }

    /// The rest between measurements, where there is one.
    pub(super) fn rest_in_words(&self) -> String {
        match self.rest > 0.0 {
            true => format!(", with a rest of {} s", self.rest),
            false => String::new(),
        }
    }

    /// How jobs are done.
    pub(super) const fn threads(&self) -> &'static str {
        match self.one_thread {
            true => "one thread does all jobs of the host, and polls",
            false => {
                "each job is a thread; up to half of the processors poll, more sleep while they wait"
            }
        }
    }
}

/// Everything as text.
pub(super) fn table(report: &Report) -> String {
    let mut text = format!(
        "{}. Medians of {}, {} s each after {} s{}; {}; {}.\n",
        report.machine,
        report.repeats,
        report.seconds,
        report.warm_up,
        report.rest_in_words(),
        report.disk,
        report.threads()
    );
    for remark in &report.remarks {
        let _ = writeln!(text, "{remark}.");
    }
    latency(report, &mut text);
    throughput(report, &mut text);
    stability(report, &mut text);
    intervals(report, &mut text);
    kernel(report, &mut text);
    matrix(report, &mut text);
    ratios(report, &mut text);
    if let Some(source) = report.source() {
        let _ = writeln!(text, "\npublished: {source}");
    }
    text
}

impl Report {
    /// The source of the published figures, if there are any beside the measured ones.
    pub(super) fn source(&self) -> Option<&'static str> {
        self.series
            .iter()
            .find_map(|series| series.published)
            .map(|published| published.source)
    }
}

fn latency(report: &Report, text: &mut String) {
    let jobs = [1_usize, 4, 16].map(|depth| (depth, format!("randread:4k:{depth}")));
    let has = |series: &Series| jobs.iter().any(|(_, job)| series.job(job).is_some());
    if !report.series.iter().any(has) {
        return;
    }
    *text += "\n4 KiB random read     QD   mean us    model    p50    p99  p99.9      max      per second  \
                  spread  host+target CPU  published mean, p99, max\n";
    for series in &report.series {
        let model = series.model();
        for (depth, job) in &jobs {
            let model = model.as_ref().and_then(|all| all.get(depth - 1));
            let model = model.map_or_else(|| "-".to_owned(), |latency| format!("{latency:.2}"));
            let Some(median) = series.job(job) else {
                continue;
            };
            let it = &median.figures;
            let published = match (series.published, depth) {
                (
                    Some(Published {
                        latency_us: [mean, p99, max],
                        ..
                    }),
                    1,
                ) => format!("{mean}, {p99}, {max}"),
                (Some(published), 16) => format!("{} more than alone", published.growth_us),
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "{:20} {depth:3} {:9.2} {model:>8} {:6.2} {:6.2} {:6.1} {:8.1} {:15.0} {:>10}  \
                 {:>15}  {published}",
                series.transport,
                it.mean_us,
                it.p50_us,
                it.p99_us,
                it.p999_us,
                it.max_us,
                it.per_second,
                spread(median),
                median.processors()
            );
        }
    }
}

/// How far repeats were from their median, in percent.
fn spread(median: &Median) -> String {
    median.spread.percent_of(median.figures.per_second)
}

fn throughput(report: &Report, text: &mut String) {
    for (index, what) in ["read", "write"].into_iter().enumerate() {
        let all = |series| Report::sequential(series, what);
        let Some(first) = report.series.iter().map(all).find(|all| !all.is_empty()) else {
            continue;
        };
        let _ = write!(text, "\n{:20}", format!("1 MiB {what}, GB/s"));
        first
            .iter()
            .for_each(|(jobs, _)| _ = write!(text, " {jobs:>8}"));
        *text += " jobs  published peak\n";
        for series in &report.series {
            let of = |it: &Median| format!("{:.2}", it.figures.bytes_per_second / 1e9);
            let published = series.published.map(|it| {
                format!(
                    "       {}, from {} threads on",
                    it.bandwidth[index], it.saturates_at
                )
            });
            by_jobs(series, what, of, &published.unwrap_or_default(), text);
        }
        *text += "  spread of repeats\n";
        report
            .series
            .iter()
            .for_each(|series| by_jobs(series, what, spread, "", text));
        *text += "  host+target CPU\n";
        report
            .series
            .iter()
            .for_each(|series| by_jobs(series, what, Median::processors, "", text));
    }
}

fn by_jobs(
    series: &Series,
    what: &str,
    of: impl Fn(&Median) -> String,
    end: &str,
    text: &mut String,
) {
    let _ = write!(text, "{:20}", series.transport);
    for (_, median) in Report::sequential(series, what) {
        let _ = write!(text, " {:>8}", of(median));
    }
    let _ = writeln!(text, "{end}");
}

fn stability(report: &Report, text: &mut String) {
    let found: Vec<_> = report
        .series
        .iter()
        .filter_map(|series| Some((series, series.job("randread:4k:128")?)))
        .collect();
    if found.is_empty() {
        return;
    }
    *text += "\n4 KiB read, QD 128     per second     spread  slowest  fastest part  deviation  drift  \
              steady  errors  error rate  host+target CPU  us/command  published\n";
    for (series, median) in found {
        let it = &median.figures;
        let lowest = it.over_time.iter().copied().fold(f64::MAX, f64::min);
        let highest = it.over_time.iter().copied().fold(0.0, f64::max);
        let published = series.published.map(|it| {
            let [low, high] = it.rate.map(|rate| rate / 1e6);
            let rate = if low == high {
                format!("{low} M")
            } else {
                format!("{low} to {high} M")
            };
            format!("{rate}, CPU {}", it.processor)
        });
        let steadiness = median.steadiness;
        let percent = |of: fn(Steadiness) -> f64| {
            steadiness.map_or_else(|| "-".to_owned(), |it| format!("{:.1}%", of(it) * 100.0))
        };
        let _ = writeln!(
            text,
            "{:20} {:12.0} {:>10} {lowest:8.0} {highest:13.0} {:>10} {:>6} {:>7} {:7} {:>10.4}% {:>16} \
             {:11.2}  {}",
            series.transport,
            it.per_second,
            spread(median),
            percent(|it| it.deviation),
            percent(|it| it.drift),
            if steadiness.is_some_and(|it| it.steady) {
                "yes"
            } else {
                "no"
            },
            it.errors,
            median.error_rate() * 100.0,
            median.processors(),
            median.processor_us(),
            published.unwrap_or_default()
        );
    }
    *text += "Steady: parts of the time within 20 % of the mean, and a \
               drift of at most 10 %, as SNIA has it.\n";
}

/// A measurement from this length on is shown part by part: what changes within minutes is of interest then.
const LONG_S: f64 = 60.0;

/// The rate and the errors of each part of a long measurement.
fn intervals(report: &Report, text: &mut String) {
    if report.seconds < LONG_S {
        return;
    }
    for series in &report.series {
        let Some(median) = series.job("randread:4k:128") else {
            continue;
        };
        let it = &median.figures;
        let part = report.seconds / it.over_time.len().max(1) as f64;
        let _ = writeln!(
            text,
            "\n{}, 4 KiB read, QD 128: from second, per second, errors",
            series.transport
        );
        for (index, rate) in it.over_time.iter().enumerate() {
            let errors = it.errors_over_time.get(index).copied().unwrap_or_default();
            let from = part * index as f64;
            let _ = writeln!(text, "{from:10.0} {rate:12.0} {errors:8}");
        }
    }
}

/// How busy each processor was, in percent; of many only the busiest.
fn cores(busy: &[f64]) -> String {
    const SHOWN: usize = 8;
    let mut sorted = busy.to_vec();
    sorted.sort_by(|one, other| other.total_cmp(one));
    let mut text: Vec<String> = sorted
        .iter()
        .take(SHOWN)
        .map(|part| format!("{:.0}", part * 100.0))
        .collect();
    if sorted.len() > SHOWN {
        text.push("…".to_owned());
    }
    text.join(" ")
}

/// Context switches and interrupts for each command, and the machine's processors one by one.
fn kernel(report: &Report, text: &mut String) {
    let shown: Vec<(&Series, &Median)> = report
        .series
        .iter()
        .flat_map(|series| {
            ["randread:4k:1", "randread:4k:128", "read:1m:1"]
                .into_iter()
                .filter_map(move |job| Some((series, series.job(job)?)))
        })
        .collect();
    if shown.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:20} {:18} {:>14} {:>16} {:>23}  processors busy, %",
        "for each command", "job", "host switches", "target switches", "the machine's interrupts"
    );
    for (series, median) in shown {
        let it = &median.figures;
        let each = |per_second: f64| format!("{:.3}", per_second / it.per_second.max(1.0));
        let some = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), each);
        let _ = writeln!(
            text,
            "{:20} {:18} {:>14} {:>16} {:>23}  {}",
            series.transport,
            it.job,
            each(it.host_switches),
            some(it.target_switches),
            some(it.interrupts),
            cores(&it.cores)
        );
    }
}

fn matrix(report: &Report, text: &mut String) {
    let is_there = |series: &Series| series.job("randwrite:4k:32t16").is_some();
    if !report.series.iter().any(is_there) {
        return;
    }
    let _ = write!(text, "\n{:22}", "MB/s");
    report
        .series
        .iter()
        .for_each(|series| _ = write!(text, "{:>18}", series.transport));
    for what in ["read", "write"] {
        for (name, how, many) in MATRIX {
            let _ = write!(text, "\n{:22}", format!("{what} {name}"));
            for series in &report.series {
                let found = series.job(&format!("{how}{what}:{many}"));
                let rate = found.map_or(0.0, |it| it.figures.bytes_per_second / 1e6);
                let _ = write!(text, "{rate:18.1}");
            }
        }
    }
    text.push('\n');
}

/// A ratio of TCP to RDMA, or the other way round: what, here, published.
pub(super) fn compared(report: &Report, kind: Transport) -> Vec<(&'static str, f64, Option<f64>)> {
    let of = |kind: Transport| report.series.iter().find(|series| series.kind == kind);
    let (Some(rdma), Some(tcp)) = (of(kind), of(Transport::Tcp)) else {
        return Vec::new();
    };
    let both = |job: &str| rdma.job(job).zip(tcp.job(job));
    let (fast, slow) = (published::RDMA, published::TCP);
    let mut all = Vec::new();
    if let Some((rdma, tcp)) = both("randread:4k:1") {
        let ratio = tcp.figures.mean_us / rdma.figures.mean_us;
        all.push((
            "latency at QD 1, TCP to RDMA",
            ratio,
            Some(slow.latency_us[0] / fast.latency_us[0]),
        ));
    }
    if let Some((rdma, tcp)) = both("randread:4k:128") {
        let ratio = rdma.figures.per_second / tcp.figures.per_second;
        let published = fast.rate[0] / ((slow.rate[0] + slow.rate[1]) / 2.0);
        all.push(("commands at QD 128, RDMA to TCP", ratio, Some(published)));
        all.push((
            "processor time per command, TCP to RDMA",
            tcp.processor_us() / rdma.processor_us(),
            None,
        ));
    }
    for (index, what) in ["read", "write"].into_iter().enumerate() {
        let peak = |series| {
            Report::bandwidth(series, what)
                .iter()
                .map(|(_, rate)| *rate)
                .fold(0.0, f64::max)
        };
        let (rdma, tcp) = (peak(rdma), peak(tcp));
        if tcp > 0.0 {
            let name = ["1 MiB read, RDMA to TCP", "1 MiB write, RDMA to TCP"][index];
            all.push((
                name,
                rdma / tcp,
                Some(fast.bandwidth[index] / slow.bandwidth[index]),
            ));
        }
    }
    all
}

fn ratios(report: &Report, text: &mut String) {
    for kind in [Transport::Rdma, Transport::RdmaUdp] {
        let all = compared(report, kind);
        if all.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "\n{:44} {:>6}  published",
            format!("{} beside TCP", kind.name()),
            "ratio"
        );
        for (name, ratio, published) in all {
            let published = published.map_or_else(String::new, |ratio| format!("{ratio:.1}"));
            let _ = writeln!(text, "{name:44} {ratio:6.1}  {published:>9}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(per_second: f64, max_us: f64) -> Measured {
        Measured {
            job: "randread:4k:1".to_owned(),
            per_second,
            max_us,
            ..Measured::default()
        }
    }

    #[test]
    fn published_figures_have_a_source() {
        for published in [published::RDMA, published::TCP] {
            assert!(published.source.contains("NVMe-oF") && published.source.contains("2025"));
        }
        assert_eq!(
            Series::new(Transport::Local, &[])
                .published
                .map(|it| it.source),
            None
        );
        assert!(Series::new(Transport::Tcp, &[]).published.is_some());
    }

    fn report(seconds: f64) -> Report {
        let deep = Measured {
            job: "randread:4k:128".to_owned(),
            per_second: 15.0,
            host_switches: 30.0,
            target_switches: Some(7.5),
            over_time: vec![10.0, 20.0],
            errors_over_time: vec![0, 3],
            cores: vec![0.25, 1.0],
            ..Measured::default()
        };
        Report {
            machine: Machine::this(),
            warm_up: 0.0,
            seconds,
            rest: 60.0,
            disk: "memory disk of 1 MiB".to_owned(),
            repeats: 1,
            one_thread: false,
            remarks: Vec::new(),
            series: vec![Series::new(Transport::Tcp, &[vec![deep]])],
        }
    }

    #[test]
    fn long_measurements_are_shown_part_by_part() {
        let rows = |seconds: f64| {
            let mut text = String::new();
            intervals(&report(seconds), &mut text);
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            text.lines()
                .skip(2)
                .map(words)
                .collect::<Vec<Vec<String>>>()
        };
        assert_eq!(rows(3600.0), [["0", "10", "0"], ["1800", "20", "3"]]);
        assert_eq!(rows(1.0), Vec::<Vec<String>>::new());
    }

    #[test]
    fn switches_are_shown_for_each_command() {
        let text = table(&report(1.0));
        let mut rows = text
            .lines()
            .filter(|line| line.contains("randread:4k:128  "));
        let words: Vec<&str> = rows
            .next()
            .map_or_else(Vec::new, |row| row.split_whitespace().collect());
        assert_eq!(
            words[..],
            ["TCP", "randread:4k:128", "2.000", "0.500", "-", "100", "25"],
            "{text}"
        );
        assert!(
            text.contains("with a rest of 60 s; memory disk of 1 MiB"),
            "{text}"
        );
    }

    #[test]
    fn medians_are_of_repeats_and_the_longest_is_of_all() {
        let all = [measured(3.0, 1.0), measured(1.0, 9.0), measured(2.0, 5.0)];
        let median = Median::new(&all.iter().collect::<Vec<_>>());
        assert_eq!(
            (median.figures.per_second, median.figures.max_us),
            (2.0, 9.0)
        );
        assert_eq!(median.spread, Spread([1.0, 3.0]));
    }
}
