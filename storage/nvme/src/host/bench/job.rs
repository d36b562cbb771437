//! A measurement as text, `randread:4k:32x16`, and its results as JSON.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Figures, Job};
use crate::limits::QUEUE_ENTRIES_MAX;
use crate::serve::Bytes;

/// The most queues, and the most commands at once on each: one entry of a queue is always free.
const QUEUES_MAX: u16 = 64;
const DEPTH_MAX: u16 = QUEUE_ENTRIES_MAX - 1;
/// The longest command in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// A measurement: `randread:4k:32x16` are random reads of 4 KiB, 32 at once on each of 16 queues, which one
/// thread works; `randread:4k:32t16` the same with a thread for each queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Whether commands write instead of read.
    pub write: bool,
    /// Whether blocks are chosen at random instead of sequentially.
    pub random: bool,
    /// Bytes per command.
    pub bytes: usize,
    /// Outstanding commands on each queue.
    pub depth: u16,
    /// Number of queues.
    pub queues: u16,
    /// Each queue has a thread of its own.
    pub threads: bool,
}

impl Spec {
    /// The same within what a target takes: bytes of a transfer in whole blocks, and commands at once.
    pub fn within(self, transfer_max: usize, block_size: usize, depth_max: u16) -> Self {
        let most = (transfer_max / block_size.max(1)).max(1) * block_size;
        Self {
            bytes: self.bytes.min(most),
            depth: self.depth.min(depth_max),
            ..self
        }
    }

    /// The job of one queue, with a duration of 0.
    pub fn job(&self) -> Job {
        let (warm_up, time) = (Duration::ZERO, Duration::ZERO);
        let (block, target) = (false, None);
        let (write, random, bytes, depth) =
            (self.write, self.random, self.bytes, self.depth.into());
        Job {
            write,
            random,
            bytes,
            depth,
            warm_up,
            time,
            block,
            target,
        }
    }
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':');
        let (write, random) = match parts.next() {
            Some("randread") => (false, true),
            Some("randwrite") => (true, true),
            Some("read") => (false, false),
            Some("write") => (true, false),
            _ => {
                return Err(
                    "begin with randread, randwrite, read or write, as in randread:4k:32"
                        .to_owned(),
                );
            }
        };
        let bytes: Bytes = parts.next().unwrap_or("4k").to_uppercase().parse()?;
        if !(512..=BYTES_MAX).contains(&bytes.0) || !bytes.0.is_multiple_of(512) {
            return Err("a command has 512 bytes to 1 MiB, and a multiple of 512".to_owned());
        }
        let many = parts.next().unwrap_or("1");
        let threads = many.contains('t');
        let (depth, queues) = many.split_once(['x', 't']).unwrap_or((many, "1"));
        let number = |text: &str, most: u16| {
            let number = text
                .parse()
                .ok()
                .filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("{text} is no number from 1 to {most}"))
        };
        let (depth, queues) = (number(depth, DEPTH_MAX)?, number(queues, QUEUES_MAX)?);
        Ok(Self {
            write,
            random,
            bytes: bytes.0 as usize,
            depth,
            queues,
            threads,
        })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (how, what) = (
            if self.random { "rand" } else { "" },
            if self.write { "write" } else { "read" },
        );
        write!(f, "{how}{what}:")?;
        match (self.bytes >> 20 << 20 == self.bytes, self.bytes % 1024) {
            (true, _) => write!(f, "{}m:", self.bytes >> 20)?,
            (_, 0) => write!(f, "{}k:", self.bytes >> 10)?,
            _ => write!(f, "{}:", self.bytes)?,
        }
        match (self.queues, self.threads) {
            (1, _) => write!(f, "{}", self.depth),
            (queues, false) => write!(f, "{}x{queues}", self.depth),
            (queues, true) => write!(f, "{}t{queues}", self.depth),
        }
    }
}

/// The results of a measurement. Rates and latencies are of the commands that succeeded.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Measured {
    /// The measurement: the text of its [`Spec`].
    pub job: String,
    /// Commands per second.
    pub per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Commands that succeeded.
    pub commands: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of latency in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of latency in microseconds.
    pub p999_us: f64,
    /// Longest latency in microseconds.
    pub max_us: f64,
    /// Processor time per second of the host's threads.
    pub host_processor: f64,
    /// Processor time per second of all threads of the target; `None` if it could not be read.
    pub target_processor: Option<f64>,
    /// Time per second in which the host's threads could have run and other threads had the processors.
    #[serde(default)]
    pub host_processor_wait: f64,
    /// The longest time in which one of the host's threads saw no command finish.
    #[serde(default)]
    pub longest_pause_us: f64,
    /// Context switches of the host's threads per second.
    #[serde(default)]
    pub host_switches: f64,
    /// Context switches of the target's threads per second; `None` if they could not be read.
    #[serde(default)]
    pub target_switches: Option<f64>,
    /// Interrupts of the machine per second, whoever caused them; `None` if they could not be read.
    #[serde(default)]
    pub interrupts: Option<f64>,
    /// How busy each processor of the machine was, from 0 to 1, whoever kept it busy.
    #[serde(default)]
    pub cores: Vec<f64>,
    /// Commands per second, part by part of the time.
    pub over_time: Vec<f64>,
    /// Commands that failed in each of these parts.
    pub errors_over_time: Vec<u64>,
}

impl Measured {
    /// The results of a measurement by the engine.
    pub fn new(spec: &Spec, figures: &Figures) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        let latency = &figures.latency;
        let [p50_us, p99_us, p999_us] = [500, 990, 999].map(|it| us(latency.per_mille_ns(it)));
        Self {
            job: spec.to_string(),
            per_second: figures.per_second,
            bytes_per_second: figures.bytes_per_second,
            commands: figures.latency.total(),
            errors: figures.errors,
            mean_us: us(latency.mean_ns()),
            p50_us,
            p99_us,
            p999_us,
            max_us: us(latency.max_ns()),
            host_processor: figures.processor,
            target_processor: figures.target_processor,
            host_processor_wait: figures.processor_wait,
            longest_pause_us: figures.longest_pause.as_secs_f64() * 1e6,
            host_switches: figures.switches,
            target_switches: figures.target_switches,
            interrupts: figures.interrupts,
            cores: figures.cores.clone(),
            over_time: figures.over_time.clone(),
            errors_over_time: figures.errors_over_time.clone(),
        }
    }

    /// The figures as a JSON document on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_stay_within_what_a_target_takes() {
        let within = |text: &str| {
            text.parse::<Spec>()
                .unwrap()
                .within(131_072 + 512, 4096, 127)
                .to_string()
        };
        assert_eq!(within("read:1m:128x2"), "read:128k:127x2");
        assert_eq!(within("randread:4k:127"), "randread:4k:127");
    }

    #[test]
    fn jobs_are_read_as_they_are_written() {
        for text in [
            "randread:4k:1",
            "randwrite:512:32x16",
            "read:1m:8",
            "write:128k:1x64",
            "read:1m:1t64",
        ] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "erase:4k:1",
            "read:4k:0",
            "read:3:1",
            "read:2m:1",
            "read:4k:1x65",
            "read:4k:1t0",
            "read:4k:q",
        ] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }
}
