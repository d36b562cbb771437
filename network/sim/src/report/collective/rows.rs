//! Collectives as rows: for CSV, for tables of columns, and for sweeps.

use super::super::Report;
use super::super::columns::{Column, Rows};
use super::super::csv::{cell, number, settings};
use super::{CollectiveReport, PathReport};
use std::borrow::Borrow;
use std::fmt::Write;

/// A part of a critical path.
type PartOfPath = fn(&PathReport) -> f64;

/// Columns of a critical path.
const PATH: [(&str, PartOfPath); 9] = [
    ("path_us", |path| path.total_us),
    ("path_compute_us", |path| path.compute_us),
    ("path_local_us", |path| path.local_us),
    ("path_wire_us", |path| path.wire_us),
    ("path_own_us", |path| path.own_us),
    ("path_queue_us", |path| path.queue_us),
    ("path_paused_us", |path| path.paused_us),
    ("path_retransmission_us", |path| path.retransmission_us),
    ("path_credit_us", |path| path.credit_us),
];

/// One row per collective and transfer. With `run`, its number is in the first column: for sweeps.
pub fn collectives_csv(report: &Report, run: Option<usize>, head: bool) -> String {
    let mut text = String::new();
    if head {
        let path = PATH.map(|(name, _)| name).join(",");
        text = format!(
            "{}{}collective,operation,algorithm,group,ranks,bytes,network_bytes,local_bytes,repetitions,\
             repeat,begin_us,end_us,time_us,algbw_bytes_per_s,busbw_bytes_per_s,slowest,{path},stuck\n",
            if run.is_some() { "run," } else { "" },
            settings(report, true)
        );
    }
    for one in &report.collectives {
        let run = run.map(|run| format!("{run},")).unwrap_or_default();
        let at = |index: usize| number(one.interval_us.map(|interval| interval[index]));
        let path = PATH.map(|(_, part)| number(one.path.as_ref().map(part)));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{run}{}{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            settings(report, false),
            cell(&one.name),
            one.kind,
            one.algorithm,
            cell(&one.group),
            one.ranks,
            one.bytes,
            one.network_bytes,
            one.local_bytes,
            one.repetitions,
            one.repeat,
            at(0),
            at(1),
            number(one.time_us),
            number(one.algbw_bytes_per_s),
            number(one.busbw_bytes_per_s),
            cell(one.slowest.as_deref().unwrap_or_default()),
            path.join(","),
            cell(one.stuck.as_deref().unwrap_or_default()),
        );
    }
    text
}

/// One row per collective or transfer and port that sent its data, if the run recorded them. With `run`, its
/// number is in the first column: for sweeps.
pub fn links_csv(report: &Report, run: Option<usize>, head: bool) -> String {
    let mut text = String::new();
    if head {
        text = format!(
            "{}{}collective,port,next,packets,bytes\n",
            if run.is_some() { "run," } else { "" },
            settings(report, true)
        );
    }
    let run = run.map(|run| format!("{run},")).unwrap_or_default();
    for one in &report.collectives {
        for link in &one.links {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{run}{}{},{},{},{},{}",
                settings(report, false),
                cell(&one.name),
                cell(&link.port),
                cell(&link.to),
                link.packets,
                link.bytes
            );
        }
    }
    text
}

/// The collectives and transfers of all reports.
pub fn collective_columns<R: Borrow<Report>>(reports: &[R]) -> Vec<Column> {
    let rows: Rows<'_, &CollectiveReport> =
        Rows::new(reports, |report| report.collectives.iter().collect());
    let mut rows = rows
        .text("collective", |_, one| one.name.clone())
        .text("operation", |_, one| one.kind.clone())
        .text("algorithm", |_, one| one.algorithm.clone())
        .text("group", |_, one| one.group.clone())
        .whole("ranks", |_, one| one.ranks)
        .whole("bytes", |_, one| one.bytes)
        .whole("network_bytes", |_, one| one.network_bytes)
        .whole("local_bytes", |_, one| one.local_bytes)
        .whole("repetitions", |_, one| one.repetitions)
        .whole("repeat", |_, one| one.repeat)
        .number("begin_us", |one| {
            one.interval_us.map(|interval| interval[0])
        })
        .number("end_us", |one| one.interval_us.map(|interval| interval[1]))
        .number("time_us", |one| one.time_us)
        .number("algbw_bytes_per_s", |one| one.algbw_bytes_per_s)
        .number("busbw_bytes_per_s", |one| one.busbw_bytes_per_s)
        .text("slowest", |_, one| one.slowest.clone().unwrap_or_default());
    for (name, part) in PATH {
        rows = rows.number(name, |one| one.path.as_ref().map(part));
    }
    rows.text("stuck", |_, one| one.stuck.clone().unwrap_or_default())
        .columns()
}

/// The head of a table of the collectives of a sweep, and a row per run and collective; nothing if there are
/// none.
pub fn collective_sweep_rows(reports: &[(usize, Report)]) -> Vec<Vec<String>> {
    let Some((_, first)) = reports.first() else {
        return Vec::new();
    };
    if reports
        .iter()
        .all(|(_, report)| report.collectives.is_empty())
    {
        return Vec::new();
    }
    let mut head = vec!["run".to_owned()];
    head.extend(first.settings.iter().map(|(path, _)| path.clone()));
    let measures = [
        "collective",
        "operation",
        "done",
        "time us",
        "algbw GB/s",
        "busbw GB/s",
        "slowest",
    ];
    head.extend(measures.map(str::to_owned));
    let mut rows = vec![head];
    for (number, report) in reports {
        for one in &report.collectives {
            let mut row = vec![number.to_string()];
            row.extend(report.settings.iter().map(|(_, value)| value.clone()));
            let show = |value: Option<f64>, places: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.places$}"))
            };
            row.extend([
                one.name.clone(),
                super::text::operation(one),
                format!("{}/{}", one.repetitions, one.repeat),
                show(one.time_us, 2),
                show(one.algbw_bytes_per_s.map(|rate| rate / 1e9), 3),
                show(one.busbw_bytes_per_s.map(|rate| rate / 1e9), 3),
                one.slowest.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
            rows.push(row);
        }
    }
    rows
}
