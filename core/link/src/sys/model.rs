//! Model of the two sides of a ring's flags (`flags.rs`), and of the grants that a peer reads
//! (`sequence_lock.rs`), in every execution that the memory model allows,
//! with a limited number of preemptions: loom executes the functions, with its words in place of the
//! processor's. A lost wake-up is a deadlock, which loom reports, and so is an unordered access.
//!
//! Each property also has tests without a fence or without an order, which have to fail: they show that the
//! model finds the fault that the fence prevents.

use super::flags::{self, Word};
use super::sequence_lock;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Notify};
use loom::thread;
use std::sync::atomic::Ordering;

/// Memory ordering of a word: as requested, or weakened.
trait Order {
    const FENCES: bool;
    const ORDERS: bool;
}

/// Accesses and fences as in production.
struct Kept;
impl Order for Kept {
    const FENCES: bool = true;
    const ORDERS: bool = true;
}

/// Fences have no effect.
struct Unfenced;
impl Order for Unfenced {
    const FENCES: bool = false;
    const ORDERS: bool = true;
}

/// Every access is relaxed.
struct Relaxed;
impl Order for Relaxed {
    const FENCES: bool = true;
    const ORDERS: bool = false;
}

struct Modeled<O>(AtomicU32, std::marker::PhantomData<fn() -> O>);

impl<O: Order> Modeled<O> {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value), std::marker::PhantomData)
    }

    fn order(order: Ordering) -> Ordering {
        if O::ORDERS { order } else { Ordering::Relaxed }
    }
}

impl<O: Order> Word for Modeled<O> {
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(Self::order(order))
    }

    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, Self::order(order));
    }

    /// A swap of equal values has no effect that another thread could tell from none, so it stores nothing.
    /// (loom orders the stores of two threads to a word only where one has seen the other; it would let a
    /// later load return the value of a swap that a newer store follows.)
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        let changed = |old| (old != value).then_some(value);
        self.0
            .fetch_update(Self::order(order), Ordering::Relaxed, changed)
            .unwrap_or_else(|old| old)
    }

    fn fence() {
        if O::FENCES {
            fence(Ordering::SeqCst);
        }
    }
}

/// A word of a sequence lock.
struct Locked<A, O>(A, std::marker::PhantomData<fn() -> O>);

macro_rules! locked {
    ($word:ty, $value:ty) => {
        impl<O: Order> sequence_lock::Word<$value> for Locked<$word, O> {
            fn load(&self, order: Ordering) -> $value {
                self.0.load(Modeled::<O>::order(order))
            }

            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, Modeled::<O>::order(order));
            }

            fn fence(order: Ordering) {
                if O::FENCES {
                    fence(order);
                }
            }
        }
    };
}

locked!(AtomicU32, u32);
locked!(AtomicU64, u64);

/// An entry of a grant table.
struct Entry<O, const N: usize> {
    sequence: Locked<AtomicU32, O>,
    words: [Locked<AtomicU64, O>; N],
}

impl<O: Order, const N: usize> Entry<O, N> {
    fn new(value: u64) -> Self {
        Self {
            sequence: Locked(AtomicU32::new(0), std::marker::PhantomData),
            words: std::array::from_fn(|_| Locked(AtomicU64::new(value), std::marker::PhantomData)),
        }
    }

    fn write(&self, value: u64) {
        sequence_lock::write(&self.sequence, &self.words, &[value; N]);
    }

    fn read(&self) -> Option<([u64; N], u32)> {
        sequence_lock::read(&self.sequence, &self.words)
    }

    fn is_unchanged(&self, seen: u32) -> bool {
        sequence_lock::is_unchanged(&self.sequence, seen)
    }
}

/// Involuntary switches from one thread to the other in one execution. Without a limit the tests take 30 s,
/// and pass too.
const PREEMPTIONS_MAX: usize = 3;

fn model(execution: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(execution);
}

/// Number of records in the model.
const RECORDS: usize = 2;
/// Value of a place that an earlier round of the ring has left.
const STALE: u32 = 99;

struct Records<O> {
    lines: [Modeled<O>; RECORDS + 1],
    payloads: [UnsafeCell<u32>; RECORDS],
    asleep: Modeled<O>,
    wake_up: Notify,
}

/// A writer publishes records and wakes the reader, after each one or after all of them; the reader takes
/// them and sleeps where there are none.
fn records<O: Order + 'static>(batch: usize) {
    model(move || {
        let shared = Arc::new(Records::<O> {
            lines: std::array::from_fn(|place| Modeled::new(if place == 0 { 0 } else { STALE })),
            payloads: std::array::from_fn(|_| UnsafeCell::new(0)),
            asleep: Modeled::new(flags::CLEAR),
            wake_up: Notify::new(),
        });
        let ring = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            for number in 0..RECORDS {
                // SAFETY: loom checks that nobody else accesses it.
                ring.payloads[number].with_mut(|payload| unsafe { *payload = number as u32 + 7 });
                flags::publish(&ring.lines[number], &ring.lines[number + 1], 1);
                if (number + 1) % batch == 0 && flags::take(&ring.asleep) != flags::CLEAR {
                    ring.wake_up.notify();
                }
            }
        });
        for number in 0..RECORDS {
            let is_there = || flags::published(&shared.lines[number]) != 0;
            while !is_there() {
                if !flags::set_and_look(&shared.asleep, 1, is_there) {
                    shared.wake_up.wait();
                }
                flags::withdraw(&shared.asleep);
            }
            assert_eq!(flags::published(&shared.lines[number]), 1, "a stale record");
            // SAFETY: loom checks that the writer does not access the payload at the same time.
            let payload = shared.payloads[number].with(|payload| unsafe { *payload });
            assert_eq!(payload, number as u32 + 7);
        }
        _ = writer.join();
    });
}

#[test]
fn a_reader_that_sleeps_is_woken_for_each_record() {
    records::<Kept>(1);
    records::<Kept>(RECORDS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_reader_sleeps_beside_a_record() {
    records::<Unfenced>(RECORDS);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_release_and_acquire_a_payload_is_read_before_it_is_there() {
    records::<Relaxed>(1);
}

struct Room<O> {
    /// The only place for a record.
    place: UnsafeCell<u32>,
    /// Number of records that the reader has released.
    done: Modeled<O>,
    full: Modeled<O>,
    wake_up: Notify,
}

/// A writer finds its ring of one record full, and writes the next record once the reader has released the
/// first one.
fn room<O: Order + 'static>() {
    model(|| {
        let shared = Arc::new(Room::<O> {
            place: UnsafeCell::new(7),
            done: Modeled::new(0),
            full: Modeled::new(flags::CLEAR),
            wake_up: Notify::new(),
        });
        let ring = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            // SAFETY: loom checks that the writer does not access it at the same time.
            assert_eq!(ring.place.with(|place| unsafe { *place }), 7);
            ring.done.store(1, Ordering::Release);
            if flags::take(&ring.full) != flags::CLEAR {
                ring.wake_up.notify();
            }
        });
        let has_room = || shared.done.load(Ordering::Acquire) == 1;
        while !has_room() {
            if !flags::set_and_look(&shared.full, 1, has_room) {
                shared.wake_up.wait();
            }
        }
        // SAFETY: loom checks that the reader has ended its access.
        shared.place.with_mut(|place| unsafe { *place = 77 });
        _ = reader.join();
    });
}

#[test]
fn a_writer_that_waits_for_room_is_woken() {
    room::<Kept>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_writer_waits_beside_room() {
    room::<Unfenced>();
}

/// The owner of an entry changes it, and a peer copies it: what it has is of one moment.
fn entry<O: Order + 'static>() {
    model(|| {
        let shared = Arc::new(Entry::<O, 2>::new(0));
        let owner = Arc::clone(&shared);
        let writer = thread::spawn(move || (1..=2).for_each(|value| owner.write(value)));
        let mut last = 0;
        for _ in 0..2 {
            if let Some(([first, second], _)) = shared.read() {
                assert_eq!(first, second, "a torn copy");
                assert!(first >= last, "an older copy");
                last = first;
            }
        }
        _ = writer.join();
    });
}

#[test]
fn an_entry_is_copied_whole() {
    entry::<Kept>();
}

#[test]
#[should_panic(expected = "a torn copy")]
fn without_fences_an_entry_is_torn() {
    entry::<Unfenced>();
}

#[test]
#[should_panic(expected = "a torn copy")]
fn without_release_and_acquire_an_entry_is_torn() {
    entry::<Relaxed>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_release_and_acquire_a_record_is_overwritten_while_it_is_read() {
    room::<Relaxed>();
}

struct Granted<O> {
    grant: Entry<O, 1>,
    memory: UnsafeCell<u32>,
    busy: Modeled<O>,
}

/// A writer executes requests on memory that its owner revokes meanwhile and then uses. The writer has read
/// the grant before, and looks only whether it is unchanged, as long as it is.
fn revocation<O: Order + 'static>() {
    model(|| {
        let shared = Arc::new(Granted::<O> {
            grant: Entry::new(1),
            memory: UnsafeCell::new(0),
            busy: Modeled::new(flags::CLEAR),
        });
        let peer = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let Some(([1], stamp)) = peer.grant.read() else {
                return;
            };
            let execute = |value| {
                if peer.grant.is_unchanged(stamp) {
                    // SAFETY: loom checks that nobody else accesses it.
                    peer.memory.with_mut(|memory| unsafe { *memory = value });
                }
            };
            for requests in [1..=1, 2..=3] {
                flags::hold(&peer.busy, 1);
                requests.for_each(execute);
                flags::release(&peer.busy);
            }
        });
        shared.grant.write(0);
        while flags::is_set_after_change(&shared.busy) != flags::CLEAR {
            thread::yield_now();
        }
        // SAFETY: loom checks that the writer has ended its access, since `busy` is clear.
        shared.memory.with_mut(|memory| unsafe { *memory = 77 });
        _ = writer.join();
        // SAFETY: loom checks that the writer does not access the memory after its grant was revoked.
        assert_eq!(shared.memory.with(|memory| unsafe { *memory }), 77);
    });
}

#[test]
fn memory_is_not_accessed_after_its_grant_was_revoked() {
    revocation::<Kept>();
}

#[test]
#[should_panic]
fn without_fences_revoked_memory_is_accessed() {
    revocation::<Unfenced>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_release_and_acquire_an_access_may_follow_the_revocation() {
    revocation::<Relaxed>();
}
