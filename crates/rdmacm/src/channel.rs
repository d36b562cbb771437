//! Event channels.

use crate::events::Pending;
use abi::rdma_event_channel;
use door::{Errno, door};
use host::EventQueue;
use std::sync::Arc;

/// Events that wait.
pub(crate) type Queue = EventQueue<Pending>;

/// What a pointer of C leads to.
#[repr(C)]
struct Channel {
    abi: rdma_event_channel,
    queue: Arc<Queue>,
}

/// Makes one.
pub(crate) fn create() -> Result<*mut rdma_event_channel, Errno> {
    let queue = Arc::new(Queue::new()?);
    let abi = rdma_event_channel { fd: queue.fd() };
    Ok(Box::into_raw(Box::new(Channel { abi, queue })).cast())
}

/// The events of a channel.
///
/// # Safety
/// NULL, or a channel of this library.
pub(crate) unsafe fn queue(raw: *mut rdma_event_channel) -> Result<Arc<Queue>, Errno> {
    // SAFETY: as above.
    unsafe { raw.cast::<Channel>().as_ref() }.map(|it| Arc::clone(&it.queue)).ok_or(Errno::INVALID)
}

/// Frees it.
///
/// # Safety
/// NULL, or a channel of this library that nobody uses any more.
pub(crate) unsafe fn destroy(raw: *mut rdma_event_channel) {
    if !raw.is_null() {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(raw.cast::<Channel>()) });
    }
}

door! {
    /// The process gets its share of queue pair 1 here, so that a failure is told early.
    fn rdma_create_event_channel() -> pointer(*mut rdma_event_channel) {
        crate::world::world()?;
        create()
    }

    fn rdma_destroy_event_channel(raw: *mut rdma_event_channel) -> plain(()) {
        destroy(raw);
    }
}
