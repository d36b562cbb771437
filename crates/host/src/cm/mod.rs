//! A live connection manager: [`rnic::cm::Cm`] with a clock, a share of queue pair 1, and the host's ports.
//!
//! ```text
//!   program's calls ──with──▶ Cm ──▶ MADs: sent from the lease's socket
//!   events ◀──Owner::handle── Cm ◀── MADs: from the agent, through the lease's connection
//! ```
//!
//! One thread takes what the agent hands over and runs the timers. One lock orders everything; what the owner
//! is told, it is told under that lock.

mod grace;
mod lines;
mod list;
mod ports;
mod thread;
mod wills;

use crate::agent::gsi::SLOT_BITS;
use crate::agent::will::Will;
use crate::agent::{self, Lease};
use crate::clock;
use crate::error::OpenError;
use crate::interface::DeviceInfo;
use crate::settings;
use crate::sys::epoll::Epoll;
use crate::sys::eventfd::EventFd;
use crate::sys::{fork, process, unix};
use lines::Lines;
use link::udp::QPN_BITS;
use link::watch::Watch;
pub use list::{Listening, listeners};
use ports::Pool;
pub use ports::{BindError, Bound};
use rnic::Instant;
pub use rnic::cm::ListenAddress;
use rnic::cm::{Cm, CmConfig, Event};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use wills::Wills;

/// Whom the events of connections are for.
pub trait Owner: Send + 'static {
    /// Something happened. The lock is held: this must not call [`Connector::with`].
    fn handle(&mut self, event: Event, cm: &mut Cm, now: Instant);

    /// Addresses came or went: these devices there are now. Connections whose address went are told of after
    /// this.
    fn devices_changed(&mut self, devices: &[DeviceInfo]);
}

/// What the lock protects.
#[derive(Debug)]
pub struct Session<O> {
    /// The connections.
    pub cm: Cm,
    /// Whose they are.
    pub owner: O,
    lines: Lines,
    wills: Wills,
    pool: Pool,
    wakes_at: Instant,
}

#[derive(Debug)]
struct Shared<O> {
    session: Mutex<Session<O>>,
    epoll: Epoll,
    wake: EventFd,
    stop: AtomicBool,
}

/// A process's connections.
#[derive(Debug)]
pub struct Connector<O: Owner> {
    shared: Arc<Shared<O>>,
    thread: Option<JoinHandle<()>>,
    generation: u64,
}

impl<O: Owner> Connector<O> {
    /// Gets a share of queue pair 1 and starts the thread that serves it. A process has one.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way and what to do.
    pub fn start(owner: O) -> Result<Self, OpenError> {
        let Lease { socket, first, connection, ids, .. } = agent::lease()?;
        let usual = CmConfig::default();
        let config = CmConfig {
            response_timeout: settings::cm_response_timeout().unwrap_or(usual.response_timeout),
            comm_id_prefix: first.value() >> QPN_BITS,
            comm_id_prefix_bits: SLOT_BITS as u8,
            comm_id_series: Some(ids),
            reports_changes: true,
            ..usual
        };
        let seed = crate::device::random().map_err(OpenError::Thread)?;
        let mut lines = Lines::new(socket, connection);
        let file = unix::anonymous_file().map_err(OpenError::Thread)?;
        lines.attend(&file).map_err(OpenError::Agent)?;
        let wills = Wills::new(Will::new(file), ids.used);
        fork::forsake(lines.connection.as_raw_fd());
        let mut cm = Cm::new(config, seed);
        lines.follow(&mut cm);
        let (epoll, wake) =
            (Epoll::new().map_err(OpenError::Thread)?, EventFd::signal().map_err(OpenError::Thread)?);
        epoll.add(wake.raw()).map_err(OpenError::Thread)?;
        epoll.add(lines.connection.as_raw_fd()).map_err(OpenError::Thread)?;
        // The thread begins with a sleep that only news end: a first timer has to wake it.
        let wakes_at = Instant(u64::MAX);
        let session = Session { cm, owner, lines, wills, pool: Pool::default(), wakes_at };
        let shared =
            Arc::new(Shared { session: Mutex::new(session), epoll, wake, stop: AtomicBool::new(false) });
        // A sandbox may forbid netlink: changes of addresses are not heard of then.
        let watch = Watch::new().ok().filter(|watch| shared.epoll.add(watch.raw()).is_ok());
        let worker = Arc::clone(&shared);
        let thread = process::spawn_quiet("rockery-cm", move || thread::run(&worker, watch.as_ref()));
        let thread = Some(thread.map_err(OpenError::Thread)?);
        Ok(Self { shared, thread, generation: fork::generation() })
    }

    /// Whether this process made it. The copy in the child of a fork must not be used: its locks may be
    /// taken by threads that the child does not have.
    pub fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Runs calls on the connections. What they send and tell goes out before this returns.
    pub fn with<T>(&self, calls: impl FnOnce(&mut Session<O>, Instant) -> T) -> T {
        let now = clock::now();
        let mut session = self.shared.lock();
        let result = calls(&mut session, now);
        session.settle(now);
        if session.next_timeout().is_some_and(|at| at < session.wakes_at) {
            session.wakes_at = now;
            drop(session);
            self.shared.wake.add();
        }
        result
    }
}

impl<O> Shared<O> {
    fn lock(&self) -> MutexGuard<'_, Session<O>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Owner> Session<O> {
    /// The devices that there are.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.lines.devices
    }

    /// When the thread has to look at the latest.
    fn next_timeout(&self) -> Option<Instant> {
        [self.cm.next_timeout(), self.lines.grace.next_timeout()].into_iter().flatten().min()
    }

    /// Sends what is to be sent, and tells what is to be told.
    fn settle(&mut self, now: Instant) {
        self.lines.hear_early(&mut self.cm, now);
        loop {
            while let Some(datagram) = self.cm.poll_transmit() {
                self.lines.send(&datagram);
            }
            let Some(event) = self.cm.poll_event() else { break };
            self.owner.handle(event, &mut self.cm, now);
        }
        let lines = &self.lines;
        self.wills.follow(&mut self.cm, |gid| lines.interface_of(gid));
    }

    /// Takes what the agent has handed over. False when the agent is gone.
    fn hear(&mut self, now: Instant) -> bool {
        let is_there = self.lines.hear(&mut self.cm, now);
        self.settle(now);
        is_there
    }
}

impl<O: Owner> Drop for Connector<O> {
    fn drop(&mut self) {
        if !self.is_ours() {
            // A fork's child has no such thread.
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.add();
        if let Some(thread) = self.thread.take() {
            // It ends by itself; had it panicked, there would be nothing left to do about it.
            let _ = thread.join();
        }
    }
}
