//! From a scenario to parts that run.

mod check;
mod connect;

pub use check::ScenarioError;

use check::check;

use super::collective::{JobsByPacket, OF_WORKER, Worker};
use super::events::{Events, Nodes};
use super::hops::Trace;
use super::host::{
    Attachment, BUFFER_ADDRESS, Host, HostObjects, Kind, MarkedFlows, Receiving, gid,
};
use super::journal::Journal;
use super::link_direction::LinkDirection;
use super::link_state::{
    LinkRecords, LinkState, PartIndex, STREAM_HOSTS, STREAM_STORES, STREAM_SWITCHES,
};
use super::part::Part;
use super::pcie_link::{PcieLink, Slot};
use super::placed_switch::PlacedSwitch;
use super::scenario::{
    Flow, Forgery, HostConfig, PcieConfig, Scenario, SriovAdapterConfig, Transfer,
};
use super::sriov_adapter::{Seat, SriovAdapter};
use super::storage::Store;
use super::uet::Endpoint;
use fabric::config::{CLASSES, ClassMap, GroupConfig, Profile, QueueConfig, Treatment, Weigh};
use fabric::topology::{Chance, End, Node};
use fabric::{Egress, FRAME_OVERHEAD_BYTES, Packets, Pcg32, Rate, Routes, Span, Switch};
use rnic::{Access, Config, Device, RegionInit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::Qpn;

/// Packets in one part of the network at most: more than any buffers hold, and 12 GiB of them.
const PACKETS_MAX: u32 = 1 << 27;

/// Messages that a flow may have posted at once.
pub const DEPTH_MAX: u32 = 4096;

/// Queue pairs of one host at most.
pub const QUEUE_PAIRS_MAX: u32 = 1 << 16;

/// Samples of one run at most, over all ports: 256 MiB.
pub const SAMPLES_MAX: usize = 1 << 22;

/// Events are expected this far ahead at most, however long links are: 18 minutes.
const REACH_PS_MAX: u64 = 1 << 50;

/// The parts, and how far each may run before it exchanges events with the others.
pub(super) struct Built {
    pub(super) parts: Vec<Part>,
    pub(super) lookahead: Span,
    /// Part and index of each host, and of each switch.
    pub(super) host_at: Vec<(u8, u32)>,
    pub(super) switch_at: Vec<(u8, u32)>,
}

struct WorldBuilder<'a> {
    scenario: &'a Scenario,
    parts: usize,
    marked: Arc<MarkedFlows>,
    host_at: Vec<(u8, u32)>,
    switch_at: Vec<(u8, u32)>,
    /// The lane of port 0, by switch; hosts' lanes come first.
    first_lanes: Vec<u32>,
    lanes: u32,
}

pub(super) fn build(scenario: &Scenario) -> Result<Built, ScenarioError> {
    check(scenario)?;
    let mut builder = WorldBuilder::new(scenario);
    let table: Arc<[LinkDirection]> = builder.lane_table()?.into();
    let crossing = table.iter().filter(|info| info.crosses);
    let lookahead = crossing.map(|info| info.delay.0).min();
    if lookahead == Some(0) {
        return Err(ScenarioError::NoDelay);
    }
    let mut parts = builder.empty_parts(&table);
    builder.place_switches(&mut parts);
    let rates: Vec<Rate> = builder.host_rates();
    builder.place_hosts(&mut parts, &rates)?;
    builder.place_cards(&mut parts);
    builder.connect(&mut parts)?;
    for part in &mut parts {
        for host in &mut part.hosts {
            host.starts
                .sort_by_key(|index| std::cmp::Reverse(host.posters[*index as usize].flow.start));
            host.set_clock(&mut part.links);
        }
    }
    let WorldBuilder {
        host_at, switch_at, ..
    } = builder;
    Ok(Built {
        parts,
        lookahead: Span(lookahead.unwrap_or(u64::MAX)),
        host_at,
        switch_at,
    })
}

impl<'a> WorldBuilder<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let topology = &scenario.topology;
        let parts = super::partition::partition(scenario);
        let count = parts.count;
        let mut sizes = vec![[0_u32; 2]; count];
        let mut place = |part: u8, is_host: bool| {
            let size = &mut sizes[usize::from(part)][usize::from(is_host)];
            *size += 1;
            (part, *size - 1)
        };
        let switch_at = parts
            .switches
            .iter()
            .map(|part| place(*part, false))
            .collect();
        let host_at = parts.hosts.iter().map(|part| place(*part, true)).collect();
        let mut lanes = topology.hosts();
        let first_lanes = (0..topology.switches()).map(|switch| {
            let first = lanes;
            lanes += u32::from(topology.ports(switch));
            first
        });
        let first_lanes = first_lanes.collect();
        Self {
            scenario,
            parts: count,
            marked: Arc::new(MarkedFlows::new(&scenario.flows, &scenario.hosts)),
            host_at,
            switch_at,
            first_lanes,
            lanes,
        }
    }

    fn lane_of(&self, end: End) -> u32 {
        match end.node {
            Node::Host(host) => host,
            Node::Switch(switch) => self.first_lanes[switch as usize] + u32::from(end.port),
        }
    }

    fn place_of(&self, node: Node) -> (u8, u32, bool) {
        match node {
            Node::Host(host) => (
                self.host_at[host as usize].0,
                self.host_at[host as usize].1,
                true,
            ),
            Node::Switch(switch) => (
                self.switch_at[switch as usize].0,
                self.switch_at[switch as usize].1,
                false,
            ),
        }
    }

    fn response_of(&self, end: End) -> Span {
        match end.node {
            Node::Host(host) => self.scenario.hosts[host as usize].pfc.response,
            Node::Switch(switch) => {
                let config = &self.scenario.switches[switch as usize];
                let profile = config.ports[usize::from(end.port)].profile;
                config
                    .profiles
                    .get(usize::from(profile))
                    .map_or(Span::ZERO, |profile| profile.pfc.response)
            }
        }
    }

    fn lane_table(&mut self) -> Result<Vec<LinkDirection>, ScenarioError> {
        let mut table = vec![LinkDirection::UNUSED; self.lanes as usize];
        for (number, link) in (0..).zip(self.scenario.topology.links()) {
            for (direction, [from, to]) in [(0, link.ends), (1, [link.ends[1], link.ends[0]])] {
                let (from_part, from_node, from_host) = self.place_of(from.node);
                let (part, node, to_host) = self.place_of(to.node);
                let extra = self.scenario.topology.extra(number, direction);
                // A normal distribution has values below its mean: the random delay includes the fixed one.
                let is_normal = matches!(extra.chance, Chance::Normal(_));
                let watched = self.scenario.watch.captures.contains(&number);
                table[self.lane_of(from) as usize] = LinkDirection {
                    delay: link.config.delay + if is_normal { Span::ZERO } else { extra.base },
                    head_start_ps_per_byte: if extra.cut_through {
                        link.config.rate.time_of(1).0 as u32
                    } else {
                        0
                    },
                    response: self.response_of(to),
                    node,
                    port: to.port,
                    part,
                    to_host,
                    from_node,
                    from_port: from.port,
                    from_host,
                    from_part,
                    crosses: from_part != part,
                    config: link.config,
                    link: number,
                    direction,
                    overtakes: extra.chance != Chance::None,
                    is_plain: !self.scenario.topology.outages().contains_key(&number)
                        && !watched
                        && link.config.loss == 0
                        && link.config.bit_errors == 0
                        && extra.chance == Chance::None,
                    watched,
                    repeats_after: None,
                };
            }
        }
        table.extend(self.local_lanes());
        Ok(table)
    }

    /// Whether hosts are one server.
    fn local_delay(&self) -> Option<Span> {
        let plan = self.scenario.collectives.as_ref();
        plan.and_then(|plan| plan.local_delay())
    }

    /// A lane for each host, by which it hears of others of its server; none if there are no such.
    fn local_lanes(&self) -> Vec<LinkDirection> {
        let Some(delay) = self.local_delay() else {
            return Vec::new();
        };
        let one = |(part, node): &(u8, u32)| LinkDirection {
            delay,
            node: *node,
            part: *part,
            to_host: true,
            from_node: *node,
            from_host: true,
            from_part: *part,
            crosses: self.parts > 1,
            ..LinkDirection::UNUSED
        };
        self.host_at.iter().map(one).collect()
    }

    fn empty_parts(&self, table: &Arc<[LinkDirection]>) -> Vec<Part> {
        let links = self.scenario.topology.links();
        let slowest = links
            .iter()
            .map(|link| link.config.rate.time_of(9_216 + FRAME_OVERHEAD_BYTES).0)
            .max();
        let longest = links.iter().map(|link| link.config.delay.0).max();
        let extra = |link: u32| {
            (0..2).map(move |direction| self.scenario.topology.extra(link, direction).base.0)
        };
        let extra = (0..links.len() as u32).flat_map(extra).max().unwrap_or(0);
        let one_way = slowest.unwrap_or(0).saturating_add(longest.unwrap_or(0));
        let reach = extra.min(REACH_PS_MAX) + 2 * one_way.clamp(1_000_000, 1 << 32);
        let kinds = self.kinds();
        let attachments: Arc<[Attachment]> = self.attachments().into();
        let poster_of_flow = self.posters_of_flows();
        let Scenario {
            seed, flows, watch, ..
        } = self.scenario;
        let forged = (0..)
            .zip(flows)
            .filter(|(_, flow)| flow.forgery != Forgery::None);
        let forgeries: BTreeMap<_, _> = forged
            .map(|(number, flow)| (number, (flow.from, flow.forgery)))
            .collect();
        let forgeries = Arc::new(forgeries);
        let plan = self.scenario.collectives.as_ref().filter(|_| watch.hops);
        let jobs_by_packet =
            plan.map(|plan| Arc::new(JobsByPacket::new(plan, &self.scenario.hosts)));
        let local_lanes: Arc<[u32]> = match self.local_delay() {
            Some(_) => (self.lanes..).take(self.host_at.len()).collect(),
            None => Arc::default(),
        };
        let empty = |part: usize| Part {
            packets: Packets::new(PACKETS_MAX),
            links: LinkState::new(
                PartIndex {
                    part: part as u8,
                    parts: self.parts,
                },
                table.clone(),
                Events::new(
                    reach,
                    table.len() / self.parts,
                    self.nodes(part as u8, table),
                ),
                LinkRecords {
                    captured_max: watch.captured_max,
                    trace: self.trace(table, jobs_by_packet.clone()),
                    journal: self.journal(table),
                    local_lanes: local_lanes.clone(),
                },
                *seed,
                &self.scenario.topology,
            ),
            switches: Vec::new(),
            hosts: Vec::new(),
            kinds: kinds.clone(),
            attachments: attachments.clone(),
            receiving: vec![Receiving::default(); flows.len()],
            poster_of_flow: poster_of_flow.clone(),
            entropies: BTreeMap::new(),
            echoes: BTreeMap::new(),
            cards: Vec::new(),
            forgeries: forgeries.clone(),
            marked: self.marked.clone(),
            unfinished: 0,
            events: 0,
        };
        (0..self.parts).map(empty).collect()
    }

    /// The nodes of a part of the network: hosts first, then switches. `None` if all have to be driven
    /// together, as for captures, which are in the order of time.
    fn nodes(&self, part: u8, table: &[LinkDirection]) -> Option<Nodes> {
        let count = |places: &[(u8, u32)]| places.iter().filter(|place| place.0 == part).count();
        let hosts = count(&self.host_at);
        // Functions of one adapter share its state: they are driven together.
        let place = |host: u32| self.host_at[host as usize];
        let functions = self.scenario.cards.iter().flat_map(|card| {
            let first = place(card.functions[0].host).1;
            card.functions
                .iter()
                .map(move |function| (place(function.host), first))
        });
        let driven_with: BTreeMap<(u8, u32), u32> = functions.collect();
        let number =
            |of: u8, node: u32, is_host: bool| match (of == part && node != u32::MAX, is_host) {
                (true, true) => driven_with.get(&(of, node)).copied().unwrap_or(node),
                (true, false) => hosts as u32 + node,
                // No event of this part is of that end.
                (false, _) => 0,
            };
        let ends = table.iter().map(|info| {
            let receiver = number(info.part, info.node, info.to_host);
            [
                receiver,
                number(info.from_part, info.from_node, info.from_host),
            ]
        });
        let within = table
            .iter()
            .filter(|info| info.is_used() && info.part == part && !info.crosses);
        let delay_ps = within.map(|info| info.delay.0).min()?;
        let delay_ps = self
            .local_delay()
            .map_or(delay_ps, |local| delay_ps.min(local.0));
        let nodes = Nodes {
            ends: ends.collect(),
            count: hosts + count(&self.switch_at),
            delay_ps,
        };
        self.scenario.watch.captures.is_empty().then_some(nodes)
    }

    /// The journal of the queue pair that the scenario watches.
    fn journal(&self, table: &[LinkDirection]) -> Option<Box<Journal>> {
        let traced = self.scenario.watch.traced?;
        let flow = self.scenario.flows.get(traced.flow as usize)?;
        let index = self.posters_of_flows()[traced.flow as usize];
        let rates = self.lane_rates(table);
        Some(Box::new(Journal::new(traced, [poster(flow), index], rates)))
    }

    /// The trace that records where data waits, if the scenario watches hops.
    fn trace(
        &self,
        table: &[LinkDirection],
        jobs: Option<Arc<JobsByPacket>>,
    ) -> Option<Box<Trace>> {
        let rates = || self.lane_rates(table);
        self.scenario
            .watch
            .hops
            .then(|| Box::new(Trace::new(table, rates(), jobs)))
    }

    /// How fast the port sends that sends into each lane.
    fn lane_rates(&self, table: &[LinkDirection]) -> Vec<Rate> {
        let links = self.scenario.topology.links();
        let hosts = self.host_rates();
        let rate = |(lane, info): (usize, &LinkDirection)| {
            let link = links
                .get(info.link as usize)
                .map_or(Rate::from_gbps(1), |link| link.config.rate);
            hosts.get(lane).copied().unwrap_or(link)
        };
        table.iter().enumerate().map(rate).collect()
    }

    /// Hosts with the same configuration share it.
    fn kinds(&self) -> Arc<[Kind]> {
        let kinds = distinct(&self.scenario.hosts);
        kinds
            .into_iter()
            .map(|config| Kind::new(config.clone(), port_profile(config)))
            .collect()
    }

    fn attachments(&self) -> Vec<Attachment> {
        let found = self.scenario.topology.attachments();
        // Hosts that are linked with each other have no switch.
        let at = |place: Option<(u32, u16)>| place.map_or((u32::MAX, 0), |place| place);
        let all = found.into_iter().map(at).map(|(leaf, exit)| Attachment {
            leaf,
            exit,
            vlan: 0,
        });
        let mut all: Vec<Attachment> = all.collect();
        for function in self.scenario.cards.iter().flat_map(|card| &card.functions) {
            all[function.host as usize].vlan = function.vlan;
        }
        all
    }

    /// The index of each flow among those that its host posts.
    fn posters_of_flows(&self) -> Arc<[u32]> {
        let mut counts = vec![0_u32; self.scenario.hosts.len()];
        let index = |flow: &Flow| {
            let count = &mut counts[poster(flow) as usize];
            *count += 1;
            *count - 1
        };
        self.scenario.flows.iter().map(index).collect()
    }

    fn place_switches(&self, parts: &mut [Part]) {
        let next_hops = self.scenario.topology.next_hops();
        let mut reserved = self.scenario.topology.reserved_ports();
        for (number, config) in (0_u32..).zip(&self.scenario.switches) {
            let seed = self.scenario.seed;
            let salt = salt_of(seed ^ self.scenario.hash_seed.rotate_left(17), number);
            let next_hops = next_hops[number as usize].clone();
            let mut routes = Routes::new(next_hops, self.scenario.spread, salt);
            if let Some(ports) = reserved.remove(&number) {
                routes = routes.with_reserved(ports);
            }
            let random = Pcg32::new(seed, STREAM_SWITCHES + u64::from(number));
            let switch = Switch::new(config, number, routes, random);
            let first_lane = self.first_lanes[number as usize];
            let part = self.switch_at[number as usize].0;
            parts[usize::from(part)].switches.push(PlacedSwitch {
                switch,
                number,
                first_lane,
            });
        }
    }

    /// The speed of each host's port.
    fn host_rates(&self) -> Vec<Rate> {
        let mut rates: Vec<Rate> = self
            .scenario
            .hosts
            .iter()
            .map(|host| host.rate.unwrap_or(Rate::from_gbps(100)))
            .collect();
        let shared: BTreeSet<u32> = self
            .scenario
            .cards
            .iter()
            .flat_map(SriovAdapterConfig::hosts)
            .collect();
        for link in self.scenario.topology.links() {
            for end in link.ends {
                if let Node::Host(host) = end.node {
                    if shared.contains(&host) {
                        // The adapter decides when it sends.
                        rates[host as usize] = link.config.rate;
                        continue;
                    }
                    let own = self.scenario.hosts[host as usize].rate;
                    let link = link.config.rate;
                    rates[host as usize] =
                        own.map_or(link, |own| if own.bps() < link.bps() { own } else { link });
                }
            }
        }
        rates
    }

    fn place_hosts(&self, parts: &mut [Part], rates: &[Rate]) -> Result<(), ScenarioError> {
        let mut queue_pairs = vec![0_u32; rates.len()];
        for flow in &self.scenario.flows {
            let is_of_device = self.scenario.hosts[flow.from as usize].uet.is_none();
            queue_pairs[flow.from as usize] += u32::from(is_of_device);
            queue_pairs[flow.to as usize] += u32::from(is_of_device);
        }
        let plan = self.scenario.collectives.as_ref();
        let seats = plan.map_or_else(Vec::new, |plan| plan.seats(rates.len()));
        let kinds = distinct(&self.scenario.hosts);
        let kind_of = kind_numbers(&self.scenario.hosts, &kinds);
        for (number, config) in (0_u32..).zip(&self.scenario.hosts) {
            let index = number as usize;
            let (device, objects) = device(self.scenario.seed, number, config, queue_pairs[index])
                .map_err(|reason| ScenarioError::Device {
                    host: number,
                    reason,
                })?;
            let part = &mut parts[usize::from(self.host_at[index].0)];
            let kind = kind_of[index];
            let egress = Egress::new(rates[index], &part.kinds[usize::from(kind)].profile);
            let random = Pcg32::new(self.scenario.seed, STREAM_HOSTS + u64::from(number));
            let mut host = Host::new(number, kind, device, objects, egress, random);
            host.classes = self.marked.classes(number);
            host.pcie = config.pcie.map(|link| Box::new(PcieLink::new(link)));
            host.uet = config.uet.map(|uet| Box::new(Endpoint::new(uet)));
            host.worker = plan
                .and_then(|plan| Worker::new(plan, number, &seats[index]))
                .map(Box::new);
            part.unfinished += u64::from(host.worker.is_some());
            let calls = host.worker.as_mut().map(|worker| worker.first_calls());
            for (at, number) in calls.into_iter().flatten() {
                host.think_at(at, OF_WORKER | number);
            }
            host.store = config.storage.map(|store| {
                let random = Pcg32::new(self.scenario.seed, STREAM_STORES + u64::from(number));
                Box::new(Store::new(store, config.mtu.bytes(), config.pcie, random))
            });
            part.hosts.push(host);
        }
        Ok(())
    }

    /// Gives functions their place in the adapter that they share.
    fn place_cards(&self, parts: &mut [Part]) {
        for card in &self.scenario.cards {
            let host = card.functions[0].host as usize;
            let config = &self.scenario.hosts[host];
            let Some(pcie) = config.pcie else { continue };
            let part = &mut parts[usize::from(self.host_at[host].0)];
            let frame_bytes = config.mtu.bytes() + config.overhead_bytes();
            part.cards
                .push(SriovAdapter::new(card, Slot::new(&pcie), frame_bytes));
            let index = part.cards.len() as u32 - 1;
            let buffer = share_of_buffer(card, pcie, frame_bytes);
            for (function, number) in card.functions.iter().zip(0..) {
                let host = &mut part.hosts[self.host_at[function.host as usize].1 as usize];
                host.seat = Some(Seat {
                    card: index,
                    function: number,
                    guard: function.guard,
                });
                let pcie = PcieConfig {
                    receive_buffer_bytes: buffer,
                    ..pcie
                };
                host.pcie = Some(Box::new(PcieLink::new(pcie)));
            }
        }
    }

    fn host<'b>(&self, parts: &'b mut [Part], host: u32) -> &'b mut Host {
        let (part, index) = self.host_at[host as usize];
        &mut parts[usize::from(part)].hosts[index as usize]
    }
}

/// The part of the receive buffer that one function has: an even share, and a few frames at least.
fn share_of_buffer(card: &SriovAdapterConfig, pcie: PcieConfig, frame_bytes: u32) -> u32 {
    (pcie.receive_buffer_bytes / card.functions.len() as u32).max(8 * frame_bytes)
}

/// The hash salt of a switch: it differs between the switches of a run, and between seeds.
pub fn salt_of(seed: u64, switch: u32) -> u64 {
    seed ^ (u64::from(switch) << 32)
}

/// The host that posts the work requests of a flow.
pub(super) fn poster(flow: &Flow) -> u32 {
    if flow.operation == Transfer::Read {
        flow.to
    } else {
        flow.from
    }
}

fn distinct(hosts: &[HostConfig]) -> Vec<&HostConfig> {
    let mut kinds: Vec<&HostConfig> = Vec::new();
    for host in hosts {
        if kinds.last() != Some(&host) && !kinds.contains(&host) {
            kinds.push(host);
        }
    }
    kinds
}

fn kind_numbers(hosts: &[HostConfig], kinds: &[&HostConfig]) -> Vec<u16> {
    let find = |host: &HostConfig| kinds.iter().position(|kind| *kind == host).unwrap_or(0) as u16;
    hosts.iter().map(find).collect()
}

/// The sending half of an adapter's port: a profile of `fabric`.
fn port_profile(config: &HostConfig) -> Profile {
    let treat = |_| Treatment::default();
    let queue = |class: usize| QueueConfig {
        level: config.levels[class],
        ..QueueConfig::default()
    };
    Profile {
        map: ClassMap {
            trust_dscp: false,
            trust_pcp: false,
            dscp: std::array::from_fn(treat),
            pcp: std::array::from_fn(treat),
            default: Treatment::default(),
        },
        queues: std::array::from_fn(queue),
        weigh: Weigh::Bytes,
        group_of_class: std::array::from_fn(|class| class as u8),
        groups: [GroupConfig::default(); CLASSES],
        pfc: config.pfc,
    }
}

/// The device of a host, with one completion queue and one region.
fn device(
    seed: u64,
    number: u32,
    config: &HostConfig,
    queue_pairs: u32,
) -> Result<(Device, HostObjects), rnic::Error> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&number.to_le_bytes());
    let settings = Config {
        max_qp: QUEUE_PAIRS_MAX,
        ..config.device()
    };
    let mut device = Device::new(settings, bytes);
    device.add_qpn_range(Qpn::new(FIRST_QPN), queue_pairs);
    device.port_mut().set_gid(0, Some(gid(number)));
    device.port_mut().set_active_mtu(config.mtu);
    let pd = device.alloc_pd()?;
    let region = RegionInit {
        address: BUFFER_ADDRESS,
        length: 1 << 32,
        iova: BUFFER_ADDRESS,
        access: Access::LOCAL_WRITE | Access::REMOTE,
    };
    let keys = device.memory().register(pd, region)?;
    let entries = queue_pairs
        .max(1)
        .saturating_mul(2 * DEPTH_MAX)
        .min(1 << 20);
    let cq = device.cqs_mut().create(entries)?;
    Ok((device, HostObjects { pd, cq, keys }))
}

const FIRST_QPN: u32 = 0x100;
