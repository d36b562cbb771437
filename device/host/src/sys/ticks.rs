//! The processor's counter of time: the time stamp counter of x86-64, the virtual counter of 64-bit ARM.

/// Ticks so far. It takes a third of the time of reading the clock.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: every processor of this kind has the instruction, and programs that forbid it to themselves
    // (`PR_SET_TSC`) cannot look at the clock either.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Ticks so far. It takes a third of the time of reading the clock.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn now() -> u64 {
    let ticks;
    // SAFETY: Linux lets programs read the register, of which its own clock in user space is made.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
    }
    ticks
}

/// A number of ticks in which at most two microseconds pass. The time stamp counter has at least one
/// gigahertz.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn in_two_microseconds() -> u64 {
    2000
}

/// A number of ticks in which at most two microseconds pass: the counter has one megahertz to one gigahertz.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn in_two_microseconds() -> u64 {
    let hertz: u64;
    // SAFETY: as the counter itself; the firmware has written its frequency there.
    unsafe {
        std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
    }
    hertz / 500_000
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_goes_on() {
        let before = super::now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(super::now().wrapping_sub(before) > super::in_two_microseconds());
    }
}
