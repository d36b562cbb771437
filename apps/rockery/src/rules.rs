//! The rules of `rockery doctor`, as the manual has them: `rockery explain RULE` prints a section of it.

use serde_json::{Value, json};

const MANUAL: &str = include_str!("../../../docs/reference/rules.md");

/// The section of a rule, without its heading; `None` for a name that is none.
fn section(rule: &str) -> Option<&'static str> {
    doctor::RULES.iter().find(|entry| entry.rule == rule)?;
    let (_, rest) = MANUAL.split_once(&format!("\n### {rule}\n"))?;
    let end = rest.find("\n#").unwrap_or(rest.len());
    Some(rest[..end].trim())
}

/// The text of a section for a terminal: of a link its words are left.
fn without_links(section: &str) -> String {
    let mut parts = section.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once(')').unwrap_or(("", part));
        if let Some(at) = text.rfind('[') {
            text.remove(at);
        }
        text += rest;
    }
    text
}

/// The sections of rules as a page, if each of the names is one of a rule.
pub(crate) fn page(names: &[&str]) -> Option<String> {
    let sections = names.iter().map(|name| {
        let text = without_links(section(name)?);
        Some(format!("{name}\n\n{text}\n"))
    });
    let sections: Option<Vec<String>> = sections.collect();
    Some(sections?.join("\n"))
}

/// The same as JSON.
pub(crate) fn document(names: &[&str]) -> Option<Value> {
    let rules = names.iter().map(|name| {
        let text = without_links(section(name)?);
        Some(json!({ "rule": name, "text": text }))
    });
    let rules: Option<Vec<Value>> = rules.collect();
    Some(json!({ "rules": rules? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_section_for_each_rule_in_order_and_for_nothing_else() {
        let headings: Vec<&str> = MANUAL
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .collect();
        let rules: Vec<&str> = doctor::RULES.iter().map(|entry| entry.rule).collect();
        assert_eq!(headings, rules);
    }

    #[test]
    fn each_rule_has_a_section_with_its_consequence_and_specification() {
        for entry in doctor::RULES {
            let rule = entry.rule;
            let text = section(rule).unwrap_or_else(|| panic!("{rule} has no section"));
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(line.contains("Consequence: "), "{rule}: {line}");
            let specification = format!("Specification: {}", entry.specification);
            assert!(line.contains(&specification), "{rule}: {line}");
            assert!(!text.contains("\n#"), "{rule}: {text}");
            assert!(!without_links(text).contains("]("), "{rule}");
        }
        assert_eq!(section("no-rule"), None);
        assert_eq!(section("rules-of-a-switch"), None);
    }

    #[test]
    fn links_leave_their_words() {
        assert_eq!(without_links("a [b c](d.md#e), [f](g) h"), "a b c, f h");
        assert_eq!(without_links("a [mlx5] b"), "a [mlx5] b");
        assert_eq!(page(&["pcie-speed", "no-rule"]), None);
    }
}
