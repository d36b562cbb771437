//! Calls of the owners of connections.

use super::compose;
use super::connection::Connection;
use super::request::{
    Accept, CmError, Connect, Ece, Listen, ListenerId, Reject, Resolution, Resolve,
};
use super::state::{CmState, Input, Step, step};
use super::{Cm, RejectReason};
use crate::time::{Instant, Nanos};
use wire::cm::{
    CmMad, CmMessage, CommId, DREP_PRIVATE_DATA, DREQ_PRIVATE_DATA, Drep, REJ_PRIVATE_DATA,
    RTU_PRIVATE_DATA, SIDR_REP_PRIVATE_DATA, SidrStatus,
};
use wire::{Qpn, Service};

use super::config::duration;

impl Cm {
    /// Starts to listen for a service.
    ///
    /// # Errors
    /// [`CmError::InUse`] when another listener takes the same requests, [`CmError::Exhausted`] at the limit.
    pub fn listen(&mut self, listen: Listen) -> Result<ListenerId, CmError> {
        self.listeners.add(listen, &self.config)
    }

    /// Stops listening. Requests that the program has not taken are rejected.
    ///
    /// # Errors
    /// [`CmError::NoSuchConnection`].
    pub fn unlisten(&mut self, listener: ListenerId, now: Instant) -> Result<(), CmError> {
        self.listeners.remove(listener)?;
        for id in self.connections.waiting_at(listener) {
            // The connection exists and has an owner: it was found a line above.
            self.release(id, now)?;
        }
        Ok(())
    }

    /// Requests a connection. The outcome: [`super::CmEvent::Reply`], [`super::CmEvent::Rejected`] or
    /// [`super::CmEvent::Unreachable`].
    ///
    /// # Errors
    /// [`CmError`] when the source address is not local, the transport has no connections, or at the limit.
    pub fn connect(&mut self, connect: &Connect, now: Instant) -> Result<CommId, CmError> {
        let local = *self.address(connect.path.source).ok_or(CmError::NotLocal)?;
        if connect.transport == Service::Ud {
            return Err(CmError::Unsupported("connections of datagram queue pairs"));
        }
        let mut connection = Connection::new(
            CmState::ReqSent,
            connect.path,
            connect.service,
            &self.config,
        );
        let lifetime = duration(connect.packet_lifetime);
        connection.response_time = Nanos(2 * lifetime.0 + duration(self.config.response_timeout).0);
        connection.packet_lifetime = connect.packet_lifetime;
        connection.time_wait = duration(connect.packet_lifetime.saturating_add(1));
        connection.local_qpn = connect.qpn;
        connection.transport = connect.transport;
        let id = self
            .connections
            .add(connection, &self.config, &mut self.ids)?;
        let message = compose::req(id, connect, &local, &self.config);
        self.open(id, connect.ece, message.into(), now);
        Ok(id)
    }

    /// Resolves a service ID to the queue pair of a peer. The outcome: [`super::CmEvent::Resolved`] or
    /// [`super::CmEvent::Unreachable`].
    ///
    /// # Errors
    /// [`CmError`] when the source address is not local, or at the limit.
    pub fn resolve(
        &mut self,
        resolve: &Resolve,
        ece: Ece,
        now: Instant,
    ) -> Result<CommId, CmError> {
        self.address(resolve.path.source).ok_or(CmError::NotLocal)?;
        let connection = Connection::new(
            CmState::SidrReqSent,
            resolve.path,
            resolve.service,
            &self.config,
        );
        let id = self
            .connections
            .add(connection, &self.config, &mut self.ids)?;
        let message = compose::sidr_req(id, resolve);
        self.open(id, ece, message.into(), now);
        Ok(id)
    }

    /// Sends the first message of an exchange.
    fn open(&mut self, id: CommId, ece: Ece, message: CmMessage, now: Instant) {
        let transaction = u64::from(self.transactions) << 32 | u64::from(id.0);
        let mad = CmMad {
            transaction,
            modifier: ece.options,
            message,
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.transaction = transaction;
            connection.sent = mad.to_bytes();
            let datagram = super::Datagram {
                path: connection.path,
                mad: connection.sent,
            };
            self.connections.begin(id, now);
            self.send(message.attribute(), datagram);
        }
    }

    /// Takes a request from the backlog: another may wait in its place.
    ///
    /// # Errors
    /// [`CmError::NoSuchConnection`].
    pub fn take(&mut self, id: CommId) -> Result<(), CmError> {
        self.owned(id)?;
        self.stop_waiting(id);
        Ok(())
    }

    /// Accepts a request. The outcome: [`super::CmEvent::Established`] or [`super::CmEvent::Unreachable`].
    ///
    /// # Errors
    /// [`CmError`] when there is no such request, or its address was removed.
    pub fn accept(&mut self, id: CommId, accept: &Accept, now: Instant) -> Result<(), CmError> {
        self.allowed(id, Input::Accept)?;
        self.stop_waiting(id);
        let connection = self
            .connections
            .get_mut(id)
            .ok_or(CmError::NoSuchConnection)?;
        connection.local_qpn = accept.qpn;
        let source = connection.path.source;
        let local = *self.address(source).ok_or(CmError::NotLocal)?;
        let connection = self.owned(id)?;
        let message = compose::rep(id, connection, accept, &local);
        self.say(id, Input::Accept, now, accept.ece.options, message);
        Ok(())
    }

    /// Confirms a reply: the queue pair of the active side is ready to send.
    ///
    /// # Errors
    /// [`CmError`] when the peer has not accepted.
    pub fn ready(
        &mut self,
        id: CommId,
        private_data: [u8; RTU_PRIVATE_DATA],
        now: Instant,
    ) -> Result<(), CmError> {
        let connection = self.allowed(id, Input::Ready)?;
        let message = compose::rtu(id, connection, private_data);
        self.say(id, Input::Ready, now, 0, message);
        Ok(())
    }

    /// Reports that the passive side's queue pair received data: the peer is ready, even if its RTU is lost.
    /// An event follows if the connection was not established yet.
    ///
    /// # Errors
    /// [`CmError`] when no connection is being established.
    pub fn data_arrived(&mut self, id: CommId, now: Instant) -> Result<(), CmError> {
        self.allowed(id, Input::Data)?;
        if self.connections.advance(id, Input::Data, now) == Step::To(CmState::Established) {
            self.tell(
                id,
                super::CmEvent::Established {
                    id,
                    private_data: None,
                },
            );
        }
        Ok(())
    }

    /// Rejects a request or a reply.
    ///
    /// # Errors
    /// [`CmError`] when there is neither.
    pub fn reject(&mut self, id: CommId, reject: &Reject, now: Instant) -> Result<(), CmError> {
        let connection = self.allowed(id, Input::Reject)?;
        let message = match connection.state {
            CmState::ReqSent | CmState::ReqMraReceived => {
                self.part_with_timeout(id, Input::Reject, now);
                return Ok(());
            }
            _ => compose::rej(id, connection, reject),
        };
        self.stop_waiting(id);
        self.say(id, Input::Reject, now, 0, message);
        Ok(())
    }

    /// Sends an MRA: the answer takes 4.096 µs times 2 to the power of `service_timeout`. Repetitions from
    /// the peer are answered with an MRA without this call.
    ///
    /// # Errors
    /// [`CmError`] when no answer is owed, or an MRA was sent already.
    pub fn delay(&mut self, id: CommId, service_timeout: u8, now: Instant) -> Result<(), CmError> {
        let connection = self.allowed(id, Input::Delay)?;
        let message = compose::mra(id, connection, service_timeout);
        self.say(id, Input::Delay, now, 0, message);
        Ok(())
    }

    /// Disconnects, or confirms that the peer did.
    ///
    /// # Errors
    /// [`CmError`] when there is no connection.
    pub fn disconnect(
        &mut self,
        id: CommId,
        private_data: [u8; DREQ_PRIVATE_DATA],
        now: Instant,
    ) -> Result<(), CmError> {
        let connection = self.allowed(id, Input::Disconnect)?;
        if connection.state == CmState::DreqReceived {
            // The private data of a DREP is a little longer.
            let mut longer = [0; DREP_PRIVATE_DATA];
            longer[..DREQ_PRIVATE_DATA].copy_from_slice(&private_data);
            self.confirm(id, Input::Disconnect, longer, now);
        } else {
            self.part(id, Input::Disconnect, private_data, now);
        }
        Ok(())
    }

    /// Sends a DREQ.
    pub(super) fn part(
        &mut self,
        id: CommId,
        input: Input,
        data: [u8; DREQ_PRIVATE_DATA],
        now: Instant,
    ) {
        let transaction = u64::from(self.transactions) << 32 | u64::from(id.0);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.transaction = transaction;
            let message = compose::dreq(id, connection, data);
            self.say(id, input, now, 0, message);
        }
    }

    /// Sends a DREP.
    pub(super) fn confirm(
        &mut self,
        id: CommId,
        input: Input,
        data: [u8; DREP_PRIVATE_DATA],
        now: Instant,
    ) {
        if let Some(connection) = self.connections.get(id) {
            let message = Drep {
                local_comm_id: id,
                remote_comm_id: connection.remote,
                private_data: data,
            };
            self.say(id, input, now, 0, message);
        }
    }

    /// Answers a service ID resolution.
    ///
    /// # Errors
    /// [`CmError`] when none waits for an answer.
    pub fn answer_resolution(
        &mut self,
        id: CommId,
        resolution: &Resolution,
        now: Instant,
    ) -> Result<(), CmError> {
        let connection = self.allowed(id, Input::Resolve)?;
        let message = compose::sidr_rep(connection, resolution);
        self.stop_waiting(id);
        self.say(id, Input::Resolve, now, resolution.ece.options, message);
        Ok(())
    }

    /// Gives up the connection, on behalf of an owner that does not want it any more or has exited. An open
    /// one is ended in good order.
    ///
    /// # Errors
    /// [`CmError::NoSuchConnection`].
    pub fn release(&mut self, id: CommId, now: Instant) -> Result<(), CmError> {
        let connection = self.owned(id)?;
        let state = connection.state;
        let rejection = Reject {
            reason: RejectReason::CONSUMER,
            private_data: [0; REJ_PRIVATE_DATA],
        };
        let rejection = compose::rej(id, connection, &rejection);
        let resolution = compose::sidr_rep(connection, &REJECTED);
        if let Some(listener) = self.connections.disown(id) {
            self.listeners.taken(listener);
        }
        match state {
            CmState::ReqSent | CmState::ReqMraReceived => {
                self.part_with_timeout(id, Input::Release, now)
            }
            CmState::ReqReceived
            | CmState::ReqMraSent
            | CmState::RepReceived
            | CmState::RepMraSent
            | CmState::RepSent
            | CmState::RepMraReceived => self.say(id, Input::Release, now, 0, rejection),
            CmState::Established => self.part(id, Input::Release, [0; DREQ_PRIVATE_DATA], now),
            CmState::DreqReceived => self.confirm(id, Input::Release, [0; DREP_PRIVATE_DATA], now),
            CmState::SidrReqReceived => self.say(id, Input::Release, now, 0, resolution),
            CmState::Idle
            | CmState::SidrReqSent
            | CmState::DreqSent
            | CmState::Refused
            | CmState::TimeWait
            | CmState::SidrAnswered => _ = self.connections.advance(id, Input::Release, now),
        }
        Ok(())
    }

    /// A connection that has an owner.
    fn owned(&self, id: CommId) -> Result<&Connection, CmError> {
        self.connections
            .get(id)
            .filter(|connection| connection.owned)
            .ok_or(CmError::NoSuchConnection)
    }

    /// A connection that has an owner and whose state allows the input.
    fn allowed(&self, id: CommId, input: Input) -> Result<&Connection, CmError> {
        let connection = self.owned(id)?;
        match step(connection.state, input) {
            Step::Forbidden => Err(CmError::WrongState(connection.state)),
            _ => Ok(connection),
        }
    }
}

/// The answer to a resolution without an owner.
pub(super) const REJECTED: Resolution = Resolution {
    status: SidrStatus::REJECTED,
    qpn: Qpn::new(0),
    qkey: 0,
    ece: Ece {
        vendor_id: 0,
        options: 0,
    },
    private_data: [0; SIDR_REP_PRIVATE_DATA],
};
