//! Data buffers of one connection. A buffer is reused only for the same host, so that it contains nothing
//! that this host could not read anyway: data that it wrote or read, or old contents of a disk where it
//! wrote. The bytes in use are limited.

use std::sync::Arc;

use crate::budget::Share;
use crate::limits::{LENT_BYTES_MIN, QUEUE_DATA_BYTES};
use crate::target::Request;
use buffer::{ALIGNMENT, Buffer, UnauthenticatedShare};
use rdma::Domain;

/// Size classes: powers of two from one page to the largest transfer, and one more.
const CLASSES: usize = 10;
/// Limit of [`Pool::spare_bytes`]: what a queue of 128 short commands is charged for lent memory.
const SPARE_BYTES: usize = 128 * LENT_BYTES_MIN;

/// Free buffers, and the number of bytes in use.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<Buffer>; CLASSES],
    free_bytes: usize,
    /// Charged, as free buffers are, for the next memory that a store lends: the budget is shared by all
    /// threads, and changing it takes longer than everything else here.
    spare_bytes: usize,
    out_bytes: usize,
    /// The charge to the budget of the server: free buffers, buffers in use, and lent memory. `None` without
    /// a server.
    share: Option<Share>,
    /// The protection domain that buffers are registered in; `None` over TCP.
    domain: Option<Arc<Domain>>,
    /// Whether data of an unauthenticated host arrived for which its memory did not suffice.
    is_overdrawn: bool,
    /// The memory of an unauthenticated host, which is charged too. Dropped last.
    guest: Option<Arc<UnauthenticatedShare>>,
}

fn class_of(length: usize) -> usize {
    length.div_ceil(ALIGNMENT).next_power_of_two().trailing_zeros() as usize
}

impl Pool {
    /// A pool that charges the budget of the server.
    pub(crate) fn charging(share: Share) -> Self {
        Self { share: Some(share), ..Self::default() }
    }

    /// A pool with buffers that are registered in a protection domain.
    pub(crate) fn registered(domain: Arc<Domain>, share: Share) -> Self {
        Self { domain: Some(domain), ..Self::charging(share) }
    }

    /// Charges buffers to the memory of an unauthenticated host as well, until
    /// [`Pool::mark_authenticated`].
    pub(crate) fn of_guest(self, guest: Option<Arc<UnauthenticatedShare>>) -> Self {
        Self { guest, ..self }
    }

    /// Ends the charge to the memory of an unauthenticated host.
    pub(crate) fn mark_authenticated(&mut self) {
        self.guest = None;
    }

    /// Whether the connection has to end, because data of an unauthenticated host arrived for which its
    /// memory did not suffice.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.is_overdrawn
    }

    /// Charges the budgets; frees idle buffers of this pool if they do not suffice.
    fn charge(&mut self, bytes: usize) -> bool {
        if self.charge_at_once(bytes) {
            return true;
        }
        if self.free_bytes == 0 && self.spare_bytes == 0 {
            return false;
        }
        self.free_idle();
        self.charge_at_once(bytes)
    }

    fn charge_at_once(&mut self, bytes: usize) -> bool {
        if self.guest.as_ref().is_some_and(|guest| !guest.grow(bytes)) {
            return false;
        }
        let is_charged = self.share.as_mut().is_none_or(|share| share.charge(bytes));
        if !is_charged && let Some(guest) = &self.guest {
            guest.shrink(bytes);
        }
        is_charged
    }

    fn release(&mut self, bytes: usize) {
        if let Some(guest) = &self.guest {
            guest.shrink(bytes);
        }
        if let Some(share) = &mut self.share {
            share.release(bytes);
        }
    }

    /// Whether all connections together have taken more than the budget.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.share.as_ref().is_some_and(Share::is_exceeded)
    }

    /// Allocates a buffer. If the device cannot register more memory, the buffer is not registered, and the
    /// connection ends when it is used.
    fn make(&self, size: usize) -> Buffer {
        let registered = self.domain.as_ref().and_then(|domain| domain.registered(size).ok());
        registered.unwrap_or_else(|| Buffer::zeroed(size))
    }

    /// A buffer of at least this length. `None` when the limit is reached; buffers in use are returned later.
    pub(crate) fn take(&mut self, length: usize) -> Option<Buffer> {
        let class = class_of(length);
        let size = ALIGNMENT << class;
        if self.out_bytes != 0 && self.out_bytes + size > QUEUE_DATA_BYTES {
            return None;
        }
        let is_free = self.free.get(class).is_some_and(|free| !free.is_empty());
        if !is_free && !self.charge(size) {
            return None;
        }
        Some(self.taken(class, size, is_free))
    }

    /// A free buffer of this class, or a new one that is charged already.
    fn taken(&mut self, class: usize, size: usize, is_free: bool) -> Buffer {
        self.out_bytes += size;
        let free = if is_free { self.free.get_mut(class).and_then(Vec::pop) } else { None };
        match free {
            Some(buffer) => {
                self.free_bytes -= size;
                buffer
            }
            None => self.make(size),
        }
    }

    /// Provides the memory for the data of a command: a buffer, or the charge for memory that the store
    /// lends. `None` when the limit is reached.
    pub(crate) fn provide(&mut self, request: &Request) -> Option<Option<Buffer>> {
        if request.lends() {
            if self.lend(request.length) {
                return Some(None);
            }
            if request.length >= LENT_BYTES_MIN {
                return None;
            }
        }
        self.take(request.length).map(Some)
    }

    /// The charge for `length` bytes that a store lends: more than the bytes of a short read, because the
    /// store keeps the whole chunk if it is written meanwhile.
    pub(crate) fn lent_charge(length: usize) -> usize {
        length.max(LENT_BYTES_MIN)
    }

    /// Charges `length` bytes that a store lends, until [`Pool::lent_back`]; `false` when the limit is
    /// reached.
    fn lend(&mut self, length: usize) -> bool {
        let bytes = Self::lent_charge(length);
        let mut fits = self.out_bytes == 0 || self.out_bytes + bytes <= QUEUE_DATA_BYTES;
        if self.spare_bytes >= bytes && fits {
            self.spare_bytes -= bytes;
        } else {
            fits = fits && self.charge(bytes);
        }
        if fits {
            self.out_bytes += bytes;
        }
        fits
    }

    /// Ends a charge for memory that a store lent, or `bytes` of it.
    pub(crate) fn lent_back(&mut self, bytes: usize) {
        self.out_bytes = self.out_bytes.saturating_sub(bytes);
        if self.is_wanted() {
            let spare = std::mem::take(&mut self.spare_bytes);
            self.release(bytes + spare);
        } else if self.spare_bytes + bytes <= SPARE_BYTES && self.keeps(bytes) {
            self.spare_bytes += bytes;
        } else {
            self.release(bytes);
        }
    }

    /// Whether so many bytes may be kept that are not in use.
    fn keeps(&self, bytes: usize) -> bool {
        self.free_bytes + self.spare_bytes + bytes <= QUEUE_DATA_BYTES
    }

    /// Whether another connection waits for memory.
    fn is_wanted(&self) -> bool {
        self.share.as_ref().is_some_and(Share::is_wanted)
    }

    /// Takes a buffer even beyond the limit, for data that have arrived already: in-capsule data, whose sum
    /// has a limit of its own.
    pub(crate) fn take_beyond(&mut self, length: usize) -> Buffer {
        let class = class_of(length);
        let size = ALIGNMENT << class;
        let is_free = self.free.get(class).is_some_and(|free| !free.is_empty());
        if !is_free {
            self.is_overdrawn |= self.guest.as_ref().is_some_and(|guest| !guest.grow(size));
            if let Some(share) = self.share.as_mut() {
                share.charge_anyway(size);
            }
        }
        self.taken(class, size, is_free)
    }

    /// Takes a buffer back, and frees it if another connection waits for memory.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        let size = buffer.len();
        self.out_bytes = self.out_bytes.saturating_sub(size);
        // A buffer that a store in memory gave in exchange may not be registered with this device.
        let is_known = self.domain.as_ref().is_none_or(|domain| domain.has_registered(&buffer));
        if is_known
            && !self.is_wanted()
            && self.keeps(size)
            && let Some(class) = self.free.get_mut(class_of(size))
        {
            self.free_bytes += size;
            class.push(buffer);
        } else {
            drop(buffer);
            self.release(size);
        }
    }

    /// Frees idle buffers, because the connection is idle.
    pub(crate) fn release_idle(&mut self) {
        self.free_idle();
    }

    /// Frees the buffers that are not in use.
    fn free_idle(&mut self) {
        self.free.iter_mut().for_each(|free| *free = Vec::new());
        let freed = std::mem::take(&mut self.free_bytes) + std::mem::take(&mut self.spare_bytes);
        self.release(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TRANSFER_BYTES_MAX;

    #[test]
    fn short_lent_reads_count_as_long_ones() {
        let mut pool = Pool::default();
        let lent = (0..).take_while(|_| pool.lend(4096)).count();
        assert_eq!(lent, QUEUE_DATA_BYTES / LENT_BYTES_MIN);
        (0..lent).for_each(|_| pool.lent_back(Pool::lent_charge(4096)));
        assert_eq!((pool.out_bytes, pool.spare_bytes), (0, SPARE_BYTES));
        assert!(pool.lend(4096));
        assert_eq!((pool.out_bytes, pool.spare_bytes), (LENT_BYTES_MIN, SPARE_BYTES - LENT_BYTES_MIN));
        pool.release_idle();
        assert_eq!(pool.spare_bytes, 0);
    }

    #[test]
    fn buffers_of_an_unauthenticated_host_are_charged_to_its_memory() {
        use buffer::UnauthenticatedBudget;
        let budget = UnauthenticatedBudget::new(8 * ALIGNMENT);
        let guest = budget.admit([192, 0, 2, 1].into(), ALIGNMENT).map(Arc::new);
        let mut pool = Pool::default().of_guest(guest);
        let out: Vec<_> = std::iter::from_fn(|| pool.take(1)).collect();
        assert_eq!((out.len(), budget.used()), (6, 7 * ALIGNMENT));
        assert!(!pool.is_overdrawn());
        let beyond = pool.take_beyond(1);
        assert!(pool.is_overdrawn() && budget.used() <= budget.limit());
        out.into_iter().chain([beyond]).for_each(|buffer| pool.give(buffer));
        pool.release_idle();
        assert!(pool.take(4 * ALIGNMENT).is_some());
        pool.mark_authenticated();
        assert_eq!(budget.used(), 0);
        assert!(pool.take(TRANSFER_BYTES_MAX).is_some());
    }

    #[test]
    fn buffers_in_use_are_limited() {
        let mut pool = Pool::default();
        let out: Vec<_> = std::iter::from_fn(|| pool.take(TRANSFER_BYTES_MAX)).collect();
        assert_eq!(out.len(), QUEUE_DATA_BYTES / TRANSFER_BYTES_MAX);
        assert!(pool.take(1).is_none());
        out.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!((pool.out_bytes, pool.free_bytes), (0, QUEUE_DATA_BYTES));
        pool.release_idle();
        assert_eq!(pool.free_bytes, 0);
        assert_eq!(pool.take(5000).unwrap().len(), 8192);
    }
}
