//! Which blocks of an exported disk are being written, by all NBD clients of the export together.
//!
//! A request that covers a part of a block is carried out as a read of the block, a change of the bytes and a
//! write of the whole block. A write of the same block in between would be undone, so the blocks of such a
//! request are claimed for it alone until its reply.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;

/// The writes under way of all clients of one export.
#[derive(Default, Debug)]
pub struct Writes(Mutex<Claims>);

#[derive(Default, Debug)]
struct Claims {
    /// Blocks of a write, and whether it changes parts of blocks.
    ranges: Slab<(Range<u64>, bool)>,
    /// How many of them change parts of blocks.
    partial: usize,
}

/// The blocks of one write, which are claimed until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    writes: Arc<Writes>,
    key: usize,
}

impl Writes {
    fn lock(&self) -> MutexGuard<'_, Claims> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims blocks for a write of whole blocks, or of parts of them. `None` if another write has some of
    /// the blocks and one of the two writes changes a part of a block.
    pub(super) fn claim(self: &Arc<Self>, blocks: Range<u64>, is_partial: bool) -> Option<Claim> {
        let mut claims = self.lock();
        let overlaps = |other: &Range<u64>| other.start < blocks.end && blocks.start < other.end;
        // Most disks see whole blocks only: there is nothing to compare then.
        if is_partial || claims.partial > 0 {
            let mut others = claims.ranges.iter();
            if others.any(|(_, (other, partial))| (is_partial || *partial) && overlaps(other)) {
                return None;
            }
        }
        claims.partial += usize::from(is_partial);
        let key = claims.ranges.insert((blocks, is_partial));
        Some(Claim {
            writes: Arc::clone(self),
            key,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.writes.lock();
        if let Some((_, is_partial)) = claims.ranges.try_remove(self.key) {
            claims.partial -= usize::from(is_partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_blocks_are_changed_alone() {
        let writes = Arc::new(Writes::default());
        let whole = writes.claim(0..4, false).unwrap();
        let _other = writes
            .claim(2..6, false)
            .expect("writes of whole blocks may overlap");
        assert!(writes.claim(3..4, true).is_none());
        let part = writes
            .claim(6..7, true)
            .expect("no other write has the block");
        assert!(writes.claim(6..7, true).is_none() && writes.claim(0..8, false).is_none());
        assert!(writes.claim(7..8, false).is_some());
        drop((whole, part));
        assert!(writes.claim(6..7, true).is_some() && writes.claim(0..2, true).is_some());
    }
}
