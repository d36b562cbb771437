//! Connection matrices. One without triggers stays as it is, since `[[workload]]` reads it; connections that
//! others start become transfers that wait for them.

use super::StartUnit;
use crate::job::{Job, STEPS_MAX, Step, Transfer};
use crate::lines::{Line, Lines};
use crate::text::FabricText;
use crate::{ImportError, Input, List};
use fabric::Span;
use std::collections::BTreeMap;

/// The name of the list beside the fabric file.
const LIST: &str = "connections.cm";

/// When a trigger starts its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    OneShot,
    /// After so many have ended.
    Barrier(u64),
}

/// What begins a connection.
#[derive(Clone, Copy, Debug)]
enum Start {
    At(f64),
    Trigger(u64),
}

#[derive(Clone, Debug)]
struct Connection<'a> {
    line: Line<'a>,
    from: u64,
    to: u64,
    start: Start,
    bytes: u64,
    /// Triggers that its end at the sender and at the receiver sets off.
    sent: Option<u64>,
    received: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Matrix<'a> {
    input: Input<'a>,
    connections: Vec<Connection<'a>>,
    triggers: BTreeMap<u64, Kind>,
}

impl<'a> Matrix<'a> {
    pub(super) fn read(input: Input<'a>, hosts: u64) -> Result<Self, ImportError> {
        let mut matrix = Self {
            input,
            connections: Vec::new(),
            triggers: BTreeMap::new(),
        };
        for line in Lines::of(input) {
            matrix.line(line, hosts)?;
        }
        Ok(matrix)
    }

    fn line(&mut self, line: Line<'a>, hosts: u64) -> Result<(), ImportError> {
        match &*line.words[0].to_ascii_lowercase() {
            "nodes" => {
                let nodes = line.number(1, "Nodes", u64::MAX)?;
                if nodes > hosts {
                    return Err(
                        line.error(format!("Nodes is {nodes}, and the topology has {hosts}"))
                    );
                }
            }
            "connections" | "triggers" => _ = line.number(1, "the number", u64::MAX)?,
            "failures" if line.words.get(1) == Some(&"0") => {}
            "failures" | "failure" => {
                return Err(line
                    .error("failures are not imported: leave them out, and write [[link.down]]"));
            }
            "trigger" => {
                let id = line.number(2, "the trigger's number", u64::MAX)?;
                let kind = match line.words.get(3) {
                    Some(&"oneshot") => Kind::OneShot,
                    Some(&"barrier") => Kind::Barrier(line.number(5, "the count", u64::MAX)?),
                    _ => {
                        return Err(line.error(
                            "a trigger is oneshot, or barrier with a count; of multishot the order of \
                             ends decides, \
                             which no transfer can wait for",
                        ));
                    }
                };
                self.triggers.insert(id, kind);
            }
            word if word.starts_with('#') => {}
            _ => {
                let connection = connection(line, hosts)?;
                self.connections.push(connection);
            }
        }
        Ok(())
    }

    /// Writes a workload and its list, or transfers.
    pub(super) fn write(
        &self,
        text: &mut FabricText,
        unit: StartUnit,
    ) -> Result<Vec<List>, ImportError> {
        let is_started =
            |connection: &Connection<'_>| matches!(connection.start, Start::Trigger(_));
        if self.connections.iter().any(is_started) {
            let job = self.job(unit)?;
            job.write(text);
            return Ok(Vec::new());
        }
        text.element("workload");
        text.quoted("connections", LIST);
        if unit == StartUnit::Picoseconds {
            text.quoted("start-unit", "ps");
        }
        Ok(vec![List {
            name: LIST.to_owned(),
            text: self.plain(),
        }])
    }

    /// The matrix without what says nothing here.
    fn plain(&self) -> String {
        let lines = self.input.text.lines();
        let kept = lines.filter(|line| {
            let word = line.split_whitespace().next().unwrap_or_default();
            !["trigger", "triggers", "failures"].contains(&&*word.to_ascii_lowercase())
        });
        let mut text = String::new();
        for line in kept {
            // Triggers that nothing waits for.
            let words: Vec<&str> = line.split_whitespace().collect();
            let mut words = words.into_iter();
            while let Some(word) = words.next() {
                if matches!(word, "send_done_trigger" | "recv_done_trigger") {
                    words.next();
                } else {
                    text.push_str(word);
                    text.push(' ');
                }
            }
            text.push('\n');
        }
        text
    }

    fn job(&self, unit: StartUnit) -> Result<Job, ImportError> {
        if let Some(beyond) = self.connections.get(STEPS_MAX) {
            return Err(beyond
                .line
                .error(format!("more than {STEPS_MAX} connections with triggers")));
        }
        // By trigger, the connections whose end sets it off, and the host that knows of it.
        let mut sources: BTreeMap<u64, Vec<Source<'_>>> = BTreeMap::new();
        for connection in &self.connections {
            let ends = [
                (connection.sent, connection.from),
                (connection.received, connection.to),
            ];
            for (trigger, host) in ends {
                if let Some(trigger) = trigger {
                    sources
                        .entry(trigger)
                        .or_default()
                        .push(Source { connection, host });
                }
            }
        }
        let mut job = Job::default();
        for connection in &self.connections {
            let (start, after) = match connection.start {
                Start::At(time) => (time, Vec::new()),
                Start::Trigger(trigger) => {
                    let sources = sources.get(&trigger).map_or(&[][..], Vec::as_slice);
                    (0.0, self.waits(connection, trigger, sources)?)
                }
            };
            let start_ps = match unit {
                StartUnit::Microseconds => start * 1e6,
                StartUnit::Picoseconds => start,
            };
            job.steps.push(Step::Transfer(Transfer {
                name: name(connection),
                from: format!("h{}", connection.from),
                to: format!("h{}", connection.to),
                bytes: connection.bytes.max(1),
                after,
                start: Span(start_ps as u64),
            }));
        }
        Ok(job)
    }

    /// The names of what a trigger waits for.
    fn waits(
        &self,
        connection: &Connection<'_>,
        trigger: u64,
        sources: &[Source<'_>],
    ) -> Result<Vec<String>, ImportError> {
        let error = |what: String| Err(connection.line.error(what));
        match self.triggers.get(&trigger) {
            None => return error(format!("there is no trigger {trigger}")),
            Some(Kind::OneShot) if sources.len() > 1 => {
                return error(format!(
                    "the first of {} connections sets off trigger {trigger}, which no transfer can wait \
                     for",
                    sources.len()
                ));
            }
            Some(Kind::Barrier(count)) if *count != sources.len() as u64 => {
                return error(format!(
                    "trigger {trigger} waits for {count} ends, and {} connections set it off",
                    sources.len()
                ));
            }
            Some(_) if sources.is_empty() => {
                return error(format!("no connection sets off trigger {trigger}"));
            }
            Some(_) => {}
        }
        let unknown = sources
            .iter()
            .find(|source| ![connection.from, connection.to].contains(&source.host));
        if let Some(source) = unknown {
            return error(format!(
                "it begins when {} has ended at h{}, of which neither of its hosts knows: only packets \
                 tell",
                name(source.connection),
                source.host
            ));
        }
        Ok(sources
            .iter()
            .map(|source| name(source.connection))
            .collect())
    }
}

/// A connection whose end sets off a trigger, and where that is known.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    connection: &'a Connection<'a>,
    host: u64,
}

fn name(connection: &Connection<'_>) -> String {
    format!("line-{}", connection.line.number)
}

/// `FROM->TO`, and pairs of a name and a value.
fn connection(line: Line<'_>, hosts: u64) -> Result<Connection<'_>, ImportError> {
    let word = line.words[0];
    let host = |text: &str| text.parse().ok().filter(|host: &u64| *host < hosts);
    let ends = word.split_once("->");
    let ends = ends.and_then(|(from, to)| Some((host(from)?, host(to)?)));
    let (from, to) = ends.ok_or_else(|| {
        line.error(format!(
            "\"{word}\" is no connection of hosts below {hosts}, such as 0->5"
        ))
    })?;
    if from == to {
        return Err(line.error(format!("{from} sends to itself")));
    }
    let (mut start, mut bytes, mut sent, mut received) = (None, None, None, None);
    for at in (1..line.words.len()).step_by(2) {
        let number = |what: &str| line.number(at + 1, what, u64::MAX);
        match line.words[at] {
            "id" => _ = number("the ID")?,
            "start" => start = Some(Start::At(line.decimal(at + 1, "the start")?)),
            "trigger" => start = Some(Start::Trigger(number("the trigger")?)),
            "size" => bytes = Some(number("the size")?),
            "send_done_trigger" => sent = Some(number("the trigger")?),
            "recv_done_trigger" => received = Some(number("the trigger")?),
            word => return Err(line.error(format!("\"{word}\" is not understood"))),
        }
    }
    let start = start.ok_or_else(|| line.error("start or trigger is missing"))?;
    let bytes = bytes.ok_or_else(|| line.error("size is missing"))?;
    Ok(Connection {
        line,
        from,
        to,
        start,
        bytes,
        sent,
        received,
    })
}
