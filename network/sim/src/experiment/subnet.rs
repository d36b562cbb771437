//! An InfiniBand subnet as its manager sets it up before a simulation: LIDs, tables and lanes.

use super::Experiment;
use crate::world::{Headers, HostConfig, LinkLanes, Marking, SubnetSetup};
use fabric::config::{
    BufferConfig, CLASSES, ClassMap, GroupConfig, Limit, PfcConfig, Profile, QueueConfig,
    SwitchConfig, Treatment, Weigh,
};
use fabric::lanes::{BLOCK_BYTES, LaneConfig, LaneMap};
use fabric::topology::{End as Place, Node};
use fabric::{NextHops, Span, Spread};
use fabric_file::schema::RoutingEngine;
use fabric_file::{Document, FileError, Manager, Mistake, Network, Subnet};
use infiniband::routing::{
    Cabling, CreditLoop, Engine, LinkShare, NO_PORT, NotRouted, Order, Tables, route,
};
use infiniband::subnet::End;
use rnic::CongestionConfig;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest time between two flow control packets of a lane, in symbols (IBTA 7.9), each of which is a
/// byte on each lane of the link.
const SYMBOLS_BETWEEN: u64 = 65_536;

/// A subnet with its tables, and what they lead to.
#[derive(Clone, Debug)]
pub struct ManagedSubnet {
    /// The cables: hosts are the first nodes, switches the others.
    pub cabling: Cabling,
    /// The forwarding tables of switches.
    pub tables: Tables,
    /// What the engine is told.
    pub setup: SubnetSetup,
    /// A loop of credits that the tables make possible, if there is one.
    pub credit_loop: Option<CreditLoop>,
    /// Links between switches by their share of all pairs of hosts, the busiest first.
    pub shares: Vec<LinkShare>,
    /// The port of the topology by port of the subnet.
    places: BTreeMap<End, Place>,
}

impl ManagedSubnet {
    /// The port of the topology.
    pub fn port_at(&self, end: End) -> Option<Place> {
        self.places.get(&end).copied()
    }

    /// Routes the subnet of a network.
    fn new(
        document: &Document,
        network: &Network,
        subnet: &Subnet,
        manager: &Manager,
    ) -> Result<Self, FileError> {
        let hosts = network.hosts.len();
        let links = network.topology.links().iter().zip(&subnet.links);
        let ends: Vec<[(End, Place); 2]> = links
            .map(|(link, numbers)| {
                [0, 1].map(|side| {
                    let place = link.ends[side];
                    let node = match place.node {
                        Node::Host(host) => host as usize,
                        Node::Switch(switch) => hosts + switch as usize,
                    };
                    let port = numbers.ports[side];
                    (End { node, port }, place)
                })
            })
            .collect();
        let cables = ends.iter().map(|ends| ends.map(|(end, _)| end));
        let cabling = Cabling::new(hosts, network.switches.len(), cables);
        let places: BTreeMap<End, Place> = ends.into_iter().flatten().collect();
        let tables = tables(document, network, subnet, manager, &cabling)?;
        let setup = setup(network, subnet, manager, &tables, &places);
        Ok(Self {
            credit_loop: tables.credit_loop(&cabling),
            shares: tables.shares(&cabling),
            cabling,
            tables,
            setup,
            places,
        })
    }
}

impl Experiment {
    /// Makes the simulation one of InfiniBand, if the file describes that.
    pub(super) fn manage(&mut self, document: &Document) -> Result<(), FileError> {
        let (Some(subnet), Some(manager)) = (&self.network.infiniband, &self.network.manager)
        else {
            return Ok(());
        };
        let managed = ManagedSubnet::new(document, &self.network, subnet, manager)?;
        for ((config, named), blocks) in self
            .scenario
            .hosts
            .iter_mut()
            .zip(&self.network.hosts)
            .zip(&manager.buffers.hosts)
        {
            let level = named.nic.service_level;
            adapter(config, level, manager.lane_of_level[usize::from(level)]);
            if let Some(pcie) = &mut config.pcie {
                // Credits are what limits it.
                let lanes = u32::from(*blocks) * BLOCK_BYTES * CLASSES as u32;
                pcie.receive_buffer_bytes = pcie.receive_buffer_bytes.max(lanes);
            }
        }
        for (config, blocks) in self
            .scenario
            .switches
            .iter_mut()
            .zip(&manager.buffers.switches)
        {
            switch(config, *blocks);
        }
        self.subnet = Some(managed);
        Ok(())
    }
}

/// The tables, computed or read.
fn tables(
    document: &Document,
    network: &Network,
    subnet: &Subnet,
    manager: &Manager,
    cabling: &Cabling,
) -> Result<Tables, FileError> {
    let hosts = cabling.hosts();
    let engine = match manager.routing {
        RoutingEngine::Minhop => Engine::MinHop,
        RoutingEngine::Updn => Engine::UpDown,
        RoutingEngine::Ftree => Engine::FatTree,
        RoutingEngine::File => return dumped(document, network, subnet, manager, cabling),
    };
    let roots: Vec<usize> = manager
        .roots
        .iter()
        .map(|root| hosts + *root as usize)
        .collect();
    let order = Order {
        engine,
        roots: &roots,
        alternatives: network.spread != Spread::Hash,
    };
    let name = |node: usize| match node.checked_sub(hosts) {
        Some(switch) => network.switches[switch].name.as_str(),
        None => network.hosts[node].name.as_str(),
    };
    route(cabling, &order).map_err(|why| {
        let (what, instead) = match why {
            NotRouted::NoPath { from, to } => (
                format!("there is no path from {} to {}", name(from), name(to)),
                match engine {
                    Engine::UpDown => "name other switches in sm.roots, or add links",
                    _ => "add links",
                },
            ),
            NotRouted::SameLevel { switches } => {
                let [one, other] = switches.map(name);
                let what = format!(
                    "this is no fat tree: {one} and {other} are linked, and are equally \
                     far from hosts"
                );
                (what, "write routing = \"updn\"")
            }
            NotRouted::TooManyNodes => (
                "there are more hosts and switches than LIDs".to_owned(),
                "49,151 at most",
            ),
        };
        document.mistake(Mistake::Combination, "sm.routing", what, instead)
    })
}

/// The tables of a dump. LIDs and ports are those of the dump.
fn dumped(
    document: &Document,
    network: &Network,
    subnet: &Subnet,
    manager: &Manager,
    cabling: &Cabling,
) -> Result<Tables, FileError> {
    let hosts = cabling.hosts();
    let wrong = |what: String, instead: &str| {
        document.mistake(Mistake::Reference, "sm.lfts", what, instead)
    };
    let mut lids = vec![0; hosts + subnet.switches.len()];
    let guids = subnet.hosts.iter().map(|host| host.port_guid);
    let guids = guids.chain(subnet.switches.iter().map(|switch| switch.guid));
    let node_of: BTreeMap<u64, usize> = guids.zip(0..).collect();
    let top = manager.tables.iter().flat_map(|table| &table.entries);
    let top = top.map(|entry| entry.lid).max().unwrap_or(0);
    let mut linear = vec![vec![NO_PORT; usize::from(top) + 1]; subnet.switches.len()];
    let mut found = vec![false; subnet.switches.len()];
    for table in &manager.tables {
        let number = node_of
            .get(&table.guid)
            .and_then(|node| node.checked_sub(hosts));
        let Some(number) = number else {
            let what = format!(
                "switch 0x{:016x} ('{}') is not in this file",
                table.guid, table.description
            );
            return Err(wrong(
                what,
                "give the switches of the file the GUIDs of the dump",
            ));
        };
        found[number] = true;
        for entry in &table.entries {
            linear[number][usize::from(entry.lid)] = entry.port;
            let node = entry.port_guid.and_then(|guid| node_of.get(&guid));
            if let Some(node) = node {
                lids[*node] = entry.lid;
            }
        }
    }
    if let Some(missing) = found.iter().position(|found| !found) {
        let name = &network.switches[missing].name;
        let what = format!("there is no table of {name} in it");
        return Err(wrong(what, "dump the tables of all switches"));
    }
    let attached = |host: &usize| {
        cabling
            .neighbour(End {
                node: *host,
                port: 1,
            })
            .is_some()
    };
    if let Some(host) = (0..hosts).filter(attached).find(|host| lids[*host] == 0) {
        let (name, guid) = (&network.hosts[host].name, subnet.hosts[host].port_guid);
        let what = format!("no entry of it is for {name}, port GUID 0x{guid:016x}");
        return Err(wrong(
            what,
            "give the hosts of the file the GUIDs of the dump",
        ));
    }
    Ok(Tables {
        lids,
        linear,
        alternatives: Vec::new(),
    })
}

/// What the engine is told.
fn setup(
    network: &Network,
    subnet: &Subnet,
    manager: &Manager,
    tables: &Tables,
    places: &BTreeMap<End, Place>,
) -> SubnetSetup {
    let hosts = network.hosts.len();
    let switches = network.switches.len();
    let next_hops = (0..switches).map(|switch| {
        let node = hosts + switch;
        let port = |number: u8| Some(places.get(&End { node, port: number })?.port);
        let mut by_lid: Vec<Vec<u16>> = vec![Vec::new(); switches];
        let table = &tables.linear[switch];
        by_lid.extend(table.iter().map(|number| Vec::from_iter(port(*number))));
        for (host, numbers) in (0..).zip(tables.alternatives.get(switch).into_iter().flatten()) {
            let mut ports: Vec<u16> = numbers.iter().filter_map(|number| port(*number)).collect();
            ports.sort_unstable();
            let lid: u16 = tables.lids[host];
            by_lid[switches + usize::from(lid)] = ports;
        }
        Arc::new(NextHops::new(by_lid.iter().map(Vec::as_slice)))
    });
    let mut known: BTreeMap<(u16, bool), Arc<LaneConfig>> = BTreeMap::new();
    let mut lanes = |blocks: u16, to_host: bool| {
        let new = || {
            Arc::new(LaneConfig {
                buffer_blocks: blocks,
                arbitration: manager.arbitration.clone(),
                lifetime: manager.lifetimes[usize::from(to_host)],
                stall_count: manager.stall_counts[usize::from(to_host)],
            })
        };
        known.entry((blocks, to_host)).or_insert_with(new).clone()
    };
    let links = network.topology.links().iter().zip(&subnet.links);
    let links = links.map(|(link, speed)| {
        let lane_bps = speed.speed.speed.lane_bps();
        LinkLanes {
            ends: [0, 1].map(|side| {
                let to_host = matches!(link.ends[1 - side].node, Node::Host(_));
                match link.ends[side].node {
                    Node::Host(host) => lanes(manager.buffers.hosts[host as usize], false),
                    Node::Switch(switch) => {
                        lanes(manager.buffers.switches[switch as usize], to_host)
                    }
                }
            }),
            repeats_after: Span(SYMBOLS_BETWEEN * 8 * 1_000_000_000 / (lane_bps / 1_000)),
        }
    });
    SubnetSetup {
        lids: tables.lids[..hosts].to_vec(),
        links: links.collect(),
        next_hops: next_hops.collect(),
        map: LaneMap::Uniform(manager.lane_of_level),
    }
}

/// Makes an adapter one of InfiniBand, with packets of one service level.
fn adapter(config: &mut HostConfig, level: u8, lane: u8) {
    let marking = Marking {
        class: lane,
        dscp: level,
        pcp: None,
        ecn: false,
    };
    config.headers = Headers::Infiniband;
    (config.data, config.acknowledgements, config.notifications) = (marking, marking, marking);
    config.pfc = PfcConfig {
        send: 0,
        obey: 0,
        ..PfcConfig::default()
    };
    config.levels = [0; CLASSES];
    if config.congestion != CongestionConfig::Adaptive {
        config.congestion = CongestionConfig::Off;
    }
}

/// Makes a switch one of InfiniBand: each lane of each port has a receive buffer of its own.
fn switch(config: &mut SwitchConfig, blocks: u16) {
    let group = GroupConfig {
        reserve_bytes: u32::from(blocks) * BLOCK_BYTES,
        limit: Limit::None,
        headroom_bytes: 0,
        xon_offset_bytes: 0,
    };
    let ports = config.ports.len() as u32;
    config.profiles = vec![Profile {
        map: ClassMap {
            trust_dscp: false,
            trust_pcp: false,
            dscp: [Treatment::default(); 64],
            pcp: [Treatment::default(); 8],
            default: Treatment::default(),
        },
        queues: [QueueConfig::default(); CLASSES],
        weigh: Weigh::Bytes,
        group_of_class: std::array::from_fn(|lane| lane as u8),
        groups: [group; CLASSES],
        pfc: PfcConfig::default(),
    }];
    config.ports.iter_mut().for_each(|port| port.profile = 0);
    config.buffer = BufferConfig {
        total_bytes: ports * CLASSES as u32 * group.reserve_bytes + 1,
        headroom_pool_bytes: None,
        cell_bytes: BLOCK_BYTES,
    };
}
