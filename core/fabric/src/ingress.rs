//! Admission: how much buffer an arriving packet may take, and when its sender gets Xoff.
//!
//! Each priority group of each port has a reserve of its own, then a part of the shared buffer up to a limit
//! that may depend on the free part, then, if it is lossless, headroom for packets that were on their way
//! when the pause was sent (802.1Q annex N gives the sum). Memory is returned in the opposite order.

use crate::config::{BufferConfig, CLASSES, GroupConfig, Limit, Profile};
use crate::counters::{BufferCounters, GroupCounters, IngressCounters};

/// Bytes of a port's priority group in the buffer.
#[derive(Clone, Copy, Default, Debug)]
struct Use {
    /// Bytes of reserve and shared buffer.
    bytes: u32,
    headroom: u32,
    peaks: GroupCounters,
}

/// The receiving half of a port.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Ingress {
    /// Groups for which the last signal to the peer is Xoff.
    xoff_sent: u8,
    pub(crate) counters: IngressCounters,
    uses: [Use; CLASSES],
}

impl Default for Ingress {
    fn default() -> Self {
        Self {
            uses: [Use::default(); CLASSES],
            xoff_sent: 0,
            counters: IngressCounters::default(),
        }
    }
}

/// The shared part of the packet memory.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    shared_bytes: u32,
    shared_used: u32,
    /// Bytes left in the common pool of headroom; `None` when each group has its own.
    headroom_left: Option<u32>,
    headroom_used: u32,
    cell_bytes: u32,
    pub(crate) counters: BufferCounters,
}

/// A PFC signal of a receiver to its peer for one priority (802.1Q clause 36).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PfcSignal {
    /// Nothing has changed.
    None,
    /// The peer is to pause the priority: the buffer is at its limit.
    Xoff,
    /// The peer may send again: the buffer has room.
    Xon,
}

impl Buffer {
    /// Makes the buffer. Memory that is neither reserve nor headroom is shared.
    pub(crate) fn new<'a>(config: &BufferConfig, ports: impl Iterator<Item = &'a Profile>) -> Self {
        let (mut reserve, mut headroom) = (0_u64, 0_u64);
        for group in ports.flat_map(|profile| &profile.groups) {
            reserve += u64::from(group.reserve_bytes);
            headroom += u64::from(group.headroom_bytes);
        }
        let headroom = config.headroom_pool_bytes.map_or(headroom, u64::from);
        let shared = u64::from(config.total_bytes).saturating_sub(reserve + headroom);
        Self {
            shared_bytes: shared as u32,
            shared_used: 0,
            headroom_left: config.headroom_pool_bytes,
            headroom_used: 0,
            cell_bytes: config.cell_bytes.max(1),
            counters: BufferCounters::default(),
        }
    }

    /// Bytes of buffer that a packet takes.
    #[inline]
    pub(crate) fn cost(&self, length: u16) -> u32 {
        match self.cell_bytes {
            1 => u32::from(length),
            cell => u32::from(length).next_multiple_of(cell),
        }
    }

    pub(crate) fn limit(&self, limit: Limit) -> u32 {
        let free = self.shared_bytes.saturating_sub(self.shared_used);
        match limit {
            Limit::None => u32::MAX,
            Limit::Static(bytes) => bytes,
            Limit::Dynamic(alpha) => {
                ((u64::from(free) * u64::from(alpha)) >> 16).min(u64::from(u32::MAX)) as u32
            }
        }
    }

    fn free(&self) -> u32 {
        self.shared_bytes.saturating_sub(self.shared_used)
    }

    fn take_shared(&mut self, bytes: u32) {
        self.shared_used += bytes;
        self.counters.shared_peak_bytes = self.counters.shared_peak_bytes.max(self.shared_used);
    }

    fn take_headroom(&mut self, bytes: u32) {
        if let Some(left) = &mut self.headroom_left {
            *left -= bytes;
        }
        self.headroom_used += bytes;
        self.counters.headroom_peak_bytes =
            self.counters.headroom_peak_bytes.max(self.headroom_used);
    }

    fn return_headroom(&mut self, bytes: u32) {
        if let Some(left) = &mut self.headroom_left {
            *left += bytes;
        }
        self.headroom_used -= bytes;
    }
}

/// The part of `bytes` beyond the group's reserve.
fn shared_part(bytes: u32, config: &GroupConfig) -> u32 {
    bytes.saturating_sub(config.reserve_bytes)
}

impl Ingress {
    /// Takes `cost` bytes for a packet of `group`; `None` if there is no room.
    #[inline(always)]
    pub(crate) fn admit(
        &mut self,
        group: usize,
        cost: u32,
        config: &GroupConfig,
        buffer: &mut Buffer,
    ) -> Option<PfcSignal> {
        let usage = &mut self.uses[group];
        let shared = shared_part(usage.bytes + cost, config);
        let more = shared - shared_part(usage.bytes, config);
        let limit = buffer.limit(config.limit);
        let fits = more == 0 || (shared <= limit && more <= buffer.free() && usage.headroom == 0);
        if fits {
            usage.bytes += cost;
            usage.peaks.shared_peak_bytes = usage.peaks.shared_peak_bytes.max(shared);
            buffer.take_shared(more);
        } else {
            let room = config.headroom_bytes.saturating_sub(usage.headroom);
            let pool = buffer.headroom_left.unwrap_or(u32::MAX);
            if cost > room.min(pool) {
                return None;
            }
            usage.headroom += cost;
            usage.peaks.headroom_peak_bytes = usage.peaks.headroom_peak_bytes.max(usage.headroom);
            buffer.take_headroom(cost);
            let headroom: u32 = self.uses.iter().map(|usage| usage.headroom).sum();
            self.counters.headroom_peak_bytes = self.counters.headroom_peak_bytes.max(headroom);
        }
        let counters = &mut buffer.counters;
        counters.bytes += cost;
        counters.peak_bytes = counters.peak_bytes.max(counters.bytes);
        let full =
            !fits || shared_part(self.uses[group].bytes, config) >= buffer.limit(config.limit);
        if full && config.headroom_bytes > 0 && self.xoff_sent >> group & 1 == 0 {
            self.xoff_sent |= 1 << group;
            return Some(PfcSignal::Xoff);
        }
        Some(PfcSignal::None)
    }

    /// Gives back what a packet took.
    #[inline(always)]
    pub(crate) fn release(
        &mut self,
        group: usize,
        cost: u32,
        config: &GroupConfig,
        buffer: &mut Buffer,
    ) -> PfcSignal {
        let usage = &mut self.uses[group];
        let from_headroom = cost.min(usage.headroom);
        usage.headroom -= from_headroom;
        buffer.return_headroom(from_headroom);
        let rest = cost - from_headroom;
        let before = shared_part(usage.bytes, config);
        usage.bytes -= rest;
        buffer.shared_used -= before - shared_part(usage.bytes, config);
        buffer.counters.bytes -= cost;
        if self.xoff_sent >> group & 1 == 0 {
            return PfcSignal::None;
        }
        let shared = shared_part(usage.bytes, config);
        let low = shared == 0
            || shared.saturating_add(config.xon_offset_bytes) <= buffer.limit(config.limit);
        if usage.headroom == 0 && low {
            self.xoff_sent &= !(1 << group);
            return PfcSignal::Xon;
        }
        PfcSignal::None
    }

    /// The cache line of what a group has in the buffer.
    #[inline]
    pub(crate) fn use_line(&self, group: u8) -> *const u8 {
        core::ptr::from_ref(&self.uses[usize::from(group) % CLASSES]).cast()
    }

    /// The most that each group ever had.
    pub(crate) fn peaks(&self) -> [GroupCounters; CLASSES] {
        self.uses.map(|usage| usage.peaks)
    }

    /// Bytes that a group has in the buffer.
    pub(crate) fn bytes(&self, group: usize) -> u32 {
        self.uses[group].bytes + self.uses[group].headroom
    }

    /// Makes these groups send their signal again, from their next packet on.
    pub(crate) fn forget_xoff(&mut self, groups: u8) {
        self.xoff_sent &= !groups;
    }

    /// Groups for which the last signal to the peer is Xoff.
    pub(crate) fn xoff_sent(&self) -> u8 {
        self.xoff_sent
    }
}
