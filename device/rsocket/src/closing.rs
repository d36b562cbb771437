//! How far a connection is closed, and by which end.

/// How the connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The peer closed it.
    Orderly,
    /// The queue pair failed.
    Broken,
}

/// The directions that are still open, and the end of the connection.
#[derive(Debug)]
pub(super) struct Closing {
    /// Whether the peer may send; the next field: whether this end may.
    readable: bool,
    writable: bool,
    ended: Option<End>,
    /// The connection manager has reported DISCONNECTED.
    peer_is_gone: bool,
}

impl Closing {
    /// Both directions are open.
    pub(super) const fn new() -> Self {
        Self {
            readable: true,
            writable: true,
            ended: None,
            peer_is_gone: false,
        }
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// How the connection ended, if it has.
    pub(super) fn ended(&self) -> Option<End> {
        self.ended
    }

    /// The program shuts down receiving.
    pub(super) fn stop_reading(&mut self) {
        self.readable = false;
    }

    /// The program shuts down sending.
    pub(super) fn stop_writing(&mut self) {
        self.writable = false;
    }

    /// The peer has shut down sending, which ends the connection if this end did so before.
    pub(super) fn peer_stopped_writing(&mut self) {
        if self.writable {
            self.readable = false;
        } else {
            self.end(End::Orderly);
        }
    }

    /// Records how the connection ended; the first reason is kept.
    pub(super) fn end(&mut self, how: End) {
        self.ended.get_or_insert(how);
        self.readable = false;
        self.writable = false;
    }

    /// The connection manager has reported DISCONNECTED: what was sent and is not acknowledged never will be.
    /// Without this, closing would wait until its time-out, because a connection that has ended in an orderly
    /// way stays so when its queue pair has used up its retries.
    pub(super) fn peer_disconnected(&mut self) {
        self.peer_is_gone = true;
        self.end(End::Orderly);
    }

    /// Whether the peer may still acknowledge what was sent.
    pub(super) fn may_be_acknowledged(&self) -> bool {
        self.ended != Some(End::Broken) && !self.peer_is_gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_closed_acknowledges_until_it_is_disconnected() {
        let mut closing = Closing::new();
        closing.end(End::Orderly);
        assert!(closing.may_be_acknowledged());
        closing.peer_disconnected();
        closing.end(End::Broken);
        assert_eq!(
            (closing.ended(), closing.may_be_acknowledged()),
            (Some(End::Orderly), false)
        );
    }

    #[test]
    fn a_connection_ends_when_both_ends_have_shut_down_sending() {
        let mut closing = Closing::new();
        closing.peer_stopped_writing();
        assert_eq!(
            (
                closing.is_readable(),
                closing.is_writable(),
                closing.ended()
            ),
            (false, true, None)
        );
        closing.stop_writing();
        closing.peer_stopped_writing();
        assert_eq!(closing.ended(), Some(End::Orderly));
    }
}
