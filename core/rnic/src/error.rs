//! Errors of calls on the device.

/// Reasons for which a call is refused; `verbs` maps each to the errno that programs expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// EINVAL: a handle without an object, or whose object was removed.
    #[error("no such object")]
    NoSuchObject,
    /// EINVAL: an argument outside what the device or the object allows.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// EINVAL: the state of the queue pair forbids it.
    #[error("the queue pair's state does not allow this")]
    WrongState,
    /// ENOMEM: the queue has no free entry.
    #[error("the queue is full")]
    QueueFull,
    /// ENOMEM: a limit of the device is reached.
    #[error("the device has no more {0}")]
    Exhausted(&'static str),
    /// EBUSY: something still uses the object.
    #[error("the object is in use")]
    Busy,
    /// EOPNOTSUPP: the device does not support this.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}
