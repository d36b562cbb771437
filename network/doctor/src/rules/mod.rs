//! The rules: they find faults in facts, their consequences, and their corrections.

mod fabric;
mod gid;
mod headroom;
mod host;
mod links;
mod pairs;
mod pcie;
mod qos;
mod shown;
mod smb;
mod software;
mod switch;

use crate::cost_simulation::{Case, Talk, compare};
use crate::{Consequence, Finding, SwitchFacts};
use vendors::Intent;
use vendors::facts::{Adapter, Evidence, Fact, HostFacts};
use vendors::intent::{Schedule, Trust};

/// The default DSCP of data.
const DATA_DSCP: u8 = 26;

/// The default DSCP of notifications.
const CNP_DSCP: u8 = 48;

/// Finds the faults of hosts and switches, each alone and in combination.
pub fn check(hosts: &[HostFacts], switches: &[SwitchFacts]) -> Vec<Finding> {
    let mut found = Vec::new();
    for host in hosts {
        for adapter in host
            .adapters
            .iter()
            .filter(|adapter| is_of_interest(host, adapter))
        {
            pcie::check(host, adapter, &mut found);
            gid::check(host, adapter, &mut found);
            qos::check(host, adapter, &mut found);
            host::check(host, adapter, &mut found);
        }
        software::check(host, &mut found);
        smb::check(host, &mut found);
    }
    let dscp = hosts
        .iter()
        .flat_map(|host| &host.adapters)
        .find_map(data_dscp)
        .unwrap_or(DATA_DSCP);
    for switch in switches {
        switch::check(switch, dscp, &mut found);
        headroom::check(switch, dscp, &mut found);
        shown::check(switch, dscp, &mut found);
        fabric::check(switch, &mut found);
    }
    pairs::check(hosts, switches, &mut found);
    links::check(switches, &mut found);
    found
}

/// Whether an adapter is examined. Ports that are down are left out while another one is up: they are not in
/// use. InfiniBand links are not RoCE.
fn is_of_interest(host: &HostFacts, adapter: &Adapter) -> bool {
    let up = |adapter: &Adapter| adapter.up.as_ref().is_none_or(|up| up.value);
    let ethernet = adapter
        .ethernet
        .as_ref()
        .is_none_or(|ethernet| ethernet.value);
    ethernet && (up(adapter) || !host.adapters.iter().any(up))
}

/// The DSCP that data of an adapter leaves with, where that is known.
fn data_dscp(adapter: &Adapter) -> Option<u8> {
    adapter.tos.as_ref().map(|tos| tos.value >> 2)
}

/// Speed of an adapter's link in Gb/s.
fn gbps(adapter: &Adapter) -> u32 {
    adapter
        .gbps
        .as_ref()
        .map_or(100, |gbps| gbps.value.clamp(1, 800))
}

/// Three senders and a receiver of usual settings, with the speed of this adapter.
fn usual(adapter: &Adapter) -> Case {
    Case::incast(&Intent::default(), gbps(adapter))
}

/// The cost of a network with a fault against the fixed one.
fn cost(now: &Case, fixed: &Case) -> Consequence {
    compare(now, fixed).map_or(
        Consequence::NotSimulated("the settings make no network"),
        Consequence::Simulated,
    )
}

/// The cost of other settings of all adapters.
fn cost_of(adapter: &Adapter, change: impl Fn(&mut Talk)) -> Consequence {
    let fixed = usual(adapter);
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

/// A finding of an adapter.
struct Found<'a> {
    rule: &'static str,
    host: &'a HostFacts,
    adapter: &'a Adapter,
}

impl Found<'_> {
    /// The host, the interface and the device.
    fn place(&self) -> String {
        match &self.adapter.netdev {
            Some(netdev) => format!(
                "{}, {} ({})",
                self.host.name, netdev.value, self.adapter.device
            ),
            None => format!("{}, {}", self.host.name, self.adapter.device),
        }
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
        Finding::new(self.rule, self.place(), what, evidence, consequence, fix)
    }
}

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
