//! The manager of an InfiniBand subnet in a simulation, from `[sm]`.

use super::NetworkBuilder;
use crate::document::ReadFile;
use crate::error::Mistake;
use crate::subnet_manager::RoutingEngine;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;
use fabric::Span;
use fabric::lanes::{
    Arbitration, ArbitrationEntry, BLOCK_BYTES, BLOCKS_MAX, LANES, SERVICE_LEVELS,
};
use units::Size;
use vendors::infiniband::{DumpedTable, forwarding_tables};

/// Entries of an arbitration table at most.
const ENTRIES_MAX: usize = 64;

/// The largest packet in blocks: 4,096 bytes, and all headers.
const PACKET_BLOCKS: u64 = 67;

/// A unit of lifetimes at the head of a lane, in picoseconds, and the largest power of two of it: above there
/// is no limit (IBTA 14.2.5.6, HOQLife).
const LIFETIME_PS: u64 = 4_096_000;
const LIFETIME_MAX: u8 = 19;

/// What the manager sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manager {
    /// How tables are computed.
    pub routing: RoutingEngine,
    /// Numbers of the switches that are roots.
    pub roots: Vec<u32>,
    /// Tables that were read, where `routing` is `file`.
    pub tables: Vec<DumpedTable>,
    /// Lanes in use.
    pub lanes: u8,
    /// Lanes of service levels.
    pub lane_of_level: [u8; SERVICE_LEVELS],
    /// How lanes take turns.
    pub arbitration: Arbitration,
    /// Lifetimes at the head of a lane, towards switches and towards hosts.
    pub lifetimes: [Option<Span>; 2],
    /// Packets that are dropped in a row until a lane stalls, towards the same.
    pub stall_counts: [u8; 2],
    /// Bytes of each lane's receive buffer, by switch and by host.
    pub buffers: LaneBuffers,
}

/// Blocks of 64 bytes of each lane's receive buffer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LaneBuffers {
    /// At each port of a switch.
    pub switches: Vec<u16>,
    /// At the port of a host.
    pub hosts: Vec<u16>,
}

impl NetworkBuilder<'_> {
    /// The manager of a subnet.
    pub(super) fn manager(&mut self, files: &mut ReadFile<'_>) -> Manager {
        let sm = &self.file.sm;
        let lanes = self.lanes_in_use();
        let high = self.entries("qos-vlarb-high", &sm.qos_vlarb_high, lanes);
        let mut low = self.entries("qos-vlarb-low", &sm.qos_vlarb_low, lanes);
        if sm.qos_vlarb_low.is_empty() {
            let is_low = |lane: &u8| !high.iter().any(|entry| entry.lane == *lane);
            let entry = |lane| ArbitrationEntry { lane, weight: 64 };
            low.extend((0..lanes).filter(is_low).map(entry));
        }
        let lane_of_level = self.lane_map(lanes);
        self.check_served(&lane_of_level, &[&high, &low]);
        let lifetime = |code: u8| {
            let is_limited = code <= LIFETIME_MAX;
            is_limited.then(|| Span(LIFETIME_PS << code.min(LIFETIME_MAX)))
        };
        let lifetimes = [sm.head_of_queue_lifetime, sm.leaf_head_of_queue_lifetime];
        Manager {
            routing: sm.routing,
            roots: self.roots(),
            tables: self.dumped_tables(files),
            lanes,
            lane_of_level,
            arbitration: Arbitration {
                high,
                low,
                high_limit: sm.qos_high_limit,
            },
            lifetimes: lifetimes.map(lifetime),
            stall_counts: [sm.vl_stall_count, sm.leaf_vl_stall_count],
            buffers: self.lane_buffers(lanes),
        }
    }

    fn lanes_in_use(&mut self) -> u8 {
        let lanes = self.file.sm.max_vls;
        if ![1, 2, 4, 8].contains(&lanes) {
            let what = format!("{lanes} virtual lanes");
            self.wrong(Mistake::Value, "sm.max-vls", what, "write 1, 2, 4 or 8");
            return LANES as u8;
        }
        lanes
    }

    fn lane_map(&mut self, lanes: u8) -> [u8; SERVICE_LEVELS] {
        let mut map = core::array::from_fn(|level| level as u8 % lanes);
        let text = &self.file.sm.qos_sl2vl;
        if text.is_empty() {
            return map;
        }
        let given: Vec<Option<u8>> = text.split(',').map(number).collect();
        if given.len() > SERVICE_LEVELS {
            let what = format!(
                "{} lanes, and there are {SERVICE_LEVELS} service levels",
                given.len()
            );
            self.wrong(
                Mistake::Value,
                "sm.qos-sl2vl",
                what,
                "write one lane for each level",
            );
        }
        for (own, lane) in map.iter_mut().zip(given) {
            match lane.filter(|lane| *lane < lanes) {
                Some(lane) => *own = lane,
                None => {
                    let what = format!("\"{text}\" does not name lanes alone");
                    let instead = format!("write lanes from 0 to {}, as \"0,1,0\"", lanes - 1);
                    self.wrong(Mistake::Value, "sm.qos-sl2vl", what, &instead);
                    break;
                }
            }
        }
        map
    }

    fn entries(&mut self, field: &str, text: &str, lanes: u8) -> Vec<ArbitrationEntry> {
        let field = format!("sm.{field}");
        let mut entries = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let pair = part.split_once(':');
            let pair = pair.and_then(|(lane, weight)| Some((number(lane)?, number(weight)?)));
            match pair.filter(|(lane, _)| *lane < lanes) {
                Some((lane, weight)) => entries.push(ArbitrationEntry { lane, weight }),
                None => {
                    let what = format!("\"{part}\" is no lane with its weight");
                    let last = lanes - 1;
                    let instead =
                        format!("write lanes from 0 to {last} and weights, as \"0:64,1:192\"");
                    self.wrong(Mistake::Value, &field, what, &instead);
                    return Vec::new();
                }
            }
        }
        if entries.len() > ENTRIES_MAX {
            let what = format!("{} entries", entries.len());
            let instead = format!("a table has {ENTRIES_MAX} at most");
            self.wrong(Mistake::Limit, &field, what, &instead);
        }
        entries
    }

    /// A lane of a service level that no table has would never send.
    fn check_served(&mut self, map: &[u8; SERVICE_LEVELS], tables: &[&Vec<ArbitrationEntry>; 2]) {
        let is_served = |lane: u8| {
            let mut entries = tables.iter().flat_map(|table| table.iter());
            entries.any(|entry| entry.lane == lane && entry.weight > 0)
        };
        if let Some(lane) = map.iter().find(|lane| !is_served(**lane)) {
            let what = format!("lane {lane} of a service level has no weight in either table");
            let instead = "add the lane, or use fewer with max-vls";
            self.wrong(Mistake::Combination, "sm.qos-vlarb-low", what, instead);
        }
    }

    fn roots(&mut self) -> Vec<u32> {
        let mut roots = Vec::new();
        for (index, name) in self.file.sm.roots.iter().enumerate() {
            let found = self.switches.matching(name);
            if found.is_empty() {
                let field = format!("sm.roots[{index}]");
                self.unknown(&field, "switch", name, false);
            }
            roots.extend(found);
        }
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    fn dumped_tables(&mut self, files: &mut ReadFile<'_>) -> Vec<DumpedTable> {
        let sm = &self.file.sm;
        if sm.routing != RoutingEngine::File {
            return Vec::new();
        }
        let Some(path) = &sm.lfts else {
            let what = "\"file\" needs tables".to_owned();
            let instead = "add lfts = \"opensm-lfts.dump\"";
            self.wrong(Mistake::Combination, "sm.routing", what, instead);
            return Vec::new();
        };
        let tables = match files(path) {
            Ok(text) => forwarding_tables(path, &text).map_err(|error| format!("{error}")),
            Err(why) => Err(format!("{path}: {why}")),
        };
        tables.unwrap_or_else(|what| {
            self.wrong(Mistake::Reference, "sm.lfts", what, "");
            Vec::new()
        })
    }

    fn lane_buffers(&mut self, lanes: u8) -> LaneBuffers {
        let mut known: BTreeMap<String, u16> = BTreeMap::new();
        let mut blocks = |builder: &mut Self, field: String, size: Size, lanes: u64| {
            if let Some(blocks) = known.get(&field) {
                return *blocks;
            }
            let blocks = size.0 / u64::from(BLOCK_BYTES) / lanes;
            if blocks < PACKET_BLOCKS {
                let what = format!("{} bytes for each of {lanes} lanes", size.0);
                let least = PACKET_BLOCKS * u64::from(BLOCK_BYTES) * lanes;
                let instead = format!("a packet has to fit: write {least}B or more");
                builder.wrong(Mistake::Value, &field, what, &instead);
            }
            let blocks = blocks.min(u64::from(BLOCKS_MAX)) as u16;
            known.insert(field, blocks);
            blocks
        };
        let file = self.file;
        let mut buffers = LaneBuffers::default();
        for entry in self.switch_entry.clone() {
            let name = entry.map_or("default", |entry| file.switch[entry].qos.as_str());
            let size = file.qos.get(name).map(|qos| qos.lane_buffer);
            let size = size.unwrap_or_else(|| crate::schema::Qos::default().lane_buffer);
            let field = format!("qos.{name}.lane-buffer");
            buffers.switches.push(blocks(self, field, size, 1));
        }
        for entry in self.host_entry.clone() {
            let name = entry.map_or("default", |entry| file.host[entry].nic.as_str());
            let nic = file.nic.get(name).cloned().unwrap_or_default();
            // Behind a PCIe link the lanes share the adapter's receive buffer.
            let (field, size, lanes) = match &nic.pcie {
                Some(pcie) => ("pcie.receive-buffer", pcie.receive_buffer, u64::from(lanes)),
                None => ("lane-buffer", nic.lane_buffer, 1),
            };
            let field = format!("nic.{name}.{field}");
            buffers.hosts.push(blocks(self, field, size, lanes));
        }
        buffers
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}
