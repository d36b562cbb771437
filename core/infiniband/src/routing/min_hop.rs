//! Shortest paths, as OpenSM's `minhop`: at each switch, of the ports on shortest paths the one with the
//! fewest destinations so far.

use super::distances::{FAR, distances_from};
use super::{Cabling, Choice, Load, Tables};
use crate::subnet::End;
use alloc::vec::Vec;

pub(super) fn route(cabling: &Cabling, tables: &mut Tables) {
    balance(cabling, tables, |leaf| {
        let hops = distances_from(cabling, leaf);
        move |switch, next: usize| hops[next] != FAR && hops[next].wrapping_add(1) == hops[switch]
    });
}

/// Fills tables: of the ports to switches that are a step towards a leaf, a switch takes the one with the
/// fewest destinations. `steps` gives, for a leaf, whether a switch leads to another one.
pub(super) fn balance<F>(cabling: &Cabling, tables: &mut Tables, steps: impl Fn(usize) -> F)
where
    F: Fn(usize, usize) -> bool,
{
    let mut load = Load::new(cabling);
    let mut last: Option<(usize, F)> = None;
    let mut allowed = Vec::new();
    for host in 0..cabling.hosts {
        let Some(End { node: leaf, port }) = cabling.leaf_of(host) else {
            continue;
        };
        if last.as_ref().is_none_or(|(known, _)| *known != leaf) {
            last = Some((leaf, steps(leaf)));
        }
        let Some((_, is_step)) = &last else { continue };
        for switch in cabling.switches() {
            allowed.clear();
            if switch == leaf {
                allowed.push(port);
            } else {
                let ports = cabling.to_switches(switch);
                let ports = ports.filter(|(_, next)| is_step(switch, *next));
                allowed.extend(ports.map(|(port, _)| port));
            }
            if let Some(port) = load.least(cabling, switch, &allowed) {
                load.add(cabling, switch, port);
                let allowed = &allowed;
                tables.add_route(cabling, switch, host, &Choice { port, allowed });
            }
        }
    }
}
