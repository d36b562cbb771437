//! Stages 2 to 5 of an inbound request ([`super::responder`]): checking it, and executing it.

use super::answer::{Answer, ReadAnswer};
use super::target::{receive_pd, remote_piece, shared_queue};
use super::{Body, Inbound, Responder, response_packets};
use crate::access::Access;
use crate::completion::{CompletionKind, Extra, Status};
use crate::cq::Notice;
use crate::handle::Srq;
use crate::memory::{Memory, Payload, Piece};
use crate::qp::context::Context;
use crate::qp::refusal::Refusal;
use crate::resources::{Unresolved, scatter};
use wire::{Message, Packet, Position, Psn, Reth, Rkey, Tail};

/// Memory and receive queue that a request names, found in stage 4.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// The shared queue of its receive.
    srq: Option<Srq>,
    /// The memory that it names; `None` for a SEND, and for a transfer of no bytes.
    piece: Option<Piece>,
    write: Option<WritePart>,
}

/// Extent of a request, found in stage 3.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Number of PSNs of the request.
    pub(super) packets: u32,
    write: Option<WritePart>,
}

/// Part of a WRITE message in one packet.
#[derive(Clone, Copy)]
struct WritePart {
    address: u64,
    rkey: Rkey,
    /// Bytes of the message from this packet on, and after it.
    remaining: u32,
    left: u32,
    /// Bytes of the whole message.
    total: u32,
}

/// Stage 2: the opcode.
impl Responder {
    /// Whether the opcode may follow the one before it, and is allowed on this queue pair.
    #[inline(always)]
    pub(super) fn check_opcode(&self, cx: &Context<'_>, message: &Message) -> Result<(), Refusal> {
        let access = cx.qp.attr.access;
        match message {
            Message::Send { position, .. } => self.check_sequence(
                *position,
                matches!(self.inbound, Some(Inbound::Send { .. })),
            ),
            Message::Write { position, .. } => {
                self.check_sequence(
                    *position,
                    matches!(self.inbound, Some(Inbound::Write { .. })),
                )?;
                allow(access.contains(Access::REMOTE_WRITE))
            }
            Message::ReadRequest { .. } => {
                self.check_sequence(Position::Only, false)?;
                self.check_read(cx, false)
            }
            Message::CompareSwap(_) | Message::FetchAdd(_) => {
                self.check_sequence(Position::Only, false)?;
                allow(access.contains(Access::REMOTE_ATOMIC) && cx.qp.attr.max_dest_rd_atomic > 0)
            }
            Message::AtomicWrite(_) => {
                self.check_sequence(Position::Only, false)?;
                allow(access.contains(Access::REMOTE_WRITE))
            }
            _ => Err(Refusal::Invalid),
        }
    }

    /// First or Only begin a message, Middle or Last go on with one of their kind (IBTA 9.7.4.1.2).
    #[inline(always)]
    fn check_sequence(&self, position: Position, same_kind: bool) -> Result<(), Refusal> {
        allow(if position.starts() {
            self.inbound.is_none()
        } else {
            same_kind
        })
    }

    /// Checks that one more READ may be answered.
    fn check_read(&self, cx: &Context<'_>, again: bool) -> Result<(), Refusal> {
        let too_many = self.answers.count(again) >= usize::from(cx.qp.attr.max_dest_rd_atomic);
        if too_many && cx.qp.out_of_order {
            return Err(Refusal::Busy);
        }
        allow(!too_many && cx.qp.attr.access.contains(Access::REMOTE_READ))
    }
}

fn allow(is_allowed: bool) -> Result<(), Refusal> {
    if is_allowed {
        Ok(())
    } else {
        Err(Refusal::Invalid)
    }
}

/// Stage 3: the length.
impl Responder {
    /// Checks the length of payload and message.
    #[inline(always)]
    pub(super) fn check_length(
        &self,
        cx: &Context<'_>,
        message: &Message,
        length: u32,
    ) -> Result<Extent, Refusal> {
        match *message {
            Message::Send { position, .. } => Ok(Extent {
                packets: check_packet_length(cx, position, length)?,
                write: None,
            }),
            Message::Write { position, reth, .. } => {
                let packets = check_packet_length(cx, position, length)?;
                let part = self.write_part(reth, length)?;
                allow(position.ends() == (part.left == 0))?;
                Ok(Extent {
                    packets,
                    write: Some(part),
                })
            }
            Message::ReadRequest { reth, .. } => {
                allow(reth.length <= 1 << 31)?;
                Ok(Extent {
                    packets: response_packets(cx, &reth),
                    write: None,
                })
            }
            Message::AtomicWrite(reth) => {
                allow(reth.length == 8)?;
                Ok(Extent {
                    packets: 1,
                    write: None,
                })
            }
            _ => Ok(Extent {
                packets: 1,
                write: None,
            }),
        }
    }

    /// The part of a WRITE in a packet: a RETH begins a message, and the packets after it continue it.
    #[inline(always)]
    fn write_part(&self, reth: Option<Reth>, length: u32) -> Result<WritePart, Refusal> {
        let (address, rkey, remaining, total) = match (self.inbound, reth) {
            (
                Some(Inbound::Write {
                    address,
                    rkey,
                    remaining,
                    total,
                }),
                None,
            ) => (address, rkey, remaining, total),
            (None, Some(reth)) => (reth.address, reth.rkey, reth.length, reth.length),
            _ => return Err(Refusal::Invalid),
        };
        let left = remaining.checked_sub(length).ok_or(Refusal::Invalid)?;
        Ok(WritePart {
            address,
            rkey,
            remaining,
            left,
            total,
        })
    }
}

/// Checks that all packets but the last of a message are full (IBTA 9.7.4.1.6). Returns the number of packets
/// that this one represents.
#[inline(always)]
pub(in crate::qp) fn check_packet_length(
    cx: &Context<'_>,
    position: Position,
    length: u32,
) -> Result<u32, Refusal> {
    let mtu = cx.qp.mtu();
    let fits = match position {
        Position::First | Position::Middle => length > 0 && length.is_multiple_of(mtu),
        Position::Last => length > 0,
        Position::Only => true,
    };
    let packets = cx.origin.transport().packets_of(length, mtu);
    packets.filter(|_| fits).ok_or(Refusal::Invalid)
}

/// Stage 4: key, range and right.
impl Responder {
    /// Finds the memory and the receive queue that the request names, and checks key, range and right.
    #[inline(always)]
    pub(super) fn check_key(
        &self,
        cx: &Context<'_>,
        packet: &Packet,
        length: u32,
        extent: &Extent,
    ) -> Result<Target, Refusal> {
        let (rkey, address, length, need) = match packet.message {
            Message::Send { .. } => {
                return Ok(Target {
                    srq: shared_queue(cx, packet)?,
                    piece: None,
                    write: None,
                });
            }
            Message::Write { position, .. } => {
                let part = extent.write.ok_or(Refusal::Invalid)?;
                // Checks the whole range at once: a message must not be half executed before it is refused
                // (IBTA 9.7.4.1.5).
                let length = if position.starts() {
                    part.remaining
                } else {
                    length
                };
                (part.rkey, part.address, length, Access::REMOTE_WRITE)
            }
            Message::ReadRequest { reth, .. } => {
                (reth.rkey, reth.address, reth.length, Access::REMOTE_READ)
            }
            Message::CompareSwap(eth) | Message::FetchAdd(eth) => {
                allow(eth.address.is_multiple_of(8))?;
                (eth.rkey, eth.address, 8, Access::REMOTE_ATOMIC)
            }
            Message::AtomicWrite(reth) => {
                allow(reth.address.is_multiple_of(8))?;
                (reth.rkey, reth.address, 8, Access::REMOTE_WRITE)
            }
            _ => return Err(Refusal::Invalid),
        };
        let piece = remote_piece(cx, packet, rkey, address, length, need)?;
        let srq = match packet.message {
            Message::Write { .. } => shared_queue(cx, packet)?,
            _ => None,
        };
        Ok(Target {
            srq,
            piece,
            write: extent.write,
        })
    }
}

/// Stage 5: execution.
impl Responder {
    /// Executes a request that has passed the checks.
    #[inline(always)]
    pub(super) fn execute(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        body: Body<'_>,
        target: Target,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        match &packet.message {
            Message::Send { .. } => self.execute_send(cx, packet, body, target, memory),
            Message::Write { .. } => self.execute_write(cx, packet, body, target, memory),
            Message::ReadRequest { reth, .. } => {
                self.push_read(cx, packet, *reth, false);
                self.count_message();
                Ok(())
            }
            Message::CompareSwap(_) | Message::FetchAdd(_) => {
                self.execute_atomic(cx, packet, target, memory)
            }
            Message::AtomicWrite(_) => self.execute_atomic_write(packet, body, target, memory),
            _ => Err(Refusal::Invalid),
        }
    }

    fn execute_send(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        body: Body<'_>,
        Target { srq, .. }: Target,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let (Message::Send { position, tail }, Body::Here(payload)) = (packet.message, body) else {
            return Err(Refusal::Invalid);
        };
        let offset = match self.inbound {
            Some(Inbound::Send { offset }) => offset,
            _ => {
                self.take_receive(cx, srq)?;
                0
            }
        };
        self.fill_with_packets(cx, srq, offset, payload, memory)?;
        let offset = offset + payload.len();
        self.inbound = (!position.ends()).then_some(Inbound::Send { offset });
        if position.ends() {
            let extra = consume_tail(cx, tail)?;
            let received = Received {
                kind: CompletionKind::Receive,
                length: offset,
                extra,
            };
            self.deliver(cx, packet, srq, received);
            self.count_message();
        }
        Ok(())
    }

    #[inline(always)]
    fn execute_write(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        body: Body<'_>,
        target: Target,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let Target { srq, piece, write } = target;
        let (Message::Write { position, tail, .. }, Some(part)) = (packet.message, write) else {
            return Err(Refusal::Invalid);
        };
        if let Tail::Immediate(_) = tail {
            self.take_receive(cx, srq)?;
        }
        if let (Body::Here(payload), Some(piece)) = (body, piece) {
            // The piece of a first packet covers the whole message.
            let piece = Piece {
                length: payload.len(),
                ..piece
            };
            memory.write(piece, payload).map_err(|_| Refusal::Access)?;
        }
        let WritePart {
            rkey, left, total, ..
        } = part;
        let address = part.address.wrapping_add(u64::from(body.len()));
        self.inbound = (!position.ends()).then_some(Inbound::Write {
            address,
            rkey,
            remaining: left,
            total,
        });
        if position.ends() {
            if let Tail::Immediate(bytes) = tail {
                let received = Received {
                    kind: CompletionKind::ReceiveWriteImmediate,
                    length: total,
                    extra: Extra::Immediate(bytes),
                };
                self.deliver(cx, packet, srq, received);
            }
            self.count_message();
        }
        Ok(())
    }

    fn execute_atomic(
        &mut self,
        cx: &Context<'_>,
        packet: &Packet,
        target: Target,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let piece = target.piece.filter(is_aligned).ok_or(Refusal::Invalid)?;
        let done = match packet.message {
            Message::CompareSwap(eth) => memory.compare_swap(piece, eth.compare, eth.swap_add),
            Message::FetchAdd(eth) => memory.fetch_add(piece, eth.swap_add),
            _ => return Err(Refusal::Invalid),
        };
        let original = done.map_err(|_| Refusal::Access)?;
        self.count_message();
        self.answer_atomic(cx, packet.psn, original);
        Ok(())
    }

    fn execute_atomic_write(
        &mut self,
        packet: &Packet,
        body: Body<'_>,
        target: Target,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let piece = target.piece.filter(is_aligned).ok_or(Refusal::Invalid)?;
        match body {
            Body::Here(Payload::Bytes(bytes)) => {
                let bytes = bytes.try_into().map_err(|_| Refusal::Invalid)?;
                memory.store(piece, bytes).map_err(|_| Refusal::Access)?;
            }
            Body::Here(Payload::Phantom(8)) => {}
            _ => return Err(Refusal::Invalid),
        }
        self.count_message();
        self.queue_written(packet, false);
        Ok(())
    }
}

/// Answers to READs and atomics.
impl Responder {
    /// Checks a READ that was executed before, and queues its answer again.
    pub(super) fn queue_read(
        &mut self,
        cx: &Context<'_>,
        packet: &Packet,
        reth: Reth,
        again: bool,
    ) -> Result<(), Refusal> {
        self.check_read(cx, again)?;
        allow(reth.length <= 1 << 31)?;
        remote_piece(
            cx,
            packet,
            reth.rkey,
            reth.address,
            reth.length,
            Access::REMOTE_READ,
        )?;
        self.push_read(cx, packet, reth, again);
        Ok(())
    }

    fn push_read(&mut self, cx: &Context<'_>, packet: &Packet, reth: Reth, again: bool) {
        let (packets, msn) = (response_packets(cx, &reth), self.next_msn());
        self.answers.push(Answer::Read(ReadAnswer {
            request: *packet,
            packets,
            sent: 0,
            reth,
            again,
            msn,
        }));
    }

    /// The answer to an ATOMIC WRITE: an empty READ response.
    pub(super) fn queue_written(&mut self, packet: &Packet, again: bool) {
        if self.answers.is_full() {
            return;
        }
        let reth = Reth {
            length: 0,
            ..Reth::default()
        };
        let (request, msn) = (*packet, self.msn);
        self.answers.push(Answer::Read(ReadAnswer {
            request,
            packets: 1,
            sent: 0,
            reth,
            msn,
            again,
        }));
    }

    /// Answers a new atomic, and keeps its result for duplicates: as many as the peer may have outstanding
    /// (IBTA 9.7.5.1.5).
    pub(in crate::qp) fn answer_atomic(&mut self, cx: &Context<'_>, psn: Psn, original: u64) {
        if self.atomics.len() >= usize::from(cx.qp.attr.max_dest_rd_atomic) {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, original));
        self.answers.push(Answer::Atomic {
            psn,
            original,
            msn: self.msn,
            again: false,
        });
    }
}

/// Receives of messages.
impl Responder {
    /// Takes a receive for the message that begins, unless that of a lost message is left.
    pub(super) fn take_receive(
        &mut self,
        cx: &mut Context<'_>,
        srq: Option<Srq>,
    ) -> Result<(), Refusal> {
        if self.receive.is_some() {
            return Ok(());
        }
        self.receive = match srq {
            Some(srq) => cx.resources.take_shared(srq, &mut self.sges),
            None => self.queue.take(&mut self.sges),
        };
        if self.receive.is_none() {
            self.note_not_ready(cx, srq);
            return Err(Refusal::NotReady);
        }
        self.taken_from = srq;
        Ok(())
    }

    /// Stores a unit of several packets with the same result in memory as single packets: when not all fit,
    /// those that do are stored.
    fn fill_with_packets(
        &self,
        cx: &mut Context<'_>,
        srq: Option<Srq>,
        mut offset: u32,
        mut payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let mtu = cx.qp.mtu();
        match self.fill_receive(cx, srq, offset, payload, memory) {
            Err(Refusal::TooLong) if payload.len() > mtu => loop {
                let (packet, rest) = payload.split_at(mtu);
                self.fill_receive(cx, srq, offset, packet, memory)?;
                offset += packet.len();
                payload = rest;
            },
            other => other,
        }
    }

    pub(super) fn fill_receive(
        &self,
        cx: &mut Context<'_>,
        srq: Option<Srq>,
        offset: u32,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let pd = receive_pd(cx, srq);
        cx.resources
            .resolve(
                pd,
                self.sges.iter(),
                offset,
                payload.len(),
                Access::LOCAL_WRITE,
            )
            .and_then(|pieces| scatter(pieces, payload, memory))
            .map_err(|error| match error {
                Unresolved::Key => Refusal::LocalProtection,
                Unresolved::TooShort => Refusal::TooLong,
                Unresolved::Payload => Refusal::Unfetched,
            })
    }

    /// Completes the receive of a message.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        srq: Option<Srq>,
        received: Received,
    ) {
        let Some(id) = self.receive.take() else {
            return;
        };
        let mut done = cx.completion(id, Status::Success, received.kind);
        done.length = received.length;
        done.source = cx.qp.attr.destination;
        done.extra = received.extra;
        let notice = if packet.solicited {
            Notice::Solicited
        } else {
            Notice::Ordinary
        };
        cx.complete_receive(srq, done, notice);
    }
}

/// A message that has arrived, as its completion reports it.
struct Received {
    kind: CompletionKind,
    length: u32,
    /// Immediate data, or the key that was invalidated.
    extra: Extra,
}

/// Executes the tail of a SEND: immediate data or a key to invalidate.
fn consume_tail(cx: &mut Context<'_>, tail: Tail) -> Result<Extra, Refusal> {
    match tail {
        Tail::None => Ok(Extra::None),
        Tail::Immediate(bytes) => Ok(Extra::Immediate(bytes)),
        Tail::Invalidate(rkey) => {
            match cx.resources.regions.invalidate(cx.qp.qpn, cx.qp.pd(), rkey) {
                Some(()) => Ok(Extra::Invalidated(rkey)),
                None => Err(Refusal::Invalidate),
            }
        }
    }
}

fn is_aligned(piece: &Piece) -> bool {
    piece.address.is_multiple_of(8)
}
