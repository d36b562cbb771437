//! Findings that differ in their place alone are one finding with a list of places.

use std::collections::BTreeSet;

use super::Finding;

/// Places that are named; of more the number.
const NAMED_MAX: usize = 4;

/// Findings of one kind at most: the first show what the others would.
const SAME_MAX: usize = 4;

/// The first names, and how many more there are.
pub(super) fn listed(names: &[String]) -> String {
    let first = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    match names.len().checked_sub(NAMED_MAX) {
        Some(more @ 1..) => format!("{} and {more} more", first.join(", ")),
        _ => first.join(", "),
    }
}

/// A text without the name that it begins with.
pub(super) fn without_place<'a>(text: &'a str, place: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(place)?;
    rest.starts_with([':', ' ']).then_some(rest)
}

/// A text that begins with one of the names, taken apart.
fn apart<'a>(text: &'a str, names: &BTreeSet<&str>) -> (Option<&'a str>, &'a str) {
    let end = text.find(": ").unwrap_or(0);
    match names.contains(&text[..end]) {
        true => (Some(&text[..end]), &text[end..]),
        false => (None, text),
    }
}

/// Makes one finding of those that begin with names of different places and say the same of each; what is
/// beyond the most of one kind is counted.
pub(super) fn grouped(found: Vec<Finding>, names: &BTreeSet<&str>) -> Vec<Finding> {
    let mut groups: Vec<(Finding, Vec<String>)> = Vec::new();
    for finding in found {
        let (place, rest) = apart(&finding.seen, names);
        let Some(place) = place else {
            groups.push((finding, Vec::new()));
            continue;
        };
        let is_alike = |(known, _): &&mut (Finding, Vec<String>)| {
            apart(&known.seen, names).1 == rest
                && known.severity == finding.severity
                && apart(&known.cause, names).1 == apart(&finding.cause, names).1
                && known.instead == finding.instead
        };
        let place = place.to_owned();
        match groups.iter_mut().find(is_alike) {
            Some((_, places)) => places.push(place),
            None => groups.push((finding, vec![place])),
        }
    }
    let more = groups.len().saturating_sub(SAME_MAX);
    groups.truncate(SAME_MAX);
    let mut found: Vec<Finding> = groups
        .into_iter()
        .map(|(finding, places)| match places.as_slice() {
            [] | [_] => finding,
            several => {
                let all = listed(several);
                let of_all = |text: &str| match apart(text, names) {
                    (Some(_), rest) => format!("{all}{rest}"),
                    (None, text) => text.to_owned(),
                };
                Finding {
                    seen: of_all(&finding.seen),
                    cause: of_all(&finding.cause),
                    ..finding
                }
            }
        })
        .collect();
    if let Some(last) = found.last_mut().filter(|_| more > 0) {
        last.seen += &format!("; and {more} more findings of this kind");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    fn finding(seen: &str, cause: &str) -> Finding {
        Finding {
            severity: Severity::Slow,
            seen: seen.to_owned(),
            cause: cause.to_owned(),
            instead: "x".to_owned(),
        }
    }

    fn seen(found: &[Finding]) -> Vec<&str> {
        found.iter().map(|finding| finding.seen.as_str()).collect()
    }

    #[test]
    fn places_are_listed_where_all_else_is_equal() {
        let names = BTreeSet::from(["edge0", "edge1", "edge2", "core"]);
        let found = grouped(
            vec![
                finding("edge0: late", "edge0: no marks"),
                finding("edge1: late", "edge1: no marks"),
                finding("core: late", "core: other marks"),
                finding("edge2: late", "edge2: no marks"),
                finding("host: late", "no marks"),
                finding("host: late", "no marks"),
            ],
            &names,
        );
        assert_eq!(
            seen(&found),
            [
                "edge0, edge1, edge2: late",
                "core: late",
                "host: late",
                "host: late"
            ]
        );
        assert_eq!(found[0].cause, "edge0, edge1, edge2: no marks");
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let names = (0..9)
            .map(|number| format!("s{number}"))
            .collect::<Vec<_>>();
        let names = names.iter().map(String::as_str).collect::<BTreeSet<_>>();
        let same = names
            .iter()
            .map(|name| finding(&format!("{name}: late"), "a"));
        assert_eq!(
            seen(&grouped(same.collect(), &names)),
            ["s0, s1, s2, s3 and 5 more: late"]
        );
        let others = (0..6).map(|number| finding(&format!("flow {number}"), "a"));
        let found = grouped(others.collect(), &names);
        assert_eq!(found.len(), SAME_MAX);
        assert_eq!(found[3].seen, "flow 3; and 2 more findings of this kind");
    }
}
