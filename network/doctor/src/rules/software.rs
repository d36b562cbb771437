//! Kernel, firewall and software devices of a host.

use super::{Adapter, Consequence, Fact, Finding, Found, HostFacts, names};
use vendors::facts::PortDrop;

pub(super) fn check(host: &HostFacts, found: &mut Vec<Finding>) {
    let Some(adapter) = host.adapters.first() else {
        return;
    };
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    found.extend(dropping(host, &own("firewall")));
    software_devices(host, found);
    let peer = "the simulated host has one memory and no GPU; it shows in transfers between GPU and adapter, \
                which then go through the processor";
    if let (Some(acs), Some(_)) = (host.acs_redirects.first(), host.gpus.first()) {
        let what = "ACS redirects peer-to-peer requests: data between GPU and \
                   adapter goes through the root complex";
        let fix =
            "setpci -s BRIDGE ECAP_ACS+6.w=0, or ACS off in the firmware settings of the host";
        found.push(own("acs").say(what, &[&acs.seen], Consequence::NotSimulated(peer), fix));
    }
    if let (Some(iommu), Some(_)) = (
        host.iommu_translates.as_ref().filter(|iommu| iommu.value),
        host.gpus.first(),
    ) {
        let what =
            "the IOMMU translates all accesses of devices, those between GPU and adapter included";
        let fix = "iommu=pt on the kernel's command line";
        found.push(own("iommu").say(what, &[&iommu.seen], Consequence::NotSimulated(peer), fix));
    }
}

/// A rule of the firewall that drops packets of software devices. Those of a RoCE adapter do not pass
/// netfilter.
fn dropping(host: &HostFacts, own: &Found<'_>) -> Option<Finding> {
    let is_software = |name: &str| name.starts_with("rxe") || name.starts_with("siw");
    let adapters = host
        .adapters
        .iter()
        .filter(|adapter| is_software(&adapter.device));
    let adapters = adapters.filter_map(|adapter| adapter.netdev.as_ref());
    let devices = host.software_devices.iter().chain(adapters);
    let on: Vec<&str> = devices.map(|device| device.value.as_str()).collect();
    let concerns = |rule: &&Fact<PortDrop>| on.iter().any(|on| rule.value.concerns(on));
    let dropping = host.dropped_4791.iter().filter(concerns);
    // A rule that drops all says more than one that drops a part.
    let rule = dropping.min_by_key(|rule| rule.value.is_partial)?;
    let fix = accept(&rule.seen.text);
    let (what, consequence) = match rule.value.is_partial {
        false => (
            "the firewall drops UDP port 4791, which carries RoCEv2 of software devices",
            Consequence::NothingArrives,
        ),
        true => (
            "the firewall drops UDP port 4791, which carries RoCEv2 of software devices, of packets \
                 that meet the other conditions of the rule",
            Consequence::NotSimulated(
                "who sends such packets is not shown; no packet of these peers arrives",
            ),
        ),
    };
    Some(own.say(what, &[&rule.seen], consequence, fix))
}

/// Software devices on interfaces of adapters that take the same packets.
fn software_devices(host: &HostFacts, found: &mut Vec<Finding>) {
    for device in &host.software_devices {
        let hardware = |adapter: &&Adapter| {
            let on = adapter
                .netdev
                .as_ref()
                .is_some_and(|netdev| netdev.value == device.value);
            on && !adapter.device.starts_with("rxe") && !adapter.device.starts_with("siw")
        };
        let Some(adapter) = host.adapters.iter().find(hardware) else {
            continue;
        };
        let (netdev, name) = names(adapter);
        let what = format!(
            "a software RDMA device is on {netdev}, whose packets {name} takes: both answer port 4791"
        );
        let own = Found {
            rule: "software-device",
            host,
            adapter,
        };
        let fix = "rdma link delete of the software device";
        found.push(own.say(what, &[&device.seen], Consequence::NothingArrives, fix));
    }
}

/// The command that lets RoCEv2 through, of the tool that has shown the rule.
fn accept(rule: &str) -> &'static str {
    match rule.trim_start().starts_with('-') {
        true => "iptables -I INPUT -p udp --dport 4791 -j ACCEPT, and the cloud's firewall",
        false => {
            "nft insert rule inet filter input udp dport 4791 accept, with the table and chain of the rule; \
             and the cloud's firewall"
        }
    }
}
