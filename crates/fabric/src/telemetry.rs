//! In-band network telemetry: packets that ask for it collect what each switch says of the port by which they
//! leave it, as HPCC wants to know it (Li et al., SIGCOMM 2019, section 4.1 and figure 7).

use crate::time::{Rate, Time};

/// Switches that a packet has room for: paths in a data centre network cross five at most.
pub const HOPS_MAX: usize = 5;

/// What the room for them takes of each packet, and of each acknowledgement: 2 bytes, and 8 for each switch.
pub const TELEMETRY_BYTES: u32 = 2 + 8 * HOPS_MAX as u32;

/// What a switch says of a port, at the moment at which a packet's last bit leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The switch's number and the port's: by them a sender sees that packets take another path.
    pub port: u32,
    /// The moment at which the frame began to leave.
    pub at: Time,
    /// Bytes that the port has sent, with preamble and gap: a port that always sends sends at its rate.
    pub sent_bytes: u64,
    /// Bytes that wait there.
    pub queued_bytes: u32,
    /// The bit rate of the port.
    pub rate: Rate,
}

/// What a packet carries of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Telemetry {
    hops: [Option<Hop>; HOPS_MAX],
    /// Whether switches add to it; otherwise it is what a receiver sends back.
    collects: bool,
}

impl Telemetry {
    /// Nothing yet, to be collected.
    pub const EMPTY: Self = Self { hops: [None; HOPS_MAX], collects: true };

    /// The same, as it is sent back.
    pub const fn returned(mut self) -> Self {
        self.collects = false;
        self
    }

    /// What was collected, in the order of the path.
    pub fn hops(&self) -> impl Iterator<Item = &Hop> {
        self.hops.iter().flatten()
    }
}

/// The telemetry of packets, by the index of each. It has no entries until one asks for it.
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
