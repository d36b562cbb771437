//! Logs of NCCL (`NCCL_DEBUG=INFO`, `NCCL_DEBUG_SUBSYS=INIT,COLL`, better with `TUNING`): communicators, and
//! the collectives that ranks called, in their order.
//!
//! A log has the calls and no times: collectives of one stream follow each other at once. One of the lowest
//! rank of a communicator that the log has stands for those of all its ranks.

use crate::job::{Collective, Job, Kind, STEPS_MAX, Step, Transfer};
use crate::servers::Servers;
use crate::text::FabricText;
use crate::{ImportError, Imported, Input};
use fabric::Span;
use fabric::topology::HOSTS_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// What stands before the words of NCCL.
const MARK: &str = " NCCL INFO ";

/// Lines that are left out by name; the others are counted.
const NAMED_MAX: usize = 20;

/// A process of a host, as NCCL names it in each line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Process<'a> {
    host: &'a str,
    number: &'a str,
}

/// A communicator in a process, which has an address of its own there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Handle<'a> {
    process: Process<'a>,
    address: &'a str,
}

/// A processor of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Device<'a> {
    host: &'a str,
    /// Bus ID, or number of the device.
    name: &'a str,
}

/// A rank in a communicator.
#[derive(Clone, Debug)]
struct Member<'a> {
    communicator: Identity<'a>,
    rank: usize,
    ranks: usize,
    device: Device<'a>,
}

/// What is the same for all ranks of a communicator: its ID, or the number of ranks where the log has no ID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Identity<'a> {
    Id(&'a str),
    Size(usize),
}

/// A call of a rank.
#[derive(Clone, Debug)]
struct Call<'a> {
    function: &'a str,
    line: usize,
    count: u64,
    datatype: u64,
    root: usize,
    number: u64,
    handle: Handle<'a>,
    stream: &'a str,
    /// Ranks of the communicator, as the call says.
    ranks: Option<usize>,
    /// The rank among all of the job, as the call says.
    global_rank: Option<usize>,
}

/// How NCCL carried out a collective of so many bytes.
#[derive(Clone, Debug, Default)]
struct Choice {
    algorithm: String,
    protocol: String,
    channels: u64,
}

#[derive(Debug, Default)]
struct Log<'a> {
    members: BTreeMap<Handle<'a>, Member<'a>>,
    calls: Vec<Call<'a>>,
    /// By function and bytes of a rank.
    choices: BTreeMap<(&'a str, u64), Choice>,
    notes: Vec<String>,
}

/// Makes the fabric file of the collectives of a log.
///
/// # Errors
/// Logs without collectives, and those of which no collective is left.
pub fn import(input: Input<'_>, servers: Servers) -> Result<Imported, ImportError> {
    let mut log = Log::default();
    let mut damaged = 0;
    for (index, line) in input.text.lines().enumerate() {
        if let Err(what) = log.line(line, index + 1) {
            damaged += 1;
            if damaged <= NAMED_MAX {
                let name = input.name;
                log.notes.push(format!(
                    "{name}:{}: {what}; the line is left out",
                    index + 1
                ));
            }
        }
    }
    if damaged > NAMED_MAX {
        let more = damaged - NAMED_MAX;
        log.notes
            .push(format!("{more} more such lines are left out"));
    }
    if log.calls.is_empty() {
        return Err(ImportError {
            file: input.name.to_owned(),
            line: None,
            what: "no line is a collective of NCCL: run with NCCL_DEBUG=INFO and \
                   NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING"
                .to_owned(),
        });
    }
    log.number_the_rest();
    Writer::new(&log, input, servers).written()
}

/// The word behind another one.
fn behind<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let place = words.iter().position(|word| *word == name)?;
    words.get(place + 1).copied()
}

fn number(words: &[&str], name: &str) -> Result<u64, String> {
    let word = behind(words, name).ok_or_else(|| format!("{name} is missing"))?;
    word.parse()
        .map_err(|_| format!("{name} is a whole number, and not \"{word}\""))
}

impl<'a> Log<'a> {
    fn line(&mut self, line: &'a str, number: usize) -> Result<(), String> {
        // Of lines that processes have written into each other the last one is whole.
        let Some((before, said)) = line.rsplit_once(MARK) else {
            return Ok(());
        };
        // HOST:PROCESS:THREAD [DEVICE], and before it what started the program has added.
        let mut before = before.split_whitespace().rev();
        let device = before.next().unwrap_or_default().trim_matches(['[', ']']);
        let mut place = before.next().unwrap_or_default().split(':');
        let (Some(host), Some(process)) = (place.next(), place.next()) else {
            return Ok(());
        };
        let process = Process {
            host,
            number: process,
        };
        let words: Vec<&str> = said.split_whitespace().collect();
        let Some(first) = words.first() else {
            return Ok(());
        };
        if said.contains("Init COMPLETE") {
            self.member(process, device, &words)
        } else if first.ends_with(':') && behind(&words, "opCount").is_some() {
            self.call(process, number, &words)
        } else if first.ends_with(':') && words.contains(&"Bytes") {
            self.choice(&words)
        } else {
            Ok(())
        }
    }

    fn member(
        &mut self,
        process: Process<'a>,
        device: &'a str,
        words: &[&'a str],
    ) -> Result<(), String> {
        let address = behind(words, "comm").ok_or("comm is missing")?;
        let (rank, ranks) = (number(words, "rank")?, number(words, "nranks")?);
        if ranks > u64::from(HOSTS_MAX) || rank >= ranks {
            return Err(format!("rank {rank} of {ranks}"));
        }
        let member = Member {
            communicator: behind(words, "commId")
                .map_or(Identity::Size(ranks as usize), Identity::Id),
            rank: rank as usize,
            ranks: ranks as usize,
            device: Device {
                host: process.host,
                name: behind(words, "busId").unwrap_or(device),
            },
        };
        self.members.insert(Handle { process, address }, member);
        Ok(())
    }

    fn call(&mut self, process: Process<'a>, line: usize, words: &[&'a str]) -> Result<(), String> {
        let word = behind(words, "opCount").unwrap_or_default();
        let bracketed = words.iter().find_map(|word| word.strip_prefix("[nranks="));
        let call = Call {
            function: words[0].trim_end_matches(':'),
            line,
            count: number(words, "count")?,
            datatype: number(words, "datatype")?,
            root: number(words, "root")? as usize,
            number: u64::from_str_radix(word, 16)
                .map_err(|_| format!("opCount is a hexadecimal number, and not \"{word}\""))?,
            handle: Handle {
                process,
                address: behind(words, "comm").ok_or("comm is missing")?,
            },
            stream: behind(words, "stream").unwrap_or_default(),
            ranks: bracketed.and_then(|word| word.strip_suffix(']')?.parse().ok()),
            global_rank: behind(words, "globalrank").and_then(|word| word.parse().ok()),
        };
        self.calls.push(call);
        Ok(())
    }

    /// Numbers the ranks of communicators that the log has no line of: as calls say, or as they come. It has
    /// to be the only communicator of so many ranks.
    fn number_the_rest(&mut self) {
        let mut rest: BTreeMap<usize, Vec<(Handle<'a>, Option<usize>)>> = BTreeMap::new();
        for call in &self.calls {
            let Some(ranks) = call
                .ranks
                .filter(|_| !self.members.contains_key(&call.handle))
            else {
                continue;
            };
            let known = rest.entry(ranks).or_default();
            if known.len() <= ranks && known.iter().all(|(handle, _)| *handle != call.handle) {
                known.push((call.handle, call.global_rank));
            }
        }
        for (ranks, found) in rest {
            if found.len() > ranks || ranks > HOSTS_MAX as usize {
                self.notes.push(format!(
                    "communicators of {ranks} ranks cannot be told apart without \"Init COMPLETE\", and \
                     are left \
                     out: add INIT to NCCL_DEBUG_SUBSYS"
                ));
                continue;
            }
            self.notes.push(format!(
                "the ranks of a communicator of {ranks} are numbered as the log has them, since it has no \
                 \"Init COMPLETE\""
            ));
            for (place, (handle, global_rank)) in found.into_iter().enumerate() {
                let process = handle.process;
                let member = Member {
                    communicator: Identity::Size(ranks),
                    rank: global_rank.filter(|rank| *rank < ranks).unwrap_or(place),
                    ranks,
                    device: Device {
                        host: process.host,
                        name: process.number,
                    },
                };
                self.members.insert(handle, member);
            }
        }
    }

    /// `AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}`; older ones have numbers.
    fn choice(&mut self, words: &[&'a str]) -> Result<(), String> {
        let [function, bytes, "Bytes", ..] = words else {
            return Ok(());
        };
        let bytes = bytes
            .parse()
            .map_err(|_| format!("\"{bytes}\" is no number of bytes"))?;
        let named = |name: &str, names: [&str; 3]| {
            let word = behind(words, name).unwrap_or_default();
            let number: Option<usize> = word.parse().ok();
            let known = number.and_then(|number| names.get(number).copied());
            known.map_or(word.to_ascii_lowercase(), str::to_owned)
        };
        let last = words
            .iter()
            .find_map(|word| word.strip_prefix("channel{Lo..Hi}={0.."));
        let last = last.and_then(|word| word.strip_suffix('}')?.parse().ok());
        let choice = Choice {
            algorithm: named("Algo", ["tree", "ring", "collnet"]),
            protocol: named("proto", ["ll", "ll128", "simple"]),
            channels: last.map_or(0, |last: u64| last.saturating_add(1)),
        };
        self.choices
            .insert((function.trim_end_matches(':'), bytes), choice);
        Ok(())
    }
}

/// Bytes of a datatype of NCCL.
fn width(datatype: u64) -> Option<u64> {
    match datatype {
        0 | 1 | 10 | 11 => Some(1),
        6 | 9 => Some(2),
        2 | 3 | 7 => Some(4),
        4 | 5 | 8 => Some(8),
        _ => None,
    }
}

/// What the last call of a stream began.
#[derive(Debug, Default)]
struct Begun {
    number: u64,
    names: Vec<String>,
}

struct Writer<'a> {
    log: &'a Log<'a>,
    input: Input<'a>,
    servers: Servers,
    /// The devices of all ranks, in the order of the largest communicator.
    devices: Vec<Device<'a>>,
    /// The ranks of communicators, as numbers of devices.
    communicators: BTreeMap<Identity<'a>, Vec<Option<usize>>>,
    job: Job,
    /// By process and stream, the number of the last call, and the names of what it began.
    last: BTreeMap<(Process<'a>, &'a str), Begun>,
    notes: BTreeSet<String>,
}

impl<'a> Writer<'a> {
    fn new(log: &'a Log<'a>, input: Input<'a>, servers: Servers) -> Self {
        let mut members: Vec<&Member<'a>> = log.members.values().collect();
        members.sort_by_key(|member| {
            (
                std::cmp::Reverse(member.ranks),
                member.communicator,
                member.rank,
            )
        });
        let mut devices: Vec<Device<'a>> = Vec::new();
        let mut communicators: BTreeMap<Identity<'a>, Vec<Option<usize>>> = BTreeMap::new();
        for member in members {
            let known = devices.iter().position(|device| *device == member.device);
            let index = known.unwrap_or_else(|| {
                devices.push(member.device);
                devices.len() - 1
            });
            let ranks = communicators.entry(member.communicator).or_default();
            ranks.resize(ranks.len().max(member.ranks), None);
            if let Some(rank) = ranks.get_mut(member.rank) {
                *rank = Some(index);
            }
        }
        Self {
            log,
            input,
            servers,
            devices,
            communicators,
            job: Job::default(),
            last: BTreeMap::new(),
            notes: log.notes.iter().cloned().collect(),
        }
    }

    fn written(mut self) -> Result<Imported, ImportError> {
        self.fill_gaps();
        for call in &self.log.calls {
            if self.job.steps.len() >= STEPS_MAX {
                return Err(ImportError {
                    file: self.input.name.to_owned(),
                    line: Some(call.line),
                    what: format!("more than {STEPS_MAX} collectives: import a part of the log"),
                });
            }
            if let Err(what) = self.call(call) {
                let (name, line) = (self.input.name, call.line);
                self.notes
                    .insert(format!("{name}:{line}: {what}; the call is left out"));
            }
        }
        if self.job.steps.is_empty() {
            let notes: Vec<String> = self.notes.into_iter().collect();
            return Err(ImportError {
                file: self.input.name.to_owned(),
                line: None,
                what: format!("no collective is left: {}", notes.join("; ")),
            });
        }
        let mut text = FabricText::titled(self.input.name);
        self.servers.write(&mut text, self.devices.len());
        self.job.write(&mut text);
        Ok(Imported {
            fabric: text.finish(),
            lists: Vec::new(),
            notes: self.notes.into_iter().collect(),
        })
    }

    /// Ranks that the log says nothing of: those of the largest communicator are hosts of their own.
    fn fill_gaps(&mut self) {
        let largest = self
            .communicators
            .iter()
            .max_by_key(|(_, ranks)| ranks.len());
        let Some((identity, ranks)) = largest.map(|(identity, ranks)| (*identity, ranks.clone()))
        else {
            return;
        };
        if ranks.iter().all(Option::is_some) {
            return;
        }
        let there = ranks.iter().flatten().count();
        self.notes.insert(format!(
            "the log is of {there} of {} ranks: the others are taken to call the same",
            ranks.len()
        ));
        // Hosts in the order of ranks.
        let mut devices = vec![Device::default(); ranks.len()];
        let mut moved = BTreeMap::new();
        for (rank, device) in ranks.iter().enumerate() {
            if let Some(device) = device {
                devices[rank] = self.devices[*device];
                moved.insert(*device, rank);
            }
        }
        for (old, device) in self.devices.iter().enumerate() {
            moved.entry(old).or_insert_with(|| {
                devices.push(*device);
                devices.len() - 1
            });
        }
        self.devices = devices;
        for (of, ranks) in &mut self.communicators {
            for (place, rank) in ranks.iter_mut().enumerate() {
                *rank = match rank {
                    Some(rank) => moved.get(rank).copied(),
                    None if *of == identity => Some(place),
                    None => None,
                };
            }
        }
    }

    fn call(&mut self, call: &Call<'a>) -> Result<(), String> {
        // Communicators without members are in the notes.
        let Some(member) = self.log.members.get(&call.handle) else {
            return Ok(());
        };
        let identity = member.communicator;
        let ranks = &self.communicators[&identity];
        // The first of the ranks that the log has stands for all.
        let process_of_first = self
            .log
            .members
            .values()
            .filter(|it| it.communicator == identity);
        let first = process_of_first.map(|it| it.rank).min();
        let is_first = first == Some(member.rank);
        let known: Option<Vec<usize>> = ranks.iter().copied().collect();
        let Some(known) = known else {
            self.notes.insert(format!(
                "collectives of a communicator of {} ranks are left out, of which the log has {}",
                ranks.len(),
                ranks.iter().flatten().count()
            ));
            return Ok(());
        };
        let width = width(call.datatype)
            .ok_or_else(|| format!("datatype {} is not known", call.datatype))?;
        let bytes = call
            .count
            .checked_mul(width)
            .ok_or("the size is too large")?;
        match call.function {
            "Send" => self.send(call, member, &known, bytes),
            "Recv" => Ok(()),
            _ if !is_first => Ok(()),
            _ => self.collective(call, &known, bytes),
        }
    }

    fn send(
        &mut self,
        call: &Call<'a>,
        member: &Member<'a>,
        known: &[usize],
        bytes: u64,
    ) -> Result<(), String> {
        let to = known
            .get(call.root)
            .ok_or_else(|| format!("there is no rank {}", call.root))?;
        let from = known[member.rank];
        if from == *to || bytes == 0 {
            return Ok(());
        }
        let name = format!("send-{}", call.line);
        let after = self.begin(call, &name);
        self.job.steps.push(Step::Transfer(Transfer {
            name,
            from: self.servers.host(from),
            to: self.servers.host(*to),
            bytes,
            after,
            start: Span::ZERO,
        }));
        Ok(())
    }

    fn collective(&mut self, call: &Call<'a>, known: &[usize], bytes: u64) -> Result<(), String> {
        let ranks = known.len() as u64;
        // NCCL counts the part of a rank, nccl-tests what is gathered or divided.
        let all = bytes.checked_mul(ranks).ok_or("the size is too large")?;
        let (kind, all_bytes) = match call.function {
            "AllReduce" => (Kind::AllReduce, bytes),
            "AllGather" => (Kind::AllGather, all),
            "ReduceScatter" => (Kind::ReduceScatter, all),
            "AlltoAll" | "AllToAll" => (Kind::AllToAll, all),
            "Broadcast" => (Kind::Broadcast, bytes),
            "Reduce" => (Kind::Reduce, bytes),
            other => {
                self.notes.insert(format!(
                    "{other} is no collective that rockery simulates: left out"
                ));
                return Ok(());
            }
        };
        if ranks < 2 || all_bytes == 0 {
            return Ok(());
        }
        let group = self.group(known);
        let name = format!("{}-{}", kind.name(), call.line);
        let mut fields = self.chosen(call.function, kind, bytes);
        if matches!(kind, Kind::Broadcast | Kind::Reduce) {
            let root = known
                .get(call.root)
                .ok_or_else(|| format!("there is no rank {}", call.root))?;
            fields.push(("root", crate::text::quote(self.servers.host(*root))));
        }
        let after = self.begin(call, &name);
        self.job.steps.push(Step::Collective(Collective {
            name,
            kind,
            group,
            bytes: all_bytes,
            fields,
            after,
            compute: Span::ZERO,
        }));
        Ok(())
    }

    /// What calls before this one began on its stream. Calls with one number are one group, side by side.
    fn begin(&mut self, call: &Call<'a>, name: &str) -> Vec<String> {
        let key = (call.handle.process, call.stream);
        let begun = self.last.entry(key).or_default();
        let is_beside = call.function == "Send" && begun.number == call.number;
        let after = match is_beside {
            true => Vec::new(),
            false => std::mem::take(&mut begun.names),
        };
        begun.number = call.number;
        begun.names.push(name.to_owned());
        after
    }

    fn group(&mut self, ranks: &[usize]) -> String {
        let group = self.servers.group(ranks);
        let known = self
            .job
            .groups
            .iter()
            .find(|(_, it)| it.hosts == group.hosts);
        if let Some((name, _)) = known {
            return name.clone();
        }
        let name = format!("communicator-{}", self.job.groups.len());
        self.job.groups.insert(name.clone(), group);
        name
    }

    /// What the log says of how a collective was carried out, by the bytes of a rank, where rockery has it.
    fn chosen(&mut self, function: &str, kind: Kind, bytes: u64) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        let Some(choice) = self.log.choices.get(&(function, bytes)) else {
            return fields;
        };
        let channels = choice.channels;
        match (&*choice.algorithm, kind) {
            ("tree", Kind::AllReduce) => {
                let algorithm = if channels > 1 { "double-tree" } else { "tree" };
                fields.push(("algorithm", crate::text::quote(algorithm)));
            }
            ("ring", _) if kind != Kind::AllToAll => {
                fields.push(("algorithm", "\"ring\"".to_owned()))
            }
            ("" | "p2p", _) => {}
            (other, _) => {
                let algorithm = other.to_ascii_uppercase();
                self.notes.insert(format!(
                    "{function} by {algorithm} is simulated as by the first algorithm of {}",
                    kind.name()
                ));
            }
        }
        if matches!(&*choice.protocol, "ll" | "ll128" | "simple") {
            fields.push(("protocol", crate::text::quote(&choice.protocol)));
        }
        // A double tree has two for each.
        let channels = match fields.first() {
            Some((_, algorithm)) if algorithm == "\"double-tree\"" => channels / 2 * 2,
            _ => channels,
        };
        if channels > 0 {
            fields.push(("channels", channels.to_string()));
        }
        fields
    }
}
