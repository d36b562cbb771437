//! What calls on the data path ask the rules.

use crate::context::Context;
use crate::qp::Qp;
use core::net::IpAddr;
use faults::{Action, Occasion, Point};
use ffi::{Errno, Subject, errno_of};

/// Lets a fault of a call on the data path happen, before the call takes a lock.
pub(super) fn meet(point: Point, occasion: &Occasion<'_>) -> Result<(), Errno> {
    let occasion = Occasion { point, ..*occasion };
    host::faults::decide(&occasion, Action::is_of_call)
        .map_or(Ok(()), |decision| errno_of(decision, &occasion))
}

/// Whether an action decides how a request completes.
pub(super) fn is_status(action: Action) -> bool {
    matches!(action, Action::Status(_))
}

/// The name of the device of a context.
pub(super) fn device_of(context: &Context) -> Option<String> {
    let mut subject = Subject::default();
    context.describe(&mut subject);
    subject.device
}

/// The address of a queue pair's peer, if a rule has to know it.
pub(super) fn peer_of(queue: &Qp) -> Option<IpAddr> {
    if !host::faults::interest().peer {
        return None;
    }
    let device = &queue.context.device;
    let (attr, _) = device.with(|rnic, _| rnic.query_qp(queue.qpn)).ok()?;
    let address = IpAddr::from(attr.vector.destination.0).to_canonical();
    (!address.is_unspecified()).then_some(address)
}
