//! The fabric file's `[[workload]]`.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use fabric::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Ratio, Size, Timespan};

/// Transfers between hosts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    /// Its name in results; the pattern's if not given.
    pub name: Option<String>,
    /// Which hosts send to which. Without it `from` and `to` are the same number of hosts, and the pattern is
    /// `pairs`.
    pub pattern: Option<Pattern>,
    /// `shift`: how many places further.
    #[serde(default = "one")]
    pub shift: u32,
    /// Hosts that send; `*` stands for anything in a name.
    #[serde(default = "everyone")]
    pub from: Vec<String>,
    /// Hosts that receive. For a READ, the hosts that data is read from.
    #[serde(default = "everyone")]
    pub to: Vec<String>,
    /// The operation that is posted.
    #[serde(default = "write")]
    pub operation: Operation,
    /// Bytes of one message.
    #[serde(default = "one_mebibyte")]
    pub message: Size,
    /// Messages of each queue pair; without it and without `bytes`, as many as the duration lasts.
    pub messages: Option<u64>,
    /// Bytes of each queue pair, instead of `messages`.
    pub bytes: Option<Size>,
    /// Outstanding messages of a queue pair.
    #[serde(default = "one")]
    pub depth: u32,
    /// Queue pairs per pair of hosts.
    #[serde(default = "one")]
    pub qps: u32,
    /// Time at which it begins.
    #[serde(default = "at_once")]
    pub start: Timespan,
    /// Messages arrive at random times (a Poisson process), as many as use this part of each sender's link,
    /// until the duration ends. Each has a queue pair of its own and goes to one of `to`; the pattern has no
    /// effect.
    pub load: Option<Ratio>,
    /// With `load`: messages come in groups, at random times. Those of a group come at once, from so many of
    /// `from` by chance, and go to one host; `load` is the part of each of `to`'s links that they use.
    pub incast: Option<u32>,
    /// With `load`: the distribution of message lengths; without it all have the length `message`.
    pub sizes: Option<Sizes>,
    /// With `load`: a file with another distribution of lengths. Each line has bytes, and how many of a
    /// hundred messages are not longer: `4096 52.5`. Both grow from line to line, up to 100. Between two
    /// lines lengths are uniformly distributed.
    pub sizes_file: Option<String>,
    /// A file that lists transfers, one a line below a head: `from,to,bytes,start_ns`. Each has a queue pair
    /// of its own, and begins so many nanoseconds after `start`. Besides, only `operation`, `start`, `dscp`
    /// and `priority` have an effect.
    pub flows: Option<String>,
    /// A connection matrix of htsim (a `.cm` file): each connection is a message with a queue pair of its
    /// own. Node 0 is the first host of the network, and so on. Besides, only `operation`, `start`,
    /// `start-unit`, `dscp` and `priority` have an effect. Triggers and failures are refused.
    pub connections: Option<String>,
    /// With `connections`: the unit of its start times, which count from `start`. Some of htsim's programs
    /// take microseconds, others picoseconds.
    #[serde(default = "one_microsecond")]
    pub start_unit: Timespan,
    /// A record of verbs calls (`rockery run --record`): each queue pair that the
    /// recorded program posted to becomes one between each pair of hosts, and posts the same requests.
    /// Besides, only `from`, `to`, `pattern`, `qps` and `start` have an effect.
    pub replay: Option<String>,
    /// With `replay`: whether the program's time between its calls is replayed, and its wait for messages of
    /// its peer. Otherwise requests wait for completions alone.
    #[serde(default = "yes")]
    pub gaps: bool,
    /// DSCP of its data, in place of that of the sender's adapter. Acknowledgements have it too, where the
    /// receiver's adapter gives them that of its data.
    pub dscp: Option<u8>,
    /// Priority of its data within the adapter, in place of that of the sender's adapter: its queue, and the
    /// pause frames that stop it. Queue pairs of an adapter take turns, whatever their priority; one whose
    /// priority is paused lets the others go first. Tagged frames have it as their priority code point.
    pub priority: Option<u8>,
    /// A host whose GID replaces the source GID in packets of `from`. Functions with `spoof-check` drop such
    /// packets.
    pub source_gid: Option<String>,
    /// A host whose MAC address replaces the source address in frames of `from`.
    pub source_mac: Option<String>,
}

/// Published distributions of message lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Web search (Alizadeh et al., DCTCP, SIGCOMM 2010): up to 30 MB, 1.7 MB on average.
    WebSearch,
    /// Storage (Alibaba's block storage, 2019, with HPCC's model): up to 2 MB, most below 8 kB.
    Storage,
}

/// Which hosts send to which.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// The first of `from` to the first of `to`, the second to the second, and so on. Both have the same
    /// number of hosts.
    Pairs,
    /// Each of `from` to each of `to`, but not to itself: with one receiver, an incast.
    Each,
    /// Each of `from` to a random one of `to`, none of which is chosen twice, and none to itself. There are
    /// at least as many receivers as senders.
    Permutation,
    /// Each of `from` to the next one, the last to the first. `to` has no effect.
    Ring,
    /// Each of `from` to the one that is `shift` places further, around the end of the list. `to` has no
    /// effect.
    Shift,
    /// `from` is divided into two halves at random: each host of one half and a random one of the other send
    /// to each other. `to` has no effect.
    Bisection,
}

/// The operation that a workload posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// RDMA WRITE on a reliable connection.
    Write,
    /// SEND on a reliable connection.
    Send,
    /// RDMA READ on a reliable connection.
    Read,
    /// RDMA WRITE over an unreliable connection: lost packets are not sent again.
    UnreliableWrite,
    /// SEND as unreliable datagrams (UD): messages of one packet, which are not sent again when lost.
    Datagram,
}

fn yes() -> bool {
    true
}

fn at_once() -> Timespan {
    Timespan(Span::ZERO)
}

fn one_microsecond() -> Timespan {
    Timespan(Span::from_us(1))
}

fn one() -> u32 {
    1
}

fn one_mebibyte() -> Size {
    Size(1 << 20)
}

fn write() -> Operation {
    Operation::Write
}

fn everyone() -> Vec<String> {
    alloc::vec!["*".to_owned()]
}
