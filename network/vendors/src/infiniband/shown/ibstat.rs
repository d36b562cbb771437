//! `ibstat`: the ports of one host.

use super::{PortState, SubnetFacts, fact, is_message};
use crate::text::{Line, shortened};

/// Fields that no rule examines.
const IRRELEVANT: [&str; 13] = [
    "CA type",
    "Switch type",
    "Router type",
    "Number of ports",
    "Firmware version",
    "Hardware version",
    "Node GUID",
    "System image GUID",
    "Physical state",
    "Rate",
    "LMC",
    "Capability mask",
    "Link layer",
];

pub(super) fn is_one(text: &str) -> bool {
    device(text).is_some()
}

/// The device of `CA 'mlx4_0'`.
fn device(text: &str) -> Option<&str> {
    let kinds = ["CA '", "Switch '", "Router '"];
    let rest = kinds.iter().find_map(|kind| text.strip_prefix(kind))?;
    rest.strip_suffix('\'')
}

pub(super) fn read(facts: &mut SubnetFacts, output: &[Line<'_>]) {
    let mut node = String::new();
    let mut is_switch = false;
    let mut number = None;
    let mut is_ethernet = false;
    for line in output {
        if let Some(name) = device(line.text) {
            (node, number) = (name.to_owned(), None);
            is_switch = line.text.starts_with("Switch");
            continue;
        }
        let port = line
            .text
            .strip_prefix("Port ")
            .and_then(|text| text.strip_suffix(':'));
        if let Some(port) = port.and_then(|port| port.parse().ok()) {
            number = Some(port);
            is_ethernet = layer_of(output, line) == Some("Ethernet");
            continue;
        }
        let Some((key, value)) = line.text.split_once(':') else {
            if !is_message(line.text) {
                let why = format!("\"{}\": no line of ibstat", shortened(line.text));
                facts.not_understood(line.number, why);
            }
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if number.is_none() || is_ethernet || IRRELEVANT.contains(&key) || is_message(line.text) {
            continue;
        }
        let file = facts.file.clone();
        let own = facts.port(&node, number);
        own.is_switch = Some(is_switch);
        let lid = value.parse::<u16>().ok();
        let is_understood = match key {
            "State" => {
                own.state = PortState::named(value).map(|state| fact(&file, line, state));
                own.state.is_some()
            }
            "Base lid" => {
                own.lid = lid.map(|lid| fact(&file, line, lid));
                lid.is_some()
            }
            "SM lid" => {
                own.manager_lid = lid.map(|lid| fact(&file, line, lid));
                lid.is_some()
            }
            "Port GUID" => {
                let digits = value.trim_start_matches("0x");
                own.guid = u64::from_str_radix(digits, 16).ok();
                own.guid.is_some()
            }
            _ => false,
        };
        if !is_understood {
            let why = format!(
                "\"{}\": no field of ibstat that is known",
                shortened(line.text)
            );
            facts.not_understood(line.number, why);
        }
    }
}

/// The link layer of the port whose heading a line is.
fn layer_of<'a>(output: &[Line<'a>], heading: &Line<'_>) -> Option<&'a str> {
    let below = output
        .iter()
        .skip_while(|line| line.number <= heading.number);
    let own = below.take_while(|line| !line.text.starts_with("Port ") || !line.text.ends_with(':'));
    own.filter_map(|line| line.text.strip_prefix("Link layer:"))
        .map(str::trim)
        .next()
}
