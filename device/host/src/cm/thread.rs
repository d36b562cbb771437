//! The thread that handles the datagrams of peers and runs the timers.

use super::{Owner, Shared};
use crate::progress::clock;
use link::watch::Watch;
use rnic::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Runs until the connector is dropped. After a panic, which the next lock handles, it continues; after the
/// second one it ends.
pub(super) fn run<O: Owner>(shared: &Shared<O>, watch: Option<&Watch>) {
    let mut agent_is_there = true;
    for _ in 0..2 {
        if catch_unwind(AssertUnwindSafe(|| {
            serve(shared, watch, &mut agent_is_there)
        }))
        .is_ok()
        {
            break;
        }
    }
    shared.requests.close();
}

fn serve<O: Owner>(shared: &Shared<O>, watch: Option<&Watch>, agent_is_there: &mut bool) {
    // At once first: after a panic, timers may be due.
    let mut timeout = Some(Duration::ZERO);
    while !shared.stop.load(Ordering::Acquire) {
        let mut changed = false;
        for ready in shared.epoll.wait_fds(timeout) {
            changed |= watch.is_some_and(|watch| watch.raw() == ready && watch.has_changes());
        }
        shared.wake.clear();
        let mut session = shared.lock();
        let now = clock::now();
        if changed {
            let session = &mut *session;
            session.lines.follow(&mut session.cm);
            session.owner.devices_changed(&session.lines.devices);
        }
        if *agent_is_there && !session.hear(now) {
            // Peers cannot reach this process any more; messages that are sent now time out.
            *agent_is_there = false;
            shared.requests.close();
            // A closed connection is always ready, which would wake this thread without end.
            let _ = shared.epoll.remove(session.lines.connection());
        }
        if session
            .lines
            .grace
            .next_timeout()
            .is_some_and(|at| at <= now)
        {
            let session = &mut *session;
            session.lines.replay(&mut session.cm, now);
        }
        session.cm.handle_timeout(now);
        session.deliver_pending(now);
        let next = session.next_timeout();
        session.wakes_at = next.unwrap_or(Instant(u64::MAX));
        timeout = next.map(|at| clock::real(at - clock::now()));
    }
}
