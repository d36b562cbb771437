//! A controller, which a host created with Connect on an admin queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use server::Wake;
use wire::nvme::log::{self, CHANGED_NAMESPACES_MAX};
use wire::nvme::property::status;
use wire::nvme::{Completion, Status, feature};

use super::events::{Event, Events};
use super::feature_table::Feature;
use super::reservation::Notice;
use crate::limits::{ERRORS_MAX, IO_QUEUES_MAX, RESERVATION_NOTICES_MAX};
use crate::nqn::Nqn;

/// State that all queues of a controller share without a lock.
#[derive(Debug)]
pub struct Session {
    /// The controller identifier (CNTLID).
    pub id: u16,
    /// The NQN of the subsystem.
    pub subsystem: Nqn,
    /// The NQN of the host, derived from its Host Identifier if it gave none.
    pub host: Nqn,
    /// Whether the host gave that NQN itself.
    pub is_named: bool,
    /// The Host Identifier (HOSTID), a UUID.
    pub host_id: [u8; 16],
    /// The identifier of the port that the host connected to.
    pub port: u16,
    /// Whether this is a discovery controller.
    pub is_discovery: bool,
    /// The time at which the last command arrived, in nanoseconds.
    pub(crate) heard_ns: AtomicU64,
    /// Whether the connections of the controller have to be closed.
    pub(crate) is_closed: AtomicBool,
    /// Whether the controller is ready (CSTS.RDY).
    pub(crate) is_ready: AtomicBool,
    /// The number of resets; each one ends all I/O queues.
    pub(crate) epoch: AtomicU64,
    /// Whether the host has disabled the volatile write cache: every write is durable when it completes.
    pub(crate) writes_through: AtomicBool,
}

impl Session {
    /// The NQN that the host gave, if any.
    pub fn name(&self) -> Option<&Nqn> {
        self.is_named.then_some(&self.host)
    }
}

impl Session {
    /// Whether the controller was removed, so that its connections have to be closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

/// A description of a controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerReport {
    /// The controller identifier (CNTLID).
    pub id: u16,
    /// The NQN of the subsystem.
    pub subsystem: Nqn,
    /// The NQN of the host.
    pub host: Nqn,
    /// The identifier of the port that the host connected to.
    pub port: u16,
    /// The number of its I/O queues.
    pub queues: usize,
    /// Keep alive timeout of the controller in milliseconds; 0 for none.
    pub keep_alive_ms: u32,
}

/// The state of a controller under the lock of the target.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) session: Arc<Session>,
    pub(crate) configuration: u32,
    pub(crate) status: u32,
    pub(crate) keep_alive_ms: u32,
    /// The keep alive timeout that Connect has set.
    pub(crate) keep_alive_default_ms: u32,
    /// I/O queues that the host may create: as many as there can be, unless the host requests fewer (Number
    /// of Queues).
    pub(crate) queues_granted: u16,
    /// Wakes the connection of each queue, by QID. The admin queue is 0.
    pub(crate) queues: BTreeMap<u16, Arc<dyn Wake>>,
    pub(crate) events: Events,
    /// The values of features that are not the default, by number and by namespace or threshold.
    pub(crate) features: BTreeMap<(u8, u32), u32>,
    /// The Timestamp that the host has set, and when, or when the controller was created.
    pub(crate) timestamp_ms: (Option<u64>, u64),
    pub(crate) host_behaviour: [u8; 512],
    pub(crate) changed: BTreeSet<u32>,
    pub(crate) errors: VecDeque<log::Error>,
    pub(crate) error_count: u64,
    pub(crate) notices: VecDeque<log::Reservation>,
    pub(crate) notice_count: u64,
}

impl Controller {
    pub(crate) fn new(session: Arc<Session>, keep_alive_ms: u32, now_ns: u64) -> Self {
        Self {
            session,
            configuration: 0,
            status: 0,
            keep_alive_ms,
            keep_alive_default_ms: keep_alive_ms,
            queues_granted: IO_QUEUES_MAX,
            queues: BTreeMap::new(),
            events: Events::default(),
            features: BTreeMap::new(),
            timestamp_ms: (None, now_ns),
            host_behaviour: [0; 512],
            changed: BTreeSet::new(),
            errors: VecDeque::new(),
            error_count: 0,
            notices: VecDeque::new(),
            notice_count: 0,
        }
    }

    pub(crate) fn report(&self) -> ControllerReport {
        ControllerReport {
            id: self.session.id,
            subsystem: self.session.subsystem.clone(),
            host: self.session.host.clone(),
            port: self.session.port,
            queues: self.queues.keys().filter(|id| **id != 0).count(),
            keep_alive_ms: self.keep_alive_ms,
        }
    }

    /// Wakes all connections, so that they end with the controller.
    pub(crate) fn close(&self) {
        self.session.is_closed.store(true, Ordering::SeqCst);
        self.queues.values().for_each(|queue| queue.wake());
    }

    pub(crate) fn set_ready(&mut self, ready: bool) {
        self.status = if ready { status::READY } else { 0 };
        self.session.is_ready.store(ready, Ordering::Release);
    }

    /// Records an event, and wakes the admin queue.
    pub(crate) fn raise(&mut self, event: Event) {
        self.events.raise(event);
        self.wake_admin();
    }

    pub(crate) fn wake_admin(&self) {
        if let Some(queue) = self.queues.get(&0) {
            queue.wake();
        }
    }

    pub(crate) fn namespace_changed(&mut self, nsid: u32) {
        // An entry beyond the maximum makes the log page report an overflow.
        if self.changed.len() <= CHANGED_NAMESPACES_MAX {
            self.changed.insert(nsid);
        }
        self.raise(Event::Namespaces);
    }

    /// Removes the features of a namespace that was removed: a later one of this identifier has the defaults.
    pub(crate) fn forget_namespace(&mut self, nsid: u32) {
        self.features
            .retain(|(number, key), _| !(*key == nsid && Feature::is_of_namespace(*number)));
    }

    /// Records a notification of a changed reservation, unless the host has masked it.
    pub(crate) fn reservation_changed(&mut self, nsid: u32, notice: Notice) {
        let mask = self
            .features
            .get(&(feature::RESERVATION_MASK, nsid))
            .copied()
            .unwrap_or_default();
        if mask & 1 << notice as u32 != 0 {
            return;
        }
        self.notice_count += 1;
        let count = self.notice_count;
        if self.notices.len() == RESERVATION_NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(log::Reservation {
            count,
            kind: notice as u8,
            more: 0,
            nsid,
        });
        self.raise(Event::Reservation);
    }

    pub(crate) fn failed(&mut self, queue_id: u16, cid: u16, status: Status, nsid: u32, lba: u64) {
        self.error_count += 1;
        if self.errors.len() == ERRORS_MAX {
            self.errors.pop_back();
        }
        self.errors.push_front(log::Error {
            count: self.error_count,
            queue_id,
            cid,
            status_and_phase: status.0 << 1,
            location: 0xffff,
            lba,
            nsid,
            transport: 0,
        });
    }

    /// Completes an event request with the next event, if there are both.
    pub(crate) fn next_event(&mut self) -> Option<Completion> {
        let (cid, result) = self.events.next()?;
        Some(Completion {
            result,
            ..Completion::new(cid, Status::SUCCESS)
        })
    }
}
