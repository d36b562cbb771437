//! A network in virtual time: `rnic` devices, `fabric` switches, and the workloads between them.
//!
//! # How it is used
//!
//! A [`Scenario`] is plain data; [`World::new`] checks it, [`World::run`] runs it, [`World::results`] says
//! what came of it, at any moment. [`World::run_until`] runs a piece, for a progress bar or an interruption.
//!
//! # Why it is repeatable
//!
//! Each node handles its events in the order of time and, within a moment, of the number of what they happen
//! to. Each switch, link and device has a generator of its own. Threads drive parts of the network, and none
//! runs further ahead of the others than the shortest delay between two parts: what crosses in that time
//! cannot arrive in it. So neither the threads nor their pace can be seen in the results. Within a part,
//! nodes take turns in the same way.

mod build;
mod collective;
mod control;
mod deadlock;
mod defaults;
mod event_key;
mod events;
mod extrapolate;
mod hops;
mod host;
mod journal;
mod lanes;
mod life;
mod link_direction;
mod link_rng;
mod link_state;
mod live;
mod part;
mod partition;
mod pcie_link;
mod placed_switch;
mod prefetch;
mod reroute;
mod results;
mod scenario;
mod shares;
mod skip;
mod sriov_adapter;
mod steady;
mod storage;
mod thread_policy;
mod threads;
mod uet;

pub use build::{DEPTH_MAX, QUEUE_PAIRS_MAX, SAMPLES_MAX, ScenarioError, salt_of};
pub use collective::plan::{
    CollectivePlan, CollectiveWork, Cut, Job, LocalLinks, LocalPipe, Pipe, RankGroup,
};
pub use collective::program::{Instruction, ProgramResult, ProgrammedHost, RankProgram};
pub use collective::schedule::{Extent, Peers, Piece, Schedule, Stage, StrandId, turns};
pub use collective::{
    EndedRepetition, JobLink, JobRank, JobResult, Leg, LegKind, Need, RankState, StrandWait,
};
pub use defaults::{Lossless, lossless_switches};
pub use host::Receiving;
pub use lanes::{LinkLanes, SubnetSetup};
pub use life::{LIFE_MAX, Life, LifeEvent, LifePacket, LifePlace, LifeRecord, Loss};
pub use link_direction::TransportHeaders;
pub use live::{Delivered, LiveHosts, LivePacket, Offer};
pub use partition::THREADS_MAX;
pub use results::{
    Captured, CapturedFrame, Deadlock, FlowHop, FlowResult, HostResult, IoTimeouts, Latency, Order,
    Results, Sample, Skip, SwitchResult,
};
pub use scenario::{
    Action, AdapterFunction, Flow, FlowMarks, Forgery, Guard, Headers, HostConfig, Marking,
    PcieConfig, Scenario, SriovAdapterConfig, Step, Traced, Transfer, Watch,
};
pub(crate) use scenario::{UET_CONTROL_BYTES, UET_DATA_BYTES};
pub use sriov_adapter::FunctionDrops;
pub use steady::SkipSteady;
pub use storage::config::{Drives, IoLimits, Media, Processor, StorageConfig};
pub use uet::{EntropyKind, Header as UetHeader, NsccConfig, Sack as UetSack, UetConfig};

use fabric::config::CLASSES;
use fabric::topology::Topology;
use fabric::{Egress, LinkCounters, NextHops, PortCounters, Span, Spread, Time};
use part::Part;
use reroute::Rerouting;
use rnic::simulation::Simulated as _;
use skip::Skipper;
use std::collections::BTreeMap;
use std::sync::Arc;
use thread_policy::ThreadPolicy;
use uet::SenderCounters;

/// Interval of the checks whether all flows are done, and for deadlocks.
const CHECK_EVERY: Span = Span::from_us(50);

/// Checks between two searches for deadlocks.
const DEADLOCK_CHECKS: u64 = 20;

/// The time between two of them.
const DEADLOCK_SPAN: Span = Span(CHECK_EVERY.0 * DEADLOCK_CHECKS);

/// A network that runs.
#[derive(Debug)]
pub struct World {
    parts: Vec<Part>,
    lookahead: Span,
    thread_policy: ThreadPolicy,
    host_at: Vec<(u8, u32)>,
    switch_at: Vec<(u8, u32)>,
    /// The ports that are sampled: host or switch and port, with link and direction.
    sampled: Vec<Sampled>,
    sample_every: Option<Span>,
    /// The reason why the run ended early, where it did: the next samples would not have fitted.
    sampling_failed: Option<ScenarioError>,
    samples: Vec<Sample>,
    deadlocks: Vec<Deadlock>,
    flows: usize,
    watches: bool,
    rerouting: Option<Rerouting>,
    skipper: Option<Skipper>,
    /// Whether the hash of a flow alone chooses its next hops.
    hash_decides: bool,
    /// No link goes down or up after this.
    links_change_until: Time,
    /// By the engine's clock, as is `end`: without the times that were skipped.
    now: Time,
    end: Time,
    done: bool,
    /// Some hosts are live: the run has no end, because packets may come from outside at any time.
    is_live: bool,
    /// Jobs of the collective plan.
    jobs: usize,
}

fn too_many_samples(ports: usize, every: Span, by: Time) -> ScenarioError {
    ScenarioError::Samples {
        ports,
        every_us: every.0 as f64 / 1e6,
        by_us: by.0 as f64 / 1e6,
    }
}

/// When a link goes down or up for the last time.
fn last_outage(topology: &Topology) -> Time {
    let changes = topology.outages().values().flatten();
    changes
        .flat_map(|(down, up)| [*down, *up])
        .filter(|at| *at != Time::NEVER)
        .max()
        .unwrap_or(Time(0))
}

/// The end of a link: part, whether it is a host, its index there, and its port.
type Receiver = (u8, bool, u32, u16);

#[derive(Clone, Copy, Debug)]
struct Sampled {
    part: u8,
    node: u32,
    port: u16,
    is_host: bool,
    link: u32,
    direction: u8,
}

impl World {
    /// Builds the network of a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`] names what does not fit together.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let build::Built {
            parts,
            lookahead,
            host_at,
            switch_at,
        } = build::build(scenario)?;
        let mut sampled = Vec::new();
        if scenario.watch.sample_every.is_some() {
            for info in parts[0].links.table.iter().filter(|info| info.is_used()) {
                sampled.push(Sampled {
                    part: info.from_part,
                    node: info.from_node,
                    port: info.from_port,
                    is_host: info.from_host,
                    link: info.link,
                    direction: info.direction,
                });
            }
            sampled.sort_by_key(|port| (port.link, port.direction));
        }
        let sample_every = scenario.watch.sample_every.filter(|every| every.0 > 0);
        if let Some(every) = sample_every.filter(|_| scenario.end != Time::NEVER) {
            let times = usize::try_from(scenario.end.0 / every.0).unwrap_or(usize::MAX);
            if times.saturating_mul(sampled.len()) > SAMPLES_MAX {
                return Err(too_many_samples(sampled.len(), every, scenario.end));
            }
        }
        Ok(Self {
            parts,
            lookahead,
            thread_policy: ThreadPolicy::new(),
            host_at,
            switch_at,
            sampled,
            sample_every,
            sampling_failed: None,
            samples: Vec::new(),
            deadlocks: Vec::new(),
            flows: scenario.flows.len(),
            watches: false,
            rerouting: scenario
                .reaction
                .and_then(|after| Rerouting::new(&scenario.topology, after)),
            skipper: scenario
                .skip_steady
                .map(|settings| Skipper::new(settings, scenario)),
            hash_decides: scenario.spread == Spread::Hash
                && scenario.topology.reserved_ports().is_empty(),
            links_change_until: last_outage(&scenario.topology),
            now: Time(0),
            end: scenario.end,
            done: false,
            is_live: false,
            jobs: scenario
                .collectives
                .as_ref()
                .map_or(0, |plan| plan.jobs.len()),
        })
    }

    /// Gives every switch a PFC watchdog. It is polled every 50 us.
    pub fn set_watchdog(&mut self, detect: Span, restore: Span) {
        let watchdog = Some(fabric::Watchdog { detect, restore });
        let switches = self.parts.iter_mut().flat_map(|part| &mut part.switches);
        switches.for_each(|attached| attached.switch.set_watchdog(watchdog));
        self.watches = true;
    }

    /// Gives one switch a PFC watchdog.
    pub fn set_watchdog_of(&mut self, switch: u32, watchdog: fabric::Watchdog) {
        if let Some((part, index)) = self.switch_at.get(switch as usize).copied() {
            let attached = &mut self.parts[usize::from(part)].switches[index as usize];
            attached.switch.set_watchdog(Some(watchdog));
            self.watches = true;
        }
    }

    /// Number by which packets for a LID name their destination in place of a switch ([`LivePacket::leaf`]),
    /// in the tables of [`Self::set_forwarding`].
    pub fn leaf_of_lid(&self, lid: u16) -> u32 {
        self.switch_at.len() as u32 + u32::from(lid)
    }

    /// Gives a switch other next hops, which a manager has written: by [`Self::leaf_of_lid`], since
    /// InfiniBand switches forward by LID. Links that go down change nothing then until the manager writes
    /// again.
    pub fn set_forwarding(&mut self, switch: u32, next_hops: Arc<NextHops>) {
        self.rerouting = None;
        if let Some((part, index)) = self.switch_at.get(switch as usize).copied() {
            self.parts[usize::from(part)].switches[index as usize]
                .switch
                .set_next_hops(next_hops);
        }
    }

    /// Has all packets of a flow, and its acknowledgements, hash as if this were the digest of their
    /// addresses and ports: with [`fabric::ecmp_select`] and [`salt_of`], it puts them on a certain path.
    pub fn set_entropy(&mut self, flow: u32, entropy: u32) {
        for part in &mut self.parts {
            part.entropies.insert(flow, entropy);
        }
    }

    /// Runs to the end.
    pub fn run(&mut self) {
        self.run_until(Time::NEVER);
    }

    /// Runs until `at`, or until the end; whether that is reached.
    pub fn run_until(&mut self, at: Time) -> bool {
        self.run_with(at, None)
    }

    fn run_with(&mut self, at: Time, mut live: Option<&mut dyn LiveHosts>) -> bool {
        while !self.done && self.now() < at {
            let until = if at == Time::NEVER {
                at
            } else {
                Time(at.0 - self.skipped().0)
            };
            self.step(until, &mut live);
        }
        self.done
    }

    /// The reason why sampling ended the run before its time, if it did: [`SAMPLES_MAX`] was reached.
    pub fn sampling_error(&self) -> Option<ScenarioError> {
        self.sampling_failed.clone()
    }

    /// The moment up to which everything has happened.
    pub fn now(&self) -> Time {
        self.now + self.skipped()
    }

    /// How much time was skipped.
    fn skipped(&self) -> Span {
        self.skipper.as_ref().map_or(Span::ZERO, Skipper::total)
    }

    /// Packets that crossed a link so far.
    pub fn hops(&self) -> u64 {
        self.parts.iter().map(|part| part.links.hops).sum()
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.parts.iter().map(|part| part.events).sum()
    }

    /// Flows that are not done.
    pub fn unfinished(&self) -> u64 {
        self.parts.iter().map(|part| part.unfinished).sum()
    }

    /// Messages of collectives that were not acknowledged.
    pub fn messages_left(&self) -> u64 {
        let hosts = self.parts.iter().flat_map(|part| &part.hosts);
        hosts
            .filter_map(|host| host.worker.as_ref())
            .map(|worker| worker.slices_left)
            .sum()
    }

    /// Repetitions of collectives that have ended at all of their ranks, without the first `told` of each
    /// job, which are counted on.
    pub fn ended_repetitions(&self, told: &mut Vec<u32>) -> Vec<EndedRepetition> {
        told.resize(self.jobs, 0);
        let hosts = self.parts.iter().flat_map(|part| &part.hosts);
        collective::ended(hosts.filter_map(|host| host.worker.as_deref()), told)
    }

    /// Runs until the next moment of looking context.
    fn step(&mut self, at: Time, live: &mut Option<&mut dyn LiveHosts>) {
        let after = |every: Span| Time((self.now.0 / every.0 + 1).saturating_mul(every.0));
        let check = after(CHECK_EVERY);
        let sample = self.sample_every.map_or(Time::NEVER, after);
        let reroutes_at = self
            .rerouting
            .as_ref()
            .map_or(Time::NEVER, Rerouting::next_at);
        let limit = at.min(self.end).min(reroutes_at.max(self.now));
        let looks = self.sample_every.is_some() || self.watches || self.skipper.is_some();
        let stop = check.min(sample).min(limit);
        let stop = self.run_parts(stop, if looks { stop } else { limit }, live);
        self.now = stop;
        if reroutes_at <= stop {
            self.reroute();
        }
        if stop == sample {
            self.sample();
        }
        if stop >= check && stop.0.is_multiple_of(CHECK_EVERY.0) {
            if self.watches {
                self.parts
                    .iter_mut()
                    .for_each(|part| part.poll_watchdogs(stop));
            }
            let number = stop.0 / CHECK_EVERY.0;
            let next = self
                .parts
                .iter_mut()
                .filter_map(|part| part.links.events.next_at())
                .min();
            // Lanes that stand still make no events, as pauses do that are repeated.
            let rests = next.is_none_or(|next| next.0 - self.now.0 > DEADLOCK_SPAN.0);
            if (rests || number.is_multiple_of(DEADLOCK_CHECKS)) && self.deadlocks.is_empty() {
                self.deadlocks = deadlock::find(&self.parts, self.now);
            }
            self.done |= !self.is_live && (next.is_none() || self.unfinished() == 0);
            if self.is_live && next.is_none() {
                self.now = at.min(self.end);
            }
            // Nothing happens for a while: the checks in between would have the result of this one.
            if let Some(next) = next.filter(|_| !self.done && self.sample_every.is_none()) {
                let before = Time(next.0 / CHECK_EVERY.0 * CHECK_EVERY.0);
                self.now = self.now.max(before).min(at).min(self.end);
            }
            if !self.done {
                self.skip_steady();
            }
        }
        self.done |= self.now >= self.end;
    }

    /// Reroutes: gives switches the next hops without the links that are down.
    fn reroute(&mut self) {
        let Some(next_hops) = self
            .rerouting
            .as_mut()
            .map(|rerouting| rerouting.next_hops(self.now))
        else {
            return;
        };
        for (next_hops, (part, index)) in next_hops.into_iter().zip(&self.switch_at) {
            self.parts[usize::from(*part)].switches[*index as usize]
                .switch
                .set_next_hops(next_hops);
        }
    }

    /// Runs until `stop`, or on to `limit` while checks have nothing to do; returns the time that it reached.
    fn run_parts(
        &mut self,
        stop: Time,
        limit: Time,
        live: &mut Option<&mut dyn LiveHosts>,
    ) -> Time {
        match &mut self.parts[..] {
            [only] => {
                only.run_until(stop, live);
                stop
            }
            several => {
                let lookahead = self.lookahead;
                threads::run_until(
                    several,
                    threads::Stretch {
                        lookahead,
                        stop,
                        limit,
                    },
                    &mut self.thread_policy,
                )
            }
        }
    }

    fn egress(&self, port: &Sampled) -> &Egress {
        let part = &self.parts[usize::from(port.part)];
        if port.is_host {
            &part.hosts[port.node as usize].egress
        } else {
            part.switches[port.node as usize].switch.egress(port.port)
        }
    }

    fn sample(&mut self) {
        if self.samples.len() + self.sampled.len() > SAMPLES_MAX {
            let every = self.sample_every.unwrap_or_default();
            self.sampling_failed = Some(too_many_samples(self.sampled.len(), every, self.now));
            self.done = true;
            return;
        }
        for index in 0..self.sampled.len() {
            let port = self.sampled[index];
            let egress = self.egress(&port);
            let sent = (0..CLASSES)
                .map(|class| egress.counters(class, self.now).sent_bytes)
                .sum();
            let sample = Sample {
                at: self.now,
                link: port.link,
                direction: port.direction,
                queued_bytes: egress.queued_bytes(),
                class_bytes: std::array::from_fn(|class| egress.queue_bytes(class)),
                sent_bytes: sent,
                paused: egress.paused(),
            };
            self.samples.push(sample);
        }
    }

    /// The results so far.
    pub fn results(&self) -> Results {
        let mut results = self.engine_results();
        if let Some(skipper) = &self.skipper {
            skipper.complete(&mut results);
        }
        results
    }

    /// Results by the engine's clock, without the skipped times.
    fn engine_results(&self) -> Results {
        let mut flows = vec![None; self.flows];
        let mut hops = self.traced();
        let lost = self.lost_on_links();
        let lost_before = |end: Receiver| lost.get(&end).copied().unwrap_or_default();
        let mut hosts = Vec::with_capacity(self.host_at.len());
        for (part, index) in &self.host_at {
            let host = &self.parts[usize::from(*part)].hosts[*index as usize];
            for poster in &host.posters {
                let number = poster.number as usize;
                let hops = hops.get_mut(number).map(std::mem::take).unwrap_or_default();
                flows[number] = Some(FlowResult {
                    hops,
                    ..self.flow(poster)
                });
            }
            let link = lost_before((*part, true, *index, 0));
            let card = host
                .seat
                .map(|seat| &self.parts[usize::from(*part)].cards[seat.card as usize]);
            let mut result = HostResult {
                link,
                ..host.result(self.now)
            };
            result.pcie_busy_ps = card.map_or(result.pcie_busy_ps, |card| card.slot.busy_ps());
            hosts.push(result);
        }
        let switches = self.switch_at.iter().map(|(part, index)| {
            let switch = &self.parts[usize::from(*part)].switches[*index as usize].switch;
            let port = |port: u16| {
                let link = lost_before((*part, false, *index, port));
                PortCounters {
                    link,
                    ..switch.port_counters(port, self.now)
                }
            };
            SwitchResult {
                ports: (0..switch.ports()).map(port).collect(),
                buffer: switch.buffer(),
            }
        });
        let flows: Vec<FlowResult> = flows.into_iter().flatten().collect();
        let jobs = self.job_results();
        let programs = self.program_results();
        let steps = programs
            .iter()
            .filter_map(|(_, program)| program.steps.last().copied());
        let ended = jobs.iter().filter_map(JobResult::end).chain(steps);
        let finished = flows.iter().map(|flow| flow.finished).chain(ended).max();
        let finished = finished.filter(|at| *at != Time::NEVER);
        Results {
            end: finished
                .filter(|_| self.unfinished() == 0)
                .unwrap_or(self.now),
            hops: self.hops(),
            events: self.events(),
            switches: switches.collect(),
            flows,
            hosts,
            damaged: self.parts.iter().map(|part| part.links.damaged).sum(),
            left: self.parts.iter().map(|part| part.packets.len()).sum(),
            deadlocks: self.deadlocks.clone(),
            captured: self.captured(),
            samples: self.samples.clone(),
            skips: Vec::new(),
            jobs,
            programs,
            life: self.life(),
        }
    }

    /// The packets that were captured in all parts, in order.
    fn captured(&self) -> Vec<Captured> {
        let parts = self.parts.iter();
        let captured = parts.flat_map(|part| part.links.captured.iter().cloned());
        let mut captured: Vec<Captured> = captured.collect();
        captured.sort_by_key(|packet| (packet.at, packet.link, packet.direction));
        captured
    }

    /// The life of the queue pair that the scenario watches, from all parts.
    fn life(&self) -> Option<Life> {
        let journals = self.parts.iter();
        journal::merge(journals.filter_map(|part| part.links.journal.as_deref()))
    }

    /// What became of the programs of hosts, by host.
    fn program_results(&self) -> Vec<(u32, ProgramResult)> {
        let hosts = self.host_at.iter().map(|(part, index)| {
            let hosts = &self.parts[usize::from(*part)].hosts;
            hosts[*index as usize].worker.as_deref()
        });
        let results = hosts
            .flatten()
            .filter_map(collective::Worker::program_result);
        results.collect()
    }

    /// What became of each job of the collective plan.
    fn job_results(&self) -> Vec<JobResult> {
        let mut workers: Vec<Vec<(&collective::Worker, usize)>> = vec![Vec::new(); self.jobs];
        let hosts = self.host_at.iter().map(|(part, index)| {
            let hosts = &self.parts[usize::from(*part)].hosts;
            hosts[*index as usize].worker.as_deref()
        });
        for worker in hosts.flatten() {
            for (job, part) in worker.jobs().zip(0..) {
                workers[job as usize].push((worker, part));
            }
        }
        let mut links = vec![Vec::new(); self.jobs];
        let traces = self
            .parts
            .iter()
            .filter_map(|part| part.links.trace.as_deref());
        for (job, link) in traces.flat_map(hops::Trace::job_links) {
            links[job as usize].push(link);
        }
        let with_links = workers.iter().zip(links);
        with_links
            .map(|(of_job, mut links)| {
                links.sort_unstable_by_key(|link: &JobLink| (link.link, link.direction));
                collective::job_result(of_job, links)
            })
            .collect()
    }

    /// Frames that did not arrive, by the port that would have received them.
    fn lost_on_links(&self) -> BTreeMap<Receiver, LinkCounters> {
        let all = self
            .parts
            .iter()
            .flat_map(|part| part.links.lost.iter().map(|lost| (&part.links.table, lost)));
        all.map(|(table, (lane, counters))| {
            let info = &table[*lane as usize];
            ((info.part, info.to_host, info.node, info.port), *counters)
        })
        .collect()
    }

    /// Where each flow's data waited, by flow; empty if the scenario does not watch hops.
    fn traced(&self) -> Vec<Vec<FlowHop>> {
        let posters = || {
            self.parts
                .iter()
                .flat_map(|part| &part.hosts)
                .flat_map(|host| &host.posters)
        };
        let traces = self
            .parts
            .iter()
            .filter_map(|part| part.links.trace.as_deref());
        let mut sources = vec![0; self.flows];
        posters().for_each(|poster| sources[poster.number as usize] = poster.flow.from);
        hops::merge(traces, &sources)
    }

    /// Payload of a flow that is in the receiver's memory, whichever part of the network counted it.
    fn delivered_bytes(&self, flow: usize) -> u64 {
        self.parts
            .iter()
            .map(|part| part.receiving[flow].delivered_bytes)
            .sum()
    }

    /// Bytes of the requests of a flow that completed.
    fn completed_bytes(&self, poster: &host::Poster) -> u64 {
        let (part, index) = self.host_at[build::poster(&poster.flow) as usize];
        let worker = &self.parts[usize::from(part)].hosts[index as usize].worker;
        let of_pipe = worker
            .as_ref()
            .filter(|_| poster.flow.operation == Transfer::Collective)
            .and_then(|worker| worker.acknowledged_bytes(poster.number));
        of_pipe.unwrap_or_else(|| poster.completed_bytes())
    }

    fn flow(&self, poster: &host::Poster) -> FlowResult {
        let flow = &poster.flow;
        let device = |host: u32| {
            let (part, index) = self.host_at[host as usize];
            &self.parts[usize::from(part)].hosts[index as usize].device
        };
        let peer = if build::poster(flow) == flow.from {
            flow.to
        } else {
            flow.from
        };
        let mine = device(build::poster(flow));
        let mut counters = [
            mine.qp_counters(poster.qpn).unwrap_or_default(),
            device(peer)
                .qp_counters(poster.peer_qpn)
                .unwrap_or_default(),
        ];
        let transport = self.transport_counters(poster);
        if let Some(transport) = transport {
            counters[0].retransmitted_packets = transport.repeated;
            counters[0].local_ack_timeout_err = transport.timeouts;
        }
        let reads = flow.operation == Transfer::Read;
        let (part, _) = self.host_at[flow.to as usize];
        let order = &self.parts[usize::from(part)].receiving[poster.number as usize].order;
        let done = poster.completed + poster.errors == flow.messages;
        FlowResult {
            started: poster.started,
            finished: if done {
                poster.last_completion
            } else {
                Time::NEVER
            },
            messages: poster.completed,
            bytes: self.completed_bytes(poster),
            delivered_bytes: self.delivered_bytes(poster.number as usize),
            first_completion: poster.first_completion,
            last_completion: poster.last_completion,
            latency: poster.latency.clone(),
            failed: poster.failed,
            order: order.clone(),
            sender: counters[usize::from(reads)],
            receiver: counters[usize::from(!reads)],
            rate_bps: mine.rate_bps(poster.qpn).unwrap_or_default(),
            trimmed: transport.map_or(0, |transport| transport.trimmed),
            hops: Vec::new(),
        }
    }

    /// The counters of a flow of Ultra Ethernet's transport.
    fn transport_counters(&self, poster: &host::Poster) -> Option<SenderCounters> {
        let (part, index) = self.host_at[poster.flow.from as usize];
        let host = &self.parts[usize::from(part)].hosts[index as usize];
        host.uet
            .as_ref()
            .map(|endpoint| endpoint.counters(poster.number))
    }
}
