//! Executing SENDs and WRITEs.

use super::Qp;
use super::attr::QpType;
use super::responder::{Body, Inbound, Refusal};
use crate::access::Access;
use crate::completion::{CompletionKind, Extra, Status};
use crate::cq::Notice;
use crate::handle::{Pd, Srq};
use crate::memory::{Memory, Payload, Piece};
use crate::resources::{Resources, Unresolved, completion, scatter};
use crate::time::Instant;
use wire::{Message, Packet, Position, Reth, Rkey, Tail};

impl Qp {
    /// Executes the request that is in turn, and moves on to the next PSN.
    pub(super) fn execute(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        body: Body<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let packets = match packet.message {
            Message::Send { position, tail } => {
                self.check_sequence(position, matches!(self.responder.inbound, Some(Inbound::Send { .. })))?;
                let packets = self.check_length(resources, position, body.len())?;
                self.execute_send(resources, now, packet, position, body, tail, memory)?;
                packets
            }
            Message::Write { position, reth, tail } => {
                self.check_sequence(position, matches!(self.responder.inbound, Some(Inbound::Write { .. })))?;
                let packets = self.check_length(resources, position, body.len())?;
                self.execute_write(resources, now, packet, position, body, reth, tail, memory)?;
                packets
            }
            Message::ReadRequest(reth) => {
                self.check_sequence(Position::Only, false)?;
                self.execute_read(resources, packet, reth)?
            }
            Message::CompareSwap(eth) | Message::FetchAdd(eth) => {
                self.check_sequence(Position::Only, false)?;
                let compare = matches!(packet.message, Message::CompareSwap(_)).then_some(eth.compare);
                self.execute_atomic(resources, packet, &eth, compare, memory)?;
                1
            }
            Message::AtomicWrite(reth) => {
                self.check_sequence(Position::Only, false)?;
                self.execute_atomic_write(resources, packet, reth, body, memory)?;
                1
            }
            _ => return Err(Refusal::Invalid),
        };
        self.responder.expected = self.responder.expected.plus(packets);
        Ok(())
    }

    /// First or Only begin a message, Middle or Last go on with one of their kind (IBTA 9.7.4.1.2).
    fn check_sequence(&self, position: Position, same_kind: bool) -> Result<(), Refusal> {
        let fits = if position.starts() { self.responder.inbound.is_none() } else { same_kind };
        if fits { Ok(()) } else { Err(Refusal::Invalid) }
    }

    /// All packets but the last of a message are full (IBTA 9.7.4.1.6). Says for how many packets this one
    /// stands: one, but on a lane.
    pub(super) fn check_length(
        &self,
        resources: &Resources,
        position: Position,
        length: u32,
    ) -> Result<u32, Refusal> {
        let mtu = self.mtu();
        let packets = length.div_ceil(mtu).max(1);
        let fits = match position {
            Position::First | Position::Middle => length > 0 && length.is_multiple_of(mtu),
            Position::Last => length > 0,
            Position::Only => true,
        };
        let alone = packets == 1 || resources.senders.is_some();
        if fits && alone { Ok(packets) } else { Err(Refusal::Invalid) }
    }

    /// Where a message's receive comes from. XRC names it, and it must be of the queue pair's domain (IBTA
    /// A14.4).
    fn shared_queue(&self, resources: &Resources, packet: &Packet) -> Result<Option<Srq>, Refusal> {
        if self.kind != QpType::XrcReceive {
            return Ok(self.init.srq);
        }
        let srq = packet.xrc_srq.and_then(|number| resources.srq_of(number)).ok_or(Refusal::Invalid)?;
        let domain = resources.srqs.get(srq.0 as usize).and_then(|srq| srq.xrc).map(|(xrcd, _)| xrcd);
        if domain.is_some() && domain == self.init.xrcd { Ok(Some(srq)) } else { Err(Refusal::Invalid) }
    }

    /// The protection domain of a receive: an SRQ has its own.
    fn receive_pd(&self, resources: &Resources, srq: Option<Srq>) -> Pd {
        srq.and_then(|srq| resources.srqs.get(srq.0 as usize)).map_or(self.pd(), |srq| srq.pd)
    }

    /// The memory that the peer names, `None` if it is none: a transfer of no bytes needs no key (IBTA
    /// 9.7.4.1.5).
    #[inline(always)]
    pub(super) fn remote_piece(
        &self,
        resources: &Resources,
        packet: &Packet,
        rkey: Rkey,
        address: u64,
        length: u32,
        need: Access,
    ) -> Result<Option<Piece>, Refusal> {
        if length == 0 {
            return Ok(None);
        }
        let pd = match self.kind {
            QpType::XrcReceive => self.receive_pd(resources, self.shared_queue(resources, packet)?),
            _ => self.pd(),
        };
        let piece = resources.regions.remote(pd, self.qpn, rkey, address, length, need);
        piece.map(Some).ok_or(Refusal::Access)
    }

    /// Takes a receive for the message that begins, unless a lost one left its own.
    pub(super) fn take_receive(
        &mut self,
        resources: &mut Resources,
        srq: Option<Srq>,
    ) -> Result<(), Refusal> {
        if self.responder.receive.is_some() {
            return Ok(());
        }
        let sges = &mut self.responder.sges;
        self.responder.receive = match srq {
            Some(srq) => resources.take_shared(srq, sges),
            None => self.receive.take(sges),
        };
        if self.responder.receive.is_none() {
            self.note_not_ready(resources, srq);
            return Err(Refusal::NotReady);
        }
        self.responder.taken_from = srq;
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn execute_send(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        position: Position,
        body: Body<'_>,
        tail: Tail,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let Body::Here(payload) = body else { return Err(Refusal::Invalid) };
        let srq = self.shared_queue(resources, packet)?;
        let offset = match self.responder.inbound {
            Some(Inbound::Send { offset }) => offset,
            _ => {
                self.take_receive(resources, srq)?;
                0
            }
        };
        self.fill_with_packets(resources, srq, offset, payload, memory)?;
        let offset = offset + payload.len();
        self.responder.inbound = (!position.ends()).then_some(Inbound::Send { offset });
        if position.ends() {
            let extra = self.extra(resources, tail)?;
            self.deliver(resources, now, packet, srq, offset, CompletionKind::Receive, extra);
            self.count_message();
        }
        Ok(())
    }

    fn extra(&self, resources: &mut Resources, tail: Tail) -> Result<Extra, Refusal> {
        match tail {
            Tail::None => Ok(Extra::None),
            Tail::Immediate(bytes) => Ok(Extra::Immediate(bytes)),
            Tail::Invalidate(rkey) => match resources.regions.invalidate(self.qpn, self.pd(), rkey) {
                Some(()) => Ok(Extra::Invalidated(rkey)),
                None => Err(Refusal::Invalidate),
            },
        }
    }

    /// What stands for several packets leaves the same in memory as they would: those that fit, when not all
    /// do.
    fn fill_with_packets(
        &mut self,
        resources: &mut Resources,
        srq: Option<Srq>,
        mut offset: u32,
        mut payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        match self.fill_receive(resources, srq, offset, payload, memory) {
            Err(Refusal::TooLong) if payload.len() > self.mtu() => loop {
                let (packet, rest) = payload.split_at(self.mtu());
                self.fill_receive(resources, srq, offset, packet, memory)?;
                offset += packet.len();
                payload = rest;
            },
            other => other,
        }
    }

    pub(super) fn fill_receive(
        &mut self,
        resources: &mut Resources,
        srq: Option<Srq>,
        offset: u32,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let pd = self.receive_pd(resources, srq);
        let sges = self.responder.sges.iter();
        resources
            .resolve(pd, sges, offset, payload.len(), Access::LOCAL_WRITE)
            .and_then(|pieces| scatter(pieces, payload, memory))
            .map_err(|error| match error {
                Unresolved::Key => Refusal::LocalProtection,
                Unresolved::TooShort => Refusal::TooLong,
            })
    }

    #[allow(clippy::too_many_arguments)]
    fn deliver(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        srq: Option<Srq>,
        length: u32,
        kind: CompletionKind,
        extra: Extra,
    ) {
        let Some(id) = self.responder.receive.take() else { return };
        let mut done = completion(self.qpn, id, Status::Success, kind, now);
        done.length = length;
        done.source = self.attr.destination;
        done.extra = extra;
        let notice = if packet.solicited { Notice::Solicited } else { Notice::Ordinary };
        resources.complete(self.receive_cq(resources, srq), done, notice);
    }

    pub(super) fn count_message(&mut self) {
        self.responder.msn = self.next_msn();
    }

    /// The number of messages completed when one more is. A guest counts none.
    pub(super) fn next_msn(&self) -> u32 {
        self.responder.msn.wrapping_add(u32::from(!self.is_guest())) & 0xff_ffff
    }

    #[allow(clippy::too_many_arguments)]
    fn execute_write(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        position: Position,
        body: Body<'_>,
        reth: Option<Reth>,
        tail: Tail,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        if !self.attr.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::Invalid);
        }
        let (address, rkey, remaining, total) = match (self.responder.inbound, reth) {
            (Some(Inbound::Write { address, rkey, remaining, total }), None) => {
                (address, rkey, remaining, total)
            }
            (None, Some(reth)) => (reth.address, reth.rkey, reth.length, reth.length),
            _ => return Err(Refusal::Invalid),
        };
        let left = remaining.checked_sub(body.len()).ok_or(Refusal::Invalid)?;
        if position.ends() != (left == 0) {
            return Err(Refusal::Invalid);
        }
        let need = Access::REMOTE_WRITE;
        let whole = if position.starts() {
            // The whole range at once: a message must not be half done before it is refused (IBTA 9.7.4.1.5).
            self.remote_piece(resources, packet, rkey, address, remaining, need)?
        } else {
            None
        };
        let srq = self.shared_queue(resources, packet)?;
        if let Tail::Immediate(_) = tail {
            self.take_receive(resources, srq)?;
        }
        if let Body::Here(payload) = body {
            let piece = match whole {
                Some(whole) if left == 0 => Some(whole),
                _ => self.remote_piece(resources, packet, rkey, address, payload.len(), need)?,
            };
            if let Some(piece) = piece {
                memory.write(piece, payload).map_err(|_| Refusal::Access)?;
            }
        }
        let address = address.wrapping_add(u64::from(body.len()));
        self.responder.inbound =
            (!position.ends()).then_some(Inbound::Write { address, rkey, remaining: left, total });
        if position.ends() {
            if let Tail::Immediate(bytes) = tail {
                let kind = CompletionKind::ReceiveWriteImmediate;
                self.deliver(resources, now, packet, srq, total, kind, Extra::Immediate(bytes));
            }
            self.count_message();
        }
        Ok(())
    }
}
