//! Workloads whose transfers are the connections of a connection matrix, htsim's `.cm` files.

use super::FLOWS_MAX;
use super::file_table::FileTable;
use super::listed::Listed;
use super::named_file::{MESSAGE_BYTES_MAX, NamedFile, whole};
use crate::world::Flow;
use fabric::Time;
use fabric_file::{FileError, ReadFile};

/// Latest start, in picoseconds: thirteen days.
const START_PS_MAX: u128 = 1 << 60;

/// Digits of a start time at most, before and behind its point.
const DIGITS_MAX: usize = 18;

/// The flows of the matrix that a workload names, if it names one.
pub(super) fn read(
    table: FileTable<'_>,
    listed: Listed<'_>,
    files: &mut ReadFile<'_>,
) -> Result<Option<Vec<Flow>>, FileError> {
    let Some(name) = &listed.workload.connections else {
        return Ok(None);
    };
    let file = NamedFile {
        table,
        field: "connections",
        name,
        example: "Nodes 16, Connections 1, and a line for each connection: 0->5 start 0 size 65536",
    };
    file.refuse_another("the matrix says what is sent", listed.another_amount())?;
    let matrix = Matrix {
        listed,
        nodes: None,
        connections: None,
        flows: Vec::new(),
    };
    file.read(files, |text| matrix.flows(text)).map(Some)
}

struct Matrix<'a> {
    listed: Listed<'a>,
    /// What its head says: how many nodes there are, and how many connections follow.
    nodes: Option<u64>,
    connections: Option<u64>,
    flows: Vec<Flow>,
}

impl Matrix<'_> {
    fn flows(mut self, text: &str) -> Result<Vec<Flow>, String> {
        for (line, number) in text.lines().zip(1_usize..) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_comment = words.first().is_none_or(|word| word.starts_with('#'));
            if !is_comment {
                self.line(&words)
                    .map_err(|what| format!(", line {number}: {what}"))?;
            }
        }
        let count = self.flows.len() as u64;
        match self.connections {
            None => Err(": the line Connections is missing".to_owned()),
            Some(said) if said != count => {
                Err(format!(": Connections is {said}, and there are {count}"))
            }
            Some(0) => Err(": it has no line with a connection".to_owned()),
            Some(_) => Ok(self.flows),
        }
    }

    fn line(&mut self, words: &[&str]) -> Result<(), String> {
        let [first, rest @ ..] = words else {
            return Ok(());
        };
        match (*first, rest) {
            ("Nodes", [count]) => {
                let hosts = self.listed.network.hosts.len() as u64;
                let count = whole(count, u64::MAX)?;
                if count > hosts {
                    return Err(format!("{count} nodes, and the network has {hosts} hosts"));
                }
                self.nodes = Some(count);
            }
            ("Connections", [count]) => {
                self.connections = Some(whole(count, FLOWS_MAX as u64)?);
            }
            // Other files of htsim have them, and without any they say nothing.
            ("Triggers" | "Failures", ["0"]) => {}
            ("Triggers" | "trigger", _) => {
                return Err("connections that start others (triggers) are not read".to_owned());
            }
            ("Failures" | "failure", _) => {
                return Err("failures are not read: write [[link.down]]".to_owned());
            }
            _ => {
                if self.flows.len() as u64 >= self.connections.unwrap_or(0) {
                    let said = self.connections.unwrap_or(0);
                    return Err(format!("Connections is {said}, and this is one more"));
                }
                let flow = self.connection(first, rest)?;
                self.flows.push(flow);
            }
        }
        Ok(())
    }

    fn connection(&self, pair: &str, rest: &[&str]) -> Result<Flow, String> {
        let nodes = self.nodes.ok_or("the line Nodes is missing before it")?;
        let ends = pair.split_once("->");
        let (from, to) = ends.ok_or_else(|| format!("\"{pair}\" is no connection such as 0->5"))?;
        let node = |text: &str| {
            let node = whole(text, u64::MAX)?;
            match node < nodes {
                true => Ok(node as u32),
                false => Err(format!("node {node}, and Nodes is {nodes}")),
            }
        };
        let ends = [node(from)?, node(to)?];
        let (mut start, mut size) = (None, None);
        let mut pairs = rest.chunks_exact(2);
        for pair in pairs.by_ref() {
            match *pair {
                ["id", number] => _ = whole(number, u64::MAX)?,
                ["start", at] => start = Some(self.start(at)?),
                ["size", bytes] => size = Some(whole(bytes, MESSAGE_BYTES_MAX)?),
                ["trigger" | "send_done_trigger" | "recv_done_trigger", _] => {
                    return Err("connections that start others (triggers) are not read".to_owned());
                }
                ["prio", _] => {
                    return Err(
                        "prio is not read: dscp and priority are fields of a workload".to_owned(),
                    );
                }
                [other, _] => return Err(format!("\"{other}\" is not known")),
                _ => {}
            }
        }
        if let [word, ..] = pairs.remainder() {
            return Err(format!("\"{word}\" has no value"));
        }
        let bytes = size.ok_or("size is missing")?;
        let start = start.ok_or("start is missing")?;
        self.listed.flow(ends, bytes, start)
    }

    /// A start time, in the unit that the fabric file gives; htsim's own programs differ in it.
    fn start(&self, text: &str) -> Result<Time, String> {
        let wrong = || format!("\"{text}\" is no start time");
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = [whole, part].concat();
        let are_digits = digits.bytes().all(|digit| digit.is_ascii_digit());
        if whole.is_empty() || !are_digits || whole.len() > DIGITS_MAX || part.len() > DIGITS_MAX {
            return Err(wrong());
        }
        let unit = u128::from(self.listed.workload.start_unit.0.0);
        let scale = 10_u128.pow(part.len() as u32);
        let number: u128 = digits.parse().map_err(|_| wrong())?;
        let ps = number
            .checked_mul(unit)
            .map(|scaled| scaled / scale + u128::from(self.listed.workload.start.0.0));
        match ps.filter(|ps| *ps <= START_PS_MAX) {
            Some(ps) => Ok(Time(ps as u64)),
            None => Err(format!("{text} is later than any run ends")),
        }
    }
}
