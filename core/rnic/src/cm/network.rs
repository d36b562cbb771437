//! Datagrams from peers: the connection that each refers to, and its effect.

use super::compose;
use super::config::{ack_timeout, duration};
use super::connection::Connection;
use super::log;
use super::request::{CmEvent, Ece, Parting};
use super::state::{CmState, Input, Step, step};
use super::{Cm, CmCounters, RejectReason};
use crate::address::Arrival;
use crate::time::{Instant, Nanos};
use alloc::boxed::Box;
use wire::cm::{
    CmMad, CmMessage, CommId, DREP_PRIVATE_DATA, Drep, Dreq, Lap, Mra, Rej, Rep, Rtu, SidrRep,
    Subject,
};
use wire::{Qpn, Service};

impl Cm {
    /// Handles a datagram to queue pair 1 of one of the local addresses. Nothing that peers send is an error:
    /// a message that does not fit is counted, and answered where the specification requires it.
    pub fn handle_datagram(&mut self, arrival: &Arrival, bytes: &[u8], now: Instant) {
        let Ok(mad) = CmMad::parse(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        self.counters.received[CmCounters::index(mad.message.attribute())] += 1;
        log::received(arrival, &mad);
        match &mad.message {
            CmMessage::Req(req) => self.handle_req(arrival, &mad, req, now),
            CmMessage::Mra(mra) => self.handle_mra(arrival, &mad, mra, now),
            CmMessage::Rej(rej) => self.handle_rej(arrival, rej, now),
            CmMessage::Rep(rep) => self.handle_rep(arrival, &mad, rep, now),
            CmMessage::Rtu(rtu) => self.handle_rtu(arrival, &mad, rtu, now),
            CmMessage::Dreq(dreq) => self.handle_dreq(arrival, &mad, dreq, now),
            CmMessage::Drep(drep) => self.handle_drep(arrival, &mad, drep, now),
            CmMessage::SidrReq(req) => self.handle_sidr_req(arrival, &mad, req, now),
            CmMessage::SidrRep(rep) => self.handle_sidr_rep(arrival, &mad, rep, now),
            CmMessage::Lap(lap) => self.handle_lap(arrival, &mad, lap),
            // LAP is never sent, so no APR is expected.
            CmMessage::Apr(_) => self.counters.unexpected += 1,
        }
    }

    /// The connection with local ID `local` and remote ID `remote`, if it is with this peer.
    fn find(&self, arrival: &Arrival, local: CommId, remote: CommId) -> Option<&Connection> {
        self.of_peer(arrival, local)
            .filter(|connection| connection.remote == remote)
    }

    /// The connection with local ID `local`, if it is with this peer.
    fn of_peer(&self, arrival: &Arrival, local: CommId) -> Option<&Connection> {
        let connection = self.connections.get(local)?;
        (connection.peer() == arrival.source && connection.path.source == arrival.destination)
            .then_some(connection)
    }

    /// Applies `input`; returns the new state if the connection moved to one, the only case in which the
    /// caller has more to do.
    fn moved(&mut self, id: CommId, input: Input, now: Instant) -> Option<CmState> {
        match self.connections.advance(id, input, now) {
            Step::To(state) => Some(state),
            Step::Forbidden => {
                self.counters.unexpected += 1;
                None
            }
            Step::Again | Step::Ignore => None,
        }
    }

    fn handle_rep(&mut self, arrival: &Arrival, mad: &CmMad, rep: &Rep, now: Instant) {
        let id = rep.remote_comm_id;
        let known = self.of_peer(arrival, id).filter(|connection| {
            connection.active && [CommId(0), rep.local_comm_id].contains(&connection.remote)
        });
        let Some(connection) = known.filter(|_| rep.local_comm_id != CommId(0)) else {
            self.counters.unknown += 1;
            self.refuse_rep(arrival, mad, rep, RejectReason::INVALID_COMM_ID);
            return;
        };
        let delayed = compose::mra(id, connection, self.config.service_timeout);
        match step(connection.state, Input::Rep) {
            Step::To(CmState::RepReceived) => self.accept_rep(arrival, mad, rep, now),
            Step::To(_) => {
                self.count_duplicate(mad);
                self.say(id, Input::Rep, now, 0, delayed);
            }
            Step::Again => {
                self.count_duplicate(mad);
                self.answer_again(id, now);
            }
            Step::Ignore => self.count_duplicate(mad),
            Step::Forbidden => {
                self.counters.unexpected += 1;
                self.refuse_rep(arrival, mad, rep, RejectReason::INVALID_COMM_ID);
            }
        }
    }

    fn accept_rep(&mut self, arrival: &Arrival, mad: &CmMad, rep: &Rep, now: Instant) {
        let id = rep.remote_comm_id;
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let qpn = queue_pair_of(rep, connection.transport);
        let known = self
            .connections
            .of_remote(arrival.source, rep.local_comm_id);
        if known.is_some_and(|other| other != id && !self.has_forgotten(other, qpn)) {
            self.refuse_rep(arrival, mad, rep, RejectReason::DUPLICATE_LOCAL_COMM_ID);
            return;
        }
        if let Some(other) = self.connections.of_remote_qpn(arrival.source, qpn) {
            self.inquire(other);
            self.refuse_rep(arrival, mad, rep, RejectReason::STALE_CONNECTION);
            return;
        }
        if let Some(connection) = self.connections.get_mut(id) {
            let timeout = ack_timeout(rep.target_ack_delay, connection.packet_lifetime);
            connection.time_wait = duration(timeout);
        }
        self.connections.advance(id, Input::Rep, now);
        self.connections.name(id, rep.local_comm_id);
        self.connections.name_queue_pair(id, qpn);
        let ece = Ece {
            vendor_id: rep.vendor_id,
            options: mad.modifier,
        };
        self.tell(
            id,
            CmEvent::Reply {
                id,
                reply: Box::new(*rep),
                ece,
            },
        );
    }

    fn refuse_rep(&mut self, arrival: &Arrival, mad: &CmMad, rep: &Rep, reason: RejectReason) {
        let rej = Rej {
            local_comm_id: rep.remote_comm_id,
            remote_comm_id: rep.local_comm_id,
            subject: Subject::Reply,
            reason,
            ..Rej::default()
        };
        self.answer(arrival, mad.transaction, rej);
    }

    fn handle_rtu(&mut self, arrival: &Arrival, mad: &CmMad, rtu: &Rtu, now: Instant) {
        let id = rtu.remote_comm_id;
        let Some(connection) = self.find(arrival, id, rtu.local_comm_id) else {
            self.counters.unknown += 1;
            return;
        };
        if step(connection.state, Input::Rtu) == Step::Ignore {
            self.count_duplicate(mad);
        }
        if self.moved(id, Input::Rtu, now).is_some() {
            let private_data = Some(Box::new(rtu.private_data));
            self.tell(id, CmEvent::Established { id, private_data });
        }
    }

    fn handle_mra(&mut self, arrival: &Arrival, mad: &CmMad, mra: &Mra, now: Instant) {
        let id = mra.remote_comm_id;
        let (connection, input) = match mra.subject {
            // The peer's communication ID is not known yet: there was no REP.
            Subject::Request => (self.of_peer(arrival, id), Input::MraOfReq),
            Subject::Reply => (self.find(arrival, id, mra.local_comm_id), Input::MraOfRep),
            Subject::Other | Subject::Reserved => {
                self.counters.unexpected += 1;
                return;
            }
        };
        let Some(connection) = connection else {
            self.counters.unknown += 1;
            return;
        };
        let timeout = Nanos(duration(mra.service_timeout).0 + connection.response_time.0);
        if step(connection.state, input) == Step::Ignore {
            self.count_duplicate(mad);
        }
        if self.moved(id, input, now).is_some() {
            self.connections.wake(id, Some(now + timeout));
        }
    }

    fn handle_rej(&mut self, arrival: &Arrival, rej: &Rej, now: Instant) {
        let id = self.rejected(arrival, rej);
        let Some(connection) = id.and_then(|id| self.connections.get(id)) else {
            self.counters.unknown += 1;
            return;
        };
        let was = connection.state;
        let id = id.unwrap_or_default();
        let stale = rej.reason == RejectReason::STALE_CONNECTION;
        let input = if stale { Input::RejStale } else { Input::Rej };
        // The event is queued before an ownerless connection is deleted.
        if let Step::To(_) = step(was, input) {
            self.stop_waiting(id);
            self.tell(
                id,
                match was {
                    CmState::DreqSent => CmEvent::Disconnected {
                        id,
                        cause: Parting::Unknown,
                    },
                    _ => CmEvent::Rejected {
                        id,
                        reject: Box::new(*rej),
                    },
                },
            );
        }
        self.moved(id, input, now);
    }

    /// The connection that a REJ refers to.
    fn rejected(&self, arrival: &Arrival, rej: &Rej) -> Option<CommId> {
        let id = rej.remote_comm_id;
        if id == CommId(0) {
            // A peer that timed out does not know the local communication ID (IBTA 12.6.7.2).
            let is_timeout = rej.reason == RejectReason::TIMEOUT;
            return self
                .connections
                .of_remote(arrival.source, rej.local_comm_id)
                .filter(|_| is_timeout);
        }
        let connection = self.of_peer(arrival, id)?;
        let named = connection.remote == rej.local_comm_id;
        // A REQ is also rejected by a peer without a communication ID for it, and by one whose REP has not
        // arrived yet.
        let unnamed = rej.subject == Subject::Request && connection.remote == CommId(0);
        // A peer that has lost the connection has no communication ID for it.
        let forgotten =
            rej.reason == RejectReason::INVALID_COMM_ID && rej.local_comm_id == CommId(0);
        (named || unnamed || forgotten).then_some(id)
    }

    fn handle_dreq(&mut self, arrival: &Arrival, mad: &CmMad, dreq: &Dreq, now: Instant) {
        let id = dreq.remote_comm_id;
        let Some(connection) = self.find(arrival, id, dreq.local_comm_id) else {
            self.count_duplicate(mad);
            self.answer(arrival, mad.transaction, compose::drep(dreq));
            return;
        };
        if connection.local_qpn != dreq.remote_qpn {
            self.counters.unexpected += 1;
            return;
        }
        match step(connection.state, Input::Dreq) {
            Step::To(CmState::DreqReceived) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.transaction = mad.transaction;
                }
                self.connections.advance(id, Input::Dreq, now);
                let cause = Parting::Peer(Box::new(dreq.private_data));
                self.tell(id, CmEvent::Disconnected { id, cause });
            }
            Step::To(_) => {
                // Both sent a DREQ at once: there is no DREP to wait for.
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.transaction = mad.transaction;
                }
                self.confirm(id, Input::Dreq, [0; DREP_PRIVATE_DATA], now);
                self.tell(
                    id,
                    CmEvent::Disconnected {
                        id,
                        cause: Parting::Both,
                    },
                );
            }
            Step::Again => {
                self.count_duplicate(mad);
                self.answer(arrival, mad.transaction, compose::drep(dreq));
            }
            Step::Ignore => self.count_duplicate(mad),
            Step::Forbidden => self.counters.unexpected += 1,
        }
    }

    fn handle_drep(&mut self, arrival: &Arrival, mad: &CmMad, drep: &Drep, now: Instant) {
        let id = drep.remote_comm_id;
        let Some(connection) = self.find(arrival, id, drep.local_comm_id) else {
            self.counters.unknown += 1;
            return;
        };
        if connection.state == CmState::Established && connection.inquiry == Some(mad.transaction) {
            // The peer does not know the connection: see `inquire`.
            self.connections.advance(id, Input::RejStale, now);
            self.tell(
                id,
                CmEvent::Disconnected {
                    id,
                    cause: Parting::Unknown,
                },
            );
        } else if self.moved(id, Input::Drep, now).is_some() {
            let cause = Parting::Answered(Box::new(drep.private_data));
            self.tell(id, CmEvent::Disconnected { id, cause });
        }
    }

    fn handle_sidr_rep(&mut self, arrival: &Arrival, mad: &CmMad, rep: &SidrRep, now: Instant) {
        let id = rep.request_id;
        let known = self
            .of_peer(arrival, id)
            .is_some_and(|it| it.service == rep.service_id);
        if !known {
            self.counters.unknown += 1;
            return;
        }
        if step(self.state(id).unwrap_or(CmState::Idle), Input::SidrRep) == Step::Forbidden {
            self.counters.unexpected += 1;
            return;
        }
        let ece = Ece {
            vendor_id: rep.vendor_id,
            options: mad.modifier,
        };
        self.tell(
            id,
            CmEvent::Resolved {
                id,
                answer: Box::new(*rep),
                ece,
            },
        );
        self.connections.advance(id, Input::SidrRep, now);
    }

    fn handle_lap(&mut self, arrival: &Arrival, mad: &CmMad, lap: &Lap) {
        let known = self
            .find(arrival, lap.remote_comm_id, lap.local_comm_id)
            .is_some();
        self.answer(arrival, mad.transaction, compose::apr(lap, known));
    }
}

/// The queue pair that accepted: the number of an XRC target is in another field (IBTA A14.3.2).
fn queue_pair_of(rep: &Rep, transport: Service) -> Qpn {
    if transport == Service::Xrc {
        rep.local_eecn
    } else {
        rep.local_qpn
    }
}
