//! Completions that are reported late. They wait here, outside of the device: each in its place among those
//! of its queue pair, whose order an adapter keeps.

use ffi::lock;
use rnic::Completion;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::Qpn;

/// A completion and the time at which it may be reported.
struct Held {
    due: Instant,
    completion: Completion,
}

/// The completions that wait, by the address of their queue.
static HELD: Mutex<Option<HashMap<usize, VecDeque<Held>>>> = Mutex::new(None);
/// How many wait.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether no completion waits, in any queue.
pub(crate) fn is_empty() -> bool {
    COUNT.load(Ordering::Relaxed) == 0
}

/// Passes the completions of a queue whose time has come to `take`, at most so many; returns how many.
pub(crate) fn release(queue: usize, most: usize, take: &mut impl FnMut(&Completion)) -> usize {
    let (now, mut taken) = (Instant::now(), 0);
    let _inside = host::enter();
    let mut all = lock(&HELD);
    let Some(waiting) = all.as_mut().and_then(|all| all.get_mut(&queue)) else {
        return 0;
    };
    waiting.retain(|held| {
        // Those of a queue pair have times that do not fall: its order stays.
        let is_due = held.due <= now && taken < most;
        if is_due {
            take(&held.completion);
            taken += 1;
        }
        !is_due
    });
    COUNT.fetch_sub(taken, Ordering::Relaxed);
    taken
}

/// Holds a completion back, for a time or behind another one of its queue pair; returns for how long. `None`
/// for one that may be reported now.
pub(crate) fn hold(
    queue: usize,
    completion: Completion,
    time: Option<Duration>,
) -> Option<Duration> {
    let _inside = host::enter();
    let mut all = lock(&HELD);
    let waiting = all.get_or_insert_default().entry(queue).or_default();
    let is_same = |held: &&Held| held.completion.qpn == completion.qpn;
    let before = waiting.iter().rfind(is_same).map(|held| held.due);
    let now = Instant::now();
    let due = match (before, time) {
        (None, None) => return None,
        (before, time) => before.unwrap_or(now).max(now + time.unwrap_or_default()),
    };
    waiting.push_back(Held { due, completion });
    COUNT.fetch_add(1, Ordering::Relaxed);
    Some(due - now)
}

/// Drops the completions of a queue that is destroyed.
pub(crate) fn forget_queue(queue: usize) {
    forget(|key, _| key == queue);
}

/// Drops the completions of a queue pair that is reset or destroyed, in its two queues.
pub(crate) fn forget_qp(queues: [usize; 2], qpn: Qpn) {
    forget(|key, held| queues.contains(&key) && held.completion.qpn == qpn);
}

fn forget(is_gone: impl Fn(usize, &Held) -> bool) {
    if is_empty() {
        return;
    }
    let _inside = host::enter();
    for (key, waiting) in lock(&HELD).iter_mut().flatten() {
        let before = waiting.len();
        waiting.retain(|held| !is_gone(*key, held));
        COUNT.fetch_sub(before - waiting.len(), Ordering::Relaxed);
    }
}
