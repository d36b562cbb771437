//! The device: its parts, and the calls of the driver.
//!
//! Calls on the device as a whole, or on its queue pairs, are methods of [`Device`]. The others are methods
//! of its parts:
//!
//! | part | contents |
//! |---|---|
//! | [`Device::port`], [`Device::port_mut`] | addresses, MTU, state, counters |
//! | [`Device::memory`] | memory regions and windows |
//! | [`Device::cqs`], [`Device::cqs_mut`] | completion queues |
//! | [`Device::srqs`] | shared receive queues |
//! | [`Device::multicast`] | multicast groups |
//! | [`Device::shm`] | shared-memory channels, requests that are forwarded by them |
//! | [`Device::grants`] | rights of peers on the host to access memory directly |
//! | [`simulation::Simulated`] | calls of simulators only |

mod domains;
mod failure;
mod fault;
mod grants;
mod memory;
mod multicast;
mod packets;
mod queue_pairs;
mod shm;
pub mod simulation;
mod srqs;
mod table;
mod turns;

pub use grants::Grants;
pub use memory::RegisteredMemory;
pub use multicast::Multicast;
pub use shm::SharedMemory;
pub use srqs::Srqs;
pub use turns::Pending;

use crate::completion_queues::CompletionQueues;
use crate::config::Config;
use crate::event::Event;
use crate::port::{Port, PortMut};
use crate::random::Random;
use crate::resources::Resources;
use crate::sink::Sink;
use crate::time::Instant;
use domains::Domains;
use multicast::Groups;
use table::QueuePairs;

/// Packets that a queue pair may send before the turn of the next one: 64 KiB at the largest MTU, so that one
/// segmented send carries them.
const TURN_PACKETS: usize = 16;

/// A RoCEv2 device. See the crate's page for how to drive it.
#[derive(Debug)]
pub struct Device {
    random: Random,
    domains: Domains,
    resources: Resources,
    queue_pairs: QueuePairs,
    groups: Groups,
    /// Set by [`Device::fail`].
    failed: bool,
}

/// The device and its parts.
impl Device {
    /// Creates a device. `seed` makes keys, numbers and initial values unpredictable: a live driver takes it
    /// from the system's random device, a simulation from the seed of the run.
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut random = Random::new(seed);
        let resources = Resources::new(config, &mut random);
        Self {
            random,
            domains: Domains::default(),
            resources,
            queue_pairs: QueuePairs::default(),
            groups: Groups::default(),
            failed: false,
        }
    }

    /// Limits and policies.
    pub fn config(&self) -> &Config {
        &self.resources.config
    }

    /// The port, to read its attributes and counters.
    #[inline]
    pub fn port(&self) -> &Port {
        &self.resources.port
    }

    /// The port, to change it.
    pub fn port_mut(&mut self) -> PortMut<'_> {
        PortMut {
            port: &mut self.resources.port,
            events: &mut self.resources.events,
        }
    }

    /// The completion queues, to read them.
    #[inline]
    pub fn cqs(&self) -> &CompletionQueues {
        &self.resources.cqs
    }

    /// The completion queues, for verbs that change them.
    #[inline]
    pub fn cqs_mut(&mut self) -> &mut CompletionQueues {
        &mut self.resources.cqs
    }
}

/// Calls of the driver.
impl Device {
    /// Makes up to `budget` packets; returns how many. Call until it returns 0, or until there is no room for
    /// more.
    pub fn transmit(&mut self, now: Instant, budget: usize, sink: &mut impl Sink) -> usize {
        if self.failed {
            return 0;
        }
        let Self {
            resources,
            queue_pairs,
            ..
        } = self;
        let mut sent = 0;
        while sent < budget {
            let QueuePairs { qps, turns, .. } = queue_pairs;
            let Some(index) = turns.next_ready() else {
                break;
            };
            let Some(qp) = qps.get_mut(index) else {
                continue;
            };
            turns.begin(qp);
            let was_waiting = qp.is_waiting();
            let (packets, blocked) =
                qp.transmit(resources, now, TURN_PACKETS.min(budget - sent), sink);
            sent += packets;
            turns.note_room(index, qp, packets);
            turns.schedule_qp(index, qp, was_waiting, blocked);
        }
        shm::send_close_notices(resources, sink);
        queue_pairs.fail_overrun(resources, now);
        sent
    }

    /// Whether [`Self::poll_event`] or [`Grants::poll_change`] would return something.
    #[inline]
    pub fn has_news(&self) -> bool {
        let Resources {
            events,
            changed_queues,
            regions,
            ..
        } = &self.resources;
        !(events.is_empty() && changed_queues.is_empty() && regions.changed.is_empty())
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.resources.events.pop_front()
    }

    /// Whether queue pairs wait for room on their shared-memory channels, or for a driver without room.
    #[inline]
    pub fn has_stalled(&self) -> bool {
        self.queue_pairs.turns.waits_for_room()
    }

    /// Gives a turn to queue pairs that wait for room, because channels or a driver that were full may have
    /// room again.
    pub fn resume(&mut self) {
        self.queue_pairs.resume();
    }

    /// Kind of the packets that wait to be transmitted.
    #[inline]
    pub fn pending(&self) -> Pending {
        if self.failed {
            Pending::Nothing
        } else {
            self.queue_pairs.turns.pending()
        }
    }

    /// Queue pairs that wait for acknowledgements.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.queue_pairs.turns.waiting()
    }

    /// Deadline of the next [`Self::handle_timeout`]. A call too early does nothing.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        let timer = self.queue_pairs.turns.next_timer().filter(|_| !self.failed);
        if self.resources.cqs.is_moderating() {
            self.next_moderated(timer)
        } else {
            timer
        }
    }

    #[cold]
    fn next_moderated(&self, timer: Option<Instant>) -> Option<Instant> {
        timer
            .into_iter()
            .chain(self.resources.cqs.next_moderated())
            .min()
    }

    /// Handles the timers that have expired at `now`.
    #[inline(always)]
    pub fn handle_timeout(&mut self, now: Instant) {
        let Self {
            resources,
            queue_pairs,
            ..
        } = self;
        resources.cqs.release_moderated(now, &mut resources.events);
        if self.failed {
            return;
        }
        let QueuePairs { qps, turns, .. } = queue_pairs;
        while let Some((at, index)) = turns.take_expired(now) {
            let Some(qp) = qps.get_mut(index).filter(|qp| qp.schedule.timer == at) else {
                continue;
            };
            qp.schedule.timer = core::mem::replace(&mut qp.schedule.later_timer, Instant::NEVER);
            let was_waiting = qp.is_waiting();
            qp.handle_timeout(resources, now);
            turns.schedule_qp(index, qp, was_waiting, false);
        }
        queue_pairs.fail_overrun(resources, now);
    }
}
