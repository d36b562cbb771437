//! `ibqueryerrors` and `perfquery`: counters of ports (IBTA 16.1.3.5).

use super::super::pattern::pattern;
use super::{SubnetFacts, fact, is_message};
use crate::text::{Line, shortened};
use regex::Regex;
use std::sync::LazyLock;

static NODE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"^(?:Errors|Data Counters) for (?:0x([0-9a-fA-F]{1,16}) )?"(.*)"$"#)
});

static PORT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^GUID 0x([0-9a-fA-F]{1,16}) port (ALL|\d+):(.*)$"));

static COUNTER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\[(\w+) == (\d+)(?: \([^)]*\))?\]"));

static HEAD: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^# Port (?:extended )?counters: (.*) port (\d+)(?: \(.*\))?$"));

pub(super) fn is_ibqueryerrors(text: &str) -> bool {
    NODE.is_match(text) || text.starts_with("## Summary:")
}

pub(super) fn ibqueryerrors(facts: &mut SubnetFacts, output: &[Line<'_>]) {
    let mut node: Option<(String, bool)> = None;
    for line in output {
        if let Some(found) = NODE.captures(line.text) {
            // Only switches have a GUID in the line of their errors.
            node = Some((found[2].to_owned(), found.get(1).is_some()));
        } else if let (Some(found), Some((node, is_switch))) = (PORT.captures(line.text), &node) {
            let file = facts.file.clone();
            let own = facts.port(node, found[2].parse().ok());
            own.guid = own.guid.or(u64::from_str_radix(&found[1], 16).ok());
            if *is_switch && line_is_of_errors(output, line) {
                own.is_switch = Some(true);
            }
            for counter in COUNTER.captures_iter(&found[3]) {
                let value = counter[2].parse().unwrap_or(u64::MAX);
                own.counters
                    .insert(counter[1].to_owned(), fact(&file, line, value));
            }
        } else if !is_without_effect(line.text) {
            let why = format!("\"{}\": no line of ibqueryerrors", shortened(line.text));
            facts.not_understood(line.number, why);
        }
    }
}

/// Whether the heading above a line is that of errors: headings of data counters have a GUID for adapters
/// too.
fn line_is_of_errors(output: &[Line<'_>], line: &Line<'_>) -> bool {
    let above = output.iter().take_while(|other| other.number < line.number);
    let heading = above.filter(|other| NODE.is_match(other.text)).last();
    heading.is_some_and(|heading| heading.text.starts_with("Errors"))
}

fn is_without_effect(text: &str) -> bool {
    text.starts_with('#') || text.starts_with("Link info:") || is_message(text)
}

/// Lines `SymbolErrorCounter:..............0` below a heading with the port.
pub(super) fn perfquery(facts: &mut SubnetFacts, output: &[Line<'_>]) {
    let mut port: Option<(String, Option<u8>)> = None;
    for line in output {
        if let Some(found) = HEAD.captures(line.text) {
            // Port 255 stands for the sum of all.
            let number = found[2].parse().ok().filter(|number| *number != u8::MAX);
            port = Some((found[1].to_owned(), number));
            continue;
        }
        if is_message(line.text) {
            continue;
        }
        let counter = line.text.split_once(':').and_then(|(name, value)| {
            let value = value.trim_start_matches('.');
            let hexadecimal = value
                .strip_prefix("0x")
                .map(|digits| u64::from_str_radix(digits, 16));
            let value = hexadecimal.unwrap_or_else(|| value.parse()).ok()?;
            let is_name = !name.is_empty() && name.chars().all(char::is_alphanumeric);
            is_name.then_some((name, value))
        });
        match (&port, counter) {
            (Some((node, number)), Some((name, value))) => {
                let file = facts.file.clone();
                let value = fact(&file, line, value);
                let own = facts.port(node, *number);
                if !["PortSelect", "CounterSelect", "CounterSelect2"].contains(&name) {
                    own.counters.insert(name.to_owned(), value);
                }
            }
            _ => {
                let why = format!("\"{}\": no counter of perfquery", shortened(line.text));
                facts.not_understood(line.number, why);
            }
        }
    }
}
