//! Both ends of a link: a host and the switch that it is attached to.

use super::switch::One;
use super::{
    Adapter, Consequence, Finding, Found, HostFacts, Marks, SwitchFacts, cost, gbps,
    is_of_interest, usual,
};
use crate::cost_simulation::Case;
use vendors::switch_facts::ShownPort;
use vendors::text::{classes, ranges};
use vendors::{Area, HostRemedy, Intent};

pub(super) fn check(
    hosts: &[HostFacts],
    switches: &[SwitchFacts],
    asked: Marks,
    found: &mut Vec<Finding>,
) {
    for host in hosts {
        for adapter in host
            .adapters
            .iter()
            .filter(|adapter| is_of_interest(host, adapter))
        {
            for switch in switches.iter().filter(|switch| may_be_linked(host, switch)) {
                // Without a fabric file it is not known which port a host is attached to: most ports are
                // alike.
                let port = port_of(host, switch);
                shown_pfc(host, adapter, switch, port, found);
                let most = || switch.groups.iter().max_by_key(|group| group.ports.len());
                let Some(intent) = port.map_or_else(most, |port| switch.group(port)) else {
                    continue;
                };
                let is_unknown = [Area::Classes, Area::Pfc]
                    .iter()
                    .any(|area| intent.unknown(*area).is_some());
                let marks = asked.or(Marks::of_adapter(host, adapter));
                if let Some(dscp) = marks.dscp.filter(|_| !is_unknown) {
                    pair(host, adapter, switch, intent, dscp, found);
                    priority(host, adapter, switch, intent, dscp, found);
                }
                mtu(host, adapter, switch, intent, found);
            }
        }
    }
}

/// The network of an adapter behind a switch, with the marks of its data.
struct Through<'a> {
    switch: &'a SwitchFacts,
    intent: &'a Intent,
    marks: Marks,
}

impl Through<'_> {
    /// The cost of a fault, which `change` makes.
    fn cost(&self, adapter: &Adapter, change: impl Fn(&mut Case)) -> Consequence {
        let Self {
            switch,
            intent,
            marks,
        } = *self;
        let one = One {
            switch,
            intent,
            marks,
        };
        one.other_at(gbps(adapter), change)
    }
}

/// Whether a link between both is possible: a fabric file may exclude it.
fn may_be_linked(host: &HostFacts, switch: &SwitchFacts) -> bool {
    match (&host.planned, &switch.planned) {
        (Some(host), Some(planned)) => host.links.iter().any(|link| link.switch == planned.name),
        _ => true,
    }
}

/// The switch's port of the first link that a fabric file has between both.
fn port_of(host: &HostFacts, switch: &SwitchFacts) -> Option<u16> {
    let (host, planned) = (host.planned.as_ref()?, switch.planned.as_ref()?);
    host.links
        .iter()
        .find(|link| link.switch == planned.name)
        .map(|link| link.port)
}

/// Data in a priority of the adapter that is not the one that the switch pauses for it.
fn priority(
    host: &HostFacts,
    adapter: &Adapter,
    switch: &SwitchFacts,
    intent: &Intent,
    dscp: u8,
    found: &mut Vec<Finding>,
) {
    let own = Found {
        rule: "pair-map",
        host,
        adapter,
    };
    let (Some(pfc), Some(map)) = (&adapter.pfc, &adapter.dscp) else {
        return;
    };
    let class = intent.class_of_dscp(dscp);
    let priority = map.value[usize::from(dscp & 63)];
    // PFC for neither or one of both is a fault of its own.
    let both = 1 << class | 1_u8 << (priority & 7);
    if priority == class || !intent.lossless(class) || pfc.value & both != both {
        return;
    }
    let place = own.location();
    if found
        .iter()
        .any(|finding| finding.rule == "host-map" && finding.place == place)
    {
        return;
    }
    let network = Through {
        switch,
        intent,
        marks: Marks::of_data(dscp),
    };
    let consequence = network.cost(adapter, |case| {
        // Only the priority of data has PFC in the simulated network.
        case.senders.priority = case.senders.cnp_priority;
    });
    let what = format!(
        "DSCP {dscp} is in priority {priority} of the adapter, and {} pauses priority {class} for it",
        switch.file
    );
    let fix = own.fix(HostRemedy::MapDscp {
        dscp,
        priority: class,
    });
    found.push(own.say(what, &[&map.seen], consequence, fix));
}

/// A priority that the host pauses and obeys, and that no port of the switch has PFC for.
fn shown_pfc(
    host: &HostFacts,
    adapter: &Adapter,
    switch: &SwitchFacts,
    port: Option<u16>,
    found: &mut Vec<Finding>,
) {
    let Some(pfc) = adapter.pfc.as_ref().filter(|pfc| pfc.value != 0) else {
        return;
    };
    let name = port.and_then(|number| switch.port_name(number));
    let is_own = |port: &&ShownPort| name.is_some_and(|name| port.is_called(name));
    let own: Vec<_> = switch
        .shown
        .each()
        .filter(is_own)
        .filter_map(|port| port.pfc.as_ref())
        .collect();
    let all = || {
        switch
            .shown
            .each()
            .filter_map(|port| port.pfc.as_ref())
            .collect()
    };
    let ports: Vec<_> = if own.is_empty() { all() } else { own };
    let Some(first) = ports.first() else { return };
    if ports.iter().any(|port| port.value & pfc.value != 0) {
        return;
    }
    let list = ranges(classes(pfc.value));
    let what = format!(
        "PFC of the adapter is for priority {list}, and no port that {} shows has PFC for it",
        switch.file
    );
    let fixed = usual(adapter, Marks::of_adapter(host, adapter));
    let mut now = fixed.clone();
    (now.switch.pfc_send, now.switch.pfc_obey) = (0, 0);
    let own = Found {
        rule: "pair-pfc",
        host,
        adapter,
    };
    let fix = format!("PFC for priority {list} at both ends; with DCBX one end has to be willing");
    found.push(own.say(what, &[&pfc.seen, &first.seen], cost(&now, &fixed), fix));
}

fn pair(
    host: &HostFacts,
    adapter: &Adapter,
    switch: &SwitchFacts,
    intent: &Intent,
    dscp: u8,
    found: &mut Vec<Finding>,
) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let class = intent.class_of_dscp(dscp);
    if let Some(pfc) = &adapter.pfc
        && pfc.value != 0
        && intent.lossless(class)
        && pfc.value >> class & 1 == 0
    {
        let network = Through {
            switch,
            intent,
            marks: Marks::of_data(dscp),
        };
        let consequence = network.cost(adapter, |case| case.senders.pfc = pfc.value);
        let what = format!(
            "PFC of the adapter is for priority {}, and {} pauses priority {class}",
            ranges(classes(pfc.value)),
            switch.file
        );
        let fix = format!("PFC for priority {class} at both ends");
        // A host whose own map disagrees is reported with that already.
        let known = |finding: &Finding| {
            matches!(finding.rule, "pfc-priority" | "dscp-map")
                && finding.evidence.contains(&pfc.seen)
        };
        if !found.iter().any(known) {
            found.push(own("pair-pfc").say(what, &[&pfc.seen], consequence, fix));
        }
    }
}

/// Frames of the host that the switch does not take.
fn mtu(
    host: &HostFacts,
    adapter: &Adapter,
    switch: &SwitchFacts,
    intent: &Intent,
    found: &mut Vec<Finding>,
) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    if intent.unknown(Area::Mtu).is_some() {
        return;
    }
    if let Some(mtu) = adapter.mtu.as_ref().filter(|mtu| mtu.value > intent.mtu) {
        let fits = [2048, 1024, 512]
            .into_iter()
            .find(|roce| intent.mtu >= roce + 80)
            .unwrap_or(256);
        let marks = Marks::of_adapter(host, adapter);
        let network = Through {
            switch,
            intent,
            marks,
        };
        let consequence = network.cost(adapter, |case| {
            (case.senders.mtu, case.receiver.mtu) = (fits, fits);
        });
        let what = format!(
            "the host sends up to {} bytes, and {} takes {}",
            mtu.value, switch.file, intent.mtu
        );
        let known = found.iter().any(|finding| finding.rule == "switch-mtu");
        if !known && intent.mtu < 4200 {
            let fix = "an MTU of 9216 on the switch".to_owned();
            found.push(own("pair-mtu").say(what, &[&mtu.seen], consequence, fix));
        }
    }
}
