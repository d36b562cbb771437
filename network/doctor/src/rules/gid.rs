//! Addresses: GIDs, MTU and the state of the link.

use std::net::IpAddr;

use super::{
    Adapter, Consequence, Fact, Finding, Found, HostFacts, Marks, cost, cost_of, names, usual,
};
use vendors::HostRemedy;
use vendors::facts::GidEntry;

/// Interface MTU that RoCE's largest MTU needs: 4096 bytes and the headers (IPv6, UDP, BTH, RETH, ICRC).
const MTU_NEEDED: u32 = 4096 + 40 + 8 + 12 + 16 + 4;

pub(super) fn check(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    if let Some(up) = adapter.up.as_ref().filter(|up| !up.value) {
        let fix = format!(
            "{}; then cable, transceiver, FEC and speed at both ends",
            own("link-down").fix(HostRemedy::Up)
        );
        found.push(own("link-down").say(
            "no port is up",
            &[&up.seen],
            Consequence::NothingArrives,
            fix,
        ));
        return;
    }
    if let (Some(now), Some(most)) = (&adapter.gbps, &adapter.gbps_max)
        && now.value < most.value
    {
        let mut case = usual(adapter, Marks::of_adapter(host, adapter));
        case.gbps = now.value;
        let mut fixed = case.clone();
        fixed.gbps = most.value;
        let what = format!(
            "the link runs at {} Gb/s, and the adapter has modes up to {}",
            now.value, most.value
        );
        let fix = format!(
            "{}; cable, transceiver and the switch's port must have that speed",
            own("link-speed").fix(HostRemedy::Speed)
        );
        found.push(own("link-speed").say(what, &[&now.seen, &most.seen], cost(&case, &fixed), fix));
    }
    gids(host, adapter, found);
    if let Some(mtu) = adapter.mtu.as_ref().filter(|mtu| mtu.value < MTU_NEEDED)
        && host.planned.is_none()
    {
        let fits = [2048, 1024, 512, 256]
            .into_iter()
            .find(|roce| mtu.value >= roce + MTU_NEEDED - 4096)
            .unwrap_or(256);
        let consequence = cost_of(adapter, Marks::of_adapter(host, adapter), |talk| {
            talk.mtu = fits
        });
        let what = format!(
            "an interface of {} bytes carries RoCE packets of {fits} bytes, and not of 4096",
            mtu.value
        );
        let fix = own("mtu").fix(HostRemedy::Mtu(9000));
        found.push(own("mtu").say(what, &[&mtu.seen], consequence, fix));
    }
    if let Some(mode) = adapter.roce_v2.as_ref().filter(|mode| !mode.value) {
        let what = "connections of rdma_cm use RoCEv1, which no router forwards and no DSCP marks";
        let fix = own("roce-v1").fix(HostRemedy::RoceV2);
        let consequence = cost_of(adapter, Marks::of_adapter(host, adapter), |talk| {
            (talk.dscp, talk.ecn) = (0, false);
        });
        found.push(own("roce-v1").say(what, &[&mode.seen], consequence, fix));
    }
}

fn gids(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let Some(first) = adapter.gids.first() else {
        return;
    };
    if !has_usable_gid(adapter, None) {
        let what = "the table has no RoCEv2 GID with an address that is routed";
        let fix = format!(
            "{}: each address makes a GID of RoCEv1 and one of RoCEv2",
            own("gid-empty").fix(HostRemedy::Address)
        );
        found.push(own("gid-empty").say(what, &[&first.seen], Consequence::NothingArrives, fix));
        return;
    }
    gid_variables(host, adapter, found);
    address_without_gid(host, adapter, first, found);
}

/// Whether a GID of RoCEv2 with an address that is routed is at this index, or at any.
fn has_usable_gid(adapter: &Adapter, index: Option<u32>) -> bool {
    adapter
        .gids
        .iter()
        .filter(|entry| index.is_none_or(|index| entry.value.index == index))
        .filter(|entry| entry.value.v2 != Some(false))
        .any(|entry| entry.value.is_routable())
}

/// Variables of programs, such as `NCCL_IB_GID_INDEX`, that name an entry which is of no use.
fn gid_variables(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = Found {
        rule: "gid-index",
        host,
        adapter,
    };
    let unusable = host
        .gid_variables
        .iter()
        .filter(|variable| !has_usable_gid(adapter, Some(variable.value.1)));
    for variable in unusable {
        let (name, index) = &variable.value;
        let right = adapter
            .gids
            .iter()
            .find(|entry| entry.value.v2 == Some(true) && entry.value.is_routable());
        let Some(right) = right else { continue };
        let entry = adapter
            .gids
            .iter()
            .find(|entry| entry.value.index == *index);
        let kind = match entry {
            None => "is empty",
            Some(entry) if entry.value.v2 == Some(false) => "is of RoCEv1",
            Some(_) => "is a link-local address",
        };
        let what = format!(
            "{name}={index}, and that entry of {} {kind}",
            adapter.device
        );
        let fix = format!("{name}={}", right.value.index);
        found.push(own.say(
            what,
            &[&variable.seen, &right.seen],
            Consequence::NothingArrives,
            fix,
        ));
    }
}

/// An address of the interface that no GID has: they are in different network namespaces.
fn address_without_gid(
    host: &HostFacts,
    adapter: &Adapter,
    first: &Fact<GidEntry>,
    found: &mut Vec<Finding>,
) {
    let own = Found {
        rule: "gid-address",
        host,
        adapter,
    };
    let (netdev, _) = names(adapter);
    let v4 = |address: &IpAddr| address.is_ipv4();
    let missing = adapter
        .addresses
        .iter()
        .filter(|fact| v4(&fact.value))
        .find(|fact| {
            !adapter
                .gids
                .iter()
                .any(|entry| entry.value.address == fact.value)
        });
    if let Some(address) = missing {
        let what = format!(
            "{} is an address of {netdev}, and no GID of {} has it",
            address.value, adapter.device
        );
        let fix = "in a container: the address of the RDMA device's own network namespace (rdma system set \
            netns exclusive)";
        found.push(own.say(
            what,
            &[&address.seen, &first.seen],
            Consequence::NothingArrives,
            fix,
        ));
    }
}
