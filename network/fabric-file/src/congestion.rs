//! The fabric file's tables about congestion control.

use fabric::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bandwidth, Ratio, Size, Timespan};

/// The congestion control algorithm of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Congestion {
    /// None: the window alone.
    Off,
    /// A window that shrinks on loss: for networks that drop.
    Window,
    /// DCQCN (Zhu et al., SIGCOMM 2015).
    Dcqcn,
    /// Swift (Kumar et al., SIGCOMM 2020): a window steered by delay. `window` is where it begins, and its
    /// largest.
    Swift,
    /// HPCC (Li et al., SIGCOMM 2019): a window steered by telemetry of queues and links that switches write
    /// into packets. Each packet of data and each acknowledgement is 42 bytes longer for that.
    Hpcc,
    /// TIMELY (Mittal et al., SIGCOMM 2015): a rate steered by whether round trips become longer.
    Timely,
    /// DCTCP (RFC 8257), as the window of a queue pair: receivers acknowledge each packet, and say which ones
    /// were marked. `window` is where it begins, and its largest. Both ends of a connection need it.
    Dctcp,
    /// NSCC, of `transport = "uet"`: a window at the sender, steered by delay and marks (Ultra Ethernet 1.0,
    /// section 3.6.13).
    Nscc,
    /// RCCC, of `transport = "uet"`: credits from the receiver (section 3.6.14). `window` limits what is
    /// under way.
    Rccc,
    /// Both: a packet leaves when the window and the credit allow it.
    NsccRccc,
}

impl Congestion {
    /// Those of reliable connections.
    pub const RC: [Self; 7] = [
        Self::Off,
        Self::Window,
        Self::Dcqcn,
        Self::Swift,
        Self::Hpcc,
        Self::Timely,
        Self::Dctcp,
    ];

    /// Its name in the file, which is that of the table with its parameters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Window => "window",
            Self::Dcqcn => "dcqcn",
            Self::Swift => "swift",
            Self::Hpcc => "hpcc",
            Self::Timely => "timely",
            Self::Dctcp => "dctcp",
            Self::Nscc => "nscc",
            Self::Rccc => "rccc",
            Self::NsccRccc => "nscc-rccc",
        }
    }

    /// Whether a table has the parameters of one of [`Self::RC`].
    pub(crate) fn has_table(name: &str) -> bool {
        let mut all = Self::RC.into_iter();
        all.any(|one| one.name() == name && !matches!(one, Self::Off | Self::Window))
    }

    /// Whether Ultra Ethernet's transport has it.
    pub const fn is_of_uet(self) -> bool {
        matches!(self, Self::Off) || self.has_nscc() || self.has_rccc()
    }

    /// Whether NSCC decides, or is among those that do.
    pub const fn has_nscc(self) -> bool {
        matches!(self, Self::Nscc | Self::NsccRccc)
    }

    /// Whether the receiver grants credit.
    pub const fn has_rccc(self) -> bool {
        matches!(self, Self::Rccc | Self::NsccRccc)
    }
}

/// Parameters of NSCC.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Nscc {
    /// The round trip of a full packet in the empty network, on the longest path. Default: computed for the
    /// flows of the file. It also gives the first window of RCCC.
    pub base_rtt: Option<Timespan>,
    /// The target for the delay in queues. Default: three quarters of `base-rtt`, as for networks that trim.
    pub target: Option<Timespan>,
}

/// Parameters of HPCC.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Hpcc {
    /// T: a round trip in the empty network, a little more than the longest.
    pub base_rtt: Timespan,
    /// eta: the target utilisation of links.
    pub utilisation: Ratio,
    /// maxStage: round trips in a row in which the window only grows by steps.
    pub stages: u8,
    /// W_AI: bytes that the window grows by in a step.
    pub additive: Size,
}

/// Parameters of Swift.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Swift {
    /// The delay, from a packet's departure to its acknowledgement, below which the window grows: without
    /// hops and with a large window.
    pub target: Timespan,
    /// Growth of the target for each switch on the path. The hop limits of acknowledgements give their
    /// number.
    pub hop: Timespan,
    /// fs_range: the most by which the target grows as the window shrinks, so that many senders to one
    /// receiver aim at a longer delay than few. `"0us"` turns this off.
    pub flow_range: Timespan,
    /// fs_min_cwnd: the window at which the target has grown by `flow-range`, as a part of a packet.
    pub flow_min: Ratio,
    /// fs_max_cwnd: the window in packets above which the target does not grow.
    pub flow_max: u16,
    /// ai: growth of the window per round trip.
    pub additive: Size,
    /// beta: how strongly the window shrinks with the part of the delay that is above the target.
    pub beta: Ratio,
    /// max_mdf: the largest part by which the window shrinks at once, which is once per round trip.
    pub max_decrease: Ratio,
}

/// Parameters of TIMELY.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Timely {
    /// The lowest rate.
    pub minimum_rate: Bandwidth,
    /// Bytes of a segment: a round trip is measured for each, at its last packet, and once in a round trip at
    /// most.
    pub segment: Size,
    /// alpha: weight of a new difference between round trips.
    pub alpha: Ratio,
    /// beta: how strongly the rate falls.
    pub beta: Ratio,
    /// delta: additive increase; five times as much after `hyper-after`.
    pub additive_rate: Bandwidth,
    /// minRTT: the difference between round trips that counts as a gradient of one.
    pub minimum_rtt: Timespan,
    /// T_low: below this round trip the rate grows in any case.
    pub low: Timespan,
    /// T_high: above this round trip the rate falls in any case.
    pub high: Timespan,
    /// Round trips in a row that do not become longer until increases are of five steps.
    pub hyper_after: u8,
}

/// Parameters of DCTCP.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Dctcp {
    /// g: weight of a new observation in alpha, the marked share of packets.
    pub g: Ratio,
}

/// Parameters of DCQCN.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Dcqcn {
    /// The lowest rate.
    pub minimum_rate: Bandwidth,
    /// g: weight of a new observation in alpha; a power of two below 1, since adapters shift.
    pub g: Ratio,
    /// N: the least time between two notifications of a queue pair.
    pub cnp_interval: Timespan,
    /// K: alpha decays when no notification came for this long.
    pub alpha_interval: Timespan,
    /// T: time between rate increases.
    pub increase_interval: Timespan,
    /// B: bytes between rate increases.
    pub increase_bytes: Size,
    /// F: the number of increases that halve the distance to the target, before additive ones.
    pub fast_recovery_steps: u8,
    /// R_AI: additive increase.
    pub additive_rate: Bandwidth,
    /// R_HAI: hyper increase.
    pub hyper_rate: Bandwidth,
    /// Behaviour of adapters' firmware, if given: alpha changes by the clock of `alpha-interval`, and the
    /// rate is cut at most once in this time (`rate_reduce_monitor_period`).
    pub cut_interval: Option<Timespan>,
    /// With `cut-interval`: a cut that follows another without an increase between lowers the target too.
    pub clamp_target: bool,
}

impl Default for Dcqcn {
    /// The values of the paper (SIGCOMM 2015, section 5.2 and figure 14).
    fn default() -> Self {
        Self {
            minimum_rate: Bandwidth(Rate::from_bps(10_000_000)),
            g: Ratio(1 << 24),
            cnp_interval: Timespan(Span::from_us(50)),
            alpha_interval: Timespan(Span::from_us(55)),
            increase_interval: Timespan(Span::from_us(55)),
            increase_bytes: Size(10 << 20),
            fast_recovery_steps: 5,
            additive_rate: Bandwidth(Rate::from_bps(40_000_000)),
            hyper_rate: Bandwidth(Rate::from_bps(400_000_000)),
            cut_interval: None,
            clamp_target: false,
        }
    }
}

impl Default for Swift {
    /// Constants of htsim's model of Swift (`sim/swift.cpp`, which calls them guesses), since the paper names
    /// few of them. By default, hops and windows do not change the target.
    fn default() -> Self {
        Self {
            target: Timespan(Span::from_us(25)),
            hop: Timespan(Span::ZERO),
            flow_range: Timespan(Span::ZERO),
            flow_min: Ratio((1 << 32) / 10),
            flow_max: 100,
            additive: Size(4096),
            beta: Ratio((1 << 32) / 5 * 4),
            max_decrease: Ratio(1 << 31),
        }
    }
}

impl Default for Hpcc {
    /// The values of the paper's section 5.1.
    fn default() -> Self {
        Self {
            base_rtt: Timespan(Span::from_us(13)),
            utilisation: Ratio((1 << 32) / 100 * 95),
            stages: 5,
            additive: Size(80),
        }
    }
}

impl Default for Timely {
    /// The values of the paper's section 6, with segments of 16 KiB.
    fn default() -> Self {
        Self {
            minimum_rate: Bandwidth(Rate::from_bps(10_000_000)),
            segment: Size(16 << 10),
            alpha: Ratio((1 << 32) / 8 * 7),
            beta: Ratio((1 << 32) / 5 * 4),
            additive_rate: Bandwidth(Rate::from_bps(10_000_000)),
            minimum_rtt: Timespan(Span::from_us(20)),
            low: Timespan(Span::from_us(50)),
            high: Timespan(Span::from_us(500)),
            hyper_after: 5,
        }
    }
}

impl Default for Dctcp {
    /// The recommendation of RFC 8257, section 4.2.
    fn default() -> Self {
        Self {
            g: Ratio((1 << 32) / 16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::NicTable;
    use alloc::borrow::ToOwned;

    /// The file's word, the name in messages, and the table with parameters are one.
    #[test]
    fn each_algorithm_has_one_name_and_a_table_of_it() {
        let tables = serde_json::to_value(NicTable::default()).unwrap();
        for one in Congestion::RC {
            let word = serde_json::to_value(one).unwrap();
            assert_eq!(word, serde_json::Value::String(one.name().to_owned()));
            let has_table = tables[one.name()].is_object();
            assert_eq!(
                Congestion::has_table(one.name()),
                has_table,
                "{}",
                one.name()
            );
            assert!(!one.is_of_uet() || one == Congestion::Off);
        }
        assert!(!Congestion::has_table("pcie"));
    }
}
