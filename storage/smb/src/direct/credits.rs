//! Send credits (MS-SMBD 3.1.5.1 and 3.1.5.9): each message takes a credit, which the receiving side grants
//! for a receive that it has posted.

/// The credits of both directions.
#[derive(Clone, Copy, Debug)]
pub struct Credits {
    /// Messages that this side may still send.
    send: u16,
    /// Receives that this side wants to have posted: as many as the peer requested, up to a limit.
    target: u16,
    /// Receives that are posted.
    posted: u16,
    /// Messages that the peer may still send; never more than are posted.
    granted: u16,
}

impl Credits {
    /// Before the sides have agreed: one receive, for the peer's negotiate message.
    pub(super) const fn for_negotiation() -> Self {
        Self {
            send: 0,
            target: 1,
            posted: 0,
            granted: 0,
        }
    }

    pub(super) const fn receives_to_post(&self) -> u16 {
        self.target.saturating_sub(self.posted)
    }

    pub(super) fn receives_posted(&mut self, count: u16) {
        self.posted = self.posted.saturating_add(count);
    }

    pub(super) fn set_target(&mut self, target: u16) {
        self.target = target;
    }

    /// The peer's negotiate message took the receive that was posted for it, which needs no credit.
    pub(super) fn consumed_by_negotiation(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// The peer's message took a receive. `None` when the peer had no credit for it.
    pub(super) fn consumed(&mut self) -> Option<()> {
        self.granted = self.granted.checked_sub(1)?;
        self.posted = self.posted.checked_sub(1)?;
        Some(())
    }

    pub(super) fn granted_by_peer(&mut self, count: u16) {
        self.send = self.send.saturating_add(count);
    }

    /// Receives that are posted and not granted.
    const fn grantable(&self) -> u16 {
        self.posted.saturating_sub(self.granted)
    }

    /// Whether a message may be sent: the last credit is kept for a message that grants credits, so that two
    /// sides cannot both be left without (MS-SMBD 3.1.5.1).
    pub(super) const fn may_send(&self) -> bool {
        self.send > 1 || (self.send == 1 && self.grantable() > 0)
    }

    /// Whether the peer can hardly send, and can be helped: a message without data is worth its while.
    pub(super) fn peer_is_short(&self) -> bool {
        self.grantable() > 0 && self.peer_has_few()
    }

    fn peer_has_few(&self) -> bool {
        self.granted <= (self.target / 4).max(1)
    }

    /// Takes a credit for a message, and returns how many that message grants. While the peer has enough, one
    /// is kept for the message that takes this side's last credit: a peer that grants nothing before it has
    /// received all that it granted gets that message too.
    pub(super) fn send(&mut self) -> u16 {
        self.send -= 1;
        let kept = u16::from(self.send > 0 && !self.peer_has_few());
        self.grant(self.grantable().saturating_sub(kept))
    }

    pub(super) fn grant_all(&mut self) -> u16 {
        self.grant(self.grantable())
    }

    fn grant(&mut self, count: u16) -> u16 {
        self.granted += count;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_credit_is_for_a_message_that_grants() {
        let mut credits = Credits {
            send: 2,
            target: 4,
            posted: 4,
            granted: 4,
        };
        assert!(credits.may_send());
        assert_eq!(credits.send(), 0);
        assert!(!credits.may_send());
        credits.consumed().unwrap();
        assert!(!credits.may_send(), "the receive is not posted again yet");
        credits.receives_posted(credits.receives_to_post());
        assert!(credits.may_send());
        assert_eq!((credits.send(), credits.send), (1, 0));
        assert!(!credits.may_send());
    }

    #[test]
    fn a_credit_is_kept_for_the_last_message_while_the_peer_has_enough() {
        let mut credits = Credits {
            send: 3,
            target: 8,
            posted: 8,
            granted: 6,
        };
        assert_eq!([credits.send(), credits.send(), credits.send()], [1, 0, 1]);
        assert!(!credits.may_send());
        let mut credits = Credits {
            send: 3,
            target: 8,
            posted: 8,
            granted: 2,
        };
        assert_eq!([credits.send(), credits.send()], [6, 0], "the peer has few");
        let mut credits = Credits {
            send: 2,
            target: 1,
            posted: 1,
            granted: 0,
        };
        assert_eq!(credits.send(), 1);
    }

    #[test]
    fn messages_without_a_credit_are_refused() {
        let mut credits = Credits {
            send: 3,
            target: 4,
            posted: 4,
            granted: 1,
        };
        assert!(credits.consumed().is_some());
        assert!(credits.consumed().is_none());
    }
}
