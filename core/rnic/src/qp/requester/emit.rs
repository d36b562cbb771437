//! Composition of request packets.

use super::{Requester, Unit};
use crate::access::Access;
use crate::address::{Path, source_port};
use crate::completion::Status;
use crate::memory::Gather;
use crate::qp::attr::QpType;
use crate::qp::context::Context;
use crate::qp::identity::Common;
use crate::qp::send_queue::SendEntry;
use crate::qp::step::Step;
use crate::sink::Sink;
use crate::work::{Operation, SendFlags};
use wire::{AtomicEth, Deth, Message, Packet, Position, Psn, Qpn, Reth, Rkey, Tail};

impl Requester {
    /// Composes a unit of an entry's packets and passes it to the sink; for a READ, the request for its
    /// response packets.
    #[inline(always)]
    pub(super) fn emit(
        &self,
        cx: &mut Context<'_>,
        entry: &SendEntry,
        unit: Unit,
        sink: &mut impl Sink,
    ) -> Result<(), Status> {
        let qp = &*cx.qp;
        if qp.kind == QpType::Ud {
            return self.emit_datagram(cx, unit.index, entry, sink);
        }
        let extent = Extent::of(qp, entry, unit);
        let ends = unit.packet + unit.packets >= entry.packets;
        let position = Position::of(
            unit.packet,
            if ends { unit.packet + 1 } else { entry.packets },
        );
        let message = message(qp, entry, position, extent);
        let psn = entry.first_psn.plus(unit.packet);
        let mut header = Packet::new(qp.service(), qp.attr.destination, psn, message);
        header.pkey = cx.resources.partition(qp.attr.pkey_index);
        header.ack_req = unit.ack;
        header.xrc_srq = entry.xrc_srq.filter(|_| qp.kind == QpType::XrcSend);
        header.solicited = ends && entry.flags.contains(SendFlags::SOLICITED);
        let payload = if carries_payload(&entry.operation) {
            extent
        } else {
            extent.without_bytes()
        };
        self.dispatch(cx, entry, &header, payload, sink)
    }

    fn emit_datagram(
        &self,
        cx: &mut Context<'_>,
        index: usize,
        entry: &SendEntry,
        sink: &mut impl Sink,
    ) -> Result<(), Status> {
        if entry.length > cx.resources.port.active_mtu.bytes() {
            return Err(Status::LocalLength);
        }
        let destination = *self
            .queue
            .destination(index)
            .ok_or(Status::LocalQpOperation)?;
        let Operation::Send(tail) = entry.operation else {
            return Err(Status::LocalQpOperation);
        };
        // A queue key with the top bit set selects the queue pair's own (IBTA 10.2.5).
        let controlled = destination.qkey & 0x8000_0000 != 0;
        let qkey = if controlled {
            cx.qp.attr.qkey
        } else {
            destination.qkey
        };
        let message = Message::Datagram {
            deth: Deth {
                qkey,
                source: cx.qp.qpn,
            },
            tail,
        };
        let (path, qpn) = self.aim(cx, index).ok_or(Status::LocalQpOperation)?;
        let mut header = Packet::new(cx.qp.service(), qpn, entry.first_psn, message);
        header.pkey = cx.resources.partition(cx.qp.attr.pkey_index);
        header.solicited = entry.flags.contains(SendFlags::SOLICITED);
        // `room` has selected the channel.
        let channel = cx.qp.path.channel;
        cx.qp.set_path(Path { channel, ..path });
        self.dispatch(cx, entry, &header, Extent::whole(entry), sink)
    }

    /// Destination of a datagram.
    pub(super) fn aim(&self, cx: &Context<'_>, index: usize) -> Option<(Path, Qpn)> {
        let destination = self.queue.destination(index)?;
        let group = destination.vector.destination.is_multicast();
        let qpn = if group {
            Qpn::MULTICAST
        } else {
            destination.qpn
        };
        let port = source_port(
            destination.vector.flow_label,
            cx.qp.qpn.value(),
            qpn.value(),
        );
        Some((cx.resources.path(&destination.vector, port)?, qpn))
    }

    /// Passes a packet to the sink, with this part of the message as its payload.
    #[inline(always)]
    fn dispatch(
        &self,
        cx: &mut Context<'_>,
        entry: &SendEntry,
        header: &Packet,
        payload: Extent,
        sink: &mut impl Sink,
    ) -> Result<(), Status> {
        let Extent { offset, length } = payload;
        let path = &cx.qp.path;
        let sent = match self.queue.inline(entry) {
            Some(bytes) => {
                let from = (offset as usize).min(bytes.len());
                let to = (from + length as usize).min(bytes.len());
                sink.send(path, header, Gather::Inline(&bytes[from..to]))
            }
            None => {
                let sges = self.queue.sges(entry);
                let pieces = cx
                    .resources
                    .resolve(cx.qp.pd(), sges, offset, length, Access::empty())
                    .map_err(|_| Status::LocalProtection)?;
                sink.send(path, header, Gather::Pieces(pieces))
            }
        };
        sent.map_err(|_| Status::LocalProtection)?;
        cx.count_sent(length);
        Ok(())
    }

    /// Retransmits one packet, out of order (out-of-order mode).
    pub(super) fn send_again(
        &mut self,
        cx: &mut Context<'_>,
        psn: Psn,
        sink: &mut impl Sink,
    ) -> Step {
        let index = self.find(psn).filter(|_| self.is_lost(psn));
        let found = index.and_then(|index| Some((index, *self.queue.entry(index)?)));
        let Some((index, entry)) = found else {
            return Step::Progressed;
        };
        let packet = psn.distance_from(entry.first_psn) as u32;
        let unit = Unit {
            index,
            packet,
            packets: 1,
            ack: true,
        };
        if let Err(status) = self.emit(cx, &entry, unit, sink) {
            return self.fail_at_cursor(cx, status);
        }
        cx.count_retransmitted();
        self.arm_ack_timer(cx);
        Step::Sent
    }
}

/// Part of a message.
#[derive(Clone, Copy)]
struct Extent {
    /// Offset of the packet's first byte in the message.
    offset: u32,
    /// Number of bytes.
    length: u32,
}

impl Extent {
    #[inline]
    fn whole(entry: &SendEntry) -> Self {
        Self {
            offset: 0,
            length: entry.length,
        }
    }

    /// The part that a unit of the message's packets stands for.
    #[inline]
    fn of(qp: &Common, entry: &SendEntry, unit: Unit) -> Self {
        if unit.packets >= entry.packets {
            return Self::whole(entry);
        }
        let begin = |packet: u32| match cuts_evenly(qp, entry) {
            // The longer ones first.
            true => {
                let (each, more) = (
                    entry.length / entry.packets.max(1),
                    entry.length % entry.packets.max(1),
                );
                (packet.saturating_mul(each).saturating_add(packet.min(more))).min(entry.length)
            }
            false => packet.saturating_mul(qp.mtu()).min(entry.length),
        };
        let offset = begin(unit.packet);
        let length = begin(unit.packet.saturating_add(unit.packets)) - offset;
        Self { offset, length }
    }

    /// The payload of a request without payload.
    #[inline]
    fn without_bytes(self) -> Self {
        Self { length: 0, ..self }
    }
}

/// Whether packets, which are WRITEs of their own, are cut to equal lengths instead of being full. They are
/// then one piece for segmentation offload, together with the packets before and after. A packet never begins
/// later than a full one would, so that a retransmission covers what was sent in full packets.
fn cuts_evenly(qp: &Common, entry: &SendEntry) -> bool {
    let is_own = matches!(
        entry.operation,
        Operation::Write {
            immediate: None,
            ..
        }
    );
    is_own && qp.write_evenly && qp.transport.cuts_evenly()
}

// Copied in a register, and not through memory: the packet is read at once.
#[inline(always)]
fn message(qp: &Common, entry: &SendEntry, position: Position, extent: Extent) -> Message {
    let part = |address: u64, rkey: Rkey| Reth {
        address: address.wrapping_add(u64::from(extent.offset)),
        rkey,
        length: extent.length,
    };
    match entry.operation {
        Operation::Send(tail) => Message::Send {
            position,
            tail: if position.ends() { tail } else { Tail::None },
        },
        Operation::Write {
            address,
            rkey,
            immediate,
        } => {
            // With an immediate it stays one message, whose whole length the receiver's completion reports.
            if qp.write_only && immediate.is_none() {
                return write_message(Position::Only, part(address, rkey), None);
            }
            let whole = Reth {
                address,
                rkey,
                length: entry.length,
            };
            write_message(position, whole, immediate)
        }
        Operation::Read { address, rkey } => {
            let response_only = qp.response_only && qp.transport.has_equal_responses();
            Message::ReadRequest {
                reth: part(address, rkey),
                response_only,
            }
        }
        Operation::CompareSwap {
            address,
            rkey,
            compare,
            swap,
        } => Message::CompareSwap(AtomicEth {
            address,
            rkey,
            swap_add: swap,
            compare,
        }),
        Operation::FetchAdd { address, rkey, add } => Message::FetchAdd(AtomicEth {
            address,
            rkey,
            swap_add: add,
            compare: 0,
        }),
        Operation::AtomicWrite { address, rkey } => Message::AtomicWrite(Reth {
            address,
            rkey,
            length: entry.length,
        }),
        // Local operations have no packets; see `execute_locally`.
        Operation::LocalInvalidate(_) | Operation::BindWindow(_) | Operation::Fault { .. } => {
            Message::Send {
                position,
                tail: Tail::None,
            }
        }
    }
}

/// A packet of a WRITE to this range: the first one has the RETH, and the last one the immediate.
#[inline(always)]
fn write_message(position: Position, reth: Reth, immediate: Option<[u8; 4]>) -> Message {
    let last = immediate.filter(|_| position.ends());
    Message::Write {
        position,
        reth: position.starts().then_some(reth),
        tail: last.map_or(Tail::None, Tail::Immediate),
    }
}

fn carries_payload(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Send(_) | Operation::Write { .. } | Operation::AtomicWrite { .. }
    )
}
