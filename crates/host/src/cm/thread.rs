//! The thread that hears what peers say and runs the timers.

use super::{Owner, Shared};
use crate::clock;
use link::watch::Watch;
use rnic::Instant;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Runs until the connector is dropped or the agent is gone.
pub(super) fn run<O: Owner>(shared: &Shared<O>, watch: Option<&Watch>) {
    let mut timeout = None;
    let mut agent_is_there = true;
    while !shared.stop.load(Ordering::Acquire) {
        let mut changed = false;
        for ready in shared.epoll.wait(timeout) {
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
        if agent_is_there && !session.hear(now) {
            // Nobody can reach us any more; what is said now times out.
            agent_is_there = false;
            // It would be ready for ever.
            let _ = shared.epoll.remove(session.lines.connection.as_raw_fd());
        }
        if session.lines.grace.next_timeout().is_some_and(|at| at <= now) {
            let session = &mut *session;
            session.lines.replay(&mut session.cm, now);
        }
        session.cm.handle_timeout(now);
        session.settle(now);
        let next = session.next_timeout();
        session.wakes_at = next.unwrap_or(Instant(u64::MAX));
        timeout = next.map(|at| Duration::from_nanos((at - clock::now()).0));
    }
}
