//! Wake-ups of the threads of connections.

use std::fmt;

/// Wakes the thread of a connection.
pub trait Wake: Send + Sync {
    /// Makes the thread check for events soon.
    fn wake(&self);
}

impl fmt::Debug for dyn Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}
