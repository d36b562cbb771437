//! The host of a connection until it is trusted: its permit, its memory, and its time for Connect.

use std::fmt::Display;
use std::sync::Arc;

use server::{ConnectionPermit, UnauthenticatedShare, Wake};

use super::{End, Shared};
use crate::controller::Queue;

/// The host at the other end of a connection, whose address is an `A`.
pub(super) struct Guest<'a, A> {
    shared: &'a Shared,
    peer: A,
    permit: ConnectionPermit,
    began_ns: u64,
    has_announced_host: bool,
}

impl<'a, A: Display + Copy> Guest<'a, A> {
    /// A host that has not sent Connect. The time for it began at `began_ns`.
    pub(super) fn new(
        shared: &'a Shared,
        peer: A,
        permit: ConnectionPermit,
        began_ns: u64,
    ) -> Self {
        Self {
            shared,
            peer,
            permit,
            began_ns,
            has_announced_host: false,
        }
    }

    /// The state that the connection shares with others.
    pub(super) fn shared(&self) -> &'a Shared {
        self.shared
    }

    /// The memory that the host holds of that of all unauthenticated ones; `None` once it is authenticated.
    pub(super) fn memory(&self) -> Option<&Arc<UnauthenticatedShare>> {
        self.permit.memory()
    }

    /// Has the thread of the connection woken when another host needs the memory.
    pub(super) fn wake_when_displaced(&self, wake: &Arc<dyn Wake>) {
        if let Some(memory) = self.permit.memory() {
            let wake = Arc::clone(wake);
            memory.on_displaced(move || wake.wake());
        }
    }

    /// Notes whether the host is authenticated; returns whether it is so since the last call.
    pub(super) fn note_authenticated(&mut self, queue: &Queue) -> bool {
        queue.is_authenticated() && self.permit.mark_authenticated()
    }

    /// Checks that the connection may go on: no other host needs its memory, and its Connect came in time.
    /// `is_overdrawn` says that data arrived for which its memory did not suffice.
    pub(super) fn check_may_go_on(
        &mut self,
        queue: &Queue,
        is_overdrawn: bool,
        now_ns: u64,
    ) -> Result<(), End> {
        if self.permit.is_displaced() || is_overdrawn {
            return Err(End::Displaced);
        }
        if queue.is_trusted() {
            if !std::mem::replace(&mut self.has_announced_host, true) {
                self.shared.connected(queue, self.peer);
            }
        } else if now_ns - self.began_ns > self.shared.connect_timeout_ns() {
            return Err(End::ConnectTimeout);
        }
        Ok(())
    }
}
