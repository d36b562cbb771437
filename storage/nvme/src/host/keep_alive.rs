//! Keep Alive: a thread of each [`super::Client`] sends the command on the admin queue at half the keep alive
//! timeout (KATO), whatever the I/O queues do.
//!
//! With traffic based keep alive (CTRATT.TBKAS) other commands would restart the timer of the target as well,
//! but a host that waits for its user sends none. When the target does not answer, all queues of the
//! controller report [`HostError::KeepAlive`].

use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use wire::nvme::{Admin, Command, Status};

use super::HostError;
use super::commands::Payload;
use super::liveness::{Liveness, Lost};
use super::parameters::RESPONSE_TIMEOUT;
use super::queue::Queue;

/// Stack of the thread: it does not recurse, and its data are on the heap.
const STACK_BYTES: usize = 256 << 10;
/// How often a thread that may not wait long tries to get the queue.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// The admin queue, which the thread and the owner of the controller use in turn.
#[derive(Clone, Debug)]
pub(super) struct AdminQueue(Arc<Mutex<Queue>>);

impl AdminQueue {
    pub(super) fn new(queue: Queue) -> Self {
        Self(Arc::new(Mutex::new(queue)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }

    /// As [`AdminQueue::lock`]; `None` when another thread has the queue until `deadline`.
    pub(super) fn lock_until(&self, deadline: Instant) -> Option<MutexGuard<'_, Queue>> {
        loop {
            match self.0.try_lock() {
                Ok(queue) => return Some(queue),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            }
        }
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that sends Keep Alive; it ends with its owner.
#[derive(Debug)]
pub(super) struct Keeper {
    _stop: Sender<Infallible>,
}

impl Keeper {
    /// Starts the thread.
    pub(super) fn start(
        admin: &AdminQueue,
        liveness: &Arc<Liveness>,
        timeout: Duration,
    ) -> Result<Self, HostError> {
        let (sender, stop) = channel();
        let (admin, liveness) = (Arc::downgrade(&admin.0), Arc::clone(liveness));
        let thread = std::thread::Builder::new()
            .name("nvme-keep-alive".to_owned())
            .stack_size(STACK_BYTES);
        thread.spawn(move || {
            if let Some(lost) = keep(&admin, &stop, timeout) {
                liveness.lose(lost);
            }
        })?;
        Ok(Self { _stop: sender })
    }
}

/// Sends Keep Alive until the owner ends; returns why the controller is lost, if it is.
fn keep(
    admin: &Weak<Mutex<Queue>>,
    stop: &Receiver<Infallible>,
    timeout: Duration,
) -> Option<Lost> {
    let answer_timeout = timeout.min(RESPONSE_TIMEOUT);
    while stop.recv_timeout(timeout / 2) == Err(RecvTimeoutError::Timeout) {
        let admin = admin.upgrade()?;
        match send(&mut lock(&admin), answer_timeout) {
            Ok(()) => {}
            // The target has no keep alive timer.
            Err(HostError::Status { status, .. }) if status.plain() == Status::INVALID_OPCODE => {
                return None;
            }
            Err(HostError::Status { status, .. }) => return Some(Lost::Refused(status)),
            Err(HostError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                return Some(Lost::Unanswered(answer_timeout));
            }
            Err(error) => return Some(Lost::Ended(error.to_string())),
        }
    }
    None
}

/// Sends Keep Alive, and waits for the answer.
pub(super) fn send(admin: &mut Queue, answer_timeout: Duration) -> Result<(), HostError> {
    let command = Command {
        opcode: Admin::KeepAlive as u8,
        ..Command::default()
    };
    admin
        .call_within("Keep Alive", command, Payload::None, answer_timeout)
        .map(drop)
}
