//! `rsetsockopt` and `rgetsockopt` on stream sockets: values are stored, and some are passed on to the
//! connection manager.

use super::options::{OptionName, read, write};
use super::socket::{Inner, Phase};
use abi::{RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR};
use core::ffi::{c_int, c_void};
use ffi::Errno;
use rdma_cm::rdma_set_option;

/// Sets an option of a stream socket.
///
/// # Safety
/// `length` bytes are at `value`.
pub(super) unsafe fn set(
    inner: &mut Inner,
    option: OptionName,
    value: *const c_void,
    length: u32,
) -> Result<(), Errno> {
    let has_queues = !matches!(inner.phase, Phase::Fresh | Phase::Bound | Phase::Listening);
    // SAFETY: by this function's contract, `length` bytes are at `value`.
    unsafe { inner.options.set(option, value, length, has_queues) }?;
    let of_identifier = match (option.level, option.name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => RDMA_OPTION_ID_REUSEADDR,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => RDMA_OPTION_ID_AFONLY,
        _ => return Ok(()),
    };
    // SAFETY: by this function's contract, `length` bytes are at `value`.
    pass_on(inner, of_identifier, unsafe { read(value, length) }?)
}

/// Sets an option of the identifier, as long as it has no address.
fn pass_on(inner: &Inner, name: u32, mut value: c_int) -> Result<(), Errno> {
    if inner.phase != Phase::Fresh {
        return Ok(());
    }
    let place = core::ptr::from_mut(&mut value).cast();
    // SAFETY: the identifier is the socket's, and the value lives until the call returns.
    Errno::check_code(unsafe {
        rdma_set_option(
            inner.id,
            RDMA_OPTION_ID as c_int,
            name as c_int,
            place,
            size_of::<c_int>(),
        )
    })
}

/// Returns the value of an option of a stream socket.
///
/// # Safety
/// `*length` bytes are writable at `value`.
pub(super) unsafe fn get(
    inner: &mut Inner,
    option: OptionName,
    value: *mut c_void,
    length: *mut u32,
) -> Result<(), Errno> {
    // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
    unsafe {
        match (option.level, option.name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                write(core::mem::take(&mut inner.error), value, length)
            }
            _ => inner.options.get(option, value, length),
        }
    }
}
