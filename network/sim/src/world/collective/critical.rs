//! The critical path of a job: from the end of its last repetition back to where it began, each time to what
//! was waited for last.

use super::log::{Cause, Log, MoveRef};
use super::worker::Worker;
use fabric::Time;
use std::collections::BTreeMap;

/// Legs of one path at most, and steps from one to the next.
const LEGS_MAX: usize = 1 << 16;
const STEPS_MAX: usize = 1 << 22;

/// A stretch of a critical path. Slices of one queue pair that follow each other are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg {
    /// What happened in this time.
    pub kind: LegKind,
    /// When the stretch begins.
    pub begin: Time,
    /// When the stretch ends.
    pub end: Time,
    /// Slices that crossed the network.
    pub slices: u32,
    /// Bytes of these slices.
    pub bytes: u64,
    /// How many of them were posted when no other one of the queue pair was under way.
    pub idle_starts: u32,
    /// How long the sender's port was paused meanwhile.
    pub paused_ps: u64,
    /// Bytes that left the sender's port meanwhile, with preambles and gaps: of all of its queue pairs.
    pub port_bytes: u64,
    /// How long slices took of which packets were sent again.
    pub resent_ps: u64,
}

/// What happens on a stretch of a critical path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LegKind {
    /// A host computes.
    Compute(u32),
    /// Slices go from one host to another, one after the other.
    Transfer {
        /// The host that sends.
        from: u32,
        /// The host that receives.
        to: u32,
    },
    /// Slices go from one rank of a server to another one.
    Local {
        /// The host that sends.
        from: u32,
        /// The host that receives.
        to: u32,
    },
    /// A slice of `from` waits until `to` says that it has room.
    Credit {
        /// The host that sends.
        from: u32,
        /// The host that receives.
        to: u32,
    },
}

/// A point of the path.
#[derive(Clone, Copy)]
enum Node {
    Moved {
        worker: usize,
        by: MoveRef,
    },
    Arrived {
        flow: u32,
        number: u32,
    },
    Acknowledged {
        flow: u32,
        number: u32,
    },
    /// The record that clears the way for a slice has come.
    Allowed {
        flow: u32,
        number: u32,
    },
    Begun {
        worker: usize,
    },
}

/// The ends of a pipe: worker and number of the pipe there.
#[derive(Clone, Copy, Default)]
struct Ends {
    sender: Option<(usize, u32)>,
    receiver: Option<(usize, u32)>,
}

/// The workers of a job, and its part at each.
struct JobLogs<'a> {
    workers: &'a [(&'a Worker, usize)],
    ends: BTreeMap<u32, Ends>,
}

/// The path of a job, given the workers of its ranks and the number of its part at each.
pub(in crate::world) fn critical_path(workers: &[(&Worker, usize)]) -> Vec<Leg> {
    let logs = JobLogs::new(workers);
    let mut legs: Vec<Leg> = Vec::new();
    let mut node = logs.last();
    for _ in 0..STEPS_MAX {
        let Some(here) = node else { break };
        let (leg, next) = logs.before(here);
        if let Some(leg) = leg.filter(|leg| leg.end > leg.begin) {
            match legs
                .last_mut()
                .filter(|last| last.kind == leg.kind && last.begin == leg.end)
            {
                Some(last) => last.extend_back(&leg),
                None => legs.push(leg),
            }
        }
        if legs.len() == LEGS_MAX {
            return Vec::new();
        }
        node = next;
    }
    legs.reverse();
    legs
}

impl Leg {
    const fn new(kind: LegKind, begin: Time, end: Time) -> Self {
        Self {
            kind,
            begin,
            end,
            slices: 0,
            bytes: 0,
            idle_starts: 0,
            paused_ps: 0,
            port_bytes: 0,
            resent_ps: 0,
        }
    }

    /// Puts the leg before this one in front.
    fn extend_back(&mut self, before: &Self) {
        self.begin = before.begin;
        self.slices += before.slices;
        self.bytes += before.bytes;
        self.idle_starts += before.idle_starts;
        self.paused_ps += before.paused_ps;
        self.port_bytes += before.port_bytes;
        self.resent_ps += before.resent_ps;
    }
}

impl<'a> JobLogs<'a> {
    fn new(workers: &'a [(&'a Worker, usize)]) -> Self {
        let mut ends: BTreeMap<u32, Ends> = BTreeMap::new();
        for (at, (worker, _)) in workers.iter().enumerate() {
            for (pipe, number) in worker.pipes.iter().zip(0..) {
                let ends = ends.entry(pipe.flow).or_default();
                let end = if pipe.sends {
                    &mut ends.sender
                } else {
                    &mut ends.receiver
                };
                *end = Some((at, number));
            }
        }
        Self { workers, ends }
    }

    fn log(&self, worker: usize) -> &'a Log {
        let (worker, part) = self.workers[worker];
        &worker.parts[part].log
    }

    /// What ended last.
    fn last(&self) -> Option<Node> {
        let end = |at: usize| {
            let (worker, part) = self.workers[at];
            Some((worker.parts[part].times.last()?[1], at))
        };
        // Of several that end at once, the first.
        let all = (0..self.workers.len()).filter_map(end);
        let (end, worker) = all.reduce(|one, other| if other.0 > one.0 { other } else { one })?;
        let log = self.log(worker);
        let moved = log.moves.iter().zip(0..).find_map(|(moves, strand)| {
            moves.last().filter(|last| last.at == end)?;
            let number = moves.len() as u32 - 1;
            Some(Node::Moved {
                worker,
                by: MoveRef { strand, number },
            })
        });
        moved.or_else(|| {
            log.given.iter().find_map(|(pipe, given)| {
                given.last().filter(|last| last.acknowledged == end)?;
                let number = given.len() as u32 - 1;
                let flow = self.workers[worker].0.pipes[*pipe as usize].flow;
                Some(Node::Acknowledged { flow, number })
            })
        })
    }

    /// The stretch that ends at a point, and the point where it begins.
    fn before(&self, node: Node) -> (Option<Leg>, Option<Node>) {
        match node {
            Node::Begun { worker } => (self.computing(worker), None),
            Node::Moved { worker, by } => (None, self.cause(worker, by)),
            Node::Arrived { flow, number } => parted(self.transfer(flow, number, true)),
            Node::Acknowledged { flow, number } => parted(self.transfer(flow, number, false)),
            Node::Allowed { flow, number } => parted(self.allowance(flow, number)),
        }
    }

    fn computing(&self, worker: usize) -> Option<Leg> {
        let (worker, part) = self.workers[worker];
        let part = &worker.parts[part];
        let [begin, end] = part.computed?;
        (end == part.begun).then(|| Leg::new(LegKind::Compute(worker.host), begin, end))
    }

    fn cause(&self, worker: usize, by: MoveRef) -> Option<Node> {
        let moves = self.log(worker).moves.get(by.strand as usize)?;
        let pipes = &self.workers[worker].0.pipes;
        let flow = |pipe: u32| pipes[pipe as usize].flow;
        Some(match moves.get(by.number as usize)?.cause {
            Cause::Begin => Node::Begun { worker },
            Cause::Previous => Node::Moved {
                worker,
                by: MoveRef {
                    number: by.number.checked_sub(1)?,
                    ..by
                },
            },
            Cause::Arrived(slice) => Node::Arrived {
                flow: flow(slice.pipe),
                number: slice.number,
            },
            Cause::Acknowledged(slice) => Node::Acknowledged {
                flow: flow(slice.pipe),
                number: slice.number,
            },
        })
    }

    /// A slice on its way, until it arrives or is acknowledged.
    fn transfer(&self, flow: u32, number: u32, arrives: bool) -> Option<(Leg, Node)> {
        let ends = self.ends.get(&flow)?;
        let ((sender, out), (receiver, into)) = (ends.sender?, ends.receiver?);
        let given = self.log(sender).given.get(&out)?;
        let cleared = self.log(receiver).cleared.get(&into)?;
        let at = number as usize;
        let slice = given.get(at)?;
        cleared.get(at)?;
        let done = |at: usize| match arrives {
            true => cleared[at].arrived,
            false => given[at].acknowledged,
        };
        let hosts = [sender, receiver].map(|at| self.workers[at].0.host);
        let [from, to] = hosts;
        let is_local = self.workers[sender].0.pipes[out as usize].local.is_some();
        let kind = match is_local {
            true => LegKind::Local { from, to },
            false => LegKind::Transfer { from, to },
        };
        let before = at.checked_sub(1).map(done).filter(|at| *at > slice.posted);
        let begin = before.unwrap_or(slice.posted);
        let span = done(at).0.saturating_sub(begin.0);
        let leg = Leg {
            slices: 1,
            bytes: u64::from(slice.bytes),
            idle_starts: u32::from(before.is_none()),
            paused_ps: slice.paused_ps.min(span),
            port_bytes: slice.port_bytes,
            resent_ps: if slice.resent { span } else { 0 },
            ..Leg::new(kind, begin, done(at))
        };
        if before.is_some() {
            let number = number - 1;
            let node = match arrives {
                true => Node::Arrived { flow, number },
                false => Node::Acknowledged { flow, number },
            };
            return Some((leg, node));
        }
        if slice.posted > slice.given {
            return Some((leg, Node::Allowed { flow, number }));
        }
        let by = slice.by;
        Some((leg, Node::Moved { worker: sender, by }))
    }

    /// A record on its way from a receiver that has room.
    fn allowance(&self, flow: u32, number: u32) -> Option<(Leg, Node)> {
        let ends = self.ends.get(&flow)?;
        let ((sender, out), (receiver, into)) = (ends.sender?, ends.receiver?);
        let slice = self.log(sender).given.get(&out)?.get(number as usize)?;
        let record = self
            .log(receiver)
            .cleared
            .get(&into)?
            .get(number as usize)?;
        let [from, to] = [sender, receiver].map(|at| self.workers[at].0.host);
        let leg = Leg::new(LegKind::Credit { from, to }, record.cleared, slice.posted);
        let begun = Node::Begun { worker: receiver };
        let node = record.by.map_or(begun, |by| Node::Moved {
            worker: receiver,
            by,
        });
        Some((leg, node))
    }
}

fn parted(leg: Option<(Leg, Node)>) -> (Option<Leg>, Option<Node>) {
    leg.map_or((None, None), |(leg, node)| (Some(leg), Some(node)))
}
