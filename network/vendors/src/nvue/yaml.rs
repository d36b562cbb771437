//! NVUE's YAML (`nv config show`, `startup.yaml`) as the paths that `nv set` takes. NVUE prints one form:
//! mappings by indentation, with `{}` where nothing is below.

use super::commands::Setting;
use crate::outcome::Outcomes;
use crate::text::{Line, ReadError, shortened};

/// The deepest nesting of mappings.
const DEPTH_MAX: usize = 32;

/// Whether lines are of NVUE's YAML.
pub(super) fn is_yaml(lines: &[Line<'_>]) -> bool {
    let first = lines.iter().find(|line| line.text != "---");
    first.is_some_and(|line| {
        line.indent == 0 && (line.text.starts_with("- ") || line.text.ends_with(':'))
    })
}

/// The settings below `set`.
pub(super) fn settings<'a>(
    file: &str,
    lines: &[Line<'a>],
    outcomes: &mut Outcomes,
) -> Vec<Setting<'a>> {
    let mut found = Vec::new();
    // Keys of the open mappings, with their indentation.
    let mut open: Vec<(usize, &'a str)> = Vec::new();
    for line in lines {
        let (indent, text) = match line.text.strip_prefix("- ") {
            Some(rest) => (line.indent + 2, rest.trim_start()),
            None => (line.indent, line.text),
        };
        if text == "---" {
            outcomes.irrelevant(line.number);
            continue;
        }
        open.retain(|(own, _)| *own < indent);
        let odd = |what: &str| {
            let text = shortened(line.text);
            ReadError::new(file, line.number, format!("\"{text}\": {what}"))
        };
        let Some((key, value)) = pair(text) else {
            outcomes.not_understood(&odd("KEY: VALUE was expected"));
            continue;
        };
        if value.is_empty() {
            // The key of a mapping, whose lines follow.
            outcomes.applied(line.number);
            match open.len() < DEPTH_MAX {
                true => open.push((indent, key)),
                false => outcomes.not_understood(&odd("mappings are nested too deep")),
            }
            continue;
        }
        if value.starts_with(['|', '>', '&', '*', '!', '['])
            || (value.starts_with('{') && value != "{}")
        {
            outcomes.not_understood(&odd("this form of a value is not known"));
            continue;
        }
        let within = open.iter().map(|(_, key)| *key);
        let mut words: Vec<&str> = within.chain([key]).collect();
        words.extend(Some(unquoted(value)).filter(|value| *value != "{}"));
        match words.first() {
            Some(&"set") => found.push(Setting::new(line.number, words.split_off(1))),
            Some(&"header") => outcomes.irrelevant(line.number),
            _ => outcomes.not_understood(&odd("settings are below \"set:\"")),
        }
    }
    found
}

/// A key and its value, which is empty where a mapping follows.
fn pair(text: &str) -> Option<(&str, &str)> {
    if let Some(quote @ ('\'' | '"')) = text.chars().next() {
        let (key, rest) = text[1..].split_once(quote)?;
        return Some((key, rest.strip_prefix(':')?.trim()));
    }
    match text.split_once(": ") {
        Some((key, value)) => Some((key, value.trim())),
        None => Some((text.strip_suffix(':')?, "")),
    }
}

fn unquoted(text: &str) -> &str {
    let quoted = ['\'', '"'].iter().find_map(|quote| {
        let rest = text.strip_prefix(*quote)?;
        rest.strip_suffix(*quote)
    });
    quoted.unwrap_or(text)
}
