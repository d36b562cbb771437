//! In-band network telemetry: packets that request it collect a record of each switch port by which they
//! leave, as HPCC needs it (Li et al., SIGCOMM 2019, section 4.1 and figure 7).

use crate::time::{Rate, Time};

/// Switches that a packet has room for: paths in a data centre network cross five at most.
pub const HOPS_MAX: usize = 5;

/// Bytes by which telemetry lengthens each packet and each acknowledgement: 2, and 8 for each switch.
pub const TELEMETRY_BYTES: u32 = 2 + 8 * HOPS_MAX as u32;

/// The record of a switch port, taken when a frame begins to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// A number of switch and port, by which a sender notices that packets take another path.
    pub port: u32,
    /// The time at which the frame began to leave.
    pub at: Time,
    /// Bytes that the port has sent, with preamble and gap: a port that always sends sends at its rate.
    pub sent_bytes: u64,
    /// Bytes that wait at the port.
    pub queued_bytes: u32,
    /// The bit rate of the port.
    pub rate: Rate,
}

/// Telemetry that a packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Telemetry {
    hops: [Option<Hop>; HOPS_MAX],
    /// Whether switches append to it; otherwise a receiver is returning it.
    collects: bool,
}

impl Telemetry {
    /// An empty list, to which switches append.
    pub const EMPTY: Self = Self {
        hops: [None; HOPS_MAX],
        collects: true,
    };

    /// Returns the same records, as a receiver sends them back.
    pub const fn returned(mut self) -> Self {
        self.collects = false;
        self
    }

    /// The collected records, in the order of the path.
    pub fn hops(&self) -> impl Iterator<Item = &Hop> {
        self.hops.iter().flatten()
    }
}

/// The telemetry of packets, by the index of each. It has no entries until a packet carries telemetry.
#[derive(Debug, Default)]
pub(crate) struct Records(alloc::vec::Vec<Option<Telemetry>>);

impl Records {
    pub(crate) fn set(&mut self, index: usize, telemetry: Telemetry) {
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(telemetry);
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<Telemetry> {
        self.0.get(index).copied().flatten()
    }

    #[inline]
    pub(crate) fn forget(&mut self, index: usize) {
        if let Some(record) = self.0.get_mut(index) {
            *record = None;
        }
    }

    #[inline]
    pub(crate) fn stamp(&mut self, index: usize, hop: impl FnOnce() -> Hop) {
        if let Some(Some(record)) = self.0.get_mut(index)
            && record.collects
            && let Some(free) = record.hops.iter_mut().find(|free| free.is_none())
        {
            *free = Some(hop());
        }
    }
}
