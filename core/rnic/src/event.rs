//! Events that the device reports to its driver: completion events and asynchronous events (IBTA 11.6.3).

use crate::handle::{Cq, Srq};
use wire::Qpn;

/// An event, taken with [`crate::Device::poll_event`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An armed completion queue got the completion that it waited for; it is disarmed now.
    Completion(Cq),
    /// A completion queue overran: it lost a completion and cannot be used any more.
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
    /// The port came up. The driver reports it with [`crate::PortMut::set_active`].
    PortActive,
    /// The port went down.
    PortError,
    /// The GID table changed after the creation of the device.
    GidChange,
    /// InfiniBand: the manager has changed the port's LID or the number of its paths.
    LidChange,
    /// InfiniBand: the manager has changed the table of partition keys.
    PartitionChange,
    /// InfiniBand: the LID or the service level of the manager has changed.
    ManagerChange,
    /// InfiniBand: the manager asks to register again for groups and services.
    ClientReregister,
    /// The device was removed, or has failed ([`crate::Device::fail`]): its objects cannot be used any more.
    /// The driver reports a removal with [`crate::PortMut::set_removed`].
    DeviceFatal,
}
