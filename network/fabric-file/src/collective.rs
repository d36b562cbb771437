//! The fabric file's groups of ranks, and the collectives and transfers that wait for each other.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use fabric::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bandwidth, Size, Timespan};

/// The group that a collective without `group` has; without a table it is all hosts.
pub const GROUP_OF_ALL: &str = "all";

/// The ranks of collectives, in order. Its collectives run one after the other, as those of a communicator of
/// NCCL, and its queue pairs stay: one for each channel and pair of ranks that exchange data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Group")]
pub struct GroupTable {
    /// Hosts, each of which is a rank: in the order of these names, and those of one pattern in the order of
    /// the network.
    pub hosts: Vec<String>,
    /// Ranks that stand side by side and are one server: they reach each other without the network. A host is
    /// then one of a server's adapters, as with `kind = "rail"`, with the processor behind it.
    pub ranks_per_server: u32,
    /// What joins the ranks of a server.
    pub local: LocalTable,
    /// DSCP of its data, in place of that of the sender's adapter, as for a workload.
    pub dscp: Option<u8>,
    /// Priority of its data within the adapter, in place of that of the sender's adapter, as for a workload.
    pub priority: Option<u8>,
}

/// What joins the ranks of a server, such as NVLink: from each rank to each other one. No packets are on it,
/// and data waits for the sender's own alone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Local")]
pub struct LocalTable {
    /// How fast a rank sends.
    pub rate: Bandwidth,
    /// From the last byte sent until the other rank has it.
    pub delay: Timespan,
}

/// A collective operation of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Collective {
    /// Its name, in results and for `after`.
    pub name: String,
    /// The collective operation that is carried out.
    pub kind: CollectiveKind,
    /// How its data travels. Default: the first that `kind` can have, as listed there.
    pub algorithm: Option<CollectiveAlgorithm>,
    /// Its ranks: a table `[group.NAME]`. `all` is every host unless there is such a table.
    #[serde(default = "all")]
    pub group: String,
    /// Bytes as nccl-tests count them: of the vector; of all ranks' parts together for `all-gather` and
    /// `reduce-scatter`, and of all that a rank has for the others and itself for `all-to-all`. A `barrier`
    /// has none.
    pub bytes: Option<Size>,
    /// `broadcast`, `reduce`: the host of the root. Default: the first rank.
    pub root: Option<String>,
    /// Channels: the data is divided among them, and each has queue pairs of its own. Default: 1; 2 with
    /// `double-tree`, which has an even number of them.
    pub channels: Option<u32>,
    /// How data is cut into messages: as NCCL's protocol of this name does.
    #[serde(default = "simple")]
    pub protocol: CollectiveProtocol,
    /// Bytes of data that one step of the algorithm moves at most, in place of those of `protocol`.
    pub chunk: Option<Size>,
    /// Messages of a chunk, in place of those of `protocol`: each is forwarded when it has arrived.
    pub slices: Option<u32>,
    /// Messages for which a receiver has buffers, per channel and sender, in place of those of `protocol`.
    pub credit: Option<u32>,
    /// Names of collectives and transfers that it waits for; patterns stand for several. Each rank waits for
    /// those that it takes part in, until all of their repetitions are over there.
    #[serde(default)]
    pub after: Vec<String>,
    /// Time that each rank computes before its part begins. A host computes for one collective or transfer at
    /// a time.
    #[serde(default = "at_once")]
    pub compute: Timespan,
    /// Time at which it may begin.
    #[serde(default = "at_once")]
    pub start: Timespan,
    /// Each rank begins each repetition up to so much later, by chance, as if it computed longer: processes
    /// do not come at once. The seed of the file decides.
    #[serde(default = "at_once")]
    pub start_jitter: Timespan,
    /// How often it is repeated, `compute` included.
    #[serde(default = "once")]
    pub repeat: u32,
}

/// The operation of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveKind {
    /// Every rank gets the sum of all ranks' vectors: `ring`, `tree`, `double-tree`, `halving-doubling`,
    /// `hierarchical`.
    AllReduce,
    /// Every rank gets its part of the sum: `ring`, `halving-doubling`, `direct`.
    ReduceScatter,
    /// Every rank gets the parts of all ranks: `ring`, `halving-doubling`, `direct`.
    AllGather,
    /// Every rank gets the root's vector: `ring`, which is a chain from the root.
    Broadcast,
    /// The root gets the sum of all ranks' vectors: `ring`, which is a chain to the root.
    Reduce,
    /// Every rank gets a part from each: `direct`.
    AllToAll,
    /// Every rank sends a vector to the next one, the last to the first, as nccl-tests' `sendrecv` does:
    /// `direct`.
    Send,
    /// No rank goes on before all have come: in each stage twice as many have been heard of (dissemination).
    /// In a group of one rank it is computing alone, as long as `compute`.
    Barrier,
}

/// How the data of a collective travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveAlgorithm {
    /// From each rank to the next one, the last to the first. Where servers have several ranks, each channel
    /// leaves and enters them at another rank, and goes from server to server between ranks of one place.
    Ring,
    /// Up a binary tree and down again, chunk by chunk and both ways at once: NCCL's, in which odd ranks are
    /// leaves.
    Tree,
    /// Two such trees, each with every other channel: ranks that have two children in one are leaves of the
    /// other, where the number of ranks is even.
    DoubleTree,
    /// Recursive halving and doubling: with partners at distances of 1, 2, 4 and so on. Where the number of
    /// ranks is no power of two, those beyond it give their vectors to others first, and get the result last;
    /// only `all-reduce` can do that.
    HalvingDoubling,
    /// Everyone sends to everyone else, to eight at a time, in NCCL's order.
    Direct,
    /// Reduce-scatter within each server, all-reduce of each part among the ranks that have the same place in
    /// their servers, all-gather within each server; each of them round a ring.
    Hierarchical,
}

/// The protocols of NCCL, by what they make of data on the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveProtocol {
    /// `Simple`: data as it is. Rings have chunks of 2 MiB in two slices, and buffers for four slices;
    /// `direct` has messages of 128 KiB, 64 KiB where a part is below 4 MiB, and 32 KiB below 512 KiB;
    /// everything else has chunks of 512 KiB, which are one slice, and buffers for eight.
    Simple,
    /// `LL`: a flag of 4 bytes behind each 4 bytes of data. Chunks of 32 KiB of data, and buffers for eight.
    Ll,
    /// `LL128`: a flag of 8 bytes behind each 120 bytes of data. Chunks of 576,000 bytes of data, and buffers
    /// for eight. Trees have shorter ones where there would be few.
    Ll128,
}

/// Data from one host to another, which waits for others and is waited for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Transfer")]
pub struct TransferTable {
    /// Its name, in results and for `after`.
    pub name: String,
    /// The host that sends.
    pub from: String,
    /// The host that receives. Transfers from one host to another with the same marks share a queue pair, and
    /// run one after the other.
    pub to: String,
    /// Bytes that are sent.
    pub bytes: Size,
    /// Bytes of one message. Default: as NCCL cuts them, 128 KiB; 64 KiB below 4 MiB, and 32 KiB below
    /// 512 KiB.
    pub chunk: Option<Size>,
    /// Messages for which the receiver has buffers.
    #[serde(default = "eight")]
    pub credit: u32,
    /// Names of collectives and transfers that it waits for; patterns stand for several. Sender and receiver
    /// wait for those that they take part in.
    #[serde(default)]
    pub after: Vec<String>,
    /// Time that the sender computes before.
    #[serde(default = "at_once")]
    pub compute: Timespan,
    /// Time at which it may begin.
    #[serde(default = "at_once")]
    pub start: Timespan,
    /// How often it is repeated, `compute` included.
    #[serde(default = "once")]
    pub repeat: u32,
    /// DSCP of its data, in place of that of the sender's adapter, as for a workload.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// Priority of its data within the adapter, in place of that of the sender's adapter, as for a workload.
    #[serde(default)]
    pub priority: Option<u8>,
}

impl Default for GroupTable {
    fn default() -> Self {
        Self {
            hosts: alloc::vec!["*".to_owned()],
            ranks_per_server: 1,
            local: LocalTable::default(),
            dscp: None,
            priority: None,
        }
    }
}

impl Default for LocalTable {
    fn default() -> Self {
        // The fourth generation of NVLink: 18 links of 25 GB/s for each processor and direction.
        Self {
            rate: Bandwidth(Rate::from_gbps(3_600)),
            delay: Timespan(Span::from_us(1)),
        }
    }
}

fn all() -> String {
    GROUP_OF_ALL.to_owned()
}

fn simple() -> CollectiveProtocol {
    CollectiveProtocol::Simple
}

fn at_once() -> Timespan {
    Timespan(Span::ZERO)
}

fn once() -> u32 {
    1
}

fn eight() -> u32 {
    8
}
