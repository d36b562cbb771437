//! Sockets over RDMA (rsocket(7)): streams, whose sender writes bytes into the receiver's buffer by RDMA
//! WRITE, and datagrams. They are made of calls of librdmacm and libibverbs, as a program makes them.
//!
//! - [`calls`] has the functions that C calls; [`table`] finds the socket of a descriptor.
//! - [`wait`] blocks a call on one socket, [`poll`] on several, [`repoll`] on a set that is kept; [`sleep`]
//!   is the system call.
//! - [`socket`] is the state of a stream socket, [`transfer`] its send and receive calls. [`stream`] moves
//!   the bytes by the [`protocol`]; its parts are the sides [`outgoing`] and [`incoming`], the [`ranges`]
//!   that it may write, the [`peer`], the [`queue_pair`], and how far it is [`closing`]. [`iomap`] has the
//!   memory of direct writes.
//! - [`datagram`] has datagram sockets.
//! - [`buffer`] and [`completions`] are registered memory and the completion queue, for both kinds.
//! - [`options`] are the values of socket options, [`socket_options`] sets and returns them, [`defaults`] are
//!   those of the host, [`sizes`] those that a connection is created with.

mod buffer;
mod calls;
mod closing;
mod completions;
mod datagram;
mod defaults;
mod incoming;
mod iomap;
mod options;
mod outgoing;
mod peer;
mod poll;
mod protocol;
mod queue_pair;
mod ranges;
mod repoll;
mod sizes;
mod sleep;
mod socket;
mod socket_options;
mod stream;
mod table;
mod transfer;
mod wait;
mod writes;

pub use calls::{
    raccept, rbind, rclose, rconnect, rfcntl, rgetpeername, rgetsockname, rgetsockopt, riomap,
    riounmap, riowrite, rlisten, rpoll, rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rselect, rsend,
    rsendmsg, rsendto, rsetsockopt, rshutdown, rsocket, rwrite, rwritev,
};
pub use repoll::{repoll_create, repoll_ctl, repoll_wait};

use core::ffi::c_int;
use ffi::Errno;

/// Makes reads from a descriptor non-blocking.
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
