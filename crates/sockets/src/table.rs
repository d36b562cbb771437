//! Which of the program's descriptors stand for rsockets. Every call on a descriptor looks here, also those
//! that have nothing to do with sockets, so looking is one load.

use crate::rsockets;
use core::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

/// Descriptors from here on stay what they are.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// 0 is nothing of ours, a positive number an rsocket's descriptor and 1, a negative one a [`Pending`].
static KINDS: [AtomicI32; DESCRIPTORS_MAX] = [const { AtomicI32::new(0) }; DESCRIPTORS_MAX];
/// How many of the program's descriptors stand for an rsocket, by the rsocket's.
static USERS: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];
/// What was done with a descriptor since somebody asked: [`READ`] and [`WRITTEN`].
static TOUCHED: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(0) }; DESCRIPTORS_MAX];

/// Something was read, or a peer accepted.
pub(crate) const READ: u8 = 1;
/// Something was written, or a connection begun.
pub(crate) const WRITTEN: u8 = 2;

/// A socket that becomes an rsocket with the first bytes, where programs may fork before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pending {
    /// Neither listens nor is connected.
    Fresh = -1,
    Listening = -2,
    /// Connected by this end.
    Active = -3,
    /// Accepted by this end.
    Passive = -4,
}

/// What a descriptor of the program stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// What the kernel says.
    Plain,
    /// The rsocket with this descriptor.
    Rsocket(c_int),
    Pending(Pending),
}

fn slot<T>(table: &'static [T], fd: c_int) -> Option<&'static T> {
    table.get(usize::try_from(fd).ok()?)
}

/// What it stands for. To librdmacm all descriptors are the kernel's: also in the processes that it makes,
/// which go on using the numbers of descriptors that they have closed.
pub(crate) fn kind(fd: c_int) -> Kind {
    let value = slot(&KINDS, fd).map_or(0, |kind| kind.load(Ordering::Relaxed));
    if value != 0 && rsockets::inside() {
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

/// The rsocket behind a descriptor, if there is one.
pub(crate) fn rsocket(fd: c_int) -> Option<c_int> {
    match kind(fd) {
        Kind::Rsocket(rsocket) => Some(rsocket),
        _ => None,
    }
}

/// From now on it stands for this. `false` for a number beyond what the table holds.
pub(crate) fn set(fd: c_int, kind: Kind) -> bool {
    let Some(place) = slot(&KINDS, fd) else { return false };
    let value = match kind {
        Kind::Plain => 0,
        Kind::Pending(pending) => pending as i32,
        Kind::Rsocket(rsocket) => {
            let Some(users) = slot(&USERS, rsocket) else { return false };
            users.fetch_add(1, Ordering::Relaxed);
            rsocket + 1
        }
    };
    place.store(value, Ordering::Release);
    true
}

/// It stands for nothing any more. The rsocket, if nobody else stands for it, is to be closed.
pub(crate) fn forget(fd: c_int) -> Option<c_int> {
    let value = slot(&KINDS, fd)?.swap(0, Ordering::AcqRel);
    let rsocket = value.checked_sub(1).filter(|_| value > 0)?;
    let users = slot(&USERS, rsocket)?.fetch_sub(1, Ordering::AcqRel);
    (users == 1).then_some(rsocket)
}

/// Notes what was done.
pub(crate) fn touch(fd: c_int, what: u8) {
    if let Some(touched) = slot(&TOUCHED, fd) {
        touched.fetch_or(what, Ordering::Relaxed);
    }
}

/// What was done since the last time that this was asked.
pub(crate) fn take_touched(fd: c_int) -> u8 {
    slot(&TOUCHED, fd).map_or(0, |touched| touched.swap(0, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rsocket_is_closed_with_the_last_descriptor_that_stands_for_it() {
        assert!(set(500, Kind::Rsocket(9)) && set(501, Kind::Rsocket(9)));
        assert_eq!((rsocket(500), kind(502)), (Some(9), Kind::Plain));
        assert_eq!((forget(500), forget(500), forget(501)), (None, None, Some(9)));
        assert_eq!(kind(501), Kind::Plain);
    }

    #[test]
    fn numbers_that_are_no_descriptors_stand_for_nothing() {
        for fd in [-1, c_int::MIN, DESCRIPTORS_MAX as c_int, c_int::MAX] {
            assert_eq!((kind(fd), forget(fd), take_touched(fd)), (Kind::Plain, None, 0));
            assert!(!set(fd, Kind::Rsocket(3)));
        }
    }

    #[test]
    fn pending_sockets_keep_how_far_they_are() {
        for pending in [Pending::Fresh, Pending::Listening, Pending::Active, Pending::Passive] {
            assert!(set(510, Kind::Pending(pending)));
            assert_eq!(kind(510), Kind::Pending(pending));
        }
        assert_eq!(forget(510), None);
    }
}
