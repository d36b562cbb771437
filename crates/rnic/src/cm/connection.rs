//! One connection or service ID resolution, and the table of all.

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

/// What is remembered of a connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) state: CmState,
    /// The peer's name for it; 0 until it said.
    pub(super) remote: CommId,
    /// Of the exchange that goes on.
    pub(super) transaction: u64,
    pub(super) path: Path,
    pub(super) service: ServiceId,
    /// Through whom it came, as long as its owner has not taken it.
    pub(super) waits_at: Option<ListenerId>,
    /// Whether a program has it, and gets its events.
    pub(super) owned: bool,
    pub(super) local_qpn: Qpn,
    pub(super) remote_qpn: Qpn,
    /// For how long an answer is waited.
    pub(super) response_time: Nanos,
    pub(super) retries: u8,
    retries_left: u8,
    /// The code that we proposed, when we asked.
    pub(super) packet_lifetime: u8,
    /// How long packets may be on their way after the end.
    pub(super) time_wait: Nanos,
    /// How long an answer that the peer does not confirm is kept.
    replay_time: Nanos,
    /// Whether we asked.
    pub(super) active: bool,
    /// Whether there was a connection, so that its end has a time-wait that the owner hears of.
    pub(super) connected: bool,
    pub(super) transport: Service,
    /// The transaction of the question whether the peer still knows the connection, if it was asked.
    pub(super) inquiry: Option<u64>,
    /// What was said last, for when it has to be said again.
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
        matches!(self.state, CmState::SidrReqSent | CmState::SidrReqReceived | CmState::SidrAnswered)
    }
}

/// A peer's name for something of ours.
type Remote = (Gid, CommId);

/// All connections, and the ways to find one.
#[derive(Debug, Default)]
pub(super) struct Connections {
    by_id: BTreeMap<CommId, Connection>,
    by_remote: BTreeMap<Remote, CommId>,
    by_request: BTreeMap<Remote, CommId>,
    by_remote_qpn: BTreeMap<(Gid, Qpn), CommId>,
    timers: BTreeSet<(Instant, CommId)>,
    /// The connections whose state changed since the last question; empty where changes are not reported.
    changed: Option<BTreeSet<CommId>>,
}

impl Connections {
    /// Notes changes from now on.
    pub(super) fn report_changes(&mut self) {
        self.changed = Some(BTreeSet::new());
    }

    /// One whose state changed.
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

    /// Adds a connection under an ID that cannot be guessed, and that was not used for long.
    pub(super) fn add(
        &mut self,
        connection: Connection,
        config: &CmConfig,
        ids: &mut CommIds,
    ) -> Result<CommId, CmError> {
        if self.by_id.len() >= config.connections_max && !self.make_room() {
            return Err(CmError::Exhausted("connections"));
        }
        // Those that are in use may stand in a row, where many were made at once.
        let mut names = (0..=self.by_id.len()).map(|_| ids.next());
        let id =
            names.find(|id| !self.by_id.contains_key(id)).ok_or(CmError::Exhausted("communication IDs"))?;
        self.by_id.insert(id, connection);
        self.note_change(id);
        Ok(id)
    }

    pub(super) fn get(&self, id: CommId) -> Option<&Connection> {
        self.by_id.get(&id)
    }

    /// For everything but state, peer's name and queue pair, which the ways to find it depend on.
    pub(super) fn get_mut(&mut self, id: CommId) -> Option<&mut Connection> {
        self.by_id.get_mut(&id)
    }

    /// The one that the peer calls `remote`.
    pub(super) fn of_remote(&self, peer: Gid, remote: CommId) -> Option<CommId> {
        self.by_remote.get(&(peer, remote)).copied()
    }

    /// The resolution that the peer calls `request`.
    pub(super) fn of_request(&self, peer: Gid, request: CommId) -> Option<CommId> {
        self.by_request.get(&(peer, request)).copied()
    }

    /// The one that the peer's queue pair is in.
    pub(super) fn of_remote_qpn(&self, peer: Gid, qpn: Qpn) -> Option<CommId> {
        self.by_remote_qpn.get(&(peer, qpn)).copied()
    }

    /// Notes the peer's name for a connection or resolution.
    pub(super) fn name(&mut self, id: CommId, remote: CommId) {
        let Some(connection) = self.by_id.get_mut(&id) else { return };
        connection.remote = remote;
        let key = (connection.peer(), remote);
        match connection.is_resolution() {
            true => self.by_request.insert(key, id),
            false => self.by_remote.insert(key, id),
        };
        self.note_change(id);
    }

    /// Notes the peer's queue pair.
    pub(super) fn name_queue_pair(&mut self, id: CommId, qpn: Qpn) {
        let Some(connection) = self.by_id.get_mut(&id) else { return };
        connection.remote_qpn = qpn;
        self.by_remote_qpn.insert((connection.peer(), qpn), id);
    }

    /// Starts the timer of a new connection, if its state has one.
    pub(super) fn begin(&mut self, id: CommId, now: Instant) {
        let Some(connection) = self.by_id.get_mut(&id) else { return };
        connection.retries_left = connection.retries;
        let deadline = connection.state.repeats().then_some(now + connection.response_time);
        self.wake(id, deadline);
    }

    /// Lets go of an ownerless connection that only lingers, of those whose time is over soonest.
    fn make_room(&mut self) -> bool {
        let soonest = self.timers.iter().take(EVICTIONS_SCANNED_MAX);
        let is_idle = |id: &CommId| self.by_id.get(id).is_some_and(|it| !it.owned && it.state.lingers());
        let Some(id) = soonest.map(|(_, id)| *id).find(is_idle) else { return false };
        self.wake(id, None);
        self.end(id);
        true
    }

    /// Ends a connection whatever its state.
    pub(super) fn end(&mut self, id: CommId) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.state = CmState::Idle;
            self.wake(id, None);
            self.note_change(id);
            self.forget(id, CmState::Idle);
        }
    }

    /// What the table of states says to an input, done: the state, its timer, and by what the connection can
    /// still be found.
    pub(super) fn advance(&mut self, id: CommId, input: Input, now: Instant) -> Step {
        let Some(connection) = self.by_id.get_mut(&id) else { return Step::Forbidden };
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

    /// Takes the connection out of the ways to find it that its state does not have; an ownerless one that is
    /// over goes.
    fn forget(&mut self, id: CommId, state: CmState) {
        let Some(connection) = self.by_id.get(&id) else { return };
        let (peer, remote, qpn, owned) =
            (connection.peer(), connection.remote, connection.remote_qpn, connection.owned);
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
        let Some(connection) = self.by_id.get_mut(&id) else { return };
        if let Some(old) = connection.deadline {
            self.timers.remove(&(old, id));
        }
        connection.deadline = deadline;
        if let Some(new) = deadline {
            self.timers.insert((new, id));
        }
    }

    /// Whether the message may be repeated once more; counts.
    pub(super) fn retry(&mut self, id: CommId, now: Instant) -> bool {
        let Some(connection) = self.by_id.get_mut(&id) else { return false };
        let Some(left) = connection.retries_left.checked_sub(1) else { return false };
        connection.retries_left = left;
        let deadline = now + connection.response_time;
        self.wake(id, Some(deadline));
        true
    }

    /// An answer was asked for again: it is kept as long as it was in the beginning.
    pub(super) fn keep_answer(&mut self, id: CommId, now: Instant) {
        let Some(connection) = self.by_id.get(&id) else { return };
        if matches!(connection.state, CmState::Refused | CmState::SidrAnswered) {
            self.wake(id, Some(now + connection.replay_time));
        }
    }

    /// When the next timer ends.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// One whose timer has ended; the timer stops.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<CommId> {
        let (deadline, id) = *self.timers.first()?;
        if deadline > now {
            return None;
        }
        self.wake(id, None);
        Some(id)
    }

    /// Gives up ownership: it has no more events. Returns the listener at which it still waited.
    pub(super) fn disown(&mut self, id: CommId) -> Option<ListenerId> {
        let connection = self.by_id.get_mut(&id)?;
        connection.owned = false;
        connection.waits_at.take()
    }

    /// All that are ours at this address.
    pub(super) fn at(&self, source: Gid) -> Vec<CommId> {
        self.by_id.iter().filter(|(_, it)| it.path.source == source).map(|(id, _)| *id).collect()
    }

    /// All that wait at a listener.
    pub(super) fn waiting_at(&self, listener: ListenerId) -> Vec<CommId> {
        self.by_id.iter().filter(|(_, it)| it.waits_at == Some(listener)).map(|(id, _)| *id).collect()
    }

    /// Whether everything that can be found is there, and timers run where they should. For tests.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let names = |id: &CommId| self.by_id.contains_key(id);
        if !self.by_remote.values().all(names) || !self.by_request.values().all(names) {
            return Err("a peer's name leads nowhere");
        }
        for ((peer, qpn), id) in &self.by_remote_qpn {
            let held = self
                .by_id
                .get(id)
                .is_some_and(|it| it.state.holds_queue_pair() && it.peer() == *peer && it.remote_qpn == *qpn);
            if !held {
                return Err("a queue pair leads to a connection that does not hold it");
            }
        }
        let timed = |(deadline, id): &(Instant, CommId)| {
            self.by_id.get(id).is_some_and(|it| it.deadline == Some(*deadline))
        };
        if !self.timers.iter().all(timed) {
            return Err("a timer of nobody");
        }
        for connection in self.by_id.values() {
            if (connection.state.repeats() || connection.state.lingers()) != connection.deadline.is_some() {
                return Err("a timer runs where none should, or the other way about");
            }
            if !connection.owned && connection.state == CmState::Idle {
                return Err("nobody wants it, and it is over");
            }
        }
        Ok(())
    }
}
