//! State of the device that queue pairs use, other than the queue pairs themselves.

use crate::access::Access;
use crate::address::{AddressVector, Path};
use crate::completion::{Completion, CompletionKind, Extra, Status};
use crate::completion_queues::CompletionQueues;
use crate::config::Config;
use crate::cq::Notice;
use crate::domain::ForwardedRequest;
use crate::event::Event;
use crate::handle::{Cq, Pd, Srq};
use crate::memory::{Fault, Memory, Payload, Piece};
use crate::port::Port;
use crate::random::Random;
use crate::region::Regions;
use crate::shared_receives::SharedReceives;
use crate::time::Instant;
use crate::work::Sge;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::{PartitionKey, Qpn};

#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) config: Config,
    pub(crate) regions: Regions,
    pub(crate) cqs: CompletionQueues,
    pub(crate) srqs: SharedReceives,
    pub(crate) port: Port,
    pub(crate) events: VecDeque<Event>,
    /// The pieces of the current packet; kept so that no packet allocates.
    pub(crate) pieces: Vec<Piece>,
    /// Number of connections whose requests were forwarded so far.
    pub(crate) connections: u32,
    /// Close notices of XRC forwarding that are not sent yet, and their channels.
    pub(crate) close_notices: Vec<(u16, ForwardedRequest)>,
    /// Queue pairs whose grant has changed.
    pub(crate) changed_queues: Vec<Qpn>,
}

/// A new completion, with the fields that all completions have.
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
        source_lid: 0,
        service_level: 0,
        path_bits: 0,
        at_ns: now.0,
    }
}

impl Resources {
    pub(crate) fn new(config: Config, random: &mut Random) -> Self {
        Self {
            regions: Regions::new(config.max_mr, random),
            cqs: CompletionQueues::new(&config),
            srqs: SharedReceives::default(),
            port: Port::default(),
            events: VecDeque::new(),
            pieces: Vec::new(),
            connections: 0,
            close_notices: Vec::new(),
            changed_queues: Vec::new(),
            config,
        }
    }

    /// Records that the grant of a queue pair may have changed.
    pub(crate) fn note_queue(&mut self, qpn: Qpn) {
        if self.regions.is_watched {
            self.changed_queues.push(qpn);
        }
    }

    pub(crate) fn complete(&mut self, cq: Cq, completion: Completion, notice: Notice) {
        self.cqs.complete(cq, completion, notice, &mut self.events);
    }

    /// Takes a receive from an SRQ.
    pub(crate) fn take_shared(&mut self, srq: Srq, sges: &mut Vec<Sge>) -> Option<u64> {
        let (id, limit_reached) = self.srqs.get_mut(srq).ok()?.take(sges);
        if limit_reached {
            self.events.push_back(Event::SrqLimitReached(srq));
        }
        id
    }

    pub(crate) fn path(&self, vector: &AddressVector, source_port: u16) -> Option<Path> {
        let hop_limit = match vector.hop_limit {
            0 => DEFAULT_HOP_LIMIT,
            limit => limit,
        };
        if let Some(route) = vector.local {
            if route.is_global {
                self.port.gids.get(vector.source_index)?;
            }
            return self.port.subnet.as_ref()?.path(vector, route, hop_limit);
        }
        let source = self.port.gids.get(vector.source_index)?;
        Some(Path {
            source,
            destination: vector.destination,
            source_port,
            traffic_class: vector.traffic_class,
            hop_limit,
            service_level: vector.service_level,
            flow_label: vector.flow_label,
            channel: 0,
        })
    }

    /// The partition key of a queue pair with this index in its attributes. One that the manager has removed
    /// from the port's table is none: what is sent with it arrives nowhere.
    #[inline(always)]
    pub(crate) fn partition(&self, index: u16) -> PartitionKey {
        const NONE: PartitionKey = PartitionKey(0);
        match &self.port.subnet {
            None => PartitionKey::DEFAULT,
            Some(port) => port.partition(index).unwrap_or(NONE),
        }
    }

    /// The memory of `length` bytes from `offset` on in a list of elements.
    #[inline(always)]
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
            let Some(piece) = self.regions.local(pd, &part, need) else {
                return Err(Unresolved::Key);
            };
            self.pieces.push(piece);
            count += 1;
            length -= taken;
            offset = 0;
        }
        // Counted, because a length that is read back together with the pointer waits for all stores before
        // it.
        if length == 0 {
            Ok(self.pieces.get(..count).unwrap_or_default())
        } else {
            Err(Unresolved::TooShort)
        }
    }
}

/// Writes a packet's payload over pieces, which hold as many bytes.
pub(crate) fn scatter(
    pieces: &[Piece],
    mut payload: Payload<'_>,
    memory: &mut impl Memory,
) -> Result<(), Unresolved> {
    if let [only] = pieces {
        return memory.write(*only, payload).map_err(unresolved);
    }
    for piece in pieces {
        let (part, rest) = payload.split_at(piece.length);
        memory.write(*piece, part).map_err(unresolved)?;
        payload = rest;
    }
    Ok(())
}

fn unresolved(fault: Fault) -> Unresolved {
    match fault {
        Fault::Unmapped => Unresolved::Key,
        Fault::Payload => Unresolved::Payload,
    }
}

/// TTL of a path without one: Linux's default for RoCEv2.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// Reason why a list of elements has no memory. It is as wide as the first field of a [`Piece`], with which
/// it shares a `Result`: a narrower one would be copied in parts, which stalls the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Unresolved {
    /// A key, range or right is wrong.
    Key,
    /// The elements are shorter than the data.
    TooShort,
    /// The data cannot be fetched from the sender's memory.
    Payload,
}
