//! Sockets over RDMA: streams whose bytes the sender writes straight into the receiver's buffer, and
//! datagrams.
//!
//! - [`calls`] has what C calls; [`table`] finds what a descriptor stands for.
//! - [`wait`] is how calls wait for a socket, [`poll`] how they wait for several.
//! - [`socket`] is how far a stream's socket is, [`transfer`] what calls do with its bytes. [`stream`] moves
//!   them, as [`protocol`] has it agreed; [`iomap`] is what the program maps.
//! - [`datagram`] is the other kind of sockets.
//! - [`buffer`] and [`completions`] are the memory and the completion queue of both kinds.
//! - [`options`] is what can be set, [`defaults`] what holds where it is not.

mod buffer;
mod calls;
mod completions;
mod datagram;
mod defaults;
mod iomap;
mod options;
mod poll;
mod protocol;
mod socket;
mod stream;
mod table;
mod transfer;
mod wait;
mod writes;

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
