//! A sweep as a table: one row per run and workload.

use ::sim::report::Report;

/// One row per run and workload: what was set, and what came of it.
pub(super) fn table(reports: &[(usize, Report)]) -> String {
    let Some((_, first)) = reports.first() else {
        return "no run was finished\n".to_owned();
    };
    let several = first.workloads.len() > 1;
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
    let mut rows = vec![head];
    for (number, report) in reports {
        let sum = |of: fn(&::sim::report::SwitchReport) -> u64| {
            report.switches.iter().map(of).sum::<u64>()
        };
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
            rows.push(row);
        }
    }
    let title = if first.title.is_empty() {
        String::new()
    } else {
        format!("{}\n\n", first.title)
    };
    title + &aligned(&rows)
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += "  ";
            line += &fabric::columns::right(cell, *width);
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
