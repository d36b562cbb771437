//! The one door to C: every function of ours that C calls is made by [`door!`].
//!
//! It turns a `Result` into what the manual page of the call promises, and stops panics: they may not run
//! through frames of C.

mod errno;

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use errno::Errno;

/// Creators: NULL and `errno`.
pub fn pointer<T>(body: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    caught(body).unwrap_or_else(|errno| {
        errno.set();
        core::ptr::null_mut()
    })
}

/// Most verbs: 0 or an error number.
pub fn code(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match caught(body) {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            errno.0
        }
    }
}

/// Most calls of connections: 0, or -1 and `errno`.
pub fn status(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    number(|| body().map(|()| 0))
}

/// Older verbs and calls of sockets: a number, or -1 and `errno`.
pub fn number<T: Number>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    caught(body).unwrap_or_else(|errno| {
        errno.set();
        T::FAILED
    })
}

/// Those that cannot fail.
pub fn plain<T: Default>(body: impl FnOnce() -> T) -> T {
    caught(|| Ok(body())).unwrap_or_default()
}

/// What answers with a number, and with -1 and `errno` where it fails.
pub trait Number {
    /// How this type says -1.
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

fn caught<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::BROKEN))
}

/// Functions that C calls. The word after the arrow says how failure is told: [`pointer`], [`code`],
/// [`status`], [`number`], or [`plain`] for none. Inside, pointers may be followed: the caller owes them, as
/// the manual page of the call asks.
#[macro_export]
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
            // SAFETY: the caller owes valid arguments.
            $crate::$kind(|| unsafe { $body })
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> Option<i32> {
        std::io::Error::last_os_error().raw_os_error()
    }

    #[test]
    fn failure_is_told_as_each_kind_of_call_tells_it() {
        assert_eq!(code(|| Err(Errno::INVALID)), libc::EINVAL);
        assert_eq!(errno(), Some(libc::EINVAL));
        assert_eq!(status(|| Err(Errno::BUSY)), -1);
        assert_eq!(errno(), Some(libc::EBUSY));
        assert_eq!(number::<usize>(|| Err(Errno::NO_MEMORY)), usize::MAX);
        assert_eq!(errno(), Some(libc::ENOMEM));
        assert!(pointer::<u8>(|| Err(Errno::NO_DEVICE)).is_null());
        assert_eq!(errno(), Some(libc::ENODEV));
    }

    #[test]
    fn a_panic_ends_at_the_door() {
        assert_eq!(code(|| panic!("a bug")), libc::EIO);
        assert_eq!(plain::<u32>(|| panic!("a bug")), 0);
    }

    #[test]
    fn what_c_answers_is_understood() {
        assert_eq!(Errno::check(0), Ok(()));
        assert_eq!(Errno::check(libc::EBUSY), Err(Errno::BUSY));
        Errno::NO_MEMORY.set();
        assert_eq!(Errno::check(-1), Err(Errno::NO_MEMORY));
    }
}
