//! The flow file: a number, and so many lines with sender, receiver, class, port, bytes and seconds.

use super::topology::node;
use crate::graph::Graph;
use crate::lines::Lines;
use crate::text::FabricText;
use crate::{ImportError, Input, List, quantity};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Flows at most.
const FLOWS_MAX: u64 = 1 << 24;

/// The highest class.
const CLASS_MAX: u64 = 7;

/// Lists of flows by class.
#[derive(Debug, Default)]
pub(super) struct Flows(BTreeMap<u8, String>);

/// The DSCP of a class: that of class 3 is rockery's default.
pub(super) fn dscp(class: u8) -> u8 {
    8 * class + 2
}

pub(super) fn read(
    input: Input<'_>,
    graph: &Graph,
    notes: &mut Vec<String>,
) -> Result<Flows, ImportError> {
    let mut lines = Lines::of(input);
    let head = lines.expect("the number of flows")?;
    let count = head.number(0, "the number of flows", FLOWS_MAX)?;
    let mut flows = Flows::default();
    let nodes = graph.is_switch.len() as u64;
    for index in 0..count {
        let line = lines.expect(&format!("flow {} of {count}", index + 1))?;
        let host = |index: usize, what: &str| {
            let node = node(&line, index, what, nodes)?;
            match graph.is_switch[node] {
                true => Err(line.error(format!("{what} {node} is a switch"))),
                false => Ok(graph.name(node)),
            }
        };
        let (from, to) = (host(0, "the sender")?, host(1, "the receiver")?);
        if from == to {
            return Err(line.error(format!("{from} sends to itself")));
        }
        let class = line.number(2, "the class (pg)", CLASS_MAX)? as u8;
        let bytes = line.number(4, "the number of bytes", u64::MAX)?;
        let start = line.decimal(5, "the start in seconds")?;
        let start =
            quantity::seconds_ns(start).ok_or_else(|| line.error("the start is too late"))?;
        let list = flows
            .0
            .entry(class)
            .or_insert_with(|| "from,to,bytes,start_ns\n".to_owned());
        let _ = writeln!(list, "{from},{to},{bytes},{start}");
    }
    if let Some(line) = lines.next() {
        let behind = 1 + lines.count();
        notes.push(line.note_about(&format!(
            "{behind} lines behind the {count} flows that the first line announces: the model does not \
             read \
             them either"
        )));
    }
    Ok(flows)
}

impl Flows {
    /// The classes that have flows.
    pub(super) fn classes(&self) -> Vec<u8> {
        self.0.keys().copied().collect()
    }

    /// A workload for each class.
    pub(super) fn write(&self, text: &mut FabricText) {
        for class in self.0.keys() {
            text.element("workload");
            text.quoted("flows", name(*class));
            if *class != super::CLASS {
                text.field("dscp", dscp(*class));
                text.field("priority", class);
            }
        }
    }

    pub(super) fn lists(self) -> Vec<List> {
        let lists = self.0.into_iter();
        let named = lists.map(|(class, text)| List {
            name: name(class),
            text,
        });
        named.collect()
    }
}

fn name(class: u8) -> String {
    format!("flows-{class}.csv")
}
