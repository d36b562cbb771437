//! The filters of send requests, readable without a lock.

use ::faults::{Opcode, SendFilter};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Filters that there is room for; with more rules every request is asked about.
const FILTERS_MAX: usize = 64;
/// The number of filters while they change, and where there are too many.
const UNKNOWN: usize = usize::MAX;
/// In place of the number of a queue pair, which has 24 bits.
const ANY_QPN: u32 = u32::MAX;

struct Slot {
    opcodes: AtomicU32,
    qpn: AtomicU32,
    from: AtomicU64,
    to: AtomicU64,
}

static SLOTS: [Slot; FILTERS_MAX] = [const {
    Slot {
        opcodes: AtomicU32::new(0),
        qpn: AtomicU32::new(0),
        from: AtomicU64::new(0),
        to: AtomicU64::new(0),
    }
}; FILTERS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Replaces the filters. Called with the lock of the rules held.
pub(super) fn set(filters: &[SendFilter]) {
    COUNT.store(UNKNOWN, Ordering::SeqCst);
    // Summaries of before are not used again.
    CHANGES.fetch_add(1, Ordering::SeqCst);
    if filters.len() > FILTERS_MAX {
        return;
    }
    for (slot, filter) in SLOTS.iter().zip(filters) {
        slot.opcodes.store(filter.opcodes, Ordering::Relaxed);
        slot.qpn
            .store(filter.qpn.unwrap_or(ANY_QPN), Ordering::Relaxed);
        slot.from.store(filter.from, Ordering::Relaxed);
        slot.to.store(filter.to, Ordering::Relaxed);
    }
    COUNT.store(filters.len(), Ordering::SeqCst);
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

/// What all rules together need of a request of one queue pair.
#[derive(Clone, Copy)]
struct Summary {
    /// The number of changes of the filters when this was made.
    change: u64,
    qpn: u32,
    filter: SendFilter,
}

/// The number of changes, from 1 on.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Summary of the queue pair to which this thread has posted last.
    static LAST: Cell<Summary> = const {
        Cell::new(Summary { change: 0, qpn: ANY_QPN, filter: NOTHING })
    };
}

/// Passes no request.
const NOTHING: SendFilter = SendFilter {
    opcodes: 0,
    qpn: None,
    from: u64::MAX,
    to: 0,
};

/// Whether a rule could apply to a send request.
#[inline]
pub fn may_apply(opcode: Opcode, qpn: u32, size: u64) -> bool {
    let change = CHANGES.load(Ordering::Acquire);
    let last = LAST.get();
    if last.change == change && last.qpn == qpn {
        return last.filter.passes(opcode, qpn, size);
    }
    let count = COUNT.load(Ordering::Acquire);
    if count == UNKNOWN {
        return true;
    }
    let filter = summary(qpn, count);
    LAST.set(Summary {
        change,
        qpn,
        filter,
    });
    filter.passes(opcode, qpn, size)
}

/// The operations and sizes of all filters for a queue pair.
#[cold]
fn summary(qpn: u32, count: usize) -> SendFilter {
    let of_it = SLOTS.iter().take(count).filter(|slot| {
        let wanted = slot.qpn.load(Ordering::Relaxed);
        wanted == ANY_QPN || wanted == qpn
    });
    of_it.fold(NOTHING, |all, slot| SendFilter {
        opcodes: all.opcodes | slot.opcodes.load(Ordering::Relaxed),
        from: all.from.min(slot.from.load(Ordering::Relaxed)),
        to: all.to.max(slot.to.load(Ordering::Relaxed)),
        ..all
    })
}
