//! The critical path of a collective, and how its time is divided.

use super::super::units::us;
use crate::experiment::{Experiment, Messages, Paths};
use crate::world::{Leg, LegKind};
use fabric::{Rate, Span};
use serde::{Deserialize, Serialize};

/// Legs that are listed at most.
const LEGS_SHOWN: usize = 1000;

/// The critical path of a repetition, from its end back to its begin: each time what was waited for last.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathReport {
    /// Length of the path in microseconds: the sum of the parts below.
    pub total_us: f64,
    /// Time in which a host computed.
    pub compute_us: f64,
    /// Data on its way within servers.
    pub local_us: f64,
    /// Data on its way, as long as it takes alone.
    pub wire_us: f64,
    /// Waiting while the host's port sent other data, of other channels and groups.
    pub own_us: f64,
    /// Waiting behind the data of others in switches, whose pauses are among it.
    pub queue_us: f64,
    /// Waiting while the sender's port was paused.
    pub paused_us: f64,
    /// The rest of the time of messages of which packets were sent again.
    pub retransmission_us: f64,
    /// Waiting for the receiver to have room, and to say so.
    pub credit_us: f64,
    /// Its stretches in order of time; the first thousand.
    pub legs: Vec<LegReport>,
}

/// A stretch of a critical path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LegReport {
    /// `compute`, `transfer`, `local` for one within a server, or `credit`: waiting for room at `to`.
    pub what: String,
    /// The host that computes or sends.
    pub from: String,
    /// The host that receives; empty where one computes.
    pub to: String,
    /// When it begins, in microseconds.
    pub begin_us: f64,
    /// When it ends.
    pub end_us: f64,
    /// Messages that follow each other.
    pub messages: u32,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// Divides the time of critical paths.
pub(super) struct Splitter<'a> {
    experiment: &'a Experiment,
    paths: Paths,
    /// Of hosts' ports.
    rates: Vec<Rate>,
}

impl<'a> Splitter<'a> {
    pub(super) fn new(experiment: &'a Experiment) -> Self {
        Self {
            experiment,
            paths: Paths::new(experiment),
            rates: experiment.port_rates(),
        }
    }

    pub(super) fn path(&mut self, legs: &[Leg]) -> Option<PathReport> {
        let mut report = PathReport {
            total_us: 0.0,
            compute_us: 0.0,
            local_us: 0.0,
            wire_us: 0.0,
            own_us: 0.0,
            queue_us: 0.0,
            paused_us: 0.0,
            retransmission_us: 0.0,
            credit_us: 0.0,
            legs: legs
                .iter()
                .take(LEGS_SHOWN)
                .map(|leg| self.leg(leg))
                .collect(),
        };
        for leg in legs {
            let span = (leg.end - leg.begin).0;
            report.total_us += us(span);
            match leg.kind {
                LegKind::Compute(_) => report.compute_us += us(span),
                LegKind::Local { .. } => report.local_us += us(span),
                LegKind::Credit { .. } => report.credit_us += us(span),
                LegKind::Transfer { from, to } => {
                    let wire = self.alone(leg, from, to).0.min(span);
                    let paused = leg.paused_ps.min(span - wire);
                    let rest = span - wire - paused;
                    let own = self.sending(leg, from).saturating_sub(wire).min(rest);
                    let rest = rest - own;
                    let resent = leg.resent_ps.min(rest);
                    report.wire_us += us(wire);
                    report.own_us += us(own);
                    report.paused_us += us(paused);
                    report.retransmission_us += us(resent);
                    report.queue_us += us(rest - resent);
                }
            }
        }
        (!legs.is_empty()).then_some(report)
    }

    /// How long the messages of a stretch take alone: one behind the other on the slowest link, and over the
    /// path those that found nothing of their queue pair under way.
    fn alone(&mut self, leg: &Leg, from: u32, to: u32) -> Span {
        let Some(path) = self.paths.between(from, to) else {
            return Span::ZERO;
        };
        let messages = Messages {
            count: u64::from(leg.slices),
            bytes: leg.bytes,
            idle_starts: u64::from(leg.idle_starts),
        };
        self.experiment.messages_alone(&path, from, messages)
    }

    /// How long the port of a host was sending in the time of a stretch.
    fn sending(&self, leg: &Leg, from: u32) -> u64 {
        let rate = self.rates[from as usize].bps().max(1);
        let ps = u128::from(leg.port_bytes) * 8_000_000_000_000 / u128::from(rate);
        u64::try_from(ps).unwrap_or(u64::MAX)
    }

    fn leg(&self, leg: &Leg) -> LegReport {
        let name = |host: u32| self.experiment.network.hosts[host as usize].name.clone();
        let (what, from, to) = match leg.kind {
            LegKind::Compute(host) => ("compute", name(host), String::new()),
            LegKind::Transfer { from, to } => ("transfer", name(from), name(to)),
            LegKind::Local { from, to } => ("local", name(from), name(to)),
            LegKind::Credit { from, to } => ("credit", name(from), name(to)),
        };
        LegReport {
            what: what.to_owned(),
            from,
            to,
            begin_us: us(leg.begin.0),
            end_us: us(leg.end.0),
            messages: leg.slices,
            bytes: leg.bytes,
        }
    }
}
