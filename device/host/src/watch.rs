//! Whether calls of this process are watched: because they meet faults on purpose, or because they are
//! traced.
//!
//! Without either nothing is on the data path: contexts, completion queues and queue pairs get function
//! tables without hooks when they are created. Calls that are not on the data path read one byte ([`is_on`]).

use crate::{faults, traced};
use std::sync::atomic::{AtomicU8, Ordering};

static STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);
const NOT_STARTED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Whether calls of this process are watched. The first call reads the variables.
#[inline(always)]
pub fn is_on() -> bool {
    match STATE.load(Ordering::Relaxed) {
        OFF => false,
        state => state == ON || start(),
    }
}

#[cold]
fn start() -> bool {
    // Both begin, whatever the first says.
    let is_on = faults::is_on() | traced::is_on();
    STATE.store(if is_on { ON } else { OFF }, Ordering::Relaxed);
    is_on
}
