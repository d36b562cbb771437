//! The one door to C: every function that C calls is made by [`door!`].

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A value of `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    /// A panic was stopped: a bug of ours.
    const BROKEN: Self = Self(libc::EIO);
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

/// Most verbs: 0 or an error number.
pub(crate) fn code(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match caught(body) {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            errno.0
        }
    }
}

/// The older ones: -1 and `errno`.
pub(crate) fn minus_one(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    caught(body).unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

/// Those that cannot fail.
pub(crate) fn plain<T: Default>(body: impl FnOnce() -> T) -> T {
    caught(|| Ok(body())).unwrap_or_default()
}

fn caught<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::BROKEN))
}

/// Functions that C calls. The word after the arrow says how failure is told: `pointer`, `code`,
/// `minus_one`, or `plain` for none. Inside, pointers may be followed: the caller owes them, see the
/// crate's page.
macro_rules! door {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $kind:ident($ret:ty) $body:block
    )*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The arguments are as the manual page of the verb asks.
        // Some bodies follow no pointer.
        #[allow(unused_unsafe)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            // SAFETY: the caller of a verb owes valid arguments.
            crate::door::$kind(|| unsafe { $body })
        }
    )*};
}
pub(crate) use door;
