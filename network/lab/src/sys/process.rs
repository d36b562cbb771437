//! Processes: children, their end, and capabilities.

use os::{checked, owned};
use std::io;
use std::os::fd::OwnedFd;

/// The process in which [`fork`] returns: the child, or the parent with the PID of the child.
pub(crate) enum Forked {
    Child,
    Parent(i32),
}

/// Forks. This process has one thread, so the child may do anything.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: one thread, as the crate's entry points say.
    match checked(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child)),
    }
}

/// Makes a child that is the first process of a PID namespace: all processes of the namespace end with it.
pub(crate) fn fork_init() -> io::Result<Forked> {
    let flags = libc::CLONE_NEWPID | libc::SIGCHLD;
    let none = 0usize;
    // SAFETY: as fork(2), with a namespace: no stack of its own, and one thread.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags as usize, none, none, none, none) };
    match checked(child as i32)? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child)),
    }
}

/// Descriptors that are closed one by one where the kernel cannot close a range: more than a lab has.
const DESCRIPTORS_MAX: libc::c_long = 1 << 16;

/// Runs as the first process of the namespace: reaps the others until its parent ends.
pub(crate) fn be_init() -> ! {
    end_with_parent();
    // SAFETY: numbers, and structures that live until the calls return. Nothing uses the descriptors after.
    unsafe {
        // As a system call: glibc has the function from 2.34 on, and kernels before 5.9 do not have the call.
        if libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) != 0 {
            let limit = libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, DESCRIPTORS_MAX);
            for fd in 0..limit {
                libc::close(fd as libc::c_int);
            }
        }
        libc::setsid();
        let mut child = std::mem::zeroed();
        libc::sigemptyset(&mut child);
        libc::sigaddset(&mut child, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_SETMASK, &child, std::ptr::null_mut());
        loop {
            while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
            let mut signal = 0;
            libc::sigwait(&child, &mut signal);
        }
    }
}

/// Has the kernel kill this process when its parent ends.
pub(crate) fn end_with_parent() {
    // SAFETY: numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// Waits for a child; its wait status.
pub(crate) fn wait(child: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: room for the status.
        match checked(unsafe { libc::waitpid(child, &mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(|_| status),
        }
    }
}

/// Sends a signal to a child.
pub(crate) fn kill(child: i32, signal: i32) {
    // SAFETY: numbers only. An error means that it has ended.
    unsafe { libc::kill(child, signal) };
}

/// Ends a child made by [`fork`] without running what its parent registered for its own end.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: a number only.
    unsafe { libc::_exit(status) }
}

/// The exit status of a shell for a wait status.
pub(crate) fn exit_status(status: i32) -> u8 {
    if libc::WIFSIGNALED(status) {
        (128 + libc::WTERMSIG(status)) as u8
    } else {
        libc::WEXITSTATUS(status) as u8
    }
}

/// Blocks the signals that end a program, and makes a descriptor that is readable when one is there.
pub(crate) fn end_signals() -> io::Result<OwnedFd> {
    // SAFETY: a set that lives until the calls return.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        owned(libc::signalfd(
            -1,
            &set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))
    }
}

/// Leaves signals of the terminal to the child that this process waits for.
pub(crate) fn ignore_terminal_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Undoes that in the child.
pub(crate) fn default_terminal_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Detaches from terminal and session; standard input and output become the null device.
pub(crate) fn detach() -> io::Result<()> {
    // SAFETY: numbers, and a string that ends with 0.
    unsafe {
        libc::setsid();
        let null = checked(libc::open(
            c"/dev/null".as_ptr(),
            libc::O_RDWR | libc::O_CLOEXEC,
        ))?;
        for fd in 0..3 {
            checked(libc::dup2(null, fd))?;
        }
        libc::close(null);
    }
    Ok(())
}

/// Has programs that this process starts keep its capabilities, which are those of its user namespace: they
/// may then set up interfaces, as root of the host may.
pub(crate) fn keep_capabilities() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    /// The version with 64 capabilities, `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    // Effective, permitted, inheritable, of 32 capabilities each.
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: a header and two sets, as that version has them.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, &raw mut sets) != 0 {
            return;
        }
        sets.iter_mut().for_each(|set| set[2] = set[1]);
        libc::syscall(libc::SYS_capset, &raw mut header, &raw const sets);
        for capability in 0..64 {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE,
                capability,
                0,
                0,
            );
        }
    }
}

/// Sets a variable of the environment in a child made by [`fork`].
pub(crate) fn set_variable(name: &str, value: &str) {
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var(name, value) };
}
