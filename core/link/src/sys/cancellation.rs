//! Cancellation points (pthreads(7)): waits that `pthread_cancel(3)` ends.
//!
//! The C library ends a cancelled thread by unwinding its stack, from the system call on. That must not meet
//! frames of Rust: they catch panics, and own locks. So [`call`] makes the C library jump back to it, as a
//! cleanup handler of C does (`pthread_cleanup_push`), and returns an error. The callers return as they do
//! for any error, to the function that the program has called, where [`unwinding`] says how the C library
//! goes on to end the thread.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;

/// `__pthread_unwind_buf_t`: registers (`__jmp_buf`), the saved signal mask's flag, and four words of the C
/// library's.
#[repr(C, align(16))]
struct UnwindBuffer([u64; REGISTERS + 1 + 4]);

/// Words in the C library's `__jmp_buf`.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 8;
/// Words in the C library's `__jmp_buf`.
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 22;

/// What `rockery_call_cancellable` works with.
#[repr(C)]
struct Call {
    function: *const c_void,
    /// The arguments; the first one becomes the result.
    arguments: [usize; 4],
    register: *const c_void,
    unregister: *const c_void,
    buffer: UnwindBuffer,
}

/// How the C library goes on to end the thread: it is called with the buffer.
#[repr(C)]
pub struct Unwinding {
    unwind_next: *const c_void,
    buffer: UnwindBuffer,
}

impl Unwinding {
    /// Where the buffer is; the function's address is at the beginning.
    pub const BUFFER: usize = core::mem::offset_of!(Self, buffer);
}

/// Functions of the C library, past preloaded ones that replace them.
struct Functions {
    read: *const c_void,
    recv: *const c_void,
    ppoll: *const c_void,
    testcancel: *const c_void,
    register: *const c_void,
    unregister: *const c_void,
    unwind_next: *const c_void,
}

// SAFETY: addresses of code.
unsafe impl Send for Functions {}
// SAFETY: addresses of code.
unsafe impl Sync for Functions {}

thread_local! {
    /// Set once the thread was cancelled in a wait.
    static CANCELLED: UnsafeCell<Option<Unwinding>> = const { UnsafeCell::new(None) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "a wait that can be cancelled calls the C library by instructions of x86-64 or 64-bit ARM, and there are \
     none for this processor"
);

// The stack is aligned at each call. `__sigsetjmp` returns a second time when the thread is cancelled; the
// registers that functions keep are then those of the first time.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.rockery_call_cancellable,\"ax\",@progbits",
    ".globl rockery_call_cancellable",
    ".hidden rockery_call_cancellable",
    ".type rockery_call_cancellable,@function",
    "rockery_call_cancellable:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    ".cfi_offset rbx, -24",
    "sub rsp, 8",
    "mov rbx, rdi",
    "lea rdi, [rbx + {buffer}]",
    "xor esi, esi",
    "call __sigsetjmp@PLT",
    "test eax, eax",
    "jne 2f",
    "lea rdi, [rbx + {buffer}]",
    "call qword ptr [rbx + {register}]",
    "mov rdi, [rbx + {arguments}]",
    "mov rsi, [rbx + {arguments} + 8]",
    "mov rdx, [rbx + {arguments} + 16]",
    "mov rcx, [rbx + {arguments} + 24]",
    "xor eax, eax",
    "call qword ptr [rbx + {function}]",
    "mov [rbx + {arguments}], rax",
    "lea rdi, [rbx + {buffer}]",
    "call qword ptr [rbx + {unregister}]",
    "xor eax, eax",
    "jmp 3f",
    "2:",
    "mov eax, 1",
    "3:",
    "mov rbx, [rbp - 8]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size rockery_call_cancellable, . - rockery_call_cancellable",
    ".popsection",
    buffer = const core::mem::offset_of!(Call, buffer),
    register = const core::mem::offset_of!(Call, register),
    unregister = const core::mem::offset_of!(Call, unregister),
    arguments = const core::mem::offset_of!(Call, arguments),
    function = const core::mem::offset_of!(Call, function),
);

// `__sigsetjmp` returns a second time when the thread is cancelled; the registers that functions keep, x19
// among them, are then those of the first time.
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.rockery_call_cancellable,\"ax\",@progbits",
    ".globl rockery_call_cancellable",
    ".hidden rockery_call_cancellable",
    ".type rockery_call_cancellable,@function",
    "rockery_call_cancellable:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-32]!",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset x29, -32",
    ".cfi_offset x30, -24",
    "mov x29, sp",
    "str x19, [sp, #16]",
    ".cfi_offset x19, -16",
    "mov x19, x0",
    "add x0, x19, #{buffer}",
    "mov w1, #0",
    "bl __sigsetjmp",
    "cbnz w0, 2f",
    "add x0, x19, #{buffer}",
    "ldr x9, [x19, #{register}]",
    "blr x9",
    "ldp x0, x1, [x19, #{arguments}]",
    "ldp x2, x3, [x19, #{arguments} + 16]",
    "ldr x9, [x19, #{function}]",
    "blr x9",
    "str x0, [x19, #{arguments}]",
    "add x0, x19, #{buffer}",
    "ldr x9, [x19, #{unregister}]",
    "blr x9",
    "mov w0, #0",
    "b 3f",
    "2:",
    "mov w0, #1",
    "3:",
    "ldr x19, [sp, #16]",
    ".cfi_restore x19",
    "ldp x29, x30, [sp], #32",
    ".cfi_restore x29",
    ".cfi_restore x30",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    ".size rockery_call_cancellable, . - rockery_call_cancellable",
    ".popsection",
    buffer = const core::mem::offset_of!(Call, buffer),
    register = const core::mem::offset_of!(Call, register),
    unregister = const core::mem::offset_of!(Call, unregister),
    arguments = const core::mem::offset_of!(Call, arguments),
    function = const core::mem::offset_of!(Call, function),
);

// SAFETY: the function above, and one of the C library.
unsafe extern "C" {
    /// Calls the function; 1 if the thread was cancelled meanwhile.
    fn rockery_call_cancellable(call: *mut Call) -> i32;
    /// Not in the crate `libc`. `state` is 0 for enabled and 1 for disabled.
    fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
}

/// The functions; none where the C library lacks one of them.
fn functions() -> Option<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref()
}

fn find() -> Option<Functions> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name ends with a zero; a library that is there already is not run.
    let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), flags) };
    if library.is_null() {
        return None;
    }
    let function = |name: &CStr| {
        // SAFETY: an open library, and a name that ends with a zero.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if !found.is_null() {
            return Some(found.cast_const());
        }
        // Before glibc 2.34 functions on threads are in libpthread.so.0.
        // SAFETY: a name that ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found.cast_const())
    };
    Some(Functions {
        read: function(c"read")?,
        recv: function(c"recv")?,
        ppoll: function(c"ppoll")?,
        testcancel: function(c"pthread_testcancel")?,
        register: function(c"__pthread_register_cancel")?,
        unregister: function(c"__pthread_unregister_cancel")?,
        unwind_next: function(c"__pthread_unwind_next")?,
    })
}

/// Calls a function of the C library that is a cancellation point.
///
/// # Errors
/// `ECANCELED` when the thread was cancelled, now or before.
///
/// # Safety
/// The function takes these arguments, returns a number, and is one that the C library may leave by
/// cancellation.
unsafe fn call(
    functions: &Functions,
    function: *const c_void,
    arguments: [usize; 4],
) -> io::Result<isize> {
    if !unwinding().is_null() {
        return Err(io::Error::from_raw_os_error(libc::ECANCELED));
    }
    let mut call = Call {
        function,
        arguments,
        register: functions.register,
        unregister: functions.unregister,
        buffer: UnwindBuffer([0; REGISTERS + 1 + 4]),
    };
    // SAFETY: by this function's contract; the buffer lives until the call returns.
    if unsafe { rockery_call_cancellable(&mut call) } == 0 {
        return Ok(call.arguments[0] as isize);
    }
    let unwinding = Unwinding {
        unwind_next: functions.unwind_next,
        buffer: call.buffer,
    };
    // SAFETY: only this thread uses its variable, and no reference to it is kept.
    CANCELLED.with(|place| unsafe { *place.get() = Some(unwinding) });
    Err(io::Error::from_raw_os_error(libc::ECANCELED))
}

/// How the C library goes on to end this thread; NULL if the thread was not cancelled in a wait.
pub fn unwinding() -> *const Unwinding {
    let found = |place: &UnsafeCell<Option<Unwinding>>| {
        // SAFETY: only this thread uses its variable, which is not changed once it is set.
        unsafe { (*place.get()).as_ref() }.map_or(std::ptr::null(), |it| it)
    };
    CANCELLED.try_with(found).unwrap_or(std::ptr::null())
}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `read(2)`, as a cancellation point.
pub fn read(fd: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
    let arguments = [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0];
    match functions() {
        // SAFETY: a slice and its length.
        Some(functions) => checked(unsafe { call(functions, functions.read, arguments) }?),
        // SAFETY: a slice and its length.
        None => checked(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) }),
    }
}

/// `recv(2)` without flags, as a cancellation point.
pub fn recv(socket: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
    let arguments = [socket as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0];
    match functions() {
        // SAFETY: a slice and its length.
        Some(functions) => checked(unsafe { call(functions, functions.recv, arguments) }?),
        // SAFETY: a slice and its length.
        None => checked(unsafe { libc::recv(socket, bytes.as_mut_ptr().cast(), bytes.len(), 0) }),
    }
}

/// `ppoll(2)`, as a cancellation point. The result is the number of descriptors that are ready.
///
/// # Safety
/// `time` and `signals` are NULL, or live until the call returns.
pub unsafe fn ppoll(
    polled: &mut [libc::pollfd],
    time: *const libc::timespec,
    signals: *const libc::sigset_t,
) -> io::Result<usize> {
    let (place, count) = (polled.as_mut_ptr(), polled.len());
    let arguments = [place as usize, count, time as usize, signals as usize];
    match functions() {
        Some(functions) => {
            // SAFETY: a slice and its length; the rest by this function's contract.
            let result = unsafe { call(functions, functions.ppoll, arguments) }?;
            // An `int` in a register of 64 bits.
            checked(result as i32 as isize)
        }
        // SAFETY: a slice and its length; the rest by this function's contract.
        None => checked(unsafe { libc::ppoll(place, count as _, time, signals) } as isize),
    }
}

/// Sleeps, as a cancellation point.
///
/// # Errors
/// `EINTR` when a signal came, and `ECANCELED` when the thread was cancelled.
pub fn sleep(time: Duration) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: the time lives until the call returns; there are no signals.
    unsafe { ppoll(&mut [], &raw const time, std::ptr::null()) }.map(drop)
}

/// `pthread_testcancel(3)`: for waits that no system call of these makes.
///
/// # Errors
/// `ECANCELED` when the thread was cancelled.
pub fn test() -> io::Result<()> {
    match functions() {
        // SAFETY: a function without arguments.
        Some(functions) => unsafe { call(functions, functions.testcancel, [0; 4]) }.map(drop),
        None => Ok(()),
    }
}

/// Opens a file for reading as a program does: by the function that is found first, which may be that of a
/// preloaded library, and without being cancelled. (Other calls are system calls of the libraries' own.)
///
/// # Errors
/// Those of `open(2)`; `ENOSYS` where no library has the function.
pub fn open_as_programs(path: &CStr) -> io::Result<OwnedFd> {
    type Open = unsafe extern "C" fn(*const libc::c_char, i32, ...) -> i32;
    // SAFETY: a name that ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"open64".as_ptr()) };
    if found.is_null() {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    // SAFETY: every library has open(2) of this type under this name.
    let open = unsafe { std::mem::transmute::<*mut c_void, Open>(found) };
    // SAFETY: a path that ends with a zero.
    let fd = without(|| unsafe { open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) });
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs calls of the C library that are cancellation points, such as `getifaddrs(3)`, without being
/// cancelled.
pub fn without<T>(run: impl FnOnce() -> T) -> T {
    const DISABLED: i32 = 1;
    let mut before = DISABLED;
    // SAFETY: a place for the state before.
    unsafe { pthread_setcancelstate(DISABLED, &mut before) };
    let result = run();
    // SAFETY: the state before, and a place.
    unsafe { pthread_setcancelstate(before, &mut 0) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::mpsc::channel;

    // SAFETY: pthread_cancel(3) of the C library.
    unsafe extern "C" {
        fn pthread_cancel(thread: libc::pthread_t) -> i32;
    }

    fn cancel(thread: libc::pthread_t) {
        // SAFETY: a thread that was not joined.
        assert_eq!(unsafe { pthread_cancel(thread) }, 0);
    }

    /// Where a value is dropped: unwinding must not leave frames without their cleanup.
    struct Dropped(std::sync::mpsc::Sender<&'static str>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    #[test]
    fn a_wait_that_is_cancelled_returns_an_error_and_drops_what_its_callers_own() {
        let (sender, receiver) = channel();
        let (reader, _writer) = std::io::pipe().unwrap();
        let thread = std::thread::spawn(move || {
            let _dropped = Dropped(sender.clone());
            sender.send("begins").unwrap();
            let read = read(std::os::fd::AsRawFd::as_raw_fd(&reader), &mut [0]);
            let again = test();
            let error = |result: std::io::Error| result.raw_os_error();
            let codes = (error(read.unwrap_err()), error(again.unwrap_err()));
            (codes, unwinding().cast::<c_void>().is_null())
        });
        assert_eq!(receiver.recv(), Ok("begins"));
        cancel(thread.as_pthread_t());
        let canceled = Some(libc::ECANCELED);
        assert_eq!(thread.join().unwrap(), ((canceled, canceled), false));
        assert_eq!(receiver.recv(), Ok("dropped"));
    }

    #[test]
    fn a_thread_that_is_not_cancelled_reads_and_polls() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"ab").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let mut polled = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        // SAFETY: no time and no signals.
        let ready = unsafe { ppoll(&mut polled, std::ptr::null(), std::ptr::null()) };
        assert_eq!((ready.unwrap(), polled[0].revents), (1, libc::POLLIN));
        let mut bytes = [0; 4];
        assert_eq!(read(fd, &mut bytes).unwrap(), 2);
        assert_eq!(
            read(-1, &mut bytes).unwrap_err().raw_os_error(),
            Some(libc::EBADF)
        );
        assert!(test().is_ok() && unwinding().is_null());
    }

    #[test]
    fn a_call_is_not_cancelled_where_cancelling_is_off() {
        let (sender, receiver) = channel();
        let (answer, asked) = channel();
        let thread = std::thread::spawn(move || {
            sender.send(()).unwrap();
            asked.recv().unwrap();
            let inside = without(|| test().is_ok());
            (inside, test().is_err())
        });
        receiver.recv().unwrap();
        cancel(thread.as_pthread_t());
        answer.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), (true, true));
    }
}
