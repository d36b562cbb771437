//! Loads memory into the processor's second-level cache before it is used.

/// Bytes of a cache line, or fewer.
const LINE: usize = 64;

/// Asks the processor to load these bytes into its second-level cache, and does not wait for them. (The first
/// level accepts fewer loads at once: to ask for more lines than that waits.)
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    (0..bytes.len())
        .step_by(LINE)
        .for_each(|at| ask(bytes.as_ptr().wrapping_add(at)));
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ask(line: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: an instruction of every x86-64 processor, which has no effect but on time.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn ask(line: *const u8) {
    // SAFETY: an instruction that has no effect but on time.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ask(_: *const u8) {}
