//! Copies to and from memory that may be unmapped: a process that has a shared file can truncate it, and
//! access to its mapping then raises `SIGBUS`; a program can unmap memory that it has registered, and access
//! then raises `SIGSEGV`. Either signal terminates the program. Here it ends the copy with a failure.
//!
//! The functions are written in assembly and lie together: a signal handler makes them return a failure if
//! the fault is at one of their instructions, and passes every other signal to the handler that was installed
//! before. Each processor has a file of its own.

use std::io;
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as assembly;
#[cfg(target_arch = "x86_64")]
use x86_64 as assembly;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "copies that a fault ends are written in the assembly of x86-64 and 64-bit ARM, and there are none for \
     this processor"
);

mod code {
    use super::assembly;
    use std::mem::zeroed;
    use std::ptr::null_mut;
    use std::sync::OnceLock;

    // SAFETY: the functions above, with these arguments.
    unsafe extern "C" {
        fn rockery_guard_begin();
        fn rockery_guard_end();
        fn rockery_guard_failed();
        pub(super) fn rockery_guard_copy(to: *mut u8, from: *const u8, length: usize) -> i32;
        pub(super) fn rockery_guard_word(to: *mut u8, from: *const u8) -> i32;
    }

    /// The caught signals, and the handlers that were installed for them before.
    static BEFORE: [(i32, OnceLock<libc::sigaction>); 2] = [
        (libc::SIGBUS, OnceLock::new()),
        (libc::SIGSEGV, OnceLock::new()),
    ];

    extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let guarded =
            rockery_guard_begin as *const () as u64..rockery_guard_end as *const () as u64;
        // SAFETY: the kernel hands over the context of the thread that it interrupted.
        let interrupted = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        // SAFETY: the kernel hands over the signal's information.
        let code = unsafe { (*info).si_code };
        if guarded.contains(&assembly::interrupted_at(interrupted)) && is_fault(signal, code) {
            assembly::go_on_at(interrupted, rockery_guard_failed as *const () as u64);
            return;
        }
        let before = BEFORE
            .iter()
            .find(|(caught, _)| *caught == signal)
            .and_then(|(_, before)| before.get());
        let flags = before.map_or(0, |before| before.sa_flags);
        match before.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
            libc::SIG_IGN if !is_fault(signal, code) => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                reset(signal);
                // A faulting access is repeated when this returns, and then ends the process as it would have
                // without the handler; another signal has to be sent again.
                if !is_fault(signal, code) {
                    // SAFETY: a system call without pointers.
                    unsafe { libc::raise(signal) };
                }
            }
            handler => {
                if flags & libc::SA_RESETHAND != 0 {
                    reset(signal);
                }
                if flags & libc::SA_SIGINFO != 0 {
                    // SAFETY: the program installed it as such a function.
                    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                        unsafe { std::mem::transmute(handler) };
                    handler(signal, info, context);
                } else {
                    // SAFETY: the program installed it as such a function.
                    let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
                    handler(signal);
                }
            }
        }
    }

    /// Whether the thread's own access has raised the signal: no program has sent it, and it is not the
    /// report of a memory error that nothing has accessed yet (`BUS_MCEERR_AO`).
    fn is_fault(signal: i32, code: i32) -> bool {
        code > 0 && (signal, code) != (libc::SIGBUS, libc::BUS_MCEERR_AO)
    }

    /// Installs the default action.
    fn reset(signal: i32) {
        // SAFETY: all zeros is the default action, with no flags.
        unsafe { libc::sigaction(signal, &zeroed(), null_mut()) };
    }

    pub(super) fn install() -> std::io::Result<()> {
        BEFORE
            .iter()
            .try_for_each(|(signal, before)| install_for(*signal, before))
    }

    fn install_for(signal: i32, before: &OnceLock<libc::sigaction>) -> std::io::Result<()> {
        // SAFETY: all zeros is a valid action, to be filled in; the handler only does what handlers may.
        unsafe {
            let mut now: libc::sigaction = zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut now) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            let before = before.get_or_init(|| now);
            let mut ours: libc::sigaction = zeroed();
            ours.sa_sigaction = handle as *const () as usize;
            ours.sa_mask = before.sa_mask;
            // A handler of the program runs on the stack that it would have run on without this one.
            let stack = match before.sa_sigaction {
                libc::SIG_DFL | libc::SIG_IGN => libc::SA_ONSTACK,
                _ => before.sa_flags & libc::SA_ONSTACK,
            };
            let kept = before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
            ours.sa_flags = libc::SA_SIGINFO | stack | kept;
            match libc::sigaction(signal, &ours, null_mut()) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    }
}

/// Proof that the handlers are installed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard(());

impl Guard {
    /// Installs the handlers, once in a process.
    pub(crate) fn new() -> io::Result<Self> {
        static INSTALLED: OnceLock<bool> = OnceLock::new();
        if *INSTALLED.get_or_init(|| code::install().is_ok()) {
            Ok(Self(()))
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

impl Guard {
    /// Copies; the last byte becomes visible last, and one aligned word atomically. False when memory was not
    /// mapped.
    ///
    /// # Safety
    /// Both ranges belong to this copy: one of them may be mapped to a file that is shorter by now, or be
    /// unmapped, but not mapped anew for another purpose; there are no references into them.
    pub(crate) unsafe fn copy(self, to: *mut u8, from: *const u8, length: usize) -> bool {
        // SAFETY: by this function's contract, both ranges belong to this copy; access to what is not there
        // any more ends the copy.
        unsafe {
            if length == 8 && to.addr().is_multiple_of(8) {
                return code::rockery_guard_word(to, from) == 0;
            }
            length == 0 || code::rockery_guard_copy(to, from, length) == 0
        }
    }

    /// Adds to eight bytes; returns the old value.
    ///
    /// # Safety
    /// As [`Self::copy`]; the address is a multiple of eight.
    pub(crate) unsafe fn fetch_add(self, cell: *mut u8, add: u64) -> Option<u64> {
        let mut before = 0;
        // SAFETY: by this function's contract, which is that of [`Self::copy`]; the address is a multiple of
        // eight.
        (unsafe { assembly::add(cell, add, &mut before) } == 0).then_some(before)
    }

    /// Swaps eight bytes if they are as expected; returns the old value.
    ///
    /// # Safety
    /// As [`Self::fetch_add`].
    pub(crate) unsafe fn compare_swap(self, cell: *mut u8, compare: u64, swap: u64) -> Option<u64> {
        let mut before = 0;
        // SAFETY: by this function's contract, which is that of [`Self::fetch_add`].
        (unsafe { assembly::swap(cell, compare, swap, &mut before) } == 0).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes between two pages that cannot be accessed.
    fn island_bytes() -> usize {
        page().max(8192)
    }

    fn page() -> usize {
        usize::try_from(os::page::page_size()).unwrap()
    }

    /// Memory with nothing on either side.
    fn island() -> *mut u8 {
        let (any, anonymous) = (
            std::ptr::null_mut(),
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let (page, length) = (page(), island_bytes());
        // SAFETY: new mappings at addresses that the kernel chooses; the middle of them is made accessible.
        unsafe {
            let all = libc::mmap(any, length + 2 * page, libc::PROT_NONE, anonymous, -1, 0);
            assert_ne!(all, libc::MAP_FAILED);
            let middle = all.cast::<u8>().add(page);
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(middle.cast(), length, rights), 0);
            middle
        }
    }

    fn bytes<'a>(island: *mut u8) -> &'a mut [u8] {
        // SAFETY: memory of this test that is never unmapped.
        unsafe { std::slice::from_raw_parts_mut(island, island_bytes()) }
    }

    #[test]
    fn exactly_the_wanted_bytes_are_copied_and_no_others_are_touched() {
        let guard = Guard::new().unwrap();
        let (from, to, all) = (island(), island(), island_bytes());
        for (index, byte) in bytes(from).iter_mut().enumerate() {
            *byte = (index % 251) as u8 + 1;
        }
        for length in (0..600).chain(2030..2080).chain([all]) {
            // At the beginning, and at the end, of both.
            for (a, b) in [(0, 0), (all - length, 0), (0, all - length)] {
                bytes(to).fill(0);
                // SAFETY: both ranges are of this test.
                assert!(unsafe { guard.copy(to.add(b), from.add(a), length) });
                let found = bytes(to);
                assert_eq!(
                    found[b..b + length],
                    bytes(from)[a..a + length],
                    "{length} bytes"
                );
                let others = found[..b].iter().chain(&found[b + length..]);
                assert!({ others }.all(|byte| *byte == 0), "{length} bytes");
            }
        }
    }

    #[test]
    fn a_copy_from_or_to_what_is_not_there_fails() {
        let guard = Guard::new().unwrap();
        let (here, all) = (island(), island_bytes());
        let mut ours = vec![0; all];
        for length in (1..600).chain([2100, all]) {
            // SAFETY: addresses of this test; the last byte is not there.
            unsafe {
                let behind = here.add(all + 1 - length);
                assert!(!guard.copy(ours.as_mut_ptr(), behind, length), "{length}");
                assert!(!guard.copy(behind, ours.as_ptr(), length), "{length}");
            }
        }
        let behind = here.wrapping_add(all);
        // SAFETY: aligned addresses of this test, which are not there.
        unsafe {
            assert_eq!(guard.fetch_add(behind, 1), None);
            assert_eq!(guard.compare_swap(behind, 0, 1), None);
        }
    }
}
