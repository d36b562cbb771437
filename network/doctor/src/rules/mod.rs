//! The rules: they find faults in facts, their consequences, and their corrections.

mod balance;
mod cost;
mod counters;
mod esxi;
mod fabric;
mod firmware;
mod freebsd;
mod gid;
mod headroom;
mod host;
mod infiniband;
mod links;
mod pairs;
mod paths;
mod pcie;
mod qos;
mod routing;
mod shown;
mod smb;
mod smb_direct;
mod software;
mod sriov;
mod switch;
mod windows_dcb;

pub use self::infiniband::check_subnet;
pub(crate) use self::paths::takes_any_order;
pub(crate) use self::pcie::may_be_idle;

use self::cost::cost;
use crate::cost_simulation::{Case, Talk};
use crate::marks::Marks;
use crate::{Consequence, Finding, SwitchFacts};
use vendors::facts::{Adapter, Evidence, Fact, HostFacts};
use vendors::intent::{Schedule, Trust};
use vendors::{HostRemedy, Intent};

/// Finds the faults of hosts and switches, each alone and in combination. The DSCPs of data and notifications
/// are `asked`, where the user has said them, else those of the fabric file and of the hosts.
pub fn check(hosts: &[HostFacts], switches: &[SwitchFacts], asked: Marks) -> Vec<Finding> {
    cost::begin();
    let mut found = Vec::new();
    let dcbx = smb::offers_dcbx(switches);
    for host in hosts {
        for adapter in host
            .adapters
            .iter()
            .filter(|adapter| is_of_interest(host, adapter))
        {
            let marks = asked.or(Marks::of_adapter(host, adapter));
            pcie::check(host, adapter, &mut found);
            gid::check(host, adapter, &mut found);
            qos::check(host, adapter, marks, &mut found);
            host::check(host, adapter, &mut found);
            counters::check(host, adapter, &mut found);
            sriov::check(host, adapter, &mut found);
        }
        balance::check(host, &mut found);
        software::check(host, &mut found);
        firmware::check(host, &mut found);
        esxi::check(host, &mut found);
        freebsd::check(host, &mut found);
        smb::check(host, dcbx, &mut found);
    }
    for switch in switches {
        let marks = marks_of(hosts, switch, asked);
        switch::check(switch, marks, &mut found);
        headroom::check(switch, marks, &mut found);
        shown::check(switch, marks, &mut found);
        fabric::check(switch, &mut found);
        routing::check(hosts, switch, &mut found);
    }
    pairs::check(hosts, switches, asked, &mut found);
    links::check(switches, &mut found);
    paths::check(hosts, switches, &mut found);
    found
}

/// The marks of the traffic through a switch.
pub(crate) fn marks_of(hosts: &[HostFacts], switch: &SwitchFacts, asked: Marks) -> Marks {
    let planned = switch.planned.as_ref();
    let planned = planned.map_or_else(Marks::default, |planned| planned.marks);
    asked
        .or(planned)
        .or(Marks::of_hosts(hosts))
        .or(switch.marks)
}

/// Whether an adapter is examined. Ports that are down are left out while another one is up: they are not in
/// use. InfiniBand links and iWARP are not RoCE.
pub(crate) fn is_of_interest(host: &HostFacts, adapter: &Adapter) -> bool {
    let other = adapter.is_infiniband() || adapter.iwarp_seen().is_some();
    !other && is_in_use(host, adapter)
}

/// Whether an adapter is up, or none of the host is.
fn is_in_use(host: &HostFacts, adapter: &Adapter) -> bool {
    let up = |adapter: &Adapter| adapter.up.as_ref().is_none_or(|up| up.value);
    up(adapter) || !host.adapters.iter().any(up)
}

/// Speed of an adapter's link in Gb/s.
fn gbps(adapter: &Adapter) -> u32 {
    adapter
        .gbps
        .as_ref()
        .map_or(100, |gbps| gbps.value.clamp(1, 800))
}

/// Three senders and a receiver of usual settings, with the speed of this adapter. The DSCPs of data and of
/// notifications are the site's where they are known; where they are not, any two do, since the simulated
/// switch has the same ones.
fn usual(adapter: &Adapter, marks: Marks) -> Case {
    let mut switch = Intent::default();
    let mut case = Case::incast(&switch, gbps(adapter));
    let (data, cnp) = (case.senders.dscp, case.senders.cnp_dscp);
    let class = |dscp: u8, switch: &Intent| switch.class_of_dscp(dscp);
    let classes = (class(data, &switch), class(cnp, &switch));
    let other = |than: u8, usual: u8| if than == usual { usual ^ 1 } else { usual };
    let data = marks
        .dscp
        .unwrap_or_else(|| other(marks.cnp.unwrap_or(cnp), data));
    let cnp = marks.cnp.unwrap_or_else(|| other(data, cnp));
    switch.dscp = [0; 64];
    switch.dscp[usize::from(cnp & 63)] = classes.1;
    switch.dscp[usize::from(data & 63)] = classes.0;
    for talk in [&mut case.senders, &mut case.receiver] {
        (talk.dscp, talk.cnp_dscp) = (data, cnp);
    }
    case.switch = switch;
    case
}

/// The cost of other settings of all adapters.
fn cost_of(adapter: &Adapter, marks: Marks, change: impl Fn(&mut Talk)) -> Consequence {
    let fixed = usual(adapter, marks);
    let mut now = fixed.clone();
    change(&mut now.senders);
    change(&mut now.receiver);
    cost(&now, &fixed)
}

/// The cost of a smaller share of the link for data, beside a host that writes in another class, at a switch
/// port with these weights: ETS is the same there as at an adapter's port.
fn share_cost(network: &Case, percent: u8, wanted: u8) -> Consequence {
    let with = |percent: u8| {
        let mut case = network.clone();
        case.switch
            .queues
            .iter_mut()
            .for_each(|queue| queue.schedule = Schedule::Strict);
        let class = usize::from(case.switch.class_of_dscp(case.senders.dscp));
        let other = usize::from(class == 0);
        case.switch.queues[class].schedule = Schedule::Weighted(percent.clamp(1, 99));
        case.switch.queues[other].schedule = Schedule::Weighted(100 - percent.clamp(1, 99));
        case.switch.trust = Trust::Dscp;
        case.switch.dscp[0] = other as u8;
        case.beside = Some(Talk {
            dscp: 0,
            priority: 0,
            pfc: 0,
            ..Talk::default()
        });
        case
    };
    cost(&with(percent), &with(wanted))
}

/// The place of findings of an adapter: the host, the interface and the device.
pub(crate) fn place_of_adapter(host: &HostFacts, adapter: &Adapter) -> String {
    match &adapter.netdev {
        Some(netdev) => format!("{}, {} ({})", host.name, netdev.value, adapter.device),
        None => format!("{}, {}", host.name, adapter.device),
    }
}

/// A finding of an adapter.
struct Found<'a> {
    rule: &'static str,
    host: &'a HostFacts,
    adapter: &'a Adapter,
}

impl Found<'_> {
    /// The host, the interface and the device.
    fn location(&self) -> String {
        place_of_adapter(self.host, self.adapter)
    }

    /// A correction, in the words of the tools that the adapter has.
    fn fix(&self, remedy: HostRemedy) -> String {
        remedy.of(self.adapter, self.host.windows.is_some())
    }

    fn say(
        &self,
        what: impl Into<String>,
        seen: &[&Evidence],
        consequence: Consequence,
        fix: impl Into<String>,
    ) -> Finding {
        let evidence = seen.iter().map(|evidence| (*evidence).clone()).collect();
        let (what, fix) = (what.into(), fix.into());
        Finding::new(self.rule, self.location(), what, evidence, consequence, fix)
    }
}

/// Reports a finding: rule, what was found, where it was seen, the consequence, and the repair.
type Say<'a> = &'a mut dyn FnMut(&'static str, &str, &[&Evidence], Consequence, &str);

/// Names for commands: the interface, and the RDMA device.
fn names(adapter: &Adapter) -> (&str, &str) {
    (
        adapter
            .netdev
            .as_ref()
            .map_or("IF", |netdev| netdev.value.as_str()),
        adapter.device.as_str(),
    )
}

/// The value of a fact, if it is known.
fn value<T: Copy>(fact: Option<&Fact<T>>) -> Option<T> {
    fact.map(|fact| fact.value)
}
