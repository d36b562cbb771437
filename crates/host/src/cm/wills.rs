//! What the agent says to our peers when this process is gone, kept up to date.

use crate::agent::will::{Will, name_record};
use crate::gsi;
use rnic::cm::Cm;
use std::collections::HashMap;
use wire::cm::CommId;

/// Communication IDs that are written down as used before they are, so that few of them have to be written.
const IDS_AHEAD: u32 = 256;

#[derive(Debug)]
pub(super) struct Wills {
    will: Will,
    /// Communication IDs that are written down as used.
    ids_noted: u32,
    /// The record of each connection that has one.
    numbers: HashMap<CommId, u32>,
    free: Vec<u32>,
}

impl Wills {
    pub(super) fn new(will: Will, ids_used: u32) -> Self {
        will.set_used(ids_used.wrapping_add(IDS_AHEAD));
        Self { will, ids_noted: ids_used.wrapping_add(IDS_AHEAD), numbers: HashMap::new(), free: Vec::new() }
    }

    /// Writes down what changed.
    pub(super) fn follow(&mut self, cm: &mut Cm, interface_of: impl Fn(&rnic::Gid) -> u32) {
        // Half of them are ahead still: an input uses a few.
        if self.ids_noted.wrapping_sub(cm.comm_ids_used()) < IDS_AHEAD / 2 {
            self.ids_noted = cm.comm_ids_used().wrapping_add(IDS_AHEAD);
            self.will.set_used(self.ids_noted);
        }
        while let Some(id) = cm.poll_change() {
            match cm.last_words(id) {
                Some(mut words) => {
                    let fresh = self.numbers.len() as u32;
                    let free = &mut self.free;
                    let number = *self.numbers.entry(id).or_insert_with(|| free.pop().unwrap_or(fresh));
                    name_record(&mut words.mad, number);
                    let route = gsi::route(&words.path, interface_of(&words.path.source));
                    self.will.set(number, Some((&route, &gsi::encode(&words.path, &words.mad))));
                }
                None => {
                    if let Some(number) = self.numbers.remove(&id) {
                        self.will.set(number, None);
                        self.free.push(number);
                    }
                }
            }
        }
    }
}
