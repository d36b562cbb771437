//! The input of the engine: a network, the hosts in it, their transfers, and a seed. All of it plain data
//! that a fabric file, a test or a program fills in.

use super::collective::plan::CollectivePlan;
use super::steady::SkipSteady;
use super::storage::config::{IoLimits, StorageConfig};
use super::uet::UetConfig;
use fabric::config::{CLASSES, PfcConfig, SwitchConfig};
use fabric::lanes::DELIMITER_BYTES;
use fabric::topology::Topology;
use fabric::{FRAME_OVERHEAD_BYTES, Rate, Span, Spread, TELEMETRY_BYTES, Time};
use rnic::{CongestionConfig, Mtu, Signal};
use std::sync::Arc;

/// Everything that a run depends on. The same scenario gives the same results, whatever `threads`.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The links: pairs of ports.
    pub topology: Topology,
    /// Switches by number; each has at least as many ports as the topology uses.
    pub switches: Vec<SwitchConfig>,
    /// How switches spread traffic over next hops of equal cost.
    pub spread: Spread,
    /// Seed of the hashes, besides `seed`.
    pub hash_seed: u64,
    /// How long switches take to reroute around links that are down; never without.
    pub reaction: Option<Span>,
    /// Hosts by number.
    pub hosts: Vec<HostConfig>,
    /// Adapters whose functions are hosts. Hosts that are in none have an adapter of their own.
    pub cards: Vec<SriovAdapterConfig>,
    /// Recorded work requests, which [`Flow::trace`] names by index.
    pub traces: Vec<Arc<[Step]>>,
    /// The transfers between hosts.
    pub flows: Vec<Flow>,
    /// Seed of all that is left to chance.
    pub seed: u64,
    /// The run ends here, or earlier when all flows are done.
    pub end: Time,
    /// Threads, at least 1.
    pub threads: u32,
    /// Records that are kept besides counters.
    pub watch: Watch,
    /// Whether time is skipped in which all flows go on at steady rates; never without.
    pub skip_steady: Option<SkipSteady>,
    /// Collectives, whose flows are those of the operation [`Transfer::Collective`].
    pub collectives: Option<Arc<CollectivePlan>>,
}

/// A host: its adapter, and the PCIe link between the adapter and memory.
#[derive(Clone, PartialEq, Debug)]
pub struct HostConfig {
    /// Speed of the adapter's port; the link's if not given.
    pub rate: Option<Rate>,
    /// Payload bytes per packet.
    pub mtu: Mtu,
    /// Bytes of frames besides payload.
    pub headers: Headers,
    /// Place packets in whatever order they arrive; every WRITE packet then carries its address.
    pub out_of_order: bool,
    /// Out-of-order receive: packets that may be placed ahead of a hole.
    pub reorder_window: u32,
    /// Bytes that a queue pair may have unacknowledged.
    pub window_bytes: u32,
    /// An acknowledgement is requested after so many packets at the latest.
    pub ack_interval: u32,
    /// How long a requester takes to go back after a sequence error.
    pub recovery: Span,
    /// Local ACK timeout, code of IBTA 9.7.6.1.3: 4.096 us times 2 to this power; 0 is never.
    pub timeout: u8,
    /// Retries before a queue pair fails; at most 7.
    pub retries: u8,
    /// The marks of data packets.
    pub data: Marking,
    /// The marks of acknowledgements.
    pub acknowledgements: Marking,
    /// The marks of congestion notification packets.
    pub notifications: Marking,
    /// Pause frames: which the adapter obeys, and which it sends when the PCIe link is slower than the
    /// network.
    pub pfc: PfcConfig,
    /// The scheduling level of each queue: a queue of a higher level goes first.
    pub levels: [u8; CLASSES],
    /// The congestion control that queue pairs of the host use.
    pub congestion: CongestionConfig,
    /// The PCIe link and the memory behind it; none is no limit.
    pub pcie: Option<PcieConfig>,
    /// Ultra Ethernet's transport, in place of InfiniBand's.
    pub uet: Option<UetConfig>,
    /// Its storage settings, if it has drives or uses those of others.
    pub storage: Option<StorageConfig>,
}

/// The marks of a packet (priority code point, DSCP, ECN), and the adapter's queue that it goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marking {
    /// Queue of the adapter, and the priority whose pause frames stop it.
    pub class: u8,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// 802.1Q priority code point; untagged without.
    pub pcp: Option<u8>,
    /// Whether the ECN field is ECT(0): the sender takes part in ECN.
    pub ecn: bool,
}

/// Bytes of a frame besides its payload, from the destination address to the check sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headers {
    /// As they are on the wire: Ethernet, tag, IPv4, UDP, BTH, extended headers, ICRC.
    RoceV2,
    /// Those of InfiniBand: LRH, BTH, extended headers, ICRC, VCRC. Links have credits and virtual lanes
    /// ([`super::World::set_lanes`]).
    Infiniband,
    /// Those of Ultra Ethernet over UDP and IPv4.
    Uet,
    /// So many for data and so many for everything else: for comparisons with models that count otherwise.
    Fixed {
        /// In data packets.
        data: u16,
        /// In acknowledgements, NAKs and notifications.
        control: u16,
    },
}

impl Headers {
    /// In most data packets.
    pub(super) fn of_data(self) -> u32 {
        match self {
            Self::RoceV2 => 14 + 20 + 8 + 12 + 4 + 4,
            Self::Infiniband => 8 + 12 + 4 + 2,
            Self::Uet => UET_DATA_BYTES,
            Self::Fixed { data, .. } => u32::from(data),
        }
    }
}

/// Bytes of a data frame of Ultra Ethernet besides payload: Ethernet with check sequence, IPv4, UDP, the
/// packet delivery header of a request (12), the standard semantic header (44).
pub(crate) const UET_DATA_BYTES: u32 = 14 + 4 + 20 + 8 + 12 + 44;

/// Those of an acknowledgement with congestion control (32) and a semantic response (12); others are counted
/// as long as that.
pub(crate) const UET_CONTROL_BYTES: u32 = 14 + 4 + 20 + 8 + 32 + 12;

/// A PCIe link, and the memory behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcieConfig {
    /// Payload bits per second in one direction, its packets' headers subtracted.
    pub rate: Rate,
    /// The same for data that answers READs: adapters keep fewer reads of memory under way for it.
    pub answer_rate: Rate,
    /// From a request for memory until its data is here.
    pub read_latency: Span,
    /// From the last byte of a packet until it is in memory, and its completion can be seen.
    pub write_latency: Span,
    /// Bytes that the adapter can hold while the PCIe link is slower than the network: above, its PFC stops
    /// the switch; without PFC, packets are dropped.
    pub receive_buffer_bytes: u32,
    /// The processor's time to post a work request, until the adapter has it.
    pub doorbell: Span,
}

/// An adapter with functions, all of them attached to one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SriovAdapterConfig {
    /// Speed of the port.
    pub port: Rate,
    /// The functions; all have the same [`HostConfig::pcie`], which is that of the adapter.
    pub functions: Vec<AdapterFunction>,
}

impl SriovAdapterConfig {
    /// Numbers of the hosts that its functions are.
    pub(super) fn hosts(&self) -> impl Iterator<Item = u32> {
        self.functions.iter().map(|function| function.host)
    }
}

/// A function of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdapterFunction {
    /// Number of the host that it is.
    pub host: u32,
    /// Its share of the port, in any unit.
    pub weight: u64,
    /// The rate at which it sends at most, frames with preamble and gap.
    pub rate: Option<Rate>,
    /// VLAN that it is in; 0 is untagged, as all hosts are that are no functions.
    pub vlan: u16,
    /// The embedded switch's checks of packets that it sends.
    pub guard: Guard,
}

/// The checks of a function's packets by the embedded switch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Guard {
    /// Source addresses are to be the function's own.
    pub spoof_check: bool,
    /// The function may change its MAC address.
    pub trust: bool,
}

/// The owner of the source address in packets from a flow's sender of data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Forgery {
    /// The sender's own addresses.
    #[default]
    None,
    /// The GID of another host.
    Gid(u32),
    /// The MAC address of another host.
    Mac(u32),
}

/// One queue pair's transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Where data comes from.
    pub from: u32,
    /// The host that data goes to.
    pub to: u32,
    /// The operation that moves it.
    pub operation: Transfer,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Messages; `u64::MAX` for as many as the run lasts.
    pub messages: u64,
    /// Messages posted at once.
    pub depth: u32,
    /// When the first are posted.
    pub start: Time,
    /// The workload that it belongs to: results are added up by it.
    pub workload: u32,
    /// The owner of the source address in its packets.
    pub forgery: Forgery,
    /// Index of the recorded work requests that it posts, in place of messages that are all alike.
    pub trace: Option<u32>,
    /// Storage: what is done about I/Os that take too long.
    pub io: IoLimits,
    /// The marks of its packets, where they are not those of the adapters.
    pub marks: FlowMarks,
}

/// The marks of a flow's data, and of acknowledgements that are marked as data is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowMarks {
    /// [`Marking::class`]; that of the adapter without.
    pub class: Option<u8>,
    /// [`Marking::dscp`]; that of the adapter without.
    pub dscp: Option<u8>,
}

impl FlowMarks {
    /// The marks of data, and of acknowledgements, that a host sends.
    pub fn of(self, config: &HostConfig) -> [Marking; 2] {
        let HostConfig {
            data,
            acknowledgements,
            ..
        } = *config;
        let class = self.class.unwrap_or(data.class);
        let own = Marking {
            class,
            dscp: self.dscp.unwrap_or(data.dscp),
            pcp: data.pcp.map(|pcp| self.class.unwrap_or(pcp)),
            ..data
        };
        let same_class = acknowledgements.class == data.class;
        let same_dscp = acknowledgements.dscp == data.dscp;
        let acknowledgements = Marking {
            class: if same_class {
                own.class
            } else {
                acknowledgements.class
            },
            dscp: if same_dscp {
                own.dscp
            } else {
                acknowledgements.dscp
            },
            pcp: if same_class {
                own.pcp
            } else {
                acknowledgements.pcp
            },
            ..acknowledgements
        };
        [own, acknowledgements]
    }
}

/// A recorded work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The kind of the work request.
    pub action: Action,
    /// Bytes of payload.
    pub bytes: u32,
    /// How many requests before it had completed when it was posted: it waits for as many.
    pub after: u64,
    /// The program's time since the call before: another post, or the completion that it waited for.
    pub gap: Span,
}

/// The kind of a recorded work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// RDMA WRITE, which needs no receive at the peer.
    Write,
    /// SEND, into a receive of the peer.
    Send,
    /// RDMA READ, and atomic operations.
    Read,
}

/// The operation that moves data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transfer {
    /// RDMA WRITE, posted by the sender of the data.
    Write,
    /// SEND into a receive.
    Send,
    /// RDMA READ, posted by the receiver of the data.
    Read,
    /// WRITE over an unreliable connection: lost packets are not sent again.
    UnreliableWrite,
    /// SEND as unreliable datagrams: messages of one packet.
    Datagram,
    /// NVMe over Fabrics: `from` reads from the drives of `to`; messages are I/Os.
    StorageRead,
    /// Storage, writes: the initiator sends the data.
    StorageWrite,
    /// Messages of collectives, which a [`super::Pipe`] of the plan names.
    Collective,
}

impl Transfer {
    /// Whether no acknowledgement confirms its arrival.
    pub const fn is_unreliable(self) -> bool {
        matches!(self, Self::UnreliableWrite | Self::Datagram)
    }

    /// Whether it is a queue pair of collectives, whose messages depend on others.
    pub const fn is_collective(self) -> bool {
        matches!(self, Self::Collective)
    }

    /// Whether commands request the transfer, between programs that take time.
    pub const fn is_storage(self) -> bool {
        matches!(self, Self::StorageRead | Self::StorageWrite)
    }
}

/// Records that are kept besides counters. A record that is off costs nothing.
#[derive(Clone, Default, Debug)]
pub struct Watch {
    /// Links (by their number in the topology) whose packets are kept, in both directions.
    pub captures: Vec<u32>,
    /// Packets that are kept at most, over all links.
    pub captured_max: usize,
    /// The interval between samples of queues, rates and pauses; none are taken without.
    pub sample_every: Option<Span>,
    /// Whether the waiting times of each flow's data are kept: [`super::FlowResult::hops`].
    pub hops: bool,
    /// The queue pair whose life is recorded: [`super::Results::life`].
    pub traced: Option<Traced>,
}

/// A queue pair to record, or one packet of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traced {
    /// The flow's number in the scenario.
    pub flow: u32,
    /// The packets with this sequence number alone.
    pub psn: Option<u32>,
}

impl HostConfig {
    /// An adapter with the defaults of common firmware: MTU 4096, data in class 3 as DSCP 26 with ECN,
    /// notifications in class 6 as DSCP 48, PFC on class 3, no congestion control.
    pub fn new() -> Self {
        let data = Marking {
            class: 3,
            dscp: 26,
            pcp: None,
            ecn: true,
        };
        Self {
            rate: None,
            mtu: Mtu::B4096,
            headers: Headers::RoceV2,
            out_of_order: false,
            reorder_window: 1024,
            window_bytes: 1 << 20,
            ack_interval: 4,
            recovery: Span::ZERO,
            timeout: 14,
            retries: 7,
            data,
            acknowledgements: Marking { ecn: false, ..data },
            notifications: Marking {
                class: 6,
                dscp: 48,
                pcp: None,
                ecn: false,
            },
            pfc: PfcConfig {
                send: 1 << 3,
                obey: 1 << 3,
                response: Span::from_ns(600),
                ..PfcConfig::default()
            },
            levels: [0, 0, 0, 0, 0, 0, 1, 1],
            congestion: CongestionConfig::Off,
            pcie: None,
            uet: None,
            storage: None,
        }
    }
}

impl HostConfig {
    /// Bytes of each packet for telemetry by switches; 0 unless its congestion control uses it.
    pub const fn telemetry_bytes(&self) -> u32 {
        match self.congestion.signal() {
            Signal::Telemetry => TELEMETRY_BYTES,
            _ => 0,
        }
    }

    /// The parameters of its device.
    pub fn device(&self) -> rnic::Config {
        rnic::Config {
            window_bytes: self.window_bytes,
            out_of_order: self.out_of_order,
            reorder_window: self.reorder_window,
            ack_interval: self.ack_interval,
            recovery_ns: rnic::Nanos(self.recovery.0 / 1000),
            overhead_bytes: self.overhead_bytes(),
            congestion: self.congestion.clone(),
            ..rnic::Config::default()
        }
    }

    /// Bytes that each packet takes on a link besides its own: preamble and gap, or the delimiters of
    /// InfiniBand.
    pub const fn gap_bytes(&self) -> u32 {
        match self.headers {
            Headers::Infiniband => DELIMITER_BYTES,
            _ => FRAME_OVERHEAD_BYTES,
        }
    }

    /// Bytes that a data packet takes on a link besides its payload, preamble and gap included.
    pub(crate) fn overhead_bytes(&self) -> u32 {
        self.headers.of_data() + self.gap_bytes() + self.telemetry_bytes()
    }
}

impl Default for HostConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow {
    /// One RDMA WRITE of `bytes` at the start of the run.
    pub const fn write(from: u32, to: u32, bytes: u32) -> Self {
        Self {
            from,
            to,
            operation: Transfer::Write,
            message_bytes: bytes,
            messages: 1,
            depth: 1,
            start: Time(0),
            workload: 0,
            forgery: Forgery::None,
            trace: None,
            io: IoLimits::LINUX,
            marks: FlowMarks {
                class: None,
                dscp: None,
            },
        }
    }
}
