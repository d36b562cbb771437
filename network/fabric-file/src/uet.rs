//! The fabric file's tables about Ultra Ethernet: transport of adapters, trimming by switches.

use fabric::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Size, Timespan};

/// The transport of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// InfiniBand's reliable connection, over UDP: RoCEv2.
    Rc,
    /// Ultra Ethernet's reliable unordered delivery (RUD), in simulations, for workloads of WRITEs: packets
    /// take paths one by one and arrive in any order, and receivers ask for those that were trimmed.
    Uet,
}

/// Ultra Ethernet's transport.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Uet {
    /// How a packet's path is chosen: by its entropy value, which is its UDP source port.
    pub entropy: EntropyKind,
    /// Entropy values of a flow, a power of two. With 1 the flow stays on one path.
    pub values: u16,
    /// A receiver acknowledges at least after so many bytes; and the first packet, marked ones, those of
    /// which it was asked to, and duplicates.
    pub ack_bytes: Size,
    /// A packet that is neither acknowledged nor asked for is sent again after this time, and after twice as
    /// long each further time, `retries` times.
    pub timeout: Timespan,
}

/// How entropy values are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EntropyKind {
    /// All values in turn, in an order that changes from round to round.
    Oblivious,
    /// The same, but values whose packets were marked, trimmed or lost are passed over for some rounds.
    Bitmap,
    /// REPS (Bonato et al., 2024): values whose packets arrived without a mark are used again, others are
    /// drawn by chance.
    Reps,
    /// A value that was good, as REPS, and where there is none, that of the bitmap.
    Mixed,
}

/// Trimming of a queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Trim")]
pub struct TrimTable {
    /// A packet with which more bytes than this would wait is trimmed: one bandwidth-delay product, or more
    /// at a host's port.
    pub at: Size,
    /// The length that packets are cut to, check sequence included.
    pub to: Size,
    /// The queue in which trimmed packets go on.
    pub queue: u8,
    /// The DSCP that they get. Default: the lowest that the table's `dscp` gives that queue.
    pub dscp: Option<u8>,
}

impl Default for Uet {
    fn default() -> Self {
        Self {
            entropy: EntropyKind::Reps,
            values: 64,
            ack_bytes: Size(16 << 10),
            timeout: Timespan(Span::from_us(100)),
        }
    }
}

impl Default for TrimTable {
    /// One bandwidth-delay product of 100 Gb/s and 12 us, for which the specification gives constants.
    fn default() -> Self {
        Self {
            at: Size(150_000),
            to: Size(64),
            queue: 6,
            dscp: None,
        }
    }
}
