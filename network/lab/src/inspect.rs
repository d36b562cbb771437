//! Answers about the network of a lab.

use crate::control::Answer;
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

/// The answer where no run was measured.
pub(crate) fn nothing_measured() -> Answer {
    Answer::Error {
        error: "no run was measured".to_owned(),
    }
}

/// A text that is whole.
pub(crate) fn text(text: String) -> Answer {
    Answer::Text { text, more: false }
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
