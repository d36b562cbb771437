//! Maps the program's descriptors to rsockets. Every call on a descriptor looks here, including those on
//! files, so a lookup is one atomic load.

use crate::rsockets;
use core::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

/// Descriptors from this number on are never mapped.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// By descriptor: 0 is unmapped, a positive number is the rsocket's descriptor plus 1, a negative one a
/// [`Pending`].
static KINDS: [AtomicI32; DESCRIPTORS_MAX] = [const { AtomicI32::new(0) }; DESCRIPTORS_MAX];
/// By rsocket: how many descriptors of the program refer to it.
static USERS: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];
/// By descriptor: [`READ`] and [`WRITTEN`] since [`take_touched`] was last called.
static TOUCHED: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(0) }; DESCRIPTORS_MAX];

/// Data was read, or a connection accepted.
pub(crate) const READ: u8 = 1;
/// Data was written, or a connection started.
pub(crate) const WRITTEN: u8 = 2;

/// State of a socket whose connection becomes an rsocket at the first read or write (`RDMAV_FORK_SAFE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pending {
    /// The socket is neither listening nor connected.
    Fresh = -1,
    Listening = -2,
    /// Connected by this end.
    Active = -3,
    /// Accepted by this end.
    Passive = -4,
}

/// The kind of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A kernel descriptor.
    Plain,
    /// The descriptor of this rsocket.
    Rsocket(c_int),
    Pending(Pending),
}

fn slot<T>(table: &'static [T], fd: c_int) -> Option<&'static T> {
    table.get(usize::try_from(fd).ok()?)
}

/// The kind of a descriptor. Within librdmacm, and in child processes that it starts, all are kernel
/// descriptors, because a child goes on using numbers of descriptors that it has closed.
pub(crate) fn kind(fd: c_int) -> Kind {
    let value = slot(&KINDS, fd).map_or(0, |kind| kind.load(Ordering::Relaxed));
    if value != 0 && rsockets::in_librdmacm() {
        return Kind::Plain;
    }
    match value {
        1.. => Kind::Rsocket(value - 1),
        -1 => Kind::Pending(Pending::Fresh),
        -2 => Kind::Pending(Pending::Listening),
        -3 => Kind::Pending(Pending::Active),
        -4 => Kind::Pending(Pending::Passive),
        _ => Kind::Plain,
    }
}

/// The rsocket of a descriptor, if it has one.
pub(crate) fn rsocket(fd: c_int) -> Option<c_int> {
    match kind(fd) {
        Kind::Rsocket(rsocket) => Some(rsocket),
        _ => None,
    }
}

/// Sets the kind of a descriptor. Returns `false` if the number is beyond the table.
pub(crate) fn set(fd: c_int, kind: Kind) -> bool {
    let Some(place) = slot(&KINDS, fd) else {
        return false;
    };
    let value = match kind {
        Kind::Plain => 0,
        Kind::Pending(pending) => pending as i32,
        Kind::Rsocket(rsocket) => {
            let Some(users) = slot(&USERS, rsocket) else {
                return false;
            };
            users.fetch_add(1, Ordering::Relaxed);
            rsocket + 1
        }
    };
    place.store(value, Ordering::Release);
    true
}

/// Unmaps a descriptor. Returns its rsocket, to be closed, if no other descriptor refers to it.
pub(crate) fn forget(fd: c_int) -> Option<c_int> {
    let value = slot(&KINDS, fd)?.swap(0, Ordering::AcqRel);
    let rsocket = value.checked_sub(1).filter(|_| value > 0)?;
    let users = slot(&USERS, rsocket)?.fetch_sub(1, Ordering::AcqRel);
    (users == 1).then_some(rsocket)
}

/// Records a read or write.
pub(crate) fn touch(fd: c_int, what: u8) {
    if let Some(touched) = slot(&TOUCHED, fd) {
        touched.fetch_or(what, Ordering::Relaxed);
    }
}

/// Returns and resets the record of reads and writes.
pub(crate) fn take_touched(fd: c_int) -> u8 {
    slot(&TOUCHED, fd).map_or(0, |touched| touched.swap(0, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsocket_is_closed_with_its_last_descriptor() {
        assert!(set(500, Kind::Rsocket(9)) && set(501, Kind::Rsocket(9)));
        assert_eq!((rsocket(500), kind(502)), (Some(9), Kind::Plain));
        assert_eq!(
            (forget(500), forget(500), forget(501)),
            (None, None, Some(9))
        );
        assert_eq!(kind(501), Kind::Plain);
    }

    #[test]
    fn invalid_descriptors_are_unmapped() {
        for fd in [-1, c_int::MIN, DESCRIPTORS_MAX as c_int, c_int::MAX] {
            assert_eq!(
                (kind(fd), forget(fd), take_touched(fd)),
                (Kind::Plain, None, 0)
            );
            assert!(!set(fd, Kind::Rsocket(3)));
        }
    }

    #[test]
    fn pending_states_round_trip() {
        for pending in [
            Pending::Fresh,
            Pending::Listening,
            Pending::Active,
            Pending::Passive,
        ] {
            assert!(set(510, Kind::Pending(pending)));
            assert_eq!(kind(510), Kind::Pending(pending));
        }
        assert_eq!(forget(510), None);
    }
}
