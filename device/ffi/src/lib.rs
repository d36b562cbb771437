//! The C boundary: [`exports!`] defines every function that C calls.
//!
//! It converts a `Result` to the return value that the manual page of the call defines, and catches panics,
//! which must not unwind through C frames. After a panic in a call on a device, the device is ended:
//! [`host::end_panicked`].

mod argument;
mod call;
mod cancelled;
mod errno;
mod fault;
mod lock;
pub mod machine;
mod traced;

use core::ffi::c_int;
use core::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use argument::{Argument, BeginsWith, GivenUp, In, InOut, Live, Object, Out, Pointer, Text};
pub use call::Call;
pub use cancelled::{UNWIND_BUFFER, cancelled};
pub use errno::Errno;
pub use fault::{Subject, before, errno_of, refused, reported};
pub use host::cancellation;
pub use lock::lock;
pub use traced::{Begun, outcome};

/// For calls that return an object: NULL with `errno` where they fail.
pub fn pointer<T>(call: Call, body: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    caught(call, body).unwrap_or_else(|errno| {
        errno.set();
        core::ptr::null_mut()
    })
}

/// For most verbs: 0 or an error number, which `errno` has as well.
pub fn code(call: Call, body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match caught(call, || body().map(|()| 0)) {
        Ok(success) => success,
        Err(errno) => {
            errno.set();
            errno.0
        }
    }
}

/// For most calls of librdmacm: 0, or -1 with `errno`.
pub fn status(call: Call, body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    number(call, || body().map(|()| 0))
}

/// For older verbs and socket calls: a number, or -1 with `errno`.
pub fn number<T: Number>(call: Call, body: impl FnOnce() -> Result<T, Errno>) -> T {
    caught(call, body).unwrap_or_else(|errno| {
        errno.set();
        T::FAILED
    })
}

/// For calls that cannot fail.
pub fn plain<T: Default + Debug>(call: Call, body: impl FnOnce() -> T) -> T {
    caught(call.never_refused(), || Ok(body())).unwrap_or_default()
}

/// A return type whose failure is -1 with `errno`.
pub trait Number: Debug {
    /// The value -1 in this type.
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

#[inline(always)]
fn caught<T: Debug>(call: Call, body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    if call.allocates && !host::has_memory() {
        return Err(Errno::NO_MEMORY);
    }
    let is_logged = host::log::has_calls();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // The device may be inconsistent, so that flushing its queue pairs panics too.
        let _ = catch_unwind(host::end_panicked);
        Err(Errno::BROKEN)
    });
    if is_logged {
        call.log(&result);
    }
    result
}

/// Defines functions that C calls. The word after the arrow names how failure is returned: [`pointer`],
/// [`code`], [`status`], [`number`], or [`plain`] for calls that cannot fail. The types of arguments are
/// [`Argument`]s, which say what the manual page of the call promises. The body is safe code: an operation
/// on memory that no argument type describes needs an `unsafe` block and a reason of its own.
///
/// ```
/// ffi::exports! {
///     fn double(number: ffi::InOut<'_, u32>) -> code(i32) {
///         *number.get()? *= 2;
///         Ok(())
///     }
/// }
/// ```
///
/// A body that follows a raw pointer without a block does not compile:
///
/// ```compile_fail
/// ffi::exports! {
///     fn double(number: *mut u32) -> code(i32) {
///         *number *= 2;
///         Ok(())
///     }
/// }
/// ```
#[macro_export]
macro_rules! exports {
    ($($functions:tt)*) => {
        $crate::exports_with_visibility! { [pub(crate)] $($functions)* }
    };
}

/// As [`exports!`], with public functions: for a crate whose functions another crate exports to C.
#[macro_export]
macro_rules! public_exports {
    ($($functions:tt)*) => {
        $crate::exports_with_visibility! { [pub] $($functions)* }
    };
}

/// The expansion of [`exports!`] and [`public_exports!`].
#[doc(hidden)]
#[macro_export]
macro_rules! exports_with_visibility {
    ([$visibility:vis] $(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $kind:ident($ret:ty) $body:block
    )*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The arguments are valid as the manual page of the call requires.
        #[deny(unsafe_op_in_unsafe_fn)]
        $visibility unsafe extern "C" fn $name($($arg: <$type as $crate::Argument>::Raw),*) -> $ret {
            $(
                // SAFETY: the caller owes valid arguments, which live as long as the call.
                let $arg = unsafe { <$type as $crate::Argument>::from_raw($arg) };
            )*
            const CALL: $crate::Call = $crate::Call::new(stringify!($name));
            let mut begun = None;
            if CALL.is_watched() {
                let subject = |_subject: &mut $crate::Subject| {
                    $($crate::Argument::describe(&$arg, _subject);)*
                };
                match $crate::before(CALL, subject) {
                    Ok(call) => begun = call,
                    Err(errno) => return $crate::refused::$kind(CALL, errno),
                }
            }
            let result = $crate::$kind(CALL, || $body);
            if let Some(call) = begun {
                call.end($crate::outcome::$kind(&result));
            }
            result
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic::{AttrMask, Capacity, Event, QpAttr, QpInit, QpType, ReceiveRequest, State, Status};

    const CALL: Call = Call::new("test");

    fn errno() -> Option<i32> {
        std::io::Error::last_os_error().raw_os_error()
    }

    #[test]
    fn each_kind_of_call_returns_its_failure_value() {
        assert_eq!(code(CALL, || Err(Errno::INVALID)), libc::EINVAL);
        assert_eq!(errno(), Some(libc::EINVAL));
        assert_eq!(status(CALL, || Err(Errno::BUSY)), -1);
        assert_eq!(errno(), Some(libc::EBUSY));
        assert_eq!(number::<usize>(CALL, || Err(Errno::NO_MEMORY)), usize::MAX);
        assert_eq!(errno(), Some(libc::ENOMEM));
        assert!(pointer::<u8>(CALL, || Err(Errno::NO_DEVICE)).is_null());
        assert_eq!(errno(), Some(libc::ENODEV));
    }

    #[test]
    fn panics_are_caught_at_the_c_boundary() {
        assert_eq!(code(CALL, || panic!("a bug")), libc::EIO);
        assert_eq!(plain::<u32>(CALL, || panic!("a bug")), 0);
    }

    #[test]
    fn a_panic_in_a_call_on_a_device_ends_the_device() {
        let info = host::list()
            .into_iter()
            .find(|info| info.interface == "lo")
            .expect("lo is up");
        let device = host::Device::open(&info).expect("UDP port 4791 is free");
        let attr = QpAttr {
            port: 1,
            ..QpAttr::default()
        };
        let (cq, qpn) = device.with(|rnic, now| {
            let (pd, cq) = (rnic.alloc_pd().ok(), rnic.cqs_mut().create(8).ok());
            let capacity = Capacity {
                send_wr: 1,
                receive_wr: 1,
                send_sge: 1,
                receive_sge: 1,
                inline: 0,
            };
            let (signal_all, xrcd, srq) = (true, None, None);
            let (send_cq, receive_cq) = (cq, cq);
            let init = QpInit {
                kind: QpType::Rc,
                pd,
                xrcd,
                send_cq,
                receive_cq,
                srq,
                capacity,
                signal_all,
            };
            let qpn = rnic.create_qp(&init).expect("a queue pair");
            let mask =
                AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
            let attr = QpAttr {
                state: State::Init,
                ..attr
            };
            rnic.modify_qp(qpn, &attr, mask, now).expect("INIT");
            (cq.expect("a completion queue"), qpn)
        });
        device
            .post_receive(qpn, &ReceiveRequest { id: 7, sges: &[] })
            .expect("a receive");

        assert_eq!(
            code(CALL, || device.with(|_, _| panic!("a bug"))),
            libc::EIO
        );

        let mut flushed = Vec::new();
        device.poll_cq(cq, 8, |completion| {
            flushed.push((completion.id, completion.status))
        });
        assert_eq!(flushed, [(7, Status::Flushed)]);
        assert_eq!(
            device.async_events().next().expect("an event"),
            Event::DeviceFatal
        );
        let state = |state| device.modify_qp(qpn, &QpAttr { state, ..attr }, AttrMask::STATE);
        assert_eq!(
            (state(State::Reset), state(State::Init)),
            (Ok(()), Err(rnic::Error::WrongState))
        );
        assert_eq!(device.destroy_qp(qpn), Ok(()));
    }

    #[test]
    fn return_values_of_c_are_checked() {
        assert_eq!(Errno::check_code(0), Ok(()));
        assert_eq!(Errno::check_code(libc::EBUSY), Err(Errno::BUSY));
        Errno::NO_MEMORY.set();
        assert_eq!(Errno::check_code(-1), Err(Errno::NO_MEMORY));
    }
}
