//! A remote namespace as an NBD export, for programs that know nothing of NVMe: nbdcopy, qemu-img, fio.
//!
//! [`Session`] is the protocol (doc/proto.md of the NetworkBlockDevice project) without a socket: fixed
//! newstyle negotiation, simple replies. [`serve`] drives one session with a stream and a [`Queue`].
//!
//! [`Queue`]: crate::host::Queue

mod export;
mod negotiation;
mod session;

pub use export::{NbdError, Target, serve};
pub use session::{Demand, Export, Fault, REQUEST_BYTES_MAX, Session, flag};

/// What NBD says of how something went: numbers of errno, whatever the system's own are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// It went well.
    Success = 0,
    /// The export is read-only.
    Permission = 1,
    /// The medium failed.
    Io = 5,
    /// The request contradicts itself.
    Invalid = 22,
    /// A write beyond the end.
    NoSpace = 28,
    /// Not understood.
    Unsupported = 95,
}
