//! The one door to C: every function that C calls is made by [`door!`].

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A value of `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NO_DEVICE: Self = Self(libc::ENODEV);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    /// A panic was stopped: a bug of ours.
    const BROKEN: Self = Self(libc::EIO);

    /// What the last call of C left.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// What a function returned that answers with 0 or an error number, or with -1 and `errno`.
    pub(crate) fn check(code: c_int) -> Result<(), Self> {
        match code {
            0 => Ok(()),
            -1 => Err(Self::last()),
            code => Err(Self(code.abs())),
        }
    }

    /// A pointer that C made, unless it is NULL.
    pub(crate) fn check_pointer<T>(pointer: *mut T) -> Result<*mut T, Self> {
        if pointer.is_null() { Err(Self::last()) } else { Ok(pointer) }
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

impl From<host::cm::BindError> for Errno {
    fn from(error: host::cm::BindError) -> Self {
        match error {
            host::cm::BindError::Agent(error) => error.into(),
            host::cm::BindError::Cm(error) => error.into(),
        }
    }
}

/// Sets `errno`.
pub(crate) fn set_errno(Errno(value): Errno) {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() = value };
}

/// Creators: NULL and `errno`.
pub(crate) fn pointer<T>(body: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    caught(body).unwrap_or_else(|errno| {
        set_errno(errno);
        core::ptr::null_mut()
    })
}

/// Most calls: 0, or -1 and `errno`.
pub(crate) fn code(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match caught(body) {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// What answers with a number, and with -1 and `errno` where it fails.
pub(crate) trait Number {
    const FAILED: Self;
}

impl Number for c_int {
    const FAILED: Self = -1;
}

impl Number for isize {
    const FAILED: Self = -1;
}

impl Number for i64 {
    const FAILED: Self = -1;
}

impl Number for usize {
    const FAILED: Self = Self::MAX;
}

/// Calls of sockets: a number, or -1 and `errno`.
pub(crate) fn number<T: Number>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    caught(body).unwrap_or_else(|errno| {
        set_errno(errno);
        T::FAILED
    })
}

/// Those that cannot fail.
pub(crate) fn plain<T: Default>(body: impl FnOnce() -> T) -> T {
    caught(|| Ok(body())).unwrap_or_default()
}

fn caught<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::BROKEN))
}

/// Functions that C calls. The word after the arrow says how failure is told: `pointer`, `code`, `number`,
/// or `plain` for none. Inside, pointers may be followed: the caller owes them, see the crate's page.
macro_rules! door {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $kind:ident($ret:ty) $body:block
    )*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The arguments are as the manual page of the call asks.
        // Some bodies follow no pointer.
        #[allow(unused_unsafe)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            // SAFETY: the caller of librdmacm owes valid arguments.
            crate::door::$kind(|| unsafe { $body })
        }
    )*};
}
pub(crate) use door;
