//! The size of a page of memory.

/// Bytes of a page of memory: 4096 on x86-64.
#[cfg(target_arch = "x86_64")]
#[inline]
pub const fn page_size() -> u64 {
    4096
}

/// Bytes of a page of memory: 4, 16 or 64 KiB on 64-bit ARM, as its kernel was built.
#[cfg(not(target_arch = "x86_64"))]
pub fn page_size() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};

    static BYTES: AtomicU64 = AtomicU64::new(0);
    if let known @ 1.. = BYTES.load(Ordering::Relaxed) {
        return known;
    }
    // SAFETY: a call without pointers, which reads what the kernel said when the program began.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = u64::try_from(bytes).unwrap_or(4096);
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_page_is_what_the_kernel_says() {
        // SAFETY: a call without pointers.
        let said = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        assert_eq!(super::page_size(), said as u64);
    }
}
