//! The comparison as a page with plots, which opens offline.

use std::fmt::Write;

use super::COPIES;
use super::published;
use super::report::{self, MIB, Report, rows};
use crate::output::Printed;
use ::report::{Chart, Line, escape, head, rows as html_table};

impl Printed for Report {
    fn table(&self) -> String {
        report::table(self)
    }

    fn page(&self) -> String {
        page(self)
    }
}

/// The whole HTML page, with plots and tables.
fn page(report: &Report) -> String {
    let mut page = head("A share over SMB Direct and over TCP");
    let _ = writeln!(
        page,
        "<p class=\"soft\">{}</p>",
        escape(&report.conditions())
    );
    for (direction, what) in ["read", "write"].into_iter().enumerate() {
        let _ = writeln!(page, "<h2>MiB/s, {what}</h2>");
        page += &matrix(report, what, direction);
    }
    let _ = writeln!(
        page,
        "<p class=\"soft\">Published: {}.</p>",
        escape(report.matrix_source)
    );
    page += "<h2>Copies, MB/s</h2>\n";
    page += &copies(report);
    let _ = writeln!(
        page,
        "<p class=\"soft\">Published: {}.</p>",
        escape(report.copies_source)
    );
    page += "<h2>Plots</h2>\n<div class=\"plots\">\n";
    for (direction, what) in ["read", "write"].into_iter().enumerate() {
        page += &bandwidth(report, what, direction);
    }
    page += "</div>\n";
    let _ = write!(
        page,
        "<h2>As text</h2>\n<pre>{}</pre>\n</body></html>\n",
        escape(&report::table(report))
    );
    page
}

fn matrix(report: &Report, what: &str, direction: usize) -> String {
    let mut head = vec![""];
    head.extend(report.series.iter().map(|series| series.transport));
    let published = published::COLUMNS.map(|column| format!("published: {column}"));
    head.extend(published.iter().map(String::as_str));
    let row = |(name, job, published): report::Row| {
        let found = report.series.iter().map(|series| series.job(&job));
        let found = found.map(|it| it.map_or(0.0, |it| it.figures.bytes_per_second / MIB));
        let cells = found.chain(published).map(|figure| format!("{figure:.1}"));
        std::iter::once(name).chain(cells).collect()
    };
    html_table(&head, rows(what, direction).into_iter().map(row))
}

fn copies(report: &Report) -> String {
    let mut head = vec![""];
    head.extend(report.series.iter().map(|series| series.transport));
    head.push("published");
    let published = [published::SEQUENTIAL, published::CONCURRENT];
    let mut all = Vec::new();
    for ((many, name), published) in COPIES.iter().zip(["one file", "four files"]).zip(published) {
        for (what, figure) in [("read", published.read), ("write", published.write)] {
            let job = format!("{what}:{many}");
            let found = report.series.iter().map(|series| series.job(&job));
            let found = found.map(|it| it.map_or(0.0, |it| it.figures.bytes_per_second / 1e6));
            let cells = found.chain([figure]).map(|figure| format!("{figure:.1}"));
            all.push(
                std::iter::once(format!("{what}, {name}"))
                    .chain(cells)
                    .collect(),
            );
        }
    }
    html_table(&head, all.into_iter())
}

/// MiB/s by row of the matrix, as powers of two: rows are far apart.
fn bandwidth(report: &Report, what: &str, direction: usize) -> String {
    let rows = rows(what, direction);
    let points = |of: &dyn Fn(&report::Row) -> f64| -> Vec<(f64, f64)> {
        let all = rows.iter().zip(1_u32..);
        all.map(|(row, number)| (f64::from(number), of(row).max(1.0).log2()))
            .collect()
    };
    let mut lines: Vec<Line> = Vec::new();
    for series in &report.series {
        let of = |(_, job, _): &report::Row| {
            series
                .job(job)
                .map_or(0.0, |it| it.figures.bytes_per_second / MIB)
        };
        lines.push(Line {
            name: series.transport.to_owned(),
            points: points(&of),
        });
    }
    for (column, name) in published::COLUMNS.iter().enumerate() {
        let of = |(_, _, published): &report::Row| published[column];
        lines.push(Line {
            name: format!("{name}, published"),
            points: points(&of),
        });
    }
    let title = format!("{what}: rows of the matrix from top to bottom");
    Chart {
        title: &title,
        x: "row",
        y: "MiB/s, as a power of two",
        lines,
        step: false,
    }
    .svg()
}
