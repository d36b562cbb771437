//! Log events of a queue pair: state changes, retries, NAKs, failed requests. None of them is on the path of
//! a packet without errors.
//!
//! The functions are cold, and only read one atomic word unless the process has a subscriber for the event.

use super::attr::State;
use super::identity::Common;
use super::refusal::Refusal;
use crate::completion::Status;
use tracing::{debug, info};
use wire::Psn;

/// The target of these events.
const TARGET: &str = "rnic";

/// The queue pair changes its state.
#[cold]
pub(super) fn state(qp: &Common, to: State) {
    let (qpn, peer) = (qp.qpn.value(), qp.attr.destination.value());
    debug!(target: TARGET, qpn, peer, from = ?qp.state, ?to, "queue pair state");
}

/// The requester retransmits unacknowledged packets.
#[cold]
pub(super) fn retry(qp: &Common, retries: u8, why: &'static str) {
    let (qpn, peer) = (qp.qpn.value(), qp.attr.destination.value());
    let (limit, address) = (qp.attr.retry_count, qp.path.destination);
    debug!(target: TARGET, qpn, peer, %address, retries, limit, "retry: {why}");
}

/// The peer has answered with a NAK.
#[cold]
pub(super) fn peer_nak(qp: &Common, psn: Psn, what: &'static str) {
    let (qpn, peer) = (qp.qpn.value(), qp.attr.destination.value());
    debug!(target: TARGET, qpn, peer, psn = psn.value(), "NAK received: {what}");
}

/// The peer has no receive posted.
#[cold]
pub(super) fn receiver_not_ready(qp: &Common, psn: Psn, retries: u8) {
    let (qpn, peer) = (qp.qpn.value(), qp.attr.destination.value());
    let (psn, limit) = (psn.value(), qp.attr.rnr_retry);
    debug!(target: TARGET, qpn, peer, psn, retries, limit, "RNR NAK received: the peer posted no receive");
}

/// A send request completes with an error.
#[cold]
pub(super) fn request_failed(qp: &Common, status: Status) {
    let (qpn, peer) = (qp.qpn.value(), qp.attr.destination.value());
    let address = qp.path.destination;
    info!(target: TARGET, qpn, peer, %address, ?status, "send request failed");
}

/// The responder refuses a request of the peer with a fatal NAK.
#[cold]
pub(super) fn refused(qp: &Common, psn: Psn, refusal: Refusal) {
    let (qpn, peer) = (qp.qpn.value(), qp.attr.destination.value());
    info!(target: TARGET, qpn, peer, psn = psn.value(), "NAK sent: {}", refusal.reason());
}
