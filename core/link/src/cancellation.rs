//! Waits that `pthread_cancel(3)` ends, and calls that it must not end.

pub use crate::sys::cancellation::{
    Unwinding, open_as_programs, ppoll, read, recv, sleep, test, unwinding, without,
};
