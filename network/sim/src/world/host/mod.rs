//! A host: the device, the port that it sends through, and the program that posts work to it.

mod adapter;
mod frame;
mod lanes;
mod live;
mod marks;
mod program;
mod replay;
mod statistics;
mod uet;

pub(super) use adapter::digest;
pub(super) use marks::MarkedFlows;
pub(super) use program::Poster;
pub use statistics::Receiving;

use super::collective::Worker;
use super::link_state::LinkState;
use super::live::LiveHosts;
use super::pcie_link::PcieLink;
use super::scenario::{Forgery, Headers, HostConfig};
use super::sriov_adapter::{FunctionDrops, Seat, SriovAdapter};
use super::storage::Store;
use super::uet::Endpoint;
use fabric::config::{CLASSES, PfcConfig, Profile, QueueConfig};
use fabric::{Egress, Packets, Pcg32, Telemetry, Time};
use frame::Mark;
use rnic::{Cq, Device, Gid, Pd, RegionKeys};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The address of hosts' buffers: the simulation has no memory there.
pub(super) const BUFFER_ADDRESS: u64 = 1 << 20;

/// The settings that hosts of one kind share.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Kind {
    pub(super) config: HostConfig,
    pub(super) profile: Profile,
    /// Data, acknowledgements, notifications.
    marks: [Mark; 3],
    /// Bytes of each packet for telemetry by switches.
    telemetry_bytes: u32,
}

impl Kind {
    pub(super) fn new(config: HostConfig, profile: Profile) -> Self {
        let mut marks =
            [config.data, config.acknowledgements, config.notifications].map(Mark::from);
        if config.headers == Headers::Infiniband {
            marks = marks.map(Mark::of_lane);
        }
        let telemetry_bytes = config.telemetry_bytes();
        Self {
            config,
            profile,
            marks,
            telemetry_bytes,
        }
    }

    /// The settings of this host with other queues and PFC at the port.
    pub(super) fn with_port(&self, pfc: PfcConfig, queues: [QueueConfig; CLASSES]) -> Self {
        let config = HostConfig {
            pfc,
            ..self.config.clone()
        };
        Self {
            config,
            profile: Profile {
                queues,
                pfc,
                ..self.profile.clone()
            },
            ..*self
        }
    }
}

/// Where each host is attached, by host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment {
    pub(super) leaf: u32,
    pub(super) exit: u16,
    /// VLAN that its embedded switch has it in; 0 is untagged.
    pub(super) vlan: u16,
}

/// The objects of a host's device that all of its queue pairs use.
pub(super) struct HostObjects {
    pub(super) pd: Pd,
    pub(super) cq: Cq,
    /// Of the memory region.
    pub(super) keys: RegionKeys,
}

/// A host in virtual time.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) number: u32,
    pub(super) kind: u16,
    pub(super) lane: u32,
    pub(super) device: Device,
    pub(super) egress: Egress,
    pub(super) pd: Pd,
    pub(super) cq: Cq,
    pub(super) keys: RegionKeys,
    /// Moments that were scheduled and have not come, the next one last: each is scheduled once.
    clocks: Vec<Time>,
    /// Flows that begin here, those that begin last first.
    pub(super) posters: Vec<Poster>,
    /// Indices into `posters`, by start, the first last.
    pub(super) starts: Vec<u32>,
    /// Posters that post a recorded request then.
    thinking: BinaryHeap<Reverse<(Time, u32)>>,
    pub(super) pauses_received: u64,
    pub(super) pcie: Option<Box<PcieLink>>,
    pub(super) store: Option<Box<Store>>,
    /// Ranks of the host in collectives.
    pub(super) worker: Option<Box<Worker>>,
    /// Ultra Ethernet's transport, where the host has that.
    pub(super) uet: Option<Box<Endpoint>>,
    /// Whether the host's packets come from outside, and go there.
    pub(super) is_live: bool,
    /// Of a live host, whose queues hold one packet each: classes whose packet bears another's GID, and those
    /// whose packet bears another's MAC address.
    forged: [u8; 2],
    /// Place of the host in an adapter that it shares.
    pub(super) seat: Option<Seat>,
    pub(super) function_drops: FunctionDrops,
    /// Classes of data, one bit each: those that are paused let the others go first.
    pub(super) classes: u8,
    /// Classes whose queue pairs wait for the end of a pause.
    stopped: u8,
    random: Pcg32,
}

/// Telemetry of switches in the last packet of each flow that a host received, until the host returns it.
pub(super) type Echoes = BTreeMap<(u32, u32), Telemetry>;

/// The state of a part of the network that its hosts work with.
pub(super) struct Context<'a> {
    pub(super) packets: &'a mut Packets,
    pub(super) links: &'a mut LinkState,
    pub(super) kinds: &'a [Kind],
    pub(super) attachments: &'a [Attachment],
    pub(super) receiving: &'a mut [Receiving],
    /// The poster of each flow at its host.
    pub(super) poster_of_flow: &'a [u32],
    pub(super) entropies: &'a BTreeMap<u32, u32>,
    pub(super) echoes: &'a mut Echoes,
    /// Flows that are not done.
    pub(super) unfinished: &'a mut u64,
    /// Where packets of live hosts come from and go to.
    pub(super) live: Option<&'a mut dyn LiveHosts>,
    pub(super) cards: &'a mut [SriovAdapter],
    /// By flow: the host that bears another's address, and which.
    pub(super) forgeries: &'a BTreeMap<u32, (u32, Forgery)>,
    /// Flows with marks of their own.
    pub(super) marked: &'a MarkedFlows,
}

impl Host {
    /// The class of a flow's data at this host.
    pub(super) fn class_of(&self, flow: u32, context: &Context<'_>) -> u8 {
        let own = context.marked.mark(flow, self.number, 0);
        own.map_or(
            context.kinds[usize::from(self.kind)].marks[0].class,
            |mark| mark.class,
        )
    }

    /// The cache lines of the host itself, without the device.
    #[inline(always)]
    pub(super) fn load_first(&self, load: impl Fn(*const u8)) {
        fn line<T>(value: &T) -> *const u8 {
            std::ptr::from_ref(value).cast()
        }
        let Self {
            number,
            clocks,
            seat,
            starts,
            posters,
            egress,
            ..
        } = self;
        [
            line(number),
            line(clocks),
            line(seat),
            line(starts),
            line(posters),
        ]
        .into_iter()
        .for_each(&load);
        egress.lines(0, load);
    }

    /// Those that it points to.
    #[inline(always)]
    pub(super) fn load_second(&self, load: impl Fn(*const u8)) {
        load(self.clocks.as_ptr().cast());
        self.egress.lines(3, load);
    }

    pub(super) fn new(
        number: u32,
        kind: u16,
        device: Device,
        objects: HostObjects,
        egress: Egress,
        random: Pcg32,
    ) -> Self {
        Self {
            number,
            kind,
            // Hosts' lanes come first, in their order.
            lane: number,
            device,
            egress,
            pd: objects.pd,
            cq: objects.cq,
            keys: objects.keys,
            clocks: Vec::new(),
            posters: Vec::new(),
            starts: Vec::new(),
            thinking: BinaryHeap::new(),
            pauses_received: 0,
            pcie: None,
            store: None,
            worker: None,
            uet: None,
            is_live: false,
            forged: [0; 2],
            seat: None,
            function_drops: FunctionDrops::default(),
            classes: 0,
            stopped: 0,
            random,
        }
    }
}

/// The address of a host.
pub(super) fn gid(host: u32) -> Gid {
    let [_, b, c, d] = host.to_be_bytes();
    Gid::from_ipv4([10, b, c, d])
}

fn host_of(gid: &Gid) -> u32 {
    u32::from_be_bytes([0, gid.0[13], gid.0[14], gid.0[15]])
}
