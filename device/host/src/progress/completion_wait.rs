//! Waiting of a program for completions and for descriptors of its own at once, as a gateway between RDMA and
//! TCP does: `rockery_await_cq`, for programs that are written for rockery's library.
//!
//! The thread sleeps in `poll(2)` for its own descriptors and for the device's wake-up socket, in place of
//! the progress thread (see [`super::event_wait`]): a peer that writes a record wakes this thread alone,
//! which takes the record from the ring itself. The queue's completion channel takes no part: its descriptor
//! would have to be set, cleared and read for each wait.
//!
//! A program that waits again and again counts as one that polls: the progress thread only ticks, and is not
//! woken by records that arrive between two waits. Acknowledgements wait for the program's answer, for a
//! millisecond at most, where no packets arrive from a network: sent alone, they would wake the peer twice
//! for each request.
//!
//! Where polling has found lately what the thread waited for, it polls its descriptors and the rings for a
//! while before it sleeps, and yields the core between polls: to wake a core that sleeps takes longer than
//! many an answer.
//!
//! Peers on a network are waited for in the same way while few packets come and one thread waits (see
//! [`super::traffic`]). Otherwise the progress thread takes packets while the program works, and wakes it
//! through the completion channel.
//!
//! One thread of a program waits like this at a time. It takes the records of the other connections too, and
//! so wakes the threads that wait for those, which sleep until their completion channels are readable.

use super::clock;
use super::constants::{POLLS_CROWDED, YIELD_LONG};
use super::core_yield::note_waits_for_others;
use super::event_wait::WaitGuard;
use super::pump::Pump;
use super::shared::Shared;
use libc::{POLLIN, pollfd};
use link::memory::Sleeper;
use link::unix;
use rnic::{Arm, Cq};
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Result of the wait of `completions_or`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitEnd {
    /// The queue has completions.
    pub completions: bool,
    /// The other descriptors were polled: their `revents` are valid.
    pub looked: bool,
}

/// Waits until a queue has completions, one of `others` is ready, or the time is over. A queue that has
/// completions already ends the wait before the descriptors are looked at.
pub(crate) fn completions_or(
    shared: &Shared,
    cq: Cq,
    others: &mut [pollfd],
    polls: Duration,
    most: Option<Duration>,
) -> io::Result<WaitEnd> {
    note_waits_for_others();
    let until = most.and_then(|most| Instant::now().checked_add(most));
    let guard = WaitGuard::take_for_any(shared, shared.policy.waits.enter());
    let guarded = guard
        .map(|guard| guard.wait_for_any(cq, others, polls, until))
        .transpose();
    let end = guarded.and_then(|end| match end.flatten() {
        Some(end) => Ok(end),
        // No thread waits in place of the progress thread now, or another one does.
        None => wait_for_channel(shared, cq, others, until),
    });
    shared.policy.waits.exit();
    end
}

const READY: WaitEnd = WaitEnd {
    completions: true,
    looked: false,
};

fn left(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

fn is_ready(polled: &[pollfd]) -> bool {
    polled.iter().any(|it| it.revents != 0)
}

fn readable(fd: RawFd) -> pollfd {
    pollfd {
        fd,
        events: POLLIN,
        revents: 0,
    }
}

/// Polls `own` and `others` at once.
fn poll(own: &mut Vec<pollfd>, others: &mut [pollfd], until: Option<Instant>) -> io::Result<()> {
    let count = own.len();
    own.extend_from_slice(others);
    unix::wait_for_any(own, left(until))?;
    others.copy_from_slice(&own[count..]);
    own.truncate(count);
    Ok(())
}

impl WaitGuard<'_> {
    /// Waits in place of the progress thread; `None` where the wake-up socket was shut down.
    fn wait_for_any(
        &self,
        cq: Cq,
        others: &mut [pollfd],
        polls: Duration,
        until: Option<Instant>,
    ) -> io::Result<Option<WaitEnd>> {
        let mut own = Vec::new();
        if let Some(end) = self.poll_first(cq, others, polls, until)? {
            return Ok(Some(end));
        }
        loop {
            let held = match self.prepare(cq) {
                Prepared::Ready => return Ok(Some(READY)),
                Prepared::Again => continue,
                Prepared::Asleep(held) => held.and_then(|held| Instant::now().checked_add(held)),
            };
            own.clear();
            own.push(readable(self.wake_up.receiver()));
            self.shared
                .with_sockets(|sockets| own.extend(sockets.iter().copied().map(readable)));
            let ends = [until, held].into_iter().flatten().min();
            let polled = poll(&mut own, others, ends);
            let [wake_up, sockets @ ..] = &own[..] else {
                return Ok(None);
            };
            // An error means that no signal waits.
            let is_open = wake_up.revents == 0 || self.wake_up.take().unwrap_or(true);
            let mut pump = self.shared.lock();
            end_await(&mut pump, cq);
            if is_ready(sockets) {
                self.take_packets(&mut pump);
            }
            polled?;
            if !is_open {
                return Ok(None);
            }
            if is_ready(others) || is_over(until) {
                let completions = pump.rnic.cqs().has_completions(cq);
                return Ok(Some(WaitEnd {
                    completions,
                    looked: true,
                }));
            }
        }
    }

    /// Takes what has arrived at the sockets.
    fn take_packets(&self, pump: &mut Pump) {
        let now = pump.clock.read();
        pump.schedule.socket.read_next();
        // Acknowledgements are sent when the program has handled what came with them, and waits again.
        let is_held = pump.shm.is_empty();
        pump.progress(now, is_held);
        pump.pump_events(&self.shared.events);
    }

    /// Polls for a while, where the last wait suggests it.
    fn poll_first(
        &self,
        cq: Cq,
        others: &mut [pollfd],
        polls: Duration,
        until: Option<Instant>,
    ) -> io::Result<Option<WaitEnd>> {
        let waiting = &self.shared.policy.waits;
        if polls.is_zero() || waiting.is_crowded(clock::now()) || !waiting.begin_wait() {
            return Ok(None);
        }
        let found = self.poll_all(cq, others, polls, until)?;
        waiting.note_polling(found.is_some());
        Ok(found)
    }

    fn poll_all(
        &self,
        cq: Cq,
        others: &mut [pollfd],
        polls: Duration,
        until: Option<Instant>,
    ) -> io::Result<Option<WaitEnd>> {
        let end = Instant::now() + polls;
        let is_apart = self.shared.lock().shm.is_empty();
        let mut own = Vec::new();
        loop {
            if self.take_records(&mut self.shared.lock(), cq).1 {
                return Ok(Some(READY));
            }
            own.clear();
            if is_apart {
                self.shared
                    .with_sockets(|sockets| own.extend(sockets.iter().copied().map(readable)));
            }
            poll(&mut own, others, Some(Instant::now()))?;
            if is_ready(&own) {
                self.take_packets(&mut self.shared.lock());
                if self.shared.lock().rnic.cqs().has_completions(cq) {
                    return Ok(Some(READY));
                }
            }
            if is_ready(others) {
                return Ok(Some(WaitEnd {
                    completions: false,
                    looked: true,
                }));
            }
            let offered = clock::now();
            if is_over(Some(end)) || is_over(until) {
                return Ok(None);
            }
            std::thread::yield_now();
            let back = clock::now();
            if back > offered + YIELD_LONG {
                self.shared
                    .policy
                    .waits
                    .set_crowded_until(back + POLLS_CROWDED);
                return Ok(None);
            }
        }
    }

    /// Takes what has arrived in the rings. Returns the time, and whether the queue has completions.
    fn take_records(&self, pump: &mut Pump, cq: Cq) -> (rnic::Instant, bool) {
        let now = pump.clock.read();
        let is_held = pump.acks_held_until(now).is_some()
            || (pump.shm.is_empty() && pump.rnic.cqs().has_completions(cq));
        pump.progress_in_memory(now, is_held, Some((cq, 1)));
        pump.pump_events(&self.shared.events);
        self.shared.policy.polls.note_wait(now);
        let has_completions = pump.rnic.cqs().has_completions(cq);
        if has_completions {
            self.shared.policy.polls.note_call();
        }
        (now, has_completions)
    }

    /// Takes what has arrived, and prepares the sleep unless the queue has completions.
    fn prepare(&self, cq: Cq) -> Prepared {
        let mut pump = self.shared.lock();
        let (now, has_completions) = self.take_records(&mut pump, cq);
        if has_completions {
            return Prepared::Ready;
        }
        pump.schedule.batching.note_away();
        let held = pump.acks_held_until(now);
        if held.is_none() {
            pump.transmit(now);
        }
        begin_await(&mut pump, cq);
        pump.pump_events(&self.shared.events);
        if pump.shm.sleep(Sleeper::Program) || pump.rnic.cqs().has_completions(cq) {
            end_await(&mut pump, cq);
            return Prepared::Again;
        }
        self.shared.finish(pump, now);
        Prepared::Asleep(held.map(|until| clock::real(until - now)))
    }
}

enum Prepared {
    /// The queue has completions.
    Ready,
    /// Records have arrived meanwhile.
    Again,
    /// Peers wake this thread. The sleep has a limit if acknowledgements are held.
    Asleep(Option<Duration>),
}

/// Requests reports of completions of a queue to the program, which waits in place of the progress thread.
fn begin_await(pump: &mut Pump, cq: Cq) {
    // An error means that the program destroys the queue for which it waits.
    let _ = pump.rnic.cqs_mut().arm(cq, Arm::Any);
    pump.routes.awaited = Some(cq);
    pump.schedule.sleepers.program = true;
}

/// Ends [`begin_await`]: the program polls the queue itself.
fn end_await(pump: &mut Pump, cq: Cq) {
    pump.rnic.cqs_mut().disarm(cq);
    pump.routes.awaited = None;
    pump.schedule.sleepers.program = false;
    pump.shm.wake();
}

/// Waits in a thread that does not take the progress thread's place: another one has, or all peers are on a
/// network and many packets arrive.
fn wait_for_channel(
    shared: &Shared,
    cq: Cq,
    others: &mut [pollfd],
    until: Option<Instant>,
) -> io::Result<WaitEnd> {
    let Some((channel, cookie)) = shared.lock().routes.channel_of(cq) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut own = vec![readable(channel.fd())];
    loop {
        let mut pump = shared.lock();
        let now = pump.clock.read();
        // An error means that the program destroys the queue for which it waits.
        let _ = pump.rnic.cqs_mut().arm(cq, Arm::Any);
        pump.schedule.batching.note_away();
        pump.transmit(now);
        let is_ready_now = pump.rnic.cqs().has_completions(cq);
        // The thread that waits in place of the progress thread takes the arrivals for all.
        if !is_ready_now && !pump.schedule.sleepers.program && shared.policy.polls.leave() {
            shared.wake_thread(&mut pump, now);
        }
        shared.finish(pump, now);
        if is_ready_now {
            return Ok(READY);
        }
        poll(&mut own, others, until)?;
        if is_ready(&own) {
            channel.forget(cookie);
        }
        let completions = shared.lock().rnic.cqs().has_completions(cq);
        // The event may have been of completions that were taken before.
        if completions || is_ready(others) || is_over(until) {
            return Ok(WaitEnd {
                completions,
                looked: true,
            });
        }
    }
}
