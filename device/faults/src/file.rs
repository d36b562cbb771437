//! The file of rules, in TOML: the words of a rule as keys.

use crate::text::Words;
use crate::value::number;
use crate::{Action, Point, Rule, RuleError, Rules};
use core::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys of the file, and those of a rule that are no conditions.
const EXAMPLE: &str = "[[fault]], on = \"post_send\", do = \"fail ENOMEM\", after = 100";

/// Why a file of rules cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct FileError {
    /// The name of the file.
    pub file: String,
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong, and what to write.
    pub what: String,
}

/// A mistake at a place of the text.
struct Mistake {
    at: usize,
    what: String,
}

impl Mistake {
    fn new(span: Range<usize>, what: impl ToString) -> Self {
        Self {
            at: span.start,
            what: what.to_string(),
        }
    }

    /// A mistake in the value of a key.
    fn of_key(span: Range<usize>, key: &str, error: &RuleError) -> Self {
        Self::new(span, format_args!("{key}: {error}"))
    }
}

/// Reads the rules of a file with this name.
///
/// # Errors
/// The first mistake, with its line.
pub fn read_file(file: &str, text: &str) -> Result<Rules, FileError> {
    rules(text).map_err(|mistake| FileError {
        file: file.to_owned(),
        line: text.get(..mistake.at).unwrap_or(text).matches('\n').count() + 1,
        what: mistake.what,
    })
}

fn rules(text: &str) -> Result<Rules, Mistake> {
    let table = DeTable::parse(text)
        .map_err(|error| Mistake::new(error.span().unwrap_or(0..0), error.message()))?;
    let mut all = Rules::default();
    for (key, value) in in_order(table.get_ref()) {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("seed", _) => {
                let text = scalar(text, "seed", value)?;
                let seed = number(&text, "seed");
                all.seed = seed.map_err(|error| Mistake::of_key(value.span(), "seed", &error))?;
            }
            ("fault", DeValue::Array(list)) => {
                for one in list.iter() {
                    let DeValue::Table(table) = one.get_ref() else {
                        return Err(Mistake::new(one.span(), format_args!("write {EXAMPLE}")));
                    };
                    all.rules.push(rule(text, one.span(), table)?);
                }
            }
            ("fault", _) => {
                let what = "there may be several faults: write [[fault]] with two brackets";
                return Err(Mistake::new(key.span(), what));
            }
            (other, _) => {
                let what = format!("`{other}` is no key of the file: write seed or [[fault]]");
                return Err(Mistake::new(key.span(), what));
            }
        }
    }
    Ok(all)
}

type Entry<'a, 'text> = (
    &'a Spanned<toml::de::DeString<'text>>,
    &'a Spanned<DeValue<'text>>,
);

/// The entries of a table in the order of the text, so that the first mistake is the first in the file.
fn in_order<'a, 'text>(table: &'a DeTable<'text>) -> Vec<Entry<'a, 'text>> {
    let mut entries: Vec<Entry<'_, '_>> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// A value as the word of a rule that it is.
fn scalar(text: &str, key: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Mistake> {
    match value.get_ref() {
        DeValue::String(word) => Ok(word.clone().into_owned()),
        DeValue::Integer(_) | DeValue::Float(_) => {
            let word = text.get(value.span()).unwrap_or_default();
            Ok(word.replace('_', ""))
        }
        _ => {
            let what = format!("{key}: write a number or a text in quotes");
            Err(Mistake::new(value.span(), what))
        }
    }
}

fn rule(text: &str, place: Range<usize>, table: &DeTable<'_>) -> Result<Rule, Mistake> {
    let required = |key: &str| {
        let missing = || {
            Mistake::new(
                place.clone(),
                format_args!("`{key}` is missing: write {EXAMPLE}"),
            )
        };
        let value = table.get(key).ok_or_else(missing)?;
        scalar(text, key, value).map(|word| (word, value.span()))
    };
    let (on, on_place) = required("on")?;
    let point = Point::parse(&on).map_err(|error| Mistake::of_key(on_place, "on", &error))?;
    let (what, do_place) = required("do")?;
    let mut words = Words::of(&what);
    let action = Action::parse(point, &mut words)
        .map_err(|error| Mistake::of_key(do_place.clone(), "do", &error))?;
    if let Some(word) = words.next() {
        let what = format!("do: `{word}` is too much: write conditions as keys of their own");
        return Err(Mistake::new(do_place, what));
    }
    let mut rule = Rule::new(point, action);
    for (key, value) in in_order(table) {
        let name = key.get_ref().as_ref();
        if matches!(name, "on" | "do") {
            continue;
        }
        let word = scalar(text, name, value)?;
        rule.set(name, &word)
            .map_err(|error| Mistake::of_key(value.span(), name, &error))?;
    }
    rule.checked().map_err(|error| Mistake::new(place, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_words_of_rules_as_keys() {
        let text = "seed = 7\n\n[[fault]]\non = \"post_send\"\ndo = \"fail ENOMEM\"\nafter = 1_00\n\
                    opcode = \"rdma_write\"\n\n[[fault]]\non = \"completion\"\ndo = \"late 5ms\"\n\
                    probability = 0.01\nqpn = 0x11\n";
        let line = "seed 7; post_send: fail ENOMEM opcode rdma_write after 100; \
                    completion: late 5ms qpn 17 probability 0.01";
        assert_eq!(read_file("f", text), Ok(line.parse().unwrap()));
        assert_eq!(read_file("f", ""), Ok(Rules::default()));
    }

    #[test]
    fn mistakes_name_line_value_and_what_to_write() {
        let head = "[[fault]]\non = \"reg_mr\"\ndo = \"fail ENOMEM\"\n";
        for (text, expected) in [
            (
                "[[fault]]\non = \"reg_mrs\"\ndo = \"x\"\n",
                "f:2: on: `reg_mrs` is no point of faults: did you mean reg_mr?",
            ),
            (
                "[[fault]]\non = \"reg_mr\"\ndo = \"fial ENOMEM\"\n",
                "f:3: do: `fial` is no fault of a call: write fail ERRNO, slow TIME, \
                 block [TIME], raise EVENT, expire TIME or odp_fault OFFSET",
            ),
            (
                "[[fault]]\non = \"reg_mr\"\n",
                "f:1: `do` is missing: write [[fault]], on = \"post_send\", do = \"fail ENOMEM\", \
                 after = 100",
            ),
            (
                "[[fault]]\non = \"reg_mr\"\ndo = \"fail EIO after 3\"\n",
                "f:3: do: `after` is too much: write conditions as keys of their own",
            ),
            (
                "\nsed = 1\n",
                "f:2: `sed` is no key of the file: write seed or [[fault]]",
            ),
            (
                "[fault]\n",
                "f:1: there may be several faults: write [[fault]] with two brackets",
            ),
            (
                "seed = true\n",
                "f:1: seed: write a number or a text in quotes",
            ),
        ] {
            assert_eq!(read_file("f", text).unwrap_err().to_string(), expected);
        }
        for (line, expected) in [
            (
                "aftr = 3",
                "f:4: aftr: `aftr` is no condition: did you mean after?",
            ),
            (
                "after = -3",
                "f:4: after: `-3` is no number of occasions: write a whole number, as in 100 or 0x64",
            ),
            (
                "opcode = \"send\"",
                "f:1: reg_mr has no opcode, so the rule would never apply: leave out `opcode`",
            ),
        ] {
            let error = read_file("f", &format!("{head}{line}\n")).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert!(
            read_file("f", "fault = [")
                .unwrap_err()
                .to_string()
                .starts_with("f:1: ")
        );
    }
}
