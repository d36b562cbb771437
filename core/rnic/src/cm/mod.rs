//! Connection management: connections are requested over queue pair 1, as a state machine (IBTA
//! chapter 12, RDMA-CM's use of it in Annex A11). It changes no queue pair: the owners do so on its events.
//!
//! # Drive contract
//!
//! Inputs: the owners' calls, [`Cm::handle_datagram`] for each datagram that came to queue pair 1,
//! [`Cm::handle_timeout`] when the clock reaches [`Cm::next_timeout`]. `now` never runs backwards.
//!
//! After any input, until the outputs are empty:
//! 1. [`Cm::poll_transmit`] until `None`: datagrams, each 256 bytes, to be sent from queue pair 1.
//! 2. [`Cm::poll_event`] until `None`.
//! 3. [`Cm::next_timeout`]: the deadline of the next call; it may have passed already.
//!
//! Each call does bounded work, and a spurious timeout does nothing. Everything that peers can fill has a
//! limit with a name in `config.rs`.
//!
//! ```text
//!   active                              passive
//!   connect ──────── REQ ────────▶ CmEvent::Request
//!                                       accept            (or reject: REJ ▶ CmEvent::Rejected)
//!   CmEvent::Reply ◀── REP ─────────
//!   ready ────────── RTU ────────▶ CmEvent::Established
//!   disconnect ───── DREQ ───────▶ CmEvent::Disconnected
//!   CmEvent::Disconnected ◀─ DREP ── disconnect
//! ```
//!
//! Connections are named by their local communication ID, which cannot be guessed and is reused late. An
//! owner may release a connection that is not ended: the messages that end it (REJ, DREQ and its repetitions)
//! are sent without the owner, which is how the exit of a program reaches its peers.

mod arrive;
mod compose;
mod config;
mod connection;
mod counters;
mod ids;
mod listen;
mod log;
mod network;
mod owner;
mod request;
mod state;

pub use config::{CmConfig, TIMEOUT_CODE_MAX, ack_timeout};
pub use counters::{CmCounters, MessageCounts};
pub use ids::IdSeries;
pub use request::{
    Accept, CmError, CmEvent, Connect, Datagram, Ece, Listen, ListenAddress, ListenerId,
    LocalAddress, Parting, Reject, Resolution, Resolve,
};
pub use state::CmState;

use crate::address::{Arrival, Gid};
use crate::random::Random;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use config::{TIMEOUTS_PER_CALL, TRANSMITS_MAX};
use connection::Connections;
use ids::{CommIds, IdPrefix};
use listen::Listeners;
use state::Input;
use wire::Qpn;
use wire::cm::{CmMad, CmMessage, CommId, RejectReason};

/// All connections of a host's devices.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    ids: CommIds,
    addresses: Vec<LocalAddress>,
    listeners: Listeners,
    connections: Connections,
    transmits: VecDeque<Datagram>,
    events: VecDeque<CmEvent>,
    counters: CmCounters,
    /// The upper half of the transaction IDs chosen here.
    transactions: u32,
}

impl Cm {
    /// Creates a connection manager without addresses. The seed must be hard to guess where peers are not
    /// trusted: an attacker that knows a communication ID can end its connection.
    pub fn new(config: CmConfig, seed: [u8; 32]) -> Self {
        let mut random = Random::new(seed);
        let mut connections = Connections::default();
        if config.reports_changes {
            connections.report_changes();
        }
        let prefix = IdPrefix {
            value: config.comm_id_prefix,
            bits: config.comm_id_prefix_bits,
        };
        Self {
            ids: CommIds::new(config.comm_id_series, prefix, &mut random),
            config,
            transactions: random.next_u32(),
            addresses: Vec::new(),
            listeners: Listeners::default(),
            connections,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counters: CmCounters::default(),
        }
    }

    /// Adds an address, or updates it.
    pub fn set_address(&mut self, address: LocalAddress) {
        self.addresses.retain(|other| other.gid != address.gid);
        self.addresses.push(address);
    }

    /// Removes an address. Its connections end without a message, since there is no address to send it from.
    pub fn remove_address(&mut self, gid: Gid) {
        self.addresses.retain(|other| other.gid != gid);
        for id in self.connections.at(gid) {
            let is_owned = self
                .connections
                .get(id)
                .is_some_and(|it| it.owned && it.state != CmState::Idle);
            self.stop_waiting(id);
            self.connections.end(id);
            if is_owned {
                self.events.push_back(CmEvent::AddressRemoved { id });
            }
        }
    }

    /// Addresses of the local devices.
    pub fn addresses(&self) -> &[LocalAddress] {
        &self.addresses
    }

    fn address(&self, gid: Gid) -> Option<&LocalAddress> {
        self.addresses.iter().find(|address| address.gid == gid)
    }

    /// The next datagram to send.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Datagram> {
        self.transmits.pop_front()
    }

    /// The next event for an owner.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        while let Some(event) = self.events.pop_front() {
            // Events of connections that were released meanwhile are dropped.
            if self.connections.get(event.id()).is_some_and(|it| it.owned) {
                return Some(event);
            }
        }
        None
    }

    /// A connection whose [`Self::message_at_death`] may have changed, where the configuration enables this.
    #[must_use]
    pub fn poll_change(&mut self) -> Option<CommId> {
        self.connections.pop_change()
    }

    /// The message that ends the connection at the peer if this process exits: a DREQ, or a REJ before the
    /// connection is established. Another process then sends it, in place of [`Self::release`]. `None` where
    /// the peer expects no message.
    pub fn message_at_death(&self, id: CommId) -> Option<Datagram> {
        let connection = self.connections.get(id)?;
        let rejection = Reject {
            reason: RejectReason::CONSUMER,
            private_data: [0; wire::cm::REJ_PRIVATE_DATA],
        };
        let message: CmMessage = match connection.state {
            CmState::ReqSent | CmState::ReqMraReceived => {
                compose::rej_timeout(id, connection, self.address(connection.path.source)).into()
            }
            CmState::ReqReceived
            | CmState::ReqMraSent
            | CmState::RepReceived
            | CmState::RepMraSent
            | CmState::RepSent
            | CmState::RepMraReceived => compose::rej(id, connection, &rejection).into(),
            CmState::Established | CmState::DreqSent => {
                compose::dreq(id, connection, [0; wire::cm::DREQ_PRIVATE_DATA]).into()
            }
            CmState::DreqReceived => {
                let private_data = [0; wire::cm::DREP_PRIVATE_DATA];
                wire::cm::Drep {
                    local_comm_id: id,
                    remote_comm_id: connection.remote,
                    private_data,
                }
                .into()
            }
            CmState::SidrReqReceived => compose::sidr_rep(connection, &owner::REJECTED).into(),
            CmState::Idle
            | CmState::Refused
            | CmState::TimeWait
            | CmState::SidrReqSent
            | CmState::SidrAnswered => {
                return None;
            }
        };
        let mad = CmMad {
            transaction: connection.transaction,
            modifier: 0,
            message,
        };
        Some(Datagram {
            path: connection.path,
            mad: mad.to_bytes(),
        })
    }

    /// The latest time at which [`Self::handle_timeout`] must be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.connections.next_deadline()
    }

    /// Repeats unanswered messages, gives up those repeated often enough, and ends connections that have
    /// lingered long enough: up to 64 of them, so [`Self::next_timeout`] may still be in the past.
    pub fn handle_timeout(&mut self, now: Instant) {
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some(id) = self.connections.pop_due(now) else {
                return;
            };
            let Some(connection) = self.connections.get(id) else {
                continue;
            };
            let (state, connected) = (connection.state, connection.connected);
            if state.lingers() {
                self.connections.advance(id, Input::WaitOver, now);
                if state == CmState::TimeWait && connected {
                    self.tell(id, CmEvent::TimeWaitOver { id });
                }
            } else if self.connections.retry(id, now) {
                self.repeat_by_timer(id);
            } else {
                self.give_up(id, state, now);
            }
        }
    }

    fn give_up(&mut self, id: CommId, state: CmState, now: Instant) {
        log::unanswered(id, state);
        let event = match state {
            CmState::DreqSent => CmEvent::Disconnected {
                id,
                cause: Parting::TimedOut,
            },
            _ => CmEvent::Unreachable { id },
        };
        match state {
            CmState::DreqSent | CmState::SidrReqSent => {
                _ = self.connections.advance(id, Input::GiveUp, now)
            }
            _ => self.part_with_timeout(id, Input::GiveUp, now),
        }
        self.tell(id, event);
    }

    /// Sends the REJ that tells the peer of the timeout.
    fn part_with_timeout(&mut self, id: CommId, input: Input, now: Instant) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let local = self.address(connection.path.source);
        let message = compose::rej_timeout(id, connection, local);
        self.say(id, input, now, 0, message);
    }

    /// Number of connections and resolutions, including ended ones that linger.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The state of a connection that is still known.
    pub fn state(&self, id: CommId) -> Option<CmState> {
        self.connections.get(id).map(|connection| connection.state)
    }

    /// The local queue pair of a connection, once its owner has named it.
    pub fn queue_pair(&self, id: CommId) -> Option<Qpn> {
        self.connections
            .get(id)
            .map(|connection| connection.local_qpn)
    }

    /// Number of communication IDs used so far, including those of [`CmConfig::comm_id_series`]: the position
    /// at which the next process with this prefix continues.
    pub const fn comm_ids_used(&self) -> u32 {
        self.ids.used()
    }

    /// Counters of the connection manager.
    pub const fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// Applies `input` to a connection, and sends the message. The message is composed in the state before,
    /// which is the one that the peer knows.
    fn say(
        &mut self,
        id: CommId,
        input: Input,
        now: Instant,
        modifier: u32,
        message: impl Into<CmMessage>,
    ) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let mad = CmMad {
            transaction: connection.transaction,
            modifier,
            message: message.into(),
        };
        connection.sent = mad.to_bytes();
        let datagram = Datagram {
            path: connection.path,
            mad: connection.sent,
        };
        self.connections.advance(id, input, now);
        self.send(mad.message.attribute(), datagram);
    }

    /// Answers again, since the peer has repeated its request.
    fn answer_again(&mut self, id: CommId, now: Instant) {
        self.connections.keep_answer(id, now);
        self.repeat(id);
    }

    /// Retransmits the last message.
    fn repeat(&mut self, id: CommId) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let datagram = Datagram {
            path: connection.path,
            mad: connection.sent,
        };
        self.send(attribute_of(&datagram), datagram);
    }

    fn repeat_by_timer(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get(id) {
            let datagram = Datagram {
                path: connection.path,
                mad: connection.sent,
            };
            self.counters.retried[CmCounters::index(attribute_of(&datagram))] += 1;
            log::repeated(id, attribute_of(&datagram), &datagram.path);
        }
        self.repeat(id);
    }

    /// Answers a datagram without a connection.
    fn answer(&mut self, arrival: &Arrival, transaction: u64, message: impl Into<CmMessage>) {
        let mad = CmMad {
            transaction,
            modifier: 0,
            message: message.into(),
        };
        let path = compose::path_back(arrival, self.config.hop_limit);
        self.send(
            mad.message.attribute(),
            Datagram {
                path,
                mad: mad.to_bytes(),
            },
        );
    }

    fn send(&mut self, attribute: u16, datagram: Datagram) {
        if self.transmits.len() >= TRANSMITS_MAX {
            self.counters.transmit_full += 1;
            return;
        }
        self.counters.sent[CmCounters::index(attribute)] += 1;
        log::sent(attribute, &datagram.path);
        self.transmits.push_back(datagram);
    }

    /// Queues an event for the owner, if there is one.
    fn tell(&mut self, id: CommId, event: CmEvent) {
        if self
            .connections
            .get(id)
            .is_some_and(|connection| connection.owned)
        {
            self.events.push_back(event);
        }
    }

    /// Removes the connection from the backlog of its listener.
    fn stop_waiting(&mut self, id: CommId) {
        let waited = self
            .connections
            .get_mut(id)
            .and_then(|connection| connection.waits_at.take());
        if let Some(listener) = waited {
            self.listeners.taken(listener);
        }
    }

    /// Checks the invariants. For tests and simulations: it examines everything.
    ///
    /// # Errors
    /// The invariant that is violated.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        for (listener, waiting) in self.listeners.waiting() {
            if self.connections.waiting_at(listener).len() != waiting as usize {
                return Err("a backlog counts what does not wait");
            }
        }
        self.connections.check_indices()
    }
}

/// Attribute ID of a datagram composed here.
const fn attribute_of(datagram: &Datagram) -> u16 {
    u16::from_be_bytes([datagram.mad[16], datagram.mad[17]])
}
