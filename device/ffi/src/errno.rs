//! Error numbers, as C gets them.

use core::ffi::c_int;

/// A value of `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

impl Errno {
    /// Invalid argument (`EINVAL`).
    pub const INVALID: Self = Self(libc::EINVAL);
    /// The object is in use (`EBUSY`).
    pub const BUSY: Self = Self(libc::EBUSY);
    /// There is no such device (`ENODEV`).
    pub const NO_DEVICE: Self = Self(libc::ENODEV);
    /// Out of memory, or a table is full (`ENOMEM`).
    pub const NO_MEMORY: Self = Self(libc::ENOMEM);
    /// The device does not support the operation (`EOPNOTSUPP`).
    pub const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    /// A panic was caught, which is a bug in rockery (`EIO`).
    pub(crate) const BROKEN: Self = Self(libc::EIO);

    /// The value of `errno` that the last C call left.
    pub fn last() -> Self {
        Self(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }

    /// Checks the result of a C function that returns 0 or an error number, or -1 with `errno`.
    ///
    /// # Errors
    /// The error number of the call.
    pub fn check_code(code: c_int) -> Result<(), Self> {
        match code {
            0 => Ok(()),
            -1 => Err(Self::last()),
            code => Err(Self(code.abs())),
        }
    }

    /// Checks a pointer that a C function returned; NULL is an error.
    ///
    /// # Errors
    /// The value of `errno` that the call left.
    pub fn check_pointer<T>(pointer: *mut T) -> Result<*mut T, Self> {
        if pointer.is_null() {
            Err(Self::last())
        } else {
            Ok(pointer)
        }
    }

    /// Writes the number to `errno`.
    pub fn set(self) {
        // SAFETY: errno is a variable of this thread.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

impl From<rnic::Error> for Errno {
    fn from(error: rnic::Error) -> Self {
        Self(match error {
            rnic::Error::NoSuchObject | rnic::Error::Invalid(_) | rnic::Error::WrongState => {
                libc::EINVAL
            }
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
