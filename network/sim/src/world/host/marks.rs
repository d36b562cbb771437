//! The marks of flows whose packets are not marked as the adapter marks all others.

use super::frame::Mark;
use crate::world::scenario::{Flow, FlowMarks, Headers, HostConfig};
use std::collections::BTreeMap;

/// The marks of a flow's packets.
#[derive(Clone, Copy, PartialEq, Debug)]
struct MarkedFlow {
    from: u32,
    /// Of data and acknowledgements, at the host that data comes from and at the other one.
    marks: [[Mark; 2]; 2],
}

/// Flows with marks of their own, by number, and the classes of each host's data.
#[derive(Default, Debug)]
pub(in crate::world) struct MarkedFlows {
    flows: BTreeMap<u32, MarkedFlow>,
    /// By host, one bit each.
    classes: Vec<u8>,
}

impl MarkedFlows {
    pub(in crate::world) fn new(flows: &[Flow], hosts: &[HostConfig]) -> Self {
        let mut found = Self {
            flows: BTreeMap::new(),
            classes: vec![0; hosts.len()],
        };
        for (flow, number) in flows.iter().zip(0..) {
            let ends = [flow.from, flow.to].map(|host| &hosts[host as usize]);
            let marks = ends.map(|config| match config.headers {
                // A packet of InfiniBand has the service level of its adapter.
                Headers::Infiniband => FlowMarks::default().of(config),
                _ => flow.marks.of(config),
            });
            for (host, [data, _]) in [flow.from, flow.to].into_iter().zip(marks) {
                found.classes[host as usize] |= 1 << (data.class & 7);
            }
            if flow.marks != FlowMarks::default() {
                let marks = marks.map(|marks| marks.map(Mark::from));
                let from = flow.from;
                found.flows.insert(number, MarkedFlow { from, marks });
            }
        }
        for (classes, config) in found.classes.iter_mut().zip(hosts) {
            if *classes == 0 {
                *classes = 1 << (config.data.class & 7);
            }
        }
        found
    }

    /// Classes of the data that a host sends or answers, one bit each.
    pub(in crate::world) fn classes(&self, host: u32) -> u8 {
        self.classes[host as usize]
    }

    /// The mark of a flow's data (role 0) or acknowledgements (role 1) that a host sends.
    #[inline]
    pub(super) fn mark(&self, flow: u32, host: u32, role: usize) -> Option<Mark> {
        if self.flows.is_empty() {
            return None;
        }
        let found = self.flows.get(&flow)?;
        let end = usize::from(found.from != host);
        found.marks[end].get(role).copied()
    }
}
