//! Errors of calls on the device.

/// Reasons for which a call is refused; `verbs` maps each to the errno that programs expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// EINVAL: a handle without an object, or whose object was removed.
    #[error("the handle names no object: it was destroyed, or never created")]
    NoSuchObject,
    /// EINVAL: an argument outside what the device or the object allows.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// EINVAL: the state of the queue pair forbids it.
    #[error("the queue pair's state does not allow this call")]
    WrongState,
    /// ENOMEM: the queue has no free entry.
    #[error("the queue has no free entry: wait for completions of earlier requests")]
    QueueFull,
    /// ENOMEM: a limit of the device is reached.
    #[error("the device has no more {0}")]
    Exhausted(&'static str),
    /// EBUSY: something still uses the object.
    #[error("another object uses this one: destroy that first")]
    Busy,
    /// EOPNOTSUPP: the device does not support this.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}
