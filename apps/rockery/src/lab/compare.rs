//! A live run beside the simulation of the same file.

use std::fmt::Write;

use ::lab::Measured;
use ::report::{escape, head, rows};
use ::sim::experiment::Experiment;
use ::sim::report::{Finding, Report, table};
use serde::Serialize;

/// One figure of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Difference {
    what: String,
    live: f64,
    simulated: f64,
    /// Of the simulated figure; nothing where that is 0.
    percent: Option<f64>,
}

impl Difference {
    fn new(what: String, live: f64, simulated: f64) -> Self {
        let percent = (simulated != 0.0).then(|| 100.0 * (live - simulated) / simulated);
        Self {
            what,
            live,
            simulated,
            percent,
        }
    }
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    measured: &'a Measured,
    simulated: Option<&'a Report>,
    differences: Vec<Difference>,
    same_findings: Option<bool>,
}

/// The figures that are compared.
fn differences(live: &Report, simulated: &Report) -> Vec<Difference> {
    let mut all = Vec::new();
    for (one, other) in live.workloads.iter().zip(&simulated.workloads) {
        let name = &one.name;
        let mut add = |what: &str, one: f64, other: f64| {
            all.push(Difference::new(format!("{name}: {what}"), one, other));
        };
        add(
            "goodput, Gb/s",
            one.goodput_bps / 1e9,
            other.goodput_bps / 1e9,
        );
        if let (Some(one), Some(other)) = (&one.latency_us, &other.latency_us) {
            add("latency p50, us", one.p50, other.p50);
            add("latency p99, us", one.p99, other.p99);
        }
        add(
            "sent again",
            one.retransmitted as f64,
            other.retransmitted as f64,
        );
        add(
            "notifications",
            one.notifications as f64,
            other.notifications as f64,
        );
        add("swapped, %", one.swapped_percent, other.swapped_percent);
    }
    for (one, other) in live.switches.iter().zip(&simulated.switches) {
        let name = &one.name;
        let mut add = |what: &str, one: u64, other: u64| {
            all.push(Difference::new(
                format!("{name}: {what}"),
                one as f64,
                other as f64,
            ));
        };
        add("dropped", one.dropped, other.dropped);
        add("marked", one.marked, other.marked);
        add("pauses sent", one.pauses_sent, other.pauses_sent);
        add(
            "buffer at most, bytes",
            u64::from(one.buffer_peak_bytes),
            u64::from(other.buffer_peak_bytes),
        );
    }
    all
}

/// The kind of a finding: its severity, and its cause without figures.
fn kind(finding: &Finding) -> (&'static str, String) {
    let severity = match finding.severity {
        ::sim::report::Severity::Broken => "broken",
        ::sim::report::Severity::Slow => "slow",
        ::sim::report::Severity::Note => "note",
    };
    (
        severity,
        finding
            .cause
            .chars()
            .filter(|letter| !letter.is_ascii_digit())
            .collect(),
    )
}

/// Findings of one report that the other has not.
fn only<'a>(of: &'a Report, other: &Report) -> Vec<&'a Finding> {
    of.findings
        .iter()
        .filter(|one| !other.findings.iter().any(|two| kind(one) == kind(two)))
        .collect()
}

fn are_same(live: &Report, simulated: &Report) -> bool {
    only(live, simulated).is_empty() && only(simulated, live).is_empty()
}

/// The document of `--json`.
pub(super) fn json(measured: &Measured, simulated: Option<&Report>) -> String {
    let live = &measured.report;
    let document = Document {
        measured,
        simulated,
        differences: simulated
            .map(|simulated| differences(live, simulated))
            .unwrap_or_default(),
        same_findings: simulated.map(|simulated| are_same(live, simulated)),
    };
    serde_json::to_string(&document).unwrap_or_default()
}

fn figure(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value}")
    } else {
        format!("{value:.2}")
    }
}

fn percent(difference: &Difference) -> String {
    difference
        .percent
        .map_or_else(String::new, |percent| format!("{percent:+.1} %"))
}

/// How the run went, and the differences.
pub(super) fn text(measured: &Measured, simulated: Option<&Report>) -> String {
    let Measured {
        slowdown,
        lateness,
        shortest_link_ns,
        valid,
        report,
    } = measured;
    let mut text = format!(
        "live, slowed down {slowdown} times: late by {} ns (99.9 %), the shortest link takes \
         {shortest_link_ns} ns: {}\n",
        lateness.p999_ns,
        if *valid { "valid" } else { "not valid" }
    );
    let Some(simulated) = simulated else {
        return text;
    };
    let _ = writeln!(
        text,
        "\n  {:<36} {:>14} {:>14} {:>10}",
        "compared", "live", "simulated", "difference"
    );
    for one in differences(report, simulated) {
        let (live, other) = (figure(one.live), figure(one.simulated));
        let _ = writeln!(
            text,
            "  {:<36} {live:>14} {other:>14} {:>10}",
            one.what,
            percent(&one)
        );
    }
    for (whose, findings) in [
        ("live", only(report, simulated)),
        ("simulated", only(simulated, report)),
    ] {
        for Finding { seen, cause, .. } in findings {
            let _ = writeln!(text, "\nfinding of the {whose} run alone: {seen}: {cause}");
        }
    }
    if are_same(report, simulated) {
        text += "\nboth have the same findings\n";
    }
    text
}

/// The report as a page.
pub(super) fn page(
    experiment: &Experiment,
    measured: &Measured,
    simulated: Option<&Report>,
) -> String {
    let title = if experiment.file.title.is_empty() {
        "rockery lab run"
    } else {
        &experiment.file.title
    };
    let mut page = head(title);
    if let Some(simulated) = simulated {
        page += "<h2>Live and simulated</h2>\n";
        let cells = differences(&measured.report, simulated)
            .into_iter()
            .map(|one| {
                vec![
                    escape(&one.what),
                    figure(one.live),
                    figure(one.simulated),
                    percent(&one),
                ]
            });
        page += &rows(&["figure", "live", "simulated", "difference"], cells);
    }
    let (run, report) = (text(measured, simulated), table(&measured.report));
    let _ = write!(
        page,
        "<h2>As text</h2>\n<pre>{}\n{}</pre>\n",
        escape(&run),
        escape(&report)
    );
    page + "</body></html>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_of_the_simulated_figure() {
        assert_eq!(
            percent(&Difference::new(String::new(), 95.0, 100.0)),
            "-5.0 %"
        );
        assert_eq!(percent(&Difference::new(String::new(), 3.0, 0.0)), "");
        assert_eq!(
            (figure(12.0), figure(1.005)),
            ("12".to_owned(), "1.00".to_owned())
        );
    }
}
