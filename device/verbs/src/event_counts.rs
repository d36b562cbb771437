//! The count of unacknowledged events.

use ffi::lock;
use std::sync::{Condvar, Mutex};

/// Events that a program has taken and events that it has acknowledged. Destroying the object waits until the
/// two counts are equal (`ibv_ack_cq_events(3)`).
#[derive(Default)]
pub(crate) struct EventCounts {
    outstanding: Mutex<u64>,
    settled: Condvar,
}

impl EventCounts {
    pub(crate) fn took(&self) {
        *lock(&self.outstanding) += 1;
    }

    pub(crate) fn acknowledged(&self, count: u64) {
        let mut outstanding = lock(&self.outstanding);
        *outstanding = outstanding.saturating_sub(count);
        self.settled.notify_all();
    }

    pub(crate) fn wait_acknowledged(&self) {
        let outstanding = lock(&self.outstanding);
        drop(
            self.settled
                .wait_while(outstanding, |outstanding| *outstanding > 0),
        );
    }
}
