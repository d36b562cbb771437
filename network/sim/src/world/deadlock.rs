//! PFC deadlocks: queues that pause each other in a circle.
//!
//! A queue waits while the next switch has it paused. That switch sends Xon when its own queues, which hold
//! packets that came from there, have drained; if one of these is paused as well, it waits in turn. A circle
//! of such waits never ends (Hu et al., "Deadlocks in Datacenter Networks", HotNets 2016).

use super::part::Part;
use super::results::Deadlock;
use fabric::Time;
use fabric::config::CLASSES;
use std::collections::BTreeMap;

/// A queue: switch, port, class.
type PausedQueue = (u32, u16, u8);

/// Finds circles, each once.
pub(super) fn find(parts: &[Part], now: Time) -> Vec<Deadlock> {
    let waits = waits(parts);
    let mut found: Vec<Deadlock> = Vec::new();
    // 0: not seen, 1: on the way, 2: done.
    let mut seen: BTreeMap<PausedQueue, u8> = BTreeMap::new();
    for start in waits.keys() {
        let mut path: Vec<(PausedQueue, usize)> = vec![(*start, 0)];
        if seen.contains_key(start) {
            continue;
        }
        seen.insert(*start, 1);
        while let Some((queue, next)) = path.last_mut() {
            let queue = *queue;
            let Some(to) = waits.get(&queue).and_then(|all| all.get(*next)).copied() else {
                seen.insert(queue, 2);
                path.pop();
                continue;
            };
            *next += 1;
            match seen.get(&to) {
                Some(1) => {
                    let from = path.iter().position(|(queue, _)| *queue == to).unwrap_or(0);
                    let circle = path[from..]
                        .iter()
                        .map(|((switch, port, _), _)| (*switch, *port))
                        .collect();
                    found.push(Deadlock {
                        at: now,
                        class: to.2,
                        circle,
                    });
                }
                Some(_) => {}
                None => {
                    seen.insert(to, 1);
                    path.push((to, 0));
                }
            }
        }
    }
    found
}

/// For each queue that is paused and not empty: the paused queues of the next switch that hold packets from
/// this link.
fn waits(parts: &[Part]) -> BTreeMap<PausedQueue, Vec<PausedQueue>> {
    let mut waits = BTreeMap::new();
    for part in parts {
        for attached in &part.switches {
            for port in 0..attached.switch.ports() {
                let egress = attached.switch.egress(port);
                let stuck = egress.paused() & egress.occupied();
                for class in (0..CLASSES as u8).filter(|class| stuck >> class & 1 == 1) {
                    let lane = attached.first_lane + u32::from(port);
                    let info = part.links.table[lane as usize];
                    if !info.is_used() || info.to_host {
                        continue;
                    }
                    let next = &parts[usize::from(info.part)];
                    let peer = &next.switches[info.node as usize];
                    let held = peer.switch.held_from(info.port, &next.packets);
                    let held = held
                        .into_iter()
                        .filter(|(out, class)| peer.switch.egress(*out).paused() >> class & 1 == 1);
                    let held: Vec<PausedQueue> =
                        held.map(|(out, class)| (peer.number, out, class)).collect();
                    waits.insert((attached.number, port, class), held);
                }
            }
        }
    }
    waits
}
