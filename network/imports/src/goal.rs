//! GOAL, the language of LogGOPSim and ATLAHS: what each rank sends, receives and computes, and what that
//! waits for.
//!
//! A transfer waits for what its sender waits for. Receives are taken as posted in time, as for messages that
//! are sent at once: a receiver that comes late does not hold up a sender. The parameters of LogGOPS
//! (latency, overhead, gap) are not in the file, and the network takes their place.

use crate::job::{Computing, Job, STEPS_MAX, Step, Transfer};
use crate::lines::{Line, Lines};
use crate::schedule::{Impossible, Operation, Scheduled, Work, schedule};
use crate::servers::Servers;
use crate::text::FabricText;
use crate::{ImportError, Imported, Input};
use fabric::Span;
use fabric::topology::HOSTS_MAX;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Operations of all ranks at most.
const OPERATIONS_MAX: usize = 1 << 22;

/// The messages of a pair of ranks that have one tag, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Channel {
    from: usize,
    to: usize,
    tag: u64,
}

/// A message, once its send and its receive are known.
#[derive(Clone, Debug)]
struct Message {
    channel: Channel,
    bytes: u64,
    line: usize,
    is_received: bool,
}

#[derive(Debug, Default)]
struct Rank {
    operations: Vec<Operation>,
    /// The line of each operation.
    lines: Vec<usize>,
    labels: HashMap<String, usize>,
}

struct Reader<'a> {
    input: Input<'a>,
    ranks: Vec<Rank>,
    messages: Vec<Message>,
    /// By channel, messages in order of their sends and of their receives.
    sent: BTreeMap<Channel, Vec<usize>>,
    received: BTreeMap<Channel, Vec<Place>>,
    processors: BTreeSet<u64>,
    count: usize,
}

/// An operation of a rank.
#[derive(Clone, Copy, Debug)]
struct Place {
    rank: usize,
    operation: usize,
    line: usize,
}

/// Makes the fabric file of a schedule.
///
/// # Errors
/// Statements that are not understood, receives from any rank or with any tag, sends and receives without the
/// other one, operations that wait for themselves, and more messages than a fabric file can have.
pub fn import(input: Input<'_>, servers: Servers) -> Result<Imported, ImportError> {
    let mut reader = Reader {
        input,
        ranks: Vec::new(),
        messages: Vec::new(),
        sent: BTreeMap::new(),
        received: BTreeMap::new(),
        processors: BTreeSet::new(),
        count: 0,
    };
    let plain = without_comments(input)?;
    reader.read(Input {
        name: input.name,
        text: &plain,
    })?;
    reader.match_receives()?;
    reader.schedule(servers)
}

/// The text with spaces in place of comments; lines stay where they are.
fn without_comments(input: Input<'_>) -> Result<String, ImportError> {
    let mut plain = String::with_capacity(input.text.len());
    let mut rest = input.text;
    while let Some(begin) = rest.find('/') {
        plain.push_str(&rest[..begin]);
        rest = &rest[begin..];
        let (length, end) = match rest.as_bytes().get(1) {
            Some(b'/') => (rest.find('\n').unwrap_or(rest.len()), 0),
            Some(b'*') => match rest[2..].find("*/") {
                Some(length) => (2 + length, 2),
                None => {
                    return Err(ImportError {
                        file: input.name.to_owned(),
                        line: Some(plain.matches('\n').count() + 1),
                        what: "this comment has no end".to_owned(),
                    });
                }
            },
            _ => {
                plain.push('/');
                rest = &rest[1..];
                continue;
            }
        };
        plain.push(' ');
        plain.extend(rest[..length].chars().filter(|c| *c == '\n'));
        rest = &rest[length + end..];
    }
    plain.push_str(rest);
    Ok(plain)
}

impl Reader<'_> {
    fn read(&mut self, input: Input<'_>) -> Result<(), ImportError> {
        let mut lines = Lines::of(input);
        let head = lines.expect("num_ranks")?;
        if head.words[0] != "num_ranks" {
            return Err(head.error("a schedule begins with num_ranks and their number"));
        }
        let count = head.number(1, "the number of ranks", u64::from(HOSTS_MAX))?;
        self.ranks.resize_with(count as usize, Rank::default);
        let mut rank = None;
        for line in lines {
            match (line.words[0], rank) {
                ("rank", None) => {
                    let number = self.rank(&line, 1)?;
                    if line.words.get(2) != Some(&"{") {
                        return Err(line.error("a rank begins as in: rank 0 {"));
                    }
                    rank = Some(number);
                }
                ("}", Some(_)) => rank = None,
                (_, Some(rank)) => self.statement(rank, &line)?,
                (word, None) => {
                    return Err(line.error(format!("\"{word}\" stands outside of a rank")));
                }
            }
        }
        match rank {
            Some(rank) => Err(self.error(None, format!("rank {rank} has no end: }}"))),
            None => Ok(()),
        }
    }

    fn error(&self, line: Option<usize>, what: String) -> ImportError {
        ImportError {
            file: self.input.name.to_owned(),
            line,
            what,
        }
    }

    fn rank(&self, line: &Line<'_>, index: usize) -> Result<usize, ImportError> {
        let word = line.word(index, "a rank")?;
        if word == "-1" {
            return Err(
                line.error("a receive from any rank: which message it gets depends on the run")
            );
        }
        let most = (self.ranks.len() as u64).saturating_sub(1);
        Ok(line.number(index, "a rank", most)? as usize)
    }

    /// One statement: an operation with or without a label, or what one of them waits for.
    fn statement(&mut self, rank: usize, line: &Line<'_>) -> Result<(), ImportError> {
        if let [one, word @ ("requires" | "irequires"), other] = *line.words {
            let known = |label: &str| {
                let found = self.ranks[rank].labels.get(label).copied();
                found.ok_or_else(|| line.error(format!("rank {rank} has no label {label} above")))
            };
            let (one, other) = (known(one)?, known(other)?);
            let operation = &mut self.ranks[rank].operations[one];
            match word {
                "requires" => operation.ends.push(other),
                _ => operation.begins.push(other),
            }
            return Ok(());
        }
        let label = line.words[0].strip_suffix(':');
        let at = usize::from(label.is_some());
        let operation = self.ranks[rank].operations.len();
        let place = Place {
            rank,
            operation,
            line: line.number,
        };
        let work = self.work(place, line, at)?;
        self.count += 1;
        if self.count > OPERATIONS_MAX {
            return Err(line.error(format!("more than {OPERATIONS_MAX} operations")));
        }
        let rank = &mut self.ranks[rank];
        rank.operations.push(Operation {
            work,
            ends: Vec::new(),
            begins: Vec::new(),
        });
        rank.lines.push(line.number);
        if let Some(label) = label
            && rank.labels.insert(label.to_owned(), operation).is_some()
        {
            return Err(line.error(format!("the label {label} is there twice")));
        }
        Ok(())
    }

    /// `send BYTESb to RANK`, `recv BYTESb from RANK` or `calc NANOSECONDS`, and `tag`, `cpu` and `nic`.
    fn work(&mut self, place: Place, line: &Line<'_>, at: usize) -> Result<Work, ImportError> {
        let word = line.word(at, "send, recv or calc")?;
        let options = if word == "calc" { at + 2 } else { at + 4 };
        let mut tag = 0;
        for index in (options..line.words.len()).step_by(2) {
            match line.words[index] {
                "tag" if line.words.get(index + 1) == Some(&"-1") => {
                    return Err(line.error("any tag: which message it gets depends on the run"));
                }
                "tag" => tag = line.number(index + 1, "the tag", u64::MAX)?,
                "cpu" => {
                    _ = self
                        .processors
                        .insert(line.number(index + 1, "cpu", u64::MAX)?)
                }
                "nic" => _ = line.number(index + 1, "nic", u64::MAX)?,
                word => return Err(line.error(format!("\"{word}\" is not understood"))),
            }
        }
        if word == "calc" {
            let ns = line.number(at + 1, "the time in nanoseconds", 1 << 53)?;
            return Ok(Work::Compute(ns * 1000));
        }
        let direction = match word {
            "send" => "to",
            "recv" => "from",
            _ => {
                return Err(line.error(format!("\"{word}\" is not understood: send, recv or calc")));
            }
        };
        if line.word(at + 2, direction)? != direction {
            return Err(line.error(format!(
                "{word} is written as in: {word} 8b {direction} 1 tag 0"
            )));
        }
        let size = line.word(at + 1, "the size")?;
        let bytes: Option<u64> = size.strip_suffix('b').and_then(|size| size.parse().ok());
        let bytes = bytes.ok_or_else(|| line.error(format!("\"{size}\" is no size such as 8b")))?;
        let other = self.rank(line, at + 3)?;
        if other == place.rank {
            return Err(line.error(format!(
                "rank {other} and itself: a message goes to another rank"
            )));
        }
        Ok(match word {
            "send" => {
                let channel = Channel {
                    from: place.rank,
                    to: other,
                    tag,
                };
                let message = self.messages.len();
                self.messages.push(Message {
                    channel,
                    bytes,
                    line: place.line,
                    is_received: false,
                });
                self.sent.entry(channel).or_default().push(message);
                Work::Step(message)
            }
            _ => {
                let channel = Channel {
                    from: other,
                    to: place.rank,
                    tag,
                };
                self.received.entry(channel).or_default().push(place);
                // Its message is known when all ranks were read.
                Work::Compute(0)
            }
        })
    }

    /// Gives each receive its message: the first one gets the first that is sent, and so on.
    fn match_receives(&mut self) -> Result<(), ImportError> {
        for (channel, places) in &self.received {
            let messages = self.sent.get(channel).map_or(&[][..], Vec::as_slice);
            for (index, place) in places.iter().enumerate() {
                let Some(message) = messages.get(index) else {
                    let (from, tag) = (channel.from, channel.tag);
                    let what = format!("rank {from} sends no such message with tag {tag} here");
                    return Err(self.error(Some(place.line), what));
                };
                self.messages[*message].is_received = true;
                self.ranks[place.rank].operations[place.operation].work = Work::Step(*message);
            }
        }
        match self.messages.iter().find(|message| !message.is_received) {
            Some(message) => {
                let (to, tag) = (message.channel.to, message.channel.tag);
                let what = format!("rank {to} receives no such message with tag {tag}");
                Err(self.error(Some(message.line), what))
            }
            None => Ok(()),
        }
    }

    fn schedule(&self, servers: Servers) -> Result<Imported, ImportError> {
        let mut job = Job::default();
        for (number, rank) in self.ranks.iter().enumerate() {
            let scheduled = schedule(&rank.operations).map_err(|impossible| match impossible {
                Impossible::Circle(operation) => self.error(
                    Some(rank.lines[operation]),
                    "this waits for itself, by way of others".to_owned(),
                ),
                Impossible::TooMany => self.error(
                    None,
                    format!("rank {number}: its operations wait for too many others"),
                ),
            })?;
            for one in &scheduled {
                self.step(&mut job, servers, number, one);
            }
            if job.steps.len() > STEPS_MAX {
                let what = format!(
                    "more than {STEPS_MAX} messages and times of computing, which are tables of a \
                     fabric file"
                );
                return Err(self.error(None, what));
            }
        }
        let mut notes = Vec::new();
        if self.processors.len() > 1 {
            notes.push(format!(
                "computing on {} processors of a rank (cpu): a host computes one after the other",
                self.processors.len()
            ));
        }
        let mut text = FabricText::titled(self.input.name);
        servers.write(&mut text, self.ranks.len());
        job.write(&mut text);
        Ok(Imported {
            fabric: text.finish(),
            lists: Vec::new(),
            notes,
        })
    }

    /// Adds what a rank computes and sends; what it receives is of its sender.
    fn step(&self, job: &mut Job, servers: Servers, rank: usize, one: &Scheduled) {
        let own = &self.ranks[rank];
        let name = |operation: usize| match own.operations[operation].work {
            Work::Step(message) => format!("line-{}", self.messages[message].line),
            Work::Compute(_) => format!("line-{}", own.lines[operation]),
        };
        let after = one.waits.iter().map(|before| name(*before)).collect();
        match one.work {
            Work::Compute(ps) => job.compute(Computing {
                name: name(one.operation),
                rank,
                host: servers.host(rank),
                after,
                time: Span(ps),
            }),
            Work::Step(message) if self.messages[message].channel.from == rank => {
                let Message { channel, bytes, .. } = &self.messages[message];
                job.steps.push(Step::Transfer(Transfer {
                    name: name(one.operation),
                    from: servers.host(channel.from),
                    to: servers.host(channel.to),
                    // A message of no bytes has a packet of its own too.
                    bytes: (*bytes).max(1),
                    after,
                    start: Span::ZERO,
                }));
            }
            Work::Step(_) => {}
        }
    }
}
