//! Copies to and from memory that may go away: a shared file can be cut off by whoever has it, and then the
//! processor's complaint (`SIGBUS`) ends a program that touches it. Here it ends the copy.
//!
//! The functions are written out, and lie together: a handler that finds the complaint to come from among
//! them has them return a failure. All others it passes to the handler that was there before. Where there is
//! no such code for the processor, nothing is copied.

use std::io;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text",
    ".p2align 4",
    ".globl rockery_guard_begin; .hidden rockery_guard_begin; rockery_guard_begin:",
    // (to, from, length): ascending.
    ".globl rockery_guard_copy; .hidden rockery_guard_copy; rockery_guard_copy:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    // (to, from): one byte.
    ".globl rockery_guard_byte; .hidden rockery_guard_byte; rockery_guard_byte:",
    "mov al, [rsi]",
    "mov [rdi], al",
    "xor eax, eax",
    "ret",
    // (to, from): eight bytes at once.
    ".globl rockery_guard_word; .hidden rockery_guard_word; rockery_guard_word:",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "xor eax, eax",
    "ret",
    // (cell, add, before)
    ".globl rockery_guard_add; .hidden rockery_guard_add; rockery_guard_add:",
    "lock xadd [rdi], rsi",
    "mov [rdx], rsi",
    "xor eax, eax",
    "ret",
    // (cell, compare, swap, before)
    ".globl rockery_guard_swap; .hidden rockery_guard_swap; rockery_guard_swap:",
    "mov rax, rsi",
    "lock cmpxchg [rdi], rdx",
    "mov [rcx], rax",
    "xor eax, eax",
    "ret",
    ".globl rockery_guard_end; .hidden rockery_guard_end; rockery_guard_end:",
    ".globl rockery_guard_failed; .hidden rockery_guard_failed; rockery_guard_failed:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
mod code {
    use std::mem::zeroed;
    use std::ptr::null_mut;
    use std::sync::OnceLock;

    // SAFETY: the functions above, with these arguments.
    unsafe extern "C" {
        fn rockery_guard_begin();
        fn rockery_guard_end();
        fn rockery_guard_failed();
        pub(super) fn rockery_guard_copy(to: *mut u8, from: *const u8, length: usize) -> i32;
        pub(super) fn rockery_guard_byte(to: *mut u8, from: *const u8) -> i32;
        pub(super) fn rockery_guard_word(to: *mut u8, from: *const u8) -> i32;
        pub(super) fn rockery_guard_add(cell: *mut u8, add: u64, before: *mut u64) -> i32;
        pub(super) fn rockery_guard_swap(cell: *mut u8, compare: u64, swap: u64, before: *mut u64) -> i32;
    }

    /// What was installed before us.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

    extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let guarded = rockery_guard_begin as *const () as i64..rockery_guard_end as *const () as i64;
        // SAFETY: the kernel hands over the context of the thread that it interrupted.
        let place =
            unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
        if guarded.contains(place) {
            *place = rockery_guard_failed as *const () as i64;
            return;
        }
        let before = BEFORE.get();
        match before.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
            libc::SIG_DFL | libc::SIG_IGN => {
                // What touched the memory does so again when this returns, and then ends as it would have.
                // SAFETY: all zeros is the default action, with no flags.
                unsafe { libc::sigaction(signal, &zeroed(), null_mut()) };
            }
            handler if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) => {
                // SAFETY: the program installed it as such a function.
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            }
            handler => {
                // SAFETY: the program installed it as such a function.
                let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            }
        }
    }

    pub(super) fn install() -> std::io::Result<()> {
        // SAFETY: all zeros is a valid action, to be filled in; the handler only does what handlers may.
        unsafe {
            let mut before: libc::sigaction = zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            let before = BEFORE.get_or_init(|| before);
            let mut ours: libc::sigaction = zeroed();
            ours.sa_sigaction = handle as *const () as usize;
            ours.sa_mask = before.sa_mask;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (before.sa_flags & libc::SA_NODEFER);
            match libc::sigaction(libc::SIGBUS, &ours, null_mut()) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    }
}

/// Stands for an installed handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard(());

impl Guard {
    /// Installs the handler, once in a process.
    pub(crate) fn new() -> io::Result<Self> {
        static INSTALLED: OnceLock<bool> = OnceLock::new();
        #[cfg(target_arch = "x86_64")]
        let install = || code::install().is_ok();
        #[cfg(not(target_arch = "x86_64"))]
        let install = || false;
        if *INSTALLED.get_or_init(install) { Ok(Self(())) } else { Err(io::ErrorKind::Unsupported.into()) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Guard {
    /// Copies; the last byte becomes visible last, and one aligned word at once. False when memory was
    /// missing.
    ///
    /// # Safety
    /// Both ranges are mapped, one of them perhaps to a file that is shorter by now; nobody in this process
    /// has references into them.
    pub(crate) unsafe fn copy(self, to: *mut u8, from: *const u8, length: usize) -> bool {
        // SAFETY: as above.
        unsafe {
            if length == 8 && to.addr().is_multiple_of(8) {
                return code::rockery_guard_word(to, from) == 0;
            }
            let Some(body) = length.checked_sub(1) else { return true };
            code::rockery_guard_copy(to, from, body) == 0
                && code::rockery_guard_byte(to.add(body), from.add(body)) == 0
        }
    }

    /// Adds to eight bytes; what was there.
    ///
    /// # Safety
    /// As [`Self::copy`]; the address is a multiple of eight.
    pub(crate) unsafe fn fetch_add(self, cell: *mut u8, add: u64) -> Option<u64> {
        let mut before = 0;
        // SAFETY: as above.
        (unsafe { code::rockery_guard_add(cell, add, &mut before) } == 0).then_some(before)
    }

    /// Swaps eight bytes if they are as expected; what was there.
    ///
    /// # Safety
    /// As [`Self::fetch_add`].
    pub(crate) unsafe fn compare_swap(self, cell: *mut u8, compare: u64, swap: u64) -> Option<u64> {
        let mut before = 0;
        // SAFETY: as above.
        (unsafe { code::rockery_guard_swap(cell, compare, swap, &mut before) } == 0).then_some(before)
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Guard {
    /// Copies nothing.
    ///
    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn copy(self, _to: *mut u8, _from: *const u8, _length: usize) -> bool {
        false
    }

    /// Adds nothing.
    ///
    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn fetch_add(self, _cell: *mut u8, _add: u64) -> Option<u64> {
        None
    }

    /// Swaps nothing.
    ///
    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn compare_swap(self, _cell: *mut u8, _compare: u64, _swap: u64) -> Option<u64> {
        None
    }
}
