//! Ports of one host that carried uneven load between two snapshots.

use super::{Adapter, Consequence, Finding, Found, HostFacts, is_in_use};
use vendors::facts::{Evidence, Fact};

/// Less than this is no load that could be uneven: monitoring, and the traffic of one program.
const LOAD_BYTES: u64 = 10_000_000_000;

/// A port that sent less than one part in so many of what another one sent does not share the load.
const SHARE: u64 = 2;

/// A port, and the bytes that it sent since the earlier snapshot.
type Sent<'a> = (&'a Adapter, &'a Fact<u64>);

pub(super) fn check(host: &HostFacts, found: &mut Vec<Finding>) {
    let counted: Vec<Sent<'_>> = host
        .adapters
        .iter()
        .filter(|adapter| adapter.is_since_before && is_in_use(host, adapter))
        .filter_map(|adapter| Some((adapter, adapter.sent.values().next()?)))
        .collect();
    let busiest = |ports: &[Sent<'_>]| ports.iter().map(|(_, sent)| sent.value).max();
    for (index, (adapter, _)) in counted.iter().enumerate() {
        let alike: Vec<Sent<'_>> = counted
            .iter()
            .filter(|(other, _)| are_alike(adapter, other))
            .copied()
            .collect();
        // Ports that are alike are judged once.
        let is_first = counted[..index]
            .iter()
            .all(|(earlier, _)| !are_alike(adapter, earlier));
        let most = busiest(&alike).unwrap_or_default();
        let idle = alike.iter().filter(|(_, sent)| sent.value < most / SHARE);
        if is_first && most >= LOAD_BYTES && idle.count() > 0 {
            found.push(uneven(host, &alike));
        }
    }
}

/// Whether two ports could share a load: the same kind of link and speed, and the same counter of bytes.
fn are_alike(one: &Adapter, other: &Adapter) -> bool {
    let speed = |adapter: &Adapter| adapter.gbps.as_ref().map(|gbps| gbps.value);
    let counter = |adapter: &Adapter| adapter.sent.keys().next().cloned();
    speed(one).is_some()
        && speed(one) == speed(other)
        && one.is_infiniband() == other.is_infiniband()
        && counter(one) == counter(other)
}

fn uneven(host: &HostFacts, ports: &[Sent<'_>]) -> Finding {
    let mut ports: Vec<Sent<'_>> = ports.to_vec();
    ports.sort_by_key(|(_, sent)| std::cmp::Reverse(sent.value));
    let each: Vec<String> = ports
        .iter()
        .map(|(adapter, sent)| format!("{} {:.1} GB", adapter.device, sent.value as f64 / 1e9))
        .collect();
    let before = host.before.as_deref().unwrap_or_default();
    let what = format!(
        "ports of one speed sent uneven amounts since {before}: {}",
        each.join(", ")
    );
    let seen: Vec<&Evidence> = ports.iter().map(|(_, sent)| &sent.seen).collect();
    let fix = "if these ports are paths of equal cost: more connections (queue pairs) than ports, a hash \
               over UDP ports and addresses (layer3+4 of a bond, ECMP with layer 4), and each program or \
               GPU on the port of its own NUMA node; if one of them is not meant for this traffic, nothing";
    let own = Found {
        rule: "uneven-ports",
        host,
        adapter: ports[0].0,
    };
    let why = "a counter does not say which connections were on which port";
    own.say(what, &seen, Consequence::NotSimulated(why), fix)
}
