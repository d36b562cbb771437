//! The outcome of each line of an input. A line is applied, or known to be irrelevant, or not understood.
//! A line that no reader has spoken about is not understood.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use crate::text::{Line, ReadError, shortened};

/// A part of a configuration that one line concerns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Area {
    /// The class of a packet: trust, maps and policies.
    Classes,
    /// Priority-based flow control and its buffers.
    Pfc,
    /// Marking of packets.
    Ecn,
    /// Order and shares of queues.
    Queues,
    /// The largest payload of a frame.
    Mtu,
    /// The spread of packets over paths of equal cost.
    Paths,
}

/// Parts of words by which a line that is not understood belongs to an area.
const WORDS: [(Area, &[&str]); 6] = [
    (
        Area::Classes,
        &[
            "dscp",
            "trust",
            "cos ",
            "pcp",
            "dot1p",
            "classif",
            "class-map",
            "service-policy",
            "service-profile",
            "map ip",
            "map vlan",
            "_to_tc",
            "tc_to_",
            "qos-group",
            "mapping",
            "traffic-class",
            "forwarding-class",
            "no profile \"",
        ],
    ),
    (
        Area::Pfc,
        &[
            "pfc",
            "priority-flow-control",
            "pause",
            "no-drop",
            "network-qos",
            "congestion-notification-profile",
            "buffer",
            "lossless",
            "flow-control",
            "flowcontrol",
            // A profile of EOS has PFC, marking and queues, whichever of them its missing lines set.
            "service-profile",
        ],
    ),
    (
        Area::Ecn,
        // A transmit manager of RouterOS marks.
        &[
            "ecn",
            "random-detect",
            "wred",
            "congestion-control",
            "drop-profile",
            "tx-manager",
            "queuing",
            "service-profile",
        ],
    ),
    (
        Area::Queues,
        &[
            "bandwidth",
            "schedul",
            "queue",
            "queuing",
            "service-profile",
            "tx-manager",
            "priority level",
            "strict",
            "shape",
            "shaping-rate",
            "transmit-rate",
        ],
    ),
    (Area::Mtu, &["mtu"]),
    (
        Area::Paths,
        &[
            "adaptive-routing",
            "dlb",
            "ars_profile",
            "ars_object",
            "ars_interfaces",
            "ars_nexthops",
        ],
    ),
];

impl Area {
    /// The areas that a line concerns, by its words.
    pub fn of(text: &str) -> Vec<Self> {
        let text = text.to_ascii_lowercase();
        let is_in = |words: &&[&str]| words.iter().any(|word| text.contains(word));
        let areas = WORDS.iter().filter(|(_, words)| is_in(words));
        areas.map(|(area, _)| *area).collect()
    }

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes of packets",
            Self::Pfc => "PFC",
            Self::Ecn => "ECN",
            Self::Queues => "queues",
            Self::Mtu => "MTU",
            Self::Paths => "paths",
        }
    }
}

/// What became of a line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// The line is known not to concern the treatment of traffic classes.
    Irrelevant,
    /// The line is part of what was read.
    Applied,
    /// The line was not understood, with the reason.
    NotUnderstood(String),
}

/// A line that was not understood: what it sets is unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotUnderstood {
    /// The name of the file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// Why the line was not understood.
    pub why: String,
    /// The ports that it concerns; all where there are none.
    pub ports: Vec<String>,
    /// The areas that its words belong to.
    pub areas: Vec<Area>,
}

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.why)
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Entry {
    text: String,
    outcome: Option<Outcome>,
    /// Why the line was not understood, each reason with the ports that it concerns; all where there are
    /// none. A file may have all of its entries in one line.
    whys: BTreeMap<String, Vec<String>>,
}

/// The outcomes of the lines of one input.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcomes {
    /// The files, each with the number of lines before it: lines of several files have numbers in turn.
    files: Vec<(String, usize)>,
    lines: BTreeMap<usize, Entry>,
    /// The ports that lines concern which are read now.
    ports: Vec<String>,
    /// How often an output was read once more without a line.
    retries: usize,
    /// The ports that are down.
    down: BTreeSet<String>,
    /// Lines whose settings no rule judges.
    not_judged: Vec<NotUnderstood>,
}

impl Outcomes {
    /// The outcomes of some lines, none of which is known yet.
    pub(crate) fn of(file: &str, lines: &[Line<'_>]) -> Self {
        let entry = |line: &Line<'_>| {
            let text = line.text.to_owned();
            let entry = Entry {
                text,
                ..Entry::default()
            };
            (line.number, entry)
        };
        Self {
            files: vec![(file.to_owned(), 0)],
            lines: lines.iter().map(entry).collect(),
            ports: Vec::new(),
            retries: 0,
            down: BTreeSet::new(),
            not_judged: Vec::new(),
        }
    }

    /// The outcomes of the lines of several files, which are numbered in turn.
    pub(crate) fn of_files(files: Vec<(String, usize)>) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// The file of a line, and its number there.
    fn place_of(&self, line: usize) -> (String, usize) {
        let before = |(_, before): &&(String, usize)| *before < line.max(1);
        let own = self.files.iter().rev().find(before);
        own.map_or((String::new(), line), |(file, before)| {
            (file.clone(), line - before)
        })
    }

    /// Whether an output may be read once more without a line: so many times in all.
    pub(crate) fn may_retry(&mut self, most: usize) -> bool {
        self.retries += 1;
        self.retries < most
    }

    /// Says that lines read from now on concern these ports; all where there are none.
    pub(crate) fn within(&mut self, ports: Vec<String>) {
        self.ports = ports;
    }

    /// A line that was not understood stays so, whatever else is said of it.
    fn set(&mut self, line: usize, outcome: Outcome) {
        let entry = self.lines.entry(line).or_default();
        if let Outcome::NotUnderstood(why) = &outcome {
            let is_new = !entry.whys.contains_key(why);
            let ports = entry.whys.entry(why.clone()).or_default();
            match self.ports.is_empty() || (ports.is_empty() && !is_new) {
                true => ports.clear(),
                false => ports.extend(self.ports.iter().cloned()),
            }
        }
        if entry
            .outcome
            .as_ref()
            .is_none_or(|before| *before < outcome)
        {
            entry.outcome = Some(outcome);
        }
    }

    /// The line is part of what was read.
    pub(crate) fn applied(&mut self, line: usize) {
        self.set(line, Outcome::Applied);
    }

    /// The line is known to be irrelevant.
    pub(crate) fn irrelevant(&mut self, line: usize) {
        self.set(line, Outcome::Irrelevant);
    }

    /// Nothing is known of the line.
    pub(crate) fn unknown(&mut self, line: usize) {
        let text = self.lines.get(&line).map_or("", |entry| &entry.text);
        let why = not_known(text);
        self.set(line, Outcome::NotUnderstood(why));
    }

    /// The line is understood, and no rule judges what it sets.
    pub(crate) fn not_judged(&mut self, line: usize, why: String) {
        let (file, line) = self.place_of(line);
        self.not_judged.push(NotUnderstood {
            file,
            line,
            why,
            ports: self.ports.clone(),
            areas: Vec::new(),
        });
    }

    /// The ports that lines concern which are read now are down: no packet passes them.
    pub(crate) fn down(&mut self, line: usize) {
        let text = self.lines.get(&line).map(|entry| shortened(&entry.text));
        self.down_by(line, &text.unwrap_or_default());
    }

    /// The same, with the setting of the line that says so.
    pub(crate) fn down_by(&mut self, line: usize, text: &str) {
        let names = self.ports.join(", ");
        let why = format!("\"{text}\": {names} is down, and is not judged");
        self.down.extend(self.ports.iter().cloned());
        self.not_judged(line, why);
    }

    /// The names of ports that are down.
    pub fn down_ports(&self) -> &BTreeSet<String> {
        &self.down
    }

    /// The lines that are understood, and whose settings no rule judges.
    pub fn lines_not_judged(&self) -> &[NotUnderstood] {
        &self.not_judged
    }

    /// The line of an error was not understood.
    pub(crate) fn not_understood(&mut self, error: &ReadError) {
        self.set(error.line, Outcome::NotUnderstood(error.what.clone()));
    }

    /// Takes what was read of a line, or that it was not understood.
    pub(crate) fn take<T>(&mut self, line: usize, read: Result<T, ReadError>) -> Option<T> {
        match read {
            Ok(value) => {
                self.applied(line);
                Some(value)
            }
            Err(error) => {
                self.applied(line);
                self.not_understood(&error);
                None
            }
        }
    }

    /// Each line with its outcome, in order.
    pub fn each(&self) -> impl Iterator<Item = (usize, Outcome)> {
        self.lines.iter().map(|(number, entry)| {
            let unknown = || Outcome::NotUnderstood(not_known(&entry.text));
            (*number, entry.outcome.clone().unwrap_or_else(unknown))
        })
    }

    /// The lines that were not understood, in order, each once for each reason.
    pub fn left(&self) -> Vec<NotUnderstood> {
        let mut found = Vec::new();
        for (line, outcome) in self.each() {
            let Outcome::NotUnderstood(why) = outcome else {
                continue;
            };
            let entry = self.lines.get(&line);
            let text = entry.map_or("", |entry| entry.text.as_str());
            let (file, line) = self.place_of(line);
            let one = |(why, ports): (String, Vec<String>)| NotUnderstood {
                file: file.clone(),
                line,
                areas: Area::of(&format!("{text} {why}")),
                ports,
                why,
            };
            let whys = entry.map_or_else(BTreeMap::new, |entry| entry.whys.clone());
            match whys.is_empty() {
                true => found.push(one((why, Vec::new()))),
                false => found.extend(whys.into_iter().map(one)),
            }
        }
        found
    }
}

/// What is said of a line of which nothing is known.
fn not_known(text: &str) -> String {
    format!("\"{}\": this line is not known", shortened(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    #[test]
    fn a_line_without_outcome_is_not_understood() {
        let text = "mtu 9216\nhostname a\nqos trust maybe\nqos trusted\n";
        let mut outcomes = Outcomes::of("f", &lines("f", text, &[]).unwrap());
        outcomes.applied(1);
        outcomes.irrelevant(2);
        outcomes.within(vec!["Ethernet1".to_owned()]);
        let odd = ReadError::new("f", 3, "\"qos trust maybe\": trust is cos or dscp");
        assert_eq!(outcomes.take(3, Err::<(), _>(odd)), None);
        outcomes.applied(3);
        let left = outcomes.left();
        let shown: Vec<String> = left.iter().map(NotUnderstood::to_string).collect();
        assert_eq!(
            shown,
            [
                "f:3: \"qos trust maybe\": trust is cos or dscp",
                "f:4: \"qos trusted\": this line is not known"
            ]
        );
        assert_eq!(left[0].areas, [Area::Classes]);
        assert_eq!((left[0].ports.len(), left[1].ports.len()), (1, 0));
    }

    #[test]
    fn a_line_may_have_several_reasons_each_with_its_ports() {
        let mut outcomes = Outcomes::of("f", &[]);
        let mut say = |what: &str, ports: &[&str]| {
            outcomes.within(ports.iter().map(|&port| port.to_owned()).collect());
            outcomes.not_understood(&ReadError::new("f", 1, what));
        };
        say("odd ecn", &["a"]);
        say("odd mtu", &["a"]);
        say("odd ecn", &["b"]);
        say("odd mtu", &[]);
        say("odd mtu", &["c"]);
        let left = outcomes.left();
        let shown: Vec<(&str, Vec<&str>)> = left
            .iter()
            .map(|own| {
                (
                    own.why.as_str(),
                    own.ports.iter().map(String::as_str).collect(),
                )
            })
            .collect();
        assert_eq!(shown, [("odd ecn", vec!["a", "b"]), ("odd mtu", vec![])]);
        assert_eq!(
            (&left[0].areas[..], &left[1].areas[..]),
            (&[Area::Ecn][..], &[Area::Mtu][..])
        );
    }
}
