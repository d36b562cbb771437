//! `nv set` and `nv unset` in order: the settings that are left at the end.

use super::names::expanded;
use crate::outcome::Outcomes;
use crate::text::{Line, ReadError, list, shortened};

/// Commands of `nv unset` that are evaluated at most; each is compared with all settings before it.
const UNSETS_MAX: usize = 1_000;

/// A setting: its line, and words.
#[derive(Clone)]
pub(super) struct Setting<'a> {
    pub(super) line: usize,
    pub(super) words: Vec<&'a str>,
    /// Interfaces of the setting from which it was taken back.
    without: Vec<String>,
}

impl<'a> Setting<'a> {
    pub(super) fn new(line: usize, words: Vec<&'a str>) -> Self {
        let without = Vec::new();
        Self {
            line,
            words,
            without,
        }
    }

    pub(super) fn wrong(&self, file: &str, what: &str) -> ReadError {
        let text = shortened(&self.words.join(" "));
        ReadError::new(file, self.line, format!("\"{text}\": {what}"))
    }

    /// The interfaces that the setting is of.
    pub(super) fn interfaces(&self) -> Vec<String> {
        let names = match self.words.as_slice() {
            ["interface", names, ..] => expanded(names),
            _ => Vec::new(),
        };
        names
            .into_iter()
            .filter(|name| !self.without.contains(name))
            .collect()
    }
}

/// How a setting is concerned by a path that is taken back.
enum Concerns {
    No,
    Whole,
    /// Some of its interfaces.
    Interfaces(Vec<String>),
    /// Some of the values in a list.
    Values,
}

/// Takes the commands of a text; returns the settings that are left.
pub(super) fn settings<'a>(
    file: &str,
    lines: &[Line<'a>],
    outcomes: &mut Outcomes,
) -> Vec<Setting<'a>> {
    let (mut found, mut unsets) = (Vec::new(), 0);
    for line in lines {
        let words: Vec<&str> = line
            .words()
            .into_iter()
            .skip_while(|word| *word != "nv")
            .collect();
        match words.as_slice() {
            ["nv", "set", rest @ ..] => found.push(Setting::new(line.number, rest.to_vec())),
            ["nv", "config" | "show", ..] => outcomes.irrelevant(line.number),
            ["nv", "unset", ..] if unsets == UNSETS_MAX => {
                let what = format!("more than {UNSETS_MAX} commands nv unset are not evaluated");
                outcomes.not_understood(&wrong(file, line, &what));
            }
            ["nv", "unset", path @ ..] => {
                unsets += 1;
                unset(file, line, path, &mut found, outcomes);
            }
            _ => outcomes.not_understood(&wrong(file, line, "nv set was expected")),
        }
    }
    found
}

fn wrong(file: &str, line: &Line<'_>, what: &str) -> ReadError {
    let text = shortened(line.text);
    ReadError::new(file, line.number, format!("\"{text}\": {what}"))
}

/// Takes back the settings below a path. What is set by default stays.
fn unset(
    file: &str,
    line: &Line<'_>,
    path: &[&str],
    found: &mut Vec<Setting<'_>>,
    outcomes: &mut Outcomes,
) {
    let (mut is_used, mut in_part) = (false, None);
    found.retain_mut(|setting| match concerns(path, setting) {
        Concerns::No => true,
        Concerns::Whole => {
            outcomes.irrelevant(setting.line);
            is_used = true;
            false
        }
        Concerns::Interfaces(names) => {
            setting.without.extend(names);
            is_used = true;
            true
        }
        Concerns::Values => {
            in_part.get_or_insert(setting.line);
            true
        }
    });
    match (in_part, is_used) {
        (Some(of), _) => {
            let what =
                format!("it takes back some of the values of line {of}, and is not evaluated");
            outcomes.not_understood(&wrong(file, line, &what));
        }
        (None, true) => outcomes.applied(line.number),
        (None, false) => outcomes.irrelevant(line.number),
    }
}

fn concerns(path: &[&str], setting: &Setting<'_>) -> Concerns {
    if path.len() > setting.words.len() {
        return Concerns::No;
    }
    let is_of_interfaces = path.first() == Some(&"interface") && path.len() > 1;
    let mut in_part = false;
    let pairs = path.iter().zip(&setting.words).enumerate();
    for (at, (own, set)) in pairs {
        if own == set || (at == 1 && is_of_interfaces) {
            continue;
        }
        if !overlap(own, set) {
            return Concerns::No;
        }
        in_part = true;
    }
    if in_part {
        return Concerns::Values;
    }
    if !is_of_interfaces || setting.words[0] != "interface" {
        return Concerns::Whole;
    }
    let (own, set) = (expanded(path[1]), setting.interfaces());
    let taken: Vec<String> = set
        .iter()
        .filter(|name| own.contains(name))
        .cloned()
        .collect();
    match taken.len() {
        0 => Concerns::No,
        all if all == set.len() => Concerns::Whole,
        _ => Concerns::Interfaces(taken),
    }
}

/// Whether two lists of numbers, as `24,26` and `24-31`, have one in common.
fn overlap(one: &str, other: &str) -> bool {
    let numbers = |text| list("", 0, text, u8::MAX).unwrap_or_default();
    let one: Vec<u8> = numbers(one);
    !one.is_empty() && numbers(other).iter().any(|number| one.contains(number))
}
