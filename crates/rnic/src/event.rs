//! What the device tells its driver unasked: completion events and asynchronous events (IBTA 11.6.3).

use crate::handle::{Cq, Srq};
use wire::Qpn;

/// Taken with [`crate::Device::poll_event`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An armed completion queue got the completion that it waited for; it is disarmed now.
    Completion(Cq),
    /// A completion queue overran: it lost a completion and is of no more use.
    CqError(Cq),
    /// The queue pair went to the error state because of an error that no completion reports.
    QpFatal(Qpn),
    /// A request was malformed (responder side; the queue pair is in the error state).
    QpRequestError(Qpn),
    /// A request had a bad key, range or right (responder side; the queue pair is in the error state).
    QpAccessError(Qpn),
    /// The first packet arrived on a queue pair that is ready to receive but not to send.
    CommunicationEstablished(Qpn),
    /// The send queue drained after the change to SQD.
    SendQueueDrained(Qpn),
    /// The last work request of a queue pair with an SRQ was flushed.
    LastWqeReached(Qpn),
    /// An SRQ fell below its limit; the limit is disarmed.
    SrqLimitReached(Srq),
    /// An SRQ failed.
    SrqError(Srq),
    /// The port came up. The device's driver knows, and says so with [`crate::Device::set_port_active`].
    PortActive,
    /// The port went down.
    PortError,
    /// The GID table changed after birth.
    GidChange,
    /// The device is gone for good, and everything on it. The driver knows, and says so with
    /// [`crate::Device::set_removed`].
    DeviceFatal,
}
