//! Skips time in which flows are in a steady state.
//!
//! The engine's clock and its events stay as they are. The skipped time lies between the engine's clock and
//! the time of the model: it moves later events (the start of flows, the end of the run) closer, and takes
//! from each flow the messages that it would have posted. A flow's messages are posted at the rate at which
//! its bytes arrived before, or at the mean rate of all flows that are alike; a part of a message is kept for
//! the next time.
//!
//! Packets in flight, queues, pauses and the state of congestion control are those at the end of the windows.

use super::World;
use super::extrapolate::{Repetition, Skipped};
use super::host::Poster;
use super::results::{FlowResult, Results, Skip};
use super::scenario::Scenario;
use super::steady::{
    Activity, Blocks, Estimate, REPETITIONS_MAX, SkipSteady, Verdict, Windows, strays,
};
use fabric::{Span, Time};
use rnic::CongestionConfig;
use std::num::NonZero;

/// Fast recoveries of DCQCN in a window at least.
const RECOVERIES: u64 = 4;

/// The state of skipping in a run.
#[derive(Debug)]
pub(super) struct Skipper {
    settings: SkipSteady,
    windows: Windows,
    /// All counters at an earlier time, which what was counted since then is relative to.
    at_begin: Option<(Time, Box<Results>)>,
    /// Whether flows that are alike have mixed since flows began or ended.
    mixed: bool,
    /// By flow: bytes of a message that it has not posted in full.
    carried: Vec<u64>,
    /// When, by the engine's clock, how much was skipped.
    skips: Vec<(Time, Span)>,
    skipped: Option<Skipped>,
}

impl Skipper {
    pub(super) fn new(settings: SkipSteady, scenario: &Scenario) -> Self {
        let period = scenario
            .hosts
            .iter()
            .map(|host| recovery(&host.congestion))
            .max();
        Self {
            settings,
            windows: Windows::new(period.unwrap_or_default()),
            at_begin: None,
            mixed: false,
            carried: vec![0; scenario.flows.len()],
            skips: Vec::new(),
            skipped: None,
        }
    }

    /// All that was skipped so far.
    pub(super) fn total(&self) -> Span {
        self.skips
            .iter()
            .fold(Span::ZERO, |sum, (_, span)| sum + *span)
    }

    /// Whether the counters are from the first half of the windows: these may have been other rates.
    fn counts_are_old(&self, now: Time) -> bool {
        self.at_begin
            .as_ref()
            .is_some_and(|(since, _)| (now - *since).0 > self.windows.all().0 / 2)
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
            let FlowResult {
                started,
                finished,
                first_completion,
                last_completion,
                ..
            } = flow;
            [started, finished, first_completion, last_completion]
                .into_iter()
                .for_each(model);
        }
        let ranks = results.jobs.iter_mut().flat_map(|job| &mut job.ranks);
        ranks
            .flat_map(|rank| rank.times.iter_mut().flatten())
            .for_each(model);
        let programs = results.programs.iter_mut();
        programs
            .flat_map(|(_, program)| &mut program.steps)
            .for_each(model);
        results
            .deadlocks
            .iter_mut()
            .for_each(|deadlock| model(&mut deadlock.at));
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
    Span::from_ns(congestion.recovery().0.saturating_mul(RECOVERIES))
}

/// The rate of a flow: what so many alike flows delivered in the last blocks.
#[derive(Clone, Copy, Default, Debug)]
struct Share {
    bytes: u64,
    flows: u32,
}

impl Share {
    /// What one of the flows delivers in a time, where all delivered `bytes` in another.
    fn in_time(self, time: Span, blocks: Span) -> u64 {
        let product = u128::from(self.bytes) * u128::from(time.0);
        let per = u128::from(blocks.0.max(1)) * u128::from(self.flows.max(1));
        u64::try_from(product / per).unwrap_or(u64::MAX)
    }

    /// How long so many bytes take.
    fn lasts(self, bytes: u128, blocks: Span) -> Span {
        let product = bytes
            .saturating_mul(u128::from(blocks.0))
            .saturating_mul(u128::from(self.flows));
        let lasts = product.checked_div(u128::from(self.bytes));
        lasts.map_or(Span(u64::MAX), |lasts| {
            Span(u64::try_from(lasts).unwrap_or(u64::MAX))
        })
    }
}

impl World {
    /// At a check: skips time if all flows have been steady.
    pub(super) fn skip_steady(&mut self) {
        let Some(mut skipper) = self.skipper.take() else {
            return;
        };
        match skipper
            .windows
            .check_steadiness(self.now, self.activity(), || self.delivered())
        {
            Verdict::Wait => {}
            Verdict::Begin => {
                skipper.mixed = false;
                skipper.at_begin = Some((self.now, Box::new(self.engine_results())));
            }
            Verdict::Half => skipper.at_begin = Some((self.now, Box::new(self.engine_results()))),
            Verdict::Judge => {
                if let Some((skipped, shares)) = self.skippable(&skipper) {
                    self.skip(&mut skipper, skipped, &shares);
                    skipper.mixed = true;
                    skipper.windows.go_on_at(self.now, self.delivered());
                    skipper.at_begin = Some((self.now, Box::new(self.engine_results())));
                } else if skipper.counts_are_old(self.now) {
                    skipper.at_begin = Some((self.now, Box::new(self.engine_results())));
                }
            }
        }
        self.skipper = Some(skipper);
    }

    fn activity(&self) -> Activity {
        let hosts = self.parts.iter().flat_map(|part| &part.hosts);
        let not_started = hosts.map(|host| host.starts.len() as u64).sum();
        Activity {
            not_started,
            unfinished: self.unfinished(),
        }
    }

    /// Bytes that each flow has delivered.
    fn delivered(&self) -> Vec<u64> {
        (0..self.flows)
            .map(|flow| self.delivered_bytes(flow))
            .collect()
    }

    fn posters(&self) -> impl Iterator<Item = &Poster> {
        self.parts
            .iter()
            .flat_map(|part| &part.hosts)
            .flat_map(|host| &host.posters)
    }

    /// How much time can be skipped before something changes, if it is enough to skip and the rates of all
    /// flows are known well enough for it; and these rates, by flow.
    fn skippable(&self, skipper: &Skipper) -> Option<(Span, Vec<Share>)> {
        let reroutes = self
            .rerouting
            .as_ref()
            .is_some_and(|rerouting| rerouting.next_at() != Time::NEVER);
        if reroutes || self.now <= self.links_change_until || self.messages_left() > 0 {
            return None;
        }
        let windows = &skipper.windows;
        let blocks = windows.last();
        let groups = self.alike();
        let shares = self.shares(windows, &groups);
        let mut most = blocks.times(REPETITIONS_MAX).min(self.end - self.now);
        let mut moves = false;
        for poster in self.posters().filter(|poster| !poster.is_over()) {
            if poster.started == Time::NEVER {
                most = most.min(poster.flow.start - self.now);
                continue;
            }
            if !poster.repeats_itself() {
                return None;
            }
            let share = shares[poster.number as usize];
            moves |= share.bytes > 0;
            most = most.min(share.lasts(poster.left(), blocks));
        }
        if !moves || most < blocks {
            return None;
        }
        let mut in_group = vec![false; self.flows];
        for group in &groups {
            group
                .iter()
                .for_each(|flow| in_group[*flow as usize] = true);
            if !self.is_steady_together(skipper, group, &shares, most) {
                return None;
            }
        }
        let tolerance = skipper.settings.tolerance();
        let alone = self.posters().filter(|poster| poster.is_under_way());
        let mut alone = alone.filter(|poster| !in_group[poster.number as usize]);
        let steady = alone.all(|poster| {
            let share = shares[poster.number as usize];
            let part = most.0 as f64 / self.lasts_in_all(skipper, poster, share);
            Estimate::of(&windows.last_of(poster.number)).suffices(tolerance, part.min(1.0))
        });
        steady.then_some((most, shares))
    }

    /// The rates of flows: one rate for those that are alike.
    fn shares(&self, windows: &Windows, groups: &[Vec<u32>]) -> Vec<Share> {
        let delivered = |flow: u32| windows.last_of(flow).iter().sum::<u64>();
        let mut shares: Vec<Share> = (0..self.flows as u32)
            .map(|flow| Share {
                bytes: delivered(flow),
                flows: 1,
            })
            .collect();
        for group in groups {
            let bytes = group.iter().map(|flow| delivered(*flow)).sum();
            let share = Share {
                bytes,
                flows: group.len() as u32,
            };
            group.iter().for_each(|flow| shares[*flow as usize] = share);
        }
        shares
    }

    /// How long a flow is under way from its start to its completion, in picoseconds.
    fn lasts_in_all(&self, skipper: &Skipper, poster: &Poster, share: Share) -> f64 {
        let so_far = skipper.model_time(self.now) - skipper.model_time(poster.started);
        let left = share
            .lasts(poster.left(), skipper.windows.last())
            .min(self.end - self.now);
        so_far.0 as f64 + left.0 as f64
    }

    /// Whether flows that are alike go on at a steady rate, and each of them at that rate in the end.
    fn is_steady_together(
        &self,
        skipper: &Skipper,
        group: &[u32],
        shares: &[Share],
        most: Span,
    ) -> bool {
        let Skipper {
            windows,
            settings,
            mixed,
            ..
        } = skipper;
        let sum = |blocks: &dyn Fn(u32) -> Blocks| {
            let mut sum = Blocks::default();
            for flow in group {
                sum.iter_mut()
                    .zip(blocks(*flow))
                    .for_each(|(sum, bytes)| *sum += bytes);
            }
            sum
        };
        let members = self
            .posters()
            .filter(|poster| group.contains(&poster.number));
        let share = shares[group[0] as usize];
        let lasts = members.map(|poster| self.lasts_in_all(skipper, poster, share));
        let lasts = lasts.fold(f64::INFINITY, f64::min);
        let tolerance = settings.tolerance();
        let part = (most.0 as f64 / lasts).min(1.0);
        let steady = Estimate::of(&sum(&|flow| windows.last_of(flow))).suffices(tolerance, part);
        if !steady || !*mixed && !windows.mixed(group) {
            return false;
        }
        let mean = sum(&|flow| windows.all_of(flow)).map(|bytes| bytes as f64 / group.len() as f64);
        let grows = (most.0 as f64 / windows.all().0 as f64).sqrt();
        let bytes = lasts * share.bytes as f64 / (f64::from(share.flows) * windows.last().0 as f64);
        group.iter().all(|flow| {
            let own = windows.all_of(*flow);
            strays(&own, &mean) * grows <= tolerance * bytes
        })
    }

    fn skip(&mut self, skipper: &mut Skipper, span: Span, shares: &[Share]) {
        if let Some((since, at_begin)) = &skipper.at_begin {
            let now = self.engine_results();
            let skipped = skipper.skipped.get_or_insert_with(|| Skipped::none(&now));
            skipped.repeat(
                &now,
                at_begin,
                Repetition {
                    skipped: span,
                    windows: self.now - *since,
                },
            );
        }
        let blocks = skipper.windows.last();
        for part in &mut self.parts {
            for host in &mut part.hosts {
                for poster in host.posters.iter_mut().filter(|poster| !poster.is_over()) {
                    let number = poster.number as usize;
                    let Some(size) = NonZero::new(u64::from(poster.flow.message_bytes)) else {
                        continue;
                    };
                    if poster.started == Time::NEVER {
                        poster.flow.start = Time(poster.flow.start.0 - span.0);
                        continue;
                    }
                    let bytes = shares[number].in_time(span, blocks);
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
        skipper.skips.push((self.now, span));
        if self.end != Time::NEVER {
            self.end = Time(self.end.0 - span.0);
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
        self.trace.is_none()
            && !operation.is_storage()
            && !operation.is_unreliable()
            && !operation.is_collective()
    }

    /// Bytes of the messages that are not posted yet.
    fn left(&self) -> u128 {
        u128::from(self.flow.messages - self.posted) * u128::from(self.flow.message_bytes)
    }

    /// Whether the flow has begun, and has not ended.
    pub(super) fn is_under_way(&self) -> bool {
        !self.is_over() && self.started != Time::NEVER
    }
}
