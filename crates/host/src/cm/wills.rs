//! What the agent says to our peers when this process is gone, kept up to date.

use crate::agent::will::Will;
use crate::gsi;
use rnic::cm::Cm;
use std::collections::HashMap;
use wire::cm::CommId;

#[derive(Debug)]
pub(super) struct Wills {
    will: Will,
    /// The record of each connection that has one.
    numbers: HashMap<CommId, u32>,
    free: Vec<u32>,
}

impl Wills {
    pub(super) fn new(will: Will) -> Self {
        Self { will, numbers: HashMap::new(), free: Vec::new() }
    }

    /// Writes down what changed.
    pub(super) fn follow(&mut self, cm: &mut Cm, interface_of: impl Fn(&rnic::Gid) -> u32) {
        while let Some(id) = cm.poll_change() {
            match cm.last_words(id) {
                Some(words) => {
                    let fresh = self.numbers.len() as u32;
                    let free = &mut self.free;
                    let number = *self.numbers.entry(id).or_insert_with(|| free.pop().unwrap_or(fresh));
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
