//! Ends connections on behalf of processes that have exited: sends the messages of their disconnect journals,
//! and repeats each DREQ until the peer answers, as often as connection management repeats any message. It
//! allocates nothing: see [`super::serve`].

use super::journal::JournalReader;
use link::udp::Socket;
use rnic::{Gid, Instant, Nanos};
use wire::cm::{CommId, Drep};

/// Limit of dead processes with pending DREQs. One more replaces the process whose DREQs were repeated most.
const WAITING_MAX: usize = 64;
/// Time that a peer may take to answer: 4.096 µs times 2 to the power of 20, as in [`rnic::cm::CmConfig`].
const RESPONSE: Nanos = Nanos(4_096 << 20);
/// How often an unanswered message is repeated.
const REPEATS: u8 = 15;

/// A dead process with pending DREQs.
#[derive(Debug)]
struct DeadProcess {
    journal: JournalReader,
    slot: usize,
    records: u32,
    unanswered: u32,
    repeats_left: u8,
    next: Instant,
}

impl DeadProcess {
    fn repeat(&mut self, socket: &Socket, now: Instant) {
        self.repeats_left -= 1;
        self.next = now + RESPONSE;
        let numbers = 0..self.records;
        numbers
            .filter_map(|number| self.journal.read(number))
            .for_each(|message| message.send(socket));
    }
}

/// All dead processes with pending DREQs.
#[derive(Debug)]
pub(super) struct DeadProcesses([Option<DeadProcess>; WAITING_MAX]);

impl DeadProcesses {
    pub(super) const fn new() -> Self {
        Self([const { None }; WAITING_MAX])
    }

    /// Sends the messages of a process's journal, and keeps those that are answered as pending.
    pub(super) fn begin(
        &mut self,
        journal: JournalReader,
        slot: usize,
        socket: &Socket,
        now: Instant,
    ) {
        let (records, mut unanswered) = (journal.records(), 0);
        for number in 0..records {
            let Some(message) = journal.read(number) else {
                continue;
            };
            message.send(socket);
            if message.is_answered() {
                unanswered += 1;
            } else {
                journal.clear(number);
            }
        }
        let process = DeadProcess {
            journal,
            slot,
            records,
            unanswered,
            repeats_left: REPEATS,
            next: now + RESPONSE,
        };
        if unanswered > 0 {
            self.keep(process);
        }
    }

    fn keep(&mut self, process: DeadProcess) {
        let age = |place: &&mut Option<DeadProcess>| place.as_ref().map(|it| it.repeats_left);
        // A free place counts as the smallest: `None` is less than any number.
        if let Some(place) = self.0.iter_mut().min_by_key(age) {
            *place = Some(process);
        }
    }

    /// When the next pending DREQ is repeated.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.0.iter().flatten().map(|it| it.next).min()
    }

    /// Repeats pending DREQs that are due, and gives up those that were repeated [`REPEATS`] times.
    pub(super) fn repeat(&mut self, socket: &Socket, now: Instant) {
        for place in &mut self.0 {
            match place {
                Some(process) if process.next > now => {}
                Some(process) if process.repeats_left > 0 => process.repeat(socket, now),
                _ => *place = None,
            }
        }
    }

    /// Handles a DREP that a peer sent to the process that had this slot. False where it answers no pending
    /// DREQ.
    pub(super) fn answered(
        &mut self,
        slot: usize,
        peer: Gid,
        transaction: u64,
        drep: &Drep,
    ) -> bool {
        let number = transaction as u32;
        for place in &mut self.0 {
            let Some(process) = place.as_mut().filter(|it| it.slot == slot) else {
                continue;
            };
            let is_its = |sender: CommId, gid: Gid| sender == drep.remote_comm_id && gid == peer;
            let message = process.journal.read(number);
            if message
                .is_some_and(|it| is_its(it.local_comm_id(), Gid(it.route().destination.octets())))
            {
                process.journal.clear(number);
                process.unanswered = process.unanswered.saturating_sub(1);
                if process.unanswered == 0 {
                    *place = None;
                }
                return true;
            }
        }
        false
    }
}
