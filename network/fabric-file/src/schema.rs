//! The fields of the fabric file. The documentation and the JSON schema are generated from these comments.

pub use super::collective::{
    Collective, CollectiveAlgorithm, CollectiveKind, CollectiveProtocol, GROUP_OF_ALL, GroupTable,
    LocalTable, TransferTable,
};
use super::congestion::{Congestion, Dcqcn, Dctcp, Hpcc, Nscc, Swift, Timely};
pub use super::links::{Down, Law, LinkTable};
pub use super::model::{ExpertsTable, ModelFamily, ModelTable, ParallelTable};
pub use super::subnet_manager::{RoutingEngine, SubnetManager};
pub use super::workload::{Operation, Pattern, Sizes, Workload};

use super::functions::Functions;
use super::hosts::{Drive, ProcessorTable, Storage};
use super::links::LINK_RATE;
use super::uet::{Transport, TrimTable, Uet};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::config::Limit;
use fabric::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{
    Bandwidth, BitErrors, Guid, HeadroomSize, InfinibandSpeed, Ratio, Size, Threshold, Timespan,
};

/// A network, its traffic, and the parameters of the run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FabricFile {
    /// Title of the file in reports and pages.
    pub title: String,
    /// Files that are read before this one. Names of files, here and in `routeros`, `sonic`, `replay`,
    /// `flows`, `connections` and `sizes-file`, are relative to the file that has them. Tables are merged and
    /// this file wins; arrays of tables (`[[host]]` and so on) are appended.
    pub include: Vec<String>,
    /// Seed of all random numbers. The same seed gives the same run.
    pub seed: u64,
    /// Virtual time at which the run ends. Without it, the run ends when all transfers have.
    pub duration: Option<Timespan>,
    /// A generated topology. Hosts, switches and links of the file come on top of it.
    pub topology: Option<Generator>,
    /// How switches route packets.
    pub routing: Routing,
    /// InfiniBand: the subnet manager of a simulation.
    pub sm: SubnetManager,
    /// Kinds of adapters, by name. Hosts that name none have the one called `default`.
    pub nic: BTreeMap<String, NicTable>,
    /// Kinds of switches: how they treat traffic. Switches that name none have the one called `default`.
    pub qos: BTreeMap<String, Qos>,
    /// Hosts. An entry whose name matches hosts that are there already, generated or from above (`h3`, `h*`),
    /// changes those.
    pub host: Vec<HostTable>,
    /// Switches. An entry whose name matches switches that are there already, generated or from above
    /// (`leaf0`, `spine*`), changes those.
    pub switch: Vec<SwitchTable>,
    /// Links between hosts and switches.
    pub link: Vec<LinkTable>,
    /// Transfers between hosts.
    pub workload: Vec<Workload>,
    /// Groups of ranks, by name.
    pub group: BTreeMap<String, GroupTable>,
    /// Collective operations of groups: all-reduce and the like, which may wait for each other.
    pub collective: Vec<Collective>,
    /// Transfers that wait for others and are waited for.
    pub transfer: Vec<TransferTable>,
    /// Models that are trained: what their ranks compute and exchange.
    pub model: Vec<ModelTable>,
    /// Kinds of processors, by name. Hosts that name none have the one called `default`.
    pub processor: BTreeMap<String, ProcessorTable>,
    /// Kinds of drives, by name. Hosts that name none have the one called `default`.
    pub drive: BTreeMap<String, Drive>,
    /// NVMe over Fabrics between hosts.
    pub storage: Vec<Storage>,
    /// Values to try, by path: `"nic.default.mtu" = [1024, 4096]`. Every combination is a run.
    pub sweep: BTreeMap<String, Vec<Scalar>>,
}

/// A value of a sweep, as the field itself would have it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with decimals.
    Float(f64),
    /// Text: names, and quantities with units.
    Text(String),
}

/// The parameters of a generated topology.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Generator {
    /// The shape of the topology.
    pub kind: Shape,
    /// `fat-tree`: ports per switch, an even number. There are k^3/4 hosts.
    pub k: Option<u32>,
    /// `star`, `leaf-spine`, `dragonfly`: hosts at each switch that has hosts.
    pub hosts: Option<u32>,
    /// `leaf-spine`: switches with hosts. `rail`: servers.
    pub leaves: Option<u32>,
    /// `leaf-spine`, `rail`: switches that join the leaves.
    pub spines: Option<u32>,
    /// `rail`: servers; each has one adapter per rail.
    pub servers: Option<u32>,
    /// `rail`: rails; each is a leaf to which the adapters of its number are attached.
    pub rails: Option<u32>,
    /// `dragonfly`: groups of switches.
    pub groups: Option<u32>,
    /// `dragonfly`: switches per group, each linked with each other of its group.
    pub routers: Option<u32>,
    /// Speed of the links of hosts. Default: 100Gb/s.
    pub rate: Option<Bandwidth>,
    /// Speed of the links among switches. Default: that of the hosts' links.
    pub fabric_rate: Option<Bandwidth>,
    /// InfiniBand: width and speed of the links of hosts, in place of `rate`. Default: 4x EDR.
    pub infiniband: Option<InfinibandSpeed>,
    /// InfiniBand: width and speed of the links among switches, in place of `fabric-rate`. Default: those of
    /// the hosts' links.
    pub fabric_infiniband: Option<InfinibandSpeed>,
    /// One-way delay of every link.
    #[serde(default = "microsecond")]
    pub delay: Timespan,
    /// Chance that a bit arrives wrong, on every link.
    #[serde(default)]
    pub bit_errors: BitErrors,
}

impl Generator {
    /// Speed, delay and bit errors of the links.
    pub(super) fn speeds(&self) -> fabric::topology::Speeds {
        let link = |rate: Rate| fabric::topology::LinkConfig {
            bit_errors: self.bit_errors.0,
            ..fabric::topology::LinkConfig::new(rate, self.delay.0)
        };
        let of = |infiniband: Option<InfinibandSpeed>, rate: Option<Bandwidth>| {
            let infiniband = infiniband.map(|speed| speed.0.rate());
            infiniband.or_else(|| rate.map(|rate| rate.0))
        };
        let hosts = of(self.infiniband, self.rate).unwrap_or(LINK_RATE);
        let fabric = of(self.fabric_infiniband, self.fabric_rate).unwrap_or(hosts);
        fabric::topology::Speeds {
            hosts: link(hosts),
            fabric: link(fabric),
        }
    }
}

/// The shapes that can be generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// `hosts` around one switch, `s0`.
    Star,
    /// `leaves` with `hosts` each, and `spines`, each linked with each leaf once.
    LeafSpine,
    /// The three-stage fat tree of `k`-port switches (Al-Fares et al., 2008): `edge`, `agg` and `core`.
    FatTree,
    /// `rails` leaves, to which all `servers` are attached with one adapter each, and `spines` above them.
    /// Hosts are called `n0r0` after server and rail.
    Rail,
    /// `groups` of `routers` with `hosts` each, and one link between each pair of groups (Kim et al., 2008).
    Dragonfly,
}

/// Routing: packets take shortest paths, and among those:
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Routing {
    /// How traffic is spread over next hops of equal cost.
    pub spread: SpreadKind,
    /// `flowlet`: the pause after which a flow may take another path.
    pub flowlet_gap: Timespan,
    /// Seed of the hashes, besides the run's; each switch hashes differently all the same.
    pub hash_seed: u64,
    /// Time that switches take to reroute when a link goes down, and when it is up again. Without it routes
    /// stay as they are.
    pub reaction: Option<Timespan>,
}

/// How traffic is spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadKind {
    /// By a hash of addresses and ports (ECMP): a flow stays on one path.
    Hash,
    /// A random path for each packet.
    Random,
    /// Packets in turn.
    RoundRobin,
    /// Each packet to the shortest queue.
    Adaptive,
    /// A flow may change to the shortest queue after a pause.
    Flowlet,
}

/// An adapter, and the transport parameters of its queue pairs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Nic")]
pub struct NicTable {
    /// The link layer of the port. All hosts of a file have the same.
    pub link_layer: LinkLayer,
    /// The transport of workloads.
    pub transport: Transport,
    /// Parameters of `transport = "uet"`.
    pub uet: Uet,
    /// The transport of storage. Plain workloads are RDMA.
    pub protocol: Protocol,
    /// Path MTU: payload bytes per packet; 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// Speed of the adapter, if it is below the link's.
    pub rate: Option<Bandwidth>,
    /// The PCIe link between adapter and memory. Without it the PCIe link is no limit.
    pub pcie: Option<Pcie>,
    /// Virtual functions (SR-IOV); without this table the adapter has none.
    pub functions: Option<Functions>,
    /// Whether packets are placed in whatever order they arrive; every packet of a WRITE then carries its
    /// address. Needed at both ends. Otherwise packets are sent again from the first missing one on
    /// (go-back-N).
    pub out_of_order: bool,
    /// Out-of-order receive: how many packets beyond a missing one may be placed.
    pub reorder_window: u32,
    /// Bytes that a queue pair may have outstanding without acknowledgement.
    pub window: Size,
    /// The same in packets: PSNs that may be outstanding. The smaller limit applies.
    pub outstanding: Option<u32>,
    /// Time that a queue pair takes to retransmit after a sequence error.
    pub recovery: Timespan,
    /// The most packets between two acknowledgement requests.
    pub ack_interval: u32,
    /// Retransmission timeout, as verbs encode it: 4.096 us times two to this power (IBTA 9.7.6.1.3). 14 is
    /// 67 ms; 0 is never.
    pub timeout: u8,
    /// Retransmissions before the queue pair fails; at most 7.
    pub retries: u8,
    /// DSCP of data.
    pub dscp: u8,
    /// 802.1Q priority code point; frames are untagged without it.
    pub pcp: Option<u8>,
    /// DSCP of congestion notification packets.
    pub cnp_dscp: u8,
    /// Priority of congestion notification packets within the adapter.
    pub cnp_priority: u8,
    /// DSCP of acknowledgements. Default: that of data.
    pub ack_dscp: Option<u8>,
    /// Priority of acknowledgements within the adapter. Default: that of data.
    pub ack_priority: Option<u8>,
    /// Bytes of data frames besides payload, for comparisons with models that count headers differently.
    /// Without it, headers are those of RoCEv2.
    pub data_overhead: Option<Size>,
    /// The same, of acknowledgements and notifications.
    pub control_overhead: Option<Size>,
    /// Whether data packets are ECN-capable (ECT).
    pub ecn: bool,
    /// Priority of data within the adapter: its queue, and the pause frames that stop it.
    pub priority: u8,
    /// Priorities at whose pause frames the adapter stops.
    pub pfc: Vec<u8>,
    /// Whether the adapter of a live host takes PFC and ETS from its switch by DCBX.
    pub willing: bool,
    /// InfiniBand: service level of packets, 0 to 15, which `sm.qos-sl2vl` gives a virtual lane.
    pub service_level: u8,
    /// InfiniBand: receive buffer of each virtual lane, without `pcie`; with it, lanes share
    /// `receive-buffer`. More than 128 KiB cannot be in use: credits count no further.
    pub lane_buffer: Size,
    /// The congestion control of queue pairs.
    pub congestion: Congestion,
    /// Parameters of DCQCN, by the names of its paper's section 5.
    pub dcqcn: Dcqcn,
    /// Parameters of Swift, as in its paper's section 3.1.
    pub swift: Swift,
    /// Parameters of HPCC, by the names of its paper's algorithm 1.
    pub hpcc: Hpcc,
    /// Parameters of TIMELY, by the names of its paper's algorithm 1.
    pub timely: Timely,
    /// Parameters of DCTCP (RFC 8257).
    pub dctcp: Dctcp,
    /// Parameters of NSCC (Ultra Ethernet 1.0, section 3.6.13).
    pub nscc: Nscc,
}

/// The link layer of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkLayer {
    /// Ethernet: packets are those of RoCEv2.
    Ethernet,
    /// InfiniBand: ports have LIDs from a subnet manager, and links have credits.
    Infiniband,
}

/// The transport of storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// NVMe/RDMA: the adapter moves data, and the processor polls.
    Rdma,
    /// NVMe/TCP: the processor copies data and is interrupted. The stream itself is this adapter's reliable
    /// connection with `congestion`, `data-overhead` and so on as they are set.
    Tcp,
}

/// A PCIe link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pcie {
    /// Generation as trained (`LnkSta` of lspci): 1 to 6.
    pub generation: u8,
    /// Lanes as trained.
    pub width: u8,
    /// Payload bytes per packet on the bus (`MaxPayload`).
    pub payload: u32,
    /// Time from a read request to memory until its data arrives.
    pub read_latency: Timespan,
    /// Time from the last byte of a packet until it is in memory.
    pub write_latency: Timespan,
    /// Largest rate at which data is read from memory for answers to READs, where it is lower than that of
    /// the link: adapters keep fewer reads of memory under way for them than for data that they send unasked.
    pub read_response_rate: Option<Bandwidth>,
    /// Processor time to post a work request.
    pub doorbell: Timespan,
    /// Bytes that the adapter can hold while the PCIe link is slower than the network; when it is full, the
    /// adapter pauses the switch, or drops.
    pub receive_buffer: Size,
}

/// How switches treat traffic.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Qos {
    /// The packet memory of the switch.
    pub buffer: Size,
    /// Packets occupy whole cells of this size.
    pub cell: Size,
    /// A common pool for headroom; without it each lossless class of each port has its own.
    pub headroom_pool: Option<Size>,
    /// The header that determines a packet's class.
    pub trust: Trust,
    /// Class of packets without a trusted header, or with a value that has no entry.
    pub default_class: u8,
    /// Class by DSCP: `{ 26 = 3, "48-55" = 6 }`. Missing values have the default class.
    pub dscp: BTreeMap<String, u8>,
    /// Class by 802.1Q priority code point. Missing values have the default class.
    pub pcp: BTreeMap<String, u8>,
    /// Queues by class: `[qos.default.queue.3]`. Missing ones share what is left, with weight 1.
    pub queue: BTreeMap<String, QueueTable>,
    /// The unit in which weights count.
    pub weigh: WeighBy,
    /// When a packet is forwarded. Cutting through works between ports of one speed; else packets are stored.
    pub forwarding: Forwarding,
    /// Priority flow control.
    pub pfc: Pfc,
    /// How much of the shared buffer a lossy class of one port may use.
    pub lossy_limit: Threshold,
    /// Whether ports to live hosts take PFC and ETS from the adapter by DCBX. The buffer stays divided as
    /// this table has it.
    pub willing: bool,
    /// InfiniBand, in a simulation: receive buffer of each virtual lane of each port. More than 128 KiB
    /// cannot be in use: credits count no further.
    pub lane_buffer: Size,
}

/// When a switch forwards a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// When the last bit has arrived.
    StoreAndForward,
    /// When the first bits have arrived. Packets for a port that is faster than the one they arrived at are
    /// stored all the same.
    CutThrough,
}

/// The header that determines a packet's class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// None: every packet is in the default class.
    None,
    /// The DSCP of IP packets.
    Dscp,
    /// The priority code point of tagged packets.
    Pcp,
    /// The DSCP of IP packets, else the priority code point.
    Both,
}

/// The unit in which weights count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Weigh")]
pub enum WeighBy {
    /// Bytes: deficit round robin, for enhanced transmission selection (802.1Qaz).
    Bytes,
    /// Packets, whatever their size, as some chips do.
    Packets,
}

/// One queue of every port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Queue")]
pub struct QueueTable {
    /// Strict level: queues of a higher level are always served first; those of one level share by weight.
    /// For strict priority give each queue its own level.
    pub level: u8,
    /// Share within the level, at least 1.
    pub weight: u16,
    /// The highest rate of the queue.
    pub rate: Option<Bandwidth>,
    /// Bytes that may leave at once after the queue was idle, when there is a `rate`.
    pub burst: Size,
    /// ECN marking of this queue; without it, no packet is marked.
    pub ecn: Option<Ecn>,
    /// How much may wait in one queue of one port.
    pub limit: Threshold,
    /// Trimming: packets that find the queue full are cut to their headers instead of being dropped
    /// (Ultra Ethernet 1.0, section 4.1). Only `transport = "uet"` asks for what is missing; with others,
    /// trimmed packets are lost.
    pub trim: Option<TrimTable>,
}

/// Marking by the length of the queue (RED).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ecn {
    /// Queue length below which no packet is marked.
    pub min: Size,
    /// Queue length above which every packet is marked.
    pub max: Size,
    /// Chance of a mark at `max`; it grows linearly from 0 at `min`.
    pub probability: Ratio,
    /// When the length of the queue is compared with the thresholds.
    pub at: MarkAt,
    /// Drop packets that do not take part in ECN, with the same chance (WRED).
    pub drop: bool,
}

/// The moment at which marking examines the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MarkAt {
    /// When a packet leaves.
    Dequeue,
    /// When a packet arrives.
    Enqueue,
}

/// Priority flow control (802.1Q clause 36).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pfc {
    /// Lossless classes, which are priorities as well: the switch pauses its peer for them, and stops at its
    /// peer's pause frames for them.
    pub classes: Vec<u8>,
    /// How much of the shared buffer a lossless class of one port may use before its sender is paused.
    pub xoff: Threshold,
    /// Xon is sent when the use is this far below `xoff`.
    pub xon: Size,
    /// Buffer for packets that arrive after the pause: `"auto"` is the sum of 802.1Q annex N for the port's
    /// link.
    pub headroom: HeadroomSize,
    /// Settings of single classes, which replace those of all classes: `[qos.NAME.pfc.class.4]`.
    pub class: BTreeMap<String, PfcClass>,
    /// Pause time that is requested, in quanta of 512 bit times.
    pub quanta: u16,
    /// Time from the last bit of a pause frame until its receiver stops (802.3 annex 31B.3.7 sets the
    /// longest).
    pub response: Timespan,
    /// The watchdog, which drops packets in queues that are paused for too long.
    pub watchdog: Option<WatchdogTable>,
}

/// Settings of one lossless class, which replace those of all classes.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PfcClass {
    /// As `xoff` of all classes.
    pub xoff: Option<Threshold>,
    /// As `xon` of all classes.
    pub xon: Option<Size>,
    /// As `headroom` of all classes.
    pub headroom: Option<HeadroomSize>,
}

/// A PFC watchdog, as SONiC's `pfcwd` with the action drop.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Watchdog")]
pub struct WatchdogTable {
    /// A queue that is paused for this long without a break is in a storm.
    pub detect: Timespan,
    /// The storm ends when the queue was not paused for this long.
    pub restore: Timespan,
}

/// A host, or several alike.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Host")]
pub struct HostTable {
    /// Its name. With `*` the entry applies to every existing host that matches.
    pub name: String,
    /// Number of hosts, named by the name and a number from 0.
    pub count: Option<u32>,
    /// Its adapter: a table `[nic.NAME]`.
    #[serde(default = "default_name")]
    pub nic: String,
    /// Its processor: a table `[processor.NAME]`.
    #[serde(default = "default_name")]
    pub processor: String,
    /// Its drives: a table `[drive.NAME]`.
    #[serde(default = "default_name")]
    pub drive: String,
    /// Number of drives; I/Os use them in turn, as stripes of RAID 0.
    #[serde(default = "one")]
    pub drives: u32,
    /// Whether its drives keep parity (RAID 5), of at least 3: a write, which is smaller than a stripe, reads
    /// the old data and the old parity and then writes both.
    #[serde(default)]
    pub parity: bool,
    /// InfiniBand: GUID of the adapter. Default: one that is made of the host's number.
    pub guid: Option<Guid>,
    /// InfiniBand: GUID of the adapter's port. Default: `guid` plus 1.
    pub port_guid: Option<Guid>,
    /// InfiniBand: the node description, of 64 bytes at most. Default: the host's name.
    pub description: Option<String>,
    /// Whether `rockery lab` runs programs in it. If no host is live, all are; `rockery sim` ignores it.
    #[serde(default)]
    pub live: bool,
}

/// A switch, or several alike.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Switch")]
pub struct SwitchTable {
    /// Its name. With `*` the entry applies to every existing switch that matches.
    pub name: String,
    /// Number of switches, named by the name and a number from 0.
    pub count: Option<u32>,
    /// Traffic classes and buffers: a table `[qos.NAME]`.
    #[serde(default = "default_name")]
    pub qos: String,
    /// RouterOS scripts with `/interface ethernet switch qos` menus, run one after the
    /// other; instead of `qos`. Links may then name the switch's ports: `"sw:qsfp28-1-1"`.
    pub routeros: Option<Vec<String>>,
    /// A SONiC `config_db.json`, or several files such as `qos.json`, `buffers.json` and
    /// `pg_profile_lookup.ini`; instead of `qos`. Links may then name the switch's
    /// ports: `"sw:Ethernet0"`.
    pub sonic: Option<FileNames>,
    /// InfiniBand: GUID of the switch. Default: one that is made of the switch's number.
    pub guid: Option<Guid>,
    /// InfiniBand: number of ports, from 1 to 254. Default: up to the last one that is connected.
    pub ports: Option<u8>,
    /// InfiniBand: the node description, of 64 bytes at most. Default: the switch's name.
    pub description: Option<String>,
}

/// The name of a file, or the names of several.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FileNames {
    /// A file that holds all tables.
    One(String),
    /// Files that hold tables of one switch.
    Several(Vec<String>),
}

impl FileNames {
    /// The names in their order.
    pub fn all(&self) -> Vec<String> {
        match self {
            Self::One(name) => alloc::vec![name.clone()],
            Self::Several(names) => names.clone(),
        }
    }
}

/// Receive buffer of a virtual lane: assumed, since chips do not publish it. It is more than what is under
/// way in 2 us and a packet at 100 Gb/s.
const LANE_BUFFER: u64 = 64 << 10;

fn microsecond() -> Timespan {
    Timespan(Span::from_us(1))
}

fn one() -> u32 {
    1
}

fn default_name() -> String {
    "default".to_owned()
}

impl Default for Routing {
    fn default() -> Self {
        // The gap of the flowlets' authors for data centres (Kandula et al., 2007; Vanini et al., 2017).
        Self {
            spread: SpreadKind::Hash,
            flowlet_gap: Timespan(Span::from_us(500)),
            hash_seed: 0,
            reaction: None,
        }
    }
}

impl Default for NicTable {
    fn default() -> Self {
        Self {
            link_layer: LinkLayer::Ethernet,
            transport: Transport::Rc,
            uet: Uet::default(),
            protocol: Protocol::Rdma,
            mtu: 4096,
            rate: None,
            pcie: None,
            functions: None,
            out_of_order: false,
            reorder_window: 1024,
            window: Size(1 << 20),
            outstanding: None,
            recovery: Timespan(Span::ZERO),
            ack_interval: 4,
            timeout: 14,
            retries: 7,
            dscp: 26,
            pcp: None,
            cnp_dscp: 48,
            cnp_priority: 6,
            ack_dscp: None,
            ack_priority: None,
            data_overhead: None,
            control_overhead: None,
            ecn: true,
            priority: 3,
            pfc: alloc::vec![3],
            willing: false,
            service_level: 0,
            lane_buffer: Size(LANE_BUFFER),
            congestion: Congestion::Dcqcn,
            dcqcn: Dcqcn::default(),
            swift: Swift::default(),
            hpcc: Hpcc::default(),
            timely: Timely::default(),
            dctcp: Dctcp::default(),
            nscc: Nscc::default(),
        }
    }
}

impl Default for Pcie {
    fn default() -> Self {
        // A DMA read: Neugebauer et al., Understanding PCIe performance for end host networking (SIGCOMM
        // 2018), some 550 ns on a Xeon E5. What a posted write and a doorbell take is assumed.
        Self {
            generation: 4,
            width: 16,
            payload: 256,
            read_latency: Timespan(Span::from_ns(550)),
            write_latency: Timespan(Span::from_ns(200)),
            read_response_rate: None,
            doorbell: Timespan(Span::from_ns(150)),
            receive_buffer: Size(512 << 10),
        }
    }
}

impl Default for Qos {
    fn default() -> Self {
        let class = |entries: &[(&str, u8)]| {
            entries
                .iter()
                .map(|(value, class)| ((*value).to_owned(), *class))
                .collect::<BTreeMap<_, _>>()
        };
        Self {
            buffer: Size(32 << 20),
            cell: Size(256),
            headroom_pool: None,
            trust: Trust::Both,
            default_class: 0,
            dscp: class(&[("26", 3), ("48", 6)]),
            pcp: class(&[("3", 3), ("6", 6)]),
            queue: BTreeMap::new(),
            weigh: WeighBy::Bytes,
            forwarding: Forwarding::StoreAndForward,
            pfc: Pfc::default(),
            lossy_limit: Threshold(Limit::Dynamic(fabric::config::ALPHA_ONE)),
            willing: false,
            lane_buffer: Size(LANE_BUFFER),
        }
    }
}

impl Qos {
    /// An InfiniBand switch, whose packets have their virtual lane in the place of the DSCP. A lane without
    /// room at the other end of the link waits, as it does without credits, and nothing is dropped.
    pub(crate) fn of_virtual_lanes(ports: usize) -> Self {
        const LANES: u8 = 8;
        const COMMON_BYTES: u64 = 32 << 20;
        const PORT_BYTES: u64 = 8 << 20;
        Self {
            buffer: Size(COMMON_BYTES + ports as u64 * PORT_BYTES),
            trust: Trust::Dscp,
            dscp: (0..LANES).map(|lane| (lane.to_string(), lane)).collect(),
            pcp: BTreeMap::new(),
            pfc: Pfc {
                classes: (0..LANES).collect(),
                ..Pfc::default()
            },
            ..Self::default()
        }
    }
}

impl Default for QueueTable {
    fn default() -> Self {
        Self {
            level: 0,
            weight: 1,
            rate: None,
            burst: Size(64 << 10),
            ecn: None,
            limit: Threshold(Limit::None),
            trim: None,
        }
    }
}

impl Default for Ecn {
    /// The thresholds of the model of HPCC's authors for 100 Gb/s (their `KMIN_MAP`, `KMAX_MAP` and
    /// `PMAX_MAP`).
    fn default() -> Self {
        Self {
            min: Size(400_000),
            max: Size(1_600_000),
            probability: Ratio((1 << 32) / 5),
            at: MarkAt::Dequeue,
            drop: false,
        }
    }
}

impl Default for WatchdogTable {
    /// Those of SONiC's `pfcwd start_default`.
    fn default() -> Self {
        Self {
            detect: Timespan(Span::from_us(200_000)),
            restore: Timespan(Span::from_us(200_000)),
        }
    }
}

impl Default for Pfc {
    fn default() -> Self {
        Self {
            classes: alloc::vec![3],
            xoff: Threshold(Limit::Dynamic(fabric::config::ALPHA_ONE / 8)),
            xon: Size(18_432),
            headroom: HeadroomSize(None),
            class: BTreeMap::new(),
            quanta: 0xffff,
            response: Timespan(Span::from_ns(600)),
            watchdog: None,
        }
    }
}
