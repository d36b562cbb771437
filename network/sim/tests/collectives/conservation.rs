//! What must hold whatever the algorithm: every rank's contribution is in each result exactly once. Stages
//! are carried out here by a machine that knows nothing of networks, on data of which each byte has the set
//! of ranks that contributed to it.

use fabric::{Span, Time};
use sim::world::{CollectiveWork, Cut, Job, Piece, Schedule, StrandId, turns};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Ranks whose contributions a byte has, one bit each.
type Contributors = u64;

/// Messages under way, by channel, sender and receiver.
type InFlight = BTreeMap<(u32, u32, u32), VecDeque<(Piece, Vec<Contributors>)>>;

struct Machine<'a> {
    job: &'a Job,
    ranks: u32,
    /// By rank and byte.
    data: Vec<Vec<Contributors>>,
    in_flight: InFlight,
    /// Bytes by sender and receiver.
    between: BTreeMap<(u32, u32), u64>,
    /// By rank: bytes that it sent, and those that it received.
    sent: Vec<u64>,
    received: Vec<u64>,
}

struct Walker {
    id: StrandId,
    round: u32,
    stage: u32,
    has_sent: bool,
}

fn range(piece: Piece) -> Range<usize> {
    piece.offset as usize..(piece.offset + piece.bytes) as usize
}

impl<'a> Machine<'a> {
    fn new(job: &'a Job, ranks: u32, data: Vec<Vec<Contributors>>) -> Self {
        let counts = vec![0; ranks as usize];
        Self {
            job,
            ranks,
            data,
            in_flight: InFlight::new(),
            between: BTreeMap::new(),
            sent: counts.clone(),
            received: counts,
        }
    }

    /// Carries out all stages; panics where ranks wait for each other for ever.
    fn run(mut self) -> Self {
        let schedule = Schedule::new(self.job, self.ranks);
        let mut walkers = Vec::new();
        for rank in 0..self.ranks {
            for channel in 0..self.job.channels {
                walkers.extend((0..schedule.strands()).map(|strand| Walker {
                    id: StrandId {
                        rank,
                        channel,
                        strand,
                    },
                    round: 0,
                    stage: 0,
                    has_sent: false,
                }));
            }
        }
        loop {
            let mut moved = false;
            for walker in &mut walkers {
                while self.step(&schedule, walker) {
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        for walker in &walkers {
            let rounds = schedule.extent(walker.id).rounds;
            assert_eq!(
                walker.round, rounds,
                "{:?} of {:?} is stuck",
                walker.id, self.job.work
            );
        }
        assert!(
            self.in_flight.values().all(VecDeque::is_empty),
            "nothing is left"
        );
        self
    }

    /// Whether each byte of each rank has this value.
    fn has_everywhere(&self, value: Contributors) -> bool {
        self.data.iter().flatten().all(|byte| *byte == value)
    }

    /// Goes on with a strand by one stage, or by the half of one that sends; whether it could.
    fn step(&mut self, schedule: &Schedule<'_>, walker: &mut Walker) -> bool {
        let Walker {
            id, round, stage, ..
        } = *walker;
        let extent = schedule.extent(id);
        if round >= extent.rounds {
            return false;
        }
        let this = schedule.stage(id, round, stage);
        let [take, give] = schedule.slices(&this);
        if !this.passes_on && !walker.has_sent {
            walker.has_sent = true;
            if give > 0 {
                self.send(id, this.send.ranks(), this.sent);
            }
        }
        let key = |from: &u32| (id.channel, *from, id.rank);
        let waits = |from: &u32| {
            self.in_flight
                .get(&key(from))
                .is_none_or(VecDeque::is_empty)
        };
        if take > 0 && this.receive.ranks().iter().any(waits) {
            return false;
        }
        for from in this.receive.ranks().iter().filter(|_| take > 0) {
            let queue = self.in_flight.get_mut(&key(from)).unwrap();
            let (piece, values) = queue.pop_front().unwrap();
            assert_eq!(
                piece.bytes, this.received.bytes,
                "{id:?} gets what it expects"
            );
            self.received[id.rank as usize] += piece.bytes;
            let own = &mut self.data[id.rank as usize][range(this.received)];
            for (own, value) in own.iter_mut().zip(values) {
                assert!(
                    !this.reduces || *own & value == 0,
                    "{id:?} adds a rank twice"
                );
                *own = if this.reduces { *own | value } else { value };
            }
        }
        if this.passes_on && give > 0 {
            self.send(id, this.send.ranks(), this.sent);
        }
        walker.has_sent = false;
        walker.stage += 1;
        if walker.stage == extent.stages {
            (walker.round, walker.stage) = (walker.round + 1, 0);
        }
        true
    }

    /// Bytes that went from one server to another.
    fn across(&self, within: u32) -> u64 {
        let between = self.between.iter();
        let between = between.filter(|((from, to), _)| from / within != to / within);
        between.map(|(_, bytes)| bytes).sum()
    }

    fn send(&mut self, id: StrandId, to: &[u32], piece: Piece) {
        let values = self.data[id.rank as usize][range(piece)].to_vec();
        for to in to {
            assert_ne!(*to, id.rank, "nobody sends to itself");
            self.sent[id.rank as usize] += piece.bytes;
            *self.between.entry((id.rank, *to)).or_default() += piece.bytes;
            let queue = self
                .in_flight
                .entry((id.channel, id.rank, *to))
                .or_default();
            queue.push_back((piece, values.clone()));
        }
    }
}

fn job(work: CollectiveWork, bytes: u64, channels: u32, ranks: u32) -> Job {
    Job {
        group: 0,
        work,
        bytes,
        channels,
        per_server: 1,
        cut: Cut {
            chunk_bytes: 64,
            slices: 2,
            credit: 4,
            on_wire: [1, 1],
        },
        turns: turns(ranks).into(),
        after: Vec::new(),
        compute: Span::ZERO,
        root_computes: false,
        start: Time(0),
        jitter: Span::ZERO,
        repeat: 1,
    }
}

/// Sizes and channels that divide evenly and that do not.
const SHAPES: [(u64, u32); 5] = [(1, 2), (777, 2), (1024, 4), (4096, 2), (3000, 6)];

const RANKS: Range<u32> = 2..20;

fn all(ranks: u32) -> Contributors {
    (1 << ranks) - 1
}

/// What each rank has of a vector to which all contribute.
fn vectors(bytes: u64, ranks: u32) -> Vec<Vec<Contributors>> {
    (0..ranks)
        .map(|rank| vec![1 << rank; bytes as usize])
        .collect()
}

fn part_bytes(bytes: u64, ranks: u32) -> u64 {
    bytes.div_ceil(u64::from(ranks))
}

#[test]
fn every_rank_gets_the_sum_of_all() {
    let works = [
        CollectiveWork::RingAllReduce,
        CollectiveWork::TreeAllReduce { double: false },
        CollectiveWork::TreeAllReduce { double: true },
        CollectiveWork::HalvingDoubling {
            reduces: true,
            gathers: true,
        },
    ];
    for work in works {
        for (ranks, (bytes, channels)) in RANKS.flat_map(|n| SHAPES.map(|shape| (n, shape))) {
            let job = job(work, bytes, channels, ranks);
            let machine = Machine::new(&job, ranks, vectors(bytes, ranks)).run();
            let complete = machine.has_everywhere(all(ranks));
            assert!(
                complete,
                "{work:?}: {ranks} ranks, {bytes} bytes, {channels} channels"
            );
            // A ring and halving move twice what one rank lacks; nothing can move less.
            let sum: u64 = machine.sent.iter().sum();
            let least = 2 * bytes * u64::from(ranks - 1);
            let folds =
                !ranks.is_power_of_two() && matches!(work, CollectiveWork::HalvingDoubling { .. });
            assert!(
                folds || sum == least,
                "{work:?}: {ranks} ranks send {sum}, not {least}"
            );
        }
    }
}

/// Servers of several ranks: what crosses the network is what each place of a server has to reduce.
#[test]
fn servers_reduce_among_themselves_first() {
    for (servers, within) in [(2, 2), (3, 4), (4, 3), (1, 6), (5, 1)] {
        let ranks = servers * within;
        for (bytes, channels) in SHAPES {
            for work in [CollectiveWork::Hierarchical, CollectiveWork::RingAllReduce] {
                let mut job = job(work, bytes, channels, ranks);
                job.per_server = within;
                let machine = Machine::new(&job, ranks, vectors(bytes, ranks)).run();
                let complete = machine.has_everywhere(all(ranks));
                assert!(
                    complete,
                    "{work:?}: {servers} servers of {within}, {bytes} bytes"
                );
                let crosses = machine.across(within);
                let least = 2 * bytes * u64::from(servers - 1);
                let hierarchical = work == CollectiveWork::Hierarchical;
                assert!(
                    !hierarchical || crosses == least,
                    "{crosses} bytes cross, not {least}"
                );
            }
        }
    }
}

#[test]
fn every_rank_gets_its_part_of_the_sum() {
    for (ranks, (bytes, channels)) in RANKS.flat_map(|n| SHAPES.map(|shape| (n, shape))) {
        for work in [
            CollectiveWork::RingReduceScatter,
            CollectiveWork::DirectReduceScatter,
        ] {
            let job = job(work, bytes, channels, ranks);
            let part = part_bytes(bytes, ranks);
            let machine = Machine::new(&job, ranks, vectors(part * u64::from(ranks), ranks)).run();
            for (rank, data) in machine.data.iter().enumerate() {
                let own = rank * part as usize..(rank + 1) * part as usize;
                assert!(
                    data[own].iter().all(|byte| *byte == all(ranks)),
                    "{work:?}, {ranks} ranks"
                );
            }
            let each = part * u64::from(ranks - 1);
            assert!(
                machine.sent.iter().all(|sent| *sent == each),
                "{work:?}, {ranks} ranks"
            );
            assert_eq!(machine.sent, machine.received);
        }
    }
}

/// Halving leaves each byte of the sum at one rank; doubling gives it to all.
#[test]
fn halving_and_doubling_are_each_others_reverse() {
    for ranks in [2, 4, 8, 16] {
        for (bytes, channels) in SHAPES {
            let work = CollectiveWork::HalvingDoubling {
                reduces: true,
                gathers: false,
            };
            let halving = job(work, bytes, channels, ranks);
            let mut machine = Machine::new(&halving, ranks, vectors(bytes, ranks)).run();
            for byte in 0..bytes as usize {
                let mut at = machine.data.iter().filter(|data| data[byte] == all(ranks));
                assert!(
                    at.next().is_some() && at.next().is_none(),
                    "byte {byte} of {ranks} ranks"
                );
            }
            // What is not complete is not used.
            for byte in machine
                .data
                .iter_mut()
                .flatten()
                .filter(|byte| **byte != all(ranks))
            {
                *byte = 0;
            }
            let work = CollectiveWork::HalvingDoubling {
                reduces: false,
                gathers: true,
            };
            let doubling = job(work, bytes, channels, ranks);
            let machine = Machine::new(&doubling, ranks, machine.data).run();
            let complete = machine.has_everywhere(all(ranks));
            assert!(complete, "{ranks} ranks, {bytes} bytes");
        }
    }
}

#[test]
fn every_rank_gets_the_parts_of_all() {
    for (ranks, (bytes, channels)) in RANKS.flat_map(|n| SHAPES.map(|shape| (n, shape))) {
        for work in [
            CollectiveWork::RingAllGather,
            CollectiveWork::DirectAllGather,
        ] {
            let job = job(work, bytes, channels, ranks);
            let part = part_bytes(bytes, ranks) as usize;
            let whole: Vec<Contributors> =
                (0..ranks).flat_map(|rank| vec![1 << rank; part]).collect();
            let own = (0..ranks).map(|rank| {
                let mine = |byte: &Contributors| if *byte == 1 << rank { *byte } else { 0 };
                whole.iter().map(mine).collect()
            });
            let machine = Machine::new(&job, ranks, own.collect()).run();
            assert!(
                machine.data.iter().all(|data| *data == whole),
                "{work:?}, {ranks} ranks"
            );
            let each = part as u64 * u64::from(ranks - 1);
            assert!(
                machine.sent.iter().all(|sent| *sent == each),
                "{work:?}, {ranks} ranks"
            );
        }
    }
}

#[test]
fn chains_carry_the_roots_data_to_all_and_the_sum_to_the_root() {
    for (ranks, (bytes, channels)) in RANKS.flat_map(|n| SHAPES.map(|shape| (n, shape))) {
        let root = ranks / 2;
        let broadcast = job(
            CollectiveWork::ChainBroadcast { root },
            bytes,
            channels,
            ranks,
        );
        let machine = Machine::new(&broadcast, ranks, vectors(bytes, ranks)).run();
        assert!(machine.has_everywhere(1 << root));
        let reduce = job(CollectiveWork::ChainReduce { root }, bytes, channels, ranks);
        let machine = Machine::new(&reduce, ranks, vectors(bytes, ranks)).run();
        assert!(
            machine.data[root as usize]
                .iter()
                .all(|byte| *byte == all(ranks))
        );
        assert_eq!(
            machine.sent.iter().sum::<u64>(),
            bytes * u64::from(ranks - 1)
        );
    }
}

/// Each block is for one rank, and is of one rank.
#[test]
fn everyone_gets_a_part_of_everyone() {
    for (ranks, (bytes, channels)) in RANKS.flat_map(|n| SHAPES.map(|shape| (n, shape))) {
        let job = job(CollectiveWork::DirectAllToAll, bytes, channels, ranks);
        let part = part_bytes(bytes, ranks);
        let schedule = Schedule::new(&job, ranks);
        let mut blocks: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let size = (part * u64::from(ranks)) as usize;
        let machine = Machine::new(&job, ranks, vec![vec![0; size]; ranks as usize]).run();
        assert!(
            machine
                .sent
                .iter()
                .all(|sent| *sent == part * u64::from(ranks - 1))
        );
        assert_eq!(machine.sent, machine.received);
        for rank in 0..ranks {
            for (channel, strand) in
                (0..channels).flat_map(|c| (0..schedule.strands()).map(move |s| (c, s)))
            {
                let id = StrandId {
                    rank,
                    channel,
                    strand,
                };
                for stage in (0..schedule.extent(id).stages).map(|at| schedule.stage(id, 0, at)) {
                    let to = stage.send.ranks()[0];
                    let is_empty = stage.sent.bytes == 0;
                    assert!(is_empty || stage.sent.offset / part == u64::from(to));
                    *blocks.entry((rank, to)).or_default() += stage.sent.bytes;
                }
            }
        }
        assert_eq!(blocks.len() as u32, ranks * (ranks - 1));
        assert!(blocks.values().all(|bytes| *bytes == part));
    }
}

/// Each vector goes one rank further.
#[test]
fn everyone_gets_the_vector_of_the_rank_before() {
    for (ranks, (bytes, channels)) in RANKS.flat_map(|n| SHAPES.map(|shape| (n, shape))) {
        let job = job(CollectiveWork::SendToNext, bytes, channels, ranks);
        let machine = Machine::new(&job, ranks, vectors(bytes, ranks)).run();
        for (rank, data) in (0..ranks).zip(&machine.data) {
            let before = (rank + ranks - 1) % ranks;
            assert!(data.iter().all(|byte| *byte == 1 << before));
        }
        assert!(machine.sent.iter().all(|sent| *sent == bytes));
    }
}

/// After a barrier each rank has heard of all, some of them more than once.
#[test]
fn a_barrier_hears_of_everyone() {
    for ranks in RANKS {
        let job = job(CollectiveWork::Barrier, 0, 1, ranks);
        let schedule = Schedule::new(&job, ranks);
        let mut heard: Vec<Contributors> = (0..ranks).map(|rank| 1 << rank).collect();
        let id = |rank| StrandId {
            rank,
            channel: 0,
            strand: 0,
        };
        let stages = schedule.extent(id(0)).stages;
        assert_eq!(
            stages,
            u32::BITS - (ranks - 1).leading_zeros(),
            "the logarithm of {ranks}"
        );
        for stage in 0..stages {
            let before = heard.clone();
            for rank in 0..ranks {
                let from = schedule.stage(id(rank), 0, stage).receive.ranks()[0];
                assert_eq!(schedule.stage(id(from), 0, stage).send.ranks(), [rank]);
                heard[rank as usize] |= before[from as usize];
            }
        }
        assert!(
            heard.iter().all(|heard| *heard == all(ranks)),
            "{ranks} ranks"
        );
    }
}
