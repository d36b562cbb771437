//! `epoll` with rsockets among the descriptors. What is asked of them stands in a table of ours, and waiting
//! looks at them and at the kernel's epoll together. Descriptors of the kernel stay with the kernel.
//!
//! Edges (`EPOLLET`) are told when something becomes ready that was not, and told again when the program has
//! read or written since: seldom once too often, never once too few.

use crate::calls::{replace, set_errno};
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

/// What `epoll` calls as `poll` does, in bits of the same value.
const SHARED: u32 =
    (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLERR | libc::EPOLLHUP)
        as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// The kernel's epoll, and what wakes who waits: the first two of a list.
const OWN: usize = 2;

/// What is asked of an rsocket.
#[derive(Clone, Copy)]
struct Interest {
    /// The program's descriptor.
    fd: c_int,
    events: u32,
    data: u64,
    /// Edges that were told and are there since.
    told: u32,
    /// Nothing is told until the program asks anew.
    is_spent: bool,
}

impl Interest {
    /// What is told of what it is ready for.
    fn news(&mut self, ready: u32) -> u32 {
        let wanted = ready & (self.events | (libc::EPOLLERR | libc::EPOLLHUP) as u32) & SHARED;
        if self.events & EDGE == 0 {
            return wanted;
        }
        let news = wanted & !self.told;
        self.told = wanted;
        if news == 0 { 0 } else { wanted }
    }

    /// After the program has used it: what is still there is told again.
    fn used(&mut self, touched: u8) {
        if touched & READ != 0 {
            self.told &= !((libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32);
        }
        if touched & WRITTEN != 0 {
            self.told &= !(libc::EPOLLOUT as u32);
        }
    }

    /// What may wake the program; `None` when nothing of it can be new.
    fn awaited(&self) -> Option<i16> {
        let left = self.events & SHARED & !self.told;
        let ended = self.told & libc::EPOLLHUP as u32 != 0;
        (!self.is_spent && !ended && (left != 0 || self.events & EDGE == 0)).then_some(left as i16)
    }
}

/// An epoll with rsockets.
struct Epoll {
    /// An eventfd: somebody who waits is to look anew.
    wake: c_int,
    interests: Mutex<Vec<Interest>>,
}

impl Epoll {
    fn lock(&self) -> MutexGuard<'_, Vec<Interest>> {
        self.interests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rouse(&self) {
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

/// How many there are: where there is none, nothing here is looked at.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn epolls() -> MutexGuard<'static, Epolls> {
    static EPOLLS: OnceLock<Mutex<Epolls>> = OnceLock::new();
    EPOLLS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(epoll: c_int) -> Option<Arc<Epoll>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    epolls().get(&epoll).cloned()
}

/// The one for an epoll of the kernel, made when there is none. Who waits in the kernel already is woken by
/// an event of its `wake`, which is told apart by its descriptor being the data.
fn get_or_make(epoll: c_int) -> Option<Arc<Epoll>> {
    let mut all = epolls();
    if let Some(found) = all.get(&epoll) {
        return Some(found.clone());
    }
    // SAFETY: numbers, and an event that lives until the call returns.
    let wake = unsafe {
        let wake = libc::eventfd(1, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: mark(wake) };
        if wake < 0 || real::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, wake, &mut event) != 0 {
            real::close(wake);
            return None;
        }
        wake
    };
    let made = Arc::new(Epoll { wake, interests: Mutex::default() });
    all.insert(epoll, made.clone());
    COUNT.store(all.len(), Ordering::Release);
    Some(made)
}

/// The data of the event that wakes: an address of ours, which is no data of the program's.
fn mark(wake: c_int) -> u64 {
    (core::ptr::from_ref(&COUNT) as u64) ^ ((wake as u64) << 48)
}

/// A descriptor was closed: it is asked about no more.
pub(crate) fn closed(fd: c_int) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut all = epolls();
    all.remove(&fd);
    COUNT.store(all.len(), Ordering::Release);
    all.values().for_each(|epoll| epoll.lock().retain(|interest| interest.fd != fd));
}

/// `epoll_ctl` on an rsocket.
fn control(epoll: &Epoll, operation: c_int, fd: c_int, event: Option<epoll_event>) -> Result<(), c_int> {
    let mut interests = epoll.lock();
    let at = interests.iter().position(|interest| interest.fd == fd);
    let interest =
        |event: epoll_event| Interest { fd, events: event.events, data: event.u64, told: 0, is_spent: false };
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
    epoll.rouse();
    Ok(())
}

/// Waits once, for at most `time_ms`. How many events there are; 0 also when it was woken for nothing.
fn wait_once(number: c_int, epoll: &Epoll, events: &mut [epoll_event], time_ms: c_int) -> c_int {
    let mut list = vec![
        pollfd { fd: number, events: libc::POLLIN, revents: 0 },
        pollfd { fd: epoll.wake, events: libc::POLLIN, revents: 0 },
    ];
    let mut asked = Vec::new();
    for interest in epoll.lock().iter_mut() {
        interest.used(table::take_touched(interest.fd));
        if let (Some(rsocket), Some(events)) = (table::rsocket(interest.fd), interest.awaited()) {
            list.push(pollfd { fd: rsocket, events, revents: 0 });
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
        // SAFETY: room for as many as are asked for.
        let from_kernel = unsafe {
            real::epoll_pwait(number, events.as_mut_ptr(), events.len() as c_int, 0, core::ptr::null())
        };
        if from_kernel < 0 {
            return from_kernel;
        }
        count = without_own(epoll, events, from_kernel as usize);
    }
    let mut interests = epoll.lock();
    for (fd, seen) in asked.iter().zip(list.iter().skip(OWN)) {
        let found = interests.iter_mut().find(|interest| interest.fd == *fd);
        let (Some(interest), Some(place)) = (found, events.get_mut(count)) else { continue };
        let news = interest.news(seen.revents as u16 as u32);
        if news != 0 {
            interest.is_spent = interest.events & ONCE != 0;
            *place = epoll_event { events: news, u64: interest.data };
            count += 1;
        }
    }
    // Whoever has been served waits behind the others the next time.
    let length = interests.len();
    if length > 1 {
        interests.rotate_left(1);
    }
    count as c_int
}

/// Takes the event that wakes out of those of the kernel; how many are left.
fn without_own(epoll: &Epoll, events: &mut [epoll_event], count: usize) -> usize {
    let own = mark(epoll.wake);
    let Some(at) = events.iter().take(count).position(|event| event.u64 == own) else { return count };
    let mut room = [0_u8; 8];
    // SAFETY: eight bytes of room; the descriptor does not block.
    unsafe { real::read(epoll.wake, room.as_mut_ptr().cast(), room.len()) };
    events.copy_within(at + 1..count, at);
    count - 1
}

/// # Safety
/// Room for `most` events.
unsafe fn wait(number: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int) -> c_int {
    let limit = u64::try_from(time_ms).ok().map(|time| Instant::now() + Duration::from_millis(time));
    let Ok(room @ 1..) = usize::try_from(most) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    loop {
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        let found = find(number);
        // SAFETY: as above.
        let count = unsafe {
            match &found {
                Some(epoll) => {
                    let events = core::slice::from_raw_parts_mut(events, room);
                    wait_once(number, epoll, events, milliseconds(left))
                }
                None => real::epoll_pwait(number, events, most, milliseconds(left), core::ptr::null()),
            }
        };
        let count = match (found.is_some(), find(number), usize::try_from(count)) {
            // It has got its first rsocket while we were in the kernel.
            (false, Some(epoll), Ok(count)) => {
                // SAFETY: as above; the kernel wrote so many.
                without_own(&epoll, unsafe { core::slice::from_raw_parts_mut(events, room) }, count) as c_int
            }
            _ => count,
        };
        if count != 0 || left.is_some_and(|left| left.is_zero()) {
            return count;
        }
    }
}

replace! {
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        if r::inside() || table::rsocket(fd).is_none() {
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
        Interest { fd: 3, events, data: 0, told: 0, is_spent: false }
    }

    #[test]
    fn a_level_is_told_as_long_as_it_is_there() {
        let mut level = interest(IN);
        assert_eq!((level.news(IN | OUT), level.news(IN), level.news(0)), (IN, IN, 0));
        assert_eq!(level.awaited(), Some(libc::POLLIN));
    }

    #[test]
    fn an_edge_is_told_once_and_again_after_the_socket_was_used() {
        let mut edge = interest(IN | OUT | EDGE);
        assert_eq!((edge.news(OUT), edge.news(OUT)), (OUT, 0));
        assert_eq!(edge.awaited(), Some(libc::POLLIN));
        assert_eq!(edge.news(IN | OUT), IN | OUT);
        assert_eq!(edge.awaited(), None, "all of it was told");
        edge.used(READ);
        assert_eq!((edge.awaited(), edge.news(IN | OUT)), (Some(libc::POLLIN), IN | OUT));
        assert_eq!((edge.news(OUT), edge.news(IN | OUT)), (0, IN | OUT));
    }

    #[test]
    fn an_end_does_not_wake_for_ever() {
        let hup = libc::EPOLLHUP as u32;
        let mut edge = interest(IN | OUT | EDGE);
        assert_eq!(edge.news(IN | hup), IN | hup);
        edge.used(READ);
        assert_eq!(edge.awaited(), None);
    }

    #[test]
    fn what_is_asked_for_twice_or_never_is_refused() {
        let epoll = Epoll { wake: -1, interests: Mutex::default() };
        let event = Some(epoll_event { events: IN, u64: 7 });
        assert_eq!(control(&epoll, libc::EPOLL_CTL_MOD, 3, event), Err(libc::ENOENT));
        assert_eq!(control(&epoll, libc::EPOLL_CTL_ADD, 3, event), Ok(()));
        assert_eq!(control(&epoll, libc::EPOLL_CTL_ADD, 3, event), Err(libc::EEXIST));
        assert_eq!(control(&epoll, libc::EPOLL_CTL_DEL, 3, None), Ok(()));
        assert_eq!(control(&epoll, libc::EPOLL_CTL_DEL, 3, None), Err(libc::ENOENT));
        assert_eq!(control(&epoll, 77, 3, event), Err(libc::EINVAL));
    }
}
