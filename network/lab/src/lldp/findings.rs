//! Findings about links: settings of PFC and ETS that differ between the two ends after the DCBX exchange.

use super::status::{DcbxEts, DcbxLink, DcbxPort};
use sim::report::{Finding, Severity};

/// Links that one finding names at most.
const NAMED_MAX: usize = 8;

/// Percentages that differ by so little do so by rounding.
const ROUNDING: f64 = 2.0;

pub(super) fn of(links: &[DcbxLink]) -> Vec<Finding> {
    let mut grouped: Vec<(Finding, Vec<String>)> = Vec::new();
    for link in links {
        let found = pfc(link).into_iter().chain(ets(link));
        let name = format!("{} and {}", link.adapter.name, link.switch.name);
        for finding in found {
            match grouped.iter_mut().find(|(other, _)| *other == finding) {
                Some((_, names)) => names.push(name.clone()),
                None => grouped.push((finding, vec![name.clone()])),
            }
        }
    }
    grouped
        .into_iter()
        .map(|(finding, names)| named(finding, &names))
        .collect()
}

/// The finding with the links that it is about.
fn named(finding: Finding, names: &[String]) -> Finding {
    let mut list = names
        .iter()
        .take(NAMED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if names.len() > NAMED_MAX {
        list += &format!("; and {} more links", names.len() - NAMED_MAX);
    }
    Finding {
        seen: format!("{} ({list})", finding.seen),
        ..finding
    }
}

fn list(priorities: Option<&Vec<u8>>) -> String {
    match priorities.map(Vec::as_slice) {
        None | Some([]) => "no priority".to_owned(),
        Some([only]) => format!("priority {only}"),
        Some(several) => {
            let several: Vec<String> = several.iter().map(u8::to_string).collect();
            format!("priorities {}", several.join(", "))
        }
    }
}

/// PFC that both ends operate differently, or that the address of an end has decided.
fn pfc(link: &DcbxLink) -> Option<Finding> {
    let DcbxLink { adapter, switch } = link;
    let both_willing = adapter.willing && switch.willing;
    let settings = |port: &DcbxPort| list(port.local.pfc.as_ref());
    if adapter.operational.pfc != switch.operational.pfc {
        let why = match (adapter.willing, switch.willing) {
            (false, false) => "neither end is willing",
            _ => "a willing end has heard no peer, or several",
        };
        return Some(Finding {
            severity: Severity::Slow,
            seen: format!(
                "PFC differs: the adapter has it for {}, and the switch for {}",
                list(adapter.operational.pfc.as_ref()),
                list(switch.operational.pfc.as_ref())
            ),
            cause: format!(
                "{why}: DCBX leaves both as they are, and the pauses of one end stop nothing"
            ),
            instead:
                "the same priorities in pfc of [nic] and of the switch, or willing = true in [nic]"
                    .into(),
        });
    }
    if both_willing
        && adapter.local.pfc != switch.local.pfc
        && (adapter.takes_pfc || switch.takes_pfc)
    {
        let (wins, has) = if switch.takes_pfc {
            ("adapter", settings(adapter))
        } else {
            ("switch", settings(switch))
        };
        return Some(Finding {
            severity: Severity::Note,
            seen: format!("both ends are willing, and PFC of the {wins}, for {has}, is in force"),
            cause: "of two willing ends the one with the lower MAC address decides".to_owned(),
            instead: "willing = true at one end only".to_owned(),
        });
    }
    None
}

/// ETS with other shares, or other classes that go first, among those that both ends share by ETS.
fn ets(link: &DcbxLink) -> Option<Finding> {
    let DcbxLink { adapter, switch } = link;
    let ([Some(own), Some(other)], Some(_)) = (
        [&adapter.operational.ets, &switch.operational.ets],
        &adapter.remote,
    ) else {
        return None;
    };
    if !differs(own, other) {
        return None;
    }
    Some(Finding {
        severity: Severity::Note,
        seen: format!(
            "ETS differs: {} at the adapter, and {} at the switch",
            shares(own),
            shares(other)
        ),
        cause: "the adapter is not willing, and does not take the switch's recommendation"
            .to_owned(),
        instead: "willing = true in [nic]".to_owned(),
    })
}

/// Percentages of classes that have ETS at both ends, as parts of what these have together.
fn parts(of: &DcbxEts, other: &DcbxEts) -> Vec<f64> {
    let is_shared = |class: &usize| [of, other].iter().all(|ets| ets.algorithm[*class] == "ets");
    let shared: Vec<f64> = (0..8)
        .filter(is_shared)
        .map(|class| f64::from(of.bandwidth[class]))
        .collect();
    let sum = shared.iter().sum::<f64>().max(1.0);
    shared
        .into_iter()
        .map(|percent| percent * 100.0 / sum)
        .collect()
}

fn differs(own: &DcbxEts, other: &DcbxEts) -> bool {
    let mut pairs = parts(own, other).into_iter().zip(parts(other, own));
    pairs.any(|(own, other)| (own - other).abs() > ROUNDING)
}

fn shares(ets: &DcbxEts) -> String {
    let shares = (0..8).filter(|class| ets.bandwidth[*class] > 0);
    shares
        .map(|class| format!("{class}: {} %", ets.bandwidth[class]))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lldp::status::DcbxSettings;

    fn port(name: &str, willing: bool, pfc: &[u8], bandwidth: [u8; 8]) -> DcbxPort {
        let ets = DcbxEts {
            class_of_priority: [0, 1, 2, 3, 4, 5, 6, 7],
            bandwidth,
            algorithm: bandwidth
                .map(|percent| if percent > 0 { "ets" } else { "strict" }.to_owned())
                .to_vec(),
        };
        let settings = DcbxSettings {
            pfc: Some(pfc.to_vec()),
            ets: Some(ets),
        };
        DcbxPort {
            name: name.to_owned(),
            mac: String::new(),
            willing,
            neighbours: 1,
            peer: None,
            local: settings.clone(),
            remote: Some(settings.clone()),
            operational: settings,
            takes_pfc: false,
            takes_ets: false,
        }
    }

    const EQUAL: [u8; 8] = [17, 17, 17, 17, 16, 16, 0, 0];

    #[test]
    fn links_with_the_same_mismatch_are_one_finding_with_both_ends() {
        let links: Vec<DcbxLink> = (0..3)
            .map(|number| DcbxLink {
                adapter: port(&format!("h{number}"), false, &[], EQUAL),
                switch: port(&format!("sw:{number}"), false, &[3], EQUAL),
            })
            .collect();
        let [found] = &of(&links)[..] else {
            panic!("one finding")
        };
        assert!(
            found
                .seen
                .contains("no priority, and the switch for priority 3"),
            "{found:?}"
        );
        assert!(
            found.seen.contains("h0 and sw:0; h1 and sw:1; h2 and sw:2"),
            "{found:?}"
        );
        assert!(found.cause.contains("neither end is willing"), "{found:?}");
    }

    #[test]
    fn two_willing_ends_are_noted_where_their_settings_differ() {
        let mut link = DcbxLink {
            adapter: port("h", true, &[3], EQUAL),
            switch: port("sw:0", true, &[4], EQUAL),
        };
        link.switch.operational = link.adapter.local.clone();
        link.switch.takes_pfc = true;
        let [found] = &of(&[link.clone()])[..] else {
            panic!("one finding")
        };
        assert!(
            found.seen.contains("PFC of the adapter, for priority 3"),
            "{found:?}"
        );
        link.switch.local = link.adapter.local.clone();
        assert!(of(&[link]).is_empty());
    }

    #[test]
    fn shares_differ_only_among_classes_that_both_ends_share() {
        let link = |bandwidth| DcbxLink {
            adapter: port("h", false, &[3], EQUAL),
            switch: port("sw:0", false, &[3], bandwidth),
        };
        assert!(of(&[link([13, 13, 13, 13, 12, 12, 12, 12])]).is_empty());
        let [found] = &of(&[link([10, 10, 10, 50, 10, 10, 0, 0])])[..] else {
            panic!("one finding")
        };
        assert!(
            found.seen.contains("3: 17 %") && found.seen.contains("3: 50 %"),
            "{found:?}"
        );
    }
}
