//! The fabric file's tables about storage hosts: processors, drives, and the storage between them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use fabric::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bandwidth, Ratio, Size, Timespan};

/// A processor: the processor time that storage takes. A host polls for completions over RDMA; over TCP it
/// waits for interrupts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Processor")]
pub struct ProcessorTable {
    /// Cores. The n-th job of a host runs on core n modulo this.
    pub cores: u32,
    /// Software time for one I/O at each end, besides the calls of the adapter.
    pub io: Timespan,
    /// RDMA: time to post a work request, and time to take a completion.
    pub request: Timespan,
    /// TCP: time of a system call and the stack to send or receive a message.
    pub call: Timespan,
    /// TCP: additional time of the stack for each packet.
    pub packet: Timespan,
    /// TCP: copy rate of one core.
    pub copy: Bandwidth,
    /// Memory bandwidth of all cores together; without it, memory is no limit. A byte over TCP crosses it
    /// three times: from the adapter to the kernel, out of the kernel, and into the program's buffer. A byte
    /// over RDMA crosses it once, which is a limit of the PCIe link (`pcie`).
    pub memory: Option<Bandwidth>,
    /// TCP: interrupt moderation: how long the adapter delays an interrupt, so that one interrupt reports
    /// more packets.
    pub moderation: Timespan,
    /// TCP: time from an interrupt until the program runs: handler, softirq, wake-up, context switch.
    pub interrupt: Timespan,
    /// TCP: chance that the core is busy with something else, or asleep, when an interrupt arrives.
    pub late: Ratio,
    /// TCP: the longest delay of the interrupt in that case; uniformly distributed from 0.
    pub late_by: Timespan,
}

/// A drive model: latencies, rates, and commands per second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Drive {
    /// From a read command until its first byte.
    pub read_latency: Timespan,
    /// From a write's last byte until it is durable.
    pub write_latency: Timespan,
    /// Mean of a random time that is added to both latencies; exponentially distributed.
    pub tail: Timespan,
    /// Largest rate of reads.
    pub read: Bandwidth,
    /// Largest rate of writes.
    pub write: Bandwidth,
    /// Commands per second at most.
    pub commands: u32,
}

/// Storage: NVMe over Fabrics between hosts, over RDMA or, with adapters whose `protocol` is `tcp`, over TCP.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Storage {
    /// Its name in results.
    #[serde(default = "storage")]
    pub name: String,
    /// Hosts that issue I/Os.
    pub from: Vec<String>,
    /// Hosts with the drives; each host of `from` accesses each of them.
    pub to: Vec<String>,
    /// The type of the I/Os.
    #[serde(default = "reads")]
    pub operation: Access,
    /// Bytes of one I/O.
    #[serde(default = "block")]
    pub block: Size,
    /// Outstanding I/Os of a job.
    #[serde(default = "one")]
    pub depth: u32,
    /// Jobs per pair of hosts: each has a core and a queue pair of its own.
    #[serde(default = "one")]
    pub jobs: u32,
    /// I/Os of each job; without it, as many as the duration lasts.
    pub ios: Option<u64>,
    /// How long an I/O may take. When the first of a host takes longer, the host resets its controller, as
    /// Linux does (`nvme_core.io_timeout`): the connections of all jobs between these two hosts end, and
    /// their I/Os under way are cancelled.
    #[serde(default = "io_timeout")]
    pub io_timeout: Timespan,
    /// From such a reset until the host is connected again, and sends what it cancelled once more.
    #[serde(default = "reconnect_delay")]
    pub reconnect_delay: Timespan,
    /// How often a cancelled I/O is sent again before it ends with an error (`nvme_core.max_retries`). A
    /// program in user space without retries has 0.
    #[serde(default = "max_retries")]
    pub max_retries: u32,
    /// Time at which it begins.
    #[serde(default = "at_once")]
    pub start: Timespan,
}

/// The type of an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Data is read from the drives.
    Read,
    /// Data is written to the drives.
    Write,
}

fn storage() -> String {
    "storage".to_owned()
}

fn reads() -> Access {
    Access::Read
}

fn block() -> Size {
    Size(4096)
}

fn one() -> u32 {
    1
}

fn io_timeout() -> Timespan {
    Timespan(Span::from_us(30_000_000))
}

fn reconnect_delay() -> Timespan {
    Timespan(Span::from_us(10_000_000))
}

fn max_retries() -> u32 {
    5
}

fn at_once() -> Timespan {
    Timespan(Span::ZERO)
}

impl Default for ProcessorTable {
    fn default() -> Self {
        // docs/fabric.md says which of these values are published. call: Peter et al., Arrakis (OSDI 2014),
        // table 1: Linux' stack takes 1.26 us in and 1.05 us out, a call 0.1 us and the way back 0.1 us.
        // copy, packet: Cai et al., Understanding host network stack overheads (SIGCOMM 2021): one core
        // receives 42 Gb/s in frames of 9,000 bytes and copies for half of its time; the rest is 0.86 us for
        // each, 0.39 us for 4,096 bytes. request: Kalia et al., Datacenter RPCs can be general and fast (NSDI
        // 2019): one core makes ten million small calls per second, each of which posts a message and takes
        // one off. io: Zhong et al., XRP (OSDI 2022), table 1: block layer and NVMe driver take 0.38 and 0.11
        // us. moderation: Linux' mlx4_en, MLX4_EN_RX_COAL_TIME. interrupt: in Arrakis a receiver that sleeps
        // takes 2.4 us of scheduling; the same again is for the kernel's thread that NVMe/TCP works in.
        let ns = |ns| Timespan(Span::from_ns(ns));
        Self {
            cores: 48,
            io: ns(490),
            request: ns(100),
            call: ns(1_350),
            packet: ns(390),
            copy: Bandwidth(Rate::from_gbps(84)),
            memory: None,
            moderation: ns(16_000),
            interrupt: ns(4_800),
            late: Ratio(0),
            late_by: ns(0),
        }
    }
}

impl Default for Drive {
    fn default() -> Self {
        // Intel Optane SSD P5800X. Zhong et al., XRP (OSDI 2022), table 1: 3.22 us for 512 bytes. Its product
        // brief: 7.2 GB/s reading, 6.2 writing, 1.5 million random reads of 4 KiB per second.
        Self {
            read_latency: Timespan(Span::from_ns(3_220)),
            write_latency: Timespan(Span::from_ns(3_220)),
            tail: Timespan(Span::ZERO),
            read: Bandwidth(Rate::from_bps(57_600_000_000)),
            write: Bandwidth(Rate::from_bps(49_600_000_000)),
            commands: 1_500_000,
        }
    }
}
