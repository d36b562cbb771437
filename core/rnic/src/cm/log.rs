//! Log events of the connection manager: messages sent, received and repeated, and requests without an
//! answer.

use super::CmState;
use crate::address::{Arrival, Path};
use tracing::{debug, info};
use wire::cm::{CmMad, CmMessage, CommId};

/// The target of these events.
const TARGET: &str = "cm";

/// A message has arrived.
pub(super) fn received(arrival: &Arrival, mad: &CmMad) {
    let message = name(mad.message.attribute());
    let (from, to) = (arrival.source, arrival.destination);
    match &mad.message {
        CmMessage::Rej(rej) => {
            info!(target: TARGET, message, %from, %to, reason = rej.reason.0, "received: rejected");
        }
        _ => debug!(target: TARGET, message, %from, %to, "received"),
    }
}

/// A message is about to be sent.
pub(super) fn sent(attribute: u16, path: &Path) {
    let (from, to) = (path.source, path.destination);
    debug!(target: TARGET, message = name(attribute), %from, %to, "sent");
}

/// A message is sent again because no answer came in time.
pub(super) fn repeated(id: CommId, attribute: u16, path: &Path) {
    let to = path.destination;
    debug!(target: TARGET, message = name(attribute), id = id.0, %to, "no answer in time: sent again");
}

/// The peer did not answer any of the repetitions.
pub(super) fn unanswered(id: CommId, state: CmState) {
    info!(target: TARGET, id = id.0, ?state, "the peer did not answer: the connection ends");
}

/// The name of a message (IBTA table 105).
fn name(attribute: u16) -> &'static str {
    match attribute {
        0x10 => "REQ",
        0x11 => "MRA",
        0x12 => "REJ",
        0x13 => "REP",
        0x14 => "RTU",
        0x15 => "DREQ",
        0x16 => "DREP",
        0x17 => "SIDR_REQ",
        0x18 => "SIDR_REP",
        0x19 => "LAP",
        0x1a => "APR",
        _ => "unknown",
    }
}
