//! Faults that an adapter has counted.

use super::{Adapter, Consequence, Finding, Found, HostFacts};
use vendors::CountedFault;
use vendors::facts::Evidence;

/// Kinds of faults, each with its rule, what happened, and where the cause is to be looked for.
const KINDS: [(CountedFault, &str, &str, &str); 7] = [
    (
        CountedFault::Lost,
        "counted-losses",
        "packets were lost or overtaken on the way, and sent again",
        "drops at the switches' ports of this path (their counters), PFC for the class of data at every hop, \
         and paths that reorder; then read the counters again",
    ),
    (
        CountedFault::Discarded,
        "counted-discards",
        "the adapter dropped packets that had arrived",
        "PFC of this adapter for the priority of data, and what slows the host down: PCIe link, NUMA node, \
         receives that programs post too late; then read the counters again",
    ),
    (
        CountedFault::Damaged,
        "counted-damage",
        "frames arrived damaged, or the link has failed",
        "cable, transceiver and FEC at both ends; then read the counters again",
    ),
    (
        CountedFault::Ended,
        "counted-retries",
        "connections ended, because a request was sent again too often",
        "the path to the peer (its link, routes, MTU and losses), receives that the peer posts too late, and \
         the timeout and retry count of the program's queue pairs",
    ),
    (
        CountedFault::TooLong,
        "counted-oversize",
        "frames arrived that are longer than this adapter takes, and were dropped",
        "the same MTU at both ends: ip link set dev IF mtu 9000",
    ),
    (
        CountedFault::Ignored,
        "counted-ignored",
        "notifications of congestion were ignored: the reaction point of DCQCN is off",
        "DCQCN as reaction point for the priority of data, at this adapter",
    ),
    (
        CountedFault::Storm,
        "counted-storm",
        "the adapter sent pauses for so long that it stopped, and dropped what arrived",
        "what slows this host down: PCIe link, memory, a program that does not post receives; then read the \
         counters again",
    ),
];

pub(super) fn check(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    for (kind, rule, what, fix) in KINDS {
        let own: Vec<_> = adapter
            .counted
            .iter()
            .filter(|(_, (other, _))| *other == kind)
            .map(|(name, (_, fact))| (name, fact))
            .collect();
        if own.is_empty() {
            continue;
        }
        let counters: Vec<String> = own
            .iter()
            .map(|(name, fact)| format!("{name} {}", fact.value))
            .collect();
        let seen: Vec<&Evidence> = own.iter().map(|(_, fact)| &fact.seen).collect();
        let since = host.before.as_ref().filter(|_| adapter.is_since_before);
        let since = since.map_or_else(String::new, |before| format!(", since {before}"));
        let what = format!("{what}: {}{since}", counters.join(", "));
        let consequence = Consequence::NotSimulated(match adapter.is_since_before {
            true => "it is counted how often, and not of how many packets",
            false => "a counter does not say when: it counts since the driver was loaded",
        });
        let own = Found {
            rule,
            host,
            adapter,
        };
        found.push(own.say(what, &seen, consequence, fix));
    }
}
