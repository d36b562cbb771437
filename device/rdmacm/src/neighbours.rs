//! Searches for the link-layer addresses of peers: `rdma_resolve_addr` reports ADDR_RESOLVED once it is
//! known, and ADDR_ERROR when it is not within the program's timeout, as Linux's `process_one_req` does.

use crate::id_table::Entry;
use crate::pending::{Action, Pending};
use crate::state::Step;
use crate::subnet_path::PathQuery;
use abi::{RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED};
use core::ffi::c_int;
use ffi::lock;
use link::neighbour::{Ends, Neighbours, solicit};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A neighbour is looked up again after a quarter of the time that it was looked for, between these two.
const LOOKUP_MIN: Duration = Duration::from_micros(100);
const LOOKUP_MAX: Duration = Duration::from_millis(50);
/// Longest sleep of the thread, after which it sees identifiers that were added.
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// The kernel gives up after three requests, one a second; it is then asked again.
const SOLICIT_AFTER: Duration = Duration::from_secs(1);

/// A search for the link-layer address of an identifier's peer.
pub(crate) struct Query {
    entry: Entry,
    ends: Ends,
    since: Instant,
    /// None for a negative timeout, which Linux takes for an endless one.
    until: Option<Instant>,
    looks_up_at: Instant,
    solicits_at: Instant,
    /// Whether the program has not chosen the source address.
    has_any_source: bool,
    /// The question to the lab, on a port of an InfiniBand subnet: no kernel knows the neighbours there.
    path: Option<PathQuery>,
}

impl Query {
    /// A query that begins now.
    pub(crate) fn new(entry: Entry, ends: Ends, timeout_ms: c_int, has_any_source: bool) -> Self {
        let since = Instant::now();
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        Self {
            entry,
            ends,
            since,
            until: timeout.map(|timeout| since + timeout),
            looks_up_at: since,
            solicits_at: since + SOLICIT_AFTER,
            has_any_source,
            path: None,
        }
    }

    /// The same on a port of an InfiniBand subnet.
    ///
    /// # Errors
    /// When the lab has ended.
    pub(crate) fn in_subnet(mut self) -> io::Result<Self> {
        let timeout = self.until.map_or(Duration::MAX, |until| until - self.since);
        self.path = Some(PathQuery::begin(self.ends.destination, timeout)?);
        Ok(self)
    }

    /// Whether the peer is known. On a port of a subnet the path to it is kept.
    fn is_known(&self, neighbours: &Neighbours) -> io::Result<bool> {
        let Some(path) = &self.path else {
            return neighbours.is_known(self.ends);
        };
        let found = path.answer()?;
        if found.is_some() {
            lock(&self.entry.state).subnet_path = found;
        }
        Ok(found.is_some())
    }

    /// Whether the query has ended: its event is queued then.
    fn step(&mut self, neighbours: &Neighbours) -> bool {
        let now = Instant::now();
        if now < self.looks_up_at {
            return false;
        }
        let is_over = self.until.is_some_and(|until| now >= until);
        let status = match self.is_known(neighbours) {
            Ok(true) => 0,
            _ if is_over => -libc::ETIMEDOUT,
            Ok(false) => {
                self.continue_at(now);
                return false;
            }
            Err(error) => -error.raw_os_error().unwrap_or(libc::EHOSTUNREACH),
        };
        self.report(status);
        true
    }

    fn continue_at(&mut self, now: Instant) {
        if now >= self.solicits_at && self.path.is_none() {
            solicit(self.ends);
            self.solicits_at = now + SOLICIT_AFTER;
        }
        let wait = ((now - self.since) / 4).clamp(LOOKUP_MIN, LOOKUP_MAX);
        let next = now + wait;
        self.looks_up_at = self.until.map_or(next, |until| until.min(next));
    }

    /// Queues the event, unless the device was removed meanwhile. As on Linux an identifier without a result
    /// is bound: it may resolve another address, or listen.
    fn report(&self, status: c_int) {
        let mut state = lock(&self.entry.state);
        if state.step != Step::AddressQuery {
            return;
        }
        let event = if status == 0 {
            state.step = Step::AddressResolved;
            Pending::plain(self.entry.id, RDMA_CM_EVENT_ADDR_RESOLVED, 0)
        } else {
            state.step = Step::Bound;
            let mut event = Pending::plain(self.entry.id, RDMA_CM_EVENT_ADDR_ERROR, status);
            if self.has_any_source {
                event.action = Action::ForgetSource;
            }
            event
        };
        Arc::clone(&state.queue).push(event);
    }
}

/// All searches of the process, and the thread that carries them out while there are any.
#[derive(Default)]
pub(crate) struct Searches(Mutex<Running>);

#[derive(Default)]
struct Running {
    queries: Vec<Query>,
    has_thread: bool,
}

impl Searches {
    /// Adds a query.
    ///
    /// # Errors
    /// `EAGAIN` when the system permits no further thread.
    pub(crate) fn add(&'static self, query: Query) -> io::Result<()> {
        let mut running = lock(&self.0);
        if !running.has_thread {
            host::spawn_quiet("rdma_addr", || self.run())?;
            running.has_thread = true;
        }
        running.queries.push(query);
        Ok(())
    }

    /// Ends the query of an identifier. No event of it is queued afterwards.
    pub(crate) fn cancel(&self, id: usize) {
        lock(&self.0).queries.retain(|query| query.entry.id != id);
    }

    fn run(&self) {
        let neighbours = Neighbours::open();
        while let Some(time) = self.step(&neighbours) {
            std::thread::sleep(time);
        }
    }

    /// Continues all queries, and returns for how long to sleep; none when the thread has nothing to do.
    fn step(&self, neighbours: &Neighbours) -> Option<Duration> {
        let mut running = lock(&self.0);
        running.queries.retain_mut(|query| !query.step(neighbours));
        let next = running.queries.iter().map(|query| query.looks_up_at).min();
        if next.is_none() {
            running.has_thread = false;
        }
        let time = next?.saturating_duration_since(Instant::now());
        Some(time.clamp(LOOKUP_MIN, SLEEP_MAX))
    }
}
