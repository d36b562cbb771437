//! Out-of-order receive, the completer's side: READ responses that arrived ahead of the one expected.

use alloc::collections::VecDeque;

/// Bitmap of the PSNs after the edge, up to the furthest packet that arrived.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    bits: VecDeque<bool>,
}

impl Arrived {
    /// Records that the PSN `distance` (1 or more) ahead of the edge arrived; false if it had before.
    pub(super) fn note_arrival(&mut self, distance: u32) -> bool {
        let index = distance as usize;
        if self.bits.len() <= index {
            self.bits.resize(index + 1, false);
        }
        !core::mem::replace(&mut self.bits[index], true)
    }

    /// Moves the edge by one; whether the PSN at the new edge had arrived.
    pub(super) fn step(&mut self) -> bool {
        self.bits.pop_front();
        self.bits.front().copied().unwrap_or(false)
    }

    pub(super) fn clear(&mut self) {
        self.bits.clear();
    }
}
