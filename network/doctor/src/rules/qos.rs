//! Marking, DSCP maps, PFC, ECN and ETS of an adapter.

use super::{
    Adapter, CNP_DSCP, Consequence, DATA_DSCP, Fact, Finding, Found, HostFacts, cost, cost_of,
    data_dscp, names, share_cost, usual,
};
use crate::cost_simulation::Case;

/// Classes of data with a smaller share than this are starved by the others.
const SHARE_MIN: u8 = 20;

pub(super) fn check(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    // Adapters of Windows have their own rules.
    if host.windows.is_some() {
        return;
    }
    marking(host, adapter, found);
    let before = found.len();
    priorities(host, adapter, found);
    notifications(host, adapter, found);
    shares(host, adapter, found);
    if let Some(pause) = adapter.global_pause.as_ref().filter(|pause| pause.value) {
        let (netdev, _) = names(adapter);
        let what = "802.3x pause is on: it stops all priorities, and most adapters then ignore PFC";
        let fix = format!("ethtool -A {netdev} autoneg off rx off tx off");
        let own = Found {
            rule: "global-pause",
            host,
            adapter,
        };
        found.push(own.say(
            what,
            &[&pause.seen],
            cost_of(adapter, |talk| talk.pfc = 0),
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
        let fix = "rockery plan FILE --for HOST=mlnx@5.8 --out DIR writes the script and its unit";
        let consequence = match cost_of(adapter, |talk| (talk.priority, talk.pfc) = (0, 0)) {
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

fn marking(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let (_, device) = names(adapter);
    let Some(tos) = &adapter.tos else { return };
    let fix = format!("cma_roce_tos -d {device} -p 1 -t 106   # DSCP 26 and ECT(0)");
    // A fabric file may plan it so.
    let planned = host.planned.as_ref();
    if tos.value >> 2 == 0 && planned.is_none_or(|planned| planned.dscp != 0) {
        let what = format!(
            "connections leave with ToS {}: DSCP 0, the class of everything else",
            tos.value
        );
        let consequence = cost_of(adapter, |talk| {
            (talk.dscp, talk.priority, talk.ecn) = (0, 0, false)
        });
        found.push(own("tos-zero").say(what, &[&tos.seen], consequence, fix));
    } else if tos.value & 3 == 0 && planned.is_none_or(|planned| planned.ecn) {
        let what = format!(
            "ToS {} has DSCP {}, and says that packets take no part in ECN",
            tos.value,
            tos.value >> 2
        );
        let fix = format!("cma_roce_tos -d {device} -p 1 -t {}", tos.value | 2);
        found.push(own("tos-no-ect").say(
            what,
            &[&tos.seen],
            cost_of(adapter, |talk| talk.ecn = false),
            fix,
        ));
    }
}

fn priorities(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let (netdev, _) = names(adapter);
    let Some(pfc) = &adapter.pfc else { return };
    let planned = host.planned.as_ref();
    let usual = planned.map_or(DATA_DSCP, |planned| planned.dscp);
    let dscp = data_dscp(adapter)
        .filter(|dscp| *dscp != 0)
        .unwrap_or(usual);
    if let Some(trust) = adapter.trusts_dscp.as_ref().filter(|trust| !trust.value) {
        let what =
            "the adapter trusts PCP, which untagged packets do not have: data is in priority 0";
        let fix = format!(
            "mlnx_qos -i {netdev} --trust dscp   (or: dcb apptrust set dev {netdev} order dscp)"
        );
        found.push(own("trust").say(
            what,
            &[&trust.seen],
            cost_of(adapter, |talk| talk.priority = 0),
            fix,
        ));
        return;
    }
    // PFC is as planned: other differences are found by the comparison with the file.
    if planned.is_some_and(|planned| planned.pfc == pfc.value) {
        return;
    }
    let map = adapter.dscp.as_ref();
    let priority = map.map_or(3, |map| map.value[usize::from(dscp & 63)]);
    let command = |mask: u8| pfc_command(adapter, mask);
    if pfc.value == 0 {
        let what = format!(
            "PFC is off for all priorities: pauses of the switch for priority {priority} are not obeyed"
        );
        let consequence = cost_of(adapter, |talk| talk.pfc = 0);
        found.push(own("pfc-off").say(what, &[&pfc.seen], consequence, command(1 << priority)));
    } else if pfc.value == 0xff {
        let what =
            "PFC is on for all priorities: a pause stops notifications and everything else too";
        let consequence = Consequence::NotSimulated(
            "switches pause the priorities only that they have PFC for, and the simulated adapter pauses \
             that of data only; it shows with traffic of other priorities, behind a congested receiver",
        );
        found.push(own("pfc-all").say(what, &[&pfc.seen], consequence, command(1 << priority)));
    } else if pfc.value >> priority & 1 == 0 {
        let data = Data { dscp, priority };
        found.push(unpaused(host, adapter, pfc, data));
    } else {
        shared_buffer(host, adapter, priority, found);
    }
}

/// Where an adapter puts data.
struct Data {
    dscp: u8,
    priority: u8,
}

/// PFC is on, but not for the priority of data.
fn unpaused(host: &HostFacts, adapter: &Adapter, pfc: &Fact<u8>, data: Data) -> Finding {
    let Data { dscp, priority } = data;
    let (netdev, _) = names(adapter);
    let map = adapter.dscp.as_ref();
    let on = pfc.value.trailing_zeros() as u8;
    let mut seen = vec![&pfc.seen];
    seen.extend(map.map(|map| &map.seen));
    let standard = dscp == DATA_DSCP && priority == 3;
    // The usual map decides which of both is intended.
    let (rule, fix) = match standard {
        true => ("pfc-priority", pfc_command(adapter, 1 << priority)),
        false => (
            "dscp-map",
            format!("mlnx_qos -i {netdev} --dscp2prio set,{dscp},{on}"),
        ),
    };
    let what = format!(
        "data (DSCP {dscp}) is in priority {priority}, and PFC is on for {}",
        vendors::text::ranges(vendors::text::classes(pfc.value))
    );
    let consequence = match standard {
        true => cost_of(adapter, |talk| talk.pfc = 0),
        false => cost_of(adapter, |talk| talk.priority = priority),
    };
    let own = Found {
        rule,
        host,
        adapter,
    };
    own.say(what, &seen, consequence, fix)
}

/// The receive buffer of the paused priority is filled by traffic that is not paused.
fn shared_buffer(host: &HostFacts, adapter: &Adapter, priority: u8, found: &mut Vec<Finding>) {
    let (netdev, _) = names(adapter);
    if let Some(buffers) = &adapter.buffer_of_priority
        && buffers.value[usize::from(priority)] == buffers.value[0]
        && priority != 0
    {
        let what = format!(
            "priority {priority} shares receive buffer {} with priority 0, which is not paused",
            buffers.value[0]
        );
        let fix = format!(
            "mlnx_qos -i {netdev} --prio2buffer 0,0,0,1,0,0,0,0   # and --buffer_size for both"
        );
        let consequence = Consequence::NotSimulated(
            "the simulated adapter has one receive buffer, and does not divide it by \
                priority; it shows when traffic of priority 0 fills the adapter's buffer",
        );
        let own = Found {
            rule: "receive-buffer",
            host,
            adapter,
        };
        found.push(own.say(what, &[&buffers.seen], consequence, fix));
    }
}

/// The command that turns PFC on for some priorities.
fn pfc_command(adapter: &Adapter, mask: u8) -> String {
    let (netdev, _) = names(adapter);
    let bits: Vec<String> = (0..8)
        .map(|priority| (mask >> priority & 1).to_string())
        .collect();
    let os = if adapter.dcbx_by_host.as_ref().is_some_and(|os| !os.value) {
        " --dcbx os"
    } else {
        ""
    };
    format!("mlnx_qos -i {netdev}{os} --pfc {}", bits.join(","))
}

fn notifications(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let (netdev, device) = names(adapter);
    if let Some(cnp) = adapter
        .cnp_dscp
        .as_ref()
        .filter(|cnp| cnp.value != CNP_DSCP)
        && host.planned.is_none()
    {
        let what = format!(
            "notifications leave with DSCP {}: the usual rule of switches is for DSCP 48",
            cnp.value
        );
        let consequence = cost_of(adapter, |talk| talk.cnp_dscp = cnp.value);
        let fix = format!(
            "echo 48 > /sys/class/net/{netdev}/ecn/roce_np/cnp_dscp; mlxconfig -d {device} set \
                CNP_DSCP_P1=48 keeps it"
        );
        found.push(own("cnp-dscp").say(what, &[&cnp.seen], consequence, fix));
    }
    if let (Some(priority), Some(pfc)) = (&adapter.cnp_priority, &adapter.pfc)
        && pfc.value != 0xff
        && pfc.value >> (priority.value & 7) & 1 == 1
    {
        let what = format!(
            "notifications have priority {}, which is paused as data is",
            priority.value
        );
        let fix = format!("echo 6 > /sys/class/net/{netdev}/ecn/roce_np/cnp_802p_prio");
        let fixed = Case {
            exchange: true,
            ..usual(adapter)
        };
        let mut now = fixed.clone();
        (now.senders.cnp_priority, now.receiver.cnp_priority) =
            (priority.value & 7, priority.value & 7);
        let consequence = cost(&now, &fixed);
        found.push(own("cnp-priority").say(what, &[&priority.seen, &pfc.seen], consequence, fix));
    }
    dcqcn(host, adapter, found);
}

/// DCQCN is configured for each priority, separately for both ends of a connection.
fn dcqcn(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let (netdev, _) = names(adapter);
    for (rule, map, role, effect) in [
        (
            "ecn-notification-point",
            &adapter.notifies,
            "roce_np",
            "marked packets are not answered with notifications",
        ),
        (
            "ecn-reaction-point",
            &adapter.reacts,
            "roce_rp",
            "notifications do not slow senders down",
        ),
    ] {
        let priority = host.planned.as_ref().map_or(3, |planned| planned.priority);
        let is_meant = host.planned.as_ref().is_none_or(|planned| planned.dcqcn);
        let Some(on) = map.get(&priority).filter(|on| !on.value && is_meant) else {
            continue;
        };
        let fix =
            format!("echo 1 > /sys/class/net/{netdev}/ecn/{role}/enable/{priority}, at both ends");
        let what = format!("DCQCN is off for priority {priority}: {effect}");
        found.push(own(rule).say(
            what,
            &[&on.seen],
            cost_of(adapter, |talk| talk.ecn = false),
            fix,
        ));
    }
}

fn shares(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    // Shares are compared with the fabric file's elsewhere.
    if host.planned.is_some() {
        return;
    }
    let dscp = data_dscp(adapter).unwrap_or(DATA_DSCP);
    let priority = adapter
        .dscp
        .as_ref()
        .map_or(3, |map| map.value[usize::from(dscp & 63)]);
    let Some(class) = adapter.class_of_priority.get(&priority) else {
        return;
    };
    let Some(share) = adapter.shares.get(class) else {
        return;
    };
    let Some(percent) = share.value.filter(|percent| *percent < SHARE_MIN) else {
        return;
    };
    let (netdev, _) = names(adapter);
    // Eight equal shares are the default of an adapter.
    let others = adapter.shares.values().filter_map(|share| share.value);
    if others.max().is_none_or(|most| most <= percent * 2) {
        return;
    }
    let what = format!("data has {percent} % of the link when other classes send");
    let fix = format!(
        "mlnx_qos -i {netdev} --tsa ets,ets,ets,ets,ets,ets,strict,ets --tcbw 47,1,1,48,1,1,0,1"
    );
    let consequence = share_cost(&usual(adapter), percent, 50);
    let own = Found {
        rule: "ets-share",
        host,
        adapter,
    };
    found.push(own.say(what, &[&share.seen], consequence, fix));
}
