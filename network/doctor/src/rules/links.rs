//! Both ends of a link between two switches that the fabric file links.

use super::switch::One;
use super::{Finding, SwitchFacts};
use crate::marks::Marks;
use vendors::text::{classes, ranges};
use vendors::{Area, Intent};

/// Faults of a switch alone that explain why ends of a link differ.
const KNOWN: &[&str] = &["switch-pfc-off", "fabric-pfc", "switch-pfc-receive"];

pub(super) fn check(switches: &[SwitchFacts], found: &mut Vec<Finding>) {
    for (index, one) in switches.iter().enumerate() {
        let Some(planned) = &one.planned else {
            continue;
        };
        for link in &planned.links {
            let is_peer = |other: &&SwitchFacts| {
                other
                    .planned
                    .as_ref()
                    .is_some_and(|planned| planned.name == link.switch)
            };
            // Each pair once, however many links there are between both.
            let Some(other) = switches[index + 1..].iter().find(is_peer) else {
                continue;
            };
            let before = found
                .iter()
                .any(|finding| finding.rule == "link-pfc" && names(finding, one, other));
            if !before {
                ends(
                    LinkEnd {
                        switch: one,
                        intent: one.group(link.own_port),
                    },
                    LinkEnd {
                        switch: other,
                        intent: other.group(link.port),
                    },
                    found,
                );
            }
        }
    }
}

fn names(finding: &Finding, one: &SwitchFacts, other: &SwitchFacts) -> bool {
    finding.place.starts_with(&one.file) && finding.what.contains(&other.file)
}

fn is_known(switch: &SwitchFacts, found: &[Finding]) -> bool {
    found
        .iter()
        .any(|finding| KNOWN.contains(&finding.rule) && finding.place.starts_with(&switch.file))
}

/// One end of a link.
struct LinkEnd<'a> {
    switch: &'a SwitchFacts,
    /// The configuration of the port, if the switch has one for it.
    intent: Option<&'a Intent>,
}

fn ends(one: LinkEnd<'_>, other: LinkEnd<'_>, found: &mut Vec<Finding>) {
    let (Some(own), Some(peer)) = (one.intent, other.intent) else {
        return;
    };
    if is_known(one.switch, found) || is_known(other.switch, found) {
        return;
    }
    let place = One {
        switch: one.switch,
        intent: own,
        marks: one
            .switch
            .planned
            .as_ref()
            .map_or_else(Marks::default, |planned| planned.marks),
    };
    if own.unknown(Area::Pfc).or(peer.unknown(Area::Pfc)).is_some() {
        return;
    }
    let unheard = own.pfc_send & !peer.pfc_obey | peer.pfc_send & !own.pfc_obey;
    if unheard != 0 {
        let list = ranges(classes(unheard));
        let what = format!(
            "priority {list} is paused at one end only of the link with {}",
            other.switch.file
        );
        let seen = place.evidence(&["pfc_enable", "priority-flow-control", "pfc", "pause"]);
        // The end that does not stop is a host here.
        let consequence = place.other(|case| case.senders.pfc = 0);
        let fix = format!(
            "PFC for priority {list} at both ends:\n{}",
            place.fix_pfc(unheard.trailing_zeros() as u8)
        );
        found.push(place.say("link-pfc", what, seen, consequence, fix));
    }
}
