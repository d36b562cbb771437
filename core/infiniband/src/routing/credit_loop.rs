//! Loops of credits: channels, each of which waits for room in the next one (Dally and Seitz, 1987). A
//! channel is a port of a switch that sends to another switch. One waits for another where a packet uses
//! both, one after the other; tables without such a loop cannot stand still.

use super::{Cabling, Tables};
use crate::subnet::End;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A loop of credits that tables make possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditLoop {
    /// The ports that send into the channels, in order: each one's packets wait for the next one's, and the
    /// last one's for the first one's.
    pub ports: Vec<End>,
    /// The source and the destination of packets that use the last channel, and then the first one.
    pub closed_by: [usize; 2],
}

/// By channel: the channels that follow it, each with a destination that makes it follow.
type Followers = BTreeMap<End, BTreeMap<End, usize>>;

impl Tables {
    /// The shortest loop of credits through the first channel that is in one.
    pub fn credit_loop(&self, cabling: &Cabling) -> Option<CreditLoop> {
        let followers = self.followers(cabling);
        let start = channel_in_loop(&followers)?;
        let ports = shortest_loop(&followers, start);
        let last = *ports.last()?;
        let to = *followers.get(&last)?.get(&ports[0])?;
        let from = self.source_over(cabling, last, to).unwrap_or(to);
        Some(CreditLoop {
            ports,
            closed_by: [from, to],
        })
    }

    /// The next switch of packets for a host, by each port that they may leave a switch by.
    fn next_switches(
        &self,
        cabling: &Cabling,
        switch: usize,
        host: usize,
    ) -> impl Iterator<Item = (End, usize)> {
        let ports = self.ports(cabling, switch, host);
        let ends = ports.map(move |port| End { node: switch, port });
        ends.filter_map(|end| Some((end, cabling.neighbour(end)?.node)))
            .filter(|(_, node)| *node >= cabling.hosts())
    }

    fn followers(&self, cabling: &Cabling) -> Followers {
        let mut found = Followers::new();
        for host in 0..cabling.hosts() {
            // Switches that packets of other hosts come to.
            let mut seen: BTreeSet<usize> = cabling.leaves.iter().copied().collect();
            let mut next: Vec<usize> = cabling.leaves.clone();
            while let Some(switch) = next.pop() {
                for (channel, after) in self.next_switches(cabling, switch, host) {
                    for (follower, _) in self.next_switches(cabling, after, host) {
                        found
                            .entry(channel)
                            .or_default()
                            .entry(follower)
                            .or_insert(host);
                    }
                    if seen.insert(after) {
                        next.push(after);
                    }
                }
            }
        }
        found
    }

    /// A host whose packets to the host `to` use a channel.
    fn source_over(&self, cabling: &Cabling, channel: End, to: usize) -> Option<usize> {
        let passes = |leaf: usize| {
            let (mut seen, mut next) = (BTreeSet::from([leaf]), alloc::vec![leaf]);
            while let Some(switch) = next.pop() {
                for (end, after) in self.next_switches(cabling, switch, to) {
                    if end == channel {
                        return true;
                    }
                    if seen.insert(after) {
                        next.push(after);
                    }
                }
            }
            false
        };
        let mut leaves = cabling.leaves.iter().copied();
        let leaf = leaves.find(|leaf| passes(*leaf))?;
        cabling.hosts_at(leaf).find(|host| *host != to)
    }
}

/// The first channel that depth-first search finds twice on one way.
fn channel_in_loop(followers: &Followers) -> Option<End> {
    // False: on the way; true: left behind.
    let mut seen: BTreeMap<End, bool> = BTreeMap::new();
    for start in followers.keys() {
        if seen.contains_key(start) {
            continue;
        }
        seen.insert(*start, false);
        let after = |channel: &End| followers.get(channel).into_iter().flat_map(BTreeMap::keys);
        let mut way = alloc::vec![(*start, after(start))];
        while let Some((channel, rest)) = way.last_mut() {
            match rest.next() {
                None => {
                    seen.insert(*channel, true);
                    way.pop();
                }
                Some(next) => match seen.get(next) {
                    Some(false) => return Some(*next),
                    Some(true) => {}
                    None => {
                        seen.insert(*next, false);
                        way.push((*next, after(next)));
                    }
                },
            }
        }
    }
    None
}

/// The shortest way from a channel back to it.
fn shortest_loop(followers: &Followers, start: End) -> Vec<End> {
    let mut before: BTreeMap<End, End> = BTreeMap::new();
    let mut now = alloc::vec![start];
    while !now.is_empty() && !before.contains_key(&start) {
        let mut then = Vec::new();
        for channel in now {
            for next in followers.get(&channel).into_iter().flat_map(BTreeMap::keys) {
                if !before.contains_key(next) {
                    before.insert(*next, channel);
                    then.push(*next);
                }
            }
        }
        now = then;
    }
    let mut ports = Vec::new();
    let mut at = start;
    while let Some(channel) = before.get(&at) {
        at = *channel;
        ports.push(at);
        if at == start {
            break;
        }
    }
    ports.reverse();
    ports
}
