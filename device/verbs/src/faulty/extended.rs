//! Batches of the `ibv_wr_…` functions that meet faults.

use crate::faulty::send::{Verdict, judge, may_apply, send};
use crate::post::{PostedQueue, check_send};
use crate::qp_ex::{Built, batch};
use crate::traced;
use core::sync::atomic::Ordering;
use faults::QpKind;
use ffi::{Errno, exports};

/// Posts the requests of the batch, all or none.
fn post(queue: Built<'_>) -> Result<(), Errno> {
    let batch = batch(&queue);
    if let Some(errno) = batch.failure {
        return Err(errno);
    }
    batch.point_to_data();
    let mut requests = batch.requests.iter().map(|(wr, _)| wr);
    let sends = host::faults::interest().sends;
    // SAFETY: the lists are in this batch, the rest is the program's.
    let applies = requests
        .clone()
        .any(|wr| unsafe { may_apply(&queue, wr, sends) });
    let verdict = match applies {
        false => Verdict::default(),
        // SAFETY: the lists are in this batch, the rest is the program's.
        true => unsafe { judge(&queue, &mut requests) },
    };
    if let Some(errno) = verdict.refused {
        return Err(errno);
    }
    let posted = PostedQueue::of_qp(&queue);
    queue.context.device.post(|poster| {
        for (before, (wr, _)) in batch.requests.iter().enumerate() {
            // SAFETY: the lists are in this batch, the rest is the program's.
            unsafe { check_send(poster, posted, wr, before) }?;
        }
        let statuses = verdict
            .statuses
            .iter()
            .copied()
            .chain(core::iter::repeat(None));
        for ((wr, _), wanted) in batch.requests.iter().zip(statuses) {
            // SAFETY: the lists are in this batch, the rest is the program's.
            let posted = unsafe { send(poster, &queue, wr, wanted) };
            if traced::is_on() {
                let is_datagram = queue.fault_kind() == QpKind::Ud;
                // SAFETY: the lists are in this batch, the rest is the program's.
                unsafe { traced::sent(queue.qpn, is_datagram, wr, &posted) };
            }
            posted?;
        }
        Ok(())
    })
}

exports! {
    fn wr_complete(queue: Built<'_>) -> code(i32) {
        let answer = post(queue);
        queue.building.store(false, Ordering::Release);
        answer
    }
}
