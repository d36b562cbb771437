//! Pages of `docs`: what a reader can take in, and what a page begins with.

use crate::{File, Finding, Tree};

/// Lines of a page.
pub const PAGE_LINES_MAX: usize = 250;

/// Pages that are made of code or data, or are the data: they are searched and not read.
const SEARCHED: &[&str] = &[
    "docs/reference/commands.md",
    "docs/reference/fabric-file.md",
    "docs/reference/metrics.md",
    "docs/reference/rules.md",
    "docs/reference/tests.md",
];

/// Measurements and attempts, with their days.
const LAB_BOOK: &str = "docs/lab-book/";
/// Each has the decision as its title.
const DECISIONS: &str = "docs/design/decisions/";
const DESIGN: &str = "docs/design/";
const SUMMARY: &str = "docs/SUMMARY.md";

/// The words by which a first paragraph says what a reader can do after the page, or look up in it.
const BEGINNINGS: &[&str] = &["After this page", "After this lesson", "Here you look up"];

/// Words that tell how things were, which the changelog and the lab book do.
const HISTORY: &[&str] = &[
    "any more",
    "anymore",
    "earlier version",
    "earlier versions",
    "formerly",
    "in the past",
    "no longer",
    "nowadays",
    "previously",
    "since then",
    "these days",
    "today",
    "until now",
    "was changed",
    "were changed",
];

fn pages(tree: &Tree) -> impl Iterator<Item = &File> {
    let is_read = |file: &&File| {
        file.path.starts_with("docs/") && !file.path.starts_with(LAB_BOOK) && file.path != SUMMARY
    };
    tree.with_extension(&["md"]).filter(is_read)
}

/// Pages that are longer than a reader with a question reads.
pub fn length(tree: &Tree) -> Vec<Finding> {
    let read = pages(tree).filter(|page| !SEARCHED.contains(&page.path.as_str()));
    let lengths = read.map(|page| (page, page.text.lines().count()));
    let long = lengths.filter(|(_, lines)| *lines > PAGE_LINES_MAX);
    let what =
        |lines| format!("{lines} lines, {PAGE_LINES_MAX} fit: split it by a reader's question");
    long.map(|(page, lines)| page.finding(0, what(lines)))
        .collect()
}

/// Pages whose first paragraph does not say what a reader can do after it.
pub fn beginning(tree: &Tree) -> Vec<Finding> {
    let with_task = pages(tree).filter(|page| !page.path.starts_with(DECISIONS));
    let begins = |page: &&File| {
        let mut lines = page.text.lines().filter(|line| !line.is_empty());
        let first = lines.nth(1).unwrap_or_default();
        BEGINNINGS.iter().any(|words| first.starts_with(words))
    };
    let without = with_task.filter(|page| !begins(page));
    let what = "say in the first line what a reader can do after this page, or look up in it";
    without.map(|page| page.finding(3, what)).collect()
}

/// Words of history in pages for users.
pub fn history(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages(tree).filter(|page| !page.path.starts_with(DESIGN)) {
        let mut in_code = false;
        for (index, line) in page.text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            let words = words(line);
            let found = HISTORY.iter().find(|it| words.contains(&format!(" {it} ")));
            if let Some(history) = found.filter(|_| !in_code) {
                let what = format!("{history:?} tells how it was: say how it is");
                findings.push(page.finding(index + 1, what));
            }
        }
    }
    findings
}

/// The words of a line in lower case, with a space around each.
fn words(line: &str) -> String {
    let letters = line
        .to_lowercase()
        .replace(|it: char| !it.is_alphanumeric(), " ");
    let words: Vec<&str> = letters.split_whitespace().collect();
    format!(" {} ", words.join(" "))
}

/// Decisions that the index does not list.
pub fn decisions_in_the_index(tree: &Tree) -> Vec<Finding> {
    const INDEX: &str = "docs/design/decisions.md";
    let index = tree.file(INDEX).map_or("", |file| file.text.as_str());
    let decisions = tree
        .files
        .iter()
        .filter(|file| file.path.starts_with(DECISIONS));
    let is_listed = |file: &&File| {
        let link = file.path.strip_prefix(DESIGN).unwrap_or_default();
        index.contains(&format!("]({link})"))
    };
    let missing = decisions.filter(|file| !is_listed(file));
    missing
        .map(|file| file.finding(0, format!("{INDEX} does not list it")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pages_are_found() {
        let long = "\n".repeat(PAGE_LINES_MAX + 1);
        let found = |path, text: &str| length(&Tree::of(&[(path, text)])).len();
        assert_eq!(found("docs/a.md", &long), 1);
        assert_eq!(found("docs/a.md", &long[1..]), 0);
        assert_eq!(found("docs/lab-book/a.md", &long), 0);
        assert_eq!(found(SEARCHED[0], &long), 0);
    }

    #[test]
    fn pages_without_a_task_are_found() {
        let found = |path, text| beginning(&Tree::of(&[(path, text)])).len();
        assert_eq!(
            found("docs/a.md", "# A\n\nAfter this page you can do it.\n"),
            0
        );
        assert_eq!(found("docs/a.md", "# A\n\nA is a thing.\n"), 1);
        assert_eq!(found("docs/a.md", "# A\n"), 1);
        assert_eq!(found("docs/design/decisions/a/b.md", "# A\n"), 0);
    }

    #[test]
    fn words_of_history_are_found() {
        let found = |path, text| history(&Tree::of(&[(path, text)])).len();
        assert_eq!(
            found("docs/a.md", "It is no\nlonger so. It has no longer one.\n"),
            1
        );
        assert_eq!(found("docs/a.md", "```\nToday\n```\nTodayish\n"), 0);
        assert_eq!(found("docs/a.md", "Today.\n"), 1);
        assert_eq!(found("docs/design/a.md", "Today.\n"), 0);
    }

    #[test]
    fn decisions_without_a_line_are_found() {
        let index = ("docs/design/decisions.md", "[a](decisions/x/a.md)");
        let pages = [
            index,
            ("docs/design/decisions/x/a.md", ""),
            ("docs/design/decisions/x/b.md", ""),
        ];
        let found = decisions_in_the_index(&Tree::of(&pages));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "docs/design/decisions/x/b.md");
    }
}
