//! The library's own threads and processes inside a program that does not expect them.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::JoinHandle;

/// Signals that the kernel raises for an action of the thread itself. Where one of them is blocked, the
/// kernel ends the process instead of calling the handler: ours ([`super::guarded`]), or the program's.
const FAULTS: [i32; 6] = [
    libc::SIGBUS,
    libc::SIGSEGV,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Starts a thread that takes none of the program's signals, except those that it causes itself.
///
/// # Errors
/// `EAGAIN`: the system permits no further thread.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // SAFETY: signal sets of ours; the mask is put back below. A new thread inherits the mask.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        for signal in FAULTS {
            libc::sigdelset(&mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        thread
    }
}

/// Runs `body` in a separate process, which is not a child of this one, has no terminal, and of this one's
/// descriptors only `keep`. It is a copy of a process that may have had many threads, of which only this one
/// is left: `body` calls nothing that allocates memory or takes a lock, which could be held for ever.
pub(crate) fn spawn_daemon(keep: OwnedFd, body: fn(OwnedFd)) -> io::Result<()> {
    // SAFETY: the children call only what may be called after a fork: `body` promises it, and see
    // `become_daemon`.
    unsafe {
        let child = libc::fork();
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        if child == 0 {
            if libc::fork() == 0 {
                become_daemon(&keep);
                body(OwnedFd::from_raw_fd(KEPT));
            }
            libc::_exit(0);
        }
        let mut status = 0;
        while libc::waitpid(child, &mut status, 0) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        Ok(())
    }
}

/// Raises the limit of descriptors as far as the system permits: the program that starts the agent may have a
/// low one, and is not its only client.
fn allow_descriptors() {
    const PLENTY: libc::rlim_t = 1 << 16;
    let mut limit = libc::rlimit {
        rlim_cur: PLENTY,
        rlim_max: PLENTY,
    };
    // SAFETY: a structure that lives until the calls return.
    unsafe {
        // Only the administrator may raise the hard limit.
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0
            && libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0
        {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Number of the one descriptor that is kept.
const KEPT: i32 = 3;
const SIGNALS: i32 = 64;

/// # Safety
/// Only in a process of its own that ends with what follows: closes all descriptors.
unsafe fn become_daemon(keep: &OwnedFd) {
    // SAFETY: plain system calls, each of which may be called after a fork.
    unsafe {
        libc::setsid();
        allow_descriptors();
        let mut none: libc::sigset_t = zeroed();
        for signal in 1..=SIGNALS {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::dup2(keep.as_raw_fd(), KEPT);
        crate::sys::descriptors::close_from(KEPT + 1);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..KEPT {
            libc::dup2(null, standard);
        }
        libc::close(null);
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"rockery-agent".as_ptr());
    }
}
