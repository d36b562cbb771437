//! A live connection manager: [`rnic::cm::Cm`] with a clock, a share of queue pair 1, and the host's ports.
//!
//! ```text
//!   program's calls ──with──▶ Cm ──▶ MADs: sent from the lease's socket
//!   events ◀──Owner::handle── Cm ◀── MADs: from the agent, through the lease's connection
//! ```
//!
//! One thread handles the datagrams that the agent passes on, and runs the timers. One lock orders all calls;
//! the owner's functions are called with that lock held. It is not held during a request to the agent.

mod grace;
mod journal;
mod lines;
mod list;
mod ports;
mod requests;
mod thread;

use crate::agent::gsi::SLOT_BITS;
use crate::agent::journal::JournalWriter;
use crate::agent::{self, Lease};
use crate::error::OpenError;
use crate::interface::DeviceInfo;
use crate::log::HOST;
use crate::progress::clock;
use crate::settings;
use crate::sys::Epoll;
use crate::sys::standard_error;
use crate::sys::{fork, process};
use journal::DisconnectJournal;
use lines::Lines;
use link::unix;
use link::watch::Watch;
pub use list::{Listening, listeners};
use os::event_counter::EventCounter;
use ports::Pool;
pub use ports::{BindError, Bound};
use requests::Requests;
use rnic::Instant;
pub use rnic::cm::ListenAddress;
use rnic::cm::{Cm, CmConfig, CmEvent, IdSeries};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tracing::warn;

/// Receiver of the events of connections.
pub trait Owner: Send + 'static {
    /// Handles an event. The lock is held: this must not call [`Connector::with`].
    fn handle(&mut self, event: CmEvent, cm: &mut Cm, now: Instant);

    /// Handles a new list of devices after addresses were added or removed. Events of connections whose
    /// address was removed follow.
    fn devices_changed(&mut self, devices: &[DeviceInfo]);
}

/// The state that the lock protects.
#[derive(Debug)]
pub struct Session<O> {
    /// Configuration of the state machine, from which it is created again after a panic.
    config: CmConfig,
    /// The connection manager's state machine.
    pub cm: Cm,
    /// The owner, which receives the events.
    pub owner: O,
    lines: Lines,
    journal: DisconnectJournal,
    wakes_at: Instant,
}

#[derive(Debug)]
struct Shared<O> {
    session: Mutex<Session<O>>,
    requests: Arc<Requests>,
    pool: Pool,
    epoll: Epoll,
    wake: EventCounter,
    stop: AtomicBool,
}

/// The connection manager of a process.
#[derive(Debug)]
pub struct Connector<O: Owner> {
    shared: Arc<Shared<O>>,
    thread: Option<JoinHandle<()>>,
    generation: u64,
}

impl<O: Owner> Connector<O> {
    /// Obtains a share of queue pair 1 and starts the thread that serves it. A process has one.
    ///
    /// # Errors
    /// [`OpenError`] names the reason and the remedy.
    pub fn start(owner: O) -> Result<Self, OpenError> {
        settings::check_variables()?;
        let Lease {
            socket,
            slot,
            connection,
            ids,
            ..
        } = agent::lease()?;
        let usual = CmConfig::default();
        let config = CmConfig {
            response_timeout: settings::cm_response_timeout().unwrap_or(usual.response_timeout),
            comm_id_prefix: slot,
            comm_id_prefix_bits: SLOT_BITS as u8,
            comm_id_series: Some(ids),
            reports_changes: true,
            ..usual
        };
        let seed = crate::random::bytes().map_err(OpenError::Thread)?;
        let requests = Arc::new(Requests::new(connection));
        let mut lines = Lines::new(socket, Arc::clone(&requests));
        let file = unix::anonymous_file().map_err(OpenError::Thread)?;
        lines.attend(&file).map_err(OpenError::Agent)?;
        let journal = DisconnectJournal::new(JournalWriter::new(file), ids.used);
        fork::forsake(lines.connection());
        let mut cm = Cm::new(config, seed);
        lines.follow(&mut cm);
        let (epoll, wake) = (
            Epoll::new().map_err(OpenError::Thread)?,
            EventCounter::new().map_err(OpenError::Thread)?,
        );
        epoll.add(wake.as_raw_fd()).map_err(OpenError::Thread)?;
        epoll.add(lines.connection()).map_err(OpenError::Thread)?;
        // The thread first sleeps without a timeout: the first timer has to wake it.
        let wakes_at = Instant(u64::MAX);
        let session = Session {
            config,
            cm,
            owner,
            lines,
            journal,
            wakes_at,
        };
        let (session, pool, stop) = (Mutex::new(session), Pool::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared {
            session,
            requests,
            pool,
            epoll,
            wake,
            stop,
        });
        // A sandbox may forbid netlink: changes of addresses are then not noticed.
        let watch = Watch::new().and_then(|watch| shared.epoll.add(watch.raw()).map(|()| watch));
        let refused = |error| warn!(target: HOST, "changes of addresses are not noticed: {error}");
        let watch = watch.map_err(refused).ok();
        let worker = Arc::clone(&shared);
        let thread =
            process::spawn_quiet("rockery-cm", move || thread::run(&worker, watch.as_ref()));
        let thread = Some(thread.map_err(OpenError::Thread)?);
        Ok(Self {
            shared,
            thread,
            generation: fork::generation(),
        })
    }

    /// Whether this process created it. The copy in the child of a fork must not be used: its locks may be
    /// held by threads that the child does not have.
    pub fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Runs calls on the connections. Datagrams and events that they cause are delivered before this returns.
    pub fn with<T>(&self, calls: impl FnOnce(&mut Session<O>, Instant) -> T) -> T {
        let now = clock::now();
        let mut session = self.shared.lock();
        let result = calls(&mut session, now);
        session.deliver_pending(now);
        if session
            .next_timeout()
            .is_some_and(|at| at < session.wakes_at)
        {
            session.wakes_at = now;
            drop(session);
            self.shared.wake.add();
        }
        result
    }
}

impl<O: Owner> Shared<O> {
    fn lock(&self) -> MutexGuard<'_, Session<O>> {
        self.session.lock().unwrap_or_else(|poisoned| {
            self.session.clear_poison();
            let mut session = poisoned.into_inner();
            session.start_again();
            session
        })
    }
}

impl<O: Owner> Session<O> {
    /// The current devices.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.lines.devices
    }

    /// Handles a panic in a call that held the lock: the state may be inconsistent, so it is replaced by an
    /// empty one, and the owner is notified that all devices were removed (`RDMA_CM_EVENT_DEVICE_REMOVAL`)
    /// and added again. The message of the panic, on standard error, has the file and line.
    #[cold]
    fn start_again(&mut self) {
        const MESSAGE: &[u8] = b"rockery: a bug (see the panic above) has ended all connections of the \
            connection manager: each has the event RDMA_CM_EVENT_DEVICE_REMOVAL; new ones can be made\n";
        // Standard error may be closed.
        let _ = standard_error::write(MESSAGE);
        let series = self.config.comm_id_series;
        let comm_id_series = series.map(|ids| IdSeries {
            used: self.cm.comm_ids_used(),
            ..ids
        });
        // Without a random seed, IDs are only easier to guess.
        let seed = crate::random::bytes().unwrap_or_default();
        self.cm = Cm::new(
            CmConfig {
                comm_id_series,
                ..self.config
            },
            seed,
        );
        self.owner.devices_changed(&[]);
        self.lines.follow(&mut self.cm);
        self.owner.devices_changed(&self.lines.devices);
    }

    /// Deadline of the next timer.
    fn next_timeout(&self) -> Option<Instant> {
        [self.cm.next_timeout(), self.lines.grace.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sends pending datagrams, and delivers pending events.
    fn deliver_pending(&mut self, now: Instant) {
        loop {
            // The journal is updated first: a program that is killed when it has ESTABLISHED leaves a DREQ,
            // and not the REJ of a connection that is still requested.
            let lines = &self.lines;
            self.journal
                .follow(&mut self.cm, |gid| lines.interface_of(gid));
            while let Some(datagram) = self.cm.poll_transmit() {
                self.lines.send(&datagram);
            }
            let Some(event) = self.cm.poll_event() else {
                break;
            };
            self.owner.handle(event, &mut self.cm, now);
        }
    }

    /// Handles the messages of the agent. False when the agent has ended.
    fn hear(&mut self, now: Instant) -> bool {
        let is_there = self.lines.hear(&mut self.cm, now);
        self.deliver_pending(now);
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
            // It ends by itself; after a panic of the thread nothing would be left to do.
            let _ = thread.join();
        }
    }
}
