//! A run that is measured: the network begins anew at a moment of the lab's clock, and what it has counted is
//! taken at another one.

use crate::lateness::LatenessSummary;
use crate::network::Network;
use crate::plan::Plan;
use crate::tracking::{Outcome, TrackedFlow, Tracking};
use fabric::Time;
use serde::{Deserialize, Serialize};
use sim::report::Report;
use sim::world::{FlowResult, Results, World};
use std::collections::BTreeMap;

/// The run of a lab, from the request for it until its results are asked for.
#[derive(Debug, Default)]
pub(crate) struct Measurement {
    /// The flows of the next run.
    pub(crate) tracking: Tracking,
    pub(crate) outcomes: Vec<Outcome>,
    beginning: Option<(Time, World)>,
    /// When the run ends, by the time of the network; nothing while none runs.
    end: Option<Time>,
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    results: Results,
    flows: Vec<TrackedFlow>,
    lateness: LatenessSummary,
}

/// The results of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The factor by which the clock was slower than the machine's.
    pub slowdown: u64,
    /// How late packets were handled.
    pub lateness: LatenessSummary,
    /// The time that the shortest link takes for a packet of the longest kind, ns.
    pub shortest_link_ns: u64,
    /// Whether the 99.9th percentile of lateness was within it.
    pub valid: bool,
    /// The report of the run, in the form of the simulator's.
    pub report: Report,
}

impl Measurement {
    /// Plans a run.
    pub(crate) fn begin(&mut self, begin: Time, end: Time, world: World) {
        (self.beginning, self.end) = (Some((begin, world)), Some(end));
        (self.counted, self.outcomes) = (None, Vec::new());
    }

    /// The network of a run that has begun, once.
    pub(crate) fn take_beginning(&mut self, now: Time) -> Option<(Time, World)> {
        self.beginning.take_if(|(begin, _)| *begin <= now)
    }

    pub(crate) fn take_tracking(&mut self) -> Tracking {
        std::mem::take(&mut self.tracking)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.beginning.is_none() && self.end.is_some()
    }

    /// Whether the end has come, by the time of the network.
    pub(crate) fn ends_by(&self, now: Time) -> bool {
        self.is_running() && self.end() <= now
    }

    pub(crate) fn end(&self) -> Time {
        self.end.unwrap_or(Time::NEVER)
    }

    /// Keeps what was counted until now.
    pub(crate) fn finish(&mut self, world: &World, network: &mut Network) {
        self.end = None;
        let flows = network.tracking.take().unwrap_or_default().flows;
        let lateness = network.lateness.summary();
        self.counted = Some(Counted {
            results: world.results(),
            flows,
            lateness,
        });
    }

    /// The results of the run; nothing before its end.
    pub(crate) fn measured(&self, plan: &Plan, slowdown: u64) -> Option<Measured> {
        let Counted {
            results,
            flows,
            lateness,
        } = self.counted.as_ref()?;
        let whole = &plan.whole;
        let tracked: BTreeMap<u32, &TrackedFlow> =
            flows.iter().map(|flow| (flow.number, flow)).collect();
        let outcomes: BTreeMap<u32, &Outcome> = self
            .outcomes
            .iter()
            .map(|outcome| (outcome.flow, outcome))
            .collect();
        let mut simulated = results.flows.iter().cloned();
        let mut all = results.clone();
        let result = |(number, flow): (u32, &sim::world::Flow)| {
            if !plan.is_live(flow.from) && !plan.is_live(flow.to) {
                return simulated.next().unwrap_or_else(FlowResult::of_nothing);
            }
            let tracked = tracked.get(&number).map(|flow| flow.result());
            let mut result = tracked.unwrap_or_else(FlowResult::of_nothing);
            if let Some(outcome) = outcomes.get(&number) {
                outcome.complete(flow, &mut result);
            }
            result
        };
        all.flows = (0..).zip(&whole.scenario.flows).map(result).collect();
        // As the simulator has it: a run whose transfers are all done has ended then.
        let finished = all.flows.iter().map(|flow| flow.finished).max();
        all.end = finished.filter(|at| *at != Time::NEVER).unwrap_or(all.end);
        let shortest_link_ns = plan.shortest_link().0 / 1000;
        Some(Measured {
            slowdown,
            lateness: *lateness,
            shortest_link_ns,
            valid: lateness.p999_ns <= shortest_link_ns,
            report: Report::new(whole, &all, false),
        })
    }
}
