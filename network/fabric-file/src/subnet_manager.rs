//! The fabric file's `[sm]`: the manager of an InfiniBand subnet in a simulation.

use alloc::string::String;
use alloc::vec::Vec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The subnet manager of a simulation: routing, and lanes by service level. Labs run a manager as a program,
/// which has its own options. Names are those of `opensm.conf`, where it has them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SubnetManager {
    /// The routing engine.
    pub routing: RoutingEngine,
    /// `updn`: names of the switches that are roots. Default: switches from which nearly all hosts are at one
    /// distance, as OpenSM looks for them; if there are none, the switch in the middle.
    pub roots: Vec<String>,
    /// `file`: the forwarding tables that OpenSM has written (`opensm-lfts.dump`, with `-D 0x43`) or
    /// `dump_fts` has printed. Their GUIDs are those of this file.
    pub lfts: Option<String>,
    /// Virtual lanes of data in use: 1, 2, 4 or 8.
    pub max_vls: u8,
    /// Virtual lanes of the service levels 0 to 15: `"0,1,2,3,0,1,2,3"`; levels without a lane have that of
    /// their number, modulo the lanes in use.
    pub qos_sl2vl: String,
    /// Arbitration, high priority: lanes and weights in units of 64 bytes, `"1:64,2:0"`.
    pub qos_vlarb_high: String,
    /// Arbitration, low priority. Default: all lanes that are not of high priority, each with the weight 64.
    pub qos_vlarb_low: String,
    /// Units of 4 KiB of high priority that are sent while low priority waits: 0 is one packet, 255 no limit.
    pub qos_high_limit: u8,
    /// Lifetime of a packet at the head of a lane towards another switch: 4.096 us times two to this power;
    /// above 19 without limit.
    pub head_of_queue_lifetime: u8,
    /// The same towards a host.
    pub leaf_head_of_queue_lifetime: u8,
    /// Packets that are dropped in a row at the head of a lane towards another switch until the lane drops
    /// all for eight lifetimes; 0 is never.
    pub vl_stall_count: u8,
    /// The same towards a host.
    pub leaf_vl_stall_count: u8,
}

/// How forwarding tables are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingEngine {
    /// Shortest paths; destinations are spread over the ports that lead there. OpenSM's default.
    Minhop,
    /// Paths that go up to a root and then down: they have no loops of credits.
    Updn,
    /// Paths of a fat tree, on which shifts share no link.
    Ftree,
    /// The tables of `lfts`.
    File,
}

impl Default for SubnetManager {
    /// Lifetimes and stall counts are OpenSM's.
    fn default() -> Self {
        Self {
            routing: RoutingEngine::Minhop,
            roots: Vec::new(),
            lfts: None,
            max_vls: 8,
            qos_sl2vl: String::new(),
            qos_vlarb_high: String::new(),
            qos_vlarb_low: String::new(),
            qos_high_limit: 0,
            head_of_queue_lifetime: 0x12,
            leaf_head_of_queue_lifetime: 0x10,
            vl_stall_count: 7,
            leaf_vl_stall_count: 7,
        }
    }
}
