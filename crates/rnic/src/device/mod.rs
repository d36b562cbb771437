//! The device: its tables, and what drives them.

mod guests;
mod objects;
mod packets;
mod queue_pairs;

use crate::address::Gid;
use crate::config::Config;
use crate::counters::{PortCounters, QpCounters};
use crate::domain::DomainName;
use crate::error::Error;
use crate::event::Event;
use crate::grant::{Change, QueueGrant, RegionGrant};
use crate::handle::{Pd, Xrcd};
use crate::qp::attr::Mtu;
use crate::qp::{Qp, Urgency};
use crate::qpns::Qpns;
use crate::random::Random;
use crate::region::Regions;
use crate::resources::{GID_TABLE_LENGTH, Resources};
use crate::sink::Sink;
use crate::telemetry::Hop;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use slab::Slab;
use wire::{Qpn, Rkey};

/// Packets that a queue pair may send before the next one has its turn: 64 KiB at the largest MTU, so that
/// one segmented send carries them.
const TURN_PACKETS: usize = 16;

/// What is waiting to be transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pending {
    /// Nothing.
    Nothing,
    /// Only positive acknowledgements: they may wait a little, for data to travel with.
    Acknowledgements,
    /// Requests, READ responses, NAKs.
    Data,
}

/// An XRC domain.
#[derive(Clone, Copy, Debug)]
struct Domain {
    users: u32,
    name: Option<DomainName>,
}

/// A RoCEv2 device. See the crate's page for how to drive it.
#[derive(Debug)]
pub struct Device {
    random: Random,
    resources: Resources,
    pds: Slab<()>,
    xrcds: Slab<Domain>,
    /// By the number that their queue pair has in another device; the value is an index as any other.
    guests: BTreeMap<Qpn, usize>,
    qps: Slab<Box<Qp>>,
    qpns: Qpns,
    groups: BTreeMap<Gid, Vec<Qpn>>,
    /// Queue pairs with something to send, by index; each stands here once.
    ready: VecDeque<usize>,
    /// How many of them have more than an acknowledgement.
    urgent: u32,
    /// Reliable queue pairs that wait for acknowledgements.
    waiting: u32,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    port_active: bool,
    removed: bool,
    /// Queue pairs whose lane is full.
    stalled: Vec<usize>,
}

impl Device {
    /// Makes a device. `seed` makes keys, numbers and starting points unpredictable: live it comes from the
    /// system's random device, in a simulation from the run's seed.
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut random = Random::new(seed);
        let regions = Regions::new(config.max_mr, &mut random);
        Self {
            random,
            resources: Resources {
                config,
                regions,
                cqs: Slab::new(),
                srqs: Slab::new(),
                events: VecDeque::new(),
                counters: PortCounters::default(),
                gids: [None; GID_TABLE_LENGTH],
                active_mtu: Mtu::B1024,
                pieces: Vec::new(),
                srq_numbers: (0, 1 << 24),
                connections: 0,
                farewells: Vec::new(),
                senders: None,
                changed_queues: Vec::new(),
                not_ready: Vec::new(),
                overrun: Vec::new(),
                moderated: Vec::new(),
            },
            pds: Slab::new(),
            xrcds: Slab::new(),
            guests: BTreeMap::new(),
            qps: Slab::new(),
            qpns: Qpns::default(),
            groups: BTreeMap::new(),
            ready: VecDeque::new(),
            urgent: 0,
            waiting: 0,
            timers: BinaryHeap::new(),
            port_active: true,
            removed: false,
            stalled: Vec::new(),
        }
    }

    /// Limits and policies.
    pub fn config(&self) -> &Config {
        &self.resources.config
    }

    /// Numbers that queue pairs may get: a host grants ranges to its processes. Numbers that are there
    /// already are left out.
    pub fn add_qpn_range(&mut self, first: Qpn, count: u32) {
        self.qpns.add(first, count);
    }

    /// Queue pair numbers that are still free.
    pub fn free_qpns(&self) -> u32 {
        self.qpns.free()
    }

    /// Sets or clears an entry of the GID table. Entries beyond its length are ignored.
    pub fn set_gid(&mut self, index: u8, gid: Option<Gid>) {
        if let Some(entry) = self.resources.gids.get_mut(usize::from(index)) {
            *entry = gid;
        }
    }

    /// An entry of the GID table.
    pub fn gid(&self, index: u8) -> Option<Gid> {
        self.resources.gids.get(usize::from(index)).copied().flatten()
    }

    /// Says whether the port is up. It is at birth.
    pub fn set_port_active(&mut self, active: bool) {
        if core::mem::replace(&mut self.port_active, active) != active {
            self.resources.events.push_back(if active { Event::PortActive } else { Event::PortError });
        }
    }

    /// Says that the device is gone for good: what it stood for is no more.
    pub fn set_removed(&mut self) {
        if !core::mem::replace(&mut self.removed, true) {
            self.resources.events.push_back(Event::DeviceFatal);
        }
    }

    /// Whether the port is up.
    pub fn is_port_active(&self) -> bool {
        self.port_active
    }

    /// Replaces the addresses. Those that stay keep their place, as queue pairs and programs know them by it;
    /// new ones take the first that is free, the first of all only if it is link-local.
    pub fn change_gids(&mut self, gids: &[Gid]) {
        let table = &mut self.resources.gids;
        let before = *table;
        for entry in table.iter_mut() {
            *entry = entry.filter(|gid| gids.contains(gid));
        }
        for gid in gids {
            if !table.contains(&Some(*gid)) {
                let first = usize::from(!gid.is_link_local());
                if let Some(free) = table.iter_mut().skip(first).find(|entry| entry.is_none()) {
                    *free = Some(*gid);
                }
            }
        }
        if *table != before {
            self.resources.events.push_back(Event::GidChange);
        }
    }

    /// Sets the port's MTU: the longest datagram.
    pub fn set_active_mtu(&mut self, mtu: Mtu) {
        self.resources.active_mtu = mtu;
    }

    /// The port's MTU.
    pub fn active_mtu(&self) -> Mtu {
        self.resources.active_mtu
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> Result<Pd, Error> {
        if self.pds.len() >= self.resources.config.max_pd as usize {
            return Err(Error::Exhausted("protection domains"));
        }
        Ok(Pd(self.pds.insert(()) as u32))
    }

    /// Removes a protection domain that nothing belongs to any more.
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), Error> {
        self.check_pd(pd)?;
        let used = self.resources.regions.uses(pd)
            || self.qps.iter().any(|(_, qp)| qp.init.pd == Some(pd))
            || self.resources.srqs.iter().any(|(_, srq)| srq.pd == pd);
        if used {
            return Err(Error::Busy);
        }
        self.pds.remove(pd.0 as usize);
        Ok(())
    }

    /// Makes an XRC domain. One with a name may be shared with other devices of the host; a device has no
    /// two of one name.
    pub fn alloc_xrcd(&mut self, name: Option<DomainName>) -> Result<Xrcd, Error> {
        if self.xrcds.len() >= self.resources.config.max_pd as usize {
            return Err(Error::Exhausted("XRC domains"));
        }
        if name.is_some() && self.xrcds.iter().any(|(_, domain)| domain.name == name) {
            return Err(Error::Busy);
        }
        Ok(Xrcd(self.xrcds.insert(Domain { users: 0, name }) as u32))
    }

    /// The name of an XRC domain, if it has one.
    pub fn domain_name(&self, xrcd: Xrcd) -> Option<DomainName> {
        self.xrcds.get(xrcd.0 as usize)?.name
    }

    /// Removes an XRC domain that nothing belongs to any more.
    pub fn dealloc_xrcd(&mut self, xrcd: Xrcd, now: Instant) -> Result<(), Error> {
        match self.xrcds.get(xrcd.0 as usize) {
            None => Err(Error::NoSuchObject),
            Some(Domain { users: 0, .. }) => {
                self.dismiss(|qp| qp.init.xrcd == Some(xrcd), now);
                self.xrcds.remove(xrcd.0 as usize);
                Ok(())
            }
            Some(_) => Err(Error::Busy),
        }
    }

    /// Makes up to `budget` packets; returns how many. Call until it returns 0, or until there is no room for
    /// more.
    pub fn transmit(&mut self, now: Instant, budget: usize, sink: &mut impl Sink) -> usize {
        let mut sent = 0;
        while sent < budget {
            let Some(index) = self.ready.pop_front() else { break };
            let Some(qp) = self.qps.get_mut(index) else { continue };
            if core::mem::take(&mut qp.scheduled) == Urgency::Data {
                self.urgent -= 1;
            }
            let was_waiting = qp.is_waiting();
            let (packets, blocked) =
                qp.transmit(&mut self.resources, now, TURN_PACKETS.min(budget - sent), sink);
            sent += packets;
            if qp.is_stalled && !core::mem::replace(&mut qp.in_stalled, true) {
                self.stalled.push(index);
            }
            self.settle(index, was_waiting, blocked);
        }
        self.take_leave(sink);
        self.fail_overrun(now);
        sent
    }

    /// Whether [`Self::poll_event`] or [`Self::poll_change`] would give something.
    #[inline]
    pub fn has_news(&self) -> bool {
        let Resources { events, changed_queues, regions, .. } = &self.resources;
        !(events.is_empty() && changed_queues.is_empty() && regions.changed.is_empty())
    }

    /// Has changes of what is granted to peers noted from now on, for [`Self::poll_change`].
    pub fn watch_grants(&mut self) {
        self.resources.regions.is_watched = true;
    }

    /// The next thing of which a grant may have changed. Things can be named more than once.
    pub fn poll_change(&mut self) -> Option<Change> {
        if let Some(rkey) = self.resources.regions.changed.pop() {
            return Some(Change::Region(rkey));
        }
        self.resources.changed_queues.pop().map(Change::Queue)
    }

    /// What a key grants to peers.
    pub fn region_grant(&self, rkey: Rkey) -> Option<RegionGrant> {
        self.resources.regions.grant(rkey)
    }

    /// What a queue pair grants to its peer; `None` when it takes no requests now.
    pub fn queue_grant(&self, qpn: Qpn) -> Option<QueueGrant> {
        self.qp(qpn).ok()?.grant()
    }

    /// Whether queue pairs wait for room on their lanes.
    pub fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Lanes that were full may have room again: whoever waits for that has its turn.
    pub fn resume(&mut self) {
        while let Some(index) = self.stalled.pop() {
            if let Some(qp) = self.qps.get_mut(index) {
                qp.in_stalled = false;
                let was_waiting = qp.is_waiting();
                self.settle(index, was_waiting, false);
            }
        }
    }

    /// Whether a queue pair has executed what it has not acknowledged yet.
    pub fn owes_acknowledgement(&self, qpn: Qpn) -> bool {
        let qp = self.qpns.index(qpn).and_then(|index| self.qps.get(index));
        qp.is_some_and(|qp| qp.owes_acknowledgement())
    }

    /// What waits to be transmitted.
    pub fn pending(&self) -> Pending {
        match (self.urgent, self.ready.len()) {
            (0, 0) => Pending::Nothing,
            (0, _) => Pending::Acknowledgements,
            _ => Pending::Data,
        }
    }

    /// Queue pairs that wait for acknowledgements.
    pub fn in_flight(&self) -> u32 {
        self.waiting
    }

    /// When [`Self::handle_timeout`] wants to be called. A call too early does nothing.
    pub fn next_timeout(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        if self.resources.moderated.is_empty() {
            return timer;
        }
        timer.into_iter().chain(self.resources.next_moderated()).min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.resources.release_moderated(now);
        while let Some(&Reverse((at, index))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            let Some(qp) = self.qps.get_mut(index).filter(|qp| qp.timer == Some(at)) else { continue };
            qp.timer = qp.later_timer.take();
            let was_waiting = qp.is_waiting();
            qp.handle_timeout(&mut self.resources, now);
            self.settle(index, was_waiting, false);
        }
        self.fail_overrun(now);
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.resources.events.pop_front()
    }

    /// Counters of the port.
    pub fn counters(&self) -> &PortCounters {
        &self.resources.counters
    }

    /// Counters of a queue pair.
    pub fn qp_counters(&self, qpn: Qpn) -> Result<QpCounters, Error> {
        Ok(self.qp(qpn)?.counters)
    }

    /// The rate that congestion control allows a queue pair, in bits per second; `None` when it sets none.
    pub fn rate_bps(&self, qpn: Qpn) -> Result<Option<u64>, Error> {
        Ok(self.qp(qpn)?.congestion.rate_bps())
    }

    /// What switches told in the packet that is handled next, in the order of the way: in an acknowledgement
    /// what the peer saw, in a READ response what that saw itself. Only HPCC wants to know.
    pub fn handle_telemetry(&mut self, qpn: Qpn, hops: &[Hop]) {
        let qp = self.qpns.index(qpn).and_then(|index| self.qps.get_mut(index));
        qp.into_iter().for_each(|qp| qp.congestion.told(hops));
    }

    /// All queue pairs.
    pub fn qpns(&self) -> Vec<Qpn> {
        self.qps.iter().filter(|(_, qp)| !qp.is_guest()).map(|(_, qp)| qp.qpn).collect()
    }

    fn check_pd(&self, pd: Pd) -> Result<(), Error> {
        if self.pds.contains(pd.0 as usize) { Ok(()) } else { Err(Error::NoSuchObject) }
    }

    fn qp(&self, qpn: Qpn) -> Result<&Qp, Error> {
        let index = self.qpns.index(qpn).ok_or(Error::NoSuchObject)?;
        self.qps.get(index).map(|qp| &**qp).ok_or(Error::NoSuchObject)
    }

    /// Runs `change` on a queue pair, and sees to what follows from it: its turn to send, its timer.
    fn with_qp<T>(
        &mut self,
        qpn: Qpn,
        change: impl FnOnce(&mut Qp, &mut Resources) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let index = self.qpns.index(qpn).ok_or(Error::NoSuchObject)?;
        let qp = self.qps.get_mut(index).ok_or(Error::NoSuchObject)?;
        let was_waiting = qp.is_waiting();
        let result = change(qp, &mut self.resources);
        self.settle(index, was_waiting, false);
        result
    }

    /// Puts a queue pair that was touched on the ready list and the timer heap, where it belongs there.
    fn settle(&mut self, index: usize, was_waiting: bool, blocked: bool) {
        let Some(qp) = self.qps.get_mut(index) else { return };
        match (was_waiting, qp.is_waiting()) {
            (false, true) => self.waiting += 1,
            (true, false) => self.waiting -= 1,
            _ => {}
        }
        let urgency = if blocked { Urgency::None } else { qp.urgency() };
        if urgency > qp.scheduled {
            if qp.scheduled == Urgency::None {
                self.ready.push_back(index);
            }
            if urgency == Urgency::Data {
                self.urgent += 1;
            }
            qp.scheduled = urgency;
        }
        // One entry in the heap per queue pair, unless an earlier deadline appears; a later one is found when
        // the earlier fires. So an acknowledgement, which moves the deadline, costs nothing here. The entry
        // before which an earlier one comes is remembered: of pacing there is one per packet.
        if let Some(at) = qp.deadline()
            && qp.timer.is_none_or(|timer| at < timer)
        {
            qp.later_timer = qp.timer.or(qp.later_timer);
            qp.timer = Some(at);
            self.timers.push(Reverse((at, index)));
        }
    }

    /// A completion queue that overran takes its queue pairs with it (IBTA 10.8.2.1, 11.6.3.1).
    fn fail_overrun(&mut self, now: Instant) {
        while let Some(cq) = self.resources.overrun.pop() {
            let uses = |qp: &Qp| qp.init.send_cq == Some(cq) || qp.init.receive_cq == Some(cq);
            let hit: Vec<Qpn> = self.qps.iter().filter(|(_, qp)| uses(qp)).map(|(_, qp)| qp.qpn).collect();
            for qpn in hit {
                let failed = self.with_qp(qpn, |qp, resources| {
                    qp.fail(resources, now);
                    resources.events.push_back(Event::QpFatal(qpn));
                    Ok(())
                });
                debug_assert!(failed.is_ok(), "the queue pair was found a moment ago");
            }
        }
    }
}
