//! Counters of things that exist.

use std::sync::atomic::{AtomicUsize, Ordering};

/// An increment of a counter until it is dropped.
#[derive(Debug)]
pub struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// Increments `count`; `None` when it has reached `limit`.
    pub fn one_more(count: &'a AtomicUsize, limit: usize) -> Option<Self> {
        let before = count.fetch_add(1, Ordering::Relaxed);
        let counted = Self(count);
        (before < limit).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
