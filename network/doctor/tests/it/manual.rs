//! Each rule has a section in the manual, which names its specification, and no section is of a rule that
//! there is not.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use doctor::RULES;

fn text(path: &str) -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)).expect("it is there")
}

/// The text below each heading of the lowest level.
fn sections(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in page.lines() {
        match (line.strip_prefix("### "), found.last_mut()) {
            (Some(heading), _) => found.push((heading.to_owned(), String::new())),
            (None, Some((_, text))) if !line.starts_with('#') => {
                *text += &format!("{} ", line.trim())
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_manual_has_a_section_for_each_rule_and_no_other() {
    let sections = sections(&text("../../docs/reference/rules.md"));
    let rules: Vec<&str> = RULES.iter().map(|entry| entry.rule).collect();
    let headings: Vec<&str> = sections
        .iter()
        .map(|(heading, _)| heading.as_str())
        .collect();
    assert_eq!(headings, rules);
    assert_eq!(
        rules.iter().collect::<BTreeSet<_>>().len(),
        rules.len(),
        "each rule once"
    );
    for (entry, (_, text)) in RULES.iter().zip(&sections) {
        let rule = entry.rule;
        assert_eq!(entry.link, format!("docs/reference/rules.md#{rule}"));
        assert!(
            text.contains(&format!("Specification: {}.", entry.specification)),
            "{rule}: {text}"
        );
        assert!(text.contains("Consequence: "), "{rule}: {text}");
    }
}

/// Words of source files in quotes that look like the name of a rule.
fn quoted(folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in
        fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("the folder")
    {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            found.extend(text.split('"').map(str::to_owned));
        }
    }
    found
}

#[test]
fn the_sources_name_each_rule_and_no_rule_without_a_section() {
    let words: BTreeSet<String> = quoted("src/rules")
        .into_iter()
        .chain(quoted("src/probe"))
        .collect();
    let rules: BTreeSet<&str> = RULES.iter().map(|entry| entry.rule).collect();
    for rule in &rules {
        assert!(words.contains(*rule), "no source names {rule}");
    }
    // Names of rules begin with the words that the known ones begin with.
    let begins: BTreeSet<&str> = rules
        .iter()
        .filter_map(|rule| rule.split_once('-'))
        .map(|(begin, _)| begin)
        .collect();
    let is_name = |word: &str| {
        word.split_once('-')
            .is_some_and(|(begin, rest)| begins.contains(begin) && !rest.is_empty())
            && word.chars().all(|letter| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'
            })
    };
    for word in words
        .iter()
        .filter(|word| is_name(word) && !OTHER_WORDS.contains(&word.as_str()))
    {
        assert!(
            rules.contains(word.as_str()),
            "{word} has no section in docs/reference/rules.md"
        );
    }
}

/// Words of configurations that begin as rules do.
const OTHER_WORDS: &[&str] = &["trust-l3"];
