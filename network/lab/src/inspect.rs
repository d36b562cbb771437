//! Answers about the network of a lab.

use crate::control::Answer;
use fabric::topology::Node;
use fabric_file::SharedAdapter;
use link::unix;
use sim::experiment::Experiment;
use sim::report::vendor_tables;
use sim::world::Results;
use std::io;
use std::os::fd::RawFd;
use std::thread::sleep;
use std::time::Duration;

/// Bytes of a text in one message.
pub(crate) const PIECE_BYTES: usize = 32 << 10;
/// How often a message is tried to be sent that a command has no room for, and how long is waited between.
const ATTEMPTS: usize = 100;
const ATTEMPT_DELAY: Duration = Duration::from_millis(1);

/// Prints the tables of a switch whose headings contain all words of the command, or all tables if the
/// command is empty. The lab itself makes the table `dcbx`, for every switch with live hosts.
pub(crate) fn show(
    experiment: &Experiment,
    results: &Results,
    switch: &str,
    command: &str,
    dcbx: Option<String>,
) -> Result<String, String> {
    let printed = vendor_tables(experiment, results);
    let found = printed.iter().find(|printed| printed.switch == switch);
    if found.is_none() && dcbx.is_none() {
        let names: Vec<&str> = printed
            .iter()
            .map(|printed| printed.switch.as_str())
            .collect();
        let there = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        return Err(format!(
            "no switch with a vendor's configuration or a live host is called {switch}; there are: {there}"
        ));
    }
    let vendor = found.into_iter().flat_map(|found| found.text.split("\n\n"));
    let tables: Vec<&str> = vendor.chain(dcbx.as_deref()).collect();
    let heading = |table: &str| {
        table
            .trim_start()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let is_asked = |table: &&&str| {
        command
            .split_whitespace()
            .all(|word| heading(table).contains(word))
    };
    let asked: Vec<&str> = tables
        .iter()
        .filter(is_asked)
        .map(|table| table.trim_end())
        .collect();
    if asked.is_empty() {
        let there: Vec<String> = tables
            .iter()
            .map(|table| heading(table))
            .filter(|line| !line.is_empty())
            .collect();
        return Err(format!(
            "{switch} prints nothing for {command}; there are: {}",
            there.join("; ")
        ));
    }
    Ok(asked.join("\n\n") + "\n")
}

/// The links between two nodes, each named as a node (`crs504`) or as a port (`crs504:qsfp28-1-1`).
pub(crate) fn links_between(experiment: &Experiment, ends: &[String; 2]) -> Vec<u32> {
    let network = &experiment.network;
    let is_called = |end: fabric::topology::End, name: &String| {
        let node = match end.node {
            Node::Host(host) => &network.hosts[host as usize].name,
            Node::Switch(switch) => &network.switches[switch as usize].name,
        };
        // The port of an adapter with functions is called like its host.
        let adapter = network
            .adapters
            .iter()
            .find(|adapter| Node::Switch(adapter.switch) == end.node);
        let is_of = |adapter: &SharedAdapter| {
            end.port == 0 && network.hosts[adapter.host as usize].name == *name
        };
        node == name || network.port_name(end) == *name || adapter.is_some_and(is_of)
    };
    let links = (0_u32..).zip(network.topology.links());
    let found = links.filter(|(_, link)| {
        let [one, other] = link.ends;
        is_called(one, &ends[0]) && is_called(other, &ends[1])
            || is_called(other, &ends[0]) && is_called(one, &ends[1])
    });
    found.map(|(number, _)| number).collect()
}

/// Sends an answer; a long text in pieces.
pub(crate) fn send(fd: RawFd, answer: Answer, fds: &[RawFd]) {
    let Answer::Text { text, .. } = &answer else {
        return send_one(fd, &answer, fds);
    };
    let mut rest = text.as_str();
    loop {
        let mut end = rest.len().min(PIECE_BYTES);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, later) = rest.split_at(end);
        send_one(
            fd,
            &Answer::Text {
                text: piece.to_owned(),
                more: !later.is_empty(),
            },
            &[],
        );
        if later.is_empty() {
            return;
        }
        rest = later;
    }
}

fn send_one(fd: RawFd, answer: &Answer, fds: &[RawFd]) {
    let bytes = serde_json::to_vec(answer).unwrap_or_default();
    for _ in 0..ATTEMPTS {
        match unix::send_fds(fd, &bytes, fds) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(ATTEMPT_DELAY),
            // Another error means that the command has ended.
            _ => return,
        }
    }
}
