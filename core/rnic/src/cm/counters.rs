//! Counters of the connection manager, with the names that Linux uses (such as `cm_tx_msgs`) where it has
//! one.

use wire::cm::CmMessage;

/// Number of message types.
const MESSAGES: usize = CmMessage::ATTRIBUTES.len();

/// A count for each message, in the order of [`CmMessage::ATTRIBUTES`]: REQ first, APR last.
pub type MessageCounts = [u64; MESSAGES];

/// Counters since the connection manager was created.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CmCounters {
    /// Messages sent, repeated ones included.
    pub sent: MessageCounts,
    /// Messages sent again by a timer.
    pub retried: MessageCounts,
    /// Messages received that parse.
    pub received: MessageCounts,
    /// Messages received that were known already.
    pub duplicates: MessageCounts,
    /// Datagrams received that are not connection management's: see [`wire::mad::MadError`].
    pub malformed: u64,
    /// Messages dropped because the connection's state does not accept them.
    pub unexpected: u64,
    /// Messages dropped because no connection has that ID and that peer.
    pub unknown: u64,
    /// Requests dropped because a backlog was full.
    pub backlog_full: u64,
    /// Requests dropped because there are too many connections.
    pub table_full: u64,
    /// Messages that were not sent because too many waited to be sent.
    pub transmit_full: u64,
}

impl CmCounters {
    /// Index of a message type in [`MessageCounts`].
    pub(super) fn index(attribute: u16) -> usize {
        CmMessage::ATTRIBUTES
            .iter()
            .position(|it| *it == attribute)
            .unwrap_or(0)
    }
}
