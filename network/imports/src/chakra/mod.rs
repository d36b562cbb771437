//! Execution traces of Chakra: a file for each rank, with what it computes, sends and receives, and the
//! collectives that it takes part in.
//!
//! A collective begins at a rank when what its node waits for has ended there. Sizes are those of ASTRA-sim:
//! of an all-gather the part of a rank, of all other collectives all that a rank has.

mod node;
mod protobuf;

use crate::job::{Collective, Computing, Job, Kind, STEPS_MAX, Step, Transfer};
use crate::schedule::{Impossible, Operation, Work, schedule};
use crate::servers::Servers;
use crate::text::FabricText;
use crate::{ImportError, Imported};
use fabric::Span;
use node::{Node, NodeType};
use protobuf::Reader;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Nodes of all ranks at most.
const NODES_MAX: usize = 1 << 22;

/// The trace of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// The name of its file: NAME.RANK.et.
    pub name: &'a str,
    /// What is in it.
    pub bytes: &'a [u8],
}

/// What is known of a step while traces are read.
#[derive(Debug)]
struct Shared {
    step: Step,
    /// The ranks that take part.
    ranks: BTreeSet<usize>,
    /// The names of what it waits for.
    waits: BTreeSet<String>,
}

/// What makes the parts of ranks one step.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    /// The collective of a group with this place among those of the group.
    Collective { group: String, place: usize },
    /// The message of two ranks and a tag with this place among them.
    Message {
        from: usize,
        to: usize,
        tag: u64,
        place: usize,
    },
}

#[derive(Debug, Default)]
struct Traces {
    /// The nodes of each rank, until its steps are known.
    ranks: BTreeMap<usize, Vec<Node>>,
    keys: BTreeMap<Key, usize>,
    steps: Vec<Shared>,
    computing: Vec<Computing>,
    notes: BTreeSet<String>,
}

/// Makes the fabric file of a trace. The traces are those of all ranks.
///
/// # Errors
/// Files that are no traces or not of all ranks, dependencies on nodes that there are not or on themselves,
/// sends without their receive, and more nodes or steps than can be kept.
pub fn import(
    title: &str,
    traces: &[Trace<'_>],
    servers: Servers,
) -> Result<Imported, ImportError> {
    let mut all = Traces::default();
    let mut names = BTreeMap::new();
    let mut count = 0;
    for trace in traces {
        let error = |what: String| ImportError {
            file: trace.name.to_owned(),
            line: None,
            what,
        };
        let rank =
            rank(trace.name).ok_or_else(|| error("a trace is called NAME.RANK.et".to_owned()))?;
        let nodes = read(trace.bytes).map_err(|what| error(what.to_owned()))?;
        count += nodes.len();
        if count > NODES_MAX {
            return Err(error(format!("more than {NODES_MAX} nodes")));
        }
        if all.ranks.insert(rank, nodes).is_some() {
            return Err(error(format!("there are two traces of rank {rank}")));
        }
        names.insert(rank, trace.name);
    }
    let ranks = all.ranks.len();
    if let Some(missing) = (0..ranks).find(|rank| !all.ranks.contains_key(rank)) {
        let what = format!(
            "{ranks} traces, and none of them is of rank {missing}: name those of all ranks"
        );
        return Err(ImportError {
            file: title.to_owned(),
            line: None,
            what,
        });
    }
    for (rank, name) in names {
        all.rank(rank, ranks, servers).map_err(|what| ImportError {
            file: name.to_owned(),
            line: None,
            what,
        })?;
    }
    all.written(title, ranks, servers)
}

/// The rank in the name of a file.
fn rank(name: &str) -> Option<usize> {
    let (_, name) = name.rsplit_once('/').unwrap_or(("", name));
    let stem = name.strip_suffix(".et")?;
    stem.rsplit_once('.')?.1.parse().ok()
}

/// The nodes behind the metadata.
fn read(bytes: &[u8]) -> Result<Vec<Node>, &'static str> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err("the trace is compressed: gzip -d");
    }
    let mut reader = Reader::of(bytes);
    reader.delimited()?;
    let mut nodes = Vec::new();
    while !reader.rest.is_empty() {
        nodes.push(Node::read(reader.delimited()?)?);
    }
    Ok(nodes)
}

impl Traces {
    /// Adds a rank's part of all steps.
    fn rank(&mut self, rank: usize, ranks: usize, servers: Servers) -> Result<(), String> {
        let nodes = std::mem::take(self.ranks.get_mut(&rank).unwrap_or(&mut Vec::new()));
        let places: HashMap<u64, usize> = nodes.iter().map(|node| node.id).zip(0..).collect();
        let mut counts = BTreeMap::new();
        let mut operations = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let work = self.work(node, Place { rank, ranks }, &mut counts, servers)?;
            let mut ends = Vec::new();
            for id in node.data.iter().chain(&node.control) {
                let place = places.get(id);
                ends.push(*place.ok_or_else(|| {
                    format!(
                        "node {} (\"{}\") waits for node {id}, which is not there",
                        node.id, node.name
                    )
                })?);
            }
            operations.push(Operation {
                work,
                ends,
                begins: Vec::new(),
            });
        }
        let scheduled = schedule(&operations).map_err(|impossible| match impossible {
            Impossible::Circle(place) => format!(
                "node {} (\"{}\") waits for itself, by way of others",
                nodes[place].id, nodes[place].name
            ),
            Impossible::TooMany => "nodes wait for too many others".to_owned(),
        })?;
        let name = |operation: &usize| match operations[*operation].work {
            Work::Step(step) => step_name(&self.steps[step].step),
            Work::Compute(_) => format!("rank-{rank}-node-{}", nodes[*operation].id),
        };
        let mut waits = Vec::new();
        for one in &scheduled {
            let after: Vec<String> = one.waits.iter().map(name).collect();
            match one.work {
                Work::Step(step) => waits.push((step, after)),
                Work::Compute(ps) => self.computing.push(Computing {
                    name: name(&one.operation),
                    rank,
                    host: servers.host(rank),
                    after,
                    time: Span(ps),
                }),
            }
        }
        for (step, after) in waits {
            let shared = &mut self.steps[step];
            // A transfer begins at its sender.
            let is_receiver = match &shared.step {
                Step::Transfer(transfer) => transfer.from != servers.host(rank),
                Step::Collective(_) => false,
            };
            if !is_receiver {
                shared.waits.extend(after);
            }
        }
        if self.steps.len() + self.computing.len() > STEPS_MAX {
            return Err(format!(
                "more than {STEPS_MAX} collectives, messages and times of computing, which are tables \
                 of a fabric file"
            ));
        }
        Ok(())
    }

    fn work(
        &mut self,
        node: &Node,
        place: Place,
        counts: &mut BTreeMap<Key, usize>,
        servers: Servers,
    ) -> Result<Work, String> {
        let compute = Work::Compute(node.duration_us.saturating_mul(1_000_000));
        let mut numbered = |mut key: Key| {
            let count = counts.entry(key.clone()).or_default();
            match &mut key {
                Key::Collective { place, .. } | Key::Message { place, .. } => *place = *count,
            }
            *count += 1;
            key
        };
        let key = match node.kind {
            NodeType::Compute | NodeType::Other => return Ok(compute),
            NodeType::Collective => numbered(Key::Collective {
                group: node.group.clone(),
                place: 0,
            }),
            NodeType::Send | NodeType::Receive => {
                let is_send = node.kind == NodeType::Send;
                let other = if is_send { node.to } else { node.from } as usize;
                if other == place.rank || other >= place.ranks {
                    return Err(format!(
                        "node {} (\"{}\") is a message between rank {} and rank {other} of {}",
                        node.id, node.name, place.rank, place.ranks
                    ));
                }
                let (from, to) = if is_send {
                    (place.rank, other)
                } else {
                    (other, place.rank)
                };
                numbered(Key::Message {
                    from,
                    to,
                    tag: node.tag,
                    place: 0,
                })
            }
        };
        let known = self.keys.get(&key).copied();
        let step = match known {
            Some(step) => step,
            None => {
                let Some(step) = self.step(node, &key, place, servers) else {
                    return Ok(compute);
                };
                self.keys.insert(key, self.steps.len());
                self.steps.push(Shared {
                    step,
                    ranks: BTreeSet::new(),
                    waits: BTreeSet::new(),
                });
                self.steps.len() - 1
            }
        };
        self.steps[step].ranks.insert(place.rank);
        Ok(Work::Step(step))
    }

    /// The step of a node, which the first rank that has it decides.
    fn step(&mut self, node: &Node, key: &Key, place: Place, servers: Servers) -> Option<Step> {
        let number = self.steps.len();
        if let Key::Message { from, to, .. } = key {
            return Some(Step::Transfer(Transfer {
                name: format!("message-{number}"),
                from: servers.host(*from),
                to: servers.host(*to),
                bytes: node.bytes.max(1),
                after: Vec::new(),
                start: Span::ZERO,
            }));
        }
        let kind = match node.collective {
            0 => Kind::AllReduce,
            1 => Kind::Reduce,
            2 => Kind::AllGather,
            5 => Kind::Broadcast,
            6 => Kind::AllToAll,
            7 | 8 => Kind::ReduceScatter,
            9 => Kind::Barrier,
            other => {
                self.notes.insert(format!(
                    "collectives of type {other} (gather or scatter) are taken as computing: rockery \
                     has none"
                ));
                return None;
            }
        };
        let mut fields = Vec::new();
        if matches!(kind, Kind::Broadcast | Kind::Reduce) && (node.root as usize) < place.ranks {
            fields.push(("root", crate::text::quote(servers.host(node.root as usize))));
        }
        Some(Step::Collective(Collective {
            name: format!("{}-{number}", kind.name()),
            kind,
            group: node.group.clone(),
            bytes: node.bytes,
            fields,
            after: Vec::new(),
            compute: Span::ZERO,
        }))
    }

    fn written(
        mut self,
        title: &str,
        ranks: usize,
        servers: Servers,
    ) -> Result<Imported, ImportError> {
        let error = |what: String| ImportError {
            file: title.to_owned(),
            line: None,
            what,
        };
        if self.steps.is_empty() {
            return Err(error("no node is a collective or a message".to_owned()));
        }
        let mut job = Job::default();
        for computing in std::mem::take(&mut self.computing) {
            job.compute(computing);
        }
        let mut groups: BTreeMap<BTreeSet<usize>, String> = BTreeMap::new();
        for shared in &mut self.steps {
            let after = std::mem::take(&mut shared.waits).into_iter().collect();
            match &mut shared.step {
                Step::Transfer(transfer) => {
                    if shared.ranks.len() != 2 {
                        let (from, to) = (&transfer.from, &transfer.to);
                        return Err(error(format!(
                            "a message from {from} to {to} has no other end: send and receive have one tag"
                        )));
                    }
                    transfer.after = after;
                }
                Step::Collective(collective) => {
                    if shared.ranks.len() < 2 {
                        let name = &collective.name;
                        return Err(error(format!(
                            "{name} has one rank: others have fewer collectives"
                        )));
                    }
                    let number = groups.len();
                    let group = groups
                        .entry(shared.ranks.clone())
                        .or_insert_with(|| format!("group-{number}"));
                    collective.group = group.clone();
                    collective.after = after;
                    if collective.kind == Kind::AllGather {
                        let ranks = shared.ranks.len() as u64;
                        collective.bytes = collective.bytes.saturating_mul(ranks);
                    }
                }
            }
            job.steps.push(shared.step.clone());
        }
        for (members, name) in groups {
            let members: Vec<usize> = members.into_iter().collect();
            job.groups.insert(name, servers.group(&members));
        }
        let mut text = FabricText::titled(title);
        servers.write(&mut text, ranks);
        job.write(&mut text);
        Ok(Imported {
            fabric: text.finish(),
            lists: Vec::new(),
            notes: self.notes.into_iter().collect(),
        })
    }
}

/// A rank among all.
#[derive(Clone, Copy, Debug)]
struct Place {
    rank: usize,
    ranks: usize,
}

fn step_name(step: &Step) -> String {
    match step {
        Step::Collective(collective) => collective.name.clone(),
        Step::Transfer(transfer) => transfer.name.clone(),
    }
}
