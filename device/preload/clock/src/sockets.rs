//! Times of sockets: time limits of sends and receives, and receive timestamps of the kernel.

use crate::lab;
use crate::next::replace;
use crate::real;
use crate::scale::{micros_of, nanoseconds, nanoseconds_of_micros, time_of};
use core::ffi::{c_int, c_void};
use core::mem::size_of;
use libc::{cmsghdr, msghdr, socklen_t, timespec, timeval};

/// Control messages with a timestamp in microseconds; the second option is for 64-bit times, and all times
/// are 64-bit here.
const IN_MICROSECONDS: [c_int; 2] = [libc::SCM_TIMESTAMP, 63];
const IN_NANOSECONDS: [c_int; 2] = [libc::SCM_TIMESTAMPNS, 64];
/// Control messages with three times; those that the kernel does not have are zero.
const SEVERAL: [c_int; 2] = [libc::SCM_TIMESTAMPING, 65];

/// Whether an option is a time limit.
fn is_limit(level: c_int, option: c_int, length: socklen_t) -> bool {
    level == libc::SOL_SOCKET
        && [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].contains(&option)
        && length as usize >= size_of::<timeval>()
}

/// The lab's wall time for a wall time of the machine.
fn in_lab(machine: i64) -> i64 {
    lab::scale().map_or(machine, |scale| scale.wall_reading(machine))
}

/// Converts the timestamps of a message to the lab's time.
///
/// # Safety
/// `message` is one that the kernel has filled in.
unsafe fn convert(message: *const msghdr) {
    // SAFETY: by this function's contract the kernel has filled in the message: its control messages are as
    // long as they say, and follow each other.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            if (*at).cmsg_level == libc::SOL_SOCKET {
                convert_one(at);
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
}

/// Converts the times of a control message, if it has any.
///
/// # Safety
/// `header` is that of one, followed by as many bytes as it says.
unsafe fn convert_one(header: *mut cmsghdr) {
    // SAFETY: by this function's contract, that many bytes follow; they may not be aligned for a time.
    unsafe {
        let (kind, data) = ((*header).cmsg_type, libc::CMSG_DATA(header));
        let length = (*header)
            .cmsg_len
            .saturating_sub(libc::CMSG_LEN(0) as usize);
        if IN_MICROSECONDS.contains(&kind) && length >= size_of::<timeval>() {
            let place = data.cast::<timeval>();
            if let Some(machine) = nanoseconds_of_micros(&place.read_unaligned()) {
                place.write_unaligned(micros_of(in_lab(machine)));
            }
        } else if IN_NANOSECONDS.contains(&kind) || SEVERAL.contains(&kind) {
            for number in 0..length / size_of::<timespec>() {
                let place = data.cast::<timespec>().add(number);
                let machine = nanoseconds(&place.read_unaligned()).filter(|machine| *machine > 0);
                if let Some(machine) = machine {
                    place.write_unaligned(time_of(in_lab(machine)));
                }
            }
        }
    }
}

replace! {
    fn setsockopt(socket: c_int, level: c_int, option: c_int, value: *const c_void, length: socklen_t)
        -> c_int {
        if !is_limit(level, option, length) || value.is_null() {
            return real::setsockopt(socket, level, option, value, length);
        }
        let limit = value.cast::<timeval>().read_unaligned();
        let stretched = lab::stretched_micros(&limit).unwrap_or(limit);
        let length = size_of::<timeval>() as socklen_t;
        real::setsockopt(socket, level, option, (&raw const stretched).cast(), length)
    }

    fn getsockopt(socket: c_int, level: c_int, option: c_int, value: *mut c_void, length: *mut socklen_t)
        -> c_int {
        let answer = real::getsockopt(socket, level, option, value, length);
        if answer == 0 && is_limit(level, option, *length) {
            let place = value.cast::<timeval>();
            if let Some(shrunk) = lab::shrunk_micros(&place.read_unaligned()) {
                place.write_unaligned(shrunk);
            }
        }
        answer
    }

    fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> isize {
        let received = real::recvmsg(socket, message, flags);
        if received >= 0 && lab::scale().is_some() {
            convert(message);
        }
        received
    }
}
