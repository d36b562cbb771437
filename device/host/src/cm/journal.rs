//! Keeps the disconnect journal up to date: for each connection, the message that the agent sends to the peer
//! when this process has ended.

use crate::agent::journal::{JournalWriter, name_record};
use crate::gsi;
use rnic::cm::Cm;
use std::collections::HashMap;
use wire::cm::CommId;

/// Number of communication IDs that are recorded as used in advance, so that the journal's header is written
/// rarely.
const IDS_AHEAD: u32 = 256;

#[derive(Debug)]
pub(super) struct DisconnectJournal {
    writer: JournalWriter,
    /// Number of communication IDs that the journal records as used.
    ids_noted: u32,
    /// Record number of each connection in the journal.
    numbers: HashMap<CommId, u32>,
    free: Vec<u32>,
}

impl DisconnectJournal {
    pub(super) fn new(writer: JournalWriter, ids_used: u32) -> Self {
        writer.set_used(ids_used.wrapping_add(IDS_AHEAD));
        Self {
            writer,
            ids_noted: ids_used.wrapping_add(IDS_AHEAD),
            numbers: HashMap::new(),
            free: Vec::new(),
        }
    }

    /// Writes the records of connections that changed.
    pub(super) fn follow(&mut self, cm: &mut Cm, interface_of: impl Fn(&rnic::Gid) -> u32) {
        // At least half of them are still unused then; one input uses a few.
        if self.ids_noted.wrapping_sub(cm.comm_ids_used()) < IDS_AHEAD / 2 {
            self.ids_noted = cm.comm_ids_used().wrapping_add(IDS_AHEAD);
            self.writer.set_used(self.ids_noted);
        }
        while let Some(id) = cm.poll_change() {
            match cm.message_at_death(id) {
                Some(mut message) => {
                    let fresh = self.numbers.len() as u32;
                    let free = &mut self.free;
                    let number = *self
                        .numbers
                        .entry(id)
                        .or_insert_with(|| free.pop().unwrap_or(fresh));
                    name_record(&mut message.mad, number);
                    let route = gsi::route(&message.path, interface_of(&message.path.source));
                    self.writer.set(
                        number,
                        Some((&route, &gsi::encode(&message.path, &message.mad))),
                    );
                }
                None => {
                    if let Some(number) = self.numbers.remove(&id) {
                        self.writer.set(number, None);
                        self.free.push(number);
                    }
                }
            }
        }
    }
}
