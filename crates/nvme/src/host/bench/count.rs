//! What is counted while a job runs.

use std::time::{Duration, Instant};

use super::{Figures, Histogram, Job, MOMENTS};

/// What is counted while a job runs.
pub(super) struct Count {
    warm_up: Duration,
    time: Duration,
    started: Instant,
    is_warm: bool,
    processor_ns: u64,
    target: Option<u32>,
    target_ns: Option<u64>,
    latency: Histogram,
    errors: u64,
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
            processor_ns: processor_ns(),
            target: job.target,
            target_ns: job.target.and_then(process_ns),
            latency: Histogram::default(),
            errors: 0,
            moments: vec![0; MOMENTS],
            failed: vec![0; MOMENTS],
        }
    }

    /// Whether the time is over.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        if !self.is_warm && now - self.started >= self.warm_up {
            (self.started, self.is_warm) = (now, true);
            (self.processor_ns, self.target_ns) = (processor_ns(), self.target.and_then(process_ns));
            (self.latency, self.errors) = (Histogram::default(), 0);
            self.moments.fill(0);
            self.failed.fill(0);
        }
        self.is_warm && now - self.started >= self.time
    }

    pub(super) fn one(&mut self, begun: Instant, now: Instant, is_success: bool) {
        self.latency.count((now - begun).as_nanos() as u64);
        self.errors += u64::from(!is_success);
        let part = (now - self.started).as_nanos() * MOMENTS as u128 / self.time.as_nanos().max(1);
        let Some(moment) = self.moments.get_mut(part as usize) else { return };
        *moment += 1;
        if !is_success {
            self.failed[part as usize] += 1;
        }
    }

    pub(super) fn figures(self, now: Instant, bytes: usize) -> Figures {
        let seconds = (now - self.started).as_secs_f64();
        let per_second = self.latency.total() as f64 / seconds;
        let part = self.time.as_secs_f64() / MOMENTS as f64;
        let target_ns = self.target.and_then(process_ns).zip(self.target_ns);
        Figures {
            per_second,
            bytes_per_second: per_second * bytes as f64,
            errors: self.errors,
            latency: self.latency,
            processor: (processor_ns() - self.processor_ns) as f64 / 1e9 / seconds,
            target_processor: target_ns.map(|(now, then)| now.saturating_sub(then) as f64 / 1e9 / seconds),
            over_time: self.moments.iter().map(|count| *count as f64 / part).collect(),
            errors_over_time: self.failed,
        }
    }
}

/// Processor time of this thread; 0 where the kernel does not count it.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Processor time of all threads of a process.
fn process_ns(process: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let of = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|number| number.parse::<u64>().ok())
    };
    Some(threads.flatten().filter_map(|thread| of(thread.path())).sum())
}
