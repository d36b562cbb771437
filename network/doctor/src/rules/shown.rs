//! The state of ports as a switch shows it, against its configuration and the fabric file.

use super::switch::One;
use super::{Consequence, Evidence, Finding, SwitchFacts};
use crate::cost_simulation::Case;
use crate::marks::Marks;
use vendors::facts::Fact;
use vendors::switch_facts::{ShownPort, StormsOver};
use vendors::text::{classes, ranges};
use vendors::{Area, Intent, Remedy};

/// Interface MTU that RoCE's largest packet needs.
const MTU_NEEDED: u32 = 4200;

pub(super) fn check(switch: &SwitchFacts, marks: Marks, found: &mut Vec<Finding>) {
    // Ports that were examined, and their findings.
    let mut seen: Vec<(&ShownPort, Option<&Intent>, core::ops::Range<usize>)> = Vec::new();
    for port in switch.shown.each() {
        // A link that is down is not in use.
        if port.up.as_ref().is_some_and(|up| !up.value) {
            continue;
        }
        let expected = expected(switch, port);
        // Ports that are alike are named in one finding.
        let alike = seen
            .iter()
            .find(|(other, meant, _)| is_same(*meant, expected) && are_alike(other, port));
        if let Some((_, _, own)) = alike {
            found[own.clone()]
                .iter_mut()
                .for_each(|finding| finding.place += &format!(", {}", port.title()));
            continue;
        }
        let begin = found.len();
        let own = Port {
            switch,
            port,
            marks,
            expected,
        };
        own.pfc(found);
        own.classes(found);
        own.marking(found);
        own.counters(found);
        own.mtu(found);
        seen.push((port, expected, begin..found.len()));
    }
}

/// Whether two ports have the same planned settings: they are of one group.
fn is_same(one: Option<&Intent>, other: Option<&Intent>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => core::ptr::eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Whether two ports show the same values, whatever lines these are in.
fn are_alike(one: &ShownPort, other: &ShownPort) -> bool {
    fn values<T: Copy>(of: &std::collections::BTreeMap<u8, Fact<T>>) -> Vec<(u8, T)> {
        of.iter()
            .map(|(queue, fact)| (*queue, fact.value))
            .collect()
    }
    fn value<T: Copy>(of: Option<&Fact<T>>) -> Option<T> {
        of.map(|fact| fact.value)
    }
    value(one.pfc.as_ref()) == value(other.pfc.as_ref())
        && value(one.pfc_enabled.as_ref()) == value(other.pfc_enabled.as_ref())
        && value(one.mtu.as_ref()) == value(other.mtu.as_ref())
        && value(one.trusts_dscp.as_ref()) == value(other.trusts_dscp.as_ref())
        && value(one.marks.as_ref()) == value(other.marks.as_ref())
        && value(one.dscp.as_ref()) == value(other.dscp.as_ref())
        && values(&one.drops) == values(&other.drops)
        && values(&one.stormed) == values(&other.stormed)
        && values(&one.storms_over) == values(&other.storms_over)
        && values(&one.arrival_drops) == values(&other.arrival_drops)
        && values(&one.marked) == values(&other.marked)
}

/// The intended settings of a port: its configuration, else the fabric file.
fn expected<'a>(switch: &'a SwitchFacts, port: &ShownPort) -> Option<&'a Intent> {
    let is_own = |group: &&Intent| group.ports.iter().any(|own| port.is_called(&own.name));
    let configured = switch.groups.iter().find(is_own);
    configured.or_else(|| switch.planned.as_ref().map(|planned| &planned.intent))
}

struct Port<'a> {
    switch: &'a SwitchFacts,
    port: &'a ShownPort,
    marks: Marks,
    expected: Option<&'a Intent>,
}

impl Port<'_> {
    fn say(
        &self,
        rule: &'static str,
        what: String,
        seen: &[&Evidence],
        consequence: Consequence,
        fix: String,
    ) -> Finding {
        let (file, dialect) = (&self.switch.file, self.switch.dialect.name());
        let place = format!("{file} ({dialect}), {}", self.port.title());
        let evidence = seen.iter().map(|seen| (*seen).clone()).collect();
        Finding::new(rule, place, what, evidence, consequence, fix)
    }

    /// The configuration that faults are simulated with.
    fn intent(&self) -> Intent {
        self.expected.cloned().unwrap_or_default()
    }

    /// The class of data: by its DSCP, else the only one that is meant to be lossless.
    fn class(&self) -> Option<u8> {
        let expected = self
            .expected
            .filter(|own| own.unknown(Area::Classes).is_none());
        let by_dscp = self.marks.dscp.zip(expected);
        let by_dscp = by_dscp.map(|(dscp, intent)| intent.class_of_dscp(dscp));
        let lossless = self.expected.map_or(0, |intent| intent.pfc_send);
        let only = (lossless.count_ones() == 1).then(|| lossless.trailing_zeros() as u8);
        by_dscp.or(only)
    }

    /// The cost of a change to the intended settings of the port.
    fn cost_of(&self, change: impl Fn(&mut Case)) -> Consequence {
        let intent = self.intent();
        let one = One {
            switch: self.switch,
            intent: &intent,
            marks: self.marks,
        };
        one.other(change)
    }

    fn fix_pfc(&self, class: u8) -> String {
        let port = self.port.title();
        self.switch
            .dialect
            .remedy(&Remedy::PfcOfPort { class, port })
    }

    fn pfc(&self, found: &mut Vec<Finding>) {
        let Some(pfc) = &self.port.pfc else { return };
        let class = self.class();
        let off = |case: &mut Case| (case.switch.pfc_send, case.switch.pfc_obey) = (0, 0);
        let enabled = self
            .port
            .pfc_enabled
            .as_ref()
            .is_some_and(|enabled| enabled.value);
        let is_meant = |class: &u8| {
            let known = self.expected.filter(|own| own.unknown(Area::Pfc).is_none());
            known.is_some_and(|intent| intent.lossless(*class))
        };
        let meant = class.filter(is_meant);
        let (missing, what) = match meant {
            Some(class) => (
                pfc.value >> class & 1 == 0,
                format!(
                    "PFC is meant for priority {class}, and in operation for {}",
                    listed(pfc.value)
                ),
            ),
            None => (
                enabled && pfc.value == 0,
                "PFC is enabled, and in operation for no priority: the other end has not agreed"
                    .to_owned(),
            ),
        };
        if missing {
            let consequence = self.cost_of(off);
            let fix = match meant {
                Some(class) => self.fix_pfc(class),
                None => format!(
                    "PFC for the same priority at the other end of {}, or without negotiation at both",
                    self.port.title()
                ),
            };
            found.push(self.say("shown-pfc", what, &[&pfc.seen], consequence, fix));
        }
    }

    /// Data in a class that is not the one with PFC.
    fn classes(&self, found: &mut Vec<Finding>) {
        let Some(pfc) = self.port.pfc.as_ref().filter(|pfc| pfc.value != 0) else {
            return;
        };
        let Some(dscp) = self.marks.dscp else { return };
        let lossy = |case: &mut Case| {
            case.switch.dscp[usize::from(dscp & 63)] = 0;
            case.senders.dscp = dscp;
        };
        let intent = self.intent();
        let one = One {
            switch: self.switch,
            intent: &intent,
            marks: self.marks,
        };
        let fix = one.fix_map(dscp, pfc.value.trailing_zeros() as u8);
        if let Some(trust) = self.port.trusts_dscp.as_ref().filter(|trust| !trust.value) {
            let what =
                "DSCP is not trusted: data of untagged packets is in the default class".to_owned();
            found.push(self.say("shown-dscp", what, &[&trust.seen], self.cost_of(lossy), fix));
            return;
        }
        let Some(map) = &self.port.dscp else { return };
        let Some(class) = map.value[usize::from(dscp & 63)] else {
            return;
        };
        if pfc.value >> class & 1 == 0 {
            let what = format!(
                "DSCP {dscp} is in priority {class}, and PFC is in operation for {}",
                listed(pfc.value)
            );
            found.push(self.say(
                "shown-dscp",
                what,
                &[&map.seen, &pfc.seen],
                self.cost_of(lossy),
                fix,
            ));
        }
    }

    /// A lossless queue of data that does not mark, where all queues that mark are shown.
    fn marking(&self, found: &mut Vec<Finding>) {
        let (Some(marks), Some(pfc)) = (&self.port.marks, &self.port.pfc) else {
            return;
        };
        let mapped = |dscp: u8| self.port.dscp.as_ref()?.value[usize::from(dscp & 63)];
        let only = (pfc.value.count_ones() == 1).then(|| pfc.value.trailing_zeros() as u8);
        let class = self.marks.dscp.and_then(mapped).or(self.class()).or(only);
        let Some(class) = class else { return };
        let is_meant = self
            .expected
            .is_none_or(|intent| intent.queues[usize::from(class)].ecn.is_some());
        let has_marked = self
            .port
            .marked
            .get(&class)
            .is_some_and(|packets| packets.value > 0);
        if pfc.value >> class & 1 == 0 || marks.value >> class & 1 == 1 || !is_meant || has_marked {
            return;
        }
        let what = format!(
            "queue {class} of data does not mark (ECN); those that do: {}",
            listed(marks.value)
        );
        let consequence = self.cost_of(|case| case.switch.queues[usize::from(class)].ecn = None);
        let intent = self.intent();
        let fix = One {
            switch: self.switch,
            intent: &intent,
            marks: self.marks,
        }
        .fix_ecn(class);
        found.push(self.say("shown-ecn", what, &[&marks.seen], consequence, fix));
    }

    /// Whether a queue is known to be lossless.
    fn is_lossless(&self, queue: u8) -> bool {
        let shown = self.port.pfc.as_ref().map(|pfc: &Fact<u8>| pfc.value);
        shown.map_or_else(
            || self.expected.is_some_and(|intent| intent.lossless(queue)),
            |mask| mask >> queue & 1 == 1,
        )
    }

    fn counters(&self, found: &mut Vec<Finding>) {
        self.storms(found);
        self.drops(found);
    }

    fn storms(&self, found: &mut Vec<Finding>) {
        for (queue, seen) in &self.port.stormed {
            let what = format!(
                "the PFC watchdog has stopped queue {queue}: the other end pauses without end, and packets \
                 are dropped"
            );
            let fix = "look at the adapter at the other end: a receiver that does not drain pauses (NUMA, \
                       PCIe, firmware), or cabling that makes a loop";
            found.push(self.say(
                "shown-storm",
                what,
                &[&seen.seen],
                Consequence::NothingArrives,
                fix.to_owned(),
            ));
        }
        for (queue, seen) in &self.port.storms_over {
            let StormsOver { detected, dropped } = seen.value;
            let what = format!(
                "the PFC watchdog has stopped queue {queue} {detected} times, and {dropped} packets were \
                 dropped: the other end paused without end"
            );
            let fix = "look at the adapter at the other end: a receiver that does not drain pauses (NUMA, \
                       PCIe, firmware), or cabling that makes a loop; then clear the counters (pfcwd)";
            let consequence = Consequence::NotSimulated("the storms are over");
            found.push(self.say(
                "shown-storm",
                what,
                &[&seen.seen],
                consequence,
                fix.to_owned(),
            ));
        }
    }

    fn drops(&self, found: &mut Vec<Finding>) {
        // The watchdog is for lossless queues.
        let is_watched = |group: &u8| {
            self.port.stormed.contains_key(group) || self.port.storms_over.contains_key(group)
        };
        let arrived = self.port.arrival_drops.iter().filter(|(group, drops)| {
            drops.value > 0 && (self.is_lossless(**group) || is_watched(group))
        });
        for (group, drops) in arrived {
            let what = format!(
                "priority group {group} has dropped {} packets on arrival since its counters were cleared",
                drops.value
            );
            let fix = "headroom for the length of the cable, and PFC for this priority at the other end; \
                       then clear the counters";
            let consequence = Consequence::NotSimulated(
                "the counter does not say when packets were dropped, or by which limit",
            );
            found.push(self.say(
                "shown-drops",
                what,
                &[&drops.seen],
                consequence,
                fix.to_owned(),
            ));
        }
        let lossless =
            |(queue, drops): &(&u8, &Fact<u64>)| drops.value > 0 && self.is_lossless(**queue);
        for (queue, drops) in self.port.drops.iter().filter(lossless) {
            let what = format!(
                "queue {queue} is lossless, and has dropped {} packets since its counters were cleared",
                drops.value
            );
            let fix = format!(
                "clear the counters and look again under load; then PFC for priority {queue} at the senders' \
                 ends,\nand headroom for the length of the cables"
            );
            let consequence = self.cost_of(|case| case.senders.pfc = 0);
            found.push(self.say("shown-drops", what, &[&drops.seen], consequence, fix));
        }
    }

    fn mtu(&self, found: &mut Vec<Finding>) {
        let is_used =
            self.port.pfc.as_ref().is_some_and(|pfc| pfc.value != 0) || self.expected.is_some();
        let Some(mtu) = self
            .port
            .mtu
            .as_ref()
            .filter(|mtu| mtu.value < MTU_NEEDED && is_used)
        else {
            return;
        };
        // The configuration has the same fault, which was reported with its own line.
        if self.expected.is_some_and(|intent| intent.mtu == mtu.value) {
            return;
        }
        let fits = [2048, 1024, 512]
            .into_iter()
            .find(|roce| mtu.value >= roce + 80)
            .unwrap_or(256);
        let consequence = self.cost_of(|case| (case.senders.mtu, case.receiver.mtu) = (fits, fits));
        let what = format!(
            "an MTU of {} carries RoCE packets of {fits} bytes; larger ones are dropped",
            mtu.value
        );
        let port = self.port.title();
        let fix = self.switch.dialect.remedy(&Remedy::MtuOfPort { port });
        found.push(self.say("shown-mtu", what, &[&mtu.seen], consequence, fix));
    }
}

fn listed(mask: u8) -> String {
    if mask == 0 {
        "none".to_owned()
    } else {
        ranges(classes(mask))
    }
}
