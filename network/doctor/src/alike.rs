//! Findings that differ in their place alone, as one with all places: for pages that people read.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;

/// Places that are named; of more the number.
const PLACES_MAX: usize = 8;

/// Lines of evidence of one finding at most: the first show what the others would.
const SEEN_MAX: usize = 3;

/// Makes one finding of those that say the same of several places: all places, the evidence of each, and each
/// fix once.
pub fn alike(found: &[Finding]) -> Vec<Finding> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    let mut known: BTreeMap<(&str, &str, String), usize> = BTreeMap::new();
    for finding in found {
        let says = (
            finding.rule,
            finding.what.as_str(),
            finding.consequence.to_string(),
        );
        let index = *known.entry(says).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups.iter().filter_map(|group| merged(group)).collect()
}

fn merged(group: &[&Finding]) -> Option<Finding> {
    let mut all = (*group.first()?).clone();
    if group.len() == 1 {
        return Some(all);
    }
    let lines = group.iter().flat_map(|finding| finding.fix.lines());
    let fixes: Vec<&str> = each_once(lines).collect();
    let places = group.iter().map(|finding| finding.place.as_str());
    let mut places: Vec<&str> = each_once(places).collect();
    all.evidence.clear();
    for seen in group.iter().flat_map(|finding| &finding.evidence) {
        if all.evidence.len() == SEEN_MAX {
            break;
        }
        if !all.evidence.contains(seen) {
            all.evidence.push(seen.clone());
        }
    }
    let more = places.len().saturating_sub(PLACES_MAX);
    places.truncate(PLACES_MAX);
    all.place = places.join("; ");
    if more > 0 {
        all.place += &format!("; and {more} more");
    }
    all.fix = fixes.join("\n");
    Some(all)
}

/// The first of equal texts, in their order.
fn each_once<'a>(texts: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    let mut known = BTreeSet::new();
    texts.filter(move |text| known.insert(*text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Consequence;
    use vendors::facts::Evidence;

    fn finding(place: &str, what: &str, fix: &str) -> Finding {
        let seen = Evidence {
            file: "host".to_owned(),
            line: place.len(),
            text: place.to_owned(),
        };
        Finding::new(
            "pfc-off",
            place.to_owned(),
            what.to_owned(),
            vec![seen],
            Consequence::NothingArrives,
            fix.to_owned(),
        )
    }

    #[test]
    fn places_evidence_and_fixes_of_equal_findings_are_lists() {
        let found = alike(&[
            finding("a, eth0", "PFC is off", "dcb eth0"),
            finding("a, eth0", "no marks", "mark"),
            finding("a, eth1", "PFC is off", "dcb eth1"),
            finding("a, eth22", "PFC is off", "dcb eth1"),
        ]);
        assert_eq!(found.len(), 2, "{found:#?}");
        assert_eq!(found[0].place, "a, eth0; a, eth1; a, eth22");
        assert_eq!(found[0].fix, "dcb eth0\ndcb eth1");
        let lines: Vec<usize> = found[0].evidence.iter().map(|seen| seen.line).collect();
        assert_eq!(lines, [7, 7, 8]);
        assert_eq!(found[1].place, "a, eth0");
    }

    #[test]
    fn of_many_places_the_rest_is_counted() {
        let all: Vec<Finding> = (0..20)
            .map(|port| finding(&format!("p{port}"), "late", "x"))
            .collect();
        let found = alike(&all);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].place.ends_with("p7; and 12 more"),
            "{}",
            found[0].place
        );
    }
}
