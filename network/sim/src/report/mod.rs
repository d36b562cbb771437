//! The report of a run: results by name, added up by workload and by port, with findings about the
//! configuration. Plain data: programs get it as JSON, people as a table or a page.

mod alike;
mod build;
mod collective;
pub mod columns;
mod csv;
mod diagnosis;
mod erf;
mod hops;
mod json;
mod layout;
mod life;
mod limits;
mod models;
mod notes;
mod pcap;
mod setting_unit;
mod sweep;
mod table;
mod units;
mod vendors;
mod waits;

pub use build::port_reports;
pub use collective::{
    CollectiveLink, CollectiveReport, LegReport, PathReport, RepetitionReport, collective_columns,
    collective_sweep_rows, collectives_csv, links_csv,
};
pub use csv::{flows_csv, hops_csv, ports_csv};
pub use erf::{GlobalAddress, SubnetAddress, packet_record};
pub use hops::{PortShare, port_shares, slowest};
pub use life::{LifeFormat, write_life};
pub use limits::Bottleneck;
pub use models::{ExchangeReport, ExposedReport, ModelReport};
pub use pcap::{captured_bytes, pcap_header, pcap_record, write_pcap};
pub use sweep::{number_settings, sweep_rows, swept_numbers};
pub use table::{table, table_so_far};
pub use vendors::{Printed, vendor_tables};

use crate::world::{FunctionDrops, IoTimeouts, Sample};
use serde::{Deserialize, Serialize};

/// A number with its noun: `1 switch`, `2 switches`.
pub fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Packets that an embedded switch dropped at the port of one function.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FunctionReport {
    /// Name of the function.
    pub function: String,
    /// Packets by cause.
    #[serde(flatten)]
    pub dropped: FunctionDrops,
}

/// A run, for people and programs. The same file and seed give the same report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The file's title.
    pub title: String,
    /// The run's seed.
    pub seed: u64,
    /// Settings besides the file: paths and values.
    pub settings: Vec<(String, String)>,
    /// The same as numbers, where all runs of a sweep have numbers of one unit: for tables of runs
    /// ([`number_settings`]).
    #[serde(skip)]
    pub numbers: Vec<(String, f64)>,
    /// Virtual time at the end, in seconds.
    pub end_s: f64,
    /// How much of it was skipped, in seconds, and in how many pieces, if skipping was requested. Hops,
    /// events, latencies and the order of packets are those of the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skipped>,
    /// Whether the run was stopped before its end.
    pub partial: bool,
    /// Packets that crossed a link.
    pub hops: u64,
    /// Events that the engine handled.
    pub events: u64,
    /// The results of each workload, in the order of the file.
    pub workloads: Vec<WorkloadReport>,
    /// Collectives and transfers that depend on others, in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<CollectiveReport>,
    /// Models that are trained, in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelReport>,
    /// By flow, in the order of the file.
    pub flows: Vec<FlowReport>,
    /// By port that sends, hosts first; those that sent or received nothing are left out.
    pub ports: Vec<PortReport>,
    /// Hosts that take part in storage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<StoreReport>,
    /// Functions of adapters at whose ports packets were dropped because of their addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionReport>,
    /// The counters of each switch, in the order of the file.
    pub switches: Vec<SwitchReport>,
    /// Findings about the configuration, the worst first.
    pub findings: Vec<Finding>,
    /// Fields of the file that have no effect or acted on no packet, and lines of vendors' files that the run
    /// left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Ports over time, if samples were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Packets that were lost on links.
    pub damaged: u64,
    /// Packets under way at the end.
    pub left: u32,
}

/// The skipped time of a run, in which all transfers went on at steady rates.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Skipped {
    /// Sum of the times in seconds.
    pub seconds: f64,
    /// How many there were.
    pub times: u64,
}

/// Percentiles of something.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half are below.
    pub p50: f64,
    /// 90 of a hundred are below.
    pub p90: f64,
    /// 99 of a hundred are below.
    pub p99: f64,
    /// The largest value.
    pub max: f64,
    /// The mean of all values.
    pub mean: f64,
}

/// A host that takes part in storage.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StoreReport {
    /// The host's name.
    pub host: String,
    /// Cores that worked for storage.
    pub cores: usize,
    /// How much of the time they did, of a hundred, on average. Polling without a result is no work.
    pub cores_busy_percent: f64,
    /// How much of the time its drives moved data or commands, on average.
    pub drives_busy_percent: f64,
    /// How much of the time copies kept its memory busy, where the file limits that.
    pub memory_busy_percent: f64,
    /// I/Os that it requested and that took too long.
    #[serde(default, skip_serializing_if = "is_none")]
    pub io_timeouts: IoTimeouts,
}

/// No I/O took too long.
fn is_none(timeouts: &IoTimeouts) -> bool {
    *timeouts == IoTimeouts::default()
}

/// The results of one workload, all of its queue pairs together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WorkloadReport {
    /// The name that the fabric file gives.
    pub name: String,
    /// Queue pairs of the workload.
    pub flows: u64,
    /// Queue pairs whose transfers all completed.
    pub finished: u64,
    /// Queue pairs that failed.
    pub failed: u64,
    /// Bytes of completed messages.
    pub bytes: u64,
    /// Payload bytes that arrived, each once, those of messages that did not complete included. Storage:
    /// bytes of completed I/Os.
    pub delivered_bytes: u64,
    /// From when to when the workload ran, in microseconds: from the first post to the last completion, or to
    /// the end of the run where not everything completed. Nothing where nothing was posted.
    pub interval_us: Option<[f64; 2]>,
    /// Payload bits per second of all queue pairs: `delivered_bytes` over `interval_us`.
    pub goodput_bps: f64,
    /// Jain's fairness of the queue pairs' goodput: 1 is equal shares.
    pub fairness: Option<f64>,
    /// Completion times of finished queue pairs, in microseconds.
    pub completion_us: Option<Percentiles>,
    /// Completion times as multiples of what the transfers take alone.
    pub slowdown: Option<Percentiles>,
    /// From posting a message to its completion, in microseconds.
    pub latency_us: Option<Percentiles>,
    /// Storage: I/Os per second of all jobs, over the workload's interval.
    pub ios_per_s: Option<f64>,
    /// Packets of data that were sent again.
    pub retransmitted: u64,
    /// Local ACK timers that expired.
    pub timeouts: u64,
    /// Congestion notifications that senders took.
    pub notifications: u64,
    /// Packets of data that arrived before the one whose sequence number is one lower, of a hundred.
    pub swapped_percent: f64,
    /// Packets of data that arrived after one with a higher sequence number, of a hundred (RFC 4737, section
    /// 3.3).
    pub late_percent: f64,
    /// The resource that limits it, if one is full.
    pub limit: Option<Bottleneck>,
    /// Where none is full: the window, depth or congestion control that it waits for, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// By reorder distance: entry n counts distances from 2^n to 2^(n+1) - 1.
    pub reorder_distances: Vec<u64>,
    /// The largest distance.
    pub reorder_distance_max: u32,
    /// By the step from one swapped packet to the next, in packets: entry n counts steps from 2^n to
    /// 2^(n+1) - 1.
    #[serde(default)]
    pub swap_steps: Vec<u64>,
    /// The largest step.
    #[serde(default)]
    pub swap_step_max: u64,
}

/// A queue pair's transfers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FlowReport {
    /// Index of the workload.
    pub workload: usize,
    /// Host that data comes from.
    pub from: String,
    /// Host that it goes to.
    pub to: String,
    /// Bytes of completed messages.
    pub bytes: u64,
    /// When it began, in microseconds.
    pub start_us: f64,
    /// The time that it took, in microseconds, if it finished.
    pub completion_us: Option<f64>,
    /// Completion time as a multiple of what the transfer takes alone.
    pub slowdown: Option<f64>,
    /// Payload bits per second that arrived, from the queue pair's first post to its last completion, or to
    /// the end of the run.
    pub goodput_bps: Option<f64>,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Congestion notification packets that the sender took.
    pub notifications: u64,
    /// Its queue pair failed.
    pub failed: bool,
    /// Ports that its data crossed, in the order of the path, if hops were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<HopReport>,
}

/// The counters of one flow's data at one port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HopReport {
    /// The port that sends.
    pub port: String,
    /// The port at the other end of its link.
    pub to: String,
    /// Packets that left here.
    pub packets: u64,
    /// Bytes sent, headers included.
    pub bytes: u64,
    /// Packets that were marked here.
    pub marked: u64,
    /// Packets that were damaged on the link, or dropped where it ends.
    pub lost: u64,
    /// Microseconds that a packet waited here on average.
    pub waited_mean_us: f64,
    /// The longest of them.
    pub waited_max_us: f64,
    /// Microseconds of waiting, all packets together.
    pub waited_us: f64,
    /// Of that, because the other end had paused the queue. At a host: how long its port was, between packets
    /// of this flow.
    pub paused_us: f64,
}

/// A port and the link that it sends into.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortReport {
    /// `h0`, or `sw:3`.
    pub port: String,
    /// The port at the other end.
    pub to: String,
    /// Number of the link, and the direction in it.
    pub link: u32,
    /// Direction in the link: 0 from its first end, 1 from its second.
    pub direction: u8,
    /// Its speed in bits per second.
    pub rate_bps: u64,
    /// The part of the time that it was sending, from 0 to 1.
    pub load: f64,
    /// Packets that left here.
    pub packets: u64,
    /// Bytes that left here, headers included.
    pub bytes: u64,
    /// Packets that were marked here (ECN).
    pub marked: u64,
    /// Packets that were cut to their headers here, because their queue was full.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub trimmed: u64,
    /// Packets that arrived here and were dropped, by reason.
    #[serde(deserialize_with = "json::reasons")]
    pub dropped: Vec<(&'static str, u64)>,
    /// Frames that arrived damaged: those whose check sequence was wrong.
    pub fcs_errors: u64,
    /// Frames that did not arrive because the link was down.
    pub lost_link_down: u64,
    /// Frames sent that pause the other end.
    pub pauses_sent: u64,
    /// Frames of priority flow control sent, by priority; nothing where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pfc_sent: Vec<u64>,
    /// The same received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pfc_received: Vec<u64>,
    /// Priority groups that had anything of the buffer, or were refused it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReport>,
    /// Microseconds during which the other end had it paused, over all queues.
    pub paused_us: f64,
    /// The most bytes that one of its queues had at a time.
    #[serde(default)]
    pub peak_queue_bytes: u32,
    /// By class that was used.
    pub queues: Vec<QueueReport>,
}

impl PortReport {
    /// Packets that were lost at this port or on its link, by reason.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let link = [
            ("damaged", self.fcs_errors),
            ("link-down", self.lost_link_down),
        ];
        self.dropped
            .iter()
            .copied()
            .chain(link)
            .filter(|(_, count)| *count > 0)
    }

    /// Losses of the port, for a cell of a table.
    pub fn losses_text(&self) -> String {
        let losses: Vec<String> = self
            .losses()
            .map(|(why, count)| format!("{count} {why}"))
            .collect();
        if losses.is_empty() {
            "0".to_owned()
        } else {
            losses.join(", ")
        }
    }
}

/// The counters of one queue of a port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueueReport {
    /// The traffic class of the queue.
    pub class: u8,
    /// Packets that left here.
    pub packets: u64,
    /// Bytes that left here, headers included.
    pub bytes: u64,
    /// Packets that were marked here (ECN).
    pub marked: u64,
    /// Packets that were cut to their headers here, because their queue was full.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub trimmed: u64,
    /// Most bytes that waited.
    pub peak_bytes: u32,
    /// Microseconds of pause.
    pub paused_us: f64,
    /// Packets that were for this queue, or in it, and were dropped, by reason.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "json::reasons"
    )]
    pub dropped: Vec<(&'static str, u64)>,
    /// How often the watchdog found it in a storm.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub storms: u32,
}

/// A priority group: the arriving packets of some classes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupReport {
    /// The priority group's number.
    pub group: u8,
    /// Most bytes that it had of the shared buffer.
    pub shared_peak_bytes: u32,
    /// Most bytes that it had of headroom.
    pub headroom_peak_bytes: u32,
    /// Packets that it had no room for.
    pub dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
const fn is_nought(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The counters of one switch, all of its ports together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SwitchReport {
    /// The name that the fabric file gives.
    pub name: String,
    /// Bytes of its packet memory.
    pub buffer_bytes: u32,
    /// Most bytes in use at once.
    pub buffer_peak_bytes: u32,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that were marked here (ECN).
    pub marked: u64,
    /// Packets that were cut to their headers here, because their queue was full.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub trimmed: u64,
    /// Frames sent that pause a priority (Xoff).
    pub pauses_sent: u64,
}

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Data was lost, or a transfer failed or cannot go on.
    Broken,
    /// It works, and much worse than it could.
    Slow,
    /// A remark: neither an error nor a loss of performance.
    Note,
}

/// A finding about the configuration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// The severity of the finding.
    pub severity: Severity,
    /// The observation, with its numbers.
    pub seen: String,
    /// The setting that causes it.
    pub cause: String,
    /// The setting to use instead.
    pub instead: String,
}

/// A port over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// The port's name.
    pub port: String,
    /// Moments in microseconds.
    pub at_us: Vec<f64>,
    /// Bytes that waited.
    pub queued_bytes: Vec<u32>,
    /// The same by class, of those in which anything ever did.
    pub queues: Vec<QueueSeries>,
    /// Bits per second since the moment before.
    pub rate_bps: Vec<f64>,
    /// Whether any queue was paused.
    pub paused: Vec<bool>,
}

/// A queue over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueueSeries {
    /// The traffic class of the queue.
    pub class: u8,
    /// Bytes that waited, at the moments of the port.
    pub queued_bytes: Vec<u32>,
}

/// Samples of one port, in order of time.
type PortSamples<'a> = Vec<&'a Sample>;
