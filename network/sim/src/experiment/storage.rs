//! The pairs of hosts and targets that use storage.

use super::file_table::FileTable;
use crate::world::{DEPTH_MAX, Flow, FlowMarks, Forgery, IoLimits, Transfer};
use fabric::{Span, Time};
use fabric_file::hosts::{Access, Storage};
use fabric_file::{FileError, Mistake, Network};

/// Jobs of one table at most.
const JOBS_MAX: usize = 1 << 20;

/// The shortest timeout: each one takes a step of the simulation at least.
const IO_TIMEOUT_MIN: Span = Span::from_us(1);

/// The flows of a storage workload: one per job.
pub(super) fn flows(
    table: FileTable<'_>,
    storage: &Storage,
    number: usize,
    network: &Network,
) -> Result<Vec<Flow>, FileError> {
    let pairs = pairs(table, storage, network)?;
    let wrong = |name: &str, what: String, instead: &str| {
        Err(table.mistake(Mistake::Value, name, what, instead))
    };
    if storage.jobs == 0 {
        return wrong("jobs", format!("0 jobs, where 1 to {JOBS_MAX} can be"), "");
    }
    let block = u32::try_from(storage.block.0)
        .ok()
        .filter(|bytes| (512..=1 << 24).contains(bytes));
    let Some(message_bytes) = block else {
        let what = "an I/O has 512 bytes to 16 MiB".to_owned();
        return wrong("block", what, "write \"4KiB\"");
    };
    if !(1..=DEPTH_MAX).contains(&storage.depth) {
        let what = format!("{} is not from 1 to {DEPTH_MAX}", storage.depth);
        return wrong("depth", what, "");
    }
    if storage.io_timeout.0 < IO_TIMEOUT_MIN {
        let what = "an I/O may take 1 us at least".to_owned();
        return wrong("io-timeout", what, "write \"30s\", Linux' default");
    }
    let flow = |(from, to): (u32, u32)| Flow {
        from,
        to,
        operation: match storage.operation {
            Access::Read => Transfer::StorageRead,
            Access::Write => Transfer::StorageWrite,
        },
        message_bytes,
        messages: storage.ios.unwrap_or(u64::MAX),
        depth: storage.depth,
        start: Time(storage.start.0.0),
        workload: number as u32,
        forgery: Forgery::None,
        trace: None,
        marks: FlowMarks::default(),
        io: IoLimits {
            timeout: storage.io_timeout.0,
            reconnect: storage.reconnect_delay.0,
            retries: storage.max_retries,
        },
    };
    Ok(pairs
        .into_iter()
        .flat_map(|pair| std::iter::repeat_n(pair, storage.jobs as usize))
        .map(flow)
        .collect())
}

/// Hosts and the targets that they use, which speak the same protocol.
fn pairs(
    table: FileTable<'_>,
    storage: &Storage,
    network: &Network,
) -> Result<Vec<(u32, u32)>, FileError> {
    let wrong = |name: &str, what: String, instead: &str| {
        Err(table.mistake(Mistake::Value, name, what, instead))
    };
    let from = table.hosts(network, "from", &storage.from)?;
    let to = table.hosts(network, "to", &storage.to)?;
    // Checked before the pairs are listed: two patterns on a large network match billions.
    let jobs = from
        .len()
        .saturating_mul(to.len())
        .saturating_mul(storage.jobs as usize);
    if jobs > JOBS_MAX {
        let what = format!("{jobs} jobs, where 1 to {JOBS_MAX} can be");
        return wrong("jobs", what, "");
    }
    let pairs = from
        .iter()
        .flat_map(|from| to.iter().map(|to| (*from, *to)));
    let pairs: Vec<(u32, u32)> = pairs.filter(|(from, to)| from != to).collect();
    if pairs.is_empty() {
        let what = "no host uses storage of another one".to_owned();
        return wrong("from", what, "choose other hosts for from or to");
    }
    let protocol = |host: &u32| network.hosts[*host as usize].nic.protocol;
    let differs = |(from, to): &&(u32, u32)| protocol(from) != protocol(to);
    if let Some((from, to)) = pairs.iter().find(differs) {
        let name = |host: &u32| &network.hosts[*host as usize].name;
        let what = format!("{} and {} speak different protocols", name(from), name(to));
        return wrong("to", what, "nic.NAME.protocol is the same at both ends");
    }
    Ok(pairs)
}
