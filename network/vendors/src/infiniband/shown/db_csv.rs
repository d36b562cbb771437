//! The tables of ibdiagnet (`ibdiagnet2.db_csv`): `START_NODES` to `END_NODES` and others, each with a line
//! of names of columns.

use super::{PortState, SubnetFacts, fact};
use crate::facts::Fact;
use crate::text::{Line, shortened};
use ::infiniband::{LinkSpeed, Speed, Width};
use std::collections::BTreeMap;

/// Columns of PM_INFO, and the names that the counters have in perfquery.
const COUNTERS: [(&str, &str); 12] = [
    ("SymbolErrorCounter", "SymbolErrorCounter"),
    ("LinkErrorRecoveryCounter", "LinkErrorRecoveryCounter"),
    ("LinkDownedCounter", "LinkDownedCounter"),
    ("PortRcvErrors", "PortRcvErrors"),
    ("PortRcvRemotePhysicalErrors", "PortRcvRemotePhysicalErrors"),
    ("PortRcvSwitchRelayErrors", "PortRcvSwitchRelayErrors"),
    ("PortXmitDiscards", "PortXmitDiscards"),
    ("LocalLinkIntegrityErrors", "LocalLinkIntegrityErrors"),
    (
        "ExcesiveBufferOverrunErrors",
        "ExcessiveBufferOverrunErrors",
    ),
    ("VL15Dropped", "VL15Dropped"),
    ("PortXmitWait", "PortXmitWait"),
    ("PortXmitData", "PortXmitData"),
];

/// Codes of LinkSpeedActv: the standard's up to QDR, those of the extended field 8 bits higher, and FDR10.
const SPEEDS: [(u32, Speed); 9] = [
    (1, Speed::Sdr),
    (2, Speed::Ddr),
    (4, Speed::Qdr),
    (1 << 8, Speed::Fdr),
    (1 << 9, Speed::Edr),
    (1 << 10, Speed::Hdr),
    (1 << 11, Speed::Ndr),
    (1 << 12, Speed::Xdr),
    (1 << 16, Speed::Fdr10),
];

/// A row of a table, by names of columns.
struct Row<'a, 'b> {
    columns: &'a [String],
    values: Vec<String>,
    line: &'b Line<'b>,
}

impl Row<'_, '_> {
    fn value(&self, name: &str) -> Option<&str> {
        let at = self
            .columns
            .iter()
            .position(|column| column.eq_ignore_ascii_case(name))?;
        self.values.get(at).map(String::as_str)
    }

    /// A number, decimal or hexadecimal.
    fn number(&self, name: &str) -> Option<u64> {
        let text = self.value(name)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }
}

/// Nodes by GUID: the description, and whether it is a switch.
type Nodes = BTreeMap<u64, (String, bool)>;

pub(super) fn read(facts: &mut SubnetFacts, output: &[Line<'_>]) {
    let mut nodes = Nodes::new();
    for table in ["NODES", "PORTS", "LINKS", "PM_INFO"] {
        let mut columns: Option<Vec<String>> = None;
        let begin = format!("START_{table}");
        let end = format!("END_{table}");
        let below = output.iter().skip_while(|line| line.text != begin).skip(1);
        for line in below.take_while(|line| line.text != end) {
            let values = cells(line.text);
            let Some(columns) = &columns else {
                columns = Some(values);
                continue;
            };
            let row = Row {
                columns,
                values,
                line,
            };
            let is_understood = match table {
                "NODES" => node(&mut nodes, &row),
                "PORTS" => port(facts, &nodes, &row),
                "LINKS" => link(facts, &nodes, &row),
                _ => counters(facts, &nodes, &row),
            };
            if is_understood.is_none() {
                let why = format!("\"{}\": no row of {table}", shortened(line.text));
                facts.not_understood(line.number, why);
            }
        }
    }
}

/// The cells of a row. Descriptions are in quotes, and may have commas.
fn cells(text: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for letter in text.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            letter => cells.last_mut().map_or((), |cell| cell.push(letter)),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

fn node(nodes: &mut Nodes, row: &Row<'_, '_>) -> Option<()> {
    let is_switch = row.number("NodeType")? == 2;
    let description = row.value("NodeDesc")?.to_owned();
    nodes.insert(row.number("NodeGUID")?, (description, is_switch));
    Some(())
}

/// The name of a node, or its GUID where the table of nodes does not have it.
fn name_of(nodes: &Nodes, guid: u64) -> (String, Option<bool>) {
    match nodes.get(&guid) {
        Some((name, is_switch)) => (name.clone(), Some(*is_switch)),
        None => (format!("0x{guid:016x}"), None),
    }
}

fn port(facts: &mut SubnetFacts, nodes: &Nodes, row: &Row<'_, '_>) -> Option<()> {
    let guid = row.number("NodeGuid")?;
    let number = u8::try_from(row.number("PortNum")?).ok()?;
    let state = match row.number("PortState")? {
        1 => PortState::Down,
        2 => PortState::Initialize,
        3 => PortState::Armed,
        4 => PortState::Active,
        _ => return None,
    };
    let (name, is_switch) = name_of(nodes, guid);
    if number == 0 {
        return Some(());
    }
    let file = facts.file.clone();
    let own = facts.port(&name, Some(number));
    own.guid = Some(guid);
    own.is_switch = is_switch;
    own.state = Some(fact(&file, row.line, state));
    let lid = |name: &str| -> Option<Fact<u16>> {
        let lid = u16::try_from(row.number(name)?).ok()?;
        Some(fact(&file, row.line, lid))
    };
    // Ports of switches other than port 0 have no LID.
    if is_switch == Some(false) {
        (own.lid, own.manager_lid) = (lid("LID"), lid("MSMLID"));
    }
    let width = row.number("LinkWidthActv");
    let width = Width::ALL
        .into_iter()
        .find(|known| Some(u64::from(known.code())) == width);
    let speed = row.number("LinkSpeedActv");
    let speed = SPEEDS
        .iter()
        .find(|(code, _)| Some(u64::from(*code)) == speed);
    if let (Some(width), Some((_, speed))) = (width, speed)
        && state != PortState::Down
    {
        let speed = *speed;
        own.speed = Some(fact(&file, row.line, LinkSpeed { width, speed }));
    }
    // The rest of the row is known where a code of the table is not.
    let is_odd = (row.value("LinkWidthActv").is_some() && width.is_none())
        || (row.value("LinkSpeedActv").is_some() && speed.is_none());
    (state != PortState::Active || !is_odd).then_some(())
}

fn link(facts: &mut SubnetFacts, nodes: &Nodes, row: &Row<'_, '_>) -> Option<()> {
    let end = |guid: &str, port: &str| {
        let port = u8::try_from(row.number(port)?).ok()?;
        Some((name_of(nodes, row.number(guid)?).0, port))
    };
    let ends = [end("NodeGuid1", "PortNum1")?, end("NodeGuid2", "PortNum2")?];
    for (own, other) in [(0, 1), (1, 0)] {
        let port = facts.port(&ends[own].0, Some(ends[own].1));
        port.peer = Some(ends[other].clone());
    }
    Some(())
}

fn counters(facts: &mut SubnetFacts, nodes: &Nodes, row: &Row<'_, '_>) -> Option<()> {
    let guid = row.number("NodeGUID")?;
    let number = u8::try_from(row.number("PortNumber")?).ok()?;
    let file = facts.file.clone();
    let own = facts.port(&name_of(nodes, guid).0, Some(number));
    for (column, name) in COUNTERS {
        if let Some(value) = row.number(column) {
            own.counters
                .insert(name.to_owned(), fact(&file, row.line, value));
        }
    }
    Some(())
}
