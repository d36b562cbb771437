//! Everything of the device that is not a queue pair, and that queue pairs use.

use crate::access::Access;
use crate::address::{AddressVector, Gid, Path, Senders};
use crate::completion::{Completion, CompletionKind, Extra, Status};
use crate::config::Config;
use crate::counters::PortCounters;
use crate::cq::{CompletionQueue, Notice};
use crate::domain::Visit;
use crate::event::Event;
use crate::handle::{Cq, Pd, Srq};
use crate::memory::{Memory, Payload, Piece};
use crate::qp::attr::Mtu;
use crate::receive::SharedReceiveQueue;
use crate::region::Regions;
use crate::time::Instant;
use crate::work::Sge;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use slab::Slab;
use wire::Qpn;

/// Entries of the GID table: programs walk all of it, so it is small.
pub(crate) const GID_TABLE_LENGTH: usize = 16;

#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) config: Config,
    pub(crate) regions: Regions,
    pub(crate) cqs: Slab<CompletionQueue>,
    pub(crate) srqs: Slab<SharedReceiveQueue>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: PortCounters,
    pub(crate) gids: [Option<Gid>; GID_TABLE_LENGTH],
    pub(crate) active_mtu: Mtu,
    /// The pieces of the packet at hand; kept so that no packet allocates.
    pub(crate) pieces: Vec<Piece>,
    /// The numbers of shared receive queues begin with this one, and how many there are.
    pub(crate) srq_numbers: (u32, u32),
    /// Connections that have visited others so far.
    pub(crate) connections: u32,
    /// Ways on which a connection that is over has not been taken leave of.
    pub(crate) farewells: Vec<(u16, Visit)>,
    /// Queue pairs that grant something else now.
    pub(crate) changed_queues: Vec<Qpn>,
    /// Who sent the packet at hand, when it came by a lane.
    pub(crate) senders: Option<Senders>,
    /// Queue pairs whose peers, on lanes, wait for a receive of a shared queue.
    pub(crate) not_ready: Vec<(Srq, Qpn)>,
    /// Queue pairs whose completion queue overran: the device fails them after the call that found it.
    pub(crate) overrun: Vec<Cq>,
    /// Completion queues whose event waits for company.
    pub(crate) moderated: Vec<Cq>,
}

/// A completion to be made, without the fields that most do not have.
pub(crate) fn completion(
    qpn: Qpn,
    id: u64,
    status: Status,
    kind: CompletionKind,
    now: Instant,
) -> Completion {
    Completion {
        id,
        status,
        kind,
        length: 0,
        qpn,
        source: Qpn::new(0),
        extra: Extra::None,
        grh: None,
        at_ns: now.0,
    }
}

impl Resources {
    /// Notes that what a queue pair grants may have changed.
    pub(crate) fn note_queue(&mut self, qpn: Qpn) {
        if self.regions.is_watched {
            self.changed_queues.push(qpn);
        }
    }

    pub(crate) fn complete(&mut self, cq: Cq, completion: Completion, notice: Notice) {
        let notice = if completion.status == Status::Success { notice } else { Notice::Solicited };
        let Some(queue) = self.cqs.get_mut(cq.0 as usize) else { return };
        match queue.push(cq, completion, notice) {
            Some(event @ Event::CqError(_)) => {
                self.overrun.push(cq);
                self.events.push_back(event);
            }
            Some(event) => self.events.push_back(event),
            None => {
                if queue.due().is_some() && !self.moderated.contains(&cq) {
                    self.moderated.push(cq);
                }
            }
        }
    }

    /// When the first event that waits for company goes at last.
    pub(crate) fn next_moderated(&self) -> Option<Instant> {
        self.moderated.iter().filter_map(|cq| self.cqs.get(cq.0 as usize)?.due()).min()
    }

    /// Lets events go that have waited long enough.
    pub(crate) fn release_moderated(&mut self, now: Instant) {
        let (cqs, events) = (&mut self.cqs, &mut self.events);
        self.moderated.retain(|cq| {
            let Some(queue) = cqs.get_mut(cq.0 as usize) else { return false };
            events.extend(queue.release(*cq, now));
            queue.due().is_some()
        });
    }

    /// The shared receive queue of ours that has this number, if it is one of our numbers at all.
    pub(crate) fn srq_of(&self, number: Qpn) -> Option<Srq> {
        let (first, count) = self.srq_numbers;
        number.value().checked_sub(first).filter(|index| *index < count).map(Srq)
    }

    /// Takes a receive from an SRQ.
    pub(crate) fn take_shared(&mut self, srq: Srq, sges: &mut Vec<Sge>) -> Option<u64> {
        let (id, limit_reached) = self.srqs.get_mut(srq.0 as usize)?.take(sges);
        if limit_reached {
            self.events.push_back(Event::SrqLimitReached(srq));
        }
        id
    }

    /// Notes a queue pair whose peer waits for a receive of a shared queue.
    pub(crate) fn note_not_ready(&mut self, srq: Srq, qpn: Qpn) {
        if !self.not_ready.contains(&(srq, qpn)) {
            self.not_ready.push((srq, qpn));
        }
    }

    /// The one that has waited longest; it is forgotten.
    pub(crate) fn take_not_ready(&mut self, srq: Srq) -> Option<Qpn> {
        let place = self.not_ready.iter().position(|&(waits_for, _)| waits_for == srq)?;
        Some(self.not_ready.remove(place).1)
    }

    pub(crate) fn path(&self, vector: &AddressVector, source_port: u16) -> Option<Path> {
        let source = (*self.gids.get(usize::from(vector.source_index))?)?;
        Some(Path {
            source,
            destination: vector.destination,
            source_port,
            traffic_class: vector.traffic_class,
            hop_limit: if vector.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { vector.hop_limit },
            service_level: vector.service_level,
            flow_label: vector.flow_label,
            lane: 0,
        })
    }

    /// The memory behind `length` bytes from `offset` on of a list of elements.
    pub(crate) fn resolve<'a>(
        &mut self,
        pd: Pd,
        sges: impl Iterator<Item = &'a Sge>,
        mut offset: u32,
        mut length: u32,
        need: Access,
    ) -> Result<&[Piece], Unresolved> {
        self.pieces.clear();
        let mut count = 0;
        for sge in sges {
            if length == 0 {
                break;
            }
            if offset >= sge.length {
                offset -= sge.length;
                continue;
            }
            let taken = length.min(sge.length - offset);
            let part = crate::qp::send_queue::part(sge, offset, taken);
            let Some(piece) = self.regions.local(pd, &part, need) else { return Err(Unresolved::Key) };
            self.pieces.push(piece);
            count += 1;
            length -= taken;
            offset = 0;
        }
        // Counted, because a length read back together with the pointer waits for all stores before it.
        if length == 0 { Ok(self.pieces.get(..count).unwrap_or_default()) } else { Err(Unresolved::TooShort) }
    }
}

/// Writes a packet's payload over pieces, which hold as many bytes.
pub(crate) fn scatter(
    pieces: &[Piece],
    mut payload: Payload<'_>,
    memory: &mut impl Memory,
) -> Result<(), Unresolved> {
    if let [only] = pieces {
        return memory.write(*only, payload).map_err(|_| Unresolved::Key);
    }
    for piece in pieces {
        let (part, rest) = payload.split_at(piece.length);
        memory.write(*piece, part).map_err(|_| Unresolved::Key)?;
        payload = rest;
    }
    Ok(())
}

/// TTL of a path that names none: Linux's default for RoCEv2.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// Why a list of elements has no memory behind it. As wide as the first field of a [`Piece`], for which it
/// stands in a `Result`: a narrower one is copied in parts, which the processor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Unresolved {
    /// A key, range or right is wrong.
    Key,
    /// The elements are shorter than the data.
    TooShort,
}
