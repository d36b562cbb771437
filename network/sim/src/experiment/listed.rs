//! Workloads whose messages a file lists.

use super::workload::transfer;
use crate::world::Flow;
use fabric::Time;
use fabric_file::Network;
use fabric_file::schema::{Operation, Workload};

/// A workload whose messages a file lists.
#[derive(Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) workload: &'a Workload,
    pub(super) number: u32,
    pub(super) network: &'a Network,
}

impl Listed<'_> {
    /// A field that says what is sent besides the list.
    pub(super) fn another_amount(&self) -> Option<&'static str> {
        let workload = self.workload;
        let others = [
            ("messages", workload.messages.is_some()),
            ("bytes", workload.bytes.is_some()),
            ("load", workload.load.is_some()),
            ("replay", workload.replay.is_some()),
            ("source-gid", workload.source_gid.is_some()),
            ("source-mac", workload.source_mac.is_some()),
        ];
        let mut others = others.into_iter().filter(|(_, is_there)| *is_there);
        others.next().map(|(name, _)| name)
    }

    /// A message of the list, which has a queue pair of its own.
    pub(super) fn flow(
        &self,
        [from, to]: [u32; 2],
        bytes: u64,
        start: Time,
    ) -> Result<Flow, String> {
        if from == to {
            return Err("sender and receiver are the same host".to_owned());
        }
        let mtu = u64::from(self.network.hosts[from as usize].nic.mtu);
        match bytes {
            0 => return Err("the message has 0 bytes".to_owned()),
            more if self.workload.operation == Operation::Datagram && more > mtu => {
                return Err(format!("a datagram is one packet of at most {mtu}"));
            }
            _ => {}
        }
        Ok(Flow {
            operation: transfer(self.workload.operation),
            start,
            workload: self.number,
            ..Flow::write(from, to, bytes as u32)
        })
    }
}
