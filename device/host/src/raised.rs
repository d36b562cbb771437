//! Events that rules of faults raise on an open device, with what they mean for its objects.

use crate::faults::{self, Raise};
use crate::interface::DeviceInfo;
use crate::progress::clock;
use crate::progress::shared::Shared;
use ::faults::EventKind;
use rnic::{Event, Instant};
use std::sync::Arc;
use wire::Qpn;

/// An open device that rules may raise events on, until this is dropped.
pub(crate) struct Raisable(Raise);

impl std::fmt::Debug for Raisable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Raisable")
    }
}

impl Raisable {
    /// Registers a device, if this process meets faults.
    pub(crate) fn register(info: &DeviceInfo, shared: &Arc<Shared>) -> Option<Self> {
        if !faults::is_on() {
            return None;
        }
        let device = Arc::downgrade(shared);
        let raise: Raise = Arc::new(move |event, queue_pair| {
            if let Some(shared) = device.upgrade() {
                raise_on(&shared, event, queue_pair);
            }
        });
        faults::opened(&info.name, info.ifindex, Arc::clone(&raise));
        Some(Self(raise))
    }
}

impl Drop for Raisable {
    fn drop(&mut self) {
        faults::closed(&self.0);
    }
}

fn raise_on(shared: &Shared, event: EventKind, queue_pair: Option<u32>) {
    let now = clock::now();
    let mut pump = shared.lock();
    pump.transmit(now);
    change(&mut pump.rnic, event, queue_pair, now);
    pump.schedule.batching.note_away();
    pump.transmit(now);
    shared.finish(pump, now);
}

/// Lets a device have what the event reports.
fn change(rnic: &mut rnic::Device, event: EventKind, queue_pair: Option<u32>, now: Instant) {
    let queue_pairs = match queue_pair {
        Some(number) => vec![Qpn::new(number)],
        None => rnic.qpns(),
    };
    match event {
        EventKind::PortErr => rnic.port_mut().set_active(false),
        EventKind::PortActive => rnic.port_mut().set_active(true),
        EventKind::DeviceFatal => rnic.fail(now),
        EventKind::GidChange => rnic.report_gid_change(),
        EventKind::QpFatal | EventKind::QpReqErr | EventKind::QpAccessErr => {
            for qpn in queue_pairs {
                let event = match event {
                    EventKind::QpFatal => Event::QpFatal(qpn),
                    EventKind::QpReqErr => Event::QpRequestError(qpn),
                    _ => Event::QpAccessError(qpn),
                };
                // An error means that there is no such queue pair any more.
                let _ = rnic.fail_qp(qpn, event, now);
            }
        }
        EventKind::CqErr | EventKind::SrqLimitReached => {
            for qpn in queue_pairs {
                let Ok((_, init)) = rnic.query_qp(qpn) else {
                    continue;
                };
                match event {
                    EventKind::CqErr => init.send_cq.into_iter().for_each(|cq| rnic.fail_cq(cq)),
                    _ => init
                        .srq
                        .into_iter()
                        .for_each(|srq| rnic.report_srq_limit(srq)),
                }
            }
        }
    }
}
