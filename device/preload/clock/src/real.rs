//! The C library's own functions, found by name.

use crate::next::real;
use core::ffi::{c_int, c_long, c_void};
use libc::{
    clockid_t, epoll_event, fd_set, itimerspec, itimerval, msghdr, nfds_t, pollfd, pthread_t,
    sigset_t, socklen_t, time_t, timer_t, timespec, timeval,
};

real! {
    fn clock_gettime(clock: clockid_t, to: *mut timespec) -> c_int;
    fn gettimeofday(to: *mut timeval, zone: *mut c_void) -> c_int;
    fn time(to: *mut time_t) -> time_t;
    fn timespec_get(to: *mut timespec, base: c_int) -> c_int;

    fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
    fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int;
    fn thrd_sleep(time: *const timespec, left: *mut timespec) -> c_int;

    fn poll(list: *mut pollfd, count: nfds_t, time_ms: c_int) -> c_int;
    fn __poll_chk(list: *mut pollfd, count: nfds_t, time_ms: c_int, room: usize) -> c_int;
    fn ppoll(list: *mut pollfd, count: nfds_t, time: *const timespec, signals: *const sigset_t) -> c_int;
    fn __ppoll_chk(list: *mut pollfd, count: nfds_t, time: *const timespec, signals: *const sigset_t,
        room: usize) -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval)
        -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        time: *const timespec, signals: *const sigset_t) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int) -> c_int;
    fn epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int,
        signals: *const sigset_t) -> c_int;
    fn epoll_pwait2(epoll: c_int, events: *mut epoll_event, most: c_int, time: *const timespec,
        signals: *const sigset_t) -> c_int;
    fn sigtimedwait(signals: *const sigset_t, info: *mut c_void, time: *const timespec) -> c_int;
    fn semtimedop(set: c_int, operations: *mut c_void, count: usize, time: *const timespec) -> c_int;

    fn sem_timedwait(semaphore: *mut c_void, time: *const timespec) -> c_int;
    fn sem_clockwait(semaphore: *mut c_void, clock: clockid_t, time: *const timespec) -> c_int;
    fn pthread_mutex_timedlock(mutex: *mut c_void, time: *const timespec) -> c_int;
    fn pthread_mutex_clocklock(mutex: *mut c_void, clock: clockid_t, time: *const timespec) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: *mut c_void, time: *const timespec) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut c_void, time: *const timespec) -> c_int;
    fn pthread_rwlock_clockrdlock(lock: *mut c_void, clock: clockid_t, time: *const timespec) -> c_int;
    fn pthread_rwlock_clockwrlock(lock: *mut c_void, clock: clockid_t, time: *const timespec) -> c_int;
    fn mtx_timedlock(mutex: *mut c_void, time: *const timespec) -> c_int;
    fn cnd_timedwait(condition: *mut c_void, mutex: *mut c_void, time: *const timespec) -> c_int;
    fn pthread_cond_clockwait(condition: *mut c_void, mutex: *mut c_void, clock: clockid_t,
        time: *const timespec) -> c_int;
    fn pthread_timedjoin_np(thread: pthread_t, answer: *mut *mut c_void, time: *const timespec) -> c_int;

    fn setitimer(which: c_int, setting: *const itimerval, before: *mut itimerval) -> c_int;
    fn getitimer(which: c_int, setting: *mut itimerval) -> c_int;
    fn timerfd_settime(timer: c_int, flags: c_int, setting: *const itimerspec, before: *mut itimerspec)
        -> c_int;
    fn timerfd_gettime(timer: c_int, setting: *mut itimerspec) -> c_int;

    fn setsockopt(socket: c_int, level: c_int, option: c_int, value: *const c_void, length: socklen_t)
        -> c_int;
    fn getsockopt(socket: c_int, level: c_int, option: c_int, value: *mut c_void, length: *mut socklen_t)
        -> c_int;
    fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> isize;
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
}

// Functions of which the C library has several versions. Before glibc 2.36 the oldest one is found without a
// version (glibc bug 14932), which takes other objects.
real! {
    in c"GLIBC_2.3.2":
    fn pthread_cond_timedwait(condition: *mut c_void, mutex: *mut c_void, time: *const timespec) -> c_int;
}

real! {
    in c"GLIBC_2.3.3":
    fn timer_create(clock: clockid_t, event: *mut c_void, timer: *mut timer_t) -> c_int;
    fn timer_delete(timer: timer_t) -> c_int;
    fn timer_settime(timer: timer_t, flags: c_int, setting: *const itimerspec, before: *mut itimerspec)
        -> c_int;
    fn timer_gettime(timer: timer_t, setting: *mut itimerspec) -> c_int;
}
