//! Lines and files that can be taken in at once. Clippy has a limit for functions: `too_many_lines`.

use crate::{Finding, Tree};

/// Columns of a line. `rustfmt` sees to code; this is about comments, strings, and what is not Rust.
pub const LINE_WIDTH_MAX: usize = 110;

/// Columns of a line of documentation.
pub const PAGE_WIDTH_MAX: usize = 140;

/// A page that is made of the sentences of the fabric file's schema.
const GENERATED: &str = "docs/reference/fabric-file.md";

/// Lines of a Rust file. The aim is 300.
pub const FILE_LINES_MAX: usize = 800;

const MEASURED: &[&str] = &["rs", "sh", "py", "c", "h"];

/// Lines that are too wide.
pub fn line_width(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(MEASURED) {
        for (index, line) in file.text.lines().enumerate() {
            let width = line.chars().count();
            if width > LINE_WIDTH_MAX {
                findings.push(
                    file.finding(index + 1, format!("{width} columns, {LINE_WIDTH_MAX} fit")),
                );
            }
        }
    }
    findings
}

/// Lines of documentation that are too wide. Tables and blocks of code are as wide as what they show.
pub fn page_width(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree
        .with_extension(&["md"])
        .filter(|file| file.path != GENERATED)
    {
        let mut in_code = false;
        for (index, line) in file.text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            let width = line.chars().count();
            if !in_code && !line.starts_with('|') && width > PAGE_WIDTH_MAX {
                findings.push(
                    file.finding(index + 1, format!("{width} columns, {PAGE_WIDTH_MAX} fit")),
                );
            }
        }
    }
    findings
}

/// Files that are too long.
pub fn file_length(tree: &Tree) -> Vec<Finding> {
    let lengths = tree
        .with_extension(&["rs"])
        .map(|file| (file, file.text.lines().count()));
    let long = lengths.filter(|(_, lines)| *lines > FILE_LINES_MAX);
    long.map(|(file, lines)| {
        file.finding(0, format!("{lines} lines: split it by idea, not by size"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_big_is_found() {
        let wide = format!("// {}", "x".repeat(LINE_WIDTH_MAX - 2));
        assert_eq!(line_width(&Tree::of(&[("a.rs", &wide)])).len(), 1);
        assert_eq!(line_width(&Tree::of(&[("a.rs", &wide[1..])])).len(), 0);
        let long = "\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(file_length(&Tree::of(&[("a.rs", &long)])).len(), 1);
        assert_eq!(file_length(&Tree::of(&[("a.rs", &long[1..])])).len(), 0);
    }

    #[test]
    fn wide_lines_of_documentation_are_found() {
        let wide = "x".repeat(PAGE_WIDTH_MAX + 1);
        let text = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n{}\n", &wide[1..]);
        assert_eq!(page_width(&Tree::of(&[("docs/a.md", &text)])).len(), 1);
    }
}
