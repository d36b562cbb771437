//! What went wrong, as C is told it.

use core::ffi::c_int;

/// A value of `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

impl Errno {
    /// An argument that makes no sense.
    pub const INVALID: Self = Self(libc::EINVAL);
    /// The object is in use.
    pub const BUSY: Self = Self(libc::EBUSY);
    /// There is no such device.
    pub const NO_DEVICE: Self = Self(libc::ENODEV);
    /// Memory, or room in a table, is missing.
    pub const NO_MEMORY: Self = Self(libc::ENOMEM);
    /// The device cannot do that.
    pub const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    /// A panic was stopped: a bug of ours.
    pub(crate) const BROKEN: Self = Self(libc::EIO);

    /// What the last call of C left.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// What a function returned that answers with 0 or an error number, or with -1 and `errno`.
    ///
    /// # Errors
    /// The number it failed with.
    pub fn check(code: c_int) -> Result<(), Self> {
        match code {
            0 => Ok(()),
            -1 => Err(Self::last()),
            code => Err(Self(code.abs())),
        }
    }

    /// A pointer that C made, unless it is NULL.
    ///
    /// # Errors
    /// What the last call of C left.
    pub fn check_pointer<T>(pointer: *mut T) -> Result<*mut T, Self> {
        if pointer.is_null() { Err(Self::last()) } else { Ok(pointer) }
    }

    /// Leaves it in `errno`, where C looks.
    pub fn set(self) {
        // SAFETY: errno is a variable of this thread.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

impl From<rnic::Error> for Errno {
    fn from(error: rnic::Error) -> Self {
        Self(match error {
            rnic::Error::NoSuchObject | rnic::Error::Invalid(_) | rnic::Error::WrongState => libc::EINVAL,
            rnic::Error::QueueFull | rnic::Error::Exhausted(_) => libc::ENOMEM,
            rnic::Error::Busy => libc::EBUSY,
            rnic::Error::Unsupported(_) => libc::EOPNOTSUPP,
        })
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rnic::cm::CmError> for Errno {
    fn from(error: rnic::cm::CmError) -> Self {
        use rnic::cm::CmError;
        Self(match error {
            CmError::NoSuchConnection | CmError::WrongState(_) => libc::EINVAL,
            CmError::Exhausted(_) => libc::ENOMEM,
            CmError::InUse => libc::EADDRINUSE,
            CmError::NotLocal => libc::EADDRNOTAVAIL,
            CmError::Unsupported(_) => libc::EOPNOTSUPP,
        })
    }
}

impl From<host::DomainError> for Errno {
    fn from(error: host::DomainError) -> Self {
        match error {
            host::DomainError::Agent(error) => error.into(),
            host::DomainError::Device(error) => error.into(),
        }
    }
}

impl From<host::cm::BindError> for Errno {
    fn from(error: host::cm::BindError) -> Self {
        match error {
            host::cm::BindError::Agent(error) => error.into(),
            host::cm::BindError::Cm(error) => error.into(),
        }
    }
}
