//! The C library's own clocks and waits, even if a library that replaces them is preloaded.

use core::ffi::{CStr, c_void};

/// Writes the addresses of the C library's functions of these names. Where it cannot be found, addresses stay
/// as they are.
pub fn bind(names: &[&CStr], addresses: &mut [*mut c_void]) {
    // SAFETY: the name ends with a zero; a library that is there already is not run.
    let library =
        unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return;
    }
    for (name, address) in names.iter().zip(addresses) {
        // SAFETY: an open library, and a name that ends with a zero.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if !found.is_null() {
            *address = found;
        }
    }
    // SAFETY: it was opened above, and stays loaded: this library needs it.
    unsafe { libc::dlclose(library) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_c_library_has_are_found_and_others_stay() {
        let before = std::ptr::dangling_mut();
        let mut addresses = [before; 2];
        bind(&[c"poll", c"rockery_has_no_such_function"], &mut addresses);
        assert!(addresses[0] != before && !addresses[0].is_null());
        assert_eq!(addresses[1], before);
    }
}
