//! Facts of neighbours from LLDP and DCBX, from a capture or frame by frame.

use std::fmt::Write as _;

use serde::Serialize;
use wire::lldp::{EtsTlv, LldpTlv, LldpTlvs, OUI_CEE, PfcTlv, Tsa};
use wire::{EtherType, Ethernet, MacAddress};

use vendors::text::{ReadError, classes, ranges};

const MAGICS: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
const LINKTYPE_ETHERNET: u32 = 1;
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// The port of RoCEv2, as an application's protocol.
const ROCE_PORT: u16 = 4791;

/// One neighbour, as its frames describe it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Neighbour {
    /// The address that its frames come from.
    pub source: String,
    /// The name of the system.
    pub system: String,
    /// The identifier of its port.
    pub port: String,
    /// The ETS configuration: willing, then `class N: algorithm, percent, priorities`.
    pub ets: Option<EtsFacts>,
    /// The ETS recommendation.
    pub ets_recommended: Option<EtsFacts>,
    /// The PFC configuration.
    pub pfc: Option<PfcFacts>,
    /// Priority, selector and protocol of applications.
    pub applications: Vec<(u8, u8, u16)>,
    /// Whether it sends the form of DCBX before 802.1Qaz (CEE).
    pub cee: bool,
    /// TLVs that could not be read.
    pub errors: Vec<String>,
}

/// ETS of a neighbour.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EtsFacts {
    /// Whether it accepts a recommendation.
    pub willing: bool,
    /// Traffic class by priority.
    pub class_of_priority: [u8; 8],
    /// Percent by traffic class.
    pub bandwidth: [u8; 8],
    /// Transmission selection algorithm by traffic class.
    pub algorithm: Vec<String>,
}

/// PFC of a neighbour.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PfcFacts {
    /// Whether it accepts the peer's setting.
    pub willing: bool,
    /// How many priorities may have PFC at once.
    pub capability: u8,
    /// Priorities with PFC.
    pub enabled: Vec<u8>,
}

/// Neighbours of a capture (classic pcap, Ethernet), each as its last frame describes it.
///
/// # Errors
/// A file that is not a capture of Ethernet.
pub fn neighbours(file: &str, bytes: &[u8]) -> Result<Vec<Neighbour>, ReadError> {
    let no = |what: &str| ReadError::new(file, 1, what.to_owned());
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let magic = word(0).ok_or_else(|| no("the file is shorter than the header of a capture"))?;
    let big = MAGICS.contains(&magic.swap_bytes());
    if !big && !MAGICS.contains(&magic) {
        return Err(no(
            "it is no classic pcap; tcpdump -w writes one, and editcap -F pcap converts pcapng",
        ));
    }
    let number = |at: usize| word(at).map(|word| if big { word.swap_bytes() } else { word });
    if number(20).map(|link| link & 0xffff) != Some(LINKTYPE_ETHERNET) {
        return Err(no("it is no capture of Ethernet"));
    }
    let mut found: Vec<Neighbour> = Vec::new();
    let mut at = FILE_HEADER;
    while let Some(length) = number(at + 8) {
        let Some(frame) = bytes
            .get(at + RECORD_HEADER..)
            .and_then(|rest| rest.get(..length as usize))
        else {
            break;
        };
        at += RECORD_HEADER + length as usize;
        hear(&mut found, frame);
    }
    Ok(found)
}

/// Adds the facts of a frame; a later frame of the same port replaces an earlier one. Frames of other
/// protocols are ignored.
pub fn hear(found: &mut Vec<Neighbour>, frame: &[u8]) {
    let Some(neighbour) = of_frame(frame) else {
        return;
    };
    let same =
        |other: &&mut Neighbour| other.source == neighbour.source && other.port == neighbour.port;
    match found.iter_mut().find(same) {
        Some(other) => *other = neighbour,
        None => found.push(neighbour),
    }
}

/// The facts of one frame; `None` where it is not LLDP.
fn of_frame(frame: &[u8]) -> Option<Neighbour> {
    let (ethernet, payload) = Ethernet::parse(frame).ok()?;
    if ethernet.ethertype != EtherType::LLDP {
        return None;
    }
    let mut neighbour = Neighbour {
        source: ethernet.source.to_string(),
        ..Neighbour::default()
    };
    for tlv in LldpTlvs::new(payload) {
        match tlv {
            Ok(LldpTlv::SystemName(name)) => {
                neighbour.system = String::from_utf8_lossy(name).into_owned()
            }
            Ok(LldpTlv::Port(subtype, id)) => neighbour.port = identifier(subtype, id),
            Ok(LldpTlv::Ets(ets)) if ets.recommendation => {
                neighbour.ets_recommended = Some(of_ets(&ets))
            }
            Ok(LldpTlv::Ets(ets)) => neighbour.ets = Some(of_ets(&ets)),
            Ok(LldpTlv::Pfc(pfc)) => neighbour.pfc = Some(of_pfc(pfc)),
            Ok(LldpTlv::Applications(entries)) => {
                let entries = entries
                    .iter()
                    .map(|entry| (entry.priority, entry.selector, entry.protocol));
                neighbour.applications = entries.collect();
            }
            Ok(LldpTlv::Organization(OUI_CEE, ..)) => neighbour.cee = true,
            Ok(_) => {}
            Err(error) => neighbour.errors.push(error.to_string()),
        }
    }
    Some(neighbour)
}

/// An identifier: a MAC address with subtype 3 of ports, text otherwise.
fn identifier(subtype: u8, id: &[u8]) -> String {
    match (subtype, <[u8; 6]>::try_from(id)) {
        (3, Ok(address)) => MacAddress(address).to_string(),
        _ => String::from_utf8_lossy(id).into_owned(),
    }
}

fn of_ets(ets: &EtsTlv) -> EtsFacts {
    let algorithm = ets.tsa.iter().map(|tsa| match tsa {
        Tsa::Strict => "strict".to_owned(),
        Tsa::CreditBased => "credit-based".to_owned(),
        Tsa::Ets => "ets".to_owned(),
        Tsa::Other(255) => "vendor".to_owned(),
        Tsa::Other(other) => other.to_string(),
    });
    EtsFacts {
        willing: ets.willing,
        class_of_priority: ets.class_of_priority,
        bandwidth: ets.bandwidth,
        algorithm: algorithm.collect(),
    }
}

fn of_pfc(pfc: PfcTlv) -> PfcFacts {
    PfcFacts {
        willing: pfc.willing,
        capability: pfc.capability,
        enabled: classes(pfc.enabled).collect(),
    }
}

/// Neighbours as a page, with the settings that differ between the two ends of the link.
pub fn page(neighbours: &[Neighbour]) -> String {
    let mut text = String::new();
    for neighbour in neighbours {
        let _ = writeln!(
            text,
            "{} {} ({})",
            neighbour.system, neighbour.port, neighbour.source
        );
        for (name, ets) in [
            ("ETS", &neighbour.ets),
            ("ETS recommended", &neighbour.ets_recommended),
        ] {
            let Some(ets) = ets else { continue };
            let willing = if ets.willing { ", willing" } else { "" };
            let _ = writeln!(text, "  {name}{willing}");
            for class in 0..8_u8 {
                let own = (0..8_u8)
                    .filter(|priority| ets.class_of_priority[usize::from(*priority)] == class);
                let own = ranges(own);
                let (percent, algorithm) = (
                    ets.bandwidth[usize::from(class)],
                    &ets.algorithm[usize::from(class)],
                );
                if !own.is_empty() || percent > 0 {
                    let _ = writeln!(
                        text,
                        "    class {class}: {algorithm}, {percent} %, priorities {own}"
                    );
                }
            }
        }
        if let Some(pfc) = &neighbour.pfc {
            let willing = if pfc.willing { ", willing" } else { "" };
            let list = if pfc.enabled.is_empty() {
                "none".to_owned()
            } else {
                ranges(pfc.enabled.iter().copied())
            };
            let _ = writeln!(
                text,
                "  PFC{willing}: priorities {list} of at most {}",
                pfc.capability
            );
        }
        for (priority, selector, protocol) in &neighbour.applications {
            let name = match (selector, *protocol) {
                (1, ethertype) => format!("EtherType {ethertype:#06x}"),
                (2, port) => format!("TCP port {port}"),
                (3, ROCE_PORT) => "UDP port 4791 (RoCEv2)".to_owned(),
                (3, port) => format!("UDP port {port}"),
                (4, port) => format!("port {port}"),
                (5, dscp) => format!("DSCP {dscp}"),
                (other, protocol) => format!("selector {other}, protocol {protocol}"),
            };
            let _ = writeln!(text, "  {name}: priority {priority}");
        }
        if neighbour.cee {
            text.push_str("  speaks DCBX as before 802.1Qaz (CEE), which is not taken apart\n");
        }
        neighbour.errors.iter().for_each(|error| {
            let _ = writeln!(text, "  not read: {error}");
        });
        if neighbour.ets.is_none() && neighbour.pfc.is_none() && !neighbour.cee {
            text.push_str("  no DCBX\n");
        }
    }
    text + &mismatches(neighbours)
}

/// Settings that differ between the two neighbours of a capture, which are the two ends of its link.
fn mismatches(neighbours: &[Neighbour]) -> String {
    let [one, other] = neighbours else {
        return String::new();
    };
    let (Some(a), Some(b)) = (&one.pfc, &other.pfc) else {
        return String::new();
    };
    match (a.willing, b.willing) {
        _ if a.enabled == b.enabled => String::new(),
        (true, false) => {
            format!(
                "PFC differs; {} is willing, and takes {}'s setting\n",
                one.system, other.system
            )
        }
        (false, true) => {
            format!(
                "PFC differs; {} is willing, and takes {}'s setting\n",
                other.system, one.system
            )
        }
        (true, true) => {
            "PFC differs, and both are willing: the one with the lower address decides\n".to_owned()
        }
        (false, false) => {
            "PFC differs, and neither is willing: pauses of one end are not obeyed by the other\n"
                .to_owned()
        }
    }
}
