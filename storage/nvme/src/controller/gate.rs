//! The gate of a medium. Each command passes it before its last check and leaves when its effect on the
//! medium is complete, so that Compare and Write can exclude changes, and a revoked right can wait for
//! commands that began before.
//!
//! A pass costs two atomic additions while nothing is excluded. Otherwise commands take turns in the order in
//! which they came, and sleep until theirs: neither changes nor exclusions can starve the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a command does to the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// The bytes stay as they are: reads, comparisons and flushes.
    Reads,
    /// The bytes change.
    Changes,
}

/// The commands that an exclusion waits for, and keeps out while it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// Commands that change the medium.
    Changes,
    /// Commands that change the medium, and those that only read it.
    All,
}

/// One command that reads, in [`Gate::word`].
const READ: u64 = 1;
/// One command that changes the medium.
const CHANGE: u64 = 1 << 30;
/// The largest count of each: more than all connections of a server can have outstanding.
const COUNT_MAX: u64 = CHANGE - 1;
/// Commands that change the medium take turns.
const CHANGES_WAIT: u64 = 1 << 62;
/// Commands that read take turns.
const READS_WAIT: u64 = 1 << 63;

impl Effect {
    const fn one(self) -> u64 {
        match self {
            Self::Reads => READ,
            Self::Changes => CHANGE,
        }
    }

    const fn waits(self) -> u64 {
        match self {
            Self::Reads => READS_WAIT,
            Self::Changes => CHANGES_WAIT,
        }
    }
}

impl Scope {
    const fn counts(self) -> u64 {
        match self {
            Self::Changes => COUNT_MAX * CHANGE,
            Self::All => (COUNT_MAX * CHANGE) | (COUNT_MAX * READ),
        }
    }
}

/// The gate of one namespace.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Counts of the commands that have passed and not left, and the flags that make further ones take turns.
    /// One word, so that of a command and an exclusion at least one sees the other.
    word: AtomicU64,
    turns: Mutex<Turns>,
    turned: Condvar,
}

/// Commands that take turns, numbered in the order in which they came.
#[derive(Debug, Default)]
struct Turns {
    next: u64,
    current: u64,
    /// Exclusions that wait or last: those of changes only, and those of all commands.
    of_changes: usize,
    of_all: usize,
}

impl Turns {
    fn flags(&self) -> u64 {
        match (self.of_all, self.of_changes) {
            (0, 0) => 0,
            (0, _) => CHANGES_WAIT,
            _ => CHANGES_WAIT | READS_WAIT,
        }
    }

    fn count(&mut self, scope: Scope) -> &mut usize {
        match scope {
            Scope::Changes => &mut self.of_changes,
            Scope::All => &mut self.of_all,
        }
    }
}

impl Gate {
    /// Passes the gate if nothing excludes the command; [`Gate::leave`] has to follow.
    #[inline]
    pub(super) fn try_pass(&self, effect: Effect) -> bool {
        let is_free = self.word.fetch_add(effect.one(), Ordering::SeqCst) & effect.waits() == 0;
        if !is_free {
            self.leave(effect);
        }
        is_free
    }

    /// Waits for the turn of the command, and passes; [`Gate::leave`] has to follow. The thread must not have
    /// passed any gate already: an exclusion may wait for that command.
    pub(super) fn pass(&self, effect: Effect) {
        let mut turns = self.await_turn(self.lock());
        self.word.fetch_add(effect.one(), Ordering::SeqCst);
        self.end_turn(&mut turns);
    }

    /// Notes that a command which passed has had its effect.
    #[inline]
    pub(super) fn leave(&self, effect: Effect) {
        let before = self.word.fetch_sub(effect.one(), Ordering::SeqCst);
        if before & (CHANGES_WAIT | READS_WAIT) != 0 {
            self.tell();
        }
    }

    /// Waits until all commands in `scope` that have passed have left, and keeps further ones out while the
    /// result lives. The thread must not have passed any gate.
    pub(super) fn exclude(&self, scope: Scope) -> Exclusion<'_> {
        let mut turns = self.lock();
        *turns.count(scope) += 1;
        self.word.fetch_or(turns.flags(), Ordering::SeqCst);
        let mut turns = self.await_turn(turns);
        while self.word.load(Ordering::SeqCst) & scope.counts() != 0 {
            turns = self
                .turned
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(turns);
        Exclusion { gate: self, scope }
    }

    /// The number of commands that have passed or wait, exclusions included.
    pub(super) fn in_flight(&self) -> u64 {
        let turns = self.lock();
        let word = self.word.load(Ordering::SeqCst);
        (word & COUNT_MAX) + ((word / CHANGE) & COUNT_MAX) + (turns.next - turns.current)
    }

    fn await_turn<'a>(&'a self, mut turns: MutexGuard<'a, Turns>) -> MutexGuard<'a, Turns> {
        let own = turns.next;
        turns.next += 1;
        while turns.current != own {
            turns = self
                .turned
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
        turns
    }

    fn end_turn(&self, turns: &mut Turns) {
        turns.current += 1;
        self.turned.notify_all();
    }

    #[cold]
    fn tell(&self) {
        // The lock: an exclusion that has seen the count before this change waits already.
        let _turns = self.lock();
        self.turned.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Commands that are kept out until this is dropped.
#[derive(Debug)]
pub(crate) struct Exclusion<'a> {
    gate: &'a Gate,
    scope: Scope,
}

impl Drop for Exclusion<'_> {
    fn drop(&mut self) {
        let mut turns = self.gate.lock();
        *turns.count(self.scope) -= 1;
        let waits = !turns.flags() & (CHANGES_WAIT | READS_WAIT);
        self.gate.word.fetch_and(!waits, Ordering::SeqCst);
        self.gate.end_turn(&mut turns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn an_exclusion_waits_for_its_scope_and_for_nothing_else() {
        let gate = Gate::default();
        assert!(gate.try_pass(Effect::Reads));
        let exclusion = gate.exclude(Scope::Changes);
        assert!(!gate.try_pass(Effect::Changes) && gate.try_pass(Effect::Reads));
        assert_eq!(gate.in_flight(), 3);
        drop(exclusion);
        assert!(gate.try_pass(Effect::Changes));
        [Effect::Reads, Effect::Reads, Effect::Changes]
            .into_iter()
            .for_each(|it| gate.leave(it));
        let exclusion = gate.exclude(Scope::All);
        assert!(!gate.try_pass(Effect::Changes) && !gate.try_pass(Effect::Reads));
        drop(exclusion);
        assert!(gate.try_pass(Effect::Reads));
        gate.leave(Effect::Reads);
        assert_eq!((gate.in_flight(), gate.word.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn commands_take_turns_in_the_order_in_which_they_came() {
        let gate = Gate::default();
        let (order, came) = channel();
        assert!(gate.try_pass(Effect::Changes));
        thread::scope(|scope| {
            let queued = |count| {
                while gate.in_flight() != count {
                    thread::yield_now();
                }
            };
            for (index, excludes) in (0..).zip([true, false, true, false, false]) {
                let (gate, order) = (&gate, order.clone());
                scope.spawn(move || match excludes {
                    true => {
                        let _exclusion = gate.exclude(Scope::Changes);
                        order.send(index).unwrap();
                    }
                    false => {
                        gate.pass(Effect::Changes);
                        order.send(index).unwrap();
                        gate.leave(Effect::Changes);
                    }
                });
                queued(index + 2);
            }
            gate.leave(Effect::Changes);
        });
        let order: Vec<u64> = came.try_iter().collect();
        assert_eq!(order[..3], [0, 1, 2], "the last two pass together");
        assert_eq!((order.len(), gate.in_flight()), (5, 0));
    }

    #[test]
    fn an_exclusion_is_alone_among_many_threads() {
        const ROUNDS: u32 = 2000;
        let (gate, changing, sum) = (Gate::default(), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        if !gate.try_pass(Effect::Changes) {
                            gate.pass(Effect::Changes);
                        }
                        changing.fetch_add(1, Ordering::SeqCst);
                        changing.fetch_sub(1, Ordering::SeqCst);
                        gate.leave(Effect::Changes);
                    }
                });
            }
            for kind in [Scope::Changes, Scope::All] {
                let (gate, changing, sum) = (&gate, &changing, &sum);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let _exclusion = gate.exclude(kind);
                        assert_eq!(changing.load(Ordering::SeqCst), 0);
                        // No other exclusion changes the sum between the two.
                        let before = sum.load(Ordering::Relaxed);
                        sum.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 2 * ROUNDS);
        assert_eq!((gate.in_flight(), gate.word.into_inner()), (0, 0));
    }
}
