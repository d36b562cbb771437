//! A test of code that registers memory: it has to halve what it registers where the device has no room for
//! it. `rockery run --fault none -- cargo test`; the functions of libibverbs are called as C has them.

use std::ffi::{c_int, c_void};
use std::io::{Error, ErrorKind};
use std::ptr;

use faults_example::Fault;

// SAFETY: as verbs.h declares them.
#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_open_device(device: *mut c_void) -> *mut c_void;
    fn ibv_alloc_pd(context: *mut c_void) -> *mut c_void;
    fn ibv_reg_mr(
        pd: *mut c_void,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut c_void;
}

/// What is tested: registers as much of the memory as the device takes, and says how much that is.
fn register_what_fits(pd: *mut c_void, memory: &mut [u8]) -> Option<usize> {
    let mut length = memory.len();
    while length > 0 {
        // SAFETY: the memory is there until the process ends.
        let region = unsafe { ibv_reg_mr(pd, memory.as_mut_ptr().cast(), length, 1) };
        if !region.is_null() {
            return Some(length);
        }
        if Error::last_os_error().raw_os_error() != Some(libc::ENOMEM) {
            return None;
        }
        length /= 2;
    }
    None
}

fn domain() -> *mut c_void {
    // SAFETY: plain calls with what the one before has returned.
    unsafe {
        let devices = ibv_get_device_list(ptr::null_mut());
        assert!(
            !devices.is_null() && !(*devices).is_null(),
            "there is no device"
        );
        let context = ibv_open_device(*devices);
        assert!(!context.is_null());
        ibv_alloc_pd(context)
    }
}

#[test]
fn half_as_much_is_registered_where_there_is_no_room() {
    let pd = domain();
    let memory: &'static mut [u8] = vec![0; 1 << 16].leak();
    assert_eq!(register_what_fits(pd, memory), Some(1 << 16));
    let fault = Fault::add("reg_mr: fail ENOMEM size 20000..").expect("--fault none");
    assert_eq!(register_what_fits(pd, memory), Some(1 << 14));
    assert_eq!(fault.count().expect("the rule"), 2);
    drop(fault);
    assert_eq!(register_what_fits(pd, memory), Some(1 << 16));
    let error = Fault::add("reg_mr: fail ENOMEN").expect_err("no error number");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(
        error.to_string().contains("did you mean ENOMEM?"),
        "{error}"
    );
}
