//! The part of an open device that the program's threads and the progress thread share: the pump behind its
//! lock, and the descriptors that wake the thread.

use super::clock;
use super::constants::{CHANNEL_RECHECK, TICK};
use super::policy::Policy;
use super::pump::Pump;
use crate::channel::AsyncEvents;
use crate::sys::Epoll;
use crate::sys::timer::Timer;
use os::event_counter::EventCounter;
use rnic::{Instant, Nanos};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use wire::Qpn;

/// The part of an open device that the program's threads and the progress thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pump: Mutex<Pump>,
    pub(crate) events: AsyncEvents,
    pub(crate) epoll: Arc<Epoll>,
    /// Notified when shared-memory channels were opened or closed.
    channels_changed: Condvar,
    pub(super) wake: EventCounter,
    /// Wakes the progress thread for its next tick.
    pub(crate) ticker: Timer,
    pub(super) stop: AtomicBool,
    pub(crate) policy: Policy,
    sockets: Mutex<Sockets>,
}

/// The sockets whose packets wake the progress thread.
#[derive(Debug)]
struct Sockets {
    descriptors: Vec<RawFd>,
    watched: bool,
}

impl Shared {
    /// Creates the shared part for a pump; packets at this socket wake the progress thread.
    pub(crate) fn new(pump: Pump, socket: RawFd) -> io::Result<Self> {
        let (epoll, wake, ticker) = (Arc::new(Epoll::new()?), EventCounter::new()?, Timer::new()?);
        epoll.add(socket)?;
        epoll.add(wake.as_raw_fd())?;
        epoll.add(ticker.raw())?;
        let events = AsyncEvents::new()?;
        let sockets = Mutex::new(Sockets {
            descriptors: vec![socket],
            watched: true,
        });
        let (pump, channels_changed) = (Mutex::new(pump), Condvar::new());
        Ok(Self {
            pump,
            events,
            epoll,
            channels_changed,
            wake,
            ticker,
            stop: AtomicBool::new(false),
            policy: Policy::default(),
            sockets,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pump> {
        self.pump
            .lock()
            .unwrap_or_else(|poisoned| self.end(poisoned.into_inner()))
    }

    /// Locks the pump; `None` while another thread has the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Pump>> {
        match self.pump.try_lock() {
            Ok(pump) => Some(pump),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.end(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ends the device after a panic in a call that held its lock (see [`rnic::Device::fail`]), and passes on
    /// the event. The message of the panic, on standard error, has the file and line.
    fn end<'a>(&self, mut pump: MutexGuard<'a, Pump>) -> MutexGuard<'a, Pump> {
        self.pump.clear_poison();
        if !pump.rnic.has_failed() {
            const MESSAGE: &str = "rockery: a bug (see the panic above) has ended an RDMA device: its queue \
                pairs are flushed, and IBV_EVENT_DEVICE_FATAL is raised; open the device again to go on";
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "{MESSAGE}");
            pump.rnic.fail(clock::now());
            pump.pump_events(&self.events);
        }
        pump
    }

    /// Ends the device if a call has panicked while it held the lock.
    pub(crate) fn end_if_poisoned(&self) {
        if self.pump.is_poisoned() {
            drop(self.lock());
        }
    }

    /// Adds a socket whose packets wake the progress thread.
    pub(crate) fn add_socket(&self, socket: RawFd) -> io::Result<()> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if sockets.watched {
            self.epoll.add(socket)?;
        }
        sockets.descriptors.push(socket);
        Ok(())
    }

    /// Removes a socket, before it is closed.
    pub(crate) fn remove_socket(&self, socket: RawFd) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.descriptors.retain(|known| *known != socket);
        if sockets.watched {
            // An error changes nothing: closing the socket removes it too.
            let _ = self.epoll.remove(socket);
        }
    }

    /// The sockets at which packets arrive.
    pub(crate) fn with_sockets<T>(&self, see: impl FnOnce(&[RawFd]) -> T) -> T {
        see(&self
            .sockets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .descriptors)
    }

    /// Sets whether packets wake the progress thread. It cannot fail: the descriptors are open as long as the
    /// device.
    pub(crate) fn watch_socket(&self, wanted: bool) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let change = if wanted { Epoll::add } else { Epoll::remove };
        sockets.watched = wanted;
        for socket in &sockets.descriptors {
            let changed = change(&self.epoll, *socket);
            debug_assert!(changed.is_ok(), "{changed:?}");
        }
    }

    pub(crate) fn wait_for_channels<'a>(&self, pump: MutexGuard<'a, Pump>) -> MutexGuard<'a, Pump> {
        let waited = self.channels_changed.wait_timeout(pump, CHANNEL_RECHECK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Handles a descriptor that is ready, if it is one of the shared-memory channels.
    pub(crate) fn handle_shm_event(&self, ready: RawFd) {
        let mut pump = self.lock();
        let now = clock::now();
        let Pump { lab, rnic, .. } = &mut *pump;
        if lab
            .as_mut()
            .is_some_and(|lab| lab.attend(ready, &self.epoll, rnic))
        {
            return pump.pump_events(&self.events);
        }
        let Pump { shm, rnic, .. } = &mut *pump;
        if shm.attend(ready, rnic, now) {
            pump.pump_events(&self.events);
            drop(pump);
            self.channels_changed.notify_all();
        }
    }

    /// Implements the function [`crate::take_arrived`]. False when the queue pair is not one of this device.
    pub(crate) fn take_arrived(&self, qpn: Qpn) -> bool {
        let mut pump = self.lock();
        if pump.leases.is_severed() || pump.rnic.query_qp(qpn).is_err() {
            return false;
        }
        pump.take_arrived();
        let now = pump.clock.last();
        self.finish(pump, now);
        true
    }

    /// Sets the time of the progress thread's next tick, `after` from now, or sooner if a timer of the device
    /// ends sooner.
    pub(crate) fn set_tick(&self, pump: &mut Pump, now: Instant, after: Nanos) {
        let next = now + after;
        let wakes_at = pump.rnic.next_timeout().map_or(next, |at| at.min(next));
        pump.schedule.sleepers.wakes_at = wakes_at;
        self.ticker.start(clock::real(wakes_at - now));
    }

    /// Runs the progress thread's tick in the thread of a program that has polled for a while, and postpones
    /// the thread's own. Where programs keep all processors busy, each tick of the thread would take one away
    /// from a program that polls, and that was the 99th percentile of its latency.
    #[cold]
    pub(crate) fn postpone_tick(&self, pump: &mut Pump, now: Instant) {
        pump.tick(now);
        self.policy.polls.begin_window(now);
        self.set_tick(pump, now, TICK);
        pump.schedule.sleepers.postpone_from_half(now);
    }

    /// Ends the progress thread.
    pub(crate) fn stop_thread(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.add();
    }

    /// Wakes the progress thread. The caller has the device's lock.
    pub(crate) fn wake_thread(&self, pump: &mut Pump, now: Instant) {
        pump.schedule.sleepers.wakes_at = now;
        self.wake.add();
    }

    /// Delivers events, and wakes the progress thread if it would sleep longer than the next timer allows.
    pub(crate) fn finish(&self, mut pump: MutexGuard<'_, Pump>, now: Instant) {
        pump.pump_events(&self.events);
        if pump.oversleeps(now) {
            pump.schedule.sleepers.wakes_at = now;
            drop(pump);
            self.wake.add();
        }
    }
}
