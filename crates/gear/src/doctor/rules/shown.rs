//! What a switch shows of its ports, against its configuration and the fabric file.

use super::switch::One;
use super::{Consequence, Evidence, Finding, MANUAL, SwitchFacts, cost};
use crate::consequence::Case;
use crate::doctor::{Fact, ShownPort};
use crate::text::{classes, ranges};
use crate::{Dialect, Intent};

/// What RoCE's largest packet needs.
const MTU_NEEDED: u32 = 4200;

pub(super) fn check(switch: &SwitchFacts, dscp: u8, found: &mut Vec<Finding>) {
    for port in switch.shown.each() {
        // A link that is down is not in use.
        if port.up.as_ref().is_some_and(|up| !up.value) {
            continue;
        }
        let own = Port { switch, port, dscp, expected: expected(switch, port) };
        own.pfc(found);
        own.classes(found);
        own.counters(found);
        own.mtu(found);
    }
}

/// What a port is meant to do: its configuration, else the fabric file.
fn expected<'a>(switch: &'a SwitchFacts, port: &ShownPort) -> Option<&'a Intent> {
    let is_own = |group: &&Intent| group.ports.iter().any(|own| port.is_called(&own.name));
    let configured = switch.groups.iter().find(is_own);
    configured.or_else(|| switch.planned.as_ref().map(|planned| &planned.intent))
}

struct Port<'a> {
    switch: &'a SwitchFacts,
    port: &'a ShownPort,
    dscp: u8,
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
        Finding { rule, place, what, evidence, consequence, fix, link: MANUAL }
    }

    /// The configuration that faults are simulated with.
    fn intent(&self) -> Intent {
        self.expected.cloned().unwrap_or_default()
    }

    fn class(&self) -> u8 {
        self.intent().class_of_dscp(self.dscp)
    }

    /// The cost of a change to what the port is meant to do.
    fn cost_of(&self, change: impl Fn(&mut Case)) -> Consequence {
        let fixed = Case::incast(&self.intent(), 100);
        let mut now = fixed.clone();
        change(&mut now);
        cost(&now, &fixed)
    }

    fn fix_pfc(&self, class: u8) -> String {
        let port = self.port.title();
        match self.switch.dialect {
            Dialect::Sonic => format!("config interface pfc priority {port} {class} on"),
            Dialect::Eos => format!(
                "interface {port}\n  priority-flow-control on\n  dcbx mode ieee   (or none at both ends)"
            ),
            Dialect::NxOs => format!("interface {port}\n  priority-flow-control mode on"),
            Dialect::Nvue => {
                format!("nv set qos pfc default-global switch-priority {class}; nv config apply")
            }
            _ => format!("PFC for priority {class} on {port}"),
        }
    }

    fn pfc(&self, found: &mut Vec<Finding>) {
        let Some(pfc) = &self.port.pfc else { return };
        let class = self.class();
        let off = |case: &mut Case| (case.switch.pfc_send, case.switch.pfc_obey) = (0, 0);
        let enabled = self.port.pfc_enabled.as_ref().is_some_and(|enabled| enabled.value);
        let is_meant = self.expected.is_some_and(|intent| intent.lossless(class));
        let (missing, what) = match is_meant {
            true => (
                pfc.value >> class & 1 == 0,
                format!("PFC is meant for priority {class}, and in operation for {}", listed(pfc.value)),
            ),
            false => (
                enabled && pfc.value == 0,
                "PFC is enabled, and in operation for no priority: the other end has not agreed".to_owned(),
            ),
        };
        if missing {
            let class = if is_meant { class } else { 3 };
            let consequence = self.cost_of(off);
            found.push(self.say("shown-pfc", what, &[&pfc.seen], consequence, self.fix_pfc(class)));
        }
    }

    /// Data in a class that is not the one with PFC.
    fn classes(&self, found: &mut Vec<Finding>) {
        let Some(pfc) = self.port.pfc.as_ref().filter(|pfc| pfc.value != 0) else { return };
        let own = |group: &Intent| {
            let one = One { switch: self.switch, intent: group, dscp: self.dscp };
            one.fix_map(pfc.value.trailing_zeros() as u8)
        };
        let lossy = |case: &mut Case| {
            case.switch.dscp[usize::from(self.dscp & 63)] = 0;
            case.senders.dscp = self.dscp;
        };
        let fix = own(&self.intent());
        if let Some(trust) = self.port.trusts_dscp.as_ref().filter(|trust| !trust.value) {
            let what = "DSCP is not trusted: data of untagged packets is in the default class".to_owned();
            found.push(self.say("shown-dscp", what, &[&trust.seen], self.cost_of(lossy), fix));
            return;
        }
        let Some(map) = &self.port.dscp else { return };
        let Some(class) = map.value[usize::from(self.dscp & 63)] else { return };
        if pfc.value >> class & 1 == 0 {
            let what = format!(
                "DSCP {} is in priority {class}, and PFC is in operation for {}",
                self.dscp,
                listed(pfc.value)
            );
            found.push(self.say("shown-dscp", what, &[&map.seen, &pfc.seen], self.cost_of(lossy), fix));
        }
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
        let lossless = |(queue, drops): &(&u8, &Fact<u64>)| drops.value > 0 && self.is_lossless(**queue);
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
        let is_used = self.port.pfc.as_ref().is_some_and(|pfc| pfc.value != 0) || self.expected.is_some();
        let Some(mtu) = self.port.mtu.as_ref().filter(|mtu| mtu.value < MTU_NEEDED && is_used) else {
            return;
        };
        // The configuration says the same: it was reported with its own line.
        if self.expected.is_some_and(|intent| intent.mtu == mtu.value) {
            return;
        }
        let fits = [2048, 1024, 512].into_iter().find(|roce| mtu.value >= roce + 80).unwrap_or(256);
        let consequence = self.cost_of(|case| (case.senders.mtu, case.receiver.mtu) = (fits, fits));
        let what =
            format!("an MTU of {} carries RoCE packets of {fits} bytes; larger ones are dropped", mtu.value);
        let port = self.port.title();
        let fix = match self.switch.dialect {
            Dialect::Sonic => format!("config interface mtu {port} 9216"),
            _ => format!("an MTU of 9216 on {port}"),
        };
        found.push(self.say("shown-mtu", what, &[&mtu.seen], consequence, fix));
    }
}

fn listed(mask: u8) -> String {
    if mask == 0 { "none".to_owned() } else { ranges(classes(mask)) }
}
