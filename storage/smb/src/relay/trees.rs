//! The tree connections to disk shares. READs and WRITEs of named pipes keep their data inline, because
//! servers ignore buffer descriptors there: ksmbd would write nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tree connections that are remembered; when there are more, all are forgotten, and data pass inline.
const TREES_MAX: usize = 65_536;

/// The tree connections to disk shares of one server, by SessionId and TreeId. All connections to the server
/// share them, because the channels of a session do.
#[derive(Clone, Default, Debug)]
pub struct Trees(Arc<Mutex<HashSet<(u64, u32)>>>);

impl Trees {
    fn lock(&self) -> MutexGuard<'_, HashSet<(u64, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a tree connection.
    pub(super) fn connected(&self, session: u64, tree: u32, is_disk: bool) {
        let mut trees = self.lock();
        if !is_disk {
            trees.remove(&(session, tree));
            return;
        }
        if trees.len() >= TREES_MAX {
            trees.clear();
        }
        trees.insert((session, tree));
    }

    /// Whether a tree connection is to a disk share.
    pub(super) fn is_disk(&self, session: u64, tree: u32) -> bool {
        self.lock().contains(&(session, tree))
    }
}
