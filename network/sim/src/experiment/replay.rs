//! Workloads that replay recorded verbs calls.

use crate::world::{Action, DEPTH_MAX, Flow, Step, Transfer};
use fabric::Span;
use fabric_file::schema::Workload;
use fabric_file::{Document, FileError, Mistake, Network, ReadFile};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wire::record::{Call, Line, Transport, Verb, lines};

/// Work requests of one record at most.
const STEPS_MAX: usize = 1 << 22;

/// The work requests that one queue pair posted.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    operation: Transfer,
    steps: Arc<[Step]>,
    depth: u32,
    largest: u32,
}

/// A queue pair while its lines are read.
#[derive(Default)]
struct Reading {
    steps: Vec<Step>,
    transport: Option<Transport>,
    /// Requests that have not completed: whether each is signaled, and is replayed.
    outstanding: VecDeque<(bool, bool)>,
    completed: u64,
    last_ns: Option<u64>,
    sends: bool,
}

impl Reading {
    fn take(&mut self, line: &Line, start_ns: u64) {
        match line.call {
            Call::Post {
                operation,
                bytes,
                transport,
                signaled,
            } => {
                let action = match operation {
                    Verb::Write => Some(Action::Write),
                    Verb::Send => Some(Action::Send),
                    Verb::Read | Verb::Atomic => Some(Action::Read),
                    Verb::Receive | Verb::Local => None,
                };
                self.transport = Some(transport);
                self.outstanding.push_back((signaled, action.is_some()));
                if let Some(action) = action {
                    self.sends |= action == Action::Send;
                    let ns = line.at_ns.saturating_sub(self.last_ns.unwrap_or(start_ns));
                    let gap = Span(ns.saturating_mul(1_000));
                    self.steps.push(Step {
                        action,
                        bytes,
                        after: self.completed,
                        gap,
                    });
                }
                self.last_ns = Some(line.at_ns);
            }
            // The time that the peer takes to send is part of the time until the next post.
            Call::Receive { .. }
            | Call::Done {
                operation: Verb::Receive,
                ..
            } => {}
            Call::Done { .. } => {
                // A completion is of the first signaled request, and of all before it.
                while let Some((signaled, replayed)) = self.outstanding.pop_front() {
                    self.completed += u64::from(replayed);
                    if signaled {
                        break;
                    }
                }
                self.last_ns = Some(line.at_ns);
            }
        }
    }

    fn recorded(self, gaps: bool) -> Recorded {
        let outstanding = self
            .steps
            .iter()
            .zip(1_u64..)
            .map(|(step, posted)| posted - step.after);
        let depth = u32::try_from(outstanding.max().unwrap_or(1)).unwrap_or(u32::MAX);
        let gap = |step: Step| {
            if gaps {
                step
            } else {
                Step {
                    gap: Span::ZERO,
                    ..step
                }
            }
        };
        let largest = self
            .steps
            .iter()
            .map(|step| step.bytes)
            .max()
            .unwrap_or(0)
            .max(1);
        let operation = match self.transport {
            Some(Transport::Ud) => Transfer::Datagram,
            Some(Transport::Uc) if !self.sends => Transfer::UnreliableWrite,
            _ if self.sends => Transfer::Send,
            _ => Transfer::Write,
        };
        Recorded {
            operation,
            steps: self.steps.into_iter().map(gap).collect(),
            depth,
            largest,
        }
    }
}

/// The record that a workload names, if it names one: by queue pair, in the order of their first requests.
pub(super) fn read(
    document: &Document,
    field: &str,
    workload: &Workload,
    files: &mut ReadFile<'_>,
) -> Result<Option<Vec<Recorded>>, FileError> {
    let Some(name) = &workload.replay else {
        return Ok(None);
    };
    if workload.messages.is_some() || workload.bytes.is_some() || workload.load.is_some() {
        let what = "a record says how much is sent, and messages, bytes or load as well".to_owned();
        return Err(document.mistake(Mistake::Combination, field, what, "leave them out"));
    }
    let field = format!("{field}.replay");
    let wrong = |what: String| {
        document.mistake(
            Mistake::Value,
            &field,
            what,
            "record one: rockery run --record FILE -- PROGRAM",
        )
    };
    let text = files(name).map_err(|error| wrong(format!("{name}: {error}")))?;
    let all = lines(&text).map_err(|error| wrong(format!("{name}: {error}")))?;
    let mut order = Vec::new();
    let mut reading: BTreeMap<(u32, u32), Reading> = BTreeMap::new();
    let (mut start_ns, mut steps) = (None, 0);
    for (number, line) in all {
        let line = line.map_err(|error| wrong(format!("{name}, line {number}: {error}")))?;
        let is_post = matches!(line.call, Call::Post { .. });
        let start = *start_ns.get_or_insert(line.at_ns);
        steps += usize::from(is_post);
        if steps > STEPS_MAX {
            return Err(wrong(format!("{name}: more than {STEPS_MAX} requests")));
        }
        let key = (line.process, line.qpn);
        let one = reading.entry(key).or_insert_with(|| {
            order.push(key);
            Reading::default()
        });
        one.take(&line, start);
    }
    let all = order
        .iter()
        .filter_map(|key| reading.remove(key))
        .filter(|one| !one.steps.is_empty());
    let all: Vec<Recorded> = all.map(|one| one.recorded(workload.gaps)).collect();
    if all.is_empty() {
        return Err(wrong(format!("{name}: nothing was posted")));
    }
    if let Some(deep) = all.iter().find(|one| one.depth > DEPTH_MAX) {
        return Err(wrong(format!(
            "{name}: {} requests at once, and {DEPTH_MAX} are the most",
            deep.depth
        )));
    }
    Ok(Some(all))
}

/// Each queue pair of a workload becomes those of the record.
pub(super) fn apply(
    document: &Document,
    field: &str,
    flows: Vec<Flow>,
    recorded: &[Recorded],
    network: &Network,
    traces: &mut Vec<Arc<[Step]>>,
) -> Result<Vec<Flow>, FileError> {
    let first = traces.len() as u32;
    traces.extend(recorded.iter().map(|one| one.steps.clone()));
    let too_large = |flow: &Flow, one: &Recorded| {
        let too_large = one.operation == Transfer::Datagram
            && one.largest > network.hosts[flow.from as usize].nic.mtu;
        too_large || one.largest > 1 << 31
    };
    if let Some(one) = flows
        .first()
        .and_then(|flow| recorded.iter().find(|one| too_large(flow, one)))
    {
        let what = format!(
            "a message of {} bytes is too large for its transport",
            one.largest
        );
        return Err(document.mistake(
            Mistake::Value,
            &format!("{field}.replay"),
            what,
            "a larger nic.NAME.mtu",
        ));
    }
    let of = |flow: Flow| {
        recorded.iter().zip(first..).map(move |(one, trace)| Flow {
            operation: one.operation,
            message_bytes: one.largest,
            messages: one.steps.len() as u64,
            depth: one.depth,
            trace: Some(trace),
            ..flow
        })
    };
    Ok(flows.into_iter().flat_map(of).collect())
}
