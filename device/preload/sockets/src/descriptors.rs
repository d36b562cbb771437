//! The C library's functions on descriptors of any type.

use crate::calls::set_errno;
use crate::next::replace;
use crate::rsockets as r;
use crate::table::{self, Kind, Pending};
use crate::{epoll, fork, real};
use core::ffi::{c_char, c_int, c_long, c_ulong};

/// Bytes that `FIONREAD` reports at most.
const WAITING_BYTES_MAX: usize = 1 << 16;

/// Makes the new descriptor `new` of a duplicate refer to the same rsocket as `fd`.
fn map_duplicate(fd: c_int, new: c_int) -> c_int {
    if new >= 0 && table::kind(fd) != Kind::Plain && !table::set(new, table::kind(fd)) {
        // SAFETY: just made.
        unsafe { real::close(new) };
        set_errno(libc::EMFILE);
        return -1;
    }
    new
}

/// Removes a descriptor that is closed or replaced, and closes its rsocket with the last one.
///
/// # Safety
/// The program does not use the descriptor any more.
unsafe fn unmap(fd: c_int) -> c_int {
    if r::in_librdmacm() {
        return 0;
    }
    epoll::closed(fd);
    match table::forget(fd) {
        // SAFETY: no descriptor refers to it any more.
        Some(rsocket) => unsafe { r::rclose(rsocket) },
        None => 0,
    }
}

/// Establishes a pending connection before its descriptor is duplicated.
fn establish(fd: c_int) {
    if matches!(
        table::kind(fd),
        Kind::Pending(Pending::Active | Pending::Passive)
    ) {
        // SAFETY: it is the program's, and pending.
        unsafe { fork::establish(fd) };
    }
}

replace! {
    fn close(fd: c_int) -> c_int {
        if r::in_librdmacm() {
            return real::close(fd);
        }
        // Removed before it is closed, because another thread may then get the same number.
        let closed = unmap(fd);
        let held = real::close(fd);
        if closed != 0 { closed } else { held }
    }

    fn dup(fd: c_int) -> c_int {
        establish(fd);
        map_duplicate(fd, real::dup(fd))
    }

    fn dup2(fd: c_int, to: c_int) -> c_int {
        establish(fd);
        if fd == to || fd < 0 || to < 0 {
            return real::dup2(fd, to);
        }
        unmap(to);
        map_duplicate(fd, real::dup2(fd, to))
    }

    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        establish(fd);
        if fd == to || fd < 0 || to < 0 {
            return real::dup3(fd, to, flags);
        }
        unmap(to);
        map_duplicate(fd, real::dup3(fd, to, flags))
    }

    /// C declares the argument variadic; the x86-64 ABI passes it where a fixed third argument would be.
    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
        let Kind::Rsocket(rsocket) = table::kind(fd) else {
            let answer = real::fcntl(fd, command, argument);
            let is_copy = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
            return if is_copy { map_duplicate(fd, answer) } else { answer };
        };
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => map_duplicate(fd, real::fcntl(fd, command, argument)),
            libc::F_SETFL => {
                r::rfcntl(rsocket, command, argument as c_int);
                real::fcntl(fd, command, argument)
            }
            _ => real::fcntl(fd, command, argument),
        }
    }

    fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
        fcntl(fd, command, argument)
    }

    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_char) -> c_int {
        if let (Some(rsocket), Some(place)) = (table::rsocket(fd), argument.cast::<c_int>().as_mut()) {
            if request == libc::FIONBIO {
                let flags = if *place != 0 { libc::O_NONBLOCK } else { 0 };
                r::rfcntl(rsocket, libc::F_SETFL, flags);
            } else if request == libc::FIONREAD {
                let mut room = vec![0_u8; WAITING_BYTES_MAX];
                let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
                let waiting = r::rrecv(rsocket, room.as_mut_ptr().cast(), room.len(), flags);
                *place = c_int::try_from(waiting).unwrap_or(0).max(0);
                return 0;
            }
        }
        real::ioctl(fd, request, argument)
    }
}
