//! The fabric file's `[[workload]]`.

use super::units::{Ratio, Size, Timespan};
use crate::time::Span;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Transfers between hosts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    /// Its name in results; the pattern's if not given.
    pub name: Option<String>,
    /// Which hosts send to which.
    #[serde(default = "pairs")]
    pub pattern: Pattern,
    /// Hosts that send; `*` stands for anything in a name.
    #[serde(default = "everyone")]
    pub from: Vec<String>,
    /// Hosts that receive. For a READ, those that are read from.
    #[serde(default = "everyone")]
    pub to: Vec<String>,
    /// What is posted.
    #[serde(default = "write")]
    pub operation: Operation,
    /// Bytes of one message.
    #[serde(default = "one_mebibyte")]
    pub message: Size,
    /// Messages of each queue pair; without it and without `bytes`, as many as the duration lasts.
    pub messages: Option<u64>,
    /// Bytes of each queue pair, instead of `messages`.
    pub bytes: Option<Size>,
    /// Messages that a queue pair has posted at once.
    #[serde(default = "one")]
    pub depth: u32,
    /// Queue pairs per pair of hosts.
    #[serde(default = "one")]
    pub qps: u32,
    /// When it begins.
    #[serde(default = "at_once")]
    pub start: Timespan,
    /// Messages arrive at random times (Poisson), as many as use this part of each sender's link, until the
    /// duration ends (a Poisson process). Each has a queue pair of its own and goes to one of `to`; the
    /// pattern does not matter.
    pub load: Option<Ratio>,
    /// With `load`: how long messages are; without it all are as `message` says.
    pub sizes: Option<Sizes>,
    /// A record of verbs calls (`rockery run --record`), relative to this file: each queue pair that the
    /// recorded program posted to becomes one between each pair of hosts, and posts the same requests. Only
    /// `from`, `to`, `pattern`, `qps` and `start` count besides.
    pub replay: Option<String>,
    /// With `replay`: what the program took between its calls counts, and its wait for messages of its peer.
    /// Otherwise requests wait for completions alone.
    #[serde(default = "yes")]
    pub gaps: bool,
    /// A host whose GID the packets of `from` bear in place of their own. Functions with `spoof-check` drop
    /// them.
    pub source_gid: Option<String>,
    /// A host whose MAC address the frames of `from` bear in place of their own.
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
    /// The first of `from` to the first of `to`, the second to the second, and so on.
    Pairs,
    /// Each of `from` to each of `to`, but not to itself: with one receiver, an incast.
    Each,
    /// Each of `from` to a random one of them, none twice, none to itself.
    Permutation,
    /// Each of `from` to the next one, the last to the first.
    Ring,
}

/// What is posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// RDMA WRITE on a reliable connection.
    Write,
    /// SEND on a reliable connection.
    Send,
    /// RDMA READ on a reliable connection.
    Read,
    /// RDMA WRITE over an unreliable connection: what is lost stays so.
    UnreliableWrite,
    /// SEND as unreliable datagrams (UD): messages of one packet. What is lost stays so.
    Datagram,
}

fn yes() -> bool {
    true
}

fn at_once() -> Timespan {
    Timespan(Span::ZERO)
}

fn one() -> u32 {
    1
}

fn one_mebibyte() -> Size {
    Size(1 << 20)
}

fn pairs() -> Pattern {
    Pattern::Pairs
}

fn write() -> Operation {
    Operation::Write
}

fn everyone() -> Vec<String> {
    alloc::vec!["*".to_owned()]
}
