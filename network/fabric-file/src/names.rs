//! Names of hosts and switches, and patterns that match several.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Bytes of a name, or of a pattern, at most.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Whether `name` matches `pattern`, in which `*` stands for anything, and `[2-5]` at the end for a range of
/// numbers. A pattern that is longer than any name matches nothing.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    if pattern.len() > NAME_BYTES_MAX {
        return false;
    }
    if let Some((stem, range)) = pattern
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit_once('['))
    {
        let Some((from, to)) = range.split_once('-') else {
            return false;
        };
        let (Ok(from), Ok(to)) = (from.parse::<u64>(), to.parse::<u64>()) else {
            return false;
        };
        let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let numbered = |at: usize| {
            let (head, number) = name.split_at(at);
            number
                .parse::<u64>()
                .is_ok_and(|number| (from..=to).contains(&number))
                && matches(stem, head)
        };
        let tail = name.len() - name.chars().rev().take_while(char::is_ascii_digit).count();
        return !digits.is_empty() && numbered(tail);
    }
    // Text between stars is matched at its first occurrence: a later one leaves less for the rest.
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|head| name.strip_prefix(head)) else {
        return false;
    };
    let Some(tail) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(tail)
}

/// Whether the name contains `*` or a range, and so can match several names.
pub(crate) fn is_pattern(name: &str) -> bool {
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
