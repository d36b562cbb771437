//! Rules about the ports of an InfiniBand subnet, from the outputs of its tools.

use std::collections::{BTreeMap, BTreeSet};

use infiniband::LinkSpeed;
use vendors::facts::{Evidence, Fact};
use vendors::infiniband::{ENGINES, PortState, SubnetFacts, SubnetPort};

use crate::{Consequence, Finding};

/// Lines that one finding shows at most.
const EVIDENCE_MAX: usize = 8;

/// Counters that are errors, with their causes and what to do.
const ERRORS: [(&str, &str, &str); 9] = [
    (
        "SymbolErrorCounter",
        "bits arrive wrong",
        "Clean or replace the cable or the transceiver, at this end first.",
    ),
    (
        "LinkErrorRecoveryCounter",
        "the link trains again while it is in use",
        "Clean or replace the cable or the transceiver.",
    ),
    (
        "LinkDownedCounter",
        "the link went down",
        "If no node was restarted, replace the cable or the transceiver.",
    ),
    (
        "PortRcvErrors",
        "packets arrive damaged",
        "Look at SymbolErrorCounter of this port and of the ports before it on the path.",
    ),
    (
        "PortXmitDiscards",
        "packets are dropped because they waited too long, or because the port was down",
        "Look for PortXmitWait on the path behind this port: the receiver is too slow, or the link is.",
    ),
    (
        "LocalLinkIntegrityErrors",
        "the link has more errors than its threshold",
        "Clean or replace the cable or the transceiver.",
    ),
    (
        "ExcessiveBufferOverrunErrors",
        "the sender does not obey flow control",
        "Update the firmware of the port at the other end.",
    ),
    (
        "PortRcvSwitchRelayErrors",
        "packets have no route through the switch, or would leave where they came from",
        "Look at the routing tables: ibroute LID, and the log of the subnet manager.",
    ),
    (
        "VL15Dropped",
        "packets of management are dropped",
        "Let the subnet manager send fewer at once: max_wire_smps of opensm.conf.",
    ),
];

/// Finds the faults of the ports of one file.
pub fn check_subnet(facts: &SubnetFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    manager(facts, &mut found);
    for port in &facts.ports {
        could_be(port, &mut found);
        errors(port, &mut found);
        congestion(port, &mut found);
    }
    unlike_others(facts, &mut found);
    unbalanced(facts, &mut found);
    engines(facts, &mut found);
    found
}

/// Routing engines that no OpenSM has: it then routes with the next one, or with Min Hop.
fn engines(facts: &SubnetFacts, found: &mut Vec<Finding>) {
    let known = |name: &str| ENGINES.contains(&name);
    for engine in facts.engines.iter().filter(|engine| !known(&engine.value)) {
        let name = &engine.value;
        let place = format!("{}, OpenSM", facts.file);
        let what = format!(
            "no routing engine is called \"{name}\": OpenSM takes the next one, or Min Hop"
        );
        let fix = match vendors::text::nearest(name, ENGINES.into_iter()) {
            Some(near) => format!("routing_engine {near}"),
            None => {
                "routing_engine ftree,updn; adaptive routing of NVIDIA's OpenSM: ar_ftree,ar_updn"
                    .to_owned()
            }
        };
        let evidence = vec![engine.seen.clone()];
        let why = "routing tables of subnets are not simulated";
        found.push(finding(
            "ib-routing-engine",
            place,
            what,
            evidence,
            why,
            &fix,
        ));
    }
}

fn finding(
    rule: &'static str,
    place: String,
    what: String,
    evidence: Vec<Evidence>,
    why: &'static str,
    fix: &str,
) -> Finding {
    let fix = fix.to_owned();
    Finding::new(
        rule,
        place,
        what,
        evidence,
        Consequence::NotSimulated(why),
        fix,
    )
}

/// Ports that wait for a subnet manager.
fn manager(facts: &SubnetFacts, found: &mut Vec<Finding>) {
    let in_state = |wanted: PortState| {
        let ports = facts.ports.iter();
        ports.filter(move |port| {
            port.state
                .as_ref()
                .is_some_and(|state| state.value == wanted)
        })
    };
    let waiting: Vec<&SubnetPort> = in_state(PortState::Initialize).collect();
    let managed = in_state(PortState::Active).next().is_some();
    let lids: Vec<&Fact<u16>> = facts
        .ports
        .iter()
        .filter_map(|port| port.lid.as_ref())
        .collect();
    let without_lids = !lids.is_empty() && lids.iter().all(|lid| lid.value == 0);
    if !managed && (!waiting.is_empty() || without_lids) {
        let mut evidence: Vec<Evidence> = waiting
            .iter()
            .filter_map(|port| Some(port.state.as_ref()?.seen.clone()))
            .collect();
        if evidence.is_empty() {
            evidence = lids.iter().map(|lid| lid.seen.clone()).collect();
        }
        evidence.truncate(EVIDENCE_MAX);
        let what = match waiting.len() {
            0 => "no port has a LID: no subnet manager has configured the subnet".to_owned(),
            count => format!("no port is active, and {count} wait for a subnet manager"),
        };
        let place = facts.file.clone();
        let why = "no packet but those of management passes";
        let fix = "Start a subnet manager in one host (systemctl start opensm), or on a switch that has \
        one;\n\
                   then sminfo names it.";
        found.push(finding("ib-no-manager", place, what, evidence, why, fix));
        return;
    }
    for port in waiting {
        let evidence = port.state.iter().map(|state| state.seen.clone()).collect();
        let what = "stays in state Init while other ports are active".to_owned();
        let why = "no packet but those of management passes this port";
        let fix = "Look into the log of the subnet manager for this port; opensm configures a port again \
        when \
                   the cable is plugged in\nagain, or by ibportstate LID PORT reset.";
        found.push(finding("ib-init", port.title(), what, evidence, why, fix));
    }
}

/// Links below what both ends can do, in the words of the tool.
fn could_be(port: &SubnetPort, found: &mut Vec<Finding>) {
    for remark in &port.could_be {
        let is_width = remark.value.ends_with(['X', 'x']);
        let rule = if is_width { "ib-width" } else { "ib-speed" };
        let trained = match &port.speed {
            Some(speed) => format!("the link runs at {}", speed.value),
            None => "the link is slower".to_owned(),
        };
        let what = format!("{trained}, and both ends can do {}", remark.value);
        found.push(slow(rule, port.title(), what, vec![remark.seen.clone()]));
    }
}

fn slow(rule: &'static str, place: String, what: String, evidence: Vec<Evidence>) -> Finding {
    let (why, fix) = match rule {
        "ib-width" => (
            "lanes that are not in use take no traffic",
            "Plug the cable in again, then replace it: a lane is broken. LinkWidthEnabled of both ends \
            allows \
             the width\n(smpquery portinfo LID PORT).",
        ),
        _ => (
            "the link has less than its rate",
            "Replace the cable by one that is made for the speed. LinkSpeedEnabled of both ends allows the \
            speed\n\
             (smpquery portinfo LID PORT).",
        ),
    };
    finding(rule, place, what, evidence, why, fix)
}

fn errors(port: &SubnetPort, found: &mut Vec<Finding>) {
    for (name, meaning, fix) in ERRORS {
        let Some(count) = port.counters.get(name).filter(|count| count.value > 0) else {
            continue;
        };
        // Counters of all ports repeat those of single ones.
        if port.port.is_none() {
            continue;
        }
        let what = format!("{name} is {}: {meaning}", count.value);
        let why = "lost packets are sent again after a timeout";
        let evidence = vec![count.seen.clone()];
        found.push(finding("ib-errors", port.title(), what, evidence, why, fix));
    }
}

/// A port that waits for credits for longer than it sends.
fn congestion(port: &SubnetPort, found: &mut Vec<Finding>) {
    let count = |name: &str| port.counters.get(name);
    let Some(wait) = count("PortXmitWait").filter(|_| port.port.is_some()) else {
        return;
    };
    let data = count("PortXmitData").map_or(0, |data| data.value);
    if wait.value <= data {
        return;
    }
    let what = format!(
        "PortXmitWait is {} and PortXmitData {data}: the port waits for credits more than it sends",
        wait.value
    );
    let data = count("PortXmitData").map(|data| data.seen.clone());
    let mut evidence: Vec<Evidence> = std::iter::once(wait.seen.clone()).chain(data).collect();
    evidence.dedup();
    let why = "traffic through this port is slowed down, and so is what waits behind it";
    let fix = "Follow the path to the port that does not wait: the receiver behind it is too slow, or \
    several \
               senders share its link.";
    found.push(finding(
        "ib-congestion",
        port.title(),
        what,
        evidence,
        why,
        fix,
    ));
}

/// The kind of a link: between switches, or of a host. `None` where the file does not say.
fn is_between_switches(facts: &SubnetFacts, port: &SubnetPort) -> Option<bool> {
    let (peer, _) = port.peer.as_ref()?;
    let peer = facts.ports.iter().find(|other| other.node == *peer)?;
    Some(port.is_switch? && peer.is_switch?)
}

/// Links that are slower or narrower than most links of their kind, where the tool has not said it itself.
fn unlike_others(facts: &SubnetFacts, found: &mut Vec<Finding>) {
    for wanted in [false, true] {
        let of_kind: Vec<(&SubnetPort, &Fact<LinkSpeed>)> = facts
            .ports
            .iter()
            .filter(|port| is_between_switches(facts, port) == Some(wanted))
            .filter_map(|port| Some((port, port.speed.as_ref()?)))
            .collect();
        let Some(usual) = most(of_kind.iter().map(|(_, speed)| speed.value)) else {
            continue;
        };
        let kind = if wanted {
            "between switches"
        } else {
            "of hosts"
        };
        let mut lines = BTreeSet::new();
        for (port, speed) in of_kind {
            let is_slower = speed.value.rate().bps() < usual.rate().bps();
            // Both ends of a link may be in one line.
            if !is_slower || !port.could_be.is_empty() || !lines.insert(ends(port)) {
                continue;
            }
            let is_narrow = speed.value.width.lanes() < usual.width.lanes();
            let rule = if is_narrow { "ib-width" } else { "ib-speed" };
            let what = format!(
                "the link runs at {}, and most links {kind} at {usual}",
                speed.value
            );
            found.push(slow(rule, port.title(), what, vec![speed.seen.clone()]));
        }
    }
}

/// Both ends of a link, the same from either.
fn ends(port: &SubnetPort) -> BTreeSet<(&str, Option<u8>)> {
    let peer = port
        .peer
        .iter()
        .map(|(node, port)| (node.as_str(), Some(*port)));
    peer.chain([(port.node.as_str(), port.port)]).collect()
}

/// The value that more than half have.
fn most(values: impl Iterator<Item = LinkSpeed>) -> Option<LinkSpeed> {
    let values: Vec<LinkSpeed> = values.collect();
    let is_usual = |value: &&LinkSpeed| {
        let same = values.iter().filter(|other| other == value).count();
        2 * same > values.len()
    };
    values.iter().find(is_usual).copied()
}

/// Switches with hosts whose links to other switches have less together than those of most such switches.
fn unbalanced(facts: &SubnetFacts, found: &mut Vec<Finding>) {
    // A slow link has a finding of its own, and counts as a whole one here.
    let between = facts.ports.iter();
    let between = between.filter(|port| is_between_switches(facts, port) == Some(true));
    let usual = most(between.filter_map(|port| Some(port.speed.as_ref()?.value)));
    let whole = usual.map_or(0, |usual| usual.rate().bps());
    let mut hosts: BTreeSet<&str> = BTreeSet::new();
    let mut up: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
    let mut seen: BTreeMap<&str, Vec<Evidence>> = BTreeMap::new();
    for port in facts
        .ports
        .iter()
        .filter(|port| port.is_switch == Some(true))
    {
        let name = port.node.as_str();
        match is_between_switches(facts, port) {
            Some(true) => {
                let own = port
                    .speed
                    .as_ref()
                    .map_or(0, |speed| speed.value.rate().bps());
                let rate = own.max(whole);
                let (sum, links) = up.entry(name).or_default();
                (*sum, *links) = (*sum + rate, *links + 1);
                let lines = port.speed.iter().map(|speed| speed.seen.clone());
                seen.entry(name).or_default().extend(lines);
            }
            Some(false) => {
                hosts.insert(name);
            }
            None => {}
        }
    }
    let leaves: Vec<(&str, (u64, u32))> = hosts
        .iter()
        .filter_map(|name| Some((*name, *up.get(name)?)))
        .collect();
    let usual = leaves.iter().find(|(_, own)| {
        let same = leaves.iter().filter(|(_, other)| other.0 == own.0).count();
        2 * same > leaves.len()
    });
    let Some((_, usual)) = usual.copied() else {
        return;
    };
    for (name, (rate, links)) in leaves.into_iter().filter(|(_, own)| own.0 < usual.0) {
        let gbps = |bps: u64| bps as f64 / 1e9;
        let what = format!(
            "links to other switches: {links}, of {:.0} Gb/s together; those of most switches with hosts: \
            {}, \
             of {:.0} Gb/s",
            gbps(rate),
            usual.1,
            gbps(usual.0)
        );
        let mut evidence = seen.remove(name).unwrap_or_default();
        evidence.truncate(EVIDENCE_MAX);
        let why =
            "hosts of this switch share less bandwidth, and routes of a fat tree are not balanced";
        let fix = "Look for a cable that is missing or slow between this switch and the switches above it.";
        let place = name.to_owned();
        found.push(finding("ib-unbalanced", place, what, evidence, why, fix));
    }
}
