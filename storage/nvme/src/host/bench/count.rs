//! Counters of a running benchmark job.

use std::time::{Duration, Instant};

use wire::nvme::Status;

use super::kernel::{Machine, Process, switches_of};
use super::{Figures, Histogram, Job, MOMENTS};

/// Counters of a running benchmark job.
pub(super) struct Count {
    warm_up: Duration,
    time: Duration,
    started: Instant,
    is_warm: bool,
    processor: Processor,
    last: Instant,
    longest_pause: Duration,
    target: Option<u32>,
    of_target: Option<Process>,
    machine: Option<Machine>,
    latency: Histogram,
    errors: u64,
    first_error: Option<Status>,
    moments: Vec<u64>,
    failed: Vec<u64>,
}

impl Count {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            warm_up: job.warm_up,
            time: job.time,
            started: Instant::now(),
            is_warm: job.warm_up.is_zero(),
            processor: Processor::now(),
            last: Instant::now(),
            longest_pause: Duration::ZERO,
            target: job.target,
            of_target: job.target.and_then(Process::now),
            machine: Machine::now(),
            latency: Histogram::default(),
            errors: 0,
            first_error: None,
            moments: vec![0; MOMENTS],
            failed: vec![0; MOMENTS],
        }
    }

    /// Notes the time; returns whether the measurement is over.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        if !self.is_warm && now - self.started >= self.warm_up {
            (self.started, self.is_warm) = (now, true);
            (self.processor, self.of_target) =
                (Processor::now(), self.target.and_then(Process::now));
            self.machine = Machine::now();
            (self.last, self.longest_pause) = (now, Duration::ZERO);
            (self.latency, self.errors, self.first_error) = (Histogram::default(), 0, None);
            self.moments.fill(0);
            self.failed.fill(0);
        }
        self.is_warm && now - self.started >= self.time
    }

    /// Counts a finished command. A failed command moved no data, and counts only as an error.
    pub(super) fn one(&mut self, begun: Instant, now: Instant, status: Status) {
        self.longest_pause = self
            .longest_pause
            .max(now.saturating_duration_since(self.last));
        self.last = now;
        let counts = match status.is_success() {
            true => {
                self.latency.count((now - begun).as_nanos() as u64);
                &mut self.moments
            }
            false => {
                self.errors += 1;
                self.first_error.get_or_insert(status);
                &mut self.failed
            }
        };
        let part = (now - self.started).as_nanos() * MOMENTS as u128 / self.time.as_nanos().max(1);
        if let Some(count) = counts.get_mut(part as usize) {
            *count += 1;
        }
    }

    /// Counts a command that finished after the time of the job: only if it failed.
    pub(super) fn last(&mut self, status: Status) {
        if !status.is_success() {
            self.errors += 1;
            self.first_error.get_or_insert(status);
        }
    }

    pub(super) fn figures(self, now: Instant, bytes: usize) -> Figures {
        let seconds = (now - self.started).as_secs_f64();
        let per_second = self.latency.total() as f64 / seconds;
        let part = self.time.as_secs_f64() / MOMENTS as f64;
        let target = self.target.and_then(Process::now).zip(self.of_target);
        let target = target.map(|(now, then)| now.since(then));
        let machine = Machine::now().zip(self.machine);
        let machine = machine.map(|(now, then)| now.since(&then));
        let Processor {
            ran_ns,
            waited_ns,
            switches,
        } = Processor::now().since(self.processor);
        Figures {
            per_second,
            bytes_per_second: per_second * bytes as f64,
            errors: self.errors,
            first_error: self.first_error,
            latency: self.latency,
            processor: ran_ns as f64 / 1e9 / seconds,
            processor_wait: waited_ns as f64 / 1e9 / seconds,
            longest_pause: self
                .longest_pause
                .max(now.saturating_duration_since(self.last)),
            target_processor: target.map(|target| target.ran_ns as f64 / 1e9 / seconds),
            switches: switches as f64 / seconds,
            target_switches: target.map(|target| target.switches as f64 / seconds),
            interrupts: machine
                .as_ref()
                .map(|(interrupts, _)| *interrupts as f64 / seconds),
            cores: machine.map_or_else(Vec::new, |(_, cores)| cores),
            over_time: self
                .moments
                .iter()
                .map(|count| *count as f64 / part)
                .collect(),
            errors_over_time: self.failed,
        }
    }
}

/// Times of this thread in nanoseconds; 0 where the kernel does not count them.
#[derive(Clone, Copy, Default)]
struct Processor {
    /// While it ran.
    ran_ns: u64,
    /// While it could have run, and other threads had the processors.
    waited_ns: u64,
    /// How often it gave a processor up, or lost it.
    switches: u64,
}

impl Processor {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
        Self {
            ran_ns: numbers.next().unwrap_or(0),
            waited_ns: numbers.next().unwrap_or(0),
            switches: switches_of("/proc/thread-self".as_ref()).unwrap_or(0),
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_is_measured_after_the_warm_up_and_up_to_the_end() {
        let [warm_up, time] = [2, 10].map(Duration::from_secs);
        let (write, random, bytes, depth, block, target) = (false, false, 4096, 1, false, None);
        let job = Job {
            write,
            random,
            bytes,
            depth,
            warm_up,
            time,
            block,
            target,
        };
        let mut count = Count::new(&job);
        let start = count.started;
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        count.one(start, at(1), Status::SUCCESS);
        assert!(
            !count.look(at(9)),
            "the warm-up ends here, after a pause that does not count"
        );
        for second in [9, 10, 13, 14] {
            count.one(at(second), at(second), Status::SUCCESS);
        }
        assert_eq!(count.longest_pause, Duration::from_secs(3));
        assert_eq!(
            count.figures(at(19), 4096).longest_pause,
            Duration::from_secs(5)
        );
    }
}
