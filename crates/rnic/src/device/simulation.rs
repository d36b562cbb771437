//! Calls of simulators only: a simulator knows which packets arrive, and what switches saw.

pub use crate::address::source_port;

use super::Device;
use crate::address::Arrival;
use crate::error::Error;
use crate::memory::{Memory, Payload};
use crate::qp::{Inbound, Origin};
use crate::sink::Sink;
use crate::telemetry::Hop;
use crate::time::Instant;
use wire::{Packet, Qpn};

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

    /// Prefetches into the processor's cache the state that a packet to this queue pair needs. A simulator of
    /// many devices that knows which packets arrive does this for several at once, so that they do not wait
    /// for memory one after the other.
    #[cfg(feature = "simulation")]
    fn prefetch(&self, qpn: Qpn);

    /// Prefetches the queue pairs whose turn to send, and whose timer, comes next.
    #[cfg(feature = "simulation")]
    fn prefetch_next(&self);
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
        let inbound = Inbound { arrival, origin: Origin::Network, packet, payload };
        if packet.dest == Qpn::MULTICAST {
            return self.handle_inbound(now, &inbound, memory);
        }
        if !self.accept(packet, payload) {
            return;
        }
        let Self { queue_pairs, resources, .. } = self;
        queue_pairs.deliver(resources, packet.dest, now, &inbound, memory, |qp, resources| {
            qp.answer_at_once(resources, sink);
        });
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
    fn prefetch(&self, qpn: Qpn) {
        self.queue_pairs.get(qpn).into_iter().for_each(|qp| qp.prefetch());
    }

    #[cfg(feature = "simulation")]
    fn prefetch_next(&self) {
        let next = self.queue_pairs.turns.next();
        next.filter_map(|index| self.queue_pairs.qps.get(index)).for_each(|qp| qp.prefetch());
    }
}
