//! Senders and receivers of a workload.

use super::FLOWS_MAX;
use super::arrivals::{Arrivals, arrivals};
use super::file_table::FileTable;
use super::size_table::SizeTable;
use crate::random::RunRng;
use crate::world::{Flow, FlowMarks, Forgery, IoLimits, Transfer};
use fabric::Time;
use fabric_file::schema::{Operation, Pattern, Workload};
use fabric_file::{FabricFile, FileError, Mistake, Network};
use units::Ratio;

/// The pattern of a workload that names none.
const PATTERN: Pattern = Pattern::Pairs;

/// The name of a workload that has none of its own.
pub(super) fn pattern_name(workload: &Workload) -> String {
    match workload.pattern.unwrap_or(PATTERN) {
        Pattern::Pairs => "pairs",
        Pattern::Each => "each",
        Pattern::Permutation => "permutation",
        Pattern::Ring => "ring",
        Pattern::Shift => "shift",
        Pattern::Bisection => "bisection",
    }
    .to_owned()
}

/// The flows of a workload, in the order of its hosts.
pub(super) fn flows(
    table: FileTable<'_>,
    workload: &Workload,
    number: usize,
    network: &Network,
    file: &FabricFile,
    sizes: Option<SizeTable>,
) -> Result<Vec<Flow>, FileError> {
    let input = FlowInput {
        table,
        workload,
        number: number as u32,
        network,
        from: table.hosts(network, "from", &workload.from)?,
        to: table.hosts(network, "to", &workload.to)?,
        sizes,
    };
    let seed = file.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut rng = RunRng::new(seed);
    if let Some(load) = workload.load {
        return input.arriving(load, file, &mut rng);
    }
    input.check_amount()?;
    let pairs = input.pairs(&mut rng)?;
    let message_bytes = input.message_bytes()?;
    let forgery = input.forgery()?;
    let flow = |(from, to): (u32, u32)| Flow {
        from,
        to,
        operation: transfer(workload.operation),
        message_bytes,
        messages: messages(workload, message_bytes),
        depth: workload.depth,
        start: Time(workload.start.0.0),
        workload: number as u32,
        forgery,
        trace: None,
        io: IoLimits::LINUX,
        marks: FlowMarks::default(),
    };
    let repeated = pairs
        .into_iter()
        .flat_map(|pair| std::iter::repeat_n(pair, workload.qps as usize));
    Ok(repeated.map(flow).collect())
}

/// What the flows of a workload are made from.
struct FlowInput<'a> {
    table: FileTable<'a>,
    workload: &'a Workload,
    number: u32,
    network: &'a Network,
    from: Vec<u32>,
    to: Vec<u32>,
    sizes: Option<SizeTable>,
}

impl FlowInput<'_> {
    /// Checks how much each queue pair sends, and how much of it at a time.
    fn check_amount(&self) -> Result<(), FileError> {
        let Workload {
            messages,
            bytes,
            depth,
            ..
        } = self.workload;
        let (mistake, field, what, instead) = match (messages, bytes) {
            (Some(_), Some(_)) => (
                Mistake::Combination,
                "bytes",
                "messages says how much is sent, and bytes as well",
                "leave one of them out",
            ),
            (Some(0), None) => (Mistake::Value, "messages", "nothing is sent", "at least 1"),
            _ if *depth == 0 => (
                Mistake::Value,
                "depth",
                "nothing is ever posted",
                "at least 1",
            ),
            _ => return Ok(()),
        };
        Err(self.table.mistake(mistake, field, what.to_owned(), instead))
    }

    /// Messages that arrive at random times until the run ends.
    fn arriving(
        &self,
        load: Ratio,
        file: &FabricFile,
        rng: &mut RunRng,
    ) -> Result<Vec<Flow>, FileError> {
        self.check_incast()?;
        match &self.sizes {
            None => _ = self.message_bytes()?,
            Some(_) if self.workload.operation == Operation::Datagram => {
                let what = "a datagram is one packet, and these lengths are more".to_owned();
                let instead = "leave out sizes, and give message";
                return Err(self
                    .table
                    .mistake(Mistake::Combination, "sizes", what, instead));
            }
            Some(_) => {}
        }
        let Some(end) = file.duration else {
            let what = "messages arrive without end, and the file gives no duration".to_owned();
            let instead = "add duration = \"10ms\"";
            return Err(self
                .table
                .mistake(Mistake::Combination, "load", what, instead));
        };
        let all = Arrivals {
            workload: self.workload,
            number: self.number,
            load,
            sizes: self.sizes.as_ref(),
            end: Time(end.0.0),
            network: self.network,
        };
        let operation = transfer(self.workload.operation);
        arrivals(&all, &self.from, &self.to, operation, rng).map_err(|what| {
            let instead = "a lower load or a shorter duration";
            self.table.mistake(Mistake::Limit, "load", what, instead)
        })
    }

    /// Every receiver has as many senders as send at once.
    fn check_incast(&self) -> Result<(), FileError> {
        let Some(senders) = self.workload.incast else {
            return Ok(());
        };
        let count = |receiver: &u32| self.from.iter().filter(|from| *from != receiver).count();
        let lacks = |receiver: &&u32| count(receiver) < senders as usize;
        let (mistake, what, instead) = match self.to.iter().find(lacks) {
            _ if senders < 2 => {
                let what = format!("{senders} at once is no incast");
                (Mistake::Value, what, "2 at least")
            }
            Some(receiver) => {
                let name = &self.network.hosts[*receiver as usize].name;
                let there = count(receiver);
                let what = format!("{name} has {there} senders, and {senders} are to send at once");
                (
                    Mistake::Combination,
                    what,
                    "more hosts in from, or fewer at once",
                )
            }
            None => return Ok(()),
        };
        Err(self.table.mistake(mistake, "incast", what, instead))
    }

    /// Senders and receivers by the workload's pattern, without those that are one host.
    fn pairs(&self, rng: &mut RunRng) -> Result<Vec<(u32, u32)>, FileError> {
        let (from, to) = (&self.from, &self.to);
        let count = queue_pairs(self.workload, from.len(), to.len());
        if !(1..=FLOWS_MAX).contains(&count) {
            let what = format!("{count} queue pairs, where 1 to {FLOWS_MAX} can be");
            let instead = "other hosts, or another number of queue pairs";
            return Err(self.table.mistake(Mistake::Limit, "qps", what, instead));
        }
        let pattern = self.pattern()?;
        let pairs = match pattern {
            Pattern::Pairs => from.iter().copied().zip(to.iter().copied()).collect(),
            Pattern::Each => each(from, to),
            Pattern::Permutation => permutation(from, to, rng),
            Pattern::Ring => shift(from, 1),
            Pattern::Shift => shift(from, self.workload.shift as usize),
            Pattern::Bisection => bisection(from, rng),
        };
        let own = pairs.iter().find(|(from, to)| from == to).copied();
        let pairs: Vec<(u32, u32)> = pairs.into_iter().filter(|(from, to)| from != to).collect();
        if let Some((host, _)) = own.filter(|_| pattern == Pattern::Pairs && !pairs.is_empty()) {
            let host = &self.network.hosts[host as usize].name;
            let what = format!("{host} has the same place in from and in to, and sends nothing");
            let instead = "put the hosts in another order, or write another pattern";
            return Err(self
                .table
                .mistake(Mistake::Combination, "from", what, instead));
        }
        if pairs.is_empty() {
            let what = "no host sends to another one".to_owned();
            let instead = "choose other hosts for from or to, or another pattern";
            return Err(self
                .table
                .mistake(Mistake::Combination, "from", what, instead));
        }
        Ok(pairs)
    }

    /// The pattern, by which each host of both lists is in a pair.
    fn pattern(&self) -> Result<Pattern, FileError> {
        let (from, to) = (self.from.len(), self.to.len());
        let pattern = self.workload.pattern;
        let hosts = |count| if count == 1 { "host" } else { "hosts" };
        let counts = format!("from is {from} {}, and to is {to}", hosts(from));
        let (what, instead) = match pattern {
            None if from != to => (
                format!("{counts}: a pattern says which of them send to which"),
                "write pattern = \"each\": each of from sends to each of to",
            ),
            Some(Pattern::Pairs) if from != to => (
                format!("{counts}: pairs would leave some of them out"),
                "write \"each\", or as many hosts in both",
            ),
            Some(Pattern::Permutation) if from > to => (
                format!(
                    "{counts}: no receiver is chosen twice, and some of from would send nothing"
                ),
                "write \"each\", or as many receivers as senders",
            ),
            pattern => return Ok(pattern.unwrap_or(PATTERN)),
        };
        Err(self
            .table
            .mistake(Mistake::Combination, "pattern", what, instead))
    }

    /// The length of each message. A datagram is one packet.
    fn message_bytes(&self) -> Result<u32, FileError> {
        let bytes = u32::try_from(self.workload.message.0)
            .ok()
            .filter(|bytes| *bytes > 0 && *bytes <= 1 << 31);
        let Some(bytes) = bytes else {
            let what = "a message has 1 byte to 2 GiB".to_owned();
            return Err(self
                .table
                .mistake(Mistake::Value, "message", what, "use more messages"));
        };
        let fits = |host: &u32| bytes <= self.network.hosts[*host as usize].nic.mtu;
        if self.workload.operation == Operation::Datagram && !self.from.iter().all(fits) {
            let what = format!("a datagram is one packet, and {bytes} bytes are more than the MTU");
            let instead = "at most the path MTU of the senders";
            return Err(self
                .table
                .mistake(Mistake::Combination, "message", what, instead));
        }
        Ok(bytes)
    }

    /// The owner of the addresses in the packets.
    fn forgery(&self) -> Result<Forgery, FileError> {
        let (name, host, forge): (_, _, fn(u32) -> Forgery) =
            match (&self.workload.source_gid, &self.workload.source_mac) {
                (None, None) => return Ok(Forgery::None),
                (Some(host), None) => ("source-gid", host, Forgery::Gid),
                (None, Some(host)) => ("source-mac", host, Forgery::Mac),
                (Some(_), Some(_)) => {
                    let what = "a forged GID and a forged MAC address are counted apart".to_owned();
                    return Err(self.table.document.mistake(
                        Mistake::Combination,
                        self.table.path,
                        what,
                        "write two workloads",
                    ));
                }
            };
        let patterns = std::slice::from_ref(host);
        match self.table.hosts(self.network, name, patterns)?[..] {
            [one] => Ok(forge(one)),
            _ => {
                let what = format!("\"{host}\" stands for several hosts");
                Err(self.table.mistake(Mistake::Value, name, what, "name one"))
            }
        }
    }
}

/// The number of queue pairs of a workload, before they are listed: two patterns on a large network match
/// billions of pairs of hosts.
fn queue_pairs(workload: &Workload, from: usize, to: usize) -> usize {
    let pairs = match workload.pattern.unwrap_or(PATTERN) {
        Pattern::Each => from.saturating_mul(to),
        Pattern::Pairs => from.min(to),
        Pattern::Permutation | Pattern::Ring | Pattern::Shift | Pattern::Bisection => from,
    };
    pairs.saturating_mul(workload.qps as usize)
}

pub(super) const fn transfer(operation: Operation) -> Transfer {
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

/// The hosts in random order (Fisher and Yates).
fn shuffled(hosts: &[u32], rng: &mut RunRng) -> Vec<u32> {
    let mut order = hosts.to_vec();
    for index in (1..order.len()).rev() {
        order.swap(index, rng.below(index as u64 + 1) as usize);
    }
    order
}

/// Receivers in random order, none twice, none its own sender where that can be avoided.
fn permutation(from: &[u32], to: &[u32], rng: &mut RunRng) -> Vec<(u32, u32)> {
    let mut to = shuffled(to, rng);
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

/// Each to the one that is so many places further.
fn shift(hosts: &[u32], places: usize) -> Vec<(u32, u32)> {
    let to = |index: usize| hosts[(index + places) % hosts.len()];
    (0..hosts.len())
        .map(|index| (hosts[index], to(index)))
        .collect()
}

/// Two halves by chance, with pairs across that send to each other. One of an odd number is left over.
fn bisection(hosts: &[u32], rng: &mut RunRng) -> Vec<(u32, u32)> {
    let order = shuffled(hosts, rng);
    let (one, other) = order.split_at(order.len() / 2);
    let pairs = one.iter().copied().zip(other.iter().copied());
    pairs
        .flat_map(|(one, other)| [(one, other), (other, one)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bisection_pairs_all_across_two_halves() {
        let hosts: Vec<u32> = (10..41).collect();
        let pairs = bisection(&hosts, &mut RunRng::new(1));
        assert_eq!(pairs.len(), 30);
        let mut senders: Vec<u32> = pairs.iter().map(|(from, _)| *from).collect();
        senders.sort_unstable();
        senders.dedup();
        assert_eq!(senders.len(), 30);
        assert!(pairs.iter().all(|(from, to)| pairs.contains(&(*to, *from))));
        assert_ne!(pairs, bisection(&hosts, &mut RunRng::new(2)));
    }

    #[test]
    fn a_shift_goes_around_the_end() {
        assert_eq!(shift(&[5, 6, 7], 2), [(5, 7), (6, 5), (7, 6)]);
    }

    #[test]
    fn a_permutation_gives_each_host_one_sender_other_than_itself() {
        let hosts: Vec<u32> = (0..64).collect();
        for seed in 0..200 {
            let pairs = permutation(&hosts, &hosts, &mut RunRng::new(seed));
            let mut receivers: Vec<u32> = pairs.iter().map(|(_, to)| *to).collect();
            receivers.sort_unstable();
            assert_eq!(receivers, hosts);
            assert!(pairs.iter().all(|(from, to)| from != to), "seed {seed}");
        }
    }
}
