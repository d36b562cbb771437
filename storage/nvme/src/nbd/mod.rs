//! A remote namespace as an NBD export, for programs without NVMe: nbdcopy, qemu-img, fio.
//!
//! [`Session`] is the protocol (doc/proto.md of the NetworkBlockDevice project) without a socket: newstyle
//! negotiation, simple and structured replies. [`serve`] drives one session with a stream and a [`Queue`].
//!
//! [`Queue`]: crate::host::Queue

mod export;
mod negotiation;
mod reply;
mod request;
mod session;
mod stop;
mod terms;
mod work;
mod writes;

pub use export::{NbdError, Target, serve};
pub use reply::Reply;
pub use request::Demand;
pub use session::Session;
pub use stop::Stop;
pub use terms::{Export, Fault, REQUEST_BYTES_MAX, flag};
pub use writes::Writes;

/// Error values of replies: Linux errno numbers, as NBD fixes them for every system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// The request succeeded.
    Success = 0,
    /// The export is read-only, or the disk does not admit the write.
    Permission = 1,
    /// The medium failed.
    Io = 5,
    /// The request is malformed, or its type is unknown.
    Invalid = 22,
    /// A write beyond the end of the export, or a disk without space.
    NoSpace = 28,
}

impl Errno {
    /// The reason in a structured reply.
    const fn text(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Permission => "the disk does not admit writes",
            Self::Io => "the NVMe command failed",
            Self::Invalid => {
                "the type, the flags, the offset or the length of the request is invalid"
            }
            Self::NoSpace => "the request exceeds the size of the disk, or the disk has no space",
        }
    }
}
