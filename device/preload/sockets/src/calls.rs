//! The C library's socket functions.

use crate::make::{SOL_RDMA, make};
use crate::next::replace;
use crate::rsockets as r;
use crate::table::{self, Kind, Pending, READ, WRITTEN};
use crate::{config, fork, real};
use core::ffi::{c_int, c_void};
use libc::{iovec, msghdr, sockaddr, socklen_t};

/// Bytes of a file sent at a time by `sendfile`.
const PIECE_BYTES: usize = 1 << 16;

pub(crate) fn errno() -> c_int {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() = value };
}

/// Defines functions that call the rsocket function of the same meaning for descriptors of rsockets, and
/// record a read or write.
macro_rules! pass_on {
    ($(
        fn $name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $ret:ty = $rsocket:ident, $touch:expr;
    )*) => {
        replace! {$(
            fn $name($fd: c_int $(, $arg: $type)*) -> $ret {
                if matches!(table::kind($fd), Kind::Pending(Pending::Active | Pending::Passive)) {
                    fork::establish($fd);
                }
                match table::rsocket($fd) {
                    Some(rsocket) => {
                        table::touch($fd, $touch);
                        r::$rsocket(rsocket $(, $arg)*)
                    }
                    None => real::$name($fd $(, $arg)*),
                }
            }
        )*}
    };
}

pass_on! {
    fn read(fd: c_int, to: *mut c_void, length: usize) -> isize = rread, READ;
    fn readv(fd: c_int, list: *const iovec, count: c_int) -> isize = rreadv, READ;
    fn recv(fd: c_int, to: *mut c_void, length: usize, flags: c_int) -> isize = rrecv, READ;
    fn recvfrom(fd: c_int, to: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr,
        address_length: *mut socklen_t) -> isize = rrecvfrom, READ;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize = rrecvmsg, READ;
    fn write(fd: c_int, from: *const c_void, length: usize) -> isize = rwrite, WRITTEN;
    fn writev(fd: c_int, list: *const iovec, count: c_int) -> isize = rwritev, WRITTEN;
    fn send(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize = rsend, WRITTEN;
    fn sendto(fd: c_int, from: *const c_void, length: usize, flags: c_int, address: *const sockaddr,
        address_length: socklen_t) -> isize = rsendto, WRITTEN;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize = rsendmsg, WRITTEN;
}

replace! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        let fd = real::socket(domain, kind, protocol);
        let plain = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        if fd < 0 || r::in_librdmacm() || !config::settings().takes(domain, plain, protocol) {
            return fd;
        }
        if config::settings().forks && plain == libc::SOCK_STREAM {
            table::set(fd, Kind::Pending(Pending::Fresh));
        } else if let Some(rsocket) = make(domain, kind, protocol)
            && !table::set(fd, Kind::Rsocket(rsocket))
        {
            r::rclose(rsocket);
        }
        fd
    }

    fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        match table::rsocket(fd) {
            Some(rsocket) => r::rbind(rsocket, address, length),
            None => real::bind(fd, address, length),
        }
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int {
        match table::kind(fd) {
            Kind::Rsocket(rsocket) => r::rlisten(rsocket, backlog),
            kind => {
                let answer = real::listen(fd, backlog);
                if answer == 0 && kind == Kind::Pending(Pending::Fresh) {
                    table::set(fd, Kind::Pending(Pending::Listening));
                }
                answer
            }
        }
    }

    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        accept4(fd, address, length, 0)
    }

    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        match table::kind(fd) {
            Kind::Rsocket(rsocket) => {
                table::touch(fd, READ);
                let accepted = r::raccept(rsocket, address, length);
                if accepted < 0 { accepted } else { stand_for(accepted, flags) }
            }
            kind => {
                let accepted = real::accept4(fd, address, length, flags);
                if accepted >= 0 && kind == Kind::Pending(Pending::Listening) {
                    table::set(accepted, Kind::Pending(Pending::Passive));
                }
                accepted
            }
        }
    }

    /// If nothing answers by RDMA and the socket is blocking, the TCP connection is used, as in rdma-core.
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        match table::kind(fd) {
            Kind::Rsocket(rsocket) => {
                table::touch(fd, WRITTEN);
                let answer = r::rconnect(rsocket, address, length);
                let goes_on = [libc::EINPROGRESS, libc::EALREADY, libc::EISCONN, libc::EINTR];
                if answer == 0 || goes_on.contains(&errno()) {
                    return answer;
                }
                if let Some(unused) = table::forget(fd) {
                    r::rclose(unused);
                }
                real::connect(fd, address, length)
            }
            kind => {
                let answer = real::connect(fd, address, length);
                let begun = answer == 0 || errno() == libc::EINPROGRESS;
                if begun && kind == Kind::Pending(Pending::Fresh) {
                    table::set(fd, Kind::Pending(Pending::Active));
                }
                answer
            }
        }
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        match table::rsocket(fd) {
            Some(rsocket) => r::rshutdown(rsocket, how),
            None => real::shutdown(fd, how),
        }
    }

    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match table::rsocket(fd) {
            Some(rsocket) => r::rgetpeername(rsocket, address, length),
            None => real::getpeername(fd, address, length),
        }
    }

    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match table::rsocket(fd) {
            Some(rsocket) => r::rgetsockname(rsocket, address, length),
            None => real::getsockname(fd, address, length),
        }
    }

    /// Options that rsockets do not have are set on the kernel's socket, which is used if the connection
    /// falls back to TCP.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int {
        let Some(rsocket) = table::rsocket(fd) else {
            return real::setsockopt(fd, level, name, value, length);
        };
        let answer = r::rsetsockopt(rsocket, level, name, value, length);
        if level == SOL_RDMA || (answer != 0 && errno() != libc::ENOPROTOOPT) {
            return answer;
        }
        let held = real::setsockopt(fd, level, name, value, length);
        if answer == 0 { answer } else { held }
    }

    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int {
        let Some(rsocket) = table::rsocket(fd) else {
            return real::getsockopt(fd, level, name, value, length);
        };
        let answer = r::rgetsockopt(rsocket, level, name, value, length);
        if answer == 0 || errno() != libc::ENOPROTOOPT || level == SOL_RDMA {
            return answer;
        }
        real::getsockopt(fd, level, name, value, length)
    }

    fn sendfile(to: c_int, from: c_int, offset: *mut libc::off_t, count: usize) -> isize {
        if matches!(table::kind(to), Kind::Pending(Pending::Active | Pending::Passive)) {
            fork::establish(to);
        }
        match table::rsocket(to) {
            Some(rsocket) => send_file(rsocket, from, offset, count),
            None => real::sendfile(to, from, offset, count),
        }
    }

    fn sendfile64(to: c_int, from: c_int, offset: *mut libc::off_t, count: usize) -> isize {
        sendfile(to, from, offset, count)
    }

    fn __read_chk(fd: c_int, to: *mut c_void, length: usize, _room: usize) -> isize {
        read(fd, to, length)
    }

    fn __recv_chk(fd: c_int, to: *mut c_void, length: usize, _room: usize, flags: c_int) -> isize {
        recv(fd, to, length, flags)
    }

    fn __recvfrom_chk(fd: c_int, to: *mut c_void, length: usize, _room: usize, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t) -> isize {
        recvfrom(fd, to, length, flags, address, address_length)
    }
}

/// Creates the program's descriptor for an accepted rsocket.
///
/// # Safety
/// `accepted` is an rsocket without a descriptor of the program.
#[inline(never)]
unsafe fn stand_for(accepted: c_int, flags: c_int) -> c_int {
    // SAFETY: numbers, and an rsocket of ours.
    unsafe {
        let fd = real::socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0);
        if fd < 0 || !table::set(fd, Kind::Rsocket(accepted)) {
            let error = if fd < 0 { errno() } else { libc::EMFILE };
            r::rclose(accepted);
            if fd >= 0 {
                real::close(fd);
            }
            set_errno(error);
            return -1;
        }
        if flags & libc::SOCK_NONBLOCK != 0 {
            r::rfcntl(accepted, libc::F_SETFL, libc::O_NONBLOCK);
        }
        fd
    }
}

/// # Safety
/// As for `sendfile(2)`.
#[inline(never)]
unsafe fn send_file(rsocket: c_int, from: c_int, offset: *mut libc::off_t, count: usize) -> isize {
    let mut piece = vec![0_u8; PIECE_BYTES.min(count)];
    let mut sent = 0;
    // SAFETY: by this function's contract, which is that of `sendfile(2)`; the piece has room for the bytes
    // read.
    unsafe {
        let mut at = offset
            .as_ref()
            .map_or_else(|| libc::lseek(from, 0, libc::SEEK_CUR), |at| *at);
        while sent < count {
            let wanted = piece.len().min(count - sent);
            let got = libc::pread(from, piece.as_mut_ptr().cast(), wanted, at);
            let Ok(length @ 1..) = usize::try_from(got) else {
                if got < 0 && sent == 0 {
                    return -1;
                }
                break;
            };
            let written = r::rwrite(rsocket, piece.as_ptr().cast(), length);
            let Ok(written) = usize::try_from(written) else {
                if sent == 0 {
                    return -1;
                }
                break;
            };
            (sent, at) = (sent + written, at + written as libc::off_t);
            if written < length {
                break;
            }
        }
        match offset.as_mut() {
            Some(offset) => *offset = at,
            None => _ = libc::lseek(from, at, libc::SEEK_SET),
        }
    }
    sent as isize
}
