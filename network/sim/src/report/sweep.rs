//! The runs of a sweep side by side.

use std::borrow::Borrow;

use super::setting_unit::Unit;
use super::{Report, SwitchReport};

/// The head of a table of runs, and a row per run and workload: what was set, and what came of it.
pub fn sweep_rows(reports: &[(usize, Report)]) -> Vec<Vec<String>> {
    let Some((_, first)) = reports.first() else {
        return Vec::new();
    };
    let several = first.workloads.len() > 1;
    let mut switches = reports.iter().flat_map(|(_, report)| &report.switches);
    let trims = switches.any(|switch| switch.trimmed > 0);
    let mut head = vec!["run".to_owned()];
    head.extend(first.settings.iter().map(|(path, _)| path.clone()));
    if several {
        head.push("workload".to_owned());
    }
    let measures = [
        "Gb/s",
        "FCT p50 us",
        "FCT p99 us",
        "slowdown p99",
        "resent",
        "marked",
        "pauses",
        "dropped",
    ];
    head.extend(measures.map(str::to_owned));
    if trims {
        head.push("trimmed".to_owned());
    }
    let mut rows = vec![head];
    for (number, report) in reports {
        let sum = |of: fn(&SwitchReport) -> u64| report.switches.iter().map(of).sum::<u64>();
        for workload in &report.workloads {
            let mut row = vec![number.to_string()];
            row.extend(report.settings.iter().map(|(_, value)| value.clone()));
            if several {
                row.push(workload.name.clone());
            }
            let completion = workload.completion_us;
            let show = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
            };
            row.extend([
                format!("{:.2}", workload.goodput_bps / 1e9),
                show(completion.map(|spread| spread.p50)),
                show(completion.map(|spread| spread.p99)),
                show(workload.slowdown.map(|spread| spread.p99)),
                workload.retransmitted.to_string(),
                sum(|switch| switch.marked).to_string(),
                sum(|switch| switch.pauses_sent).to_string(),
                sum(|switch| switch.dropped).to_string(),
            ]);
            if trims {
                row.push(sum(|switch| switch.trimmed).to_string());
            }
            rows.push(row);
        }
    }
    rows
}

/// Gives the runs of a sweep their settings as numbers: texts sort 1200kB before 400kB. A column is called
/// like the field, and its unit; a field without a unit is a number as it is.
pub fn number_settings(reports: &mut [(usize, Report)]) {
    let fields = reports
        .first()
        .map_or(0, |(_, report)| report.settings.len());
    for index in 0..fields {
        let setting = |report: &Report| report.settings.get(index).cloned().unwrap_or_default();
        let values = reports.iter().map(|(_, report)| setting(report).1);
        let unit = Unit::of_all(&values.collect::<Vec<_>>());
        let Some(unit) = unit.filter(|unit| *unit != Unit::Number) else {
            continue;
        };
        for (_, report) in reports.iter_mut() {
            let (path, value) = setting(report);
            let number = unit.number(&value).unwrap_or_default();
            report
                .numbers
                .push((format!("{path}_{}", unit.name()), number));
        }
    }
}

/// The values of a swept field as numbers, and the name of their unit, which is empty for numbers without
/// one; `None` where a value is none.
pub fn swept_numbers<R: Borrow<Report>>(
    reports: &[R],
    index: usize,
) -> Option<(&'static str, Vec<f64>)> {
    let values = reports.iter().map(|report| {
        let setting = report.borrow().settings.get(index);
        setting.map_or_else(String::new, |(_, value)| value.clone())
    });
    let values: Vec<String> = values.collect();
    let unit = Unit::of_all(&values)?;
    let numbers = values.iter().map(|value| unit.number(value));
    let name = match unit {
        Unit::Number => "",
        Unit::Bytes => "bytes",
        Unit::BitsPerSecond => "b/s",
        Unit::Nanoseconds => "ns",
    };
    Some((name, numbers.collect::<Option<_>>()?))
}
