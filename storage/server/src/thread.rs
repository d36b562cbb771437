//! Threads of listeners and connections.

use std::time::Duration;

/// Pause after running out of descriptors or memory.
pub const PAUSE: Duration = Duration::from_millis(50);
/// Stack of a thread of a connection: it does not recurse, and its data are on the heap.
pub const STACK_BYTES: usize = 512 << 10;
