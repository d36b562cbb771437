//! Commands that failed with a status that permits a retry, as the Linux host repeats them.
//!
//! A status without "do not retry" (DNR) is repeated up to [`RETRIES_MAX`] times, after the pause that the
//! target asks for (CRD, which selects one of CRDT1 to CRDT3 of Identify Controller) or after one that
//! doubles. "Asymmetric access transition" is repeated for as long as a transition may take (ANATT).

use std::time::{Duration, Instant};

use wire::nvme::{Status, identify, opcode};

use super::commands::{Done, Payload};
use super::submission::Submission;

/// Retries of a command, as `nvme_core.max_retries` of Linux.
const RETRIES_MAX: u8 = 5;
/// The pause before the first retry if the target names none; it doubles with each retry.
const PAUSE: Duration = Duration::from_millis(10);
/// The pause between retries during an ANA transition.
const TRANSITION_PAUSE: Duration = Duration::from_millis(100);

/// Times that a controller reports for retries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RetryTimes {
    /// CRDT1 to CRDT3.
    delays: [Duration; 3],
    /// ANATT: the longest ANA transition.
    transition: Duration,
}

impl RetryTimes {
    /// The times in Identify Controller.
    pub(super) fn of(controller: &identify::Controller) -> Self {
        let delays = [
            controller.retry_delay1,
            controller.retry_delay2,
            controller.retry_delay3,
        ];
        Self {
            delays: delays.map(|units| Duration::from_millis(100 * u64::from(units))),
            transition: Duration::from_secs(controller.ana_transition.into()),
        }
    }

    /// Whether the controller has retry delays, which it uses after the host has enabled them (ACRE).
    pub(super) fn has_delays(&self) -> bool {
        !self.delays[0].is_zero()
    }

    /// How long to wait before the next attempt; `None` if there is none. `failed` attempts failed before
    /// this one, the first of them this long ago.
    fn pause(&self, status: Status, failed: u8, age: Duration) -> Option<Duration> {
        if status.is_success() || status.is_permanent() {
            return None;
        }
        if status.plain() == Status::ANA_TRANSITION && age < self.transition {
            return Some(TRANSITION_PAUSE);
        }
        if failed >= RETRIES_MAX {
            return None;
        }
        let delay = status
            .retry_delay()
            .and_then(|index| self.delays.get(index))
            .copied();
        Some(
            delay
                .filter(|delay| !delay.is_zero())
                .unwrap_or(PAUSE * (1 << failed)),
        )
    }
}

/// A command that waits for its next attempt.
#[derive(Debug)]
struct Waiting {
    due: Instant,
    submission: Submission,
    payload: Payload,
    token: u64,
}

/// The commands of a queue that wait for their next attempt.
#[derive(Debug, Default)]
pub(super) struct Retries {
    pub(super) times: RetryTimes,
    waiting: Vec<Waiting>,
}

impl Retries {
    /// The number of commands that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the commands that are to be repeated out of `done`, from index `from` on.
    pub(super) fn sort_out(&mut self, done: &mut Vec<Done>, from: usize) {
        let mut index = from;
        while let Some(finished) = done.get(index) {
            match self.due(finished) {
                None => index += 1,
                Some((due, submission)) => {
                    let finished = done.remove(index);
                    let token = finished.token;
                    self.waiting.push(Waiting {
                        due,
                        submission,
                        payload: finished.into_payload(),
                        token,
                    });
                }
            }
        }
    }

    fn due(&self, done: &Done) -> Option<(Instant, Submission)> {
        let status = done.completion.status();
        let Submission {
            command,
            failed,
            since,
        } = done.submission;
        // A fabrics command changes the state of the connection, which its caller has to decide on.
        if status.is_success() || command.opcode == opcode::FABRICS {
            return None;
        }
        let now = Instant::now();
        let since = since.unwrap_or(now);
        let pause = self.times.pause(status, failed, now - since)?;
        Some((
            now + pause,
            Submission {
                command,
                failed: failed.saturating_add(1),
                since: Some(since),
            },
        ))
    }

    /// The next command whose pause is over.
    pub(super) fn next(&mut self) -> Option<(Submission, Payload, u64)> {
        if self.waiting.is_empty() {
            return None;
        }
        let now = Instant::now();
        let index = self.waiting.iter().position(|waiting| waiting.due <= now)?;
        let Waiting {
            submission,
            payload,
            token,
            ..
        } = self.waiting.swap_remove(index);
        Some((submission, payload, token))
    }

    /// How long until the next command is due; `None` if none waits.
    pub(super) fn until_due(&self) -> Option<Duration> {
        let due = self.waiting.iter().map(|waiting| waiting.due).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Duration = Duration::ZERO;

    fn times() -> RetryTimes {
        RetryTimes {
            delays: [100, 0, 700].map(Duration::from_millis),
            transition: Duration::from_secs(10),
        }
    }

    #[test]
    fn transient_errors_are_repeated_as_often_as_linux_does() {
        for status in [
            Status::COMMAND_INTERRUPTED,
            Status::NAMESPACE_NOT_READY,
            Status::INTERNAL_ERROR,
        ] {
            for failed in 0..RETRIES_MAX {
                assert_eq!(
                    times().pause(status, failed, NEW),
                    Some(PAUSE * (1 << failed)),
                    "{status}"
                );
            }
            assert_eq!(times().pause(status, RETRIES_MAX, NEW), None, "{status}");
            assert_eq!(times().pause(status.permanent(), 0, NEW), None, "{status}");
        }
        assert_eq!(times().pause(Status::SUCCESS, 0, NEW), None);
    }

    #[test]
    fn the_target_selects_the_pause() {
        let with = |crd: u16| Status(Status::COMMAND_INTERRUPTED.0 | crd << 11);
        for (crd, pause) in [
            (0, PAUSE),
            (1, times().delays[0]),
            (2, PAUSE),
            (3, times().delays[2]),
        ] {
            assert_eq!(times().pause(with(crd), 0, NEW), Some(pause), "CRD {crd}");
        }
    }

    #[test]
    fn an_ana_transition_is_waited_for_as_long_as_it_may_take() {
        let pause = |failed, seconds| {
            times().pause(Status::ANA_TRANSITION, failed, Duration::from_secs(seconds))
        };
        assert_eq!(pause(200, 9), Some(TRANSITION_PAUSE));
        assert_eq!(pause(200, 10), None);
        assert_eq!(
            pause(0, 10),
            Some(PAUSE),
            "a transition that began late gets the usual retries"
        );
    }
}
