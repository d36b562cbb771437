//! `repoll_create`, `repoll_ctl` and `repoll_wait` (rdma-core 63): the equivalent of epoll(7) for rsockets
//! and other descriptors.
//!
//! The descriptor of a set is an eventfd, which `repoll_ctl` writes, so that waiting threads see the changed
//! set. Readiness is level-triggered; with `EPOLLET` it is reported just as often.

use super::poll;
use core::ffi::c_int;
use ffi::{Errno, In, public_exports};
use libc::{epoll_event, pollfd};
use os::event_counter::EventCounter;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Conditions that poll(2) and epoll(7) share, with the same values.
const CONDITIONS: u32 = (libc::EPOLLIN
    | libc::EPOLLPRI
    | libc::EPOLLOUT
    | libc::EPOLLERR
    | libc::EPOLLHUP
    | libc::EPOLLRDNORM
    | libc::EPOLLRDBAND
    | libc::EPOLLWRNORM
    | libc::EPOLLWRBAND
    | libc::EPOLLRDHUP) as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;

/// The conditions requested for one descriptor.
#[derive(Clone, Copy)]
struct Interest {
    events: u32,
    data: u64,
    /// `EPOLLONESHOT`: reported once, and not again before `repoll_ctl` changes it.
    disabled: bool,
}

/// A set of descriptors.
struct Set {
    changed: EventCounter,
    interests: Mutex<BTreeMap<c_int, Interest>>,
}

impl Set {
    fn interests(&self) -> std::sync::MutexGuard<'_, BTreeMap<c_int, Interest>> {
        self.interests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes threads that wait with the previous contents of the set.
    fn wake(&self) {
        self.changed.add();
    }

    /// Resets the wake-up.
    fn take_events(&self) {
        self.changed.clear();
    }

    /// The descriptors for poll(2): the set's own, then the others.
    fn asked(&self) -> Vec<pollfd> {
        let own = pollfd {
            fd: self.changed.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let interests = self.interests();
        let enabled = interests.iter().filter(|(_, interest)| !interest.disabled);
        let others = enabled.map(|(&fd, interest)| pollfd {
            fd,
            events: (interest.events & CONDITIONS) as i16,
            revents: 0,
        });
        core::iter::once(own).chain(others).collect()
    }

    /// Writes ready descriptors to `room`, as many as fit; returns how many.
    fn report(&self, asked: &[pollfd], room: &mut [epoll_event]) -> usize {
        let mut interests = self.interests();
        let ready = asked.iter().skip(1).filter(|asked| asked.revents != 0);
        let mut written = 0;
        for (asked, place) in ready.zip(room) {
            // Another thread may have removed the descriptor from the set meanwhile.
            let Some(interest) = interests.get_mut(&asked.fd) else {
                continue;
            };
            interest.disabled = interest.events & ONE_SHOT != 0;
            *place = epoll_event {
                events: u32::from(asked.revents as u16),
                u64: interest.data,
            };
            written += 1;
        }
        written
    }
}

fn sets() -> std::sync::MutexGuard<'static, HashMap<c_int, Arc<Set>>> {
    static SETS: OnceLock<Mutex<HashMap<c_int, Arc<Set>>>> = OnceLock::new();
    SETS.get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

fn set(fd: c_int) -> Result<Arc<Set>, Errno> {
    sets().get(&fd).cloned().ok_or(Errno(libc::EBADF))
}

/// Frees a set, when the program calls `rclose`.
pub(super) fn close(fd: c_int) -> Result<(), Errno> {
    let set = sets().remove(&fd).ok_or(Errno(libc::EBADF))?;
    set.wake();
    Ok(())
}

/// Waits until a descriptor of the set is ready or the time-out expires; returns how many were reported.
fn wait(set: &Set, room: &mut [epoll_event], time: Option<Duration>) -> Result<usize, Errno> {
    let deadline = time.map(|time| Instant::now() + time);
    loop {
        let mut asked = set.asked();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if poll::poll(&mut asked, left)? == 0 {
            return Ok(0);
        }
        if asked[0].revents != 0 {
            set.take_events();
        }
        let reported = set.report(&asked, room);
        if reported > 0 {
            return Ok(reported);
        }
    }
}

public_exports! {
    fn repoll_create(flags: c_int) -> number(c_int) {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return Err(Errno::INVALID);
        }
        let closes_on_exec = flags & libc::EPOLL_CLOEXEC != 0;
        let changed = if closes_on_exec { EventCounter::new() } else { EventCounter::inherited() }?;
        let fd = changed.as_raw_fd();
        let set = Set { changed, interests: Mutex::default() };
        sets().insert(fd, Arc::new(set));
        Ok(fd)
    }

    fn repoll_ctl(set_fd: c_int, operation: c_int, fd: c_int, event: In<'_, *mut epoll_event>)
        -> status(c_int) {
        let set = set(set_fd)?;
        if fd == set_fd {
            return Err(Errno::INVALID);
        }
        // SAFETY: the call has no pointers.
        let is_open = || unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        if fd < 0 || super::table::find(fd).is_none() && !is_open() {
            return Err(Errno(libc::EBADF));
        }
        let interest = || {
            let event = event.optional().ok_or(Errno(libc::EFAULT))?;
            Ok::<_, Errno>(Interest { events: event.events, data: event.u64, disabled: false })
        };
        let mut interests = set.interests();
        match (operation, interests.contains_key(&fd)) {
            (libc::EPOLL_CTL_ADD, true) => return Err(Errno(libc::EEXIST)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Err(Errno(libc::ENOENT)),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => _ = interests.insert(fd, interest()?),
            (libc::EPOLL_CTL_DEL, true) => _ = interests.remove(&fd),
            _ => return Err(Errno::INVALID),
        }
        drop(interests);
        set.wake();
        Ok(())
    }

    fn repoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int) -> number(c_int) {
        let set = set(fd)?;
        let room = usize::try_from(most).ok().filter(|room| *room > 0).ok_or(Errno::INVALID)?;
        if events.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the program has room for `most` events.
        let room = unsafe { core::slice::from_raw_parts_mut(events, room) };
        let time = u64::try_from(time_ms).ok().map(Duration::from_millis);
        wait(&set, room, time).map(|reported| reported as c_int)
    }
}
