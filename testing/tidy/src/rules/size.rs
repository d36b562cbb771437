//! Lines, functions and files that can be taken in at once.

use crate::rust::Tokens;
use crate::{Finding, Tree};

/// Columns of a line. `rustfmt` sees to code; this is about comments, strings, and what is not Rust.
pub const LINE_WIDTH_MAX: usize = 110;

/// Columns of a line of documentation.
pub const PAGE_WIDTH_MAX: usize = 140;

/// A page that is made of the sentences of the fabric file's schema.
const GENERATED: &str = "docs/fabric-file.md";

/// Lines of a Rust file. The aim is 300.
pub const FILE_LINES_MAX: usize = 800;

/// Lines of a function, from `fn` to the closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Functions that are longer all the same, with the length that they may not exceed: file, function, lines.
/// Entries may shrink and go, none may come without a reason beside it.
pub const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

/// Files that are longer all the same, with the lines that they may not exceed: as for functions.
pub const LONG_FILES: &[(&str, usize)] = &[];

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
    let long = lengths.filter(|(file, lines)| {
        let entry = LONG_FILES.iter().find(|(path, _)| *path == file.path);
        *lines > entry.map_or(FILE_LINES_MAX, |(_, allowed)| *allowed)
    });
    long.map(|(file, lines)| {
        file.finding(0, format!("{lines} lines: split it by idea, not by size"))
    })
    .collect()
}

/// Functions that are too long, and entries of the list that are no longer needed.
pub fn function_length(tree: &Tree) -> Vec<Finding> {
    function_length_but_for(tree, LONG_FUNCTIONS)
}

fn function_length_but_for(tree: &Tree, ratchet: &[(&str, &str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = vec![0; ratchet.len()];
    for file in tree.with_extension(&["rs"]) {
        let Ok(tokens) = Tokens::of(&file.text) else {
            findings.push(file.finding(0, "is not Rust"));
            continue;
        };
        for function in tokens.functions() {
            let entry = ratchet
                .iter()
                .position(|(path, name, _)| *path == file.path && *name == function.name);
            let allowed = entry.map_or(FUNCTION_LINES_MAX, |entry| ratchet[entry].2);
            if let Some(entry) = entry {
                seen[entry] = seen[entry].max(function.length);
            }
            if function.length > allowed {
                let what = format!(
                    "`{}` has {} lines, {allowed} are allowed",
                    function.name, function.length
                );
                findings.push(file.finding(function.line, what));
            }
        }
    }
    for ((path, name, lines), length) in ratchet.iter().zip(seen) {
        if length < *lines {
            let what = format!(
                "`{name}` has {length} lines now: bring the list in testing/tidy/src/rules/size.rs up to date"
            );
            findings.push(Finding {
                path: (*path).to_owned(),
                line: 0,
                what,
            });
        }
    }
    findings
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

    #[test]
    fn long_functions_may_shrink_but_not_grow() {
        let function = |lines: usize| format!("fn f() {{{}}}", "\n".repeat(lines - 1));
        let check = |lines, allowed| {
            let text = function(lines);
            let ratchet: &[_] = if allowed == 0 {
                &[]
            } else {
                &[("a.rs", "f", allowed)]
            };
            function_length_but_for(&Tree::of(&[("a.rs", &text)]), ratchet).len()
        };
        assert_eq!((check(70, 0), check(71, 0)), (0, 1));
        assert_eq!(
            (check(100, 100), check(101, 100), check(99, 100)),
            (0, 1, 1)
        );
        assert_eq!(
            function_length_but_for(&Tree::of(&[("a.rs", "fn {")]), &[]).len(),
            1
        );
    }
}
