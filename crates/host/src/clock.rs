//! The wall clock as the device sees it: nanoseconds since the process first asked.

use rnic::Instant;
use std::sync::LazyLock;

static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Now.
pub(crate) fn now() -> Instant {
    Instant(START.elapsed().as_nanos() as u64)
}
