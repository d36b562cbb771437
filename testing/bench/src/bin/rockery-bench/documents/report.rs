//! Figures of this machine beside published ones, as text, as JSON and as a page.

use std::fmt::Write;

use ::bench::{Machine, Table as Lines};
use ::report::{escape, head, rows};
use serde::Serialize;

use crate::output::Printed;

/// One quantity: figures of this machine and of the document.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) unit: &'static str,
    /// In the order of [`Table::here`]; none where it was not measured.
    pub(super) here: Vec<Option<f64>>,
    /// In the order of [`Table::published`]; none where the document has no such figure.
    pub(super) published: Vec<Option<f64>>,
}

/// Quantities that have the same columns.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Table {
    pub(super) title: String,
    /// Columns that were measured here.
    pub(super) here: Vec<String>,
    /// Columns of the document.
    pub(super) published: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
    /// The reason why the columns are not alike: a sentence.
    pub(super) differs: &'static str,
}

impl Table {
    /// Whether anything was measured.
    fn is_measured(&self) -> bool {
        self.rows
            .iter()
            .any(|row| row.here.iter().any(Option::is_some))
    }
}

/// A part that was not measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Missing {
    pub(super) what: String,
    pub(super) reason: String,
}

/// One published document, and what was measured of it here.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Document {
    pub(super) title: &'static str,
    pub(super) date: &'static str,
    /// The hardware of the document.
    pub(super) hardware: &'static str,
    pub(super) tables: Vec<Table>,
    pub(super) missing: Vec<Missing>,
    pub(super) remarks: Vec<String>,
}

impl Document {
    pub(super) const fn new(
        title: &'static str,
        date: &'static str,
        hardware: &'static str,
    ) -> Self {
        Self {
            title,
            date,
            hardware,
            tables: Vec::new(),
            missing: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Adds a table, unless nothing of it was measured: the reason is among the missing parts then.
    pub(super) fn add(&mut self, table: Table) {
        if table.is_measured() {
            self.tables.push(table);
        }
    }

    /// A result, or an entry among the missing parts.
    pub(super) fn or_missing<T>(&mut self, what: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|reason| self.miss(what, reason)).ok()
    }

    pub(super) fn miss(&mut self, what: &str, reason: impl Into<String>) {
        self.missing.push(Missing {
            what: what.to_owned(),
            reason: reason.into(),
        });
    }
}

/// All results, and the conditions under which they were measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) quick: bool,
    pub(super) documents: Vec<Document>,
    /// Commands that were run, in this order.
    pub(super) commands: Vec<String>,
}

impl Report {
    fn conditions(&self) -> String {
        let quick = if self.quick {
            " Measured for a check (--quick): the figures say nothing about speed."
        } else {
            ""
        };
        format!("{}.{quick}", self.machine)
    }
}

fn heads(table: &Table) -> Vec<String> {
    let published = table
        .published
        .iter()
        .map(|column| format!("published: {column}"));
    let mut all = vec![table.title.clone(), "unit".to_owned()];
    all.extend(table.here.iter().cloned().chain(published));
    all
}

fn cells(row: &Row) -> Vec<String> {
    let here =
        |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    // Published figures have the digits of the document.
    let published =
        |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let mut all = vec![row.what.clone(), row.unit.to_owned()];
    all.extend(
        row.here
            .iter()
            .map(here)
            .chain(row.published.iter().map(published)),
    );
    all
}

fn text(table: &Table, out: &mut String) {
    let mut lines = Lines::new(1, heads(table));
    table.rows.iter().for_each(|row| lines.push(cells(row)));
    *out += &lines.text();
    let _ = writeln!(out, "{}", table.differs);
}

impl Printed for Report {
    fn table(&self) -> String {
        let mut out = format!("{}\n", self.conditions());
        for Document {
            title,
            date,
            hardware,
            tables,
            missing,
            remarks,
        } in &self.documents
        {
            let _ = writeln!(out, "\n=== {title}, {date}\n{hardware}");
            for table in tables {
                out.push('\n');
                text(table, &mut out);
            }
            if !missing.is_empty() || !remarks.is_empty() {
                out.push('\n');
            }
            remarks
                .iter()
                .for_each(|remark| _ = writeln!(out, "{remark}."));
            missing
                .iter()
                .for_each(|it| _ = writeln!(out, "missing: {}: {}", it.what, it.reason));
        }
        out
    }

    fn page(&self) -> String {
        let mut page = head("Five published documents on this machine");
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(&self.conditions()));
        for document in &self.documents {
            let Document {
                title,
                date,
                hardware,
                tables,
                missing,
                remarks,
            } = document;
            let _ = writeln!(page, "<h2>{}, {}</h2>", escape(title), escape(date));
            let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(hardware));
            for table in tables {
                let heads = heads(table);
                let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
                page += &rows(&heads, table.rows.iter().map(cells));
                let _ = writeln!(page, "<p>{}</p>", escape(table.differs));
            }
            remarks
                .iter()
                .for_each(|remark| _ = writeln!(page, "<p>{}.</p>", escape(remark)));
            for Missing { what, reason } in missing {
                let text = escape(&format!("{what}: {reason}"));
                let _ = writeln!(page, "<p class=\"finding note\">Missing: {text}</p>");
            }
        }
        let commands = escape(&self.commands.join("\n"));
        let _ = write!(
            page,
            "<h2>Commands</h2>\n<pre>{commands}</pre>\n</body></html>\n"
        );
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(here: Option<f64>) -> Table {
        Table {
            title: "Raw verbs".to_owned(),
            here: vec!["rockery".to_owned()],
            published: vec!["QDR"],
            rows: vec![Row {
                what: "ib_read_bw".to_owned(),
                unit: "MiB/s",
                here: vec![here],
                published: vec![Some(2275.69)],
            }],
            differs: "Memory in place of a cable.",
        }
    }

    #[test]
    fn every_form_has_figures_source_differences_and_missing_parts() {
        let mut document = Document::new("A title", "2012", "Two servers.");
        document.add(table(Some(4321.125)));
        document.or_missing::<()>("NetPIPE", Err("NPtcp: not installed".to_owned()));
        let (machine, commands) = (Machine::this(), vec!["ib_read_bw".to_owned()]);
        let report = Report {
            machine,
            quick: true,
            documents: vec![document],
            commands,
        };
        let wanted = [
            "4321.1",
            "2275.69",
            "A title",
            "2012",
            "Memory in place",
            "NetPIPE",
            "not installed",
        ];
        for text in [report.table(), report.page(), report.json()] {
            for wanted in wanted {
                assert!(text.contains(wanted), "{wanted}: {text}");
            }
        }
    }

    #[test]
    fn a_table_without_a_measurement_is_left_out() {
        let mut document = Document::new("A title", "2012", "Two servers.");
        document.add(table(None));
        assert!(document.tables.is_empty());
    }
}
