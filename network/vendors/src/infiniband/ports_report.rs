//! Lines of `ibnetdiscover --ports`: one for each port, with the port at the other end of its link.

use super::discovered::NodeKind;
use super::pattern::pattern;
use super::record::{ShownSpeed, hexadecimal};
use regex::Regex;
use std::sync::LazyLock;

/// A port of a node, as one side of a line names it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Side {
    pub(super) kind: NodeKind,
    pub(super) port: u32,
    pub(super) guid: u64,
    pub(super) description: String,
}

/// `CA 1 1 0x0002c903000a1b21 4x QDR - SW 2 3 0x0002c90000000100 ( 'alice' - 'leaf' )`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Ports {
    pub(super) own: Side,
    pub(super) peer: Option<Side>,
    pub(super) speed: ShownSpeed,
}

static LINE: LazyLock<Regex> = LazyLock::new(|| {
    let text = r"(?x)^(CA|SW|RT|\?+)\s+\d+\s+(\d+)\s+0x([0-9a-fA-F]{16})\s+(\S+\s\S+)
          (?:\s+-\s+(CA|SW|RT|\?+)\s+\d+\s+(\d+)\s+0x([0-9a-fA-F]{16})\s+\(\s'(.*)'\s-\s'(.*)'\s\)
          |\s+(\S.*))$";
    pattern(text)
});

impl Ports {
    /// Whether a line is of this form.
    pub(super) fn is_one(text: &str) -> bool {
        let kind = text.split_whitespace().next();
        matches!(kind, Some("CA" | "SW" | "RT")) || (text.starts_with("??") && text.contains(" 0x"))
    }

    /// Parses a line without blanks at its ends.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some(found) = LINE.captures(text) else {
            let form = "CA LID PORT GUID WIDTH SPEED - SW LID PORT GUID ( 'name' - 'name' )";
            return Err(format!("a line of --ports is {form}"));
        };
        let side = |first: usize, description: &str| {
            Ok::<Side, String>(Side {
                kind: kind(&found[first])?,
                port: found[first + 1].parse().unwrap_or(u32::MAX),
                guid: hexadecimal(&found[first + 2]).unwrap_or(0),
                description: description.to_owned(),
            })
        };
        let (own, peer) = match found.get(10) {
            Some(alone) => (side(1, alone.as_str().trim_matches('\''))?, None),
            None => (side(1, &found[8])?, Some(side(5, &found[9])?)),
        };
        if own.guid == 0 || peer.as_ref().is_some_and(|peer| peer.guid == 0) {
            return Err("0 is no GUID".to_owned());
        }
        Ok(Self {
            own,
            peer,
            speed: ShownSpeed::parse(&found[4]),
        })
    }
}

fn kind(text: &str) -> Result<NodeKind, String> {
    match text {
        "SW" => Ok(NodeKind::Switch),
        "CA" => Ok(NodeKind::ChannelAdapter),
        "RT" => Ok(NodeKind::Router),
        other => Err(format!(
            "{other} is no type of a node: the node did not answer"
        )),
    }
}
