//! Names of hosts and switches, and patterns that match several.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Bytes of a name, or of a pattern, at most.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// A part of a pattern.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// A name has to have these letters here.
    Text(&'a str),
    /// A name may have any letters here, or none.
    Any,
    /// A number from one to another.
    Range(u64, u64),
}

/// The parts of a pattern; `None` where a range is none.
fn parts(pattern: &str) -> Option<Vec<Part<'_>>> {
    let mut found = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '*' => {
                found.push(Part::Any);
                &rest[1..]
            }
            '[' => {
                let (range, after) = rest[1..].split_once(']')?;
                let (from, to) = range.split_once('-')?;
                found.push(Part::Range(from.parse().ok()?, to.parse().ok()?));
                after
            }
            _ => {
                let end = rest.find(['*', '[']).unwrap_or(rest.len());
                found.push(Part::Text(&rest[..end]));
                &rest[end..]
            }
        };
    }
    Some(found)
}

/// Whether `name` matches `pattern`, in which `*` stands for anything, and `[2-5]` for a number of that
/// range: a whole one, unless digits of the pattern stand beside it. A pattern that is longer than any name
/// matches nothing.
pub fn matches(pattern: &str, name: &str) -> bool {
    if pattern.len() > NAME_BYTES_MAX || name.len() > NAME_BYTES_MAX {
        return false;
    }
    let Some(parts) = parts(pattern) else {
        return false;
    };
    // The places in the name up to which the parts so far may reach.
    let mut reached = alloc::vec![false; name.len() + 1];
    reached[0] = true;
    let digit_at = |at: usize| name.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    for (index, part) in parts.iter().enumerate() {
        let mut next = alloc::vec![false; name.len() + 1];
        let before = index.checked_sub(1).map(|before| parts[before]);
        let ends_in_digit = matches!(before, Some(Part::Text(text))
            if text.ends_with(|letter: char| letter.is_ascii_digit()));
        let begins_with_digit = matches!(parts.get(index + 1), Some(Part::Text(text))
            if text.starts_with(|letter: char| letter.is_ascii_digit()));
        for at in (0..=name.len()).filter(|at| reached[*at]) {
            match *part {
                Part::Text(text) if name[at..].starts_with(text) => next[at + text.len()] = true,
                Part::Text(_) => {}
                Part::Any => {
                    let ends = (at..=name.len()).filter(|end| name.is_char_boundary(*end));
                    ends.for_each(|end| next[end] = true);
                }
                Part::Range(from, to) => {
                    let is_whole = at == 0 || !digit_at(at - 1) || ends_in_digit;
                    let digits = (at..name.len()).take_while(|end| digit_at(*end));
                    for end in digits.map(|last| last + 1).filter(|_| is_whole) {
                        let number = name[at..end].parse::<u64>();
                        let is_in = number.is_ok_and(|number| (from..=to).contains(&number));
                        next[end] |= is_in && (!digit_at(end) || begins_with_digit);
                    }
                }
            }
        }
        reached = next;
    }
    reached[name.len()]
}

/// Whether the name contains `*` or a range, and so can match several names.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '['])
}

/// Names in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    list: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Names {
    /// Adds a name; `false` if it is taken.
    pub(crate) fn add(&mut self, name: &str) -> bool {
        if self.numbers.contains_key(name) {
            return false;
        }
        self.numbers.insert(name.to_owned(), self.list.len() as u32);
        self.list.push(name.to_owned());
        true
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The numbers of all that match.
    pub(crate) fn matching(&self, pattern: &str) -> Vec<u32> {
        if !is_pattern(pattern) {
            return self.number(pattern).into_iter().collect();
        }
        let all = self.list.iter().zip(0..);
        all.filter(|(name, _)| matches(pattern, name))
            .map(|(_, number)| number)
            .collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(String::as_str)
    }

    pub(crate) fn into_list(self) -> Vec<String> {
        self.list
    }
}

/// The names of an entry: its own, or with `count` the numbered ones.
pub(crate) fn expand(name: &str, count: Option<u32>) -> Vec<String> {
    count.map_or_else(
        || alloc::vec![name.to_string()],
        |count| (0..count).map(|n| format!("{name}{n}")).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_anything_and_brackets_are_numbers() {
        assert!(
            matches("h*", "h12")
                && matches("*", "x")
                && matches("n*r0", "n10r0")
                && matches("a", "a")
        );
        assert!(
            matches("*a*b*", "xaybz")
                && matches("a*a", "aa")
                && matches("**", "")
                && matches("", "")
        );
        assert!(!matches("a*a", "a") && !matches("*a*b", "ba") && !matches("", "a"));
        assert!(!matches("h*", "leaf0") && !matches("n*r0", "n1r1") && !matches("a", "ab"));
        assert!(matches("h[2-11]", "h11") && matches("n*r[0-1]", "n3r1"));
        assert!(!matches("h[2-11]", "h12") && !matches("h[2-11]", "h") && !matches("h[x]", "h1"));
    }

    #[test]
    fn ranges_stand_behind_digits_and_before_more_text() {
        let names = |pattern: &str, of: &[&str]| {
            let all = (0..20).map(|number| alloc::format!("h{number}"));
            let all = all.chain(of.iter().map(|name| (*name).to_owned()));
            all.filter(|name| matches(pattern, name))
                .collect::<Vec<_>>()
        };
        assert_eq!(names("h1[0-2]", &[]), ["h10", "h11", "h12"]);
        assert_eq!(names("h[1-2]", &["h21"]), ["h1", "h2"]);
        let rails = ["n0r0", "n3r0", "n4r0", "n13r0", "n3r10"];
        assert_eq!(names("n[0-3]r0", &rails), ["n0r0", "n3r0"]);
        assert_eq!(names("n[0-9]r[1-10]", &rails), ["n3r10"]);
        assert_eq!(names("h[1-1]5", &[]), ["h15"]);
        // A range is of whole numbers, whatever a star takes.
        assert!(names("*[1-1]", &[]).iter().all(|name| name == "h1"));
        for no_range in ["h[1-", "h[1]", "h[a-b]", "h]"] {
            assert!(names(no_range, &[]).is_empty(), "{no_range}");
        }
    }

    /// Places that were reached are remembered, so many ranges end as well.
    #[test]
    fn many_ranges_are_matched_in_one_pass() {
        let (pattern, name) = ("[0-9]1".repeat(42), "1".repeat(84));
        assert!(matches(&pattern, &name) && !matches(&pattern, &name[1..]));
    }

    /// With backtracking at every star this would not end in practice.
    #[test]
    fn many_stars_are_matched_in_one_pass() {
        let name = "a".repeat(NAME_BYTES_MAX);
        assert!(!matches(&("*a".repeat(100) + "*b"), &name) && matches(&"*a".repeat(127), &name));
        assert!(
            !matches(&"[0-1]".repeat(50_000), "1"),
            "longer than any name"
        );
    }

    #[test]
    fn names_keep_their_order() {
        let mut names = Names::default();
        assert!(expand("h", Some(3)).iter().all(|name| names.add(name)));
        assert!(!names.add("h1"));
        assert_eq!(names.matching("h*"), [0, 1, 2]);
        assert_eq!(names.matching("h[1-2]"), [1, 2]);
        assert_eq!(names.number("h2"), Some(2));
    }
}
