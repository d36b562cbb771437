//! Words that do not stay.

use crate::rust::Tokens;
use crate::{Finding, Tree};

/// Macros that mark something unfinished.
const MACROS: &[&str] = &["todo", "dbg", "unimplemented"];

/// Names that do not describe the contents of a file.
const NAMES: &[&str] = &[
    "utils", "util", "common", "manager", "helpers", "helper", "misc", "stuff",
];

/// Verbs that say nothing of what a method does without the name of a thing, as in `check_limits`. A function
/// of a module is called with the module's name, as in `pcie::check`.
const VERBS: &[&str] = &["check", "note", "place", "put", "settle"];

/// How the lines around a conflict begin.
const CONFLICT: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];

/// Calls of macros that mark something unfinished.
pub fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let Ok(tokens) = Tokens::of(&file.text) else {
            continue;
        };
        for (name, line) in tokens.macros() {
            if MACROS.contains(&name.as_str()) {
                findings.push(file.finding(line, format!("{name}! does not stay")));
            }
        }
    }
    findings
}

/// Methods whose names are a verb without an object. Tests may have them.
pub fn verbs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = tree.with_extension(&["rs"]);
    for file in files.filter(|file| !file.path.contains("/tests/")) {
        let Ok(tokens) = Tokens::of(&file.text) else {
            continue;
        };
        for (name, line) in tokens.methods() {
            if VERBS.contains(&name.as_str()) {
                findings.push(file.finding(line, format!("method `{name}`: say what it acts on")));
            }
        }
    }
    findings
}

/// Files and folders whose names do not describe their contents.
pub fn names(tree: &Tree) -> Vec<Finding> {
    let means_nothing = |part: &str| NAMES.contains(&part.split('.').next().unwrap_or(part));
    let files = tree
        .files
        .iter()
        .filter(|file| file.path.split('/').any(means_nothing));
    files
        .map(|file| file.finding(0, "call it after what is in it"))
        .collect()
}

/// Spaces at the ends of lines, files that do not end with a newline, and conflicts of a merge.
pub fn loose_ends(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&["rs", "md", "toml", "sh", "py", "c", "h", "yml", "tsv"]) {
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            findings.push(file.finding(0, "does not end with a newline"));
        }
        for (index, line) in file.text.lines().enumerate() {
            if line.ends_with([' ', '\t']) {
                findings.push(file.finding(index + 1, "space at the end of the line"));
            }
            if CONFLICT.iter().any(|mark| line.starts_with(mark)) {
                findings
                    .push(file.finding(index + 1, "a conflict of a merge that was not resolved"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found() {
        let text = "fn a() { todo!() }\nfn b() { dbg!(1); }\n// todo!()\n";
        assert_eq!(unfinished(&Tree::of(&[("a.rs", text)])).len(), 2);
        let text = "fn put(a: A) {}\nimpl A { fn put(&mut self, b: B) {} fn put_b(self, b: B) {} }";
        let methods = verbs(&Tree::of(&[("a.rs", text), ("a/tests/b.rs", text)]));
        assert_eq!(methods.iter().map(|it| it.line).collect::<Vec<_>>(), [2]);
        assert_eq!(
            names(&Tree::of(&[
                ("core/a/src/utils.rs", ""),
                ("a/common/b.rs", ""),
                ("a/ring.rs", "")
            ]))
            .len(),
            2
        );
        assert_eq!(loose_ends(&Tree::of(&[("a.md", "a \nb")])).len(), 2);
        let conflict = "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> 1234567\n";
        assert_eq!(loose_ends(&Tree::of(&[("a.md", conflict)])).len(), 2);
        assert_eq!(
            loose_ends(&Tree::of(&[("a.md", "a\nb\n"), ("empty.md", "")])).len(),
            0
        );
    }
}
