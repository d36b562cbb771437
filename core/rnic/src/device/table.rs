//! The queue pairs and proxies of a device, by number, and their turns.

use super::turns::Turns;
use crate::domain::{DomainName, ForwardedRequest};
use crate::error::Error;
use crate::event::Event;
use crate::handle::{Pd, Xrcd};
use crate::memory::Memory;
use crate::qp::attr::QpInit;
use crate::qp::{Inbound, Qp};
use crate::qpns::Qpns;
use crate::random::Random;
use crate::resources::Resources;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use slab::Slab;
use wire::{Psn, Qpn};

/// The table, indexed by `qps`' keys.
#[derive(Debug, Default)]
pub(super) struct QueuePairs {
    pub(super) qps: Slab<Box<Qp>>,
    pub(super) qpns: Qpns,
    pub(super) turns: Turns,
    /// Proxies, by the queue pair's number in the other device.
    proxies: BTreeMap<Qpn, usize>,
}

impl QueuePairs {
    /// Creates a queue pair; `domain` is the name of its XRC domain.
    pub(super) fn create(
        &mut self,
        init: &QpInit,
        domain: Option<DomainName>,
        resources: &Resources,
        random: &mut Random,
    ) -> Result<Qpn, Error> {
        if self.qps.len() >= resources.config.max_qp as usize {
            return Err(Error::Exhausted("queue pairs"));
        }
        let index = self.qps.vacant_key();
        let qpn = self
            .qpns
            .allocate(index, random)
            .ok_or(Error::Exhausted("queue pair numbers"))?;
        let mut qp = Qp::new(qpn, init, resources);
        qp.share(domain);
        self.qps.insert(Box::new(qp));
        Ok(qpn)
    }

    /// Removes a queue pair; returns the parameters that it was created with.
    pub(super) fn remove(&mut self, qpn: Qpn) -> Result<QpInit, Error> {
        let index = self.qpns.index(qpn).ok_or(Error::NoSuchObject)?;
        let qp = self.qps.remove(index);
        self.turns.forget(index, &qp);
        self.qpns.release(qpn);
        Ok(*qp.init())
    }

    pub(super) fn get(&self, qpn: Qpn) -> Result<&Qp, Error> {
        let index = self.qpns.index(qpn).ok_or(Error::NoSuchObject)?;
        self.qps
            .get(index)
            .map(|qp| &**qp)
            .ok_or(Error::NoSuchObject)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, qpn: Qpn) -> Option<&mut Qp> {
        let index = self.qpns.index(qpn)?;
        self.qps.get_mut(index).map(|qp| &mut **qp)
    }

    /// Whether a queue pair or proxy belongs to `pd`.
    pub(super) fn uses(&self, pd: Pd) -> bool {
        self.qps.iter().any(|(_, qp)| qp.init().pd == Some(pd))
    }

    /// Runs `change` on a queue pair, and then updates its turn to send and its timer.
    #[inline]
    pub(super) fn with<T>(
        &mut self,
        resources: &mut Resources,
        qpn: Qpn,
        change: impl FnOnce(&mut Qp, &mut Resources) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let index = self.qpns.index(qpn).ok_or(Error::NoSuchObject)?;
        let qp = self.qps.get_mut(index).ok_or(Error::NoSuchObject)?;
        let was_waiting = qp.is_waiting();
        let result = change(qp, resources);
        self.turns.schedule_qp(index, qp, was_waiting, false);
        result
    }

    /// Delivers a packet to its queue pair, and then runs `answer` on it.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        resources: &mut Resources,
        qpn: Qpn,
        now: Instant,
        inbound: &Inbound<'_>,
        memory: &mut impl Memory,
        answer: impl FnOnce(&mut Qp, &mut Resources),
    ) {
        let found = self.qpns.index(qpn);
        let Some((index, qp)) = found.and_then(|index| Some((index, self.qps.get_mut(index)?)))
        else {
            resources.port.counters.dropped_no_qp += 1;
            return;
        };
        let was_waiting = qp.is_waiting();
        if qp.handle_packet(resources, now, inbound, memory) {
            answer(qp, resources);
            self.turns.schedule_qp(index, qp, was_waiting, false);
        }
    }

    /// Gives a turn to queue pairs that wait for room, because channels or a driver that were full may have
    /// room again.
    pub(super) fn resume(&mut self) {
        while let Some(index) = self.turns.next_for_room() {
            if let Some(qp) = self.qps.get_mut(index) {
                qp.schedule.waits_for_room = false;
                let was_waiting = qp.is_waiting();
                self.turns.schedule_qp(index, qp, was_waiting, false);
            }
        }
    }

    /// Fails the queue pairs of completion queues that overran (IBTA 10.8.2.1, 11.6.3.1).
    #[inline]
    pub(super) fn fail_overrun(&mut self, resources: &mut Resources, now: Instant) {
        if resources.cqs.has_overrun() {
            self.fail_overrun_now(resources, now);
        }
    }

    #[cold]
    fn fail_overrun_now(&mut self, resources: &mut Resources, now: Instant) {
        while let Some(cq) = resources.cqs.take_overrun() {
            let uses = |qp: &Qp| qp.init().send_cq == Some(cq) || qp.init().receive_cq == Some(cq);
            let hit: Vec<Qpn> = self
                .qps
                .iter()
                .filter(|(_, qp)| uses(qp))
                .map(|(_, qp)| qp.qpn())
                .collect();
            for qpn in hit {
                let failed = self.with(resources, qpn, |qp, resources| {
                    qp.fail(resources, now);
                    resources.events.push_back(Event::QpFatal(qpn));
                    Ok(())
                });
                debug_assert!(failed.is_ok(), "the queue pair was found a moment ago");
            }
        }
    }
}

/// XRC forwarding ([`crate::domain`]).
impl QueuePairs {
    /// The proxy of a connection, if there is one that matches; another one with the same number ends.
    pub(super) fn proxy_of(
        &mut self,
        resources: &mut Resources,
        channel: u16,
        forwarded: &ForwardedRequest,
        now: Instant,
    ) -> Option<usize> {
        let index = *self.proxies.get(&forwarded.front_end)?;
        if self
            .qps
            .get(index)
            .is_some_and(|proxy| proxy.is_proxy_of(forwarded, channel))
        {
            return Some(index);
        }
        self.dismiss(resources, |qp| qp.qpn() == forwarded.front_end, now);
        None
    }

    /// Creates the proxy of a connection, with its first forwarded request. Proxies and queue pairs together
    /// are limited to the number of queue pairs allowed.
    pub(super) fn add_proxy(
        &mut self,
        resources: &Resources,
        channel: u16,
        forwarded: &ForwardedRequest,
        xrcd: Option<Xrcd>,
        first: Psn,
    ) -> Option<usize> {
        if self.qps.len() >= resources.config.max_qp as usize {
            return None;
        }
        let proxy = Qp::proxy(forwarded, xrcd, channel, first, resources);
        let index = self.qps.insert(Box::new(proxy));
        self.proxies.insert(forwarded.front_end, index);
        Some(index)
    }

    /// Ends proxies. A receive that one of them is filling completes as flushed.
    pub(super) fn dismiss(
        &mut self,
        resources: &mut Resources,
        is_meant: impl Fn(&Qp) -> bool,
        now: Instant,
    ) {
        let found = self
            .proxies
            .values()
            .copied()
            .filter(|index| self.qps.get(*index).is_some_and(|qp| is_meant(qp)));
        let found: Vec<usize> = found.collect();
        for index in found {
            let mut proxy = self.qps.remove(index);
            proxy.flush_receives(resources, now);
            self.turns.forget(index, &proxy);
            self.proxies.remove(&proxy.qpn());
        }
    }

    /// Announces a receive that was posted to a shared queue to the peer of a queue pair or proxy that waits
    /// for it; whether one did.
    pub(super) fn announce_receive(&mut self, resources: &mut Resources, qpn: Qpn) -> bool {
        let index = self
            .proxies
            .get(&qpn)
            .copied()
            .or_else(|| self.qpns.index(qpn));
        let Some((index, qp)) = index.and_then(|index| Some((index, self.qps.get_mut(index)?)))
        else {
            return false;
        };
        let was_waiting = qp.is_waiting();
        let announced = qp.announce_receive(resources);
        self.turns.schedule_qp(index, qp, was_waiting, false);
        announced
    }

    /// Handles the end of a shared-memory channel: requests that were forwarded on it are not answered any
    /// more.
    pub(super) fn close_forwarding(
        &mut self,
        resources: &mut Resources,
        channel: u16,
        now: Instant,
    ) {
        resources.close_notices.retain(|(to, _)| *to != channel);
        for (index, qp) in self.qps.iter_mut().filter(|(_, qp)| qp.has_forwarded()) {
            let was_waiting = qp.is_waiting();
            qp.close_forwarding(resources, channel, now);
            self.turns.schedule_qp(index, qp, was_waiting, false);
        }
    }
}
