//! Names of events.

use abi::names::CM_EVENTS;
use core::ffi::c_char;

/// The name of an event, as C programs print it: `rdma_event_str(3)`.
pub extern "C" fn rdma_event_str(event: u32) -> *const c_char {
    CM_EVENTS
        .get(event as usize)
        .copied()
        .unwrap_or(c"UNKNOWN EVENT")
        .as_ptr()
}
