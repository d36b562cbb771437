//! Requests that other devices of the host hand on to us, and what we hand on to them: see
//! [`crate::domain`].

use super::Device;
use crate::address::Senders;
use crate::domain::Visit;
use crate::handle::Xrcd;
use crate::memory::{Memory, Payload};
use crate::qp::{Qp, Urgency};
use crate::sink::Sink;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::{Message, Packet, Position, Psn, Qpn, Service, Tail};

impl Device {
    /// Takes a request that one of `senders`, at the other end of a lane, hands on to a shared receive queue
    /// of ours. What is answered goes back by the lane.
    #[allow(clippy::too_many_arguments)]
    pub fn handle_visit(
        &mut self,
        now: Instant,
        lane: u16,
        senders: Senders,
        visit: &Visit,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        if !senders.have(visit.holder) {
            self.resources.counters.dropped_wrong_address += 1;
            return;
        }
        if visit.ends {
            return self.dismiss(|qp| qp.qpn == visit.holder, now);
        }
        let Some(index) = self.receive_guest(lane, visit, packet.psn, now) else {
            self.resources.counters.dropped_no_qp += 1;
            return;
        };
        let Some(guest) = self.qps.get_mut(index) else { return };
        guest.counters.received_packets += 1;
        guest.counters.received_bytes += u64::from(payload.len());
        self.resources.senders = Some(senders);
        guest.handle_request(&mut self.resources, now, packet, payload, memory);
        self.resources.senders = None;
        self.settle(index, false, false);
        self.fail_overrun(now);
    }

    /// The guest of a connection, which begins here with its first visit. There are no more guests and queue
    /// pairs together than queue pairs allowed.
    fn receive_guest(&mut self, lane: u16, visit: &Visit, first: Psn, now: Instant) -> Option<usize> {
        if let Some(&index) = self.guests.get(&visit.holder) {
            if self.qps.get(index).is_some_and(|guest| guest.is_of(visit, lane)) {
                return Some(index);
            }
            self.dismiss(|qp| qp.qpn == visit.holder, now);
        }
        if self.qps.len() >= self.resources.config.max_qp as usize {
            return None;
        }
        let domain = self.xrcds.iter().find(|(_, domain)| domain.name == Some(visit.domain));
        let xrcd = domain.map(|(index, _)| Xrcd(index as u32));
        let guest = Qp::guest(visit, xrcd, lane, first, &self.resources);
        let index = self.qps.insert(Box::new(guest));
        self.guests.insert(visit.holder, index);
        Some(index)
    }

    /// Ends guests. A receive that one of them has begun to fill completes as flushed.
    pub(super) fn dismiss(&mut self, is_meant: impl Fn(&Qp) -> bool, now: Instant) {
        let found =
            self.guests.values().copied().filter(|index| self.qps.get(*index).is_some_and(|qp| is_meant(qp)));
        let found: Vec<usize> = found.collect();
        for index in found {
            let mut guest = self.qps.remove(index);
            guest.flush_receives(&mut self.resources, now);
            if guest.scheduled == Urgency::Data {
                self.urgent -= 1;
            }
            self.ready.retain(|&ready| ready != index);
            self.guests.remove(&guest.qpn);
        }
    }

    /// A receive was posted: tells the peer of a queue pair or guest that waits for it. Whether one did.
    pub(super) fn tell_ready(&mut self, qpn: Qpn) -> bool {
        let index = self.guests.get(&qpn).copied().or_else(|| self.qpns.index(qpn));
        let Some((index, qp)) = index.and_then(|index| Some((index, self.qps.get_mut(index)?))) else {
            return false;
        };
        let was_waiting = qp.is_waiting();
        let told = qp.tell_ready();
        self.settle(index, was_waiting, false);
        told
    }

    /// Nobody answers by this lane any more.
    pub(super) fn give_up_visits(&mut self, lane: u16, now: Instant) {
        self.resources.farewells.retain(|(to, _)| *to != lane);
        let visiting = self.qps.iter().filter(|(_, qp)| qp.visits()).map(|(index, _)| index);
        let visiting: Vec<usize> = visiting.collect();
        for index in visiting {
            if let Some(qp) = self.qps.get_mut(index) {
                let was_waiting = qp.is_waiting();
                qp.give_up_visits(&mut self.resources, lane, now);
                self.settle(index, was_waiting, false);
            }
        }
    }

    /// Tells those that connections have visited that they are over. Where there is no room, later.
    pub(super) fn take_leave(&mut self, sink: &mut impl Sink) {
        if self.resources.farewells.is_empty() {
            return;
        }
        let mtu = self.resources.active_mtu.bytes();
        self.resources.farewells.retain(|(lane, visit)| {
            let path = crate::address::Path { lane: *lane, ..Default::default() };
            if sink.room(&path, mtu) == 0 {
                return true;
            }
            let nothing = Message::Send { position: Position::Only, tail: Tail::None };
            let packet = Packet::new(Service::Rc, visit.holder, Psn::new(0), nothing);
            sink.visit(*lane, visit, &packet, &[]);
            false
        });
    }
}
