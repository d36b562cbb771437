//! Skips time in which flows are in a steady state.
//!
//! The engine's clock and its events stay as they are. The skipped time lies between the engine's clock and
//! the time of the model: it moves later events (the start of flows, the end of the run) closer, and takes
//! from each flow the messages that it would have posted. A flow's messages are posted at the rate at which
//! its bytes arrived in the windows before; a part of a message is kept for the next time.
//!
//! Packets in flight, queues, pauses and the state of congestion control are those at the end of the windows.

use super::World;
use super::extrapolate::{Repetition, Skipped};
use super::host::Poster;
use super::results::{FlowResult, Results, Skip};
use super::scenario::Scenario;
use super::steady::{Activity, REPETITIONS_MAX, SkipSteady, Verdict, Windows};
use fabric::{Span, Time};
use rnic::CongestionConfig;
use std::num::NonZero;

/// Fast recoveries of DCQCN in a window at least.
const RECOVERIES: u64 = 16;

/// The state of skipping in a run.
#[derive(Debug)]
pub(super) struct Skipper {
    windows: Windows,
    /// All counters at the time when the windows began.
    at_begin: Option<Box<Results>>,
    /// By flow: bytes of a message that it has not posted in full.
    carried: Vec<u64>,
    /// When, by the engine's clock, how much was skipped.
    skips: Vec<(Time, Span)>,
    skipped: Option<Skipped>,
}

impl Skipper {
    pub(super) fn new(settings: SkipSteady, scenario: &Scenario) -> Self {
        let period = scenario.hosts.iter().map(|host| recovery(&host.congestion)).max();
        Self {
            windows: Windows::new(settings, period.unwrap_or_default()),
            at_begin: None,
            carried: vec![0; scenario.flows.len()],
            skips: Vec::new(),
            skipped: None,
        }
    }

    /// All that was skipped so far.
    pub(super) fn total(&self) -> Span {
        self.skips.iter().fold(Span::ZERO, |sum, (_, span)| sum + *span)
    }

    /// The model's time at a moment of the engine's clock.
    fn model_time(&self, at: Time) -> Time {
        let before = self.skips.iter().take_while(|(when, _)| *when <= at);
        before.fold(at, |at, (_, span)| at + *span)
    }

    /// Results with the model's times, and with the counts of the times that were skipped.
    pub(super) fn complete(&self, results: &mut Results) {
        if let Some(skipped) = &self.skipped {
            skipped.add_to(results);
        }
        let model = |at: &mut Time| {
            if *at != Time::NEVER {
                *at = self.model_time(*at);
            }
        };
        model(&mut results.end);
        for flow in &mut results.flows {
            let FlowResult { started, finished, first_completion, last_completion, .. } = flow;
            [started, finished, first_completion, last_completion].into_iter().for_each(model);
        }
        results.deadlocks.iter_mut().for_each(|deadlock| model(&mut deadlock.at));
        let mut skipped_before = Span::ZERO;
        results.skips.extend(self.skips.iter().map(|(at, span)| {
            let at = *at + skipped_before;
            skipped_before += *span;
            Skip { at, span: *span }
        }));
    }
}

/// How long a sender takes from one reduction of its rate to the state in which the rate grows at its
/// slowest: windows have to be longer, or that growth looks steady.
fn recovery(congestion: &CongestionConfig) -> Span {
    match congestion {
        CongestionConfig::Dcqcn(config) => {
            let steps = u64::from(config.fast_recovery_steps) * RECOVERIES;
            Span::from_ns(config.increase_interval_ns.0.saturating_mul(steps))
        }
        _ => Span::ZERO,
    }
}

impl World {
    /// At a check: skips time if all flows have been steady.
    pub(super) fn skip_steady(&mut self) {
        let Some(mut skipper) = self.skipper.take() else { return };
        let verdict = skipper.windows.check(self.now, self.activity(), || self.delivered());
        if let Verdict::Steady(windows) = verdict {
            if let Some(skipped) = self.skippable(skipper.windows.at_begin(), windows) {
                self.skip(&mut skipper, Repetition { skipped, windows });
            }
            skipper.windows.begin_at(self.now, self.delivered());
        }
        if verdict != Verdict::Wait {
            skipper.at_begin = Some(Box::new(self.engine_results()));
        }
        self.skipper = Some(skipper);
    }

    fn activity(&self) -> Activity {
        let hosts = self.parts.iter().flat_map(|part| &part.hosts);
        let not_started = hosts.map(|host| host.starts.len() as u64).sum();
        Activity { not_started, unfinished: self.unfinished() }
    }

    /// Bytes that each flow has delivered.
    fn delivered(&self) -> Vec<u64> {
        (0..self.flows).map(|flow| self.delivered_bytes(flow)).collect()
    }

    /// How much time can be skipped before something changes, if it is enough to skip.
    fn skippable(&self, at_begin: &[u64], windows: Span) -> Option<Span> {
        let reroutes = self.rerouting.as_ref().is_some_and(|rerouting| rerouting.next_at() != Time::NEVER);
        if reroutes || self.now <= self.links_change_until {
            return None;
        }
        let delivered = self.delivered();
        let mut most = windows.times(REPETITIONS_MAX).min(self.end - self.now);
        let mut moves = false;
        let posters = self.parts.iter().flat_map(|part| &part.hosts).flat_map(|host| &host.posters);
        for poster in posters.filter(|poster| !poster.is_over()) {
            if poster.started == Time::NEVER {
                most = most.min(poster.flow.start - self.now);
                continue;
            }
            if !poster.repeats_itself() {
                return None;
            }
            let number = poster.number as usize;
            let bytes = delivered[number] - at_begin[number];
            moves |= bytes > 0;
            most = most.min(poster.lasts(bytes, windows));
        }
        (moves && most >= windows).then_some(most)
    }

    fn skip(&mut self, skipper: &mut Skipper, by: Repetition) {
        if let Some(at_begin) = &skipper.at_begin {
            let now = self.engine_results();
            let skipped = skipper.skipped.get_or_insert_with(|| Skipped::none(&now));
            skipped.repeat(&now, at_begin, by);
        }
        let delivered = self.delivered();
        for part in &mut self.parts {
            for host in &mut part.hosts {
                for poster in host.posters.iter_mut().filter(|poster| !poster.is_over()) {
                    let number = poster.number as usize;
                    let Some(size) = NonZero::new(u64::from(poster.flow.message_bytes)) else { continue };
                    if poster.started == Time::NEVER {
                        poster.flow.start = Time(poster.flow.start.0 - by.skipped.0);
                        continue;
                    }
                    let bytes = by.of(delivered[number] - skipper.windows.at_begin()[number]);
                    let owed = bytes.saturating_add(skipper.carried[number]);
                    let messages = (owed / size).min(poster.flow.messages - poster.posted);
                    skipper.carried[number] = owed - messages * size.get();
                    poster.posted += messages;
                    poster.completed += messages;
                    // Whichever part the receiver is in: the bytes of all parts are added up.
                    part.receiving[number].delivered_bytes += messages * size.get();
                }
                host.set_clock(&mut part.links);
            }
        }
        skipper.skips.push((self.now, by.skipped));
        if self.end != Time::NEVER {
            self.end = Time(self.end.0 - by.skipped.0);
        }
    }
}

impl Poster {
    /// Whether the flow has ended.
    fn is_over(&self) -> bool {
        self.failed || self.completed == self.flow.messages
    }

    /// Whether the flow consists of messages that are all alike and that the receiver acknowledges.
    fn repeats_itself(&self) -> bool {
        let operation = self.flow.operation;
        self.trace.is_none() && !operation.is_storage() && !operation.is_unreliable()
    }

    /// How long messages that are not posted yet last at the rate of so many bytes in the windows.
    fn lasts(&self, bytes: u64, windows: Span) -> Span {
        let left = u128::from(self.flow.messages - self.posted) * u128::from(self.flow.message_bytes);
        let lasts = left.saturating_mul(u128::from(windows.0)).checked_div(u128::from(bytes));
        lasts.map_or(Span(u64::MAX), |lasts| Span(u64::try_from(lasts).unwrap_or(u64::MAX)))
    }
}
