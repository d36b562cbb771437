//! The results of a published test of hardware: two hosts of 48 cores, RoCEv2 at 100 Gb/s against TCP at
//! 40 Gb/s, SPDK's target, two drives of 7 GB/s each.

use serde::Serialize;

/// One transport's figures there.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Published {
    /// Of a 4 KiB read alone, in microseconds: mean, 99 %, longest.
    pub(crate) latency_us: [f64; 3],
    /// How much longer at 16 at once, in microseconds.
    pub(crate) growth_us: f64,
    /// 1 MiB sequential in GB/s: read, write.
    pub(crate) bandwidth: [f64; 2],
    /// Threads from which on it does not grow.
    pub(crate) saturates_at: u16,
    /// 4 KiB at 128 at once, per second: lowest, highest.
    pub(crate) rate: [f64; 2],
    /// Processor use: the limit that was named.
    pub(crate) processor: &'static str,
    /// Where the figures are from.
    pub(crate) source: &'static str,
}

/// The test that the figures are from. Its address is not known.
const SOURCE: &str = "\"RDMA網絡對服務器存儲性能的影響：NVMe-oF與TCP/IP的基準測試對比\" (RDMA's influence on server \
                      storage: NVMe-oF against TCP/IP), a cloud provider's developer forum, 3 September 2025";

pub(crate) const RDMA: Published = Published {
    latency_us: [8.2, 12.5, 15.0],
    growth_us: 1.0,
    bandwidth: [11.8, 11.5],
    saturates_at: 16,
    rate: [1.45e6, 1.45e6],
    processor: "below 15 %",
    source: SOURCE,
};

pub(crate) const TCP: Published = Published {
    latency_us: [65.0, 120.0, 200.0],
    growth_us: 26.0,
    bandwidth: [3.8, 3.5],
    saturates_at: 8,
    rate: [0.8e6, 1.1e6],
    processor: "above 90 %",
    source: SOURCE,
};
