//! Event channels: a queue of events, and the descriptor that is readable while it has one.

use crate::pending::Pending;
use abi::rdma_event_channel;
use ffi::Errno;
use host::EventQueue;
use std::sync::Arc;

/// The queue of a channel's events.
pub(crate) type Queue = EventQueue<Pending>;

/// An event channel. C sees the first field.
#[repr(C)]
struct Channel {
    abi: rdma_event_channel,
    queue: Arc<Queue>,
}

/// Creates an event channel.
pub(crate) fn create() -> Result<*mut rdma_event_channel, Errno> {
    let queue = Arc::new(Queue::new()?);
    let abi = rdma_event_channel { fd: queue.fd() };
    Ok(Box::into_raw(Box::new(Channel { abi, queue })).cast())
}

/// The event queue of a channel.
///
/// # Safety
/// `raw` is NULL, or a channel of this library.
pub(crate) unsafe fn queue(raw: *mut rdma_event_channel) -> Result<Arc<Queue>, Errno> {
    // SAFETY: by this function's contract, `raw` is NULL, or a channel of this library.
    unsafe { raw.cast::<Channel>().as_ref() }
        .map(|it| Arc::clone(&it.queue))
        .ok_or(Errno::INVALID)
}

/// Frees an event channel.
///
/// # Safety
/// `raw` is NULL, or a channel of this library that is not used any more.
pub(crate) unsafe fn destroy(raw: *mut rdma_event_channel) {
    if !raw.is_null() {
        // SAFETY: by this function's contract, `raw` is NULL, or a channel of this library that is not used
        // any more.
        drop(unsafe { Box::from_raw(raw.cast::<Channel>()) });
    }
}
