//! The division of the network into parts, one for each thread: hosts with their switch, switches with most
//! of their neighbours. It affects speed alone, never results.

use super::scenario::Scenario;
use fabric::topology::Node;

/// Parts at most.
pub const THREADS_MAX: u32 = 64;

pub(super) struct Partition {
    pub(super) count: usize,
    pub(super) switches: Vec<u8>,
    pub(super) hosts: Vec<u8>,
}

pub(super) fn partition(scenario: &Scenario) -> Partition {
    let topology = &scenario.topology;
    let attachments = topology.attachments();
    let mut leaves: Vec<u32> = attachments
        .iter()
        .flatten()
        .map(|(switch, _)| *switch)
        .collect();
    leaves.sort_unstable();
    leaves.dedup();
    let wanted = scenario.threads.clamp(1, THREADS_MAX) as usize;
    // Hosts that are linked with each other would need parts of their own to be found: one is enough.
    let count = if attachments.contains(&None) {
        1
    } else {
        wanted.min(leaves.len().max(1))
    };
    let mut switches: Vec<Option<u8>> = vec![None; topology.switches() as usize];
    for (index, leaf) in leaves.iter().enumerate() {
        switches[*leaf as usize] = Some((index * count / leaves.len()) as u8);
    }
    let mut neighbours = vec![Vec::new(); switches.len()];
    for link in topology.links() {
        if let (Node::Switch(one), Node::Switch(other)) = (link.ends[0].node, link.ends[1].node) {
            neighbours[one as usize].push(other);
            neighbours[other as usize].push(one);
        }
    }
    // From the leaves upwards, stage by stage.
    while switches.contains(&None) {
        let before = switches.clone();
        for (number, place) in switches
            .iter_mut()
            .enumerate()
            .filter(|(_, place)| place.is_none())
        {
            let mut votes = vec![0_u32; count];
            for part in neighbours[number]
                .iter()
                .filter_map(|other| before[*other as usize])
            {
                votes[usize::from(part)] += 1;
            }
            let most = votes.iter().copied().max().unwrap_or(0);
            if most > 0 {
                // Where several have as many, they take turns.
                let best: Vec<usize> = (0..count).filter(|part| votes[*part] == most).collect();
                *place = Some(best[number % best.len()] as u8);
            }
        }
        if before == switches {
            switches
                .iter_mut()
                .for_each(|place| *place = place.or(Some(0)));
        }
    }
    let switches: Vec<u8> = switches
        .into_iter()
        .map(|place| place.unwrap_or(0))
        .collect();
    let hosts = attachments
        .iter()
        .map(|at| at.map_or(0, |(switch, _)| switches[switch as usize]))
        .collect();
    Partition {
        count,
        switches,
        hosts,
    }
}
