//! Sockets over RDMA: streams whose bytes the sender writes straight into the receiver's buffer.
//!
//! - [`calls`] has what C calls; [`table`] finds what a descriptor stands for.
//! - [`socket`] is how far a socket is, and how calls wait; [`poll`] waits for several.
//! - [`stream`] moves bytes, as [`protocol`] has it agreed; [`buffer`] is its memory, [`iomap`] what the
//!   program maps.
//! - [`options`] is what can be set.

mod buffer;
mod calls;
mod iomap;
mod options;
mod poll;
mod protocol;
mod socket;
mod stream;
mod table;

pub(crate) use calls::{
    raccept, rbind, rclose, rconnect, rfcntl, rgetpeername, rgetsockname, rgetsockopt, riomap, riounmap,
    riowrite, rlisten, rpoll, rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rselect, rsend, rsendmsg, rsendto,
    rsetsockopt, rshutdown, rsocket, rwrite, rwritev,
};

use core::ffi::c_int;
use door::Errno;

/// Reading from a descriptor answers at once from now on.
fn set_nonblocking(fd: c_int) -> Result<(), Errno> {
    // SAFETY: numbers only.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(Errno::last());
        }
    }
    Ok(())
}
