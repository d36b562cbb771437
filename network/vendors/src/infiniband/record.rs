//! Lines of `ibnetdiscover` and of net files.

use super::discovered::NodeKind;
use super::pattern::pattern;
use ::infiniband::LinkSpeed;
use regex::Regex;
use std::sync::LazyLock;

/// A line of a file.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Record {
    /// A line without effect on the topology: a comment, a chassis, a vendor.
    Nothing,
    /// The GUID of the node whose header follows.
    Guid(u64),
    /// The first line of a node.
    Node(NodeLine),
    /// A port with a link.
    Port(PortLine),
    /// A message of the tool itself, which is printed when a node does not answer.
    Message,
}

/// `Switch 36 "S-0002c90000000100" # "leaf 1" …`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NodeLine {
    pub(super) kind: NodeKind,
    pub(super) ports: u32,
    pub(super) id: String,
    pub(super) description: Option<String>,
}

/// `[1](2c903000a1b21) "S-0002c90000000100"[3] # lid 1 lmc 0 "leaf 1" lid 2 4xQDR`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PortLine {
    pub(super) port: u32,
    pub(super) guid: Option<u64>,
    pub(super) peer: String,
    pub(super) peer_port: Option<u32>,
    pub(super) peer_guid: Option<u64>,
    pub(super) peer_description: Option<String>,
    pub(super) speed: ShownSpeed,
}

/// Width and speed as a line shows them.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum ShownSpeed {
    Known(LinkSpeed),
    /// A text that is none, such as `4x???`.
    Unknown(String),
    Missing,
}

impl ShownSpeed {
    /// Parses the text that stands where width and speed do.
    pub(super) fn parse(text: &str) -> Self {
        match LinkSpeed::parse(text) {
            Some(speed) => Self::Known(speed),
            None => Self::Unknown(text.to_owned()),
        }
    }
}

static NODE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"^(Switch|Ca|Hca|Rt|\?+)\s+(\d+)\s*"([^"]*)"\s*(?:#\s*(.*))?$"#));

static PORT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x)^\[(\d+)\](?:\[ext\s\d+\])?\s*(?:\(([0-9a-fA-F]+)\))?
           \s*"([^"]*)"\s*(?:\[(\d+)\])?(?:\[ext\s\d+\])?\s*(?:\(([0-9a-fA-F]+)\))?
           \s*(?:[a-z]=\d+\s*)*(?:\#\s*(.*))?$"#,
    )
});

static GUID: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(?:switch|ca|hca|rt)guid\s*=\s*0[xX]([0-9a-fA-F]{1,16})(?:\(.*)?$")
});

static SPEED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?:^|\s)lid\s+\d+\s+((?:\d+|\?+)[xX]?\s?(?:[A-Z?][A-Za-z0-9?]*)?)(?:\s|$)")
});

/// Words at the beginning of lines that say nothing about the topology.
const WITHOUT_EFFECT: [&str; 7] = [
    "vendid=",
    "devid=",
    "sysimgguid=",
    "Chassis ",
    "Non-Chassis ",
    "Hostname: ",
    "DR path ",
];

/// Words that begin messages on standard error, which are often in the same file.
const MESSAGES: [&str; 5] = ["src/", "ibwarn:", "ibpanic:", "iberror:", "./"];

/// Commands of ibsim's net files.
const COMMANDS: [&str; 10] = [
    "switchguids",
    "hcaguids",
    "caguids",
    "width",
    "speed",
    "extspeed",
    "module",
    "include",
    "pdebug",
    "do ",
];

impl Record {
    /// Parses a line without blanks at its ends.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let begins = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
        if text.is_empty() || text.starts_with('#') || begins(&WITHOUT_EFFECT) {
            Ok(Self::Nothing)
        } else if begins(&MESSAGES) {
            Ok(Self::Message)
        } else if begins(&COMMANDS) {
            Err("a command of ibsim, which is not read: write the nodes themselves".to_owned())
        } else if text.starts_with('@') {
            Err("an alias of ibsim, which is not read: write the name of the node".to_owned())
        } else if text.starts_with('[') {
            port(text).map(Self::Port)
        } else if let Some(found) = GUID.captures(text) {
            let guid = hexadecimal(&found[1]).filter(|guid| *guid != 0);
            guid.map(Self::Guid)
                .ok_or_else(|| "0 is no GUID".to_owned())
        } else {
            node(text).map(Self::Node)
        }
    }
}

fn node(text: &str) -> Result<NodeLine, String> {
    let Some(found) = NODE.captures(text) else {
        let known = "Switch, Ca or Rt with a number of ports and a name in quotes, or [port] \"name\"[port]";
        return Err(format!("neither the line of a node nor of a port: {known}"));
    };
    let kind = match &found[1] {
        "Switch" => NodeKind::Switch,
        "Ca" | "Hca" => NodeKind::ChannelAdapter,
        "Rt" => NodeKind::Router,
        other => {
            return Err(format!(
                "{other} is no type of a node: the node did not answer"
            ));
        }
    };
    let comment = found.get(4).map_or("", |comment| comment.as_str());
    Ok(NodeLine {
        kind,
        ports: found[2].parse().unwrap_or(u32::MAX),
        id: found[3].to_owned(),
        description: quoted(comment).map(|(description, _)| description.to_owned()),
    })
}

fn port(text: &str) -> Result<PortLine, String> {
    let Some(found) = PORT.captures(text) else {
        return Err("the line of a port is [port] \"name\"[port]".to_owned());
    };
    let comment = found.get(6).map_or("", |comment| comment.as_str());
    let (peer_description, tail) = match quoted(comment) {
        Some((description, tail)) => (Some(description.to_owned()), tail),
        None => (None, comment),
    };
    let speed = SPEED.captures_iter(tail).last();
    let number = |index: usize| {
        let text = found.get(index)?.as_str();
        Some(text.parse().unwrap_or(u32::MAX))
    };
    let guid = |index: usize| hexadecimal(found.get(index)?.as_str()).filter(|guid| *guid != 0);
    Ok(PortLine {
        port: number(1).unwrap_or(u32::MAX),
        guid: guid(2),
        peer: found[3].to_owned(),
        peer_port: number(4),
        peer_guid: guid(5),
        peer_description,
        speed: speed.map_or(ShownSpeed::Missing, |speed| {
            ShownSpeed::parse(speed[1].trim())
        }),
    })
}

/// The text between the first and the last quote, and what follows.
fn quoted(comment: &str) -> Option<(&str, &str)> {
    let (_, rest) = comment.split_once('"')?;
    rest.rsplit_once('"')
}

/// A number of up to 16 hexadecimal digits.
pub(super) fn hexadecimal(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// The type and the GUID that an identifier such as `S-0002c90000000100` holds.
pub(super) fn identified(id: &str) -> Option<(NodeKind, u64)> {
    let (letter, digits) = id.split_once('-')?;
    let kinds = [NodeKind::Switch, NodeKind::ChannelAdapter, NodeKind::Router];
    let kind = kinds
        .into_iter()
        .find(|kind| letter == kind.letter().to_string())?;
    let is_guid = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let guid = hexadecimal(digits).filter(|guid| is_guid && *guid != 0)?;
    Some((kind, guid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port_of(text: &str) -> PortLine {
        match Record::parse(text) {
            Ok(Record::Port(port)) => port,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn ports_of_switches_and_of_channel_adapters_are_read() {
        let text = "[3][ext 19]\t\"H-0002c903000a1b20\"[1](2c903000a1b21) \t\t# \"alice \"x\" mlx4_0\" lid \
        7 4xFDR10 s=4 w=2 v=4";
        let port = port_of(text);
        assert_eq!((port.port, port.peer_port, port.guid), (3, Some(1), None));
        assert_eq!(port.peer_guid, Some(0x0002_c903_000a_1b21));
        assert_eq!(port.peer_description.as_deref(), Some("alice \"x\" mlx4_0"));
        assert_eq!(port.speed, ShownSpeed::parse("4xFDR10"));
        let port = port_of(
            "[1](2c903000a1b21) \t\"S-0002c90000000100\"[3]\t\t# lid 7 lmc 0 \"leaf\" lid 2 12xDDR",
        );
        assert_eq!(port.guid, Some(0x0002_c903_000a_1b21));
        assert_eq!(port.speed, ShownSpeed::parse("12xDDR"));
        let port = port_of("[1]\t\"S-0002c90000000100\"[3]\t\t# lid 7 lmc 0 \"leaf\" lid 2 4x???");
        assert_eq!(port.speed, ShownSpeed::Unknown("4x???".to_owned()));
        let port = port_of("[4] \"Hca 1\" [2] w=3 s=7");
        assert_eq!((port.peer.as_str(), port.peer_port), ("Hca 1", Some(2)));
        assert_eq!(port.speed, ShownSpeed::Missing);
    }

    #[test]
    fn headers_of_nodes_and_guids_are_read() {
        let header = "Switch\t36 \"S-0002c90000000100\"\t\t# \"MF0;leaf:IS5030/U1\" enhanced port 0 lid 2 \
        lmc 0";
        let Ok(Record::Node(node)) = Record::parse(header) else {
            panic!("{header}")
        };
        assert_eq!((node.kind, node.ports), (NodeKind::Switch, 36));
        assert_eq!(node.description.as_deref(), Some("MF0;leaf:IS5030/U1"));
        assert_eq!(
            identified(&node.id),
            Some((NodeKind::Switch, 0x0002_c900_0000_0100))
        );
        let guid = Record::parse("switchguid=0x2c90000000100(2c90000000100)\t# chassis");
        assert_eq!(guid, Ok(Record::Guid(0x0002_c900_0000_0100)));
        assert_eq!(identified("Switch-1"), None);
    }
}
