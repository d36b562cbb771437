//! Calls of simulators only: a simulator knows which packets arrive, and what switches saw.

pub use crate::address::source_port;

use super::Device;
#[cfg(feature = "simulation")]
use super::table::QueuePairs;
use crate::address::Arrival;
use crate::error::Error;
#[cfg(feature = "simulation")]
use crate::handle::Cq;
use crate::memory::{Memory, Payload};
use crate::qp::{Inbound, Origin};
#[cfg(feature = "simulation")]
use crate::resources::Resources;
use crate::sink::Sink;
use crate::telemetry::Hop;
use crate::time::Instant;
use wire::{Packet, Qpn};

/// Which lines [`Simulated::lines`] names: those of a depth are found in the lines of the depths before it.
#[cfg(feature = "simulation")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// The device itself.
    Device,
    /// Lists and tables of the device.
    Tables,
    /// The entries of the tables.
    Entries,
    /// The queue pair.
    QueuePair,
    /// The queue pair's lists.
    Queues,
}

/// The address of the first cache line of a value.
#[cfg(feature = "simulation")]
#[inline(always)]
fn line<T>(value: &T) -> *const u8 {
    core::ptr::from_ref(value).cast()
}

/// A device of a simulation.
pub trait Simulated {
    /// Calls [`Device::handle_packet`], and sends at once the packets without payload that the queue pair
    /// then owes (acknowledgements, NAKs, congestion notifications): for a driver with queues for them that
    /// bypass those of data.
    fn handle_packet_and_answer(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
        sink: &mut impl Sink,
    );

    /// Handles the telemetry in the packet that is handled next, in the order of the path: an acknowledgement
    /// carries what the acknowledged packet collected, a READ response its own. Only HPCC uses it.
    fn handle_telemetry(&mut self, qpn: Qpn, hops: &[Hop]);

    /// The rate that congestion control allows a queue pair, in bits per second; `None` when it sets none.
    fn rate_bps(&self, qpn: Qpn) -> Result<Option<u64>, Error>;

    /// Names the cache lines that a packet to this queue pair needs; without a number, those of the next turn
    /// to send and of the next timer. A simulator of many devices knows which packets arrive, and loads lines
    /// before it needs them.
    #[cfg(feature = "simulation")]
    fn lines(&self, depth: Depth, qpn: Option<Qpn>, load: impl Fn(*const u8));
}

impl Simulated for Device {
    fn handle_packet_and_answer(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
        sink: &mut impl Sink,
    ) {
        let inbound = Inbound {
            arrival,
            origin: Origin::Network,
            packet,
            payload,
        };
        if packet.dest == Qpn::MULTICAST {
            return self.handle_inbound(now, &inbound, memory);
        }
        if !self.accept(packet, payload) {
            return;
        }
        let Self {
            queue_pairs,
            resources,
            ..
        } = self;
        queue_pairs.deliver(
            resources,
            packet.dest,
            now,
            &inbound,
            memory,
            |qp, resources| {
                qp.answer_at_once(resources, sink);
            },
        );
        queue_pairs.fail_overrun(resources, now);
    }

    fn handle_telemetry(&mut self, qpn: Qpn, hops: &[Hop]) {
        let index = self.queue_pairs.qpns.index(qpn);
        let qp = index.and_then(|index| self.queue_pairs.qps.get_mut(index));
        qp.into_iter().for_each(|qp| qp.congestion().told(hops));
    }

    fn rate_bps(&self, qpn: Qpn) -> Result<Option<u64>, Error> {
        Ok(self.queue_pairs.get(qpn)?.rate_bps())
    }

    #[cfg(feature = "simulation")]
    #[inline]
    fn lines(&self, depth: Depth, qpn: Option<Qpn>, load: impl Fn(*const u8)) {
        let Self {
            queue_pairs,
            resources,
            ..
        } = self;
        let indices = || {
            let own = qpn.and_then(|qpn| queue_pairs.qpns.index(qpn));
            own.into_iter()
                .chain(queue_pairs.turns.next().filter(|_| qpn.is_none()))
        };
        let found = || indices().filter_map(|index| queue_pairs.qps.get(index));
        match depth {
            Depth::Device => {
                let Resources {
                    port,
                    regions,
                    cqs,
                    pieces,
                    events,
                    ..
                } = resources;
                let QueuePairs {
                    qps, qpns, turns, ..
                } = queue_pairs;
                let lines = [
                    line(&port.counters),
                    line(regions),
                    line(cqs),
                    line(pieces),
                    line(events),
                ];
                lines
                    .into_iter()
                    .chain([line(qps), line(qpns), line(turns)])
                    .for_each(load);
            }
            Depth::Tables => {
                queue_pairs.turns.lines(&load);
                resources.regions.lines(&load);
                load(resources.pieces.as_ptr().cast());
                queue_pairs.qpns.lines(&load);
            }
            Depth::Entries => {
                qpn.into_iter()
                    .for_each(|qpn| queue_pairs.qpns.lines_of(qpn, &load));
                // This is read, and not named, because a slab does not tell where its entries are.
                core::hint::black_box(resources.cqs.completions(Cq(0)));
            }
            Depth::QueuePair => found().for_each(|qp| qp.lines(&load)),
            Depth::Queues => found().for_each(|qp| qp.queue_lines(&load)),
        }
    }
}
