//! Which hosts Preempt and Abort has preempted: their commands of before it are aborted where they wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::limits::REGISTRANTS_MAX;

type Host = [u8; 16];

/// The number of Preempt and Abort commands that a namespace had when a command arrived.
pub(crate) type Mark = u64;

/// The hosts that Preempt and Abort commands have preempted.
#[derive(Debug, Default)]
pub(crate) struct Aborted {
    count: AtomicU64,
    hosts: Mutex<Hosts>,
}

#[derive(Debug, Default)]
struct Hosts {
    /// By host, the number of the last command that preempted it.
    last: BTreeMap<Host, u64>,
    /// The last number that left `last` when that was full: every host counts as preempted by it.
    forgotten: u64,
}

impl Aborted {
    /// The mark of a command that arrives.
    pub(crate) fn mark(&self) -> Mark {
        self.count.load(Ordering::SeqCst)
    }

    /// Aborts the commands of these hosts that have arrived.
    pub(crate) fn add(&self, preempted: impl IntoIterator<Item = Host>) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.count.load(Ordering::SeqCst) + 1;
        hosts
            .last
            .extend(preempted.into_iter().map(|host| (host, number)));
        while hosts.last.len() > REGISTRANTS_MAX
            && let Some((oldest, number)) = hosts.last.iter().min_by_key(|(_, number)| **number)
        {
            let (oldest, number) = (*oldest, *number);
            hosts.last.remove(&oldest);
            hosts.forgotten = number;
        }
        self.count.store(number, Ordering::SeqCst);
    }

    /// Whether a command of a host was aborted since it arrived.
    pub(crate) fn has(&self, host: &Host, mark: Mark) -> bool {
        if self.count.load(Ordering::SeqCst) == mark {
            return false;
        }
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.last.get(host).is_some_and(|last| *last > mark) || hosts.forgotten > mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_preempted_hosts_are_aborted_if_they_came_before() {
        let aborted = Aborted::default();
        let before = aborted.mark();
        aborted.add([[1; 16]]);
        assert!(aborted.has(&[1; 16], before) && !aborted.has(&[2; 16], before));
        assert!(!aborted.has(&[1; 16], aborted.mark()));
    }

    #[test]
    fn the_number_of_hosts_is_limited() {
        let aborted = Aborted::default();
        let before = aborted.mark();
        let host = |number: u16| std::array::from_fn(|at| number.to_le_bytes()[at % 2]);
        (0..REGISTRANTS_MAX as u16 + 1).for_each(|number| aborted.add([host(number)]));
        assert_eq!(aborted.hosts.lock().unwrap().last.len(), REGISTRANTS_MAX);
        assert!(
            aborted.has(&host(0), before),
            "forgotten hosts count as preempted"
        );
        assert!(!aborted.has(&host(0), aborted.mark()));
    }
}
