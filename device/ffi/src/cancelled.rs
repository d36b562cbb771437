//! The end of a thread that was cancelled (`pthread_cancel(3)`) in a call of the program: see
//! [`link::cancellation`]. The code that exports a call, generated from the table of symbols, asks here.

use host::cancellation::{Unwinding, unwinding};

/// Where the buffer with which the C library goes on is in what [`cancelled`] returns.
pub const UNWIND_BUFFER: usize = Unwinding::BUFFER;

/// How the C library goes on to end this thread; NULL if the thread was not cancelled.
pub extern "C" fn cancelled() -> *const Unwinding {
    unwinding()
}
