//! What the ranks of a job compute and send, and the fabric file's tables of it.

use crate::text::{FabricText, list};
use fabric::Span;
use std::collections::BTreeMap;
use units::{Size, Timespan};

/// Collectives and transfers at most: a fabric file has a table for each.
pub(crate) const STEPS_MAX: usize = 200_000;

/// The operations that the formats have, by the names of the fabric file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Reduce,
    Barrier,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Barrier => "barrier",
        }
    }
}

/// A collective of a group.
#[derive(Clone, Debug)]
pub(crate) struct Collective {
    pub name: String,
    pub kind: Kind,
    pub group: String,
    /// As nccl-tests count them.
    pub bytes: u64,
    /// Further fields and their values, as the fabric file has them.
    pub fields: Vec<(&'static str, String)>,
    pub after: Vec<String>,
    pub compute: Span,
}

/// Data from one rank to another.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub name: String,
    pub from: String,
    pub to: String,
    pub bytes: u64,
    pub after: Vec<String>,
    /// When it may begin.
    pub start: Span,
}

/// Computing of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Computing {
    pub name: String,
    pub rank: usize,
    pub host: String,
    pub after: Vec<String>,
    pub time: Span,
}

/// One of both.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Collective(Collective),
    Transfer(Transfer),
}

/// How ranks of one server reach each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub rate: fabric::Rate,
    pub delay: Span,
}

/// The ranks of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub hosts: Vec<String>,
    /// Ranks side by side that are one server.
    pub per_server: u32,
    pub local: Option<Local>,
}

/// Groups of ranks, and their steps in the order in which they begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    /// Groups by name.
    pub groups: BTreeMap<String, Group>,
    pub steps: Vec<Step>,
}

impl Job {
    /// Adds computing of a rank, which is a barrier of that rank alone.
    pub(crate) fn compute(&mut self, computing: Computing) {
        let group = format!("compute-{}", computing.rank);
        let hosts = vec![computing.host];
        self.groups.entry(group.clone()).or_insert(Group {
            hosts,
            ..Group::default()
        });
        self.steps.push(Step::Collective(Collective {
            name: computing.name,
            kind: Kind::Barrier,
            group,
            bytes: 0,
            fields: Vec::new(),
            after: computing.after,
            compute: computing.time,
        }));
    }

    pub(crate) fn write(&self, text: &mut FabricText) {
        for (name, group) in &self.groups {
            text.table(format_args!("group.{name}"));
            group.write(text);
        }
        for step in &self.steps {
            match step {
                Step::Collective(collective) => collective.write(text),
                Step::Transfer(transfer) => transfer.write(text),
            }
        }
    }
}

impl Group {
    fn write(&self, text: &mut FabricText) {
        text.field("hosts", list(&self.hosts));
        if self.per_server <= 1 {
            return;
        }
        text.field("ranks-per-server", self.per_server);
        if let Some(Local { rate, delay }) = self.local {
            let (rate, delay) = (units::Bandwidth(rate), Timespan(delay));
            text.field(
                "local",
                format_args!("{{ rate = \"{rate}\", delay = \"{delay}\" }}"),
            );
        }
    }
}

impl Collective {
    fn write(&self, text: &mut FabricText) {
        text.element("collective");
        text.quoted("name", &self.name);
        text.quoted("kind", self.kind.name());
        text.quoted("group", &self.group);
        if self.kind != Kind::Barrier {
            text.quoted("bytes", Size(self.bytes));
        }
        for (name, value) in &self.fields {
            text.field(name, value);
        }
        waits(text, &self.after, self.compute);
    }
}

impl Transfer {
    fn write(&self, text: &mut FabricText) {
        text.element("transfer");
        text.quoted("name", &self.name);
        text.quoted("from", &self.from);
        text.quoted("to", &self.to);
        text.quoted("bytes", Size(self.bytes));
        waits(text, &self.after, Span::ZERO);
        if self.start.0 > 0 {
            text.quoted("start", Timespan(self.start));
        }
    }
}

fn waits(text: &mut FabricText, after: &[String], compute: Span) {
    if !after.is_empty() {
        text.field("after", list(after));
    }
    if compute.0 > 0 {
        text.quoted("compute", Timespan(compute));
    }
}
