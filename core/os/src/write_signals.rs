//! Signals of system calls that write: SIGXFSZ beside `EFBIG`, for a file beyond the process's limit
//! (`RLIMIT_FSIZE`), and SIGPIPE beside `EPIPE`. Either ends a program that does not expect it.

use std::mem::zeroed;
use std::ptr::{null, null_mut};

const SIGNALS: [libc::c_int; 2] = [libc::SIGXFSZ, libc::SIGPIPE];
/// Bytes of the kernel's set of signals.
const SIGNAL_SET_BYTES: usize = 8;

/// Runs system calls that write, or that change the size of a file, without the signals.
pub fn without_signals<T>(calls: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals of ours; the thread's mask is put back. These signals are sent to the thread
    // that has made the call, so no other thread waits for the ones that are taken.
    unsafe {
        let (mut ours, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
            (zeroed(), zeroed(), zeroed());
        libc::sigpending(&mut pending);
        libc::sigemptyset(&mut ours);
        for signal in SIGNALS {
            // A signal that waits already is the program's: it is blocked, and stays.
            if libc::sigismember(&pending, signal) != 1 {
                libc::sigaddset(&mut ours, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &ours, &mut before);
        let result = calls();
        let error = *libc::__errno_location();
        while take(&ours) {}
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        *libc::__errno_location() = error;
        result
    }
}

/// Takes one of the signals, if one waits.
fn take(signals: &libc::sigset_t) -> bool {
    // SAFETY: a set of signals, and a time that ends the call at once.
    unsafe {
        let at_once: libc::timespec = zeroed();
        let taken = libc::syscall(
            libc::SYS_rt_sigtimedwait,
            std::ptr::from_ref(signals),
            null::<libc::siginfo_t>(),
            &raw const at_once,
            SIGNAL_SET_BYTES,
        );
        taken > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// The limit is the process's, so a child has it.
    #[test]
    fn a_file_beyond_the_limit_and_a_closed_pipe_are_errors_and_no_signals() {
        let file = std::fs::File::from(crate::memory_file::unsealable(c"test").unwrap());
        let (read, mut pipe) = std::io::pipe().unwrap();
        drop(read);
        let limit = libc::rlimit {
            rlim_cur: 4,
            rlim_max: 4,
        };
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a structure that lives until the call returns.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
            let code = |result: std::io::Result<()>| result.err()?.raw_os_error();
            let grown = without_signals(|| file.set_len(8));
            let written = without_signals(|| file.write_all_at(b"behind", 4));
            let fits = without_signals(|| file.write_all_at(b"fits", 0));
            // SAFETY: tests start with SIGPIPE ignored, programs do not.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            let piped = without_signals(|| pipe.write_all(b"lost"));
            let codes = [code(grown), code(written), code(piped)];
            let right = codes == [libc::EFBIG, libc::EFBIG, libc::EPIPE].map(Some);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!(right && fits.is_ok()))) };
        }
        let mut status = 0;
        // SAFETY: a place for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
