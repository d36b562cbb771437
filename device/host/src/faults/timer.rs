//! Things that faults do later: one thread for all of them, which exists only where there are some.

use crate::log::HOST;
use crate::sys::process;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Task = Box<dyn FnOnce() + Send>;

/// What is to be done, by time and order.
pub(super) struct Tasks {
    by_time: BTreeMap<(Instant, u64), Task>,
    added: u64,
    /// The process that the thread runs in: the child of a fork has none.
    thread_of: Option<u32>,
}

static TASKS: Mutex<Tasks> = Mutex::new(Tasks {
    by_time: BTreeMap::new(),
    added: 0,
    thread_of: None,
});
static NEWS: Condvar = Condvar::new();

/// The tasks, locked.
pub(super) type Held = MutexGuard<'static, Tasks>;

/// Locks the tasks, for a fork: the child must not inherit them locked by another thread.
pub(super) fn hold() -> Held {
    tasks()
}

fn tasks() -> MutexGuard<'static, Tasks> {
    TASKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something after a time, in a thread of its own. If the system permits no thread, it is not done, and
/// the log says so.
pub fn after(time: Duration, task: impl FnOnce() + Send + 'static) {
    let mut all = tasks();
    let own = std::process::id();
    if all.thread_of != Some(own) {
        // What a parent had to do is the parent's.
        all.by_time.clear();
        if let Err(error) = process::spawn_quiet("rockery-faults", run) {
            tracing::warn!(target: HOST, "no thread for faults that happen later: {error}");
            return;
        }
        all.thread_of = Some(own);
    }
    all.added += 1;
    let key = (Instant::now() + time, all.added);
    all.by_time.insert(key, Box::new(task));
    NEWS.notify_all();
}

fn run() {
    let mut all = tasks();
    loop {
        let first = all.by_time.first_key_value().map(|(key, _)| *key);
        let now = Instant::now();
        all = match first {
            None => NEWS.wait(all).unwrap_or_else(PoisonError::into_inner),
            Some((due, _)) if due > now => {
                let (all, _) = NEWS
                    .wait_timeout(all, due - now)
                    .unwrap_or_else(PoisonError::into_inner);
                all
            }
            Some(key) => {
                let task = all.by_time.remove(&key);
                drop(all);
                task.into_iter().for_each(|task| task());
                tasks()
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn tasks_are_done_in_the_order_of_their_times() {
        let (sender, receiver) = channel();
        for number in [3_u64, 1, 2] {
            let sender = sender.clone();
            after(Duration::from_millis(50 * number), move || {
                sender.send(number).unwrap();
            });
        }
        let done: Vec<u64> = receiver.iter().take(3).collect();
        assert_eq!(done, [1, 2, 3]);
    }
}
