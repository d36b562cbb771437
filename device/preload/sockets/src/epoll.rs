//! `epoll` with rsockets among the descriptors. Interest in rsockets is kept in a table here, and waiting
//! polls them together with the kernel's epoll. Kernel descriptors stay registered with the kernel.
//!
//! Edge-triggered interest (`EPOLLET`) is reported when a condition becomes true, and again after the program
//! has read or written while it is still true. Reports may come too often, but none is missing.

use crate::calls::set_errno;
use crate::next::replace;
use crate::poll::{milliseconds, with_signals};
use crate::real;
use crate::rsockets as r;
use crate::table::{self, READ, WRITTEN};
use core::ffi::c_int;
use libc::{epoll_event, nfds_t, pollfd, sigset_t};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Conditions that have the same value for `epoll` and `poll`.
const SHARED: u32 = (libc::EPOLLIN
    | libc::EPOLLOUT
    | libc::EPOLLPRI
    | libc::EPOLLRDHUP
    | libc::EPOLLERR
    | libc::EPOLLHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// The first two entries of the polled list: the kernel's epoll, and the wake-up eventfd.
const FIXED_ENTRIES: usize = 2;

/// The conditions requested for an rsocket.
#[derive(Clone, Copy)]
struct Interest {
    /// The program's descriptor of the rsocket.
    fd: c_int,
    events: u32,
    data: u64,
    /// Conditions that were reported and are still true, for `EPOLLET`.
    reported: u32,
    /// `EPOLLONESHOT`: reported, and disabled until `EPOLL_CTL_MOD`.
    is_disabled: bool,
}

impl Interest {
    /// The conditions to report, of those that are true now.
    fn new_events(&mut self, ready: u32) -> u32 {
        let wanted = ready & (self.events | (libc::EPOLLERR | libc::EPOLLHUP) as u32) & SHARED;
        if self.events & EDGE == 0 {
            return wanted;
        }
        let new_events = wanted & !self.reported;
        self.reported = wanted;
        if new_events == 0 { 0 } else { wanted }
    }

    /// Reports conditions again that are still true after the program has read or written.
    fn used(&mut self, touched: u8) {
        if touched & READ != 0 {
            self.reported &= !((libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32);
        }
        if touched & WRITTEN != 0 {
            self.reported &= !(libc::EPOLLOUT as u32);
        }
    }

    /// The conditions to poll for; `None` when no change could be reported.
    fn poll_events(&self) -> Option<i16> {
        let left = self.events & SHARED & !self.reported;
        let ended = self.reported & libc::EPOLLHUP as u32 != 0;
        (!self.is_disabled && !ended && (left != 0 || self.events & EDGE == 0))
            .then_some(left as i16)
    }
}

/// An epoll descriptor with rsockets.
struct Epoll {
    /// Wake-up eventfd: readable when the table has changed.
    wake: c_int,
    interests: Mutex<Vec<Interest>>,
}

impl Epoll {
    fn lock(&self) -> MutexGuard<'_, Vec<Interest>> {
        self.interests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_waiters(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes; a counter that is full wakes as well.
        unsafe { real::write(self.wake, one.as_ptr().cast(), one.len()) };
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { real::close(self.wake) };
    }
}

type Epolls = HashMap<c_int, Arc<Epoll>>;

/// Number of epoll descriptors with rsockets. If it is zero, calls go straight to the C library.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn epolls() -> MutexGuard<'static, Epolls> {
    static EPOLLS: OnceLock<Mutex<Epolls>> = OnceLock::new();
    EPOLLS
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

fn find(epoll: c_int) -> Option<Arc<Epoll>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    epolls().get(&epoll).cloned()
}

/// The entry of a kernel epoll, created on first use. Its wake-up eventfd is registered with the kernel's
/// epoll, for threads that wait there already; its event is recognized by its data.
fn get_or_make(epoll: c_int) -> Option<Arc<Epoll>> {
    let mut all = epolls();
    if let Some(found) = all.get(&epoll) {
        return Some(found.clone());
    }
    // SAFETY: numbers, and an event that lives until the call returns.
    let wake = unsafe {
        let wake = libc::eventfd(1, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        let mut event = epoll_event {
            events: libc::EPOLLIN as u32,
            u64: mark(wake),
        };
        if wake < 0 || real::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, wake, &mut event) != 0 {
            real::close(wake);
            return None;
        }
        wake
    };
    let made = Arc::new(Epoll {
        wake,
        interests: Mutex::default(),
    });
    all.insert(epoll, made.clone());
    COUNT.store(all.len(), Ordering::Release);
    Some(made)
}

/// Data of the wake-up event: derived from an address of this library, which the program does not use.
fn mark(wake: c_int) -> u64 {
    (core::ptr::from_ref(&COUNT) as u64) ^ ((wake as u64) << 48)
}

/// Removes a closed descriptor from all tables.
pub(crate) fn closed(fd: c_int) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut all = epolls();
    all.remove(&fd);
    COUNT.store(all.len(), Ordering::Release);
    all.values()
        .for_each(|epoll| epoll.lock().retain(|interest| interest.fd != fd));
}

/// `epoll_ctl` on an rsocket.
fn control(
    epoll: &Epoll,
    operation: c_int,
    fd: c_int,
    event: Option<epoll_event>,
) -> Result<(), c_int> {
    let mut interests = epoll.lock();
    let at = interests.iter().position(|interest| interest.fd == fd);
    let interest = |event: epoll_event| Interest {
        fd,
        events: event.events,
        data: event.u64,
        reported: 0,
        is_disabled: false,
    };
    match (operation, at, event) {
        (libc::EPOLL_CTL_ADD, None, Some(event)) => interests.push(interest(event)),
        (libc::EPOLL_CTL_MOD, Some(at), Some(event)) => interests[at] = interest(event),
        (libc::EPOLL_CTL_DEL, Some(at), _) => _ = interests.remove(at),
        (libc::EPOLL_CTL_ADD, Some(_), _) => return Err(libc::EEXIST),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None, _) => return Err(libc::ENOENT),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => return Err(libc::EFAULT),
        _ => return Err(libc::EINVAL),
    }
    drop(interests);
    epoll.wake_waiters();
    Ok(())
}

/// The events that the kernel's epoll has at once; their number, or -1.
fn ready_in_kernel(number: c_int, events: &mut [epoll_event]) -> c_int {
    let (room, count) = (events.as_mut_ptr(), events.len() as c_int);
    // SAFETY: room for as many as are requested.
    unsafe { real::epoll_pwait(number, room, count, 0, core::ptr::null()) }
}

/// Waits once, for at most `time_ms` milliseconds. Returns the number of events, which may be 0 before the
/// time-out.
fn wait_once(number: c_int, epoll: &Epoll, events: &mut [epoll_event], time_ms: c_int) -> c_int {
    let entry = |fd, events| pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut list = vec![entry(number, libc::POLLIN), entry(epoll.wake, libc::POLLIN)];
    let mut asked = Vec::new();
    for interest in epoll.lock().iter_mut() {
        interest.used(table::take_touched(interest.fd));
        if let (Some(rsocket), Some(events)) = (table::rsocket(interest.fd), interest.poll_events())
        {
            list.push(entry(rsocket, events));
            asked.push(interest.fd);
        }
    }
    // SAFETY: as many as there are.
    let ready = unsafe { r::rpoll(list.as_mut_ptr(), list.len() as nfds_t, time_ms) };
    if ready <= 0 {
        return ready;
    }
    let mut count = 0;
    if list[0].revents != 0 {
        let from_kernel = ready_in_kernel(number, events);
        if from_kernel < 0 {
            return from_kernel;
        }
        count = without_wakeup(epoll, events, from_kernel as usize);
    }
    let mut interests = epoll.lock();
    for (fd, seen) in asked.iter().zip(list.iter().skip(FIXED_ENTRIES)) {
        let found = interests.iter_mut().find(|interest| interest.fd == *fd);
        let (Some(interest), Some(place)) = (found, events.get_mut(count)) else {
            continue;
        };
        let new_events = interest.new_events(seen.revents as u16 as u32);
        if new_events != 0 {
            interest.is_disabled = interest.events & ONCE != 0;
            *place = epoll_event {
                events: new_events,
                u64: interest.data,
            };
            count += 1;
        }
    }
    // Rotated, so that every rsocket is reported when there is room for few events.
    let length = interests.len();
    if length > 1 {
        interests.rotate_left(1);
    }
    count as c_int
}

/// Removes the wake-up event from the kernel's events; returns how many are left.
fn without_wakeup(epoll: &Epoll, events: &mut [epoll_event], count: usize) -> usize {
    let own = mark(epoll.wake);
    let Some(at) = events.iter().take(count).position(|event| event.u64 == own) else {
        return count;
    };
    let mut room = [0_u8; 8];
    // SAFETY: eight bytes of room; the descriptor does not block.
    unsafe { real::read(epoll.wake, room.as_mut_ptr().cast(), room.len()) };
    events.copy_within(at + 1..count, at);
    count - 1
}

/// Waits once if the epoll has rsockets; `None` if it has none.
///
/// # Safety
/// `events` is NULL, or has room for `room` events.
#[inline(never)]
unsafe fn wait_for_rsockets(
    number: c_int,
    events: *mut epoll_event,
    room: usize,
    left: Option<Duration>,
) -> Option<c_int> {
    let epoll = find(number)?;
    if events.is_null() {
        set_errno(libc::EFAULT);
        return Some(-1);
    }
    // SAFETY: by this function's contract, `events` has room for `room` events.
    let events = unsafe { core::slice::from_raw_parts_mut(events, room) };
    Some(wait_once(number, &epoll, events, milliseconds(left)))
}

/// Removes the wake-up event from what a wait in the kernel returned, where the first rsocket was added
/// meanwhile.
///
/// # Safety
/// The kernel has written as many events as it returned.
#[inline(never)]
unsafe fn without_first_wakeup(number: c_int, events: *mut epoll_event, returned: c_int) -> c_int {
    match (find(number), usize::try_from(returned)) {
        (Some(epoll), Ok(count @ 1..)) => {
            // SAFETY: by this function's contract, the kernel has written `count` events.
            let events = unsafe { core::slice::from_raw_parts_mut(events, count) };
            without_wakeup(&epoll, events, count) as c_int
        }
        _ => returned,
    }
}

/// # Safety
/// `events` is NULL, or has room for `most` events.
unsafe fn wait(number: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int) -> c_int {
    let limit = u64::try_from(time_ms)
        .ok()
        .map(|time| Instant::now() + Duration::from_millis(time));
    let Ok(room @ 1..) = usize::try_from(most) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    loop {
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        // SAFETY: by this function's contract, `events` has room for `most` events, or is NULL, as it may be
        // for the kernel, which says so.
        let count = unsafe {
            wait_for_rsockets(number, events, room, left).unwrap_or_else(|| {
                let (signals, time_ms) = (core::ptr::null(), milliseconds(left));
                let returned = real::epoll_pwait(number, events, most, time_ms, signals);
                without_first_wakeup(number, events, returned)
            })
        };
        if count != 0 || left.is_some_and(|left| left.is_zero()) {
            return count;
        }
    }
}

replace! {
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        if r::in_librdmacm() || table::rsocket(fd).is_none() {
            return real::epoll_ctl(epoll, operation, fd, event);
        }
        let Some(found) = get_or_make(epoll) else { return -1 };
        match control(&found, operation, fd, event.as_ref().copied()) {
            Ok(()) => 0,
            Err(error) => {
                set_errno(error);
                -1
            }
        }
    }

    fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int) -> c_int {
        wait(epoll, events, most, time_ms)
    }

    fn epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int,
        signals: *const sigset_t) -> c_int {
        if COUNT.load(Ordering::Acquire) == 0 {
            return real::epoll_pwait(epoll, events, most, time_ms, signals);
        }
        with_signals(signals, || wait(epoll, events, most, time_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN: u32 = libc::EPOLLIN as u32;
    const OUT: u32 = libc::EPOLLOUT as u32;

    fn interest(events: u32) -> Interest {
        Interest {
            fd: 3,
            events,
            data: 0,
            reported: 0,
            is_disabled: false,
        }
    }

    #[test]
    fn level_triggered_events_repeat() {
        let mut level = interest(IN);
        assert_eq!(
            (
                level.new_events(IN | OUT),
                level.new_events(IN),
                level.new_events(0)
            ),
            (IN, IN, 0)
        );
        assert_eq!(level.poll_events(), Some(libc::POLLIN));
    }

    #[test]
    fn edge_triggered_events_repeat_after_use() {
        let mut edge = interest(IN | OUT | EDGE);
        assert_eq!((edge.new_events(OUT), edge.new_events(OUT)), (OUT, 0));
        assert_eq!(edge.poll_events(), Some(libc::POLLIN));
        assert_eq!(edge.new_events(IN | OUT), IN | OUT);
        assert_eq!(edge.poll_events(), None, "all of it was reported");
        edge.used(READ);
        assert_eq!(
            (edge.poll_events(), edge.new_events(IN | OUT)),
            (Some(libc::POLLIN), IN | OUT)
        );
        assert_eq!(
            (edge.new_events(OUT), edge.new_events(IN | OUT)),
            (0, IN | OUT)
        );
    }

    #[test]
    fn hang_up_is_not_polled_for_again() {
        let hup = libc::EPOLLHUP as u32;
        let mut edge = interest(IN | OUT | EDGE);
        assert_eq!(edge.new_events(IN | hup), IN | hup);
        edge.used(READ);
        assert_eq!(edge.poll_events(), None);
    }

    #[test]
    fn epoll_ctl_rejects_duplicate_and_missing_entries() {
        let epoll = Epoll {
            wake: -1,
            interests: Mutex::default(),
        };
        let event = Some(epoll_event { events: IN, u64: 7 });
        assert_eq!(
            control(&epoll, libc::EPOLL_CTL_MOD, 3, event),
            Err(libc::ENOENT)
        );
        assert_eq!(control(&epoll, libc::EPOLL_CTL_ADD, 3, event), Ok(()));
        assert_eq!(
            control(&epoll, libc::EPOLL_CTL_ADD, 3, event),
            Err(libc::EEXIST)
        );
        assert_eq!(control(&epoll, libc::EPOLL_CTL_DEL, 3, None), Ok(()));
        assert_eq!(
            control(&epoll, libc::EPOLL_CTL_DEL, 3, None),
            Err(libc::ENOENT)
        );
        assert_eq!(control(&epoll, 77, 3, event), Err(libc::EINVAL));
    }
}
