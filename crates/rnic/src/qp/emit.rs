//! Making request packets.

use super::Qp;
use super::attr::QpType;
use super::requester::{Outstanding, Step};
use super::send_queue::{SendEntry, SendQueue};
use crate::access::Access;
use crate::address::Path;
use crate::completion::Status;
use crate::memory::Gather;
use crate::resources::Resources;
use crate::sink::Sink;
use crate::time::Instant;
use crate::work::{Operation, SendFlags};
use wire::{AtomicEth, Deth, Message, Packet, Position, Reth, Tail};

impl Qp {
    /// Sends packet `packet` of an entry; for a READ, the request for `packets` response packets from there
    /// on.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn emit_request(
        &mut self,
        resources: &mut Resources,
        index: usize,
        entry: &SendEntry,
        packet: u32,
        packets: u32,
        ack: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Status> {
        if self.kind == QpType::Ud {
            return self.emit_datagram(resources, index, entry, sink);
        }
        let (offset, length) = self.extent(entry, packet, packets);
        let ends = packet + packets >= entry.packets;
        let position = Position::of(packet, if ends { packet + 1 } else { entry.packets });
        let message = self.message(entry, position, offset, length);
        let mut header =
            Packet::new(self.service(), self.attr.destination, entry.first_psn.plus(packet), message);
        header.ack_req = ack;
        header.xrc_srq = entry.xrc_srq.filter(|_| self.kind == QpType::XrcSend);
        header.solicited = ends && entry.flags.contains(SendFlags::SOLICITED);
        let carried = if carries_payload(&entry.operation) { length } else { 0 };
        self.dispatch(resources, entry, &header, offset, carried, sink)
    }

    /// Where so many packets of an entry begin, and how many bytes they stand for.
    fn extent(&self, entry: &SendEntry, packet: u32, packets: u32) -> (u32, u32) {
        let begin = |packet: u32| match self.cuts_evenly(entry) {
            // The longer ones first.
            true => {
                let (each, more) = (entry.length / entry.packets.max(1), entry.length % entry.packets.max(1));
                (packet.saturating_mul(each).saturating_add(packet.min(more))).min(entry.length)
            }
            false => packet.saturating_mul(self.mtu()).min(entry.length),
        };
        let start = begin(packet);
        (start, begin(packet.saturating_add(packets)) - start)
    }

    /// Packets that are WRITEs of their own need not be full. As long as each other they are one piece for
    /// segmentation offload, together with what goes before and after. A packet never begins later than a
    /// full one would: what was on its way in full packets is not missed when they are sent again like this.
    fn cuts_evenly(&self, entry: &SendEntry) -> bool {
        let is_own = matches!(entry.operation, Operation::Write { immediate: None, .. });
        is_own && self.write_evenly && self.path.lane == 0
    }

    // Copied together in a register, and not through memory: the packet is read at once.
    #[inline(always)]
    fn message(&self, entry: &SendEntry, position: Position, offset: u32, length: u32) -> Message {
        let at = |address: u64| address.wrapping_add(u64::from(offset));
        match entry.operation {
            Operation::Send(tail) => {
                Message::Send { position, tail: if position.ends() { tail } else { Tail::None } }
            }
            Operation::Write { address, rkey, immediate } => {
                let tail = immediate.filter(|_| position.ends()).map_or(Tail::None, Tail::Immediate);
                if self.write_only && immediate.is_none() {
                    // With an immediate it stays one message, whose whole length the receiver's completion
                    // reports.
                    let reth = Some(Reth { address: at(address), rkey, length });
                    return Message::Write { position: Position::Only, reth, tail };
                }
                let reth = position.starts().then_some(Reth { address, rkey, length: entry.length });
                Message::Write { position, reth, tail }
            }
            Operation::Read { address, rkey } => {
                Message::ReadRequest(Reth { address: at(address), rkey, length })
            }
            Operation::CompareSwap { address, rkey, compare, swap } => {
                Message::CompareSwap(AtomicEth { address, rkey, swap_add: swap, compare })
            }
            Operation::FetchAdd { address, rkey, add } => {
                Message::FetchAdd(AtomicEth { address, rkey, swap_add: add, compare: 0 })
            }
            Operation::AtomicWrite { address, rkey } => {
                Message::AtomicWrite(Reth { address, rkey, length: entry.length })
            }
            // Local operations have no packets; see `execute_locally`.
            Operation::LocalInvalidate(_) | Operation::BindWindow(_) => {
                Message::Send { position, tail: Tail::None }
            }
        }
    }

    fn emit_datagram(
        &mut self,
        resources: &mut Resources,
        index: usize,
        entry: &SendEntry,
        sink: &mut impl Sink,
    ) -> Result<(), Status> {
        if entry.length > resources.active_mtu.bytes() {
            return Err(Status::LocalLength);
        }
        let destination = *self.send.destination(index).ok_or(Status::LocalQpOperation)?;
        let Operation::Send(tail) = entry.operation else { return Err(Status::LocalQpOperation) };
        // A queue key with the top bit set stands for the queue pair's own (IBTA 10.2.5).
        let controlled = destination.qkey & 0x8000_0000 != 0;
        let qkey = if controlled { self.attr.qkey } else { destination.qkey };
        let message = Message::Datagram { deth: Deth { qkey, source: self.qpn }, tail };
        let (path, qpn) = self.aim(resources, index).ok_or(Status::LocalQpOperation)?;
        let mut header = Packet::new(self.service(), qpn, entry.first_psn, message);
        header.solicited = entry.flags.contains(SendFlags::SOLICITED);
        // `room` has looked for the lane.
        self.path = Path { lane: self.path.lane, ..path };
        self.dispatch(resources, entry, &header, 0, entry.length, sink)
    }

    /// Where a datagram goes.
    pub(super) fn aim(&self, resources: &Resources, index: usize) -> Option<(Path, wire::Qpn)> {
        let destination = self.send.destination(index)?;
        let group = destination.vector.destination.is_multicast();
        let qpn = if group { wire::Qpn::MULTICAST } else { destination.qpn };
        let port = source_port(destination.vector.flow_label, self.qpn.value(), qpn.value());
        Some((resources.path(&destination.vector, port)?, qpn))
    }

    /// Hands a packet to the sink, with its payload.
    fn dispatch(
        &mut self,
        resources: &mut Resources,
        entry: &SendEntry,
        header: &Packet,
        offset: u32,
        length: u32,
        sink: &mut impl Sink,
    ) -> Result<(), Status> {
        let path = &self.path;
        let sent = match self.send.inline(entry) {
            Some(bytes) => {
                let from = (offset as usize).min(bytes.len());
                let to = (from + length as usize).min(bytes.len());
                sink.send(path, header, Gather::Inline(&bytes[from..to]))
            }
            None => {
                let pieces = resources
                    .resolve(self.pd(), self.send.sges(entry), offset, length, Access::empty())
                    .map_err(|_| Status::LocalProtection)?;
                sink.send(path, header, Gather::Pieces(pieces))
            }
        };
        sent.map_err(|_| Status::LocalProtection)?;
        self.count_sent(resources, length);
        Ok(())
    }

    pub(super) fn count_sent(&mut self, resources: &mut Resources, length: u32) {
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += u64::from(length);
        resources.counters.sent_packets += 1;
        resources.counters.sent_bytes += u64::from(length);
    }

    /// Sends one packet again, out of turn (out-of-order mode).
    pub(super) fn resend(
        &mut self,
        resources: &mut Resources,
        psn: wire::Psn,
        now: Instant,
        sink: &mut impl Sink,
    ) -> Step {
        let lost = !psn.is_before(self.requester.unacknowledged) && psn.is_before(self.requester.next);
        let found = find_entry(&self.send, psn, self.requester.started).filter(|_| lost);
        let Some((index, entry)) = found else { return Step::Went };
        let packet = psn.distance_from(entry.first_psn) as u32;
        if let Err(status) = self.emit_request(resources, index, &entry, packet, 1, true, sink) {
            return self.stall(resources, status, now);
        }
        self.counters.retransmitted_packets += 1;
        resources.counters.retransmitted_packets += 1;
        self.arm_retransmit(now);
        Step::Sent
    }
}

fn find_entry(queue: &SendQueue, psn: wire::Psn, started: usize) -> Option<(usize, SendEntry)> {
    let index = queue.find(psn, started)?;
    Some((index, *queue.entry(index)?))
}

fn carries_payload(operation: &Operation) -> bool {
    matches!(operation, Operation::Send(_) | Operation::Write { .. } | Operation::AtomicWrite { .. })
}

/// UDP source port from a flow label, or from the two queue pair numbers (IBTA A17.3.2.1; Linux does the
/// same): 14 bits of entropy above 0xc000.
pub(crate) fn source_port(flow_label: u32, local: u32, remote: u32) -> u16 {
    let label = if flow_label == 0 {
        let product = u64::from(local) * u64::from(remote);
        (product ^ product >> 20 ^ product >> 40) as u32 & 0xf_ffff
    } else {
        flow_label
    };
    ((label & 0x3fff) ^ (label >> 14 & 0x3f)) as u16 | 0xc000
}

impl Outstanding {
    /// Whether nothing more is to come.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.end
    }
}
