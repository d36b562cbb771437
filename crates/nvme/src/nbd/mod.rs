//! A remote namespace as an NBD export, for programs without NVMe: nbdcopy, qemu-img, fio.
//!
//! [`Session`] is the protocol (doc/proto.md of the NetworkBlockDevice project) without a socket: fixed
//! newstyle negotiation, simple replies. [`serve`] drives one session with a stream and a [`Queue`].
//!
//! [`Queue`]: crate::host::Queue

mod export;
mod negotiation;
mod session;
mod terms;

pub use export::{NbdError, Target, serve};
pub use session::{Demand, Session};
pub use terms::{Export, Fault, REQUEST_BYTES_MAX, flag};

/// Error values of replies: Linux errno numbers, as NBD fixes them for every system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// The request succeeded.
    Success = 0,
    /// The export is read-only.
    Permission = 1,
    /// The medium failed.
    Io = 5,
    /// The request is malformed.
    Invalid = 22,
    /// A write beyond the end of the export.
    NoSpace = 28,
    /// The request type or option is not supported (NBD_ENOTSUP).
    Unsupported = 95,
}
