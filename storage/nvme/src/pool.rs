//! Data buffers of one connection. A buffer is reused only for the same host, so that it contains nothing
//! that this host could not read anyway: data that it wrote or read, or old contents of a disk where it
//! wrote. The bytes in use are limited.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::controller::Request;
use crate::limits::{LENT_BYTES_MIN, QUEUE_DATA_BYTES};
use buffer::{ALIGNMENT, Buffer};
use rdma::Domain;
use server::budget::{Budget, Charge, Share};
use server::{GuestCharge, GuestMemory, UnauthenticatedShare, Wake};

/// Size classes: powers of two from one page to the largest transfer, and one more.
const CLASSES: usize = 10;
/// Limit of [`Pool::spare_bytes`]: what a queue of 128 short commands is charged for lent memory.
const SPARE_BYTES: usize = 128 * LENT_BYTES_MIN;

/// Free buffers, and the number of bytes in use.
#[derive(Debug)]
pub(crate) struct Pool {
    free: [Vec<Buffer>; CLASSES],
    free_bytes: usize,
    /// Charged, as free buffers are, for the next memory that a store lends: the budget is shared by all
    /// threads, and changing it takes longer than everything else here.
    spare_bytes: usize,
    /// Bytes that stores lend at present.
    lent_bytes: usize,
    /// The charge for lent and spare bytes.
    lent: Taken,
    /// Bytes of the buffers in use, each of which has a [`Loan`].
    out_bytes: Arc<AtomicUsize>,
    /// The part of the budget of the server that this connection may charge.
    share: Arc<Share>,
    /// The protection domain that buffers are registered in; `None` over TCP.
    domain: Option<Arc<Domain>>,
    /// Whether data of an unauthenticated host arrived for which its memory did not suffice.
    is_overdrawn: bool,
    /// The memory of an unauthenticated host, which is charged too.
    guest: Option<Arc<GuestMemory>>,
}

/// Bytes of the budget of the server and, for an unauthenticated host, of its memory. Dropping it gives back
/// both.
#[derive(Debug)]
struct Taken {
    charge: Charge,
    guest: Option<GuestCharge>,
}

impl Taken {
    fn add(&mut self, other: Self) {
        self.charge.add(other.charge);
        match (&mut self.guest, other.guest) {
            (Some(guest), Some(other)) => guest.add(other),
            (guest, other) => *guest = guest.take().or(other),
        }
    }

    fn release(&mut self, bytes: usize) {
        self.charge.release(bytes);
        if let Some(guest) = &mut self.guest {
            guest.release(bytes);
        }
    }
}

/// What a buffer of a pool carries: its bytes of the budgets, and of the limit of its queue. A buffer that is
/// dropped anywhere, instead of being given back to its pool, gives back all of them.
#[derive(Debug)]
struct Loan {
    taken: Taken,
    out_bytes: Arc<AtomicUsize>,
    is_out: bool,
}

impl Loan {
    fn begin(&mut self) {
        self.is_out = true;
        self.out_bytes
            .fetch_add(self.taken.charge.bytes(), Ordering::Relaxed);
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_out) {
            self.out_bytes
                .fetch_sub(self.taken.charge.bytes(), Ordering::Relaxed);
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.end();
    }
}

/// A pool without a server, and so without its budget.
impl Default for Pool {
    fn default() -> Self {
        struct Unlimited;
        impl Wake for Unlimited {
            fn wake(&self) {}
        }
        let host = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        Self::charging(Budget::new(usize::MAX).share(host, Arc::new(Unlimited)))
    }
}

fn class_of(length: usize) -> usize {
    length
        .div_ceil(ALIGNMENT)
        .next_power_of_two()
        .trailing_zeros() as usize
}

impl Pool {
    /// A pool that charges the budget of the server.
    pub(crate) fn charging(share: Arc<Share>) -> Self {
        Self {
            free: Default::default(),
            free_bytes: 0,
            spare_bytes: 0,
            lent_bytes: 0,
            lent: Taken {
                charge: Charge::none(&share),
                guest: None,
            },
            out_bytes: Arc::default(),
            share,
            domain: None,
            is_overdrawn: false,
            guest: None,
        }
    }

    /// A pool with buffers that are registered in a protection domain.
    pub(crate) fn registered(domain: Arc<Domain>, share: Arc<Share>) -> Self {
        Self {
            domain: Some(domain),
            ..Self::charging(share)
        }
    }

    /// Charges buffers to the memory of an unauthenticated host as well, until
    /// [`Pool::mark_authenticated`].
    pub(crate) fn of_guest(self, guest: Option<Arc<UnauthenticatedShare>>) -> Self {
        Self {
            guest: guest.map(GuestMemory::new),
            ..self
        }
    }

    /// Ends the charges to the memory of an unauthenticated host, those of buffers in use too.
    pub(crate) fn mark_authenticated(&mut self) {
        if let Some(guest) = self.guest.take() {
            guest.end();
        }
        self.lent.guest = None;
    }

    /// Whether the connection has to end, because data of an unauthenticated host arrived for which its
    /// memory did not suffice.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.is_overdrawn
    }

    /// Charges the budgets; frees idle buffers of this pool if they do not suffice.
    fn charge(&mut self, bytes: usize) -> Option<Taken> {
        if let Some(taken) = self.charge_at_once(bytes) {
            return Some(taken);
        }
        if self.free_bytes == 0 && self.spare_bytes == 0 {
            return None;
        }
        self.free_idle();
        self.charge_at_once(bytes)
    }

    fn charge_at_once(&self, bytes: usize) -> Option<Taken> {
        let guest = self.guest.as_ref().map(|memory| memory.charge(bytes));
        let guest = if let Some(charged) = guest {
            Some(charged?)
        } else {
            None
        };
        Some(Taken {
            charge: self.share.charge(bytes)?,
            guest,
        })
    }

    /// Charges the budgets even beyond their limits. The memory of an unauthenticated host has none to lend:
    /// its connection has to end.
    fn charge_anyway(&mut self, bytes: usize) -> Taken {
        let guest = self.guest.as_ref().and_then(|memory| memory.charge(bytes));
        self.is_overdrawn |= self.guest.is_some() && guest.is_none();
        Taken {
            charge: self.share.charge_anyway(bytes),
            guest,
        }
    }

    /// Bytes in use: of buffers, and of memory that stores lend.
    pub(crate) fn used_bytes(&self) -> usize {
        self.out_bytes.load(Ordering::Relaxed) + self.lent_bytes
    }

    /// Whether the queue may use so many bytes more. The first is always possible.
    fn fits(&self, bytes: usize) -> bool {
        let used = self.used_bytes();
        used == 0 || used + bytes <= QUEUE_DATA_BYTES
    }

    /// Whether all connections together have taken more than the budget.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.share.is_exceeded()
    }

    /// Allocates a buffer. If the device cannot register more memory, the buffer is not registered, and the
    /// connection ends when it is used.
    fn make(&self, size: usize, taken: Taken) -> Buffer {
        let registered = self
            .domain
            .as_ref()
            .and_then(|domain| domain.registered(size).ok());
        let mut buffer = registered.unwrap_or_else(|| Buffer::zeroed(size));
        let mut loan = Loan {
            taken,
            out_bytes: Arc::clone(&self.out_bytes),
            is_out: false,
        };
        loan.begin();
        buffer.set_charge(Some(Box::new(loan)));
        buffer
    }

    /// A free buffer of this class.
    fn reuse(&mut self, class: usize) -> Option<Buffer> {
        let mut buffer = self.free.get_mut(class)?.pop()?;
        self.free_bytes -= buffer.len();
        if let Some(loan) = buffer.charge_mut::<Loan>() {
            loan.begin();
        }
        Some(buffer)
    }

    /// A buffer of at least this length. `None` when the limit is reached; buffers in use are returned later.
    pub(crate) fn take(&mut self, length: usize) -> Option<Buffer> {
        let class = class_of(length);
        let size = ALIGNMENT << class;
        if !self.fits(size) {
            return None;
        }
        if let Some(buffer) = self.reuse(class) {
            return Some(buffer);
        }
        let taken = self.charge(size)?;
        Some(self.make(size, taken))
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
        let taken = self.take(request.length);
        // Many connections, each with the first command of a pair, could take all memory and wait for that of
        // the second one. It is as long as that of the first.
        let beyond = taken.is_none() && request.completes_pair();
        if beyond {
            Some(Some(self.take_beyond(request.length)))
        } else {
            taken.map(Some)
        }
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
        if !self.fits(bytes) {
            return false;
        }
        if self.spare_bytes >= bytes {
            self.spare_bytes -= bytes;
        } else if let Some(taken) = self.charge(bytes) {
            self.lent.add(taken);
        } else {
            return false;
        }
        self.lent_bytes += bytes;
        true
    }

    /// Ends a charge for memory that a store lent, or `bytes` of it.
    pub(crate) fn lent_back(&mut self, bytes: usize) {
        debug_assert!(
            bytes <= self.lent_bytes,
            "{bytes} come back of {} lent bytes",
            self.lent_bytes
        );
        self.lent_bytes = self.lent_bytes.saturating_sub(bytes);
        if self.is_wanted() {
            let spare = std::mem::take(&mut self.spare_bytes);
            self.lent.release(bytes + spare);
        } else if self.spare_bytes + bytes <= SPARE_BYTES && self.keeps(bytes) {
            self.spare_bytes += bytes;
        } else {
            self.lent.release(bytes);
        }
    }

    /// Whether so many bytes may be kept that are not in use.
    fn keeps(&self, bytes: usize) -> bool {
        self.free_bytes + self.spare_bytes + bytes <= QUEUE_DATA_BYTES
    }

    /// Whether another connection waits for memory.
    fn is_wanted(&self) -> bool {
        self.share.is_wanted()
    }

    /// Takes a buffer even beyond the limit, for data that have arrived already: in-capsule data, whose sum
    /// has a limit of its own.
    pub(crate) fn take_beyond(&mut self, length: usize) -> Buffer {
        let class = class_of(length);
        let size = ALIGNMENT << class;
        if let Some(buffer) = self.reuse(class) {
            return buffer;
        }
        let taken = self.charge_anyway(size);
        self.make(size, taken)
    }

    /// Takes a buffer back, and frees it if another connection waits for memory. A buffer of another origin
    /// is freed.
    pub(crate) fn give(&mut self, mut buffer: Buffer) {
        let size = buffer.len();
        // A buffer that a store in memory gave in exchange may not be registered with this device.
        let is_known = self
            .domain
            .as_ref()
            .is_none_or(|domain| domain.has_registered(&buffer));
        let is_kept = is_known && !self.is_wanted() && self.keeps(size);
        if let Some(loan) = buffer.charge_mut::<Loan>().filter(|_| is_kept)
            && let Some(class) = self.free.get_mut(class_of(size))
        {
            loan.end();
            self.free_bytes += size;
            class.push(buffer);
        }
    }

    /// Frees idle buffers, because the connection is idle.
    pub(crate) fn release_idle(&mut self) {
        self.free_idle();
    }

    /// Frees the buffers that are not in use.
    fn free_idle(&mut self) {
        self.free.iter_mut().for_each(|free| *free = Vec::new());
        self.free_bytes = 0;
        self.lent.release(std::mem::take(&mut self.spare_bytes));
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
        assert_eq!((pool.used_bytes(), pool.spare_bytes), (0, SPARE_BYTES));
        assert!(pool.lend(4096));
        assert_eq!(
            (pool.used_bytes(), pool.spare_bytes),
            (LENT_BYTES_MIN, SPARE_BYTES - LENT_BYTES_MIN)
        );
        pool.release_idle();
        assert_eq!(pool.spare_bytes, 0);
    }

    #[test]
    fn buffers_of_an_unauthenticated_host_are_charged_to_its_memory() {
        use server::UnauthenticatedBudget;
        let budget = UnauthenticatedBudget::new(8 * ALIGNMENT);
        let guest = budget.admit([192, 0, 2, 1].into(), ALIGNMENT).map(Arc::new);
        let mut pool = Pool::default().of_guest(guest);
        let out: Vec<_> = std::iter::from_fn(|| pool.take(1)).collect();
        assert_eq!((out.len(), budget.used()), (6, 7 * ALIGNMENT));
        assert!(!pool.is_overdrawn());
        let beyond = pool.take_beyond(1);
        assert!(pool.is_overdrawn() && budget.used() <= budget.limit());
        drop(out);
        assert_eq!(
            budget.used(),
            ALIGNMENT,
            "buffers that are dropped give back what they were charged"
        );
        drop(beyond);
        assert_eq!(
            budget.used(),
            ALIGNMENT,
            "a buffer beyond the limit was charged nothing"
        );
        let kept = pool.take(1).unwrap();
        pool.give(kept);
        assert_eq!(budget.used(), 2 * ALIGNMENT);
        pool.release_idle();
        assert_eq!(budget.used(), ALIGNMENT);
        let in_use = pool.take(4 * ALIGNMENT).unwrap();
        pool.mark_authenticated();
        assert_eq!(budget.used(), 0, "charges of buffers in use end as well");
        let more = pool.take(TRANSFER_BYTES_MAX);
        assert!(more.is_some());
        drop((in_use, more));
        assert_eq!((budget.used(), pool.used_bytes()), (0, 0));
    }

    #[test]
    fn memory_lent_to_an_unauthenticated_host_is_charged_to_its_memory() {
        use server::UnauthenticatedBudget;
        let budget = UnauthenticatedBudget::new(8 * LENT_BYTES_MIN);
        let admit = || budget.admit([192, 0, 2, 1].into(), ALIGNMENT).map(Arc::new);
        let mut pool = Pool::default().of_guest(admit());
        let lent = (0..8).take_while(|_| pool.lend(1)).count();
        assert_eq!(budget.used(), ALIGNMENT + lent * LENT_BYTES_MIN);
        assert!((1..8).contains(&lent), "{lent}");
        (0..lent).for_each(|_| pool.lent_back(LENT_BYTES_MIN));
        pool.release_idle();
        assert_eq!(budget.used(), ALIGNMENT);
        assert!(pool.lend(1));
        pool.mark_authenticated();
        assert_eq!(budget.used(), 0);
        assert!(pool.lend(1));
        (0..2).for_each(|_| pool.lent_back(LENT_BYTES_MIN));
        pool.release_idle();
        assert_eq!((budget.used(), pool.used_bytes()), (0, 0));
        let mut pool = Pool::default().of_guest(admit());
        let out = pool.take(1);
        drop(pool);
        assert_eq!(
            budget.used(),
            2 * ALIGNMENT,
            "a buffer may live longer than its pool"
        );
        drop(out);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn buffers_in_use_are_limited() {
        let mut pool = Pool::default();
        let out: Vec<_> = std::iter::from_fn(|| pool.take(TRANSFER_BYTES_MAX)).collect();
        assert_eq!(out.len(), QUEUE_DATA_BYTES / TRANSFER_BYTES_MAX);
        assert!(pool.take(1).is_none());
        out.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!((pool.used_bytes(), pool.free_bytes), (0, QUEUE_DATA_BYTES));
        pool.release_idle();
        assert_eq!(pool.free_bytes, 0);
        assert_eq!(pool.take(5000).unwrap().len(), 8192);
    }

    #[test]
    fn a_buffer_that_is_dropped_gives_back_what_it_was_charged() {
        let budget = Budget::new(64 << 20);
        let host = IpAddr::from(Ipv6Addr::LOCALHOST);
        struct NoWake;
        impl Wake for NoWake {
            fn wake(&self) {}
        }
        let mut pool = Pool::charging(budget.share(host, Arc::new(NoWake)));
        for _ in 0..2 * QUEUE_DATA_BYTES / TRANSFER_BYTES_MAX {
            let [taken, beyond] = [
                pool.take(TRANSFER_BYTES_MAX).unwrap(),
                pool.take_beyond(5000),
            ];
            assert_eq!(
                (pool.used_bytes(), budget.used()),
                (TRANSFER_BYTES_MAX + 8192, TRANSFER_BYTES_MAX + 8192)
            );
            drop((taken, beyond));
            assert_eq!((pool.used_bytes(), budget.used()), (0, 0));
        }
        let kept = pool.take(5000).unwrap();
        pool.give(kept);
        let out = pool.take(4096).unwrap();
        assert!(pool.lend(4096));
        assert_eq!(budget.used(), 8192 + 4096 + LENT_BYTES_MIN);
        drop(pool);
        assert_eq!(
            budget.used(),
            4096,
            "a buffer may live longer than its pool"
        );
        drop(out);
        assert_eq!(budget.used(), 0);
    }
}
