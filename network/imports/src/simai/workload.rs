//! The workload: layers with what is computed and sent forward, for gradients of inputs, and for those of
//! weights.

use super::topology::Servers;
use crate::job::{Collective, Computing, Group, Job, Kind, STEPS_MAX, Step};
use crate::lines::{Line, Lines};
use crate::servers::side_by_side;
use crate::{ImportError, Input};
use fabric::Span;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The one order of passes that is read: forward through all layers, then back.
const POLICY: &str = "HYBRID_TRANSFORMER_FWD_IN_BCKWD";

const LAYERS_MAX: u64 = 1 << 16;

/// The kinds of groups, by what the names of collectives end in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Among {
    /// The processors of one tensor-parallel group.
    Tensor,
    /// Those that have the same part of the model.
    Data,
    /// Those among which experts are divided.
    Expert,
    /// Those that have the same experts.
    DataOfExperts,
}

/// What a layer sends in one pass.
#[derive(Clone, Copy, Debug)]
struct Sent {
    kind: Kind,
    among: Among,
    bytes: u64,
}

/// What a layer does in one pass.
#[derive(Clone, Copy, Debug)]
struct Pass {
    compute: Span,
    sent: [Option<Sent>; 2],
}

#[derive(Clone, Debug)]
struct Layer {
    forward: Pass,
    inputs: Pass,
    weights: Pass,
}

/// How ranks are divided. Ranks of a tensor-parallel group are next to each other, then those of an expert
/// group, then the others that have the same part of the model, then stages of the pipeline.
#[derive(Clone, Copy, Debug)]
struct Division {
    tensor: usize,
    expert: usize,
    /// Processors with the same part of the model.
    data: usize,
    stages: usize,
}

impl Division {
    fn of(
        line: &Line<'_>,
        servers: &Servers,
        notes: &mut Vec<String>,
    ) -> Result<Self, ImportError> {
        let value = |names: &[&str], otherwise: u64| {
            let place = line.words.iter().position(|word| names.contains(word));
            match place {
                Some(place) => line.number(place + 1, names[0], 1 << 20),
                None => Ok(otherwise),
            }
        };
        let tensor = value(&["model_parallel_NPU_group:"], 1)?;
        let (expert, stages) = (value(&["ep:"], 1)?, value(&["pp:"], 1)?);
        let all = value(&["all_gpus:"], servers.processors as u64)?;
        let part = tensor.saturating_mul(stages);
        if part == 0
            || !all.is_multiple_of(part)
            || expert == 0
            || !(all / part).is_multiple_of(expert)
        {
            return Err(line.error(format!(
                "{all} processors cannot be divided into tensor-parallel groups of {tensor}, {stages} \
                 stages and \
                 expert groups of {expert}"
            )));
        }
        if all > servers.processors as u64 {
            let there = servers.processors;
            return Err(line.error(format!(
                "all_gpus is {all}, and the topology has {there} processors"
            )));
        }
        if stages > 1 {
            notes.push(line.note_about(&format!(
                "pp {stages}: the layers are those of one stage; all stages run them side by side, and \
                 what they \
                 send each other (pp_comm) is left out, as in SimAI"
            )));
        }
        if value(&["checkpoints:"], 0)? > 0 {
            notes.push(line.note_about("checkpoints: layers that are computed again are left out"));
        }
        Ok(Self {
            tensor: tensor as usize,
            expert: expert as usize,
            data: (all / part) as usize,
            stages: stages as usize,
        })
    }

    /// The number of all ranks, over all stages.
    fn ranks(self) -> usize {
        self.tensor * self.data * self.stages
    }

    /// The groups of a kind: their ranks.
    fn groups(self, among: Among) -> Vec<Vec<usize>> {
        let Self {
            tensor,
            expert,
            data,
            stages,
        } = self;
        let rank =
            |stage: usize, place: usize, shard: usize| (stage * data + place) * tensor + shard;
        let mut groups = Vec::new();
        for stage in 0..stages {
            match among {
                Among::Tensor => groups.extend(
                    (0..data)
                        .map(|place| (0..tensor).map(|shard| rank(stage, place, shard)).collect()),
                ),
                Among::Data => groups.extend(
                    (0..tensor)
                        .map(|shard| (0..data).map(|place| rank(stage, place, shard)).collect()),
                ),
                Among::Expert => {
                    for shard in 0..tensor {
                        groups.extend((0..data / expert).map(|block| {
                            let places = block * expert..(block + 1) * expert;
                            places.map(|place| rank(stage, place, shard)).collect()
                        }));
                    }
                }
                Among::DataOfExperts => {
                    for shard in 0..tensor {
                        groups.extend((0..expert).map(|first| {
                            let places = (first..data).step_by(expert);
                            places.map(|place| rank(stage, place, shard)).collect()
                        }));
                    }
                }
            }
        }
        groups
    }
}

pub(super) fn read(
    input: Input<'_>,
    servers: &Servers,
    notes: &mut Vec<String>,
) -> Result<Job, ImportError> {
    let mut lines = Lines::of(input);
    let head = lines.expect("the head")?;
    if head.words[0] != POLICY {
        let policy = head.words[0];
        return Err(head.error(format!("{policy} is not read: {POLICY} is")));
    }
    let division = Division::of(&head, servers, notes)?;
    let line = lines.expect("the number of layers")?;
    let count = line.number(0, "the number of layers", LAYERS_MAX)?;
    let mut layers = Vec::new();
    for index in 0..count {
        let line = lines.expect(&format!("layer {} of {count}", index + 1))?;
        layers.push(layer(&line)?);
    }
    let mut writer = Writer {
        servers,
        division,
        job: Job::default(),
        pending: Span::ZERO,
        last: vec![None; division.ranks()],
    };
    writer.write(&layers).map_err(|what| head.error(what))?;
    writer.end();
    Ok(writer.job)
}

/// Name, dependence, then time, collective and bytes of each of the three passes; what follows says how long
/// weights are updated, which SimAI leaves out too.
fn layer(line: &Line<'_>) -> Result<Layer, ImportError> {
    Ok(Layer {
        forward: pass(line, 2, Among::Tensor)?,
        inputs: pass(line, 5, Among::Tensor)?,
        weights: pass(line, 8, Among::Data)?,
    })
}

fn pass(line: &Line<'_>, at: usize, otherwise: Among) -> Result<Pass, ImportError> {
    let compute = Span::from_ns(line.number(at, "the time in nanoseconds", 1 << 53)?);
    let name = line.word(at + 1, "the collective")?;
    let bytes = match name {
        "NONE" => 0,
        _ => line.number(at + 2, "the number of bytes", i64::MAX as u64)?,
    };
    let (stem, among) = match name {
        _ if name.ends_with("_DP_EP") => (&name[..name.len() - 6], Among::DataOfExperts),
        _ if name.ends_with("_EP") => (&name[..name.len() - 3], Among::Expert),
        _ => (name, otherwise),
    };
    let one = |kind| [Some(Sent { kind, among, bytes }), None];
    let sent = match stem {
        _ if bytes == 0 => [None, None],
        "ALLREDUCE" => one(Kind::AllReduce),
        "ALLGATHER" => one(Kind::AllGather),
        "REDUCESCATTER" => one(Kind::ReduceScatter),
        "ALLTOALL" => one(Kind::AllToAll),
        "ALLREDUCEALLTOALL" => {
            let [first, _] = one(Kind::AllReduce);
            let [second, _] = one(Kind::AllToAll);
            [first, second]
        }
        _ => return Err(line.error(format!("{name} is no collective of a workload"))),
    };
    Ok(Pass { compute, sent })
}

struct Writer<'a> {
    servers: &'a Servers,
    division: Division,
    job: Job,
    /// What was computed since the last collective.
    pending: Span,
    /// By rank, the collective that it waits for next.
    last: Vec<Option<Rc<str>>>,
}

impl Writer<'_> {
    fn write(&mut self, layers: &[Layer]) -> Result<(), String> {
        for (index, layer) in layers.iter().enumerate() {
            self.pass(&format!("forward-{index}"), layer.forward, true)?;
        }
        for (index, layer) in layers.iter().enumerate().rev() {
            self.pass(&format!("inputs-{index}"), layer.inputs, true)?;
            self.pass(&format!("weights-{index}"), layer.weights, false)?;
        }
        Ok(())
    }

    /// Gradients of weights are sent while the next layer is computed; everything else is waited for.
    fn pass(&mut self, name: &str, pass: Pass, is_waited_for: bool) -> Result<(), String> {
        self.pending += pass.compute;
        for (part, sent) in pass.sent.into_iter().flatten().enumerate() {
            let name = if part == 0 {
                name.to_owned()
            } else {
                format!("{name}-b")
            };
            let groups = self.division.groups(sent.among);
            let groups: Vec<_> = groups.into_iter().filter(|ranks| ranks.len() > 1).collect();
            if groups.is_empty() {
                continue;
            }
            if self.job.steps.len() + groups.len() > STEPS_MAX {
                return Err(format!(
                    "more than {STEPS_MAX} collectives: each group of ranks has one for each layer and pass"
                ));
            }
            let mut last = self.last.clone();
            for (number, ranks) in groups.into_iter().enumerate() {
                let group = self.group(sent.among, number, &ranks);
                let name: Rc<str> = format!("{name}.{number}").into();
                self.job.steps.push(Step::Collective(Collective {
                    name: name.to_string(),
                    kind: sent.kind,
                    group,
                    bytes: sent.bytes,
                    fields: Vec::new(),
                    after: self.waited_for(&ranks),
                    compute: self.pending,
                }));
                for rank in ranks {
                    last[rank] = Some(Rc::clone(&name));
                }
            }
            self.pending = Span::ZERO;
            if is_waited_for {
                self.last = last;
            }
        }
        Ok(())
    }

    /// What is computed behind the last collective that is waited for: the step ends there.
    fn end(&mut self) {
        if self.pending.0 == 0 {
            return;
        }
        for rank in 0..self.last.len() {
            let computing = Computing {
                name: format!("end.{rank}"),
                rank,
                host: self.servers.graph.name(rank),
                after: self.waited_for(&[rank]),
                time: self.pending,
            };
            self.job.compute(computing);
        }
    }

    /// The last collectives that some of these ranks took part in.
    fn waited_for(&self, ranks: &[usize]) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let last = ranks.iter().filter_map(|rank| self.last[*rank].as_ref());
        let names = last.filter(|name| seen.insert(Rc::clone(name)));
        names.map(|name| name.to_string()).collect()
    }

    /// The name of a group, which is there from its first collective on.
    fn group(&mut self, among: Among, number: usize, ranks: &[usize]) -> String {
        let kind = match among {
            Among::Tensor => "tensor",
            Among::Data => "data",
            Among::Expert => "expert",
            Among::DataOfExperts => "data-of-experts",
        };
        let name = format!("{kind}-{number}");
        if !self.job.groups.contains_key(&name) {
            let servers = self.servers;
            let group = Group {
                hosts: ranks.iter().map(|rank| servers.graph.name(*rank)).collect(),
                per_server: match servers.local {
                    Some(_) => side_by_side(ranks, servers.per_server),
                    None => 1,
                },
                local: servers.local,
            };
            self.job.groups.insert(name.clone(), group);
        }
        name
    }
}
