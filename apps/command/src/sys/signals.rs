//! The signals that ask a process to end, received by a thread: SIGINT, SIGTERM and SIGHUP.

use std::mem::MaybeUninit;
use std::ptr;

/// Signals that ask this process to end, and that do not end it by themselves.
#[derive(Clone, Copy)]
pub struct EndSignals(libc::sigset_t);

impl EndSignals {
    /// Blocks the signals in this thread, and in those that it starts afterwards. Signals that this process
    /// ignores, because its shell or nohup(1) has it so, stay ignored.
    pub fn block() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initializes the set; the structures live until the calls return.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                let mut action = MaybeUninit::<libc::sigaction>::zeroed();
                libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
                if action.assume_init().sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(set.as_mut_ptr(), signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
            set.assume_init()
        };
        Self(set)
    }

    /// Waits for the first of the signals; returns it. A further one ends this process at once.
    pub fn wait(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: a set that was initialized, and a number that lives until the call returns.
        unsafe {
            libc::sigwait(&self.0, &mut signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &self.0, ptr::null_mut());
        }
        signal
    }

    /// Ends this process as `signal` does without a handler. If the signal is one of these, the thread has to
    /// have called [`EndSignals::wait`].
    pub fn end_by(signal: i32) -> ! {
        // SAFETY: the default action of the signal, which this thread does not block.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        // Not reached, because the default action of these signals ends the process.
        std::process::exit(128 + signal)
    }
}

/// Ends this process silently, as a write to a pipe that no process reads ends programs that do not ignore
/// SIGPIPE.
pub fn end_by_a_broken_pipe() -> ! {
    EndSignals::end_by(libc::SIGPIPE)
}
