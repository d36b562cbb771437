//! A host against the fabric file: the planned adapter, and the planned links.

use super::{
    Adapter, Consequence, Evidence, Finding, Found, HostFacts, cost, is_of_interest, names,
};
use crate::cost_simulation::{Case, Talk};
use vendors::HostRemedy;
use vendors::facts::PlannedHost;
use vendors::shell::quoted;
use vendors::text::{classes, ranges};

/// Headers of RoCEv2 over IPv6 besides the payload: IPv6, UDP, BTH, RETH and ICRC.
const HEADERS: u32 = 40 + 8 + 12 + 16 + 4;

pub(super) fn check(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let Some(planned) = host
        .planned
        .as_ref()
        .filter(|planned| is_of_file(host, adapter, planned))
    else {
        return;
    };
    let own = Own {
        host,
        adapter,
        planned,
    };
    own.rate(found);
    own.mtu(found);
    own.map(found);
    own.pfc(found);
    own.ecn(found);
    own.notifications(found);
    own.shares(found);
    own.functions(found);
}

/// Whether this is the planned adapter. Of a host with more adapters than links in the file, those with the
/// speed of these links are planned.
fn is_of_file(host: &HostFacts, adapter: &Adapter, planned: &PlannedHost) -> bool {
    let count = host
        .adapters
        .iter()
        .filter(|adapter| is_of_interest(host, adapter))
        .count();
    let gbps = adapter.gbps.as_ref().map(|gbps| gbps.value);
    count <= planned.links.len().max(1) || (gbps.is_some() && gbps == planned.gbps())
}

struct Own<'a> {
    host: &'a HostFacts,
    adapter: &'a Adapter,
    planned: &'a PlannedHost,
}

impl Own<'_> {
    fn found(&self, rule: &'static str) -> Found<'_> {
        Found {
            rule,
            host: self.host,
            adapter: self.adapter,
        }
    }

    /// Whether a finding of the adapter alone reports this fault already.
    fn is_known(&self, rules: &[&str], found: &[Finding]) -> bool {
        let place = self.found("").location();
        found
            .iter()
            .any(|finding| rules.contains(&finding.rule) && finding.place == place)
    }

    /// The network of the fabric file, with adapters as planned.
    fn as_planned(&self) -> Case {
        let planned = self.planned;
        let talk = Talk {
            dscp: planned.dscp,
            pcp: planned.pcp,
            ecn: planned.ecn,
            priority: planned.priority,
            pfc: planned.pfc,
            cnp_dscp: planned.cnp_dscp,
            cnp_priority: planned.cnp_priority,
            mtu: planned.mtu,
            ..Talk::default()
        };
        Case::incast(&planned.switch, planned.gbps().unwrap_or(100)).talking(&talk)
    }

    /// The cost of another setting of all adapters.
    fn cost(&self, change: impl Fn(&mut Talk)) -> Consequence {
        let fixed = self.as_planned();
        let mut now = fixed.clone();
        change(&mut now.senders);
        change(&mut now.receiver);
        cost(&now, &fixed)
    }

    fn say(
        &self,
        rule: &'static str,
        what: &str,
        seen: &[&Evidence],
        consequence: Consequence,
        fix: String,
    ) -> Finding {
        let what = format!("differs from the fabric file: {what}");
        self.found(rule).say(what, seen, consequence, fix)
    }

    fn rate(&self, found: &mut Vec<Finding>) {
        let (Some(gbps), Some(planned)) = (&self.adapter.gbps, self.planned.gbps()) else {
            return;
        };
        if gbps.value >= planned || self.is_known(&["link-speed", "link-down"], found) {
            return;
        }
        let fixed = self.as_planned();
        let now = Case {
            gbps: gbps.value.max(1),
            ..fixed.clone()
        };
        let (netdev, _) = names(self.adapter);
        let what = format!("the link runs at {} Gb/s and not at {planned}", gbps.value);
        let netdev = quoted(netdev);
        let fix = format!(
            "ethtool {netdev} shows the modes of both ends: cable, transceiver and FEC for {planned} Gb/s, \
             or the rate of the link in the fabric file"
        );
        found.push(self.say("host-rate", &what, &[&gbps.seen], cost(&now, &fixed), fix));
    }

    fn mtu(&self, found: &mut Vec<Finding>) {
        let Some(mtu) = &self.adapter.mtu else { return };
        if mtu.value >= self.planned.mtu + HEADERS {
            return;
        }
        let sizes = [2048, 1024, 512, 256];
        let fits = sizes
            .into_iter()
            .find(|roce| mtu.value >= roce + HEADERS)
            .unwrap_or(256);
        let what = format!(
            "an MTU of {} does not hold packets of {} bytes",
            mtu.value, self.planned.mtu
        );
        let fix = self.found("host-mtu").fix(HostRemedy::Mtu(9000));
        let consequence = self.cost(|talk| talk.mtu = fits);
        found.push(self.say("host-mtu", &what, &[&mtu.seen], consequence, fix));
    }

    fn map(&self, found: &mut Vec<Finding>) {
        let (adapter, planned) = (self.adapter, self.planned);
        if let Some(tos) = adapter
            .tos
            .as_ref()
            .filter(|tos| tos.value >> 2 != planned.dscp)
            && !self.is_known(&["tos-zero", "roce-v1"], found)
        {
            let dscp = tos.value >> 2;
            let what = format!("data leaves with DSCP {dscp} and not with {}", planned.dscp);
            let wanted = planned.dscp << 2 | if planned.ecn { 2 } else { 0 };
            let fix = self.found("host-dscp").fix(HostRemedy::Tos(wanted));
            let priority = adapter
                .dscp
                .as_ref()
                .map(|map| map.value[usize::from(dscp & 63)]);
            let consequence = self.cost(|talk| {
                talk.dscp = dscp;
                talk.priority = priority.unwrap_or(talk.priority);
            });
            found.push(self.say("host-dscp", &what, &[&tos.seen], consequence, fix));
        }
        let Some(map) = &adapter.dscp else { return };
        let priority = map.value[usize::from(planned.dscp & 63)];
        if priority == planned.priority
            || self.is_known(&["dscp-map", "pfc-priority", "trust"], found)
        {
            return;
        }
        let what = format!(
            "DSCP {} is in priority {priority} of the adapter and not in {}",
            planned.dscp, planned.priority
        );
        let fix = self.found("host-map").fix(HostRemedy::MapDscp {
            dscp: planned.dscp,
            priority: planned.priority,
        });
        let consequence = self.cost(|talk| talk.priority = priority);
        found.push(self.say("host-map", &what, &[&map.seen], consequence, fix));
    }

    fn pfc(&self, found: &mut Vec<Finding>) {
        let Some(pfc) = self
            .adapter
            .pfc
            .as_ref()
            .filter(|pfc| pfc.value != self.planned.pfc)
        else {
            return;
        };
        let known = [
            "pfc-off",
            "pfc-all",
            "pfc-priority",
            "dscp-map",
            "windows-pfc",
            "adapter-qos",
        ];
        if self.is_known(&known, found) {
            return;
        }
        let listed = |mask: u8| {
            if mask == 0 {
                "none".to_owned()
            } else {
                ranges(classes(mask))
            }
        };
        let what = format!(
            "PFC is on for {} and not for {}",
            listed(pfc.value),
            listed(self.planned.pfc)
        );
        let fix = self
            .found("host-pfc")
            .fix(HostRemedy::Pfc(self.planned.pfc));
        let consequence = self.cost(|talk| talk.pfc = pfc.value);
        found.push(self.say("host-pfc", &what, &[&pfc.seen], consequence, fix));
    }

    fn ecn(&self, found: &mut Vec<Finding>) {
        let (adapter, planned) = (self.adapter, self.planned);
        let known = [
            "tos-no-ect",
            "tos-zero",
            "roce-v1",
            "ecn-notification-point",
            "ecn-reaction-point",
        ];
        if self.is_known(&known, found) {
            return;
        }
        if let Some(tos) = adapter
            .tos
            .as_ref()
            .filter(|tos| (tos.value & 3 != 0) != planned.ecn)
        {
            let what = match planned.ecn {
                true => "packets take no part in ECN",
                false => "packets take part in ECN, which the file leaves off",
            };
            let wanted = planned.dscp << 2 | if planned.ecn { 2 } else { 0 };
            let fix = self.found("host-ecn").fix(HostRemedy::Tos(wanted));
            let consequence = self.cost(|talk| talk.ecn = !planned.ecn);
            found.push(self.say("host-ecn", what, &[&tos.seen], consequence, fix));
        }
        let priority = planned.priority;
        for (map, role, remedy) in [
            (&adapter.notifies, "roce_np", HostRemedy::Notify(priority)),
            (&adapter.reacts, "roce_rp", HostRemedy::React(priority)),
        ] {
            let Some(on) = map
                .get(&planned.priority)
                .filter(|on| !on.value && planned.dcqcn)
            else {
                continue;
            };
            let what = format!("DCQCN is off ({role}) for priority {}", planned.priority);
            let fix = self.found("host-ecn").fix(remedy);
            let consequence = self.cost(|talk| talk.ecn = false);
            found.push(self.say("host-ecn", &what, &[&on.seen], consequence, fix));
        }
    }

    fn notifications(&self, found: &mut Vec<Finding>) {
        let (adapter, planned) = (self.adapter, self.planned);
        if let Some(cnp) = adapter
            .cnp_dscp
            .as_ref()
            .filter(|cnp| cnp.value != planned.cnp_dscp)
        {
            let what = format!(
                "notifications leave with DSCP {} and not with {}",
                cnp.value, planned.cnp_dscp
            );
            let fix = self
                .found("host-cnp")
                .fix(HostRemedy::CnpDscp(planned.cnp_dscp));
            let consequence = self.cost(|talk| talk.cnp_dscp = cnp.value);
            found.push(self.say("host-cnp", &what, &[&cnp.seen], consequence, fix));
        }
        let priority = adapter
            .cnp_priority
            .as_ref()
            .filter(|own| own.value != planned.cnp_priority);
        if let Some(priority) = priority
            && !self.is_known(&["cnp-priority"], found)
        {
            let what = format!(
                "notifications have priority {} and not {}",
                priority.value, planned.cnp_priority
            );
            let fix = self
                .found("host-cnp")
                .fix(HostRemedy::CnpPriority(planned.cnp_priority));
            let fixed = Case {
                exchange: true,
                ..self.as_planned()
            };
            let mut now = fixed.clone();
            (now.senders.cnp_priority, now.receiver.cnp_priority) =
                (priority.value, priority.value);
            found.push(self.say(
                "host-cnp",
                &what,
                &[&priority.seen],
                cost(&now, &fixed),
                fix,
            ));
        }
    }

    fn shares(&self, found: &mut Vec<Finding>) {
        let (adapter, planned) = (self.adapter, self.planned);
        let Some(class) = adapter.class_of_priority.get(&planned.priority) else {
            return;
        };
        let Some(share) = adapter.shares.get(class) else {
            return;
        };
        let wanted = planned.shares[usize::from(planned.priority & 7)];
        let Some(percent) = share
            .value
            .filter(|percent| u32::from(*percent) * 5 < u32::from(wanted) * 4)
        else {
            return;
        };
        let what = format!("data has {percent} % of the link when others send, and not {wanted} %");
        let fix = self
            .found("host-shares")
            .fix(HostRemedy::Shares(planned.shares));
        let consequence = super::share_cost(&self.as_planned(), percent, wanted);
        found.push(self.say("host-shares", &what, &[&share.seen], consequence, fix));
    }

    fn functions(&self, found: &mut Vec<Finding>) {
        let Some(functions) = &self.adapter.functions else {
            return;
        };
        let (is, wanted) = (functions.value, self.planned.functions);
        if is == wanted {
            return;
        }
        let what = format!("the adapter has {is} virtual functions and not {wanted}");
        let fix = self
            .found("host-functions")
            .fix(HostRemedy::Functions(wanted));
        let consequence = match is < wanted {
            // Planned hosts that do not exist.
            true => Consequence::NothingArrives,
            false => Consequence::NotSimulated(
                "functions that the file does not have are no hosts of its simulation, and send nothing \
                 there",
            ),
        };
        found.push(self.say(
            "host-functions",
            &what,
            &[&functions.seen],
            consequence,
            fix,
        ));
    }
}
