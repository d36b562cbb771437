//! Completion queues that meet faults.

use crate::completion_events;
use crate::cq::{self, Cq, CqArg};
use crate::cq_ex::{Polled, begin_poll, make_current};
use crate::faulty::judge::{device_of, meet};
use crate::faulty::late;
use crate::traced;
use abi::{ibv_poll_cq_attr, ibv_wc};
use faults::{Occasion, Point};
use ffi::{Errno, In, exports};
use rnic::{Completion, Status};

/// The fault of a call on a completion queue.
fn call(queue: &Cq, point: Point) -> Result<(), Errno> {
    let device = device_of(&queue.context);
    let occasion = Occasion {
        device: device.as_deref(),
        ..Occasion::at(point)
    };
    meet(point, &occasion)
}

/// Makes the next completion the current one, unless the call fails.
fn advance(queue: Polled<'_>) -> i32 {
    if host::faults::interest().polls
        && let Err(errno) = call(&queue, Point::Call("poll_cq"))
    {
        return errno.0;
    }
    match take(&queue, 1, |completion| make_current(queue, completion)) {
        0 => libc::ENOENT,
        _ => 0,
    }
}

/// Polls, and writes what was found to the trace if there is one.
fn take(queue: &Cq, most: usize, mut give: impl FnMut(&Completion)) -> usize {
    if !traced::is_on() {
        return late::poll(queue, most, give);
    }
    let mut failed = None;
    let count = late::poll(queue, most, |completion| {
        traced::completed(queue.handle, completion);
        if completion.status != Status::Success {
            failed.get_or_insert(*completion);
        }
        give(completion);
    });
    // Outside of the poll, which holds the lock of the device.
    failed
        .iter()
        .for_each(|completion| traced::state_behind(&queue.context.device, completion));
    count
}

exports! {
    /// Returns the number of completions, or a negative error number.
    fn poll_cq(queue: CqArg<'_>, most: i32, completions: *mut ibv_wc) -> plain(i32) {
        let (Ok(queue), Ok(most)) = (queue.get(), usize::try_from(most)) else { return -libc::EINVAL };
        if host::faults::interest().polls
            && let Err(errno) = call(queue, Point::Call("poll_cq"))
        {
            return -errno.0;
        }
        let mut next = completions;
        take(queue, most, |completion| {
            // SAFETY: the caller has room for `most` completions, and no more than that are written.
            unsafe { cq::write(&mut next, completion) };
        }) as i32
    }

    fn req_notify_cq(queue: CqArg<'_>, solicited_only: i32) -> plain(i32) {
        if host::faults::interest().notifications
            && let Some(found) = queue.optional()
            && let Err(errno) = call(found, Point::Call("req_notify_cq"))
        {
            errno.set();
            return errno.0;
        }
        // SAFETY: the program's queue, as the manual page asks.
        unsafe { completion_events::req_notify_cq(queue.raw(), solicited_only) }
    }

    fn start_poll(queue: Polled<'_>, attr: In<'_, *mut ibv_poll_cq_attr>) -> plain(i32) {
        begin_poll(queue, &attr, advance)
    }

    fn next_poll(queue: Polled<'_>) -> plain(i32) {
        advance(queue)
    }
}
