//! Workloads whose transfers a file lists, one a line: comma-separated values with a head that names the
//! columns.

use super::FLOWS_MAX;
use super::file_table::FileTable;
use super::listed::Listed;
use super::named_file::{MESSAGE_BYTES_MAX, NamedFile, whole};
use crate::world::Flow;
use fabric::{Span, Time};
use fabric_file::{FileError, ReadFile};
use std::collections::BTreeMap;

/// Columns that a list may have.
const COLUMNS: [&str; 4] = ["from", "to", "bytes", "start_ns"];

/// The flows that a workload's file lists, if it names one.
pub(super) fn read(
    table: FileTable<'_>,
    listed: Listed<'_>,
    files: &mut ReadFile<'_>,
) -> Result<Option<Vec<Flow>>, FileError> {
    let Some(name) = &listed.workload.flows else {
        return Ok(None);
    };
    let file = NamedFile {
        table,
        field: "flows",
        name,
        example: "the first line is from,to,bytes,start_ns, each other a transfer: h0,h5,65536,1000",
    };
    let matrix = listed.workload.connections.as_ref().map(|_| "connections");
    let another = matrix.or_else(|| listed.another_amount());
    file.refuse_another("the list says what is sent", another)?;
    let hosts = (0..)
        .zip(&listed.network.hosts)
        .map(|(number, host)| (host.name.as_str(), number))
        .collect();
    let list = FlowList { hosts, listed };
    file.read(files, |text| list.flows(text)).map(Some)
}

struct FlowList<'a> {
    hosts: BTreeMap<&'a str, u32>,
    listed: Listed<'a>,
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
            return Err(": it has no line with a transfer".to_owned());
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
            whole(cell(column).unwrap_or("0"), most).map_err(|what| format!("{column}: {what}"))
        };
        let ends = [host("from")?, host("to")?];
        let bytes = number("bytes", MESSAGE_BYTES_MAX)?;
        let start = Span::from_ns(number("start_ns", u64::MAX / 1_000_000)?);
        let start = Time(self.listed.workload.start.0.0) + start;
        self.listed.flow(ends, bytes, start)
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
