//! The limits of a process's memory (`RLIMIT_AS`, `RLIMIT_DATA`). Allocations of Rust's collections cannot
//! fail: where the limit is reached they end the process. So calls that create something look first.

use std::mem::zeroed;
use std::ptr::null_mut;

/// Bytes: more than a call allocates, apart from mappings, whose errors the call returns.
const CALL_BYTES: usize = 4 << 20;

/// Whether a call has the memory that it may need. Without limits it does not ask the kernel for it.
pub fn has_memory() -> bool {
    is_unlimited(libc::RLIMIT_AS) && is_unlimited(libc::RLIMIT_DATA) || can_map(CALL_BYTES)
}

fn is_unlimited(resource: libc::__rlimit_resource_t) -> bool {
    // SAFETY: all zeros is a valid limit, and there is room for one.
    unsafe {
        let mut limit: libc::rlimit = zeroed();
        libc::getrlimit(resource, &mut limit) == 0 && limit.rlim_cur == libc::RLIM_INFINITY
    }
}

fn can_map(bytes: usize) -> bool {
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a mapping at an address that the kernel chooses, which nothing uses.
    unsafe {
        let mapped = libc::mmap(null_mut(), bytes, rights, flags, -1, 0);
        mapped != libc::MAP_FAILED && libc::munmap(mapped, bytes) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_cannot_be_mapped() {
        assert!(has_memory());
        assert!(can_map(CALL_BYTES));
        assert!(!can_map(usize::MAX / 2));
    }
}
