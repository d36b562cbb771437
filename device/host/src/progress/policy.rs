//! Which thread serves the network: the half of the policy that needs no lock.

use super::poll_detector::PollDetector;
use super::wait_state::WaitState;
use rnic::Instant;

/// The thread that serves the network: the states that are drawn in [`crate::progress`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Server {
    /// The program polls, and takes arrivals by that. The progress thread ticks.
    PollingProgram,
    /// The program waits again and again, and takes arrivals in these waits. The progress thread ticks, at
    /// the full interval at once.
    WaitingProgram,
    /// The program is away. The progress thread takes arrivals, and sleeps when there are none.
    ProgressThread,
}

/// Decides which thread serves the network, by what the program's threads and the progress thread have
/// recorded. The half of the policy that the device's lock protects, when they do so, is
/// [`super::schedule::Schedule`].
#[derive(Default, Debug)]
pub(crate) struct Policy {
    /// Whether the program polls.
    pub(crate) polls: PollDetector,
    /// Whether, and how, the program waits.
    pub(crate) waits: WaitState,
}

impl Policy {
    /// The thread that serves the network from now on. A window of calls ends here, and the next one begins.
    pub(super) fn next_server(&self, now: Instant) -> Server {
        let server = if self.polls.waits(now) {
            Server::WaitingProgram
        } else if self.polls.polls(now) {
            Server::PollingProgram
        } else {
            Server::ProgressThread
        };
        self.polls.begin_window(now);
        self.polls.set_ticking(server != Server::ProgressThread);
        server
    }

    /// Records that the program is about to sleep for an event. True when the progress thread only ticks, and
    /// has to be woken to take over. A program that polls before it sleeps is not asleep yet.
    pub(crate) fn leaves_for_event(&self) -> bool {
        !self.waits.polls() && self.polls.leave()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic::Nanos;

    #[test]
    fn the_thread_serves_unless_the_program_polls_or_waits() {
        let (policy, now) = (Policy::default(), Instant(1_000_000));
        assert_eq!(policy.next_server(now), Server::ProgressThread);
        assert!(!policy.leaves_for_event(), "the thread serves already");
        (0..10).for_each(|_| policy.polls.note_call());
        let soon = now + Nanos::from_micros(50);
        assert_eq!(policy.next_server(soon), Server::PollingProgram);
        assert!(policy.leaves_for_event(), "the thread ticks");
        policy.polls.note_wait(soon);
        assert_eq!(policy.next_server(soon), Server::WaitingProgram);
        let later = soon + Nanos::from_millis(4);
        assert_eq!(policy.next_server(later), Server::ProgressThread);
    }

    #[test]
    fn a_program_that_polls_before_it_sleeps_has_not_left() {
        let (policy, now) = (Policy::default(), Instant(1_000_000));
        (0..1000).for_each(|_| policy.polls.note_call());
        policy.waits.note_polling(true);
        assert_eq!(policy.next_server(now), Server::PollingProgram);
        assert!(!policy.leaves_for_event());
        policy.waits.note_polling(false);
        assert!(policy.leaves_for_event());
    }
}
