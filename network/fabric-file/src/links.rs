//! The fabric file's table about links: rates, delays, faults, and times when a link is down.

use alloc::string::String;
use alloc::vec::Vec;
use fabric::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bandwidth, BitErrors, InfinibandSpeed, Length, Ratio, Timespan};

/// The rate of links that name none.
pub(super) const LINK_RATE: Rate = Rate::from_gbps(100);

/// A link between two ports, or equal links from several hosts or switches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Link")]
pub struct LinkTable {
    /// Its two ends: names of hosts and switches, or `switch:port` where ports have names. Ports
    /// of InfiniBand switches are numbers from 1 on. With `*` in the
    /// first, a link from each host or switch that matches.
    pub between: [String; 2],
    /// Bit rate of the link. Default: 100Gb/s.
    pub rate: Option<Bandwidth>,
    /// InfiniBand: width and speed of the link, in place of `rate`. Its rate is what is left after coding.
    /// Default: 4x EDR.
    pub infiniband: Option<InfinibandSpeed>,
    /// One-way delay; 1 us if neither this nor `length` is given.
    pub delay: Option<Timespan>,
    /// Length of the cable, instead of `delay`: 5 ns per metre.
    pub length: Option<Length>,
    /// Delay beyond that in the direction from the first end to the second: policers, middleboxes, longer
    /// paths.
    #[serde(default = "at_once")]
    pub extra_delay: Timespan,
    /// A random delay besides, for each packet of its own: packets then overtake each other. `extra-law` says
    /// how it is distributed.
    #[serde(default = "at_once")]
    pub extra_spread: Timespan,
    /// The distribution of the random delay.
    #[serde(default)]
    pub extra_law: Law,
    /// `pareto`: its shape, above 1; the smaller, the heavier the tail.
    #[serde(default = "heavy")]
    pub extra_shape: f64,
    /// `measured`: delays. In ascending order, the intervals between neighbours are equally likely, and
    /// values within them are uniformly distributed.
    #[serde(default)]
    pub extra_samples: Vec<Timespan>,
    /// Chance that a frame arrives damaged, independent of its length.
    #[serde(default = "never")]
    pub loss: Ratio,
    /// Chance that a bit arrives wrong, which damages the frame: longer frames more often. It is the residual
    /// error rate after forward error correction.
    #[serde(default)]
    pub bit_errors: BitErrors,
    /// Opcodes of the packets that the link is for, where it is one of several ways of equal cost between two
    /// switches: `["write-only"]`; `*` stands for anything (`"read-*"`). Packets take a link that names their
    /// opcode, others one that names none. Default: it is for all packets.
    #[serde(default)]
    pub opcodes: Vec<String>,
    /// Number of parallel links.
    #[serde(default = "one")]
    pub count: u32,
    /// Times when the link is down: frames sent then are lost. Routes stay as they are, unless `routing` has
    /// a `reaction`.
    #[serde(default)]
    pub down: Vec<Down>,
}

/// Distributions of random delays.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// Uniformly from zero to `extra-spread`.
    #[default]
    Uniform,
    /// Normally distributed around `extra-delay` with the standard deviation `extra-spread`, and never below
    /// zero.
    Normal,
    /// Exponentially distributed with the mean `extra-spread`.
    Exponential,
    /// Pareto-distributed: at least `extra-spread`, with the shape `extra-shape`.
    Pareto,
    /// By the measured delays of `extra-samples`.
    Measured,
}

/// A time, or times, when a link is down.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Down {
    /// Time at which the link goes down.
    pub at: Timespan,
    /// Duration of the outage.
    pub lasts: Timespan,
    /// Number of outages.
    #[serde(default = "one")]
    pub times: u32,
    /// Time from the start of one outage to the start of the next.
    #[serde(default = "at_once")]
    pub every: Timespan,
}

impl LinkTable {
    /// The rate at which packets pass.
    pub fn rate_of_packets(&self) -> Rate {
        let infiniband = self.infiniband.map(|speed| speed.0.rate());
        let rate = infiniband.or_else(|| self.rate.map(|rate| rate.0));
        rate.unwrap_or(LINK_RATE)
    }
}

fn at_once() -> Timespan {
    Timespan(Span::ZERO)
}

fn heavy() -> f64 {
    2.5
}

fn never() -> Ratio {
    Ratio(0)
}

fn one() -> u32 {
    1
}
