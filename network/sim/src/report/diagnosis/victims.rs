//! Findings about head-of-line blocking: flows that are slow because of flows to other hosts.

use super::super::{Finding, FlowReport, Severity};
use super::{FREE_LOAD, View, finding};

/// A flow this many times slower than alone, through ports that are not full, is a victim.
const VICTIM_SLOWDOWN: f64 = 1.5;

/// The part of the time for which the sender of a victim may not send.
const HELD_PART: f64 = 0.1;

impl View<'_> {
    /// Flows that are slow though the link to their receiver is not full: their sender is paused, or has no
    /// credits, because of other flows.
    pub(super) fn victims(&self) -> Vec<Finding> {
        let flows = self.report.flows.iter();
        flows.filter_map(|flow| self.victim(flow)).collect()
    }

    fn victim(&self, flow: &FlowReport) -> Option<Finding> {
        let slowdown = flow.slowdown.filter(|times| *times > VICTIM_SLOWDOWN)?;
        let mut ports = self.report.ports.iter();
        let towards = ports.find(|port| port.to == flow.to);
        let load = towards.map_or(0.0, |port| port.load);
        let mut ports = self.report.ports.iter();
        let own = ports.find(|port| port.port == flow.from)?;
        let end_us = self.results.end.0 as f64 / 1e6;
        if load >= FREE_LOAD || own.paused_us <= HELD_PART * end_us {
            return None;
        }
        let seen = format!(
            "{} → {} took {slowdown:.1} times as long as alone, though the link to {} is {:.0} % idle: \
             head-of-line blocking",
            flow.from,
            flow.to,
            flow.to,
            100.0 * (1.0 - load)
        );
        let (from, held_us) = (&flow.from, own.paused_us);
        let (cause, instead) = if self.experiment.subnet.is_some() {
            (
                format!(
                    "{from} had no credits for {held_us:.0} us, because packets of other flows in the same \
                     lane wait before its own"
                ),
                "routes that share fewer links, or another service level and lane for this traffic",
            )
        } else {
            (
                format!(
                    "{from} is paused for {held_us:.0} us because of other flows in the same priority"
                ),
                "congestion control that keeps queues below the pause threshold, or another class for this \
                 traffic",
            )
        };
        Some(finding(Severity::Slow, seen, cause, instead))
    }
}
