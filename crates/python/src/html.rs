//! HTML for notebooks: plain tables without scripts and colours, which light and dark pages show alike.

use sim::report::{Report, Severity};

use crate::table::Table;

/// Rows of a table that are shown at most.
const ROWS_MAX: usize = 20;

/// Text with the characters of markup replaced.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A report: title, findings and workloads.
pub(crate) fn report(report: &Report, workloads: &Table) -> String {
    let title = if report.title.is_empty() { "rockery.sim" } else { &report.title };
    let mut text = format!(
        "<h4>{}</h4><p>{:.3} ms of virtual time, seed {}, {} queue pairs</p>",
        escape(title),
        report.end_s * 1e3,
        report.seed,
        report.flows.len()
    );
    if report.findings.is_empty() {
        text += "<p>Nothing was lost, and no port was paused for long.</p>";
    }
    for finding in &report.findings {
        let severity = match finding.severity {
            Severity::Broken => "broken",
            Severity::Slow => "slow",
            Severity::Note => "note",
        };
        text += &format!(
            "<p><b>{severity}</b> {}<br>cause: {}<br>do: <code>{}</code></p>",
            escape(&finding.seen),
            escape(&finding.cause),
            escape(&finding.instead)
        );
    }
    text + &table(workloads)
}

/// A table: its head, and its first rows.
pub(crate) fn table(table: &Table) -> String {
    let head: String = table.columns.iter().map(|(name, _)| format!("<th>{}</th>", escape(name))).collect();
    let cell = |row: usize| table.columns.iter().map(move |(_, values)| (values, row));
    let rows: String = (0..table.rows().min(ROWS_MAX))
        .map(|row| {
            let cells: String = cell(row)
                .map(|(values, row)| format!("<td>{}</td>", escape(&crate::table::text(values, row))))
                .collect();
            format!("<tr>{cells}</tr>")
        })
        .collect();
    let rest = table.rows().saturating_sub(ROWS_MAX);
    let more = if rest > 0 { format!("<p>and {rest} more rows</p>") } else { String::new() };
    format!("<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}")
}
