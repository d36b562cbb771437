//! HTML for notebooks: plain tables without scripts and colours, which light and dark pages show alike.

use sim::report::{Report, Severity};

/// Rows of a table that are shown at most.
const ROWS_MAX: usize = 20;

/// Text with the characters of markup replaced.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A report: title, findings and the table of workloads, which is HTML.
pub(crate) fn report(report: &Report, workloads: &str) -> String {
    let title = if report.title.is_empty() {
        "rockery.sim"
    } else {
        &report.title
    };
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
    text + workloads
}

/// A table: its head, and its first rows. `cells` are those of a row.
pub(crate) fn table(names: &[&str], rows: usize, cells: impl Fn(usize) -> Vec<String>) -> String {
    let head: String = names
        .iter()
        .map(|name| format!("<th>{}</th>", escape(name)))
        .collect();
    let row = |row| {
        let cells = cells(row)
            .iter()
            .map(|cell| format!("<td>{}</td>", escape(cell)))
            .collect::<String>();
        format!("<tr>{cells}</tr>")
    };
    let shown: String = (0..rows.min(ROWS_MAX)).map(row).collect();
    let rest = rows.saturating_sub(ROWS_MAX);
    let more = if rest > 0 {
        format!("<p>and {rest} more rows</p>")
    } else {
        String::new()
    };
    format!("<table><thead><tr>{head}</tr></thead><tbody>{shown}</tbody></table>{more}")
}
