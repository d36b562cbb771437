//! Facts of ports from the outputs of InfiniBand tools: `ibnetdiscover`, `iblinkinfo`, `ibqueryerrors`,
//! `perfquery`, `ibstat`, the options of OpenSM, and the tables of ibdiagnet (`ibdiagnet2.db_csv`). A file
//! may hold several outputs, each below a line `==> COMMAND <==`.

mod counters;
mod db_csv;
mod ibstat;
mod links;
mod netdiscover;
mod opensm_options;

use crate::NotUnderstood;
use crate::facts::{Evidence, Fact};
use crate::text::{Line, ReadError, lines, shortened};
use ::infiniband::LinkSpeed;
use std::collections::BTreeMap;

/// The state of a port (IBTA 7.2.7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PortState {
    /// No link, or a link that trains.
    Down,
    /// The link is up, and no subnet manager has configured the port.
    Initialize,
    /// Configured, and not yet active.
    Armed,
    /// Carries packets of programs.
    Active,
}

impl PortState {
    /// The state of a name that tools print.
    fn named(name: &str) -> Option<Self> {
        let states = [
            ("Down", Self::Down),
            ("Init", Self::Initialize),
            ("Armed", Self::Armed),
            ("Active", Self::Active),
        ];
        let found = states
            .into_iter()
            .find(|(begin, _)| name.starts_with(begin));
        found.map(|(_, state)| state)
    }
}

/// Facts of a port. A fact that was not shown is `None`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SubnetPort {
    /// The description of the node, or its GUID where no description was shown.
    pub node: String,
    /// The GUID of the node, or of the port, as the tool shows it.
    pub guid: Option<u64>,
    /// The number of the port; `None` for counters of all ports together.
    pub port: Option<u8>,
    /// Whether the node is a switch.
    pub is_switch: Option<bool>,
    /// The state of the port.
    pub state: Option<Fact<PortState>>,
    /// Width and speed as trained.
    pub speed: Option<Fact<LinkSpeed>>,
    /// What both ends could do beyond that, in the words of the tool: `4X`, `25.78125 Gbps`.
    pub could_be: Vec<Fact<String>>,
    /// The port at the other end: the node's description, and the number.
    pub peer: Option<(String, u8)>,
    /// The LID of the port.
    pub lid: Option<Fact<u16>>,
    /// The LID of the subnet manager that configured the port.
    pub manager_lid: Option<Fact<u16>>,
    /// Counters by their names in `perfquery`.
    pub counters: BTreeMap<String, Fact<u64>>,
}

impl SubnetPort {
    /// The name of the port in messages.
    pub fn title(&self) -> String {
        match self.port {
            Some(port) => format!("{} port {port}", self.node),
            None => format!("{} all ports", self.node),
        }
    }
}

/// Facts from a file of outputs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SubnetFacts {
    /// The name of the file.
    pub file: String,
    /// The tools whose outputs were recognised.
    pub tools: Vec<&'static str>,
    /// Ports in the order in which they appear; a port that two tools show is there once.
    pub ports: Vec<SubnetPort>,
    /// Routing engines that OpenSM is to use, in their order.
    pub engines: Vec<Fact<String>>,
    /// Lines that were not understood.
    pub left: Vec<NotUnderstood>,
}

impl SubnetFacts {
    /// The port of a node and a number, made if it is new.
    fn port(&mut self, node: &str, port: Option<u8>) -> &mut SubnetPort {
        let is_it = |known: &SubnetPort| known.node == node && known.port == port;
        // Outputs are in order of nodes: the last ports are the likely ones.
        let found = self.ports.iter().rposition(is_it);
        let index = found.unwrap_or_else(|| {
            self.ports.push(SubnetPort {
                node: node.to_owned(),
                port,
                ..SubnetPort::default()
            });
            self.ports.len() - 1
        });
        &mut self.ports[index]
    }

    fn not_understood(&mut self, line: usize, why: String) {
        self.left.push(NotUnderstood {
            file: self.file.clone(),
            line,
            why,
            ports: Vec::new(),
            areas: Vec::new(),
        });
    }
}

/// The tools, by what only their outputs have.
const TOOLS: [(&str, Reader, Mark); 7] = [
    ("opensm.conf", opensm_options::read, opensm_options::is_one),
    ("ibdiagnet", db_csv::read, |text| text.starts_with("START_")),
    (
        "ibqueryerrors",
        counters::ibqueryerrors,
        counters::is_ibqueryerrors,
    ),
    ("perfquery", counters::perfquery, |text| {
        text.starts_with("# Port counters:") || text.starts_with("# Port extended counters:")
    }),
    ("iblinkinfo", links::read, |text| {
        text.contains("==(") && text.contains(")==>")
    }),
    ("ibstat", ibstat::read, ibstat::is_one),
    ("ibnetdiscover", netdiscover::read, netdiscover::is_one),
];

/// Reads the lines of one output.
type Reader = fn(&mut SubnetFacts, &[Line<'_>]);

/// Whether a line is one that only this tool prints.
type Mark = fn(&str) -> bool;

/// Reads a file of outputs.
///
/// # Errors
/// A file that is no text, or has no output of these tools in it.
pub fn facts(file: &str, text: &str) -> Result<SubnetFacts, ReadError> {
    let lines = lines(file, text, &[])?;
    let mut found = SubnetFacts {
        file: file.to_owned(),
        ..SubnetFacts::default()
    };
    let is_command = |line: &Line<'_>| line.text.starts_with("==> ") && line.text.ends_with(" <==");
    for output in lines.split(is_command).filter(|output| !output.is_empty()) {
        let has = |mark: Mark| output.iter().any(|line| mark(line.text));
        match TOOLS.iter().find(|(_, _, mark)| has(*mark)) {
            Some((tool, read, _)) => {
                found.tools.push(tool);
                read(&mut found, output);
            }
            None => {
                let why = format!(
                    "\"{}\": no output of a known tool",
                    shortened(output[0].text)
                );
                found.not_understood(output[0].number, why);
            }
        }
    }
    if found.tools.is_empty() {
        let tools: Vec<&str> = TOOLS.iter().map(|(tool, ..)| *tool).collect();
        let what = format!("no output of {} is in it", tools.join(", "));
        return Err(ReadError::new(file, 1, what));
    }
    Ok(found)
}

/// A fact of a line.
fn fact<T>(file: &str, line: &Line<'_>, value: T) -> Fact<T> {
    Fact {
        value,
        seen: Evidence {
            file: file.to_owned(),
            line: line.number,
            text: line.text.to_owned(),
        },
    }
}

/// Messages that tools print on standard error, and which are often in the same file.
fn is_message(text: &str) -> bool {
    ["ibwarn:", "src/", "./"]
        .iter()
        .any(|begin| text.starts_with(begin))
}
