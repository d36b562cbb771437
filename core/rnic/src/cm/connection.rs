//! A connection or service ID resolution, and the table of all of them.

use super::config::{CmConfig, EVICTIONS_SCANNED_MAX, REPLAY_RESPONSES, duration};
use super::ids::CommIds;
use super::request::{CmError, ListenerId};
use super::state::{CmState, Input, Step, step};
use crate::address::{Gid, Path};
use crate::time::{Instant, Nanos};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::cm::{CommId, ServiceId};
use wire::mad::MAD_SIZE;
use wire::{Qpn, Service};

/// State of a connection or service ID resolution.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) state: CmState,
    /// The peer's communication ID; 0 until it is known.
    pub(super) remote: CommId,
    /// Transaction ID of the current exchange.
    pub(super) transaction: u64,
    pub(super) path: Path,
    pub(super) service: ServiceId,
    /// The listener at which the request waits until its owner takes it.
    pub(super) waits_at: Option<ListenerId>,
    /// Whether a program owns the connection and receives its events.
    pub(super) owned: bool,
    pub(super) local_qpn: Qpn,
    pub(super) remote_qpn: Qpn,
    /// How long to wait for an answer.
    pub(super) response_time: Nanos,
    pub(super) retries: u8,
    retries_left: u8,
    /// The proposed time code, on the active side.
    pub(super) packet_lifetime: u8,
    /// Duration of the time-wait state: how long packets may still be in the network after the end.
    pub(super) time_wait: Nanos,
    /// How long an answer that the peer does not confirm is kept.
    replay_time: Nanos,
    /// Whether this is the active side.
    pub(super) active: bool,
    /// Whether the connection was established, so that its end has a time-wait that is reported to the owner.
    pub(super) connected: bool,
    pub(super) transport: Service,
    /// Transaction ID of the query whether the peer still knows the connection, if one was sent.
    pub(super) inquiry: Option<u64>,
    /// The last message sent, for retransmission.
    pub(super) sent: [u8; MAD_SIZE],
    deadline: Option<Instant>,
}

impl Connection {
    pub(super) fn new(state: CmState, path: Path, service: ServiceId, config: &CmConfig) -> Self {
        Self {
            state,
            remote: CommId(0),
            transaction: 0,
            path,
            service,
            waits_at: None,
            owned: true,
            local_qpn: Qpn::new(0),
            remote_qpn: Qpn::new(0),
            response_time: duration(config.response_timeout),
            retries: config.retries,
            retries_left: 0,
            packet_lifetime: 0,
            time_wait: duration(config.response_timeout),
            replay_time: Nanos(REPLAY_RESPONSES * duration(config.response_timeout).0),
            active: matches!(state, CmState::ReqSent | CmState::SidrReqSent),
            connected: false,
            transport: Service::Rc,
            inquiry: None,
            sent: [0; MAD_SIZE],
            deadline: None,
        }
    }

    /// The peer's address.
    pub(super) const fn peer(&self) -> Gid {
        self.path.destination
    }

    /// Whether its peer knows it by a request ID rather than a communication ID.
    const fn is_resolution(&self) -> bool {
        matches!(
            self.state,
            CmState::SidrReqSent | CmState::SidrReqReceived | CmState::SidrAnswered
        )
    }
}

/// A peer's address, and its communication ID for a local connection.
type Remote = (Gid, CommId);

/// All connections, and the indices to find them.
#[derive(Debug, Default)]
pub(super) struct Connections {
    by_id: BTreeMap<CommId, Connection>,
    by_remote: BTreeMap<Remote, CommId>,
    by_request: BTreeMap<Remote, CommId>,
    by_remote_qpn: BTreeMap<(Gid, Qpn), CommId>,
    timers: BTreeSet<(Instant, CommId)>,
    /// Connections whose state changed and that were not reported yet; `None` where changes are not reported.
    changed: Option<BTreeSet<CommId>>,
}

impl Connections {
    /// Records changes from now on.
    pub(super) fn report_changes(&mut self) {
        self.changed = Some(BTreeSet::new());
    }

    /// The next connection whose state changed.
    pub(super) fn pop_change(&mut self) -> Option<CommId> {
        self.changed.as_mut()?.pop_first()
    }

    fn note_change(&mut self, id: CommId) {
        if let Some(changed) = &mut self.changed {
            changed.insert(id);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds a connection under an ID that cannot be guessed, and that was not in use for a long time.
    pub(super) fn add(
        &mut self,
        connection: Connection,
        config: &CmConfig,
        ids: &mut CommIds,
    ) -> Result<CommId, CmError> {
        if self.by_id.len() >= config.connections_max && !self.make_room() {
            return Err(CmError::Exhausted("connections"));
        }
        // IDs in use may be consecutive, where many connections were created at once.
        let mut names = (0..=self.by_id.len()).map(|_| ids.next());
        let id = names
            .find(|id| !self.by_id.contains_key(id))
            .ok_or(CmError::Exhausted("communication IDs"))?;
        self.by_id.insert(id, connection);
        self.note_change(id);
        Ok(id)
    }

    pub(super) fn get(&self, id: CommId) -> Option<&Connection> {
        self.by_id.get(&id)
    }

    /// For changes of all fields but state, remote ID and queue pair, on which the indices depend.
    pub(super) fn get_mut(&mut self, id: CommId) -> Option<&mut Connection> {
        self.by_id.get_mut(&id)
    }

    /// The connection with the peer's communication ID `remote`.
    pub(super) fn of_remote(&self, peer: Gid, remote: CommId) -> Option<CommId> {
        self.by_remote.get(&(peer, remote)).copied()
    }

    /// The resolution with the peer's request ID `request`.
    pub(super) fn of_request(&self, peer: Gid, request: CommId) -> Option<CommId> {
        self.by_request.get(&(peer, request)).copied()
    }

    /// The connection of the peer's queue pair `qpn`.
    pub(super) fn of_remote_qpn(&self, peer: Gid, qpn: Qpn) -> Option<CommId> {
        self.by_remote_qpn.get(&(peer, qpn)).copied()
    }

    /// Records the peer's ID of a connection or resolution.
    pub(super) fn name(&mut self, id: CommId, remote: CommId) {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return;
        };
        connection.remote = remote;
        let key = (connection.peer(), remote);
        match connection.is_resolution() {
            true => self.by_request.insert(key, id),
            false => self.by_remote.insert(key, id),
        };
        self.note_change(id);
    }

    /// Records the peer's queue pair.
    pub(super) fn name_queue_pair(&mut self, id: CommId, qpn: Qpn) {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return;
        };
        connection.remote_qpn = qpn;
        self.by_remote_qpn.insert((connection.peer(), qpn), id);
    }

    /// Starts the timer of a new connection, if its state has one.
    pub(super) fn begin(&mut self, id: CommId, now: Instant) {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return;
        };
        connection.retries_left = connection.retries;
        let deadline = connection
            .state
            .repeats()
            .then_some(now + connection.response_time);
        self.wake(id, deadline);
    }

    /// Removes an ownerless connection that only lingers, among those that expire soonest.
    fn make_room(&mut self) -> bool {
        let soonest = self.timers.iter().take(EVICTIONS_SCANNED_MAX);
        let is_idle = |id: &CommId| {
            self.by_id
                .get(id)
                .is_some_and(|it| !it.owned && it.state.lingers())
        };
        let Some(id) = soonest.map(|(_, id)| *id).find(is_idle) else {
            return false;
        };
        self.wake(id, None);
        self.end(id);
        true
    }

    /// Ends a connection in any state.
    pub(super) fn end(&mut self, id: CommId) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.state = CmState::Idle;
            self.wake(id, None);
            self.note_change(id);
            self.forget(id, CmState::Idle);
        }
    }

    /// Applies an input as the state table says: sets the state and its timer, and updates the indices.
    pub(super) fn advance(&mut self, id: CommId, input: Input, now: Instant) -> Step {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return Step::Forbidden;
        };
        let step = step(connection.state, input);
        if let Step::To(next) = step {
            connection.state = next;
            connection.connected |= matches!(next, CmState::Established | CmState::DreqReceived);
            let deadline = match next {
                CmState::ReqMraReceived | CmState::RepMraReceived => connection.deadline,
                _ if next.repeats() => {
                    connection.retries_left = connection.retries;
                    Some(now + connection.response_time)
                }
                CmState::TimeWait => Some(now + connection.time_wait),
                _ if next.lingers() => Some(now + connection.replay_time),
                _ => None,
            };
            self.wake(id, deadline);
            self.note_change(id);
            self.forget(id, next);
        }
        step
    }

    /// Removes the connection from the indices that its state does not need; an ownerless one that is over is
    /// deleted.
    fn forget(&mut self, id: CommId, state: CmState) {
        let Some(connection) = self.by_id.get(&id) else {
            return;
        };
        let (peer, remote, qpn, owned) = (
            connection.peer(),
            connection.remote,
            connection.remote_qpn,
            connection.owned,
        );
        if !state.holds_queue_pair() && self.of_remote_qpn(peer, qpn) == Some(id) {
            self.by_remote_qpn.remove(&(peer, qpn));
        }
        if state != CmState::Idle {
            return;
        }
        if self.of_remote(peer, remote) == Some(id) {
            self.by_remote.remove(&(peer, remote));
        }
        if self.of_request(peer, remote) == Some(id) {
            self.by_request.remove(&(peer, remote));
        }
        if !owned {
            self.by_id.remove(&id);
        }
    }

    /// Sets or stops the timer.
    pub(super) fn wake(&mut self, id: CommId, deadline: Option<Instant>) {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return;
        };
        if let Some(old) = connection.deadline {
            self.timers.remove(&(old, id));
        }
        connection.deadline = deadline;
        if let Some(new) = deadline {
            self.timers.insert((new, id));
        }
    }

    /// Counts a retransmission; false when the limit is reached.
    pub(super) fn retry(&mut self, id: CommId, now: Instant) -> bool {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return false;
        };
        let Some(left) = connection.retries_left.checked_sub(1) else {
            return false;
        };
        connection.retries_left = left;
        let deadline = now + connection.response_time;
        self.wake(id, Some(deadline));
        true
    }

    /// Restarts the timer of an answer that the peer requested again.
    pub(super) fn keep_answer(&mut self, id: CommId, now: Instant) {
        let Some(connection) = self.by_id.get(&id) else {
            return;
        };
        if matches!(connection.state, CmState::Refused | CmState::SidrAnswered) {
            self.wake(id, Some(now + connection.replay_time));
        }
    }

    /// Deadline of the next timer.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// The next connection whose timer has expired; the timer is stopped.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<CommId> {
        let (deadline, id) = *self.timers.first()?;
        if deadline > now {
            return None;
        }
        self.wake(id, None);
        Some(id)
    }

    /// Removes the owner: the connection has no more events. Returns the listener at which it still waited.
    pub(super) fn disown(&mut self, id: CommId) -> Option<ListenerId> {
        let connection = self.by_id.get_mut(&id)?;
        connection.owned = false;
        connection.waits_at.take()
    }

    /// All connections with this local address.
    pub(super) fn at(&self, source: Gid) -> Vec<CommId> {
        self.by_id
            .iter()
            .filter(|(_, it)| it.path.source == source)
            .map(|(id, _)| *id)
            .collect()
    }

    /// All connections that wait at a listener.
    pub(super) fn waiting_at(&self, listener: ListenerId) -> Vec<CommId> {
        self.by_id
            .iter()
            .filter(|(_, it)| it.waits_at == Some(listener))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Checks that the indices agree with the connections, and timers run where they should. For tests.
    pub(super) fn check_indices(&self) -> Result<(), &'static str> {
        let names = |id: &CommId| self.by_id.contains_key(id);
        if !self.by_remote.values().all(names) || !self.by_request.values().all(names) {
            return Err("an index has a communication ID that no connection has");
        }
        for ((peer, qpn), id) in &self.by_remote_qpn {
            let held = self.by_id.get(id).is_some_and(|it| {
                it.state.holds_queue_pair() && it.peer() == *peer && it.remote_qpn == *qpn
            });
            if !held {
                return Err("a queue pair leads to a connection that does not hold it");
            }
        }
        let timed = |(deadline, id): &(Instant, CommId)| {
            self.by_id
                .get(id)
                .is_some_and(|it| it.deadline == Some(*deadline))
        };
        if !self.timers.iter().all(timed) {
            return Err("a timer has a communication ID that no connection has");
        }
        for connection in self.by_id.values() {
            if (connection.state.repeats() || connection.state.lingers())
                != connection.deadline.is_some()
            {
                return Err(
                    "a connection has a timer in a state without one, or none in a state with one",
                );
            }
            if !connection.owned && connection.state == CmState::Idle {
                return Err("an idle connection without an owner was not removed");
            }
        }
        Ok(())
    }
}
