//! Loads memory into the processor's cache before it is used.

/// Asks the processor to load the cache line of an address, and does not wait for it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch(line: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: an instruction of every x86-64 processor, which affects only time, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
}

/// Asks the processor to load the cache line of an address, and does not wait for it.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn prefetch(line: *const u8) {
    // SAFETY: an instruction that has no effect but on time, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
    }
}

/// Other processors load memory when it is used.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub(crate) fn prefetch(_: *const u8) {}
