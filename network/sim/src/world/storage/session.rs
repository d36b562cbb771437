//! The messages of an I/O, and the steps that are due at some time.

use crate::world::scenario::Flow;
use fabric::Time;
use rnic::RegionKeys;
use std::collections::{BTreeMap, VecDeque};
use wire::Qpn;

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Word {
    /// A command: requests an I/O.
    Command,
    /// TCP: data may come.
    Ready,
    /// TCP: the last data of an I/O.
    Data,
    /// TCP: data of which more follows.
    Part,
    /// An I/O is done.
    Response,
    /// RDMA: data was read from its owner. A message of the adapter, not of the peer.
    Fetched,
    /// The connection ends; the commands of the next one begin with this number.
    Closed,
}

/// Bits of an immediate that hold the I/O's number; the word is above.
const NUMBER_BITS: u32 = 29;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;

impl Word {
    /// The message as immediate data, with the number of the I/O in place of NVMe's command identifier.
    pub(super) const fn immediate(self, number: u64) -> [u8; 4] {
        ((self as u32) << NUMBER_BITS | number as u32 & NUMBER_MASK).to_be_bytes()
    }

    pub(super) const fn parse(bytes: [u8; 4]) -> (Self, u64) {
        let value = u32::from_be_bytes(bytes);
        let word = match value >> NUMBER_BITS {
            0 => Self::Command,
            1 => Self::Ready,
            2 => Self::Data,
            3 => Self::Part,
            4 => Self::Response,
            6 => Self::Closed,
            _ => Self::Fetched,
        };
        (word, (value & NUMBER_MASK) as u64)
    }
}

/// A work request for the adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Work {
    /// Sends a message of NVMe over Fabrics.
    Say { word: Word, number: u64, bytes: u32 },
    /// RDMA: data goes into the initiator's memory.
    Place { bytes: u32 },
    /// RDMA: data comes from there.
    Fetch { number: u64, bytes: u32 },
}

/// An I/O under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Io {
    /// When the program requested it.
    pub(super) begun: Time,
    /// Time at which the command was sent last.
    pub(super) sent: Time,
    /// How often it was sent before.
    pub(super) repeated: u32,
}

/// A step that is due at some time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    /// The adapter gets a work request.
    Post { session: u32, work: Work },
    /// An interrupt comes to a core.
    Interrupt { core: u32 },
    /// The program has a message.
    Hear {
        session: u32,
        word: Word,
        number: u64,
    },
    /// A drive is done.
    Served { session: u32, number: u64 },
    /// The oldest I/O of a session may have taken too long.
    Expire { session: u32 },
    /// The host is connected again.
    Reconnect { session: u32 },
}

/// One job's I/Os, at one of its ends.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) flow: Flow,
    pub(super) qpn: Qpn,
    pub(super) peer: RegionKeys,
    /// The end that sends commands: the index of its poster at its host.
    pub(super) poster: Option<u32>,
    pub(super) core: u32,
    /// I/Os that were requested.
    pub(super) issued: u64,
    /// Commands that were sent: the number of the next one.
    pub(super) sent: u64,
    /// I/Os under way, by the number of their command.
    pub(super) open: BTreeMap<u64, Io>,
    /// I/Os that a reset cancelled: they are sent again.
    pub(super) cancelled: VecDeque<Io>,
    /// The first command of the connection; messages about those before belong to one that has ended.
    pub(super) first: u64,
    /// The connection has ended, and there is no other one yet.
    pub(super) is_down: bool,
    /// A step looks after I/Os that take too long.
    pub(super) is_watched: bool,
}

impl Session {
    pub(super) const fn new(
        flow: Flow,
        qpn: Qpn,
        peer: RegionKeys,
        poster: Option<u32>,
        core: u32,
    ) -> Self {
        Self {
            flow,
            qpn,
            peer,
            poster,
            core,
            issued: 0,
            sent: 0,
            open: BTreeMap::new(),
            cancelled: VecDeque::new(),
            first: 0,
            is_down: false,
            is_watched: false,
        }
    }

    /// The number of a command, as messages have it.
    pub(super) const fn wire_number(number: u64) -> u64 {
        number & NUMBER_MASK as u64
    }

    /// Whether both ends of one controller are this session's and the other's.
    pub(super) const fn shares_controller(&self, other: &Flow) -> bool {
        self.poster.is_some() && self.flow.to == other.to && self.flow.workload == other.workload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_travel() {
        for word in [
            Word::Command,
            Word::Ready,
            Word::Data,
            Word::Part,
            Word::Response,
            Word::Closed,
        ] {
            assert_eq!(Word::parse(word.immediate(77)), (word, 77));
        }
        assert_eq!(
            Word::parse(Word::Data.immediate(u64::from(NUMBER_MASK) + 3)),
            (Word::Data, 2)
        );
    }
}
