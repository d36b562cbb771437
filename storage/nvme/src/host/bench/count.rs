//! Counters of a running benchmark job.

use std::time::{Duration, Instant};

use wire::nvme::Status;

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
    target_ns: Option<u64>,
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
            target_ns: job.target.and_then(process_ns),
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
            (self.processor, self.target_ns) = (Processor::now(), self.target.and_then(process_ns));
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
        let target_ns = self.target.and_then(process_ns).zip(self.target_ns);
        let Processor { ran_ns, waited_ns } = Processor::now().since(self.processor);
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
            target_processor: target_ns
                .map(|(now, then)| now.saturating_sub(then) as f64 / 1e9 / seconds),
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
}

impl Processor {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
        Self {
            ran_ns: numbers.next().unwrap_or(0),
            waited_ns: numbers.next().unwrap_or(0),
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

/// Processor time of all threads of a process in nanoseconds.
fn process_ns(process: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let of = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|number| number.parse::<u64>().ok())
    };
    Some(
        threads
            .flatten()
            .filter_map(|thread| of(thread.path()))
            .sum(),
    )
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
