//! Copies to and from memory that may be unmapped: a process that has a shared file can truncate it, and
//! access to its mapping then raises `SIGBUS`; a program can unmap memory that it has registered, and access
//! then raises `SIGSEGV`. Either signal terminates the program. Here it ends the copy with a failure.
//!
//! The functions are written in assembly and lie together: a signal handler makes them return a failure if
//! the fault is at one of their instructions, and passes every other signal to the handler that was installed
//! before. On processors without such code nothing is copied.

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
    // (to, from, length): ascending, 17 to 64 bytes. Four loads, the last of which overlap, take a third of
    // the time in which `rep movsb` begins.
    ".globl rockery_guard_short; .hidden rockery_guard_short; rockery_guard_short:",
    "movdqu xmm0, [rsi]",
    "movdqu xmm3, [rsi + rdx - 16]",
    "cmp rdx, 32",
    "jbe 2f",
    "movdqu xmm1, [rsi + 16]",
    "movdqu xmm2, [rsi + rdx - 32]",
    "movdqu [rdi], xmm0",
    "movdqu [rdi + 16], xmm1",
    "movdqu [rdi + rdx - 32], xmm2",
    "movdqu [rdi + rdx - 16], xmm3",
    "xor eax, eax",
    "ret",
    "2:",
    "movdqu [rdi], xmm0",
    "movdqu [rdi + rdx - 16], xmm3",
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
        pub(super) fn rockery_guard_short(to: *mut u8, from: *const u8, length: usize) -> i32;
        pub(super) fn rockery_guard_byte(to: *mut u8, from: *const u8) -> i32;
        pub(super) fn rockery_guard_word(to: *mut u8, from: *const u8) -> i32;
        pub(super) fn rockery_guard_add(cell: *mut u8, add: u64, before: *mut u64) -> i32;
        pub(super) fn rockery_guard_swap(
            cell: *mut u8,
            compare: u64,
            swap: u64,
            before: *mut u64,
        ) -> i32;
    }

    /// The caught signals, and the handlers that were installed for them before.
    static BEFORE: [(i32, OnceLock<libc::sigaction>); 2] = [
        (libc::SIGBUS, OnceLock::new()),
        (libc::SIGSEGV, OnceLock::new()),
    ];

    extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let guarded =
            rockery_guard_begin as *const () as i64..rockery_guard_end as *const () as i64;
        // SAFETY: the kernel hands over the context of the thread that it interrupted.
        let place = unsafe {
            &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize]
        };
        if guarded.contains(place) {
            *place = rockery_guard_failed as *const () as i64;
            return;
        }
        let before = BEFORE
            .iter()
            .find(|(caught, _)| *caught == signal)
            .and_then(|(_, before)| before.get());
        match before.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
            libc::SIG_DFL | libc::SIG_IGN => {
                // The access is repeated when this returns, and then ends as it would have without the
                // handler.
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
            ours.sa_flags =
                libc::SA_SIGINFO | libc::SA_ONSTACK | (before.sa_flags & libc::SA_NODEFER);
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
        #[cfg(target_arch = "x86_64")]
        let install = || code::install().is_ok();
        #[cfg(not(target_arch = "x86_64"))]
        let install = || false;
        if *INSTALLED.get_or_init(install) {
            Ok(Self(()))
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(target_arch = "x86_64")]
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
            let Some(body) = length.checked_sub(1) else {
                return true;
            };
            let copied = match body {
                17..=64 => code::rockery_guard_short(to, from, body),
                _ => code::rockery_guard_copy(to, from, body),
            };
            copied == 0 && code::rockery_guard_byte(to.add(body), from.add(body)) == 0
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
        (unsafe { code::rockery_guard_add(cell, add, &mut before) } == 0).then_some(before)
    }

    /// Swaps eight bytes if they are as expected; returns the old value.
    ///
    /// # Safety
    /// As [`Self::fetch_add`].
    pub(crate) unsafe fn compare_swap(self, cell: *mut u8, compare: u64, swap: u64) -> Option<u64> {
        let mut before = 0;
        // SAFETY: by this function's contract, which is that of [`Self::fetch_add`].
        (unsafe { code::rockery_guard_swap(cell, compare, swap, &mut before) } == 0)
            .then_some(before)
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Guard {
    /// Copies nothing, because memory cannot be guarded on this architecture.
    ///
    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn copy(self, _to: *mut u8, _from: *const u8, _length: usize) -> bool {
        false
    }

    /// Adds nothing, because memory cannot be guarded on this architecture.
    ///
    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn fetch_add(self, _cell: *mut u8, _add: u64) -> Option<u64> {
        None
    }

    /// Swaps nothing, because memory cannot be guarded on this architecture.
    ///
    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn compare_swap(
        self,
        _cell: *mut u8,
        _compare: u64,
        _swap: u64,
    ) -> Option<u64> {
        None
    }
}
