//! What is counted, by the names that Linux has for it (`cm_tx_msgs` and its neighbours) where it has one.

use wire::cm::CmMessage;

/// How many messages there are.
const MESSAGES: usize = CmMessage::ATTRIBUTES.len();

/// A count for each message, in the order of [`CmMessage::ATTRIBUTES`]: REQ first, APR last.
pub type MessageCounts = [u64; MESSAGES];

/// Since the beginning.
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
    /// Messages dropped because the connection's state does not have them.
    pub unexpected: u64,
    /// Messages dropped because no connection of that name has that peer.
    pub unknown: u64,
    /// Requests dropped because a backlog was full.
    pub backlog_full: u64,
    /// Requests dropped because there are too many connections.
    pub table_full: u64,
    /// Messages that were not sent because too many waited.
    pub transmit_full: u64,
}

impl CmCounters {
    /// The place of a message in [`MessageCounts`].
    pub(super) fn index(attribute: u16) -> usize {
        CmMessage::ATTRIBUTES.iter().position(|it| *it == attribute).unwrap_or(0)
    }
}
