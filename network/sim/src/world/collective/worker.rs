//! The state of a host's ranks: their jobs, strands and pipes.

use super::OF_WORKER;
use super::log::{Cause, Log, Move, SliceRef};
use super::pipe::{HostPipe, LocalEnd, PipeEnd, Seen, Slice};
use super::plan::{CollectivePlan, Job};
use super::program::{Follower, OF_PROGRAM};
use super::schedule::{Schedule, Stage, StrandId};
use super::strand::Strand;
use fabric::{Pcg32, Span, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wire::Qpn;

/// A host's rank in a group.
#[derive(Debug)]
pub(super) struct GroupSeat {
    pub(super) group: u32,
    pub(super) rank: u32,
    /// The group's jobs, as indices of the host's parts, and whose turn it is.
    pub(super) parts: Vec<u32>,
    pub(super) turn: usize,
    /// In place of the turns, where a program begins the repetitions: those that have begun, in their order.
    pub(super) queue: VecDeque<u32>,
    /// Of the job that runs.
    pub(super) strands: Vec<Strand>,
}

impl GroupSeat {
    /// The part whose turn it is.
    pub(super) fn first(&self) -> Option<u32> {
        let queued = self.queue.front().copied();
        queued.or_else(|| self.parts.get(self.turn).copied())
    }
}

/// Where a part is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartState {
    Waits,
    Starts(Time),
    Computes(Time),
    Queued,
    Runs,
    Done,
}

/// A host's part in a job.
#[derive(Debug)]
pub(super) struct JobPart {
    pub(super) job: u32,
    pub(super) seat: u32,
    pub(super) state: PartState,
    /// Jobs that it still waits for, and parts that wait for it.
    pub(super) waits: u32,
    dependents: Vec<u32>,
    /// Whether a program begins its repetitions.
    pub(super) is_programmed: bool,
    strands_left: u32,
    pub(super) begun: Time,
    /// When it computed last.
    pub(super) computed: Option<[Time; 2]>,
    pub(super) times: Vec<[Time; 2]>,
    pub(super) log: Log,
}

/// What the host is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Post a slice of so many bytes.
    Post { pipe: u32, bytes: u32 },
    /// Post the record that clears the way for one.
    Clear { pipe: u32 },
    /// Call again at this time.
    Plan { part: u32, at: Time },
}

/// The ranks of a host.
#[derive(Debug)]
pub(in crate::world) struct Worker {
    pub(super) plan: Arc<CollectivePlan>,
    pub(super) host: u32,
    pub(super) seats: Vec<GroupSeat>,
    pub(super) parts: Vec<JobPart>,
    pub(super) pipes: Vec<HostPipe>,
    by_qpn: BTreeMap<u32, u32>,
    by_flow: BTreeMap<u32, u32>,
    /// By seat, channel, peer, and whether data leaves by it.
    by_peer: BTreeMap<(u32, u32, u32, bool), u32>,
    /// By way within a server, and whether data leaves by it.
    by_local: BTreeMap<(u32, bool), u32>,
    /// Until when it sends to ranks of its server.
    pub(super) local_until: Time,
    /// Until when it computes.
    pub(super) busy_until: Time,
    /// Parts that are not done, and the program.
    pub(super) left: usize,
    /// Slices that were not acknowledged, given or not.
    pub(in crate::world) slices_left: u64,
    pub(super) orders: VecDeque<Order>,
    /// Parts whose repetition has just ended.
    ended: Vec<u32>,
    /// The program of the host.
    pub(super) follower: Option<Box<Follower>>,
}

impl Worker {
    /// The part of a plan that a host has; none if it has none.
    pub(in crate::world) fn new(
        plan: &Arc<CollectivePlan>,
        host: u32,
        seats: &[[u32; 2]],
    ) -> Option<Self> {
        let mut worker = Self {
            plan: plan.clone(),
            host,
            seats: Vec::new(),
            parts: Vec::new(),
            pipes: Vec::new(),
            by_qpn: BTreeMap::new(),
            by_flow: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            by_local: BTreeMap::new(),
            local_until: Time(0),
            busy_until: Time(0),
            left: 0,
            slices_left: 0,
            orders: VecDeque::new(),
            ended: Vec::new(),
            follower: None,
        };
        let mut seat_of_group = BTreeMap::new();
        for [group, rank] in seats.iter().copied() {
            seat_of_group.insert(group, worker.seats.len() as u32);
            worker.seats.push(GroupSeat {
                group,
                rank,
                parts: Vec::new(),
                turn: 0,
                queue: VecDeque::new(),
                strands: Vec::new(),
            });
        }
        let mut part_of_job = BTreeMap::new();
        for (job, number) in plan.jobs.iter().zip(0..) {
            let Some(seat) = seat_of_group.get(&job.group).copied() else {
                continue;
            };
            let part = worker.parts.len() as u32;
            let waits_for: Vec<u32> = job
                .after
                .iter()
                .filter_map(|job| part_of_job.get(job).copied())
                .collect();
            for before in &waits_for {
                worker.parts[*before as usize].dependents.push(part);
            }
            part_of_job.insert(number, part);
            worker.seats[seat as usize].parts.push(part);
            worker.parts.push(JobPart {
                job: number,
                seat,
                state: PartState::Waits,
                waits: waits_for.len() as u32,
                dependents: Vec::new(),
                is_programmed: false,
                strands_left: 0,
                begun: Time(0),
                computed: None,
                times: Vec::new(),
                log: Log::default(),
            });
        }
        worker.left = worker.parts.len();
        worker.add_program(&part_of_job);
        worker.add_local_pipes();
        (worker.left > 0).then_some(worker)
    }

    /// Takes the program of the host, if it has one.
    fn add_program(&mut self, part_of_job: &BTreeMap<u32, u32>) {
        let plan = self.plan.clone();
        let found = plan
            .programmed
            .binary_search_by_key(&self.host, |one| one.host);
        let Ok(found) = found else { return };
        let programmed = &plan.programmed[found];
        let of_slot = |job: &u32| part_of_job.get(job).copied();
        let parts: Vec<u32> = programmed.jobs.iter().filter_map(of_slot).collect();
        for part in &parts {
            self.parts[*part as usize].is_programmed = true;
        }
        let program = &plan.programs[programmed.program as usize];
        self.follower = Some(Box::new(Follower::new(programmed, program, parts)));
        self.left += 1;
    }

    /// Takes its ends of the ways within servers.
    fn add_local_pipes(&mut self) {
        let plan = self.plan.clone();
        let seats: BTreeMap<u32, (u32, u32)> = (0..)
            .zip(&self.seats)
            .map(|(number, seat)| (seat.group, (number, seat.rank)))
            .collect();
        for (pipe, number) in plan.local_pipes.iter().zip(0..) {
            let Some((seat, rank)) = seats.get(&pipe.group).copied() else {
                continue;
            };
            let group = &plan.groups[pipe.group as usize];
            let (sends, peer) = match rank {
                rank if rank == pipe.from => (true, pipe.to),
                rank if rank == pipe.to => (false, pipe.from),
                _ => continue,
            };
            let index = self.pipes.len() as u32;
            self.by_local.insert((number, sends), index);
            self.by_peer
                .insert((seat, pipe.channel, peer, sends), index);
            if sends {
                self.slices_left += pipe.messages;
            }
            let local = LocalEnd {
                pipe: number,
                peer_host: group.hosts[peer as usize],
                links: group.local,
            };
            self.pipes.push(HostPipe {
                local: Some(local),
                ..HostPipe::new(seat, sends, OF_WORKER | number)
            });
        }
    }

    /// The end of a way within a server.
    pub(super) fn local_pipe(&self, number: u32, sends: bool) -> Option<u32> {
        self.by_local.get(&(number, sends)).copied()
    }

    /// Takes an end of a pipe.
    pub(in crate::world) fn add_pipe(&mut self, end: PipeEnd) {
        let pipe = self.plan.pipes[end.pipe as usize];
        let Some(seat) = self.seats.iter().position(|seat| seat.group == pipe.group) else {
            return;
        };
        let peer = if end.sends { pipe.to } else { pipe.from };
        let number = self.pipes.len() as u32;
        self.by_qpn.insert(end.qpn.value(), number);
        self.by_flow.insert(pipe.flow, number);
        self.by_peer
            .insert((seat as u32, pipe.channel, peer, end.sends), number);
        if end.sends {
            self.slices_left += end.messages;
        }
        self.pipes.push(HostPipe {
            qpn: end.qpn,
            keys: Some(end.keys),
            requests: 2 * pipe.credit,
            ..HostPipe::new(seat as u32, end.sends, pipe.flow)
        });
    }

    /// Parts that wait for nothing but a time, and the program: when they are to be called.
    pub(in crate::world) fn first_calls(&mut self) -> Vec<(Time, u32)> {
        let program = self.program_start().map(|at| (at, OF_PROGRAM));
        let jobs = &self.plan.jobs;
        let free = self.parts.iter_mut().zip(0..);
        let free = free.filter(|(part, _)| part.waits == 0 && !part.is_programmed);
        free.map(|(part, number)| {
            let start = jobs[part.job as usize].start;
            part.state = PartState::Starts(start);
            (start, number)
        })
        .chain(program)
        .collect()
    }

    pub(super) fn pipe_of(&self, qpn: Qpn) -> Option<u32> {
        self.by_qpn.get(&qpn.value()).copied()
    }

    /// Whether all of its parts are done.
    pub(super) const fn is_done(&self) -> bool {
        self.left == 0
    }

    pub(super) fn next_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    pub(super) fn job(&self, part: u32) -> &Job {
        &self.plan.jobs[self.parts[part as usize].job as usize]
    }

    /// Ranks of the group of a seat.
    pub(super) fn ranks(&self, seat: u32) -> u32 {
        let group = self.seats[seat as usize].group;
        self.plan.groups[group as usize].hosts.len() as u32
    }

    /// The part that runs in a seat.
    pub(super) fn running(&self, seat: u32) -> Option<u32> {
        let part = self.seats[seat as usize].first()?;
        (self.parts[part as usize].state == PartState::Runs).then_some(part)
    }

    /// The name of a strand of the job that runs in a seat.
    pub(super) fn strand_id(&self, seat: u32, part: u32, strand: u32) -> StrandId {
        let each = Schedule::new(self.job(part), self.ranks(seat)).strands();
        StrandId {
            rank: self.seats[seat as usize].rank,
            channel: strand / each,
            strand: strand % each,
        }
    }

    /// The jobs that it has parts of, in the order of the parts.
    pub(in crate::world) fn jobs(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().map(|part| part.job)
    }

    /// Bytes of a flow of collectives that were acknowledged.
    pub(in crate::world) fn acknowledged_bytes(&self, flow: u32) -> Option<u64> {
        let pipe = self.by_flow.get(&flow)?;
        Some(self.pipes[*pipe as usize].acknowledged_bytes)
    }

    pub(super) fn pipe_to(&self, seat: u32, channel: u32, peer: u32, sends: bool) -> Option<u32> {
        self.by_peer.get(&(seat, channel, peer, sends)).copied()
    }
}

/// How much later than another one a rank begins a repetition of a job.
fn jitter(seed: u64, of: [u32; 3], most: Span) -> Span {
    if most == Span::ZERO {
        return most;
    }
    let [job, rank, repetition] = of.map(u64::from);
    let mut random = Pcg32::new(seed ^ (job << 32), (rank << 32) | repetition);
    let bits = (u64::from(random.next_u32()) << 32) | u64::from(random.next_u32());
    Span(((u128::from(bits) * (u128::from(most.0) + 1)) >> 64) as u64)
}

/// What a host has heard.
impl Worker {
    /// A planned time has come.
    pub(super) fn planned(&mut self, now: Time, part: u32) {
        match self.parts.get(part as usize).map(|part| part.state) {
            None => self.program_planned(now),
            Some(PartState::Starts(at)) if at <= now => self.compute(now, part),
            Some(PartState::Computes(at)) if at <= now => self.queue(now, part),
            Some(_) => {}
        }
        self.settle_ended(now);
    }

    /// A slice has arrived.
    pub(super) fn arrived(&mut self, now: Time, pipe: u32) {
        let this = &mut self.pipes[pipe as usize];
        this.arrived += 1;
        let slice = SliceRef {
            pipe,
            number: this.arrivals,
        };
        this.arrivals += 1;
        let (seat, user) = (this.seat, this.user);
        if let Some(part) = self.running(seat) {
            let log = &mut self.parts[part as usize].log;
            let cleared = log.cleared.get_mut(&pipe);
            if let Some(cleared) = cleared.and_then(|all| all.get_mut(slice.number as usize)) {
                cleared.arrived = now;
            }
        }
        self.progress(now, seat, user, Cause::Arrived(slice));
        self.settle_ended(now);
    }

    /// The receiver has room for another slice.
    pub(super) fn cleared(&mut self, now: Time, pipe: u32) {
        self.pipes[pipe as usize].room += 1;
        self.post_waiting(now, pipe);
    }

    /// A slice was acknowledged.
    pub(super) fn acknowledged(&mut self, now: Time, pipe: u32, seen: Seen) {
        self.slices_left = self.slices_left.saturating_sub(1);
        let this = &mut self.pipes[pipe as usize];
        let before = std::mem::replace(&mut this.seen, seen);
        let Some(slice) = this.flying.pop_front() else {
            return;
        };
        this.acknowledged_bytes += u64::from(slice.bytes);
        let (seat, user) = (this.seat, this.user);
        let part = &mut self.parts[slice.part as usize];
        let is_logged = part.log.repetition == slice.repetition && !part.log.moves.is_empty();
        let given = part.log.given.get_mut(&pipe).filter(|_| is_logged);
        if let Some(given) = given.and_then(|all| all.get_mut(slice.number as usize)) {
            given.acknowledged = now;
            given.paused_ps = seen.paused_ps - before.paused_ps;
            given.port_bytes = seen.sent_bytes - before.sent_bytes;
            given.resent = seen.resent_packets > before.resent_packets;
        }
        // A slice of a job before has no place in the log of the one that runs.
        let cause = match is_logged && self.running(seat) == Some(slice.part) {
            true => Cause::Acknowledged(SliceRef {
                pipe,
                number: slice.number,
            }),
            false => Cause::Begin,
        };
        self.progress(now, seat, user, cause);
        self.settle_ended(now);
    }

    /// A record was acknowledged.
    pub(super) fn record_acknowledged(&mut self, pipe: u32) {
        self.pipes[pipe as usize].clearing -= 1;
        self.post_owed(pipe);
    }

    /// A record that clears the way is no longer under way.
    pub(super) fn record_sent(&mut self, pipe: u32) {
        self.pipes[pipe as usize].clearing -= 1;
    }

    /// A slice was posted to a queue pair.
    pub(super) fn posted(&mut self, pipe: u32, seen: Seen) {
        let this = &mut self.pipes[pipe as usize];
        if std::mem::take(&mut this.rests) {
            this.seen = seen;
        }
    }
}

/// From waiting to running, and on to the next.
impl Worker {
    fn compute(&mut self, now: Time, part: u32) {
        let job = self.job(part);
        let this = &self.parts[part as usize];
        let rank = self.seats[this.seat as usize].rank;
        let repetition = this.times.len() as u32;
        let late = jitter(self.plan.seed, [this.job, rank, repetition], job.jitter);
        let (span, root_alone) = (job.compute + late, job.root_computes);
        if span.0 == 0 || root_alone && rank != 0 {
            return self.queue(now, part);
        }
        let begin = self.busy_until.max(now);
        let end = begin + span;
        self.busy_until = end;
        let this = &mut self.parts[part as usize];
        this.computed = Some([begin, end]);
        this.state = PartState::Computes(end);
        self.orders.push_back(Order::Plan { part, at: end });
    }

    /// Queues a part, and runs it at once if it is the next one of its seat.
    fn queue(&mut self, now: Time, part: u32) {
        self.parts[part as usize].state = PartState::Queued;
        let seat = &self.seats[self.parts[part as usize].seat as usize];
        if seat.first() == Some(part) {
            self.run(now, part);
        }
    }

    pub(super) fn run(&mut self, now: Time, part: u32) {
        let seat = self.parts[part as usize].seat;
        let each = Schedule::new(self.job(part), self.ranks(seat)).strands();
        let count = self.job(part).channels * each;
        let this = &mut self.parts[part as usize];
        this.state = PartState::Runs;
        this.begun = now;
        this.strands_left = count;
        let repetition = this.times.len() as u32;
        this.log
            .begin(repetition, if self.plan.is_logged { count } else { 0 });
        let own = self.pipes.iter_mut().filter(|pipe| pipe.seat == seat);
        own.for_each(|pipe| pipe.arrivals = 0);
        let strands = &mut self.seats[seat as usize].strands;
        strands.clear();
        strands.resize(count as usize, Strand::default());
        for strand in 0..count {
            self.clear_ways(now, seat, part, strand);
        }
        for strand in 0..count {
            self.progress(now, seat, strand, Cause::Begin);
        }
    }

    /// Parts whose repetition ended go on, or let others run; then the program goes on.
    fn settle_ended(&mut self, now: Time) {
        loop {
            while let Some(part) = self.ended.pop() {
                self.settle_repetition(now, part);
            }
            if !self.follow(now) {
                return;
            }
        }
    }

    /// A repetition of a part has ended.
    fn settle_repetition(&mut self, now: Time, part: u32) {
        let repeat = self.job(part).repeat;
        let this = &mut self.parts[part as usize];
        this.times.push([this.begun, now]);
        let is_last = this.times.len() as u32 >= repeat;
        if this.is_programmed {
            let seat = &mut self.seats[this.seat as usize];
            seat.queue.pop_front();
            let is_queued = seat.queue.contains(&part);
            this.state = match (is_last, is_queued) {
                (true, _) => PartState::Done,
                (false, true) => PartState::Queued,
                (false, false) => PartState::Waits,
            };
            self.left -= usize::from(is_last);
            if let Some(next) = seat.queue.front().copied() {
                self.run(now, next);
            }
            return;
        }
        if !is_last {
            return self.compute(now, part);
        }
        this.state = PartState::Done;
        let (seat, dependents) = (this.seat, std::mem::take(&mut this.dependents));
        self.left -= 1;
        for dependent in &dependents {
            self.release(now, *dependent);
        }
        let seat = &mut self.seats[seat as usize];
        seat.turn += 1;
        let next = seat.parts.get(seat.turn).copied();
        if let Some(next) =
            next.filter(|part| self.parts[*part as usize].state == PartState::Queued)
        {
            self.run(now, next);
        }
    }

    /// One of the jobs that a part waits for is over.
    fn release(&mut self, now: Time, part: u32) {
        let start = self.job(part).start;
        let this = &mut self.parts[part as usize];
        this.waits -= 1;
        if this.waits > 0 {
            return;
        }
        if start > now {
            this.state = PartState::Starts(start);
            self.orders.push_back(Order::Plan { part, at: start });
        } else {
            self.compute(now, part);
        }
    }
}

/// A strand's way through its stages.
impl Worker {
    /// Goes on with a strand as far as data and room allow.
    fn progress(&mut self, now: Time, seat: u32, strand: u32, cause: Cause) {
        let Some(part) = self.running(seat) else {
            return;
        };
        let known = self.seats[seat as usize].strands.get(strand as usize);
        let Some(mut state) = known.copied().filter(|state| !state.is_over()) else {
            return;
        };
        let id = self.strand_id(seat, part, strand);
        let plan = self.plan.clone();
        let job = &plan.jobs[self.parts[part as usize].job as usize];
        let schedule = Schedule::new(job, self.ranks(seat));
        let extent = schedule.extent(id);
        let mut step = StrandStep {
            seat,
            part,
            strand,
            id,
            cause,
        };
        while state.at.is_in(extent) {
            let stage = schedule.stage(id, state.at.round, state.at.stage);
            let [take, give] = schedule.slices(&stage);
            let takes = state.taken < take && self.has_arrived(&step, &stage);
            let gives = state.given < give && self.has_room(&step, &stage, job.cut.credit);
            if stage.passes_on && (take, give) != (0, 0) && !(takes && gives) {
                break;
            }
            if takes {
                self.take(now, &mut step, &stage);
                state.taken += 1;
                state.cleared -= 1;
                self.seats[seat as usize].strands[strand as usize] = state;
                self.clear_ways(now, seat, part, strand);
                state = self.seats[seat as usize].strands[strand as usize];
            }
            if gives {
                let bytes = job.cut.message_bytes(stage.sent.bytes, state.given);
                self.give(now, &mut step, &stage, bytes);
                state.given += 1;
            }
            if (state.taken, state.given) == (take, give) {
                (state.taken, state.given) = (0, 0);
                state.at.step(extent);
            } else if !takes && !gives {
                break;
            }
        }
        if !state.at.is_in(extent) && self.is_over(&schedule, id, seat) {
            state.end();
            let this = &mut self.parts[part as usize];
            this.strands_left -= 1;
            if this.strands_left == 0 {
                self.ended.push(part);
            }
        }
        self.seats[seat as usize].strands[strand as usize] = state;
    }

    /// Whether a strand that has gone through all of its stages is over: one that ends with sending waits for
    /// acknowledgements.
    fn is_over(&self, schedule: &Schedule<'_>, id: StrandId, seat: u32) -> bool {
        let extent = schedule.extent(id);
        let Some(round) = extent.rounds.checked_sub(1) else {
            return true;
        };
        let last = schedule.stage(id, round, extent.stages - 1);
        let mut to = last.send.ranks().iter();
        !last.receive.is_empty()
            || to.all(|peer| {
                let pipe = self.pipe_to(seat, id.channel, *peer, true);
                pipe.is_none_or(|pipe| self.pipes[pipe as usize].held() == 0)
            })
    }

    /// Whether the next slice has arrived from everyone.
    fn has_arrived(&self, step: &StrandStep, stage: &Stage) -> bool {
        let mut all = true;
        for peer in stage.receive.ranks() {
            let pipe = self.pipe_to(step.seat, step.id.channel, *peer, false);
            all &= pipe.is_some_and(|pipe| self.pipes[pipe as usize].arrived > 0);
        }
        all
    }

    /// Whether there is a buffer for the next slice to everyone.
    fn has_room(&mut self, step: &StrandStep, stage: &Stage, credit: u32) -> bool {
        let mut all = true;
        for peer in stage.send.ranks() {
            let pipe = self.pipe_to(step.seat, step.id.channel, *peer, true);
            all &= pipe.is_some_and(|pipe| {
                let pipe = &mut self.pipes[pipe as usize];
                pipe.user = step.strand;
                pipe.held() < credit as usize
            });
        }
        all
    }

    /// Takes a slice out of the buffers.
    fn take(&mut self, now: Time, step: &mut StrandStep, stage: &Stage) {
        for peer in stage.receive.ranks() {
            if let Some(pipe) = self.pipe_to(step.seat, step.id.channel, *peer, false) {
                self.pipes[pipe as usize].arrived -= 1;
            }
        }
        self.log_move(now, step);
    }

    /// Gives a slice to the next ranks.
    fn give(&mut self, now: Time, step: &mut StrandStep, stage: &Stage, bytes: u32) {
        self.log_move(now, step);
        for peer in stage.send.ranks() {
            let Some(pipe) = self.pipe_to(step.seat, step.id.channel, *peer, true) else {
                continue;
            };
            let part = &mut self.parts[step.part as usize];
            let number = part.log.give(pipe, step.strand, bytes, now);
            self.pipes[pipe as usize].waiting.push_back(Slice {
                bytes,
                part: step.part,
                repetition: part.log.repetition,
                number,
            });
            self.post_waiting(now, pipe);
        }
    }

    fn log_move(&mut self, now: Time, step: &mut StrandStep) {
        let cause = std::mem::replace(&mut step.cause, Cause::Previous);
        let moves = &mut self.parts[step.part as usize].log.moves;
        if let Some(moves) = moves.get_mut(step.strand as usize) {
            moves.push(Move { at: now, cause });
        }
    }

    /// Tells senders of slices that there is room for.
    fn clear_ways(&mut self, now: Time, seat: u32, part: u32, strand: u32) {
        let id = self.strand_id(seat, part, strand);
        let plan = self.plan.clone();
        let job = &plan.jobs[self.parts[part as usize].job as usize];
        let schedule = Schedule::new(job, self.ranks(seat));
        loop {
            let state = &mut self.seats[seat as usize].strands[strand as usize];
            let Some(stage) = state.next_to_clear(schedule, id, job.cut.credit) else {
                return;
            };
            for peer in stage.receive.ranks() {
                let Some(pipe) = self.pipe_to(seat, id.channel, *peer, false) else {
                    continue;
                };
                self.parts[part as usize].log.clear(pipe, strand, now);
                let this = &mut self.pipes[pipe as usize];
                this.user = strand;
                this.owed += 1;
                self.post_owed(pipe);
            }
        }
    }

    fn post_owed(&mut self, pipe: u32) {
        let this = &mut self.pipes[pipe as usize];
        while this.owed > 0 && this.clearing < this.requests {
            this.owed -= 1;
            this.clearing += 1;
            self.orders.push_back(Order::Clear { pipe });
        }
    }

    fn post_waiting(&mut self, now: Time, pipe: u32) {
        let this = &mut self.pipes[pipe as usize];
        while this.room > 0 {
            let Some(slice) = this.waiting.pop_front() else {
                return;
            };
            this.room -= 1;
            this.rests |= this.flying.is_empty();
            this.flying.push_back(slice);
            let bytes = slice.bytes;
            self.orders.push_back(Order::Post { pipe, bytes });
            // The log may be of a later repetition by now.
            let log = &mut self.parts[slice.part as usize].log;
            let is_logged = log.repetition == slice.repetition;
            let given = log.given.get_mut(&pipe).filter(|_| is_logged);
            if let Some(given) = given.and_then(|all| all.get_mut(slice.number as usize)) {
                given.posted = now;
            }
        }
    }
}

/// A strand while it goes on.
struct StrandStep {
    seat: u32,
    part: u32,
    strand: u32,
    id: StrandId,
    /// What let it go on.
    cause: Cause,
}
