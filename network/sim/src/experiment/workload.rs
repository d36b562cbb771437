//! Senders and receivers of a workload.

use super::FLOWS_MAX;
use super::arrivals::{Arrivals, arrivals};
use crate::dice::Dice;
use crate::world::{Flow, Forgery, Transfer};
use fabric::Time;
use fabric_file::schema::{Operation, Pattern, Workload};
use fabric_file::{Document, FabricFile, FileError, Mistake, Network};

pub(super) fn pattern_name(pattern: Pattern) -> String {
    match pattern {
        Pattern::Pairs => "pairs",
        Pattern::Each => "each",
        Pattern::Permutation => "permutation",
        Pattern::Ring => "ring",
    }
    .to_owned()
}

/// The flows of a workload, in the order of its hosts.
pub(super) fn flows(
    document: &Document,
    field: &str,
    workload: &Workload,
    number: usize,
    network: &Network,
    file: &FabricFile,
) -> Result<Vec<Flow>, FileError> {
    let seed = file.seed;
    let wrong = |mistake, name: &str, what: String, instead: &str| {
        document.mistake(mistake, &format!("{field}.{name}"), what, instead)
    };
    let hosts = |name: &str, patterns: &[String]| {
        hosts(document, network, &format!("{field}.{name}"), patterns)
    };
    let (from, to) = (hosts("from", &workload.from)?, hosts("to", &workload.to)?);
    let mut dice = Dice::new(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    if let Some(load) = workload.load {
        let Some(end) = file.duration else {
            let what = "messages arrive without end, and the file gives no duration".to_owned();
            return Err(wrong(
                Mistake::Combination,
                "load",
                what,
                "add duration = \"10ms\"",
            ));
        };
        let all = Arrivals {
            workload,
            number: number as u32,
            load,
            end: Time(end.0.0),
            network,
        };
        return arrivals(&all, &from, &to, transfer(workload.operation), &mut dice).map_err(
            |what| {
                wrong(
                    Mistake::Limit,
                    "load",
                    what,
                    "a lower load or a shorter duration",
                )
            },
        );
    }
    let count = queue_pairs(workload, from.len(), to.len());
    if !(1..=FLOWS_MAX).contains(&count) {
        let what = format!("{count} queue pairs, where 1 to {FLOWS_MAX} can be");
        return Err(wrong(
            Mistake::Limit,
            "qps",
            what,
            "other hosts, or another number of queue pairs",
        ));
    }
    let pairs = match workload.pattern {
        Pattern::Pairs => from.iter().copied().zip(to.iter().copied()).collect(),
        Pattern::Each => each(&from, &to),
        Pattern::Permutation => permutation(&from, &to, &mut dice),
        Pattern::Ring => (0..from.len())
            .map(|index| (from[index], from[(index + 1) % from.len()]))
            .collect(),
    };
    let pairs: Vec<(u32, u32)> = pairs.into_iter().filter(|(from, to)| from != to).collect();
    if pairs.is_empty() {
        let what = "no host sends to another one".to_owned();
        return Err(wrong(
            Mistake::Combination,
            "from",
            what,
            "choose other hosts for from or to",
        ));
    }
    let message_bytes = u32::try_from(workload.message.0)
        .ok()
        .filter(|bytes| *bytes > 0 && *bytes <= 1 << 31);
    let message_bytes = message_bytes.ok_or_else(|| {
        wrong(
            Mistake::Value,
            "message",
            "a message has 1 byte to 2 GiB".to_owned(),
            "use more messages",
        )
    })?;
    let fits = |host: &u32| message_bytes <= network.hosts[*host as usize].nic.mtu;
    if workload.operation == Operation::Datagram && !from.iter().all(fits) {
        let what =
            format!("a datagram is one packet, and {message_bytes} bytes are more than the MTU");
        return Err(wrong(
            Mistake::Combination,
            "message",
            what,
            "at most the path MTU of the senders",
        ));
    }
    let forgery = forgery(document, field, workload, network)?;
    let flow = |(from, to): (u32, u32)| Flow {
        from,
        to,
        operation: transfer(workload.operation),
        message_bytes,
        messages: messages(workload, message_bytes),
        depth: workload.depth.max(1),
        start: Time(workload.start.0.0),
        workload: number as u32,
        forgery,
        trace: None,
    };
    let repeated = pairs
        .into_iter()
        .flat_map(|pair| std::iter::repeat_n(pair, workload.qps as usize));
    Ok(repeated.map(flow).collect())
}

/// The owner of the addresses in a workload's packets.
fn forgery(
    document: &Document,
    field: &str,
    workload: &Workload,
    network: &Network,
) -> Result<Forgery, FileError> {
    let (name, host, forge): (_, _, fn(u32) -> Forgery) =
        match (&workload.source_gid, &workload.source_mac) {
            (None, None) => return Ok(Forgery::None),
            (Some(host), None) => ("source-gid", host, Forgery::Gid),
            (None, Some(host)) => ("source-mac", host, Forgery::Mac),
            (Some(_), Some(_)) => {
                let what = "a forged GID and a forged MAC address are counted apart".to_owned();
                return Err(document.mistake(
                    Mistake::Combination,
                    field,
                    what,
                    "write two workloads",
                ));
            }
        };
    let field = format!("{field}.{name}");
    match hosts(document, network, &field, std::slice::from_ref(host))?[..] {
        [one] => Ok(forge(one)),
        _ => {
            let what = format!("\"{host}\" stands for several hosts");
            Err(document.mistake(Mistake::Value, &field, what, "name one"))
        }
    }
}

/// The number of queue pairs of a workload, before they are listed: two patterns on a large network match
/// billions of pairs of hosts.
fn queue_pairs(workload: &Workload, from: usize, to: usize) -> usize {
    let pairs = match workload.pattern {
        Pattern::Each => from.saturating_mul(to),
        Pattern::Pairs => from.min(to),
        Pattern::Permutation | Pattern::Ring => from,
    };
    pairs.saturating_mul(workload.qps as usize)
}

/// The hosts that match patterns.
pub(super) fn hosts(
    document: &Document,
    network: &Network,
    field: &str,
    patterns: &[String],
) -> Result<Vec<u32>, FileError> {
    let mut found = Vec::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let matching = network.hosts_matching(pattern);
        if matching.is_empty() {
            let what = format!("no host is called \"{pattern}\"");
            let field = format!("{field}[{index}]");
            return Err(document.mistake(Mistake::UnknownName, &field, what, &some_hosts(network)));
        }
        found.extend(matching);
        if found.len() > FLOWS_MAX {
            let what = format!("the patterns stand for more than {FLOWS_MAX} hosts");
            return Err(document.mistake(Mistake::Limit, field, what, "name each host once"));
        }
    }
    Ok(found)
}

fn some_hosts(network: &Network) -> String {
    let names: Vec<&str> = network
        .hosts
        .iter()
        .take(6)
        .map(|host| host.name.as_str())
        .collect();
    let more = if network.hosts.len() > names.len() {
        ", …"
    } else {
        ""
    };
    format!("there are {}{more}", names.join(", "))
}

const fn transfer(operation: Operation) -> Transfer {
    match operation {
        Operation::Write => Transfer::Write,
        Operation::Send => Transfer::Send,
        Operation::Read => Transfer::Read,
        Operation::UnreliableWrite => Transfer::UnreliableWrite,
        Operation::Datagram => Transfer::Datagram,
    }
}

fn messages(workload: &Workload, message_bytes: u32) -> u64 {
    let by_bytes = workload
        .bytes
        .map(|bytes| bytes.0.div_ceil(u64::from(message_bytes)).max(1));
    workload.messages.or(by_bytes).unwrap_or(u64::MAX)
}

fn each(from: &[u32], to: &[u32]) -> Vec<(u32, u32)> {
    from.iter()
        .flat_map(|from| to.iter().map(|to| (*from, *to)))
        .collect()
}

/// Receivers in random order, none twice, none its own sender where that can be avoided.
fn permutation(from: &[u32], to: &[u32], dice: &mut Dice) -> Vec<(u32, u32)> {
    let mut to = to.to_vec();
    for index in (1..to.len()).rev() {
        to.swap(index, dice.below(index as u64 + 1) as usize);
    }
    for index in 0..from.len().min(to.len()) {
        if from[index] == to[index] {
            // The receiver goes to another sender: receivers are in the list once, so it is not that sender's
            // own.
            let other = (index + 1) % to.len();
            to.swap(index, other);
        }
    }
    from.iter().copied().zip(to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_gives_everyone_one_sender_and_nobody_itself() {
        let hosts: Vec<u32> = (0..64).collect();
        for seed in 0..200 {
            let pairs = permutation(&hosts, &hosts, &mut Dice::new(seed));
            let mut receivers: Vec<u32> = pairs.iter().map(|(_, to)| *to).collect();
            receivers.sort_unstable();
            assert_eq!(receivers, hosts);
            assert!(pairs.iter().all(|(from, to)| from != to), "seed {seed}");
        }
    }
}
