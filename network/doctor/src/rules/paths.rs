//! Switches that spread packets of one flow over several paths, and adapters that take them in order only.

use super::switch::{One, evidence_of_all};
use super::{
    Adapter, Finding, Found, HostFacts, Marks, SwitchFacts, gbps, is_of_interest, place_of_adapter,
};
use crate::two_paths::TwoPaths;
use vendors::facts::{Evidence, Fact};
use vendors::{Area, HostRemedy, Intent, PathSpread, Remedy};

/// Words of a configuration that show the spread of packets.
const NEEDLES: &[&str] = &[
    "adaptive-routing enable on",
    "adaptive-routing",
    "mode per-packet",
    "mode policy-driven",
    "per_packet_quality",
    "per-packet",
    "hardware profile dlb",
    "ARS_PROFILE",
    "ecmp-dlb",
];

/// Counters that grow where packets overtake each other and the receiver takes them in order (Linux,
/// drivers/infiniband/hw/mlx5/counters.c and bnxt_re/hw_counters.c). Losses make them grow, too.
const COUNTERS: &[&str] = &["out_of_sequence", "packet_seq_err", "oos_drop_count"];

pub(super) fn check(hosts: &[HostFacts], switches: &[SwitchFacts], found: &mut Vec<Finding>) {
    for switch in switches {
        against_file(switch, found);
        not_in_operation(switch, found);
        let Some(shown) = spraying(switch) else {
            continue;
        };
        for host in hosts {
            let own = |adapter: &&Adapter| is_of_interest(host, adapter);
            for adapter in host.adapters.iter().filter(own) {
                in_order(host, adapter, switch, &shown, found);
            }
        }
    }
    for host in hosts {
        let own = |adapter: &&Adapter| is_of_interest(host, adapter);
        for adapter in host.adapters.iter().filter(own) {
            order_of_file(host, adapter, found);
        }
    }
}

/// The line that shows that a switch sprays packets: at a port in operation, else by its configuration.
fn spraying(switch: &SwitchFacts) -> Option<Evidence> {
    if is_off(switch).is_some() {
        return None;
    }
    let ports = switch.shown.ports.iter();
    let mut in_operation = ports.filter_map(|port| port.sprays.as_ref());
    if let Some(shown) = in_operation.find(|sprays| sprays.value) {
        return Some(shown.seen.clone());
    }
    configured(switch).map(|_| evidence_of_all(switch, NEEDLES))
}

/// The first ports at which packets are to be sprayed.
fn configured(switch: &SwitchFacts) -> Option<&Intent> {
    let sprays = |group: &&Intent| {
        group.spread == PathSpread::Packets && group.unknown(Area::Paths).is_none()
    };
    switch.groups.iter().find(sprays)
}

/// The line that shows that adaptive routing of a whole switch is off.
fn is_off(switch: &SwitchFacts) -> Option<&Evidence> {
    let sprays = switch.shown.all.sprays.as_ref()?;
    (!sprays.value).then_some(&sprays.seen)
}

/// Adaptive routing that is configured, and that the switch shows as off.
fn not_in_operation(switch: &SwitchFacts, found: &mut Vec<Finding>) {
    let (Some(off), Some(intent)) = (is_off(switch), configured(switch)) else {
        return;
    };
    let one = One {
        switch,
        intent,
        marks: Marks::default(),
    };
    let case = |spread| TwoPaths {
        spread,
        out_of_order: true,
        gbps: one.gbps(),
    };
    let consequence = case(PathSpread::Flows).cost(&case(PathSpread::Packets));
    let what = "adaptive routing is configured, and not in operation: flows stay on one path";
    let fix = "nv config apply, which reloads switchd; it needs ports of layer 3 in the default VRF, \
               of a speed that the switch supports";
    let mut finding = one.say(
        "shown-paths",
        what.to_owned(),
        off.clone(),
        consequence,
        fix.to_owned(),
    );
    finding.evidence.push(evidence_of_all(switch, NEEDLES));
    found.push(finding);
}

/// Whether an adapter takes packets in any order, where a tool shows it.
pub(crate) fn takes_any_order<'a>(
    host: &'a HostFacts,
    adapter: &Adapter,
) -> Option<&'a Fact<bool>> {
    let is_own = |name: &str, pci: Option<&str>| {
        name == adapter.device || (pci.is_some() && pci == adapter.pci.as_deref())
    };
    let mut cards = host.cards.iter();
    let own =
        cards.find(|card| is_own(&card.name, card.pci.as_deref()) && card.out_of_order.is_some());
    own.and_then(|card| card.out_of_order.as_ref())
}

fn in_order(
    host: &HostFacts,
    adapter: &Adapter,
    switch: &SwitchFacts,
    shown: &Evidence,
    found: &mut Vec<Finding>,
) {
    // What the adapter does is unknown without its register.
    let Some(order) = takes_any_order(host, adapter).filter(|order| !order.value) else {
        return;
    };
    let own = Found {
        rule: "spray-order",
        host,
        adapter,
    };
    let now = TwoPaths {
        spread: PathSpread::Packets,
        out_of_order: false,
        gbps: gbps(adapter),
    };
    let fixed = TwoPaths {
        out_of_order: true,
        ..now
    };
    let counted: Vec<(&str, &Evidence)> = COUNTERS
        .iter()
        .filter_map(|name| Some((*name, &adapter.counted.get(*name)?.1.seen)))
        .collect();
    let names: Vec<&str> = counted.iter().map(|(name, _)| *name).collect();
    let grown = match names.is_empty() {
        true => String::new(),
        false => format!("; {} show it", names.join(" and ")),
    };
    let what = format!(
        "{} sends packets of one flow over several paths, and the adapter takes them in order only{grown}",
        switch.file
    );
    let fix = format!(
        "{}\nor, at {}: {}",
        own.fix(HostRemedy::AnyOrder(true)),
        switch.file,
        switch.dialect.remedy(&Remedy::SpreadByFlow)
    );
    let seen: Vec<&Evidence> = [shown, &order.seen]
        .into_iter()
        .chain(counted.iter().map(|(_, seen)| *seen))
        .collect();
    found.push(own.say(what, &seen, now.cost(&fixed), fix));
}

/// The spread of a switch against that of the fabric file.
fn against_file(switch: &SwitchFacts, found: &mut Vec<Finding>) {
    let Some(planned) = switch
        .planned
        .as_ref()
        .filter(|planned| !planned.links.is_empty())
    else {
        return;
    };
    let Some(first) = switch.groups.first() else {
        return;
    };
    let is_unknown = |group: &Intent| group.unknown(Area::Paths).is_some();
    if switch.groups.iter().any(is_unknown) {
        return;
    }
    let sprays = |group: &&Intent| group.spread != PathSpread::Flows;
    let group = switch.groups.iter().find(sprays).unwrap_or(first);
    if group.spread == planned.spread {
        return;
    }
    let one = One {
        switch,
        intent: group,
        marks: planned.marks,
    };
    let what = format!(
        "differs from the fabric file: packets are spread {} over paths of equal cost, and planned is {}",
        group.spread, planned.spread
    );
    let case = |spread| TwoPaths {
        spread,
        out_of_order: planned.out_of_order,
        gbps: one.gbps(),
    };
    let consequence = case(group.spread).cost(&case(planned.spread));
    let fix = match planned.spread {
        PathSpread::Flows => switch.dialect.remedy(&Remedy::SpreadByFlow),
        _ => format!(
            "rockery plan FILE --for {}={}@VERSION writes it",
            planned.name,
            switch.dialect.name()
        ),
    };
    found.push(one.say(
        "fabric-paths",
        what,
        evidence_of_all(switch, NEEDLES),
        consequence,
        fix,
    ));
}

/// Whether packets are taken in any order, against the fabric file.
fn order_of_file(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let Some(planned) = &host.planned else { return };
    let Some(order) =
        takes_any_order(host, adapter).filter(|own| own.value != planned.out_of_order)
    else {
        return;
    };
    let place = place_of_adapter(host, adapter);
    let known = |finding: &Finding| finding.rule == "spray-order" && finding.place == place;
    if found.iter().any(known) {
        return;
    }
    let own = Found {
        rule: "host-order",
        host,
        adapter,
    };
    let case = |out_of_order| TwoPaths {
        spread: planned.switch.spread,
        out_of_order,
        gbps: gbps(adapter),
    };
    let words = |any: bool| if any { "in any order" } else { "in order only" };
    let what = format!(
        "differs from the fabric file: packets are taken {}, and planned is {}",
        words(order.value),
        words(planned.out_of_order)
    );
    let consequence = case(order.value).cost(&case(planned.out_of_order));
    let fix = own.fix(HostRemedy::AnyOrder(planned.out_of_order));
    found.push(own.say(what, &[&order.seen], consequence, fix));
}
