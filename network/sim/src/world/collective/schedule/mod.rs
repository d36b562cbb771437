//! What each rank does in each stage of a collective: whom it receives from, whom it sends to, and how much.
//! A stage is computed when it is needed; nothing is expanded.

mod exchange;
mod hierarchical;
mod ring;
mod tree;

pub use exchange::turns;

use super::plan::{CollectiveWork, Job, round_up};

/// Ranks that a stage receives from, or sends to, at most.
const PEERS_MAX: usize = 3;

/// Ranks at the other ends of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Peers {
    ranks: [u32; PEERS_MAX],
    count: u8,
}

impl Peers {
    const NONE: Self = Self {
        ranks: [0; PEERS_MAX],
        count: 0,
    };

    fn one(rank: u32) -> Self {
        Self::NONE.and(rank)
    }

    fn and(mut self, rank: u32) -> Self {
        if let Some(place) = self.ranks.get_mut(usize::from(self.count)) {
            *place = rank;
            self.count += 1;
        }
        self
    }

    /// The ranks as a list.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks[..usize::from(self.count)]
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A range of the data of a collective, of which every rank has a vector.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Piece {
    /// Offset of the chunk in the rank's buffer.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// One stage of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stage {
    /// Ranks that send to it.
    pub receive: Peers,
    /// What each of them sends.
    pub received: Piece,
    /// Ranks that it sends to.
    pub send: Peers,
    /// What each of them gets.
    pub sent: Piece,
    /// Whether a slice is sent when the same slice has been received, and not independently of it.
    pub passes_on: bool,
    /// Whether what is received is added to what is there.
    pub reduces: bool,
}

/// The stages of a job.
#[derive(Clone, Copy, Debug)]
pub struct Schedule<'a> {
    job: &'a Job,
    ranks: u32,
}

/// One of a rank's sequences of stages: its channel, and which of the channel's strands it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StrandId {
    /// The rank that goes through it.
    pub rank: u32,
    /// The channel that it is of.
    pub channel: u32,
    /// Among those of the channel.
    pub strand: u32,
}

/// How often a strand goes through its stages, and how many these are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// How often it goes through them.
    pub rounds: u32,
    /// Stages of a round.
    pub stages: u32,
}

impl<'a> Schedule<'a> {
    /// Of a job in a group of so many ranks.
    pub const fn new(job: &'a Job, ranks: u32) -> Self {
        Self { job, ranks }
    }

    /// Strands of each channel of a rank.
    pub const fn strands(&self) -> u32 {
        match self.job.work {
            CollectiveWork::TreeAllReduce { .. } => tree::STRANDS,
            CollectiveWork::DirectAllToAll
            | CollectiveWork::DirectReduceScatter
            | CollectiveWork::DirectAllGather => exchange::STRANDS,
            _ => 1,
        }
    }

    /// How long a strand is.
    pub fn extent(&self, id: StrandId) -> Extent {
        use CollectiveWork as W;
        let rounds = || self.rounds(id.channel);
        let (rounds, stages) = match self.job.work {
            W::RingAllReduce => (rounds(), 2 * self.ranks - 1),
            W::RingReduceScatter | W::RingAllGather => (rounds(), self.ranks),
            W::ChainBroadcast { .. } | W::ChainReduce { .. } => (rounds(), 1),
            W::TreeAllReduce { double } => (self.tree_rounds(id, double), 1),
            W::HalvingDoubling { reduces, gathers } => (1, self.halvings(reduces, gathers)),
            W::SendToNext => (1, 1),
            W::DirectAllToAll | W::DirectReduceScatter | W::DirectAllGather => {
                let stages = self.direct_stages(id.strand);
                (stages.min(1), stages)
            }
            W::Barrier => {
                // A rank alone has none.
                let stages = self.dissemination_stages();
                (stages.min(1), stages)
            }
            W::Hierarchical => (rounds(), self.hierarchical_stages()),
        };
        Extent { rounds, stages }
    }

    /// A stage of a strand.
    pub fn stage(&self, id: StrandId, round: u32, stage: u32) -> Stage {
        use CollectiveWork as W;
        match self.job.work {
            W::RingAllReduce => self.ring_all_reduce(id, round, stage),
            W::RingReduceScatter => self.ring_parts(id, round, stage, true),
            W::RingAllGather => self.ring_parts(id, round, stage, false),
            W::ChainBroadcast { root } => self.chain(id, round, root, false),
            W::ChainReduce { root } => self.chain(id, round, root, true),
            W::TreeAllReduce { double } => self.tree_stage(id, round, double),
            W::HalvingDoubling { reduces, .. } => self.halving_stage(id, stage, reduces),
            W::SendToNext => self.send_stage(id),
            W::DirectAllToAll | W::DirectReduceScatter | W::DirectAllGather => {
                self.direct_stage(id, stage)
            }
            W::Barrier => self.dissemination_stage(id, stage),
            W::Hierarchical => self.hierarchical_stage(id, round, stage),
        }
    }

    /// All stages of a strand, each with how often it is gone through: all rounds but the last are alike.
    pub fn stages(&self, id: StrandId) -> impl Iterator<Item = (Stage, u32)> {
        let (extent, schedule) = (self.extent(id), *self);
        let last = extent.rounds.saturating_sub(1);
        let rounds = [(0, last), (last, extent.rounds.min(1))];
        let rounds = rounds.into_iter().filter(|(_, times)| *times > 0);
        rounds.flat_map(move |(round, times)| {
            (0..extent.stages).map(move |stage| (schedule.stage(id, round, stage), times))
        })
    }

    /// Slices that a stage receives and sends, from and to each of its peers.
    pub fn slices(&self, stage: &Stage) -> [u32; 2] {
        let of = |peers: &Peers, piece: Piece| match peers.is_empty() {
            true => 0,
            false => self.job.cut.slices_of(piece.bytes),
        };
        [
            of(&stage.receive, stage.received),
            of(&stage.send, stage.sent),
        ]
    }

    /// The part of some bytes that a channel has.
    fn share(&self, bytes: u64, channel: u32) -> Piece {
        let each = round_up(bytes.div_ceil(u64::from(self.job.channels.max(1))));
        let offset = (each * u64::from(channel)).min(bytes);
        Piece {
            offset,
            bytes: (bytes - offset).min(each),
        }
    }

    /// Bytes of one rank's part, for operations whose data consists of the ranks' parts.
    fn part_bytes(&self) -> u64 {
        self.job.bytes.div_ceil(u64::from(self.ranks.max(1)))
    }

    const fn ahead(&self, rank: u32, by: u32) -> u32 {
        (rank + by) % self.ranks
    }
}
