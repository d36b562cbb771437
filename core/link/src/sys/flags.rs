//! Memory ordering between the two processes of a ring: the publication of records, and the flags with which
//! one side requests a wake-up from the other.
//!
//! Each flag follows one pattern. One side stores the flag and then reads what the other one publishes; the
//! other side publishes and then loads the flag. Both have a fence between the two accesses, so that at least
//! one of them sees the store of the other: a reader never sleeps although its writer has published a record
//! without seeing the flag.
//!
//! The functions take any [`Word`], so that a model checker executes the same code (`model.rs`).

use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Value of a flag that is not set.
pub(super) const CLEAR: u32 = 0;

/// An atomic word in memory that two processes share.
pub(super) trait Word {
    /// Loads the value.
    fn load(&self, order: Ordering) -> u32;
    /// Stores a value.
    fn store(&self, value: u32, order: Ordering);
    /// Stores a value and returns the one before it.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// A sequentially consistent fence.
    fn fence();
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }

    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Publishes a record: `this` is the first word of the record and `next` the first word after it, which holds
/// a stale value until then. A reader that sees the record also sees that there is none after it.
#[inline]
pub(super) fn publish<W: Word>(this: &W, next: &W, lines: u32) {
    next.store(0, Ordering::Relaxed);
    this.store(lines, Ordering::Release);
}

/// The number of lines of a record, and 0 where none is published yet.
#[inline]
pub(super) fn published<W: Word>(word: &W) -> u32 {
    word.load(Ordering::Acquire)
}

/// Sets a flag and then checks whether the awaited condition holds already. The other side calls [`take`]
/// after it has published something.
#[inline]
pub(super) fn set_and_look<W: Word, T>(flag: &W, value: u32, look: impl FnOnce() -> T) -> T {
    flag.store(value, Ordering::Relaxed);
    W::fence();
    look()
}

/// Returns the value of the flag after a publication, and clears it if it is set, so that one wake-up
/// follows.
#[inline]
pub(super) fn take<W: Word>(flag: &W) -> u32 {
    W::fence();
    match flag.load(Ordering::Relaxed) {
        CLEAR => CLEAR,
        _ => flag.swap(CLEAR, Ordering::Relaxed),
    }
}

/// Clears the flag of the own side, because no wake-up is needed any more.
#[inline]
pub(super) fn withdraw<W: Word>(flag: &W) {
    if flag.load(Ordering::Relaxed) != CLEAR {
        flag.store(CLEAR, Ordering::Relaxed);
    }
}

/// Sets a flag before memory is used that the other side grants, any number of times up to [`release`]. Each
/// use has to read the grant: the other side revokes the grant and then calls [`is_set_after_change`].
#[inline]
pub(super) fn hold<W: Word>(flag: &W, value: u32) {
    set_and_look(flag, value, || ());
}

/// Clears the flag of [`hold`].
#[inline]
pub(super) fn release<W: Word>(flag: &W) {
    flag.store(CLEAR, Ordering::Release);
}

/// Returns the value of the flag after a grant was revoked. Where it is clear, the work that used the grant
/// has ended and happens before subsequent accesses, and further work sees that the grant is revoked.
#[inline]
pub(super) fn is_set_after_change<W: Word>(flag: &W) -> u32 {
    W::fence();
    flag.load(Ordering::Acquire)
}
