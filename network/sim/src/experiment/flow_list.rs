//! Workloads whose transfers a file lists, one a line: comma-separated values with a head that names the
//! columns.

use super::FLOWS_MAX;
use super::workload::transfer;
use crate::world::Flow;
use fabric::{Span, Time};
use fabric_file::schema::{Operation, Workload};
use fabric_file::{Document, FileError, Mistake, Network, ReadFile};
use std::collections::BTreeMap;

/// Bytes of one transfer at most: those of a message.
const BYTES_MAX: u64 = 1 << 31;

/// Columns that a list may have.
const COLUMNS: [&str; 4] = ["from", "to", "bytes", "start_ns"];

/// The flows that a workload's file lists, if it names one.
pub(super) fn read(
    document: &Document,
    field: &str,
    workload: &Workload,
    number: u32,
    network: &Network,
    files: &mut ReadFile<'_>,
) -> Result<Option<Vec<Flow>>, FileError> {
    let Some(name) = &workload.flows else {
        return Ok(None);
    };
    let wrong = |mistake: Mistake, what: String| {
        let field = format!("{field}.flows");
        let instead =
            "the first line is from,to,bytes,start_ns, each other a transfer: h0,h5,65536,1000";
        document.mistake(mistake, &field, what, instead)
    };
    let is_both = workload.connections.is_some().then_some("connections");
    if let Some(other) = is_both.or_else(|| other_amount(workload)) {
        let what = format!("the list says what is sent, and {other} as well");
        return Err(wrong(Mistake::Combination, what));
    }
    let text =
        files(name).map_err(|error| wrong(Mistake::Reference, format!("{name}: {error}")))?;
    let hosts: BTreeMap<&str, u32> = (0..)
        .zip(&network.hosts)
        .map(|(number, host)| (host.name.as_str(), number))
        .collect();
    let list = FlowList {
        hosts,
        workload,
        number,
        network,
    };
    list.flows(&text)
        .map(Some)
        .map_err(|what| wrong(Mistake::Value, format!("{name}{what}")))
}

/// A field that says what is sent, besides a list.
pub(super) fn other_amount(workload: &Workload) -> Option<&'static str> {
    let others = [
        ("messages", workload.messages.is_some()),
        ("bytes", workload.bytes.is_some()),
        ("load", workload.load.is_some()),
        ("replay", workload.replay.is_some()),
        ("source-gid", workload.source_gid.is_some()),
        ("source-mac", workload.source_mac.is_some()),
    ];
    let mut others = others.into_iter().filter(|(_, is_there)| *is_there);
    others.next().map(|(name, _)| name)
}

struct FlowList<'a> {
    hosts: BTreeMap<&'a str, u32>,
    workload: &'a Workload,
    number: u32,
    network: &'a Network,
}

impl FlowList<'_> {
    fn flows(&self, text: &str) -> Result<Vec<Flow>, String> {
        let lines = text.lines().zip(1_usize..);
        let mut lines = lines.filter(|(line, _)| !line.trim().is_empty());
        let head = lines.next().map_or("", |(line, _)| line);
        let columns = columns(head)?;
        let mut flows = Vec::new();
        for (line, number) in lines {
            if flows.len() >= FLOWS_MAX {
                return Err(format!(", line {number}: more than {FLOWS_MAX} transfers"));
            }
            let flow = self.flow(line, &columns);
            flows.push(flow.map_err(|what| format!(", line {number}: {what}"))?);
        }
        if flows.is_empty() {
            return Err(": it lists nothing".to_owned());
        }
        Ok(flows)
    }

    fn flow(&self, line: &str, columns: &[usize]) -> Result<Flow, String> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != columns.len() {
            return Err(format!(
                "{} cells, and the head has {}",
                cells.len(),
                columns.len()
            ));
        }
        let cell = |column: &str| {
            let mut places = columns.iter().zip(&cells);
            let found = places.find(|(place, _)| COLUMNS[**place] == column);
            found.map(|(_, cell)| *cell)
        };
        let host = |column: &str| {
            let name = cell(column).unwrap_or_default();
            let found = self.hosts.get(name).copied();
            found.ok_or_else(|| format!("{column}: no host is called \"{name}\""))
        };
        let number = |column: &str, most: u64| {
            let text = cell(column).unwrap_or("0");
            let number = text.parse::<u64>().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("{column}: \"{text}\" is no number up to {most}"))
        };
        let (from, to) = (host("from")?, host("to")?);
        if from == to {
            return Err("a host sends to itself".to_owned());
        }
        let bytes = number("bytes", BYTES_MAX)?;
        let mtu = u64::from(self.network.hosts[from as usize].nic.mtu);
        match bytes {
            0 => return Err("bytes: nothing is sent".to_owned()),
            more if self.workload.operation == Operation::Datagram && more > mtu => {
                return Err(format!("bytes: a datagram is one packet of at most {mtu}"));
            }
            _ => {}
        }
        let start = Span::from_ns(number("start_ns", u64::MAX / 1_000_000)?);
        Ok(Flow {
            operation: transfer(self.workload.operation),
            start: Time(self.workload.start.0.0) + start,
            workload: self.number,
            ..Flow::write(from, to, bytes as u32)
        })
    }
}

/// Which of [`COLUMNS`] each column of a list is.
fn columns(head: &str) -> Result<Vec<usize>, String> {
    let mut found = Vec::new();
    for name in head.split(',').map(str::trim) {
        let place = COLUMNS.iter().position(|column| *column == name);
        let place = place.ok_or_else(|| {
            format!(
                ", line 1: no column is called \"{name}\"; there are {}",
                COLUMNS.join(", ")
            )
        })?;
        if found.contains(&place) {
            return Err(format!(", line 1: two columns are called \"{name}\""));
        }
        found.push(place);
    }
    for (place, name) in COLUMNS.iter().enumerate().take(3) {
        if !found.contains(&place) {
            return Err(format!(", line 1: the column {name} is missing"));
        }
    }
    Ok(found)
}
