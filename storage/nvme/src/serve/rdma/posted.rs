//! The receives that an RDMA connection posts: their number, their charge, and their return.

use std::io;

use super::super::receives::{RECEIVE_BYTES, capsule, post_receive, post_shared, sizes};
use super::Driver;
use crate::limits::{ADMIN_ENTRIES, RECEIVES_OF_GUESTS};

impl Driver<'_> {
    /// Posts receives for the commands that the host may send when Connect and authentication are complete,
    /// before it gets that response. If the budget does not allow all of them, further ones follow when
    /// other connections return memory.
    pub(super) fn receive_more(&mut self) -> io::Result<()> {
        if !self.queue.is_trusted() {
            return Ok(());
        }
        self.note_authenticated();
        if let Some(receives) = self.receives.clone() {
            // Broken connections may have kept some of the shared receives: the queue is filled up.
            for _ in 0..if self.has_filled_shared {
                0
            } else {
                receives.room()
            } {
                post_shared(&receives, capsule(self.connection.domain())?)?;
            }
            self.has_filled_shared = true;
            return Ok(());
        }
        while self.posted < self.receives_wanted() && self.charge_receive() {
            let buffer = capsule(self.connection.domain())?;
            post_receive(&mut self.connection, None, buffer)?;
            self.posted += 1;
        }
        Ok(())
    }

    /// Receives for the commands that the host may have outstanding, and for one batch more, because used
    /// receives are posted again after the responses. A host that is not authenticated sends few commands to
    /// its admin queue, and further ones wait at the sender (RNR).
    fn receives_wanted(&self) -> usize {
        let is_admin = self.queue.id() == Some(0);
        let entries = self.entries.min(self.queue.depth());
        let entries = if is_admin {
            entries.min(ADMIN_ENTRIES)
        } else {
            entries
        };
        let wanted = sizes(entries).receive as usize;
        if is_admin && self.guest.memory().is_some() {
            wanted.min(RECEIVES_OF_GUESTS)
        } else {
            wanted
        }
    }

    /// Charges one more receive to the budget that the host belongs to.
    fn charge_receive(&mut self) -> bool {
        match self.guest.memory() {
            Some(memory) => memory.grow(RECEIVE_BYTES),
            None => self.receive_charge.grow(RECEIVE_BYTES),
        }
    }

    /// Posts the used receives again, after the responses, whose latency counts. Until then one batch of
    /// receives more is posted than the host may send commands.
    pub(super) fn receive_again(&mut self) -> io::Result<()> {
        for buffer in self.taken.drain(..) {
            post_receive(&mut self.connection, self.receives.as_deref(), buffer)?;
        }
        Ok(())
    }
}

impl Drop for Driver<'_> {
    /// Fills up the shared receives: this connection has kept those whose commands it did not finish, and the
    /// other connections may have no further one. Before its host was trusted it could keep no more than were
    /// posted for it.
    fn drop(&mut self) {
        let Some(receives) = self.receives.as_deref().filter(|_| self.has_filled_shared) else {
            return;
        };
        let kept = self
            .taken
            .drain(..)
            .chain(self.in_place.drain(..).map(|command| command.capsule));
        let fresh = std::iter::from_fn(|| capsule(receives.domain()).ok());
        for buffer in kept.chain(fresh).take(receives.room()) {
            if post_shared(receives, buffer).is_err() {
                return;
            }
        }
    }
}
