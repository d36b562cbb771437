//! The DCBX state of links, as `ps --json` shows it.

use super::ends::{AgentLink, LinkPort};
use super::sharing::Sharing;
use fabric::topology::End;
use serde::{Deserialize, Serialize};
use wire::lldp::{EtsTlv, Tsa};

/// A link between a live host and a switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DcbxLink {
    /// The port of the host's adapter.
    pub adapter: DcbxPort,
    /// The port of the switch.
    pub switch: DcbxPort,
}

/// A port that takes part in DCBX.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DcbxPort {
    /// The name of the port in the file.
    pub name: String,
    /// Its MAC address.
    pub mac: String,
    /// Whether it takes settings of its peer.
    pub willing: bool,
    /// The number of its neighbours.
    pub neighbours: u32,
    /// The port that the peer advertises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The settings of the file.
    pub local: DcbxSettings,
    /// The settings that the peer advertises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<DcbxSettings>,
    /// The operational settings of the port.
    pub operational: DcbxSettings,
    /// Whether its PFC is that of the peer.
    pub takes_pfc: bool,
    /// Whether its ETS is what the peer recommends.
    pub takes_ets: bool,
}

/// PFC and ETS of a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DcbxSettings {
    /// Priorities with PFC; nothing where a peer does not advertise PFC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pfc: Option<Vec<u8>>,
    /// ETS; nothing where a peer does not advertise it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ets: Option<DcbxEts>,
}

/// ETS of a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DcbxEts {
    /// Traffic class by priority.
    pub class_of_priority: [u8; 8],
    /// Percent of bandwidth by traffic class.
    pub bandwidth: [u8; 8],
    /// Transmission selection algorithm by traffic class: `strict`, `credit-based`, `ets`, or a number.
    pub algorithm: Vec<String>,
}

pub(super) fn of_link(link: &AgentLink, name: &impl Fn(End) -> String) -> DcbxLink {
    let [adapter, switch] = link.ports.each_ref().map(|port| of_port(port, name));
    DcbxLink { adapter, switch }
}

fn of_port(port: &LinkPort, name: &impl Fn(End) -> String) -> DcbxPort {
    let peer = port.peer();
    let remote = peer.map(|peer| DcbxSettings {
        pfc: peer.pfc.map(|pfc| priorities(pfc.enabled)),
        ets: peer.ets.as_ref().map(of_tlv),
    });
    DcbxPort {
        name: name(port.end),
        mac: port.mac.to_string(),
        willing: port.settings.willing,
        neighbours: port.agent.neighbours.len() as u32,
        peer: peer.map(|peer| format!("{} {}", peer.system, peer.port)),
        local: of_sharing(&port.settings.sharing),
        remote,
        operational: of_sharing(&port.operational()),
        takes_pfc: port.takes_pfc(),
        takes_ets: port.takes_ets(),
    }
}

fn of_sharing(sharing: &Sharing) -> DcbxSettings {
    DcbxSettings {
        pfc: Some(priorities(sharing.pfc)),
        ets: Some(of_tlv(&sharing.ets_tlv(false, false))),
    }
}

fn of_tlv(ets: &EtsTlv) -> DcbxEts {
    let algorithm = ets.tsa.map(|tsa| match tsa {
        Tsa::Strict => "strict".to_owned(),
        Tsa::CreditBased => "credit-based".to_owned(),
        Tsa::Ets => "ets".to_owned(),
        Tsa::Other(other) => other.to_string(),
    });
    DcbxEts {
        class_of_priority: ets.class_of_priority,
        bandwidth: ets.bandwidth,
        algorithm: algorithm.to_vec(),
    }
}

fn priorities(mask: u8) -> Vec<u8> {
    (0..8)
        .filter(|priority| mask >> priority & 1 == 1)
        .collect()
}
