//! Marking, DSCP maps, PFC, ECN and ETS of an adapter.

use super::{
    Adapter, Consequence, Fact, Finding, Found, HostFacts, Marks, cost, cost_of, share_cost, usual,
};
use crate::cost_simulation::Case;
use vendors::HostRemedy;

/// Classes of data with a smaller share than this are starved by the others.
const SHARE_MIN: u8 = 20;

pub(super) fn check(host: &HostFacts, adapter: &Adapter, marks: Marks, found: &mut Vec<Finding>) {
    // Adapters of Windows have their own rules.
    if host.windows.is_some() {
        return;
    }
    let own = On {
        host,
        adapter,
        marks,
    };
    own.marking(found);
    let before = found.len();
    own.priorities(found);
    own.notifications(found);
    own.shares(found);
    if let Some(pause) = adapter.global_pause.as_ref().filter(|pause| pause.value) {
        let what = "802.3x pause is on: it stops all priorities, and most adapters then ignore PFC";
        let own = own.found("global-pause");
        let fix = own.fix(HostRemedy::NoGlobalPause);
        found.push(own.say(
            what,
            &[&pause.seen],
            cost_of(adapter, marks, |talk| talk.pfc = 0),
            fix,
        ));
    }
    // Settings that are wrong already are not reported as lost at a reboot too.
    if let Some(persistent) = host
        .persistent
        .as_ref()
        .filter(|persistent| !persistent.value && found.len() == before)
    {
        let what = "nothing in /etc sets DCB at start: PFC and trust are lost with a reboot";
        let dialect = if adapter.is_nvidia() {
            "mlnx@5.8"
        } else {
            "linux@6.1"
        };
        let fix = format!(
            "rockery plan FILE --for HOST={dialect} --out DIR writes the script and its unit"
        );
        let consequence = match cost_of(adapter, marks, |talk| (talk.priority, talk.pfc) = (0, 0)) {
            Consequence::Simulated(cost) => Consequence::AfterReboot(cost),
            other => other,
        };
        let own = Found {
            rule: "runtime-only",
            host,
            adapter,
        };
        found.push(own.say(what, &[&persistent.seen], consequence, fix));
    }
}

/// An adapter, with the marks of its traffic.
struct On<'a> {
    host: &'a HostFacts,
    adapter: &'a Adapter,
    marks: Marks,
}

impl<'a> On<'a> {
    fn found(&self, rule: &'static str) -> Found<'a> {
        Found {
            rule,
            host: self.host,
            adapter: self.adapter,
        }
    }

    /// The priority of data, where its DSCP and the map are known.
    fn priority(&self) -> Option<u8> {
        let map = self.adapter.dscp.as_ref()?;
        self.marks
            .dscp
            .map(|dscp| map.value[usize::from(dscp & 63)])
    }

    /// DSCPs that the adapter maps to a priority with PFC.
    fn paused_dscps(&self) -> Vec<u8> {
        let (Some(map), Some(pfc)) = (&self.adapter.dscp, &self.adapter.pfc) else {
            return Vec::new();
        };
        let is_paused = |dscp: &u8| pfc.value >> (map.value[usize::from(*dscp)] & 7) & 1 == 1;
        (0..64).filter(is_paused).collect()
    }

    fn marking(&self, found: &mut Vec<Finding>) {
        let Some(tos) = &self.adapter.tos else { return };
        // A fabric file may plan it so.
        let planned = self.host.planned.as_ref();
        let own = self.found("tos-zero");
        // DSCP 0 is right where its priority has PFC, and nothing is known where no map is.
        let paused = self.paused_dscps();
        let is_right = self.adapter.dscp.is_some() && paused.contains(&0);
        if tos.value >> 2 == 0 && !is_right && planned.is_none_or(|planned| planned.dscp != 0) {
            let what = format!(
                "connections of the RDMA connection manager leave with ToS {}: DSCP 0, the class of \
                 everything else",
                tos.value
            );
            let consequence = cost_of(self.adapter, self.marks, |talk| {
                (talk.dscp, talk.priority, talk.ecn) = (tos.value >> 2, 0, false)
            });
            let fix = match self.marks.dscp {
                Some(dscp) => own.fix(HostRemedy::Tos(dscp << 2 | 2)),
                None if paused.is_empty() => format!("the DSCP of data: {}", super::switch::ASK),
                None => format!(
                    "a DSCP of the priority that has PFC ({}): {}",
                    vendors::text::ranges(paused),
                    super::switch::ASK
                ),
            };
            found.push(own.say(what, &[&tos.seen], consequence, fix));
        } else if tos.value >> 2 != 0
            && tos.value & 3 == 0
            && planned.is_none_or(|planned| planned.ecn)
            // Queue pairs of the kernel and of verbs get ECT from the adapter where DCQCN reacts.
            && self.adapter.forced_tos.is_none()
        {
            let what = format!(
                "ToS {} has DSCP {}, and says that packets take no part in ECN",
                tos.value,
                tos.value >> 2
            );
            let own = self.found("tos-no-ect");
            let fix = own.fix(HostRemedy::Tos(tos.value | 2));
            let consequence = cost_of(self.adapter, self.marks, |talk| talk.ecn = false);
            found.push(own.say(what, &[&tos.seen], consequence, fix));
        }
    }

    fn priorities(&self, found: &mut Vec<Finding>) {
        let adapter = self.adapter;
        let Some(pfc) = &adapter.pfc else { return };
        let planned = self.host.planned.as_ref();
        let is_tagged = planned.is_some_and(|planned| planned.pcp.is_some());
        let untrusted = adapter
            .trusts_dscp
            .as_ref()
            .filter(|trust| !trust.value && !is_tagged);
        if let Some(trust) = untrusted {
            let what =
                "the adapter trusts PCP, which untagged packets do not have: data is in priority 0";
            let own = self.found("trust");
            let fix = own.fix(HostRemedy::TrustDscp);
            let consequence = cost_of(adapter, self.marks, |talk| talk.priority = 0);
            found.push(own.say(what, &[&trust.seen], consequence, fix));
            return;
        }
        // PFC is as planned: other differences are found by the comparison with the file.
        if planned.is_some_and(|planned| planned.pfc == pfc.value) {
            return;
        }
        let planned = planned.map(|planned| planned.priority);
        let priority = self.priority().or(planned);
        let fix_of = |own: &Found<'_>| match priority {
            Some(priority) => own.fix(HostRemedy::Pfc(1 << (priority & 7))),
            None => format!("PFC for the priority of data: {}", super::switch::ASK),
        };
        if pfc.value == 0 {
            let what = match priority {
                Some(priority) => format!(
                    "PFC is off for all priorities: pauses of the switch for priority {priority} are not \
                     obeyed"
                ),
                None => {
                    "PFC is off for all priorities: pauses of the switch are not obeyed".to_owned()
                }
            };
            let own = self.found("pfc-off");
            let consequence = cost_of(adapter, self.marks, |talk| talk.pfc = 0);
            found.push(own.say(what, &[&pfc.seen], consequence, fix_of(&own)));
        } else if pfc.value == 0xff {
            let what =
                "PFC is on for all priorities: a pause stops notifications and everything else too";
            let consequence = Consequence::NotSimulated(
                "switches pause the priorities only that they have PFC for, and the simulated adapter \
                 pauses that of data only; it shows with traffic of other priorities, behind a congested \
                 receiver",
            );
            let own = self.found("pfc-all");
            found.push(own.say(what, &[&pfc.seen], consequence, fix_of(&own)));
        } else if let (Some(priority), Some(dscp)) = (self.priority(), self.marks.dscp) {
            match pfc.value >> (priority & 7) & 1 {
                0 => found.push(self.unpaused(pfc, Data { dscp, priority })),
                _ => self.shared_buffer(priority, found),
            }
        }
    }

    /// PFC is on, but not for the priority of data. Losslessness is never taken from a priority: it may be
    /// the
    /// site's.
    fn unpaused(&self, pfc: &Fact<u8>, data: Data) -> Finding {
        let Data { dscp, priority } = data;
        let map = self.adapter.dscp.as_ref();
        let on = pfc.value.trailing_zeros() as u8;
        let mut seen = vec![&pfc.seen];
        seen.extend(map.map(|map| &map.seen));
        // A DSCP without an entry of its own has the priority of its upper three bits, as in the standard.
        let is_default = priority == dscp >> 3;
        let rule = if is_default {
            "pfc-priority"
        } else {
            "dscp-map"
        };
        let own = self.found(rule);
        let fix = match is_default {
            true => own.fix(HostRemedy::Pfc(pfc.value | 1 << (priority & 7))),
            false => own.fix(HostRemedy::MapDscp { dscp, priority: on }),
        };
        let what = format!(
            "data (DSCP {dscp}) is in priority {priority}, and PFC is on for {}",
            vendors::text::ranges(vendors::text::classes(pfc.value))
        );
        let consequence = match is_default {
            true => cost_of(self.adapter, self.marks, |talk| talk.pfc = 0),
            // In the simulated network only the priority of data has PFC.
            false => cost_of(self.adapter, self.marks, |talk| talk.priority = 0),
        };
        own.say(what, &seen, consequence, fix)
    }

    /// The receive buffer of the paused priority is filled by traffic that is not paused.
    fn shared_buffer(&self, priority: u8, found: &mut Vec<Finding>) {
        if let Some(buffers) = &self.adapter.buffer_of_priority
            && buffers.value[usize::from(priority)] == buffers.value[0]
            && priority != 0
        {
            let what = format!(
                "priority {priority} shares receive buffer {} with priority 0, which is not paused",
                buffers.value[0]
            );
            let consequence = Consequence::NotSimulated(
                "the simulated adapter has one receive buffer, and does not divide it by \
                    priority; it shows when traffic of priority 0 fills the adapter's buffer",
            );
            let own = self.found("receive-buffer");
            let fix = own.fix(HostRemedy::ReceiveBuffer(priority));
            found.push(own.say(what, &[&buffers.seen], consequence, fix));
        }
    }

    fn notifications(&self, found: &mut Vec<Finding>) {
        let adapter = self.adapter;
        let wanted = self.marks.cnp;
        if let (Some(cnp), Some(wanted)) = (&adapter.cnp_dscp, wanted)
            && cnp.value != wanted
            && self.host.planned.is_none()
        {
            let what = format!(
                "notifications leave with DSCP {}, and not with {wanted}",
                cnp.value
            );
            let consequence = cost_of(adapter, self.marks, |talk| talk.cnp_dscp = cnp.value);
            let own = self.found("cnp-dscp");
            let fix = own.fix(HostRemedy::CnpDscp(wanted));
            found.push(own.say(what, &[&cnp.seen], consequence, fix));
        }
        if let (Some(priority), Some(pfc)) = (&adapter.cnp_priority, &adapter.pfc)
            && pfc.value != 0xff
            && pfc.value >> (priority.value & 7) & 1 == 1
        {
            let what = format!(
                "notifications have priority {}, which is paused as data is",
                priority.value
            );
            let own = self.found("cnp-priority");
            let is_free = |priority: &u8| pfc.value >> (priority & 7) & 1 == 0;
            let planned = self
                .host
                .planned
                .as_ref()
                .map(|planned| planned.cnp_priority);
            let mapped = adapter.cnp_dscp.as_ref().zip(adapter.dscp.as_ref());
            let mapped = mapped.map(|(cnp, map)| map.value[usize::from(cnp.value & 63)]);
            let fix = match planned.or(mapped).filter(is_free) {
                Some(free) => own.fix(HostRemedy::CnpPriority(free)),
                None => "a priority of notifications that has no PFC".to_owned(),
            };
            let fixed = Case {
                exchange: true,
                ..usual(adapter, self.marks)
            };
            let mut now = fixed.clone();
            // In the simulated network the priority of data is the paused one.
            let paused = fixed.senders.priority;
            (now.senders.cnp_priority, now.receiver.cnp_priority) = (paused, paused);
            let consequence = cost(&now, &fixed);
            found.push(own.say(what, &[&priority.seen, &pfc.seen], consequence, fix));
        }
        self.dcqcn(found);
    }

    /// DCQCN is configured for each priority, separately for both ends of a connection.
    fn dcqcn(&self, found: &mut Vec<Finding>) {
        let adapter = self.adapter;
        let planned = self.host.planned.as_ref();
        // The priority of data: planned, or by its DSCP, or the only one with PFC.
        let pfc = adapter.pfc.as_ref().map_or(0, |pfc| pfc.value);
        let only = (pfc.count_ones() == 1).then(|| pfc.trailing_zeros() as u8);
        let priority = planned
            .map(|planned| planned.priority)
            .or(self.priority())
            .or(only);
        let is_meant = planned.is_none_or(|planned| planned.dcqcn);
        let Some(priority) = priority.filter(|_| is_meant) else {
            return;
        };
        let ends = [
            (
                "ecn-notification-point",
                &adapter.notifies,
                HostRemedy::Notify(priority),
                "marked packets are not answered with notifications",
            ),
            (
                "ecn-reaction-point",
                &adapter.reacts,
                HostRemedy::React(priority),
                "notifications do not slow senders down",
            ),
        ];
        for (rule, map, remedy, effect) in ends {
            let Some(on) = map.get(&priority).filter(|on| !on.value) else {
                continue;
            };
            let own = self.found(rule);
            let what = format!("DCQCN is off for priority {priority}: {effect}");
            let consequence = cost_of(adapter, self.marks, |talk| talk.ecn = false);
            found.push(own.say(what, &[&on.seen], consequence, own.fix(remedy)));
        }
    }

    fn shares(&self, found: &mut Vec<Finding>) {
        let adapter = self.adapter;
        // Shares are compared with the fabric file's elsewhere.
        let Some(priority) = self.priority().filter(|_| self.host.planned.is_none()) else {
            return;
        };
        let Some(class) = adapter.class_of_priority.get(&priority) else {
            return;
        };
        let Some(share) = adapter.shares.get(class) else {
            return;
        };
        let Some(percent) = share.value.filter(|percent| *percent < SHARE_MIN) else {
            return;
        };
        // Eight equal shares are the default of an adapter.
        let others = adapter.shares.values().filter_map(|share| share.value);
        if others.max().is_none_or(|most| most <= percent * 2) {
            return;
        }
        let what = format!("data has {percent} % of the link when other classes send");
        let own = self.found("ets-share");
        let fix = own.fix(HostRemedy::Shares(self.halved(*class)));
        let consequence = share_cost(&usual(adapter, self.marks), percent, 50);
        found.push(own.say(what, &[&share.seen], consequence, fix));
    }

    /// Shares of which a class has half, and the other weighted classes what they have of the rest.
    fn halved(&self, class: u8) -> [u8; 8] {
        let share = |class: u8| {
            self.adapter
                .shares
                .get(&class)
                .and_then(|share| share.value)
        };
        let others = (0..8).filter(|other| *other != class);
        let sum: u32 = others.filter_map(share).map(u32::from).sum();
        let mut shares: [u8; 8] = core::array::from_fn(|other| {
            let own = share(other as u8).map_or(0, u32::from);
            (own * 50).checked_div(sum).unwrap_or(0) as u8
        });
        shares[usize::from(class & 7)] = 0;
        let rest: u8 = shares.iter().sum();
        shares[usize::from(class & 7)] = 100 - rest;
        shares
    }
}

/// Where an adapter puts data.
struct Data {
    dscp: u8,
    priority: u8,
}
