//! The thread of one connection: it takes turns as long as these make progress, polls for a while, and then
//! sleeps until an event or a deadline. An idle connection frees what it keeps for the next request.
//!
//! ```text
//!           progress                 no progress               time is over
//!   ┌──▶ turn ─────▶ turn    turn ──────────────▶ poll, turn ───────────────▶ arm, turn ──▶ sleep ──┐
//!   └───────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```

use std::time::Duration;

use crate::{Clock, Spin, Spinners, nanoseconds};

/// What an event loop does before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// An event since the last turn would wake the thread: it may sleep.
    Before,
    /// An event since the last turn may be without a notification: another turn has to look for it.
    Now,
}

/// How the thread of a connection waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// How long it polls before it sleeps.
    pub poll_time: Duration,
    /// After which time without progress the connection frees what it keeps.
    pub idle_time: Duration,
}

/// A connection that the loop drives: what differs between transports and protocols.
pub trait Driven {
    /// Why a connection ends.
    type End;

    /// Does what can be done now, and checks the deadlines of the peer; returns whether there was progress.
    ///
    /// # Errors
    /// The reason for the end of the connection.
    fn turn(&mut self, now_ns: u64) -> Result<bool, Self::End>;

    /// Whether polling pays: the peer is likely to send again soon.
    fn may_poll(&self) -> bool;

    /// Prepares for sleep.
    ///
    /// # Errors
    /// The reason for the end of the connection.
    fn arm(&mut self) -> Result<Armed, Self::End>;

    /// How long the thread may sleep before deadlines have to be checked; without limit if `None`.
    ///
    /// # Errors
    /// The reason for the end of the connection.
    fn time_to_sleep(&mut self, now_ns: u64) -> Result<Option<Duration>, Self::End>;

    /// Sleeps until an event, at most for this time.
    ///
    /// # Errors
    /// The reason for the end of the connection.
    fn sleep(&mut self, time_max: Option<Duration>) -> Result<(), Self::End>;

    /// Frees buffers and other memory that are kept for the next request.
    fn release_idle(&mut self);
}

/// Drives a connection until it ends; returns why.
pub fn drive<C: Driven>(
    connection: &mut C,
    clock: &Clock,
    spinners: &Spinners,
    waiting: Waiting,
) -> C::End {
    match drive_on(connection, clock, spinners, waiting) {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

fn drive_on<C: Driven>(
    connection: &mut C,
    clock: &Clock,
    spinners: &Spinners,
    waiting: Waiting,
) -> Result<std::convert::Infallible, C::End> {
    let mut spin = Spin::new(spinners, waiting.poll_time);
    let mut idle = Idle::new(waiting.idle_time);
    loop {
        let now_ns = clock.now_ns();
        if connection.turn(now_ns)? {
            idle.worked();
            spin.worked();
            continue;
        }
        if connection.may_poll() && spin.may_poll(now_ns) {
            std::hint::spin_loop();
            continue;
        }
        if connection.arm()? == Armed::Now {
            continue;
        }
        if idle.is_over(now_ns) {
            connection.release_idle();
        }
        let time_max = connection.time_to_sleep(now_ns)?;
        connection.sleep(idle.limit(time_max, now_ns))?;
        spin.slept();
    }
}

/// The time without progress, until what is kept has been freed.
#[derive(Debug)]
struct Idle {
    time_ns: u64,
    state: IdleState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IdleState {
    /// The last turn made progress.
    Working,
    /// No turn since then made progress.
    Since(u64),
    /// Nothing is kept.
    Released,
}

impl Idle {
    fn new(time: Duration) -> Self {
        Self {
            time_ns: nanoseconds(time),
            state: IdleState::Released,
        }
    }

    fn worked(&mut self) {
        self.state = IdleState::Working;
    }

    /// Whether the time is over; once for each time.
    fn is_over(&mut self, now_ns: u64) -> bool {
        match self.state {
            IdleState::Released => false,
            IdleState::Working => {
                self.state = IdleState::Since(now_ns);
                false
            }
            IdleState::Since(since_ns) => {
                let is_over = now_ns.saturating_sub(since_ns) >= self.time_ns;
                if is_over {
                    self.state = IdleState::Released;
                }
                is_over
            }
        }
    }

    /// The time to sleep, which ends when the connection is idle at the latest.
    fn limit(&self, time_max: Option<Duration>, now_ns: u64) -> Option<Duration> {
        let IdleState::Since(since_ns) = self.state else {
            return time_max;
        };
        let passed_ns = now_ns.saturating_sub(since_ns);
        let left = Duration::from_nanos(self.time_ns.saturating_sub(passed_ns));
        Some(time_max.map_or(left, |time| time.min(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the loop has a connection do.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Call {
        Turn,
        Arm,
        Sleep(Option<Duration>),
        Release,
    }

    /// A connection that makes progress in some of its turns, and ends after the last one.
    struct Scripted {
        turns: std::vec::IntoIter<bool>,
        /// Whether events since the last turn are without a notification, as before notifications are on.
        is_armed: bool,
        calls: Vec<Call>,
    }

    impl Driven for Scripted {
        type End = ();

        fn turn(&mut self, _: u64) -> Result<bool, ()> {
            self.calls.push(Call::Turn);
            self.turns.next().ok_or(())
        }

        fn may_poll(&self) -> bool {
            true
        }

        fn arm(&mut self) -> Result<Armed, ()> {
            self.calls.push(Call::Arm);
            Ok(match std::mem::replace(&mut self.is_armed, true) {
                false => Armed::Now,
                true => Armed::Before,
            })
        }

        fn time_to_sleep(&mut self, _: u64) -> Result<Option<Duration>, ()> {
            Ok(None)
        }

        fn sleep(&mut self, time_max: Option<Duration>) -> Result<(), ()> {
            self.calls.push(Call::Sleep(time_max));
            self.is_armed = false;
            Ok(())
        }

        fn release_idle(&mut self) {
            self.calls.push(Call::Release);
        }
    }

    #[test]
    fn a_connection_sleeps_after_a_turn_without_progress_and_with_notifications_on() {
        use Call::{Arm, Release, Sleep, Turn};
        let turns = vec![true, true, false, false, false, false, false, false];
        let mut connection = Scripted {
            turns: turns.into_iter(),
            is_armed: false,
            calls: Vec::new(),
        };
        let waiting = Waiting {
            poll_time: Duration::ZERO,
            idle_time: Duration::ZERO,
        };
        drive(
            &mut connection,
            &Clock::default(),
            &Spinners::default(),
            waiting,
        );
        // Two turns with progress; the second sleep is one of an idle connection, which keeps nothing then.
        let expected = [
            vec![
                Turn,
                Turn,
                Turn,
                Arm,
                Turn,
                Arm,
                Sleep(Some(Duration::ZERO)),
            ],
            vec![Turn, Arm, Turn, Arm, Release, Sleep(None)],
            vec![Turn, Arm, Turn, Arm, Sleep(None), Turn],
        ];
        assert_eq!(connection.calls, expected.concat());
    }

    #[test]
    fn what_is_kept_is_released_once_after_each_idle_time() {
        let mut idle = Idle::new(Duration::from_nanos(100));
        assert!(
            !idle.is_over(1000),
            "nothing is kept before the first request"
        );
        assert_eq!(idle.limit(None, 1000), None);
        idle.worked();
        assert!(!idle.is_over(2000) && !idle.is_over(2099));
        let sleep = |ns| Some(Duration::from_nanos(ns));
        assert_eq!(idle.limit(None, 2040), sleep(60));
        assert_eq!(idle.limit(sleep(7), 2040), sleep(7));
        idle.worked();
        assert!(!idle.is_over(2090) && !idle.is_over(2189) && idle.is_over(2190));
        assert!(!idle.is_over(9999) && idle.limit(sleep(7), 9999) == sleep(7));
    }
}
