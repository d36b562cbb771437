//! The private data with which an RDMA connection is made (RDMA transport 1.0, 2.2).

use crate::layout::layouts;

layouts! {
    /// In the request.
    Request[32] {
        /// Record format: 0.
        format: u16 = 0;
        /// The queue that this connection is going to be.
        queue_id: u16 = 2;
        /// Entries of the host's receive queue: unlike `send_size` the full number.
        receive_size: u16 = 4;
        /// Entries of the host's send queue, less one.
        send_size: u16 = 6;
        /// The controller; 0xffff before there is one.
        controller_id: u16 = 8;
    }
    /// In the reply.
    Accept[32] {
        /// Record format: 0.
        format: u16 = 0;
        /// Entries of the controller's receive queue.
        receive_size: u16 = 2;
    }
    /// In the rejection.
    Reject[4] {
        /// Record format: 0.
        format: u16 = 0;
        /// Why: one of [`RejectStatus`].
        status: u16 = 2;
    }
}

/// Why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RejectStatus {
    /// The private data are too short or too long.
    Length = 1,
    /// The record format is unknown.
    Format = 2,
    /// The queue id is wrong.
    QueueId = 3,
    /// The host's receive queue is too small.
    ReceiveSize = 4,
    /// The host's send queue is too small or too large.
    SendSize = 5,
    /// The target has no resources for the connection.
    Resources = 6,
    /// The initiator depth is wrong.
    InitiatorDepth = 7,
    /// The controller id is wrong.
    ControllerId = 8,
}
