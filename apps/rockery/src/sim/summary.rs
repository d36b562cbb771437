//! A sweep as a table: one row per run and workload.

use ::sim::report::{Report, collective_sweep_rows, sweep_rows};

/// One row per run and workload: what was set, and what came of it.
pub(super) fn table(reports: &[(usize, Report)]) -> String {
    let Some((_, first)) = reports.first() else {
        return "no run was finished\n".to_owned();
    };
    let title = if first.title.is_empty() {
        String::new()
    } else {
        format!("{}\n\n", first.title)
    };
    let collectives = collective_sweep_rows(reports);
    let more = match collectives.is_empty() {
        true => String::new(),
        false => format!("\n{}", aligned(&collectives)),
    };
    title + &aligned(&sweep_rows(reports)) + &more
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
