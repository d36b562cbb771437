//! The collectives and transfers of a file, each checked by itself.

use super::groups::Groups;
use super::{COMPUTE_MAX, FileTable, algorithm, cut};
use crate::world::{CollectiveWork, Job};
use fabric::Time;
use fabric_file::schema::{Collective, CollectiveKind, TransferTable};
use fabric_file::{Document, FabricFile, FileError, Mistake};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::Timespan;

/// Bytes of a collective at most: sums of a few such sizes still fit.
const BYTES_MAX: u64 = (1 << 63) - 1;

/// Channels of NCCL at most.
const CHANNELS_MAX: u32 = 64;

/// Rounds of a channel at most.
const ROUNDS_MAX: u64 = 1 << 31;

/// Collectives and transfers of a file at most.
const JOBS_MAX: usize = 1 << 20;

/// Pairs of one that waits and one that is waited for at most.
const WAITS_MAX: usize = 1 << 22;

/// A collective or a transfer of the file.
pub(super) struct Described {
    /// Its table in the file.
    pub(super) path: String,
    pub(super) name: String,
    pub(super) kind: Option<CollectiveKind>,
    pub(super) algorithm: &'static str,
    pub(super) group: Option<String>,
    /// Without what it waits for.
    pub(super) job: Job,
    /// Jobs that have to end before this one begins, by their place in the file.
    pub(super) after: Vec<usize>,
}

/// All jobs, collectives first.
pub(super) fn described(
    document: &Document,
    file: &FabricFile,
    groups: &mut Groups<'_>,
) -> Result<Vec<Described>, FileError> {
    let count = file.collective.len() + file.transfer.len();
    if count > JOBS_MAX {
        let what = format!("{count} collectives and transfers, and {JOBS_MAX} are the most");
        return Err(document.mistake(Mistake::Limit, "transfer", what, "write several files"));
    }
    let mut all = Vec::with_capacity(count);
    let mut waits: Vec<&[String]> = Vec::with_capacity(count);
    for (index, one) in file.collective.iter().enumerate() {
        let path = format!("collective[{index}]");
        all.push(collective(
            FileTable {
                document,
                path: &path,
            },
            one,
            groups,
        )?);
        waits.push(&one.after);
    }
    for (index, one) in file.transfer.iter().enumerate() {
        let path = format!("transfer[{index}]");
        all.push(transfer(
            FileTable {
                document,
                path: &path,
            },
            one,
            groups,
        )?);
        waits.push(&one.after);
    }
    let names = names(document, &all)?;
    let mut sum = 0;
    let mut after = Vec::with_capacity(count);
    for (index, patterns) in waits.into_iter().enumerate() {
        let table = FileTable {
            document,
            path: &all[index].path,
        };
        let found = waits_for(table, index, patterns, &names)?;
        sum += found.len();
        if sum > WAITS_MAX {
            let what = format!("the file has more than {WAITS_MAX} pairs that wait for each other");
            return Err(table.mistake(
                Mistake::Limit,
                "after",
                what,
                "wait for the last ones alone",
            ));
        }
        after.push(found);
    }
    for (one, after) in all.iter_mut().zip(after) {
        one.after = after;
    }
    Ok(all)
}

/// Their places by name; each has one of its own.
fn names<'a>(
    document: &Document,
    all: &'a [Described],
) -> Result<BTreeMap<&'a str, usize>, FileError> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, one) in all.iter().enumerate() {
        let table = FileTable {
            document,
            path: &one.path,
        };
        if one.name.is_empty() {
            let what = "a name is empty".to_owned();
            return Err(table.mistake(Mistake::Value, "name", what, "write one"));
        }
        if names.insert(&one.name, index).is_some() {
            let what = format!("another collective or transfer is called \"{}\"", one.name);
            let instead = "results and after need a name for each";
            return Err(table.mistake(Mistake::Combination, "name", what, instead));
        }
    }
    Ok(names)
}

/// Those that the names of `after` stand for. A pattern does not stand for the one that has it.
fn waits_for(
    table: FileTable<'_>,
    own: usize,
    patterns: &[String],
    names: &BTreeMap<&str, usize>,
) -> Result<Vec<usize>, FileError> {
    let mut found = Vec::new();
    for (place, pattern) in patterns.iter().enumerate() {
        let before = found.len();
        match names.get(pattern.as_str()) {
            Some(index) => found.push(*index),
            None if fabric_file::is_pattern(pattern) => {
                let matching = names
                    .iter()
                    .filter(|(name, index)| **index != own && fabric_file::matches(pattern, name));
                found.extend(matching.map(|(_, index)| *index));
            }
            None => {}
        }
        if found.len() == before {
            let what = format!("no collective or transfer is called \"{pattern}\"");
            let near = names.keys().take(6).copied().collect::<Vec<_>>().join(", ");
            let field = format!("after[{place}]");
            let instead = format!("there are {near}");
            return Err(table.mistake(Mistake::UnknownName, &field, what, &instead));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn collective(
    table: FileTable<'_>,
    one: &Collective,
    groups: &mut Groups<'_>,
) -> Result<Described, FileError> {
    let group = groups.named(table, &one.group)?;
    // Alone, a rank can only compute.
    if groups.ranks(group) < 2 && one.kind != CollectiveKind::Barrier {
        let what = format!(
            "the group {} has one rank, which exchanges nothing",
            one.group
        );
        let instead = "name two hosts at least; a barrier of one rank is computing alone";
        return Err(table.mistake(Mistake::Combination, "group", what, instead));
    }
    of_group(table, one, groups, group)
}

/// A collective of the group that has this number.
pub(super) fn of_group(
    table: FileTable<'_>,
    one: &Collective,
    groups: &mut Groups<'_>,
    group: u32,
) -> Result<Described, FileError> {
    let root = root(table, one, groups, group)?;
    let ranks = groups.ranks(group) as u32;
    let (work, algorithm) = algorithm::work(table, one, root, ranks)?;
    let bytes = match (one.kind, one.bytes) {
        (CollectiveKind::Barrier, None) => 0,
        (CollectiveKind::Barrier, Some(_)) => {
            let what = "a barrier moves no data".to_owned();
            return Err(table.mistake(Mistake::Combination, "bytes", what, "leave it out"));
        }
        (_, Some(bytes)) => check_bytes(table, bytes.0)?,
        (_, None) => {
            let what = "bytes is missing".to_owned();
            return Err(table.mistake(Mistake::Combination, "bytes", what, "how much is moved"));
        }
    };
    let channels = channels(table, one, work)?;
    let sizes = cut::Sizes {
        channel_bytes: bytes / u64::from(channels),
        part: match work {
            CollectiveWork::SendToNext => bytes,
            _ => bytes.div_ceil(u64::from(ranks)),
        },
        ranks,
        per_server: groups.per_server(group),
    };
    let cut = cut::of_collective(table, one, work, sizes)?;
    check_rounds(table, bytes, cut.chunk_bytes / u64::from(cut.slices))?;
    Ok(Described {
        path: table.path.to_owned(),
        name: one.name.clone(),
        kind: Some(one.kind),
        algorithm,
        group: Some(one.group.clone()),
        job: Job {
            group,
            work,
            bytes,
            channels,
            per_server: sizes.per_server,
            cut,
            turns: groups.turns(group, work),
            after: Vec::new(),
            compute: time_before(table, "compute", one.compute)?,
            root_computes: false,
            start: Time(one.start.0.0),
            jitter: time_before(table, "start-jitter", one.start_jitter)?,
            repeat: repeat(table, one.repeat)?,
        },
        after: Vec::new(),
    })
}

fn channels(
    table: FileTable<'_>,
    one: &Collective,
    work: CollectiveWork,
) -> Result<u32, FileError> {
    let is_double = matches!(work, CollectiveWork::TreeAllReduce { double: true });
    let channels = one.channels.unwrap_or(if is_double { 2 } else { 1 });
    let (what, instead) = match channels {
        1.. if work == CollectiveWork::Barrier && channels > 1 => {
            ("a barrier has one channel".to_owned(), "leave it out")
        }
        odd if is_double && odd % 2 == 1 => {
            (format!("{odd} channels for two trees"), "an even number")
        }
        1..=CHANNELS_MAX => return Ok(channels),
        _ => (format!("{channels} channels"), "1 to 64"),
    };
    Err(table.mistake(Mistake::Value, "channels", what, instead))
}

/// The rank of the root, for the operations that have one.
fn root(
    table: FileTable<'_>,
    one: &Collective,
    groups: &Groups<'_>,
    group: u32,
) -> Result<u32, FileError> {
    let Some(name) = &one.root else { return Ok(0) };
    if !matches!(one.kind, CollectiveKind::Broadcast | CollectiveKind::Reduce) {
        let what = "no rank is the root of this operation".to_owned();
        return Err(table.mistake(Mistake::Combination, "root", what, "leave it out"));
    }
    let host = host(table, groups, "root", name)?;
    let rank = groups.hosts(group).iter().position(|rank| *rank == host);
    rank.map(|rank| rank as u32).ok_or_else(|| {
        let what = format!("{name} is not in the group \"{}\"", one.group);
        table.mistake(Mistake::UnknownName, "root", what, "name one of its hosts")
    })
}

/// The one host of a name.
fn host(
    table: FileTable<'_>,
    groups: &Groups<'_>,
    field: &str,
    name: &str,
) -> Result<u32, FileError> {
    let patterns = [name.to_owned()];
    match table.hosts(groups.network, field, &patterns)?[..] {
        [one] => Ok(one),
        _ => {
            let what = format!("\"{name}\" stands for several hosts");
            Err(table.mistake(Mistake::Value, field, what, "name one"))
        }
    }
}

fn transfer(
    table: FileTable<'_>,
    one: &TransferTable,
    groups: &mut Groups<'_>,
) -> Result<Described, FileError> {
    let from = host(table, groups, "from", &one.from)?;
    let to = host(table, groups, "to", &one.to)?;
    if from == to {
        let what = format!("{} sends to itself", one.from);
        return Err(table.mistake(Mistake::Combination, "to", what, "name another host"));
    }
    let marks = table.marks(groups.network, one.dscp, one.priority)?;
    of_pair(table, one, groups.pair([from, to], marks))
}

/// A transfer between the two ranks of the group that has this number.
pub(super) fn of_pair(
    table: FileTable<'_>,
    one: &TransferTable,
    group: u32,
) -> Result<Described, FileError> {
    let bytes = check_bytes(table, one.bytes.0)?;
    let cut = cut::of_transfer(table, one)?;
    check_rounds(table, bytes, cut.chunk_bytes)?;
    Ok(Described {
        path: table.path.to_owned(),
        name: one.name.clone(),
        kind: None,
        algorithm: "send",
        group: None,
        job: Job {
            group,
            work: CollectiveWork::ChainBroadcast { root: 0 },
            bytes,
            channels: 1,
            per_server: 1,
            cut,
            turns: Arc::default(),
            after: Vec::new(),
            compute: time_before(table, "compute", one.compute)?,
            root_computes: true,
            start: Time(one.start.0.0),
            jitter: fabric::Span::ZERO,
            repeat: repeat(table, one.repeat)?,
        },
        after: Vec::new(),
    })
}

fn check_bytes(table: FileTable<'_>, bytes: u64) -> Result<u64, FileError> {
    let (what, instead) = match bytes {
        0 => ("nothing is moved", "1 byte at least"),
        1..=BYTES_MAX => return Ok(bytes),
        _ => ("2^63 bytes or more", "fewer bytes, and repeat"),
    };
    Err(table.mistake(Mistake::Value, "bytes", what.to_owned(), instead))
}

fn check_rounds(table: FileTable<'_>, bytes: u64, chunk: u64) -> Result<(), FileError> {
    if bytes / chunk <= ROUNDS_MAX {
        return Ok(());
    }
    let what = format!("{bytes} bytes in chunks of {chunk} are more than {ROUNDS_MAX} chunks");
    Err(table.mistake(
        Mistake::Limit,
        "bytes",
        what,
        "fewer bytes, or a larger chunk",
    ))
}

/// A time that a rank spends before its part begins.
fn time_before(
    table: FileTable<'_>,
    field: &str,
    time: Timespan,
) -> Result<fabric::Span, FileError> {
    if time.0 <= COMPUTE_MAX {
        return Ok(time.0);
    }
    let what = "more than an hour".to_owned();
    Err(table.mistake(Mistake::Value, field, what, "a shorter time"))
}

fn repeat(table: FileTable<'_>, repeat: u32) -> Result<u32, FileError> {
    if repeat > 0 {
        return Ok(repeat);
    }
    let what = "it is never done".to_owned();
    Err(table.mistake(Mistake::Value, "repeat", what, "1 at least"))
}
