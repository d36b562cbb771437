//! The report of a sweep: what the runs have come to, over the swept field with the most values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use sim::report::{
    Finding, Report, WorkloadReport, collective_sweep_rows, sweep_rows, swept_numbers,
};

use crate::chart::COLOURS;
use crate::{Chart, Line, escape, head, rows, tail};

/// The field that makes no line of its own: runs that differ in it alone are repetitions.
const SEED: &str = "seed";

/// The report of the runs of a sweep as an HTML page, each with its number.
pub fn sweep_page(runs: &[(usize, Report)]) -> String {
    let title = match runs.first() {
        Some((_, first)) if !first.title.is_empty() => first.title.as_str(),
        _ => "rockery sim",
    };
    let mut page = head(title);
    let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(&swept(runs)));
    page += "<h2>Findings</h2>\n";
    page += &findings(runs);
    page += "<h2>Over the sweep</h2>\n";
    page += &plots(runs);
    page += "<h2>Runs</h2>\n";
    let table = sweep_rows(runs);
    if let Some((names, values)) = table.split_first() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        page += &rows(&names, values.iter().cloned());
    }
    let table = collective_sweep_rows(runs);
    if let Some((names, values)) = table.split_first() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        page += "<h2>Collectives</h2>\n";
        page += &rows(&names, values.iter().cloned());
    }
    page + &tail()
}

/// What varies, in a sentence.
fn swept(runs: &[(usize, Report)]) -> String {
    let fields = fields(runs).into_iter().map(|(path, values)| {
        let values: Vec<&str> = values.into_iter().collect();
        format!("{path}: {}", values.join(", "))
    });
    let fields: Vec<String> = fields.collect();
    format!("{} runs; {}", runs.len(), fields.join("; "))
}

/// The swept fields, each with its values in their order.
fn fields(runs: &[(usize, Report)]) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for (path, value) in runs.iter().flat_map(|(_, report)| &report.settings) {
        match found.iter_mut().find(|(known, _)| known == path) {
            Some((_, values)) if values.contains(&value.as_str()) => {}
            Some((_, values)) => values.push(value),
            None => found.push((path, vec![value])),
        }
    }
    found
}

/// Findings of all runs, equal causes as one, with the numbers of the runs.
fn findings(runs: &[(usize, Report)]) -> String {
    let mut grouped: Vec<(&Finding, Vec<usize>)> = Vec::new();
    for (number, report) in runs {
        for finding in &report.findings {
            let is_same = |known: &&mut (&Finding, Vec<usize>)| {
                known.0.cause == finding.cause && known.0.severity == finding.severity
            };
            match grouped.iter_mut().find(is_same) {
                Some((_, numbers)) if numbers.last() == Some(number) => {}
                Some((_, numbers)) => numbers.push(*number),
                None => grouped.push((finding, vec![*number])),
            }
        }
    }
    grouped.sort_by_key(|(finding, _)| finding.severity);
    if grouped.is_empty() {
        return "<p>Nothing was lost, and no port was paused for long, in any run.</p>\n"
            .to_owned();
    }
    grouped
        .into_iter()
        .map(|(finding, numbers)| {
            let list: Vec<String> = numbers.iter().map(usize::to_string).collect();
            let where_seen = match numbers.as_slice() {
                [one] => format!("Run {one}: {}", finding.seen),
                [one, ..] => format!(
                    "{} of {} runs ({}); run {one}: {}",
                    numbers.len(),
                    runs.len(),
                    list.join(", "),
                    finding.seen
                ),
                [] => finding.seen.clone(),
            };
            super::finding(finding, &where_seen)
        })
        .collect()
}

/// A figure of a run, of one workload.
type Figure = fn(&Report, &WorkloadReport) -> Option<f64>;

/// What is plotted: title, unit, and the figure.
const FIGURES: [(&str, &str, Figure); 4] = [
    ("Goodput", "Gb/s", |_, workload| {
        Some(workload.goodput_bps / 1e9)
    }),
    ("Completion, 99th percentile", "\u{b5}s", |_, workload| {
        workload.completion_us.map(|spread| spread.p99)
    }),
    ("Pauses", "sent by switches", |report, _| {
        Some(
            report
                .switches
                .iter()
                .map(|own| own.pauses_sent)
                .sum::<u64>() as f64,
        )
    }),
    ("Drops", "packets", |report, _| {
        Some(report.switches.iter().map(|own| own.dropped).sum::<u64>() as f64)
    }),
];

/// The swept field with the most different numbers: its place, unit, and value in each run.
fn abscissa(runs: &[(usize, Report)]) -> Option<(usize, &'static str, Vec<f64>)> {
    let reports: Vec<&Report> = runs.iter().map(|(_, report)| report).collect();
    let settings = &reports.first()?.settings;
    let several = settings.iter().filter(|(path, _)| path != SEED).count() > 0;
    let numbers = settings
        .iter()
        .enumerate()
        .filter_map(|(index, (path, _))| {
            let (unit, values) = swept_numbers(&reports, index)?;
            let different: BTreeSet<u64> = values.iter().map(|value| value.to_bits()).collect();
            let counts = path != SEED || !several;
            (counts && different.len() > 1).then_some((different.len(), index, unit, values))
        });
    // Of several with as many values the first one.
    let most = numbers.max_by_key(|(count, index, ..)| (*count, usize::MAX - index));
    most.map(|(_, index, unit, values)| (index, unit, values))
}

fn plots(runs: &[(usize, Report)]) -> String {
    let Some((index, unit, values)) = abscissa(runs) else {
        return "<p class=\"soft\">No swept field has several numbers, so nothing is drawn.</p>\n"
            .to_owned();
    };
    let (path, _) = &runs[0].1.settings[index];
    let x = match unit {
        "" => path.clone(),
        unit => format!("{path} ({unit})"),
    };
    let mut text = String::from("<div class=\"plots\">\n");
    let mut left_out = 0;
    for (title, y, figure) in FIGURES {
        let mut lines = lines(runs, index, &values, figure);
        let is_flat = |line: &Line| line.points.iter().all(|(_, value)| *value == 0.0);
        if lines.iter().all(is_flat) {
            continue;
        }
        left_out = left_out.max(lines.len().saturating_sub(COLOURS.len()));
        lines.truncate(COLOURS.len());
        let chart = Chart {
            title,
            x: &x,
            y,
            lines,
            step: false,
        };
        text += &chart.svg();
    }
    text += "</div>\n";
    if left_out > 0 {
        let _ = writeln!(
            text,
            "<p class=\"soft\">{left_out} more lines are not drawn: the table has all runs.</p>"
        );
    }
    text
}

/// Of each abscissa by its bits: itself, the sum of the figures there, and how many there are.
type Points = BTreeMap<u64, (f64, f64, u32)>;

/// A line for each combination of the other settings and each workload; of repetitions the mean.
fn lines(runs: &[(usize, Report)], index: usize, values: &[f64], figure: Figure) -> Vec<Line> {
    let mut found: Vec<(String, Points)> = Vec::new();
    for ((_, report), x) in runs.iter().zip(values) {
        let others = report.settings.iter().enumerate();
        let others = others.filter(|(place, (path, _))| *place != index && path != SEED);
        let others: Vec<String> = others
            .map(|(_, (path, value))| format!("{path}={value}"))
            .collect();
        for workload in &report.workloads {
            let Some(value) = figure(report, workload) else {
                continue;
            };
            let mut name = others.clone();
            if report.workloads.len() > 1 {
                name.insert(0, workload.name.clone());
            }
            let name = name.join(", ");
            let at = found.iter().position(|(known, _)| *known == name);
            let at = at.unwrap_or_else(|| {
                found.push((name, BTreeMap::new()));
                found.len() - 1
            });
            // A map needs keys with an order, which floating-point numbers do not have.
            let (_, sum, count) = found[at].1.entry(x.to_bits()).or_insert((*x, 0.0, 0));
            *sum += value;
            *count += 1;
        }
    }
    let line = |(name, points): (String, Points)| {
        let mut points: Vec<(f64, f64)> = points
            .into_values()
            .map(|(x, sum, count)| (x, sum / f64::from(count)))
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line { name, points }
    };
    found.into_iter().map(line).collect()
}
