//! The counters of a host: totals at the end of the run, and the order and number of bytes in which flows
//! arrive.

use super::Host;
use super::frame::is_data;
use crate::world::results::{HostResult, Order};
use fabric::{LinkCounters, Time};
use std::collections::BTreeSet;

/// The counters of a flow at the receiver of its data.
#[derive(Clone, Debug, Default)]
pub struct Receiving {
    /// The highest PSN that arrived, and the last.
    highest: u32,
    last: u32,
    begun: bool,
    /// Data goes both ways: there is no order.
    pub(in crate::world) both_ways: bool,
    /// `highest`, counted on beyond 24 bits.
    count: u64,
    /// PSNs below it that have not come, counted likewise.
    missing: BTreeSet<u64>,
    /// The order in which packets came.
    pub order: Order,
    /// Payload that is in the receiver's memory.
    pub(in crate::world) delivered_bytes: u64,
}

impl Host {
    /// The counters of the host.
    pub(in crate::world) fn result(&self, now: Time) -> HostResult {
        HostResult {
            device: *self.device.port().counters(),
            queues: std::array::from_fn(|class| self.egress.counters(class, now)),
            pauses_received: self.pauses_received,
            incidents: self.egress.incidents().cloned().map(Box::new),
            link: LinkCounters::default(),
            pauses_sent: self.pcie.as_ref().map_or(0, |pcie| pcie.pauses_sent),
            dropped: self.pcie.as_ref().map_or(0, |pcie| pcie.dropped),
            receive_peak_bytes: self.pcie.as_ref().map_or(0, |pcie| pcie.peak_bytes),
            pcie_busy_ps: self.pcie.as_ref().map_or(0, |pcie| pcie.busy_ps()),
            function_drops: self.function_drops,
            cores_busy_ps: self
                .store
                .as_ref()
                .map_or_else(Vec::new, |store| store.cores_busy_ps()),
            memory_busy_ps: self
                .store
                .as_ref()
                .map_or(0, |store| store.memory_busy_ps()),
            drives_busy_ps: self
                .store
                .as_ref()
                .map_or_else(Vec::new, |store| store.drives_busy_ps()),
            io_timeouts: self
                .store
                .as_ref()
                .map_or_else(Default::default, |store| store.timed_out),
        }
    }
}

impl Receiving {
    #[inline]
    /// Notes a packet; those without data are not looked at.
    pub fn note_packet(&mut self, headers: &wire::Packet) {
        if !is_data(&headers.message) || self.both_ways {
            return;
        }
        self.note_psn(headers.psn.value());
    }

    /// Notes the sequence number of a packet with data, of which the lower 24 bits count.
    #[inline]
    pub(super) fn note_psn(&mut self, psn: u32) {
        if !std::mem::replace(&mut self.begun, true) {
            (self.highest, self.last, self.count) = (psn, psn, 1 << 32);
        }
        let ahead = distance(psn, self.highest);
        self.order.note_packet(ahead, distance(psn, self.last) < 0);
        self.order.note_gaps(ahead, self.count, &mut self.missing);
        self.last = psn;
        if ahead > 0 {
            self.highest = psn;
            self.count += u64::from(ahead.unsigned_abs());
        }
    }
}

/// From one PSN to another, in 24 bits.
fn distance(psn: u32, from: u32) -> i32 {
    ((psn.wrapping_sub(from) << 8) as i32) >> 8
}
