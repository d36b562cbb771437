//! `iblinkinfo`, as a list of nodes or with `--line`.

use super::super::pattern::pattern;
use super::{PortState, SubnetFacts, fact, is_message};
use crate::text::{Line, shortened};
use ::infiniband::{LinkSpeed, Speed, Width};
use regex::Regex;
use std::sync::LazyLock;

static LINE: LazyLock<Regex> = LazyLock::new(|| {
    let text = r#"(?x)^(?:0x([0-9a-fA-F]{1,16})\s+)?(?:"\s*(.*?)"\s+)?\d+\s+(\d+)\[[^\]]*\]
          \s+==\(\s*(?:(\d+)X\s+(.*?)\s+)?(\w+)/\s*([\w\s]+?)\)==>
          \s*(?:0x[0-9a-fA-F]+\s+)?(?:\d+\s+(\d+))?\s*\[[^\]]*\]\s+"(.*)"\s+\(\s*(.*?)\s*\)$"#;
    pattern(text)
});

static NODE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(CA|Switch|Router|RT):(?:\s+0x([0-9a-fA-F]{1,16}))?\s+(.*):$"));

/// The names of speeds that iblinkinfo prints, by the rate of a lane.
const SPEEDS: [(&str, Speed); 9] = [
    ("2.5 Gbps", Speed::Sdr),
    ("5.0 Gbps", Speed::Ddr),
    ("10.0 Gbps", Speed::Qdr),
    ("10.0 Gbps (FDR10)", Speed::Fdr10),
    ("14.0625 Gbps", Speed::Fdr),
    ("25.78125 Gbps", Speed::Edr),
    ("53.125 Gbps", Speed::Hdr),
    ("106.25 Gbps", Speed::Ndr),
    ("212.5 Gbps", Speed::Xdr),
];

/// The node whose ports follow.
#[derive(Default)]
struct Node {
    name: String,
    guid: Option<u64>,
    is_switch: Option<bool>,
}

pub(super) fn read(facts: &mut SubnetFacts, output: &[Line<'_>]) {
    let mut node = Node::default();
    for line in output {
        if let Some(found) = NODE.captures(line.text) {
            let guid = found
                .get(2)
                .and_then(|guid| u64::from_str_radix(guid.as_str(), 16).ok());
            node = Node {
                name: found[3].to_owned(),
                guid,
                is_switch: Some(&found[1] == "Switch"),
            };
        } else if is_message(line.text) || line.text.starts_with('#') {
            // Without effect.
        } else if !port(facts, line, &node) {
            let why = format!("\"{}\": no line of iblinkinfo", shortened(line.text));
            facts.not_understood(line.number, why);
        }
    }
}

/// Reads the line of a port; `false` if it is none.
fn port(facts: &mut SubnetFacts, line: &Line<'_>, node: &Node) -> bool {
    let Some(found) = LINE.captures(line.text) else {
        return false;
    };
    let (Ok(number), Some(state)) = (found[3].parse::<u8>(), PortState::named(&found[6])) else {
        return false;
    };
    let file = facts.file.clone();
    let name = found
        .get(2)
        .map_or(node.name.as_str(), |name| name.as_str());
    let own = facts.port(name, Some(number));
    let guid = found
        .get(1)
        .and_then(|guid| u64::from_str_radix(guid.as_str(), 16).ok());
    own.guid = own.guid.or(guid).or(node.guid);
    own.is_switch = own.is_switch.or(node.is_switch);
    own.state = Some(fact(&file, line, state));
    let lanes = found
        .get(4)
        .and_then(|lanes| lanes.as_str().parse::<u8>().ok());
    let width = Width::ALL
        .into_iter()
        .find(|width| Some(width.lanes()) == lanes);
    let shown = found.get(5).map(|speed| speed.as_str().trim());
    let speed = SPEEDS.iter().find(|(name, _)| Some(*name) == shown);
    let is_linked = state != PortState::Down;
    match (width, speed) {
        (Some(width), Some((_, speed))) if is_linked => {
            let speed = LinkSpeed {
                width,
                speed: *speed,
            };
            own.speed = Some(fact(&file, line, speed));
        }
        _ if is_linked => return false,
        _ => {}
    }
    let peer = found.get(8).and_then(|port| port.as_str().parse().ok());
    if let Some(peer) = peer {
        own.peer = Some((found[9].to_owned(), peer));
    }
    let remarks = found[10]
        .split("Could be ")
        .map(str::trim)
        .filter(|text| !text.is_empty());
    own.could_be = remarks
        .map(|text| fact(&file, line, text.to_owned()))
        .collect();
    true
}
