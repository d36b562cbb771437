//! Files of `/dev/infiniband/umadN`: the agents of each, and the records that wait to be read.

use super::record::{self, Header};
use super::registration::Registration;
use super::{AGENTS_MAX, Errno};
use crate::mad::Mad;
use crate::subnet::Packet;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The number of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub(super) u32);

/// Bytes of records that wait to be read, at most. A program that reads none loses what comes then, and
/// nothing else does.
pub const RECORDS_BYTES_MAX: usize = 32 << 20;

/// An open file.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Agents by their number within the file, with the one that is unique on the host.
    agents: [Option<(u32, Registration)>; AGENTS_MAX],
    has_p_key: bool,
    /// An agent has been registered.
    is_used: bool,
    records: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl File {
    /// Whether headers have the index of a partition key.
    pub(super) fn has_p_key(&self) -> bool {
        self.has_p_key
    }

    /// Makes headers longer, before the first agent.
    pub(super) fn enable_p_key(&mut self) -> Result<(), Errno> {
        if self.is_used {
            return Err(Errno::INVALID);
        }
        self.has_p_key = true;
        Ok(())
    }

    /// Registers an agent, and returns its number within the file.
    pub(super) fn register(
        &mut self,
        number: u32,
        registration: Registration,
    ) -> Result<u32, Errno> {
        let free = self
            .agents
            .iter()
            .position(Option::is_none)
            .ok_or(Errno::NO_MEMORY)?;
        self.agents[free] = Some((number, registration));
        self.is_used = true;
        Ok(free as u32)
    }

    /// Removes an agent, and returns its number on the host.
    pub(super) fn unregister(&mut self, id: u32) -> Result<u32, Errno> {
        let agent = self.agents.get_mut(id as usize).and_then(Option::take);
        agent.map(|(number, _)| number).ok_or(Errno::INVALID)
    }

    /// The agent of a number within the file.
    pub(super) fn agent(&self, id: u32) -> Result<(u32, &Registration), Errno> {
        let agent = self.agents.get(id as usize).and_then(Option::as_ref);
        agent
            .map(|(number, registration)| (*number, registration))
            .ok_or(Errno::INVALID)
    }

    /// All agents: their numbers within the file and on the host.
    pub(super) fn agents(&self) -> impl Iterator<Item = (u32, u32, &Registration)> {
        (0..).zip(&self.agents).filter_map(|(id, agent)| {
            let (number, registration) = agent.as_ref()?;
            Some((id, *number, registration))
        })
    }

    pub(super) fn first_record(&self) -> Option<&[u8]> {
        self.records.front().map(Vec::as_slice)
    }

    pub(super) fn drop_record(&mut self) {
        if let Some(record) = self.records.pop_front() {
            self.bytes -= record.len();
        }
    }

    fn keep(&mut self, record: Vec<u8>) {
        if self.bytes + record.len() <= RECORDS_BYTES_MAX {
            self.bytes += record.len();
            self.records.push_back(record);
        }
    }

    /// A datagram has arrived for an agent.
    pub(super) fn add_received(
        &mut self,
        agent: u32,
        packet: &Packet,
        p_key_index: u16,
        datagram: &[u8],
    ) {
        let record = record::of_received(agent, packet, p_key_index, datagram, self.has_p_key);
        self.keep(record);
    }

    /// A request had no answer.
    pub(super) fn add_timeout(&mut self, header: &Header, mad: &Mad) {
        let record = record::of_timeout(header, mad, self.has_p_key);
        self.keep(record);
    }
}
