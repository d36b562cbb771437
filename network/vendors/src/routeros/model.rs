//! Translation of a RouterOS configuration into the chip's queues and buffers.
//!
//! Two values that the manual leaves open are chosen here: `auto` of a queue's own buffers (memory that is
//! neither shared nor for multicast, divided by ports and queues in use), and of the pause threshold (half of
//! the shared pool, divided by ports in use; the other half takes packets that arrive after the pause).

use super::{
    PfcProfile, QosProfile, QueueSchedule, RouterOsConfig, RouterOsPort, TrustMode, TxManager,
    WredThreshold,
};
use fabric::config::{
    BufferConfig, CLASSES, ClassMap, GroupConfig, Limit, PfcConfig, Profile, QueueConfig, Red,
    RedAt, Shaper, Treatment, Weigh,
};
use fabric::topology::LinkConfig;
use fabric::{Rate, Span};

/// The packet memory of the CRS504: what its `monitor` prints as `total-byte-cap`.
pub(crate) const MEMORY_BYTES: u32 = 8 << 20;

/// Packet memory is used in blocks of this size (`total-byte-cap` over `total-packet-cap`).
pub(crate) const BLOCK_BYTES: u32 = 256;

/// `multicast-packet-cap` as printed: a tenth of all blocks.
const MULTICAST_BLOCKS: u32 = 3_276;

/// `shared-pool0-packet-cap` as printed.
const SHARED_BLOCKS: u32 = 10_240;

/// `wred-packet-cap` as printed, for the threshold `medium`: marking is certain so far above the queue's cap.
const WRED_BLOCKS: u32 = 4_096;

/// Blocks with which a queue without buffers of its own can still work.
const QUEUE_BLOCKS_MIN: u32 = 8;

/// Burst of a shaper: two of the largest frames, since MikroTik does not document it.
const BURST_BYTES: u32 = 2 * 9_600;

/// Time from a pause frame until the port stops. The chip's value is not published: assumed is a third of the
/// maximum of 802.3 annex 31B.3.7 for a 100 Gb/s port (394 quanta).
const RESPONSE: Span = Span::from_ns(670);

impl RouterOsConfig {
    /// The packet memory: it is one, and headroom lies in the shared pool.
    pub const fn buffer(&self) -> BufferConfig {
        BufferConfig {
            total_bytes: MEMORY_BYTES,
            headroom_pool_bytes: None,
            cell_bytes: BLOCK_BYTES,
        }
    }

    /// Bytes of the shared pool.
    pub fn shared_bytes(&self) -> u32 {
        self.settings
            .shared_bytes
            .unwrap_or(SHARED_BLOCKS * BLOCK_BYTES)
    }

    /// Bytes kept for multicast.
    pub fn multicast_bytes(&self) -> u32 {
        self.settings
            .multicast_bytes
            .unwrap_or(MULTICAST_BLOCKS * BLOCK_BYTES)
    }

    /// How far above a queue's cap marking becomes certain.
    pub const fn wred_bytes(&self) -> u32 {
        let blocks = match self.settings.wred {
            WredThreshold::Low => WRED_BLOCKS / 2,
            WredThreshold::Medium => WRED_BLOCKS,
            WredThreshold::High => WRED_BLOCKS * 2,
        };
        blocks * BLOCK_BYTES
    }

    /// Whether packets can get into a queue: some profile maps to its class.
    pub fn is_active(&self, class: usize) -> bool {
        self.offloaded
            && self
                .profiles
                .iter()
                .any(|profile| !profile.disabled && usize::from(profile.traffic_class) == class)
    }

    /// The DSCP of the profiles of lossless classes, if it is one.
    pub(crate) fn named_dscp(&self) -> Option<u8> {
        let lossless = self.pfc.iter().filter(|pfc| !pfc.disabled);
        let lossless = lossless.fold(0, |mask, pfc| mask | pfc.traffic_classes);
        let is_lossless = |profile: &&QosProfile| {
            profile.names.0 && !profile.disabled && lossless >> (profile.traffic_class & 7) & 1 == 1
        };
        let mut named = self
            .profiles
            .iter()
            .filter(is_lossless)
            .map(|profile| profile.dscp);
        let first = named.next()?;
        named.all(|dscp| dscp == first).then_some(first)
    }

    /// Bytes that a queue has for itself, with so many ports in use.
    pub fn queue_bytes(&self, manager: &TxManager, class: usize, ports: usize) -> u32 {
        let active = (0..CLASSES)
            .filter(|class| self.is_active(*class))
            .count()
            .max(1) as u32;
        let rest = MEMORY_BYTES.saturating_sub(self.shared_bytes() + self.multicast_bytes());
        let share = rest / (ports.max(1) as u32 * active);
        manager.queues[class]
            .buffers
            .unwrap_or(share)
            .max(QUEUE_BLOCKS_MIN * BLOCK_BYTES)
    }

    /// Bytes at which Xoff is sent, and at which Xon is sent.
    pub fn pause_bytes(&self, pfc: &PfcProfile, ports: usize) -> (u32, u32) {
        let shared = self.shared_bytes();
        let pause = match pfc.pause_threshold {
            Some(threshold) => threshold.bytes(shared),
            None => shared / 2 / ports.max(1) as u32,
        };
        let resume = match pfc.resume_threshold {
            Some(threshold) => threshold.bytes(shared).min(pause),
            None => pause / 2,
        };
        (pause, resume)
    }

    /// How a port treats traffic, with so many ports in use.
    pub(crate) fn profile(&self, name: &str, ports: usize, link: &LinkConfig) -> Profile {
        let fallback = RouterOsPort::default();
        let port = self.ports.get(name).unwrap_or(&fallback);
        let manager = self
            .tx_managers
            .iter()
            .find(|manager| manager.name == port.tx_manager);
        let pfc = self
            .pfc
            .iter()
            .find(|pfc| pfc.name == port.pfc)
            .filter(|pfc| self.offloaded && !pfc.disabled);
        let mut queues = [QueueConfig::default(); CLASSES];
        for (class, queue) in queues.iter_mut().enumerate() {
            if let Some(manager) = manager.filter(|_| self.offloaded) {
                *queue = self.queue(manager, class, ports, port);
            }
        }
        let mut groups = [GroupConfig::default(); CLASSES];
        let classes = pfc.map_or(0, |pfc| pfc.traffic_classes);
        for (class, group) in groups
            .iter_mut()
            .enumerate()
            .filter(|(class, _)| classes >> class & 1 == 1)
        {
            let Some(pfc) = pfc.filter(|pfc| pfc.tx) else {
                continue;
            };
            let (pause, resume) = self.pause_bytes(pfc, ports);
            let headroom = (self.shared_bytes() / ports.max(1) as u32).saturating_sub(pause);
            *group = GroupConfig {
                limit: Limit::Static(pause),
                headroom_bytes: headroom,
                xon_offset_bytes: pause - resume,
                ..GroupConfig::default()
            };
            debug_assert!(class < CLASSES && link.rate.bps() > 0);
        }
        // Receiving needs the queue's rate, or pause times cannot be computed (the manual, on PFC).
        let rated = (0..CLASSES).fold(0, |mask, class| {
            mask | u8::from(port.egress_rates[class].is_some()) << class
        });
        Profile {
            map: self.class_map(port),
            queues,
            weigh: Weigh::Packets,
            group_of_class: [0, 1, 2, 3, 4, 5, 6, 7],
            groups,
            pfc: PfcConfig {
                send: pfc
                    .filter(|pfc| pfc.tx)
                    .map_or(0, |pfc| pfc.traffic_classes),
                obey: pfc
                    .filter(|pfc| pfc.rx)
                    .map_or(0, |pfc| pfc.traffic_classes & rated),
                response: RESPONSE,
                ..PfcConfig::default()
            },
        }
    }

    fn queue(
        &self,
        manager: &TxManager,
        class: usize,
        ports: usize,
        port: &RouterOsPort,
    ) -> QueueConfig {
        let queue = &manager.queues[class];
        let own = self.queue_bytes(manager, class, ports);
        let marks = queue.shared && (manager.ecn || queue.ecn);
        let shared = if queue.shared { self.shared_bytes() } else { 0 };
        QueueConfig {
            level: match queue.schedule {
                QueueSchedule::Low => 0,
                QueueSchedule::High => 1,
                // The higher class first.
                QueueSchedule::Strict => 2 + class as u8,
            },
            weight: u16::from(queue.weight.max(1)),
            shaper: port.egress_rates[class]
                .filter(|bps| *bps > 0)
                .map(|bps| Shaper {
                    rate: Rate::from_bps(bps),
                    burst_bytes: BURST_BYTES,
                }),
            red: (marks || queue.wred).then(|| Red {
                min_bytes: own,
                max_bytes: own + self.wred_bytes(),
                probability: u32::MAX,
                mark: marks,
                drop: queue.wred,
                at: RedAt::Enqueue,
            }),
            // A lossless queue too has no more than its own buffers and the shared pool: beside pauses that
            // come in time it has less.
            limit: Limit::Static(own + shared),
            trim: None,
        }
    }

    /// Classification by the manual's table of trust.
    fn class_map(&self, port: &RouterOsPort) -> ClassMap {
        if !self.offloaded {
            let untreated = Treatment::default();
            let (dscp, pcp) = ([untreated; 64], [untreated; 8]);
            return ClassMap {
                trust_dscp: false,
                trust_pcp: false,
                dscp,
                pcp,
                default: untreated,
            };
        }
        let trusted = |l2: bool, name: Option<&str>| {
            let named = name.and_then(|name| self.named(name));
            let profile = named.or_else(|| self.named("default"));
            // The header that decides is rewritten unless it is kept; the other one always, unless kept.
            let keep = if l2 { port.trust_l2 } else { port.trust_l3 } == TrustMode::Keep;
            let keep_other = if l2 { port.trust_l3 } else { port.trust_l2 } == TrustMode::Keep;
            let (keep_pcp, keep_dscp) = if l2 {
                (keep, keep_other)
            } else {
                (keep_other, keep)
            };
            Treatment {
                class: profile.map_or(0, |profile| profile.traffic_class),
                dscp: profile.filter(|_| !keep_dscp).map(|profile| profile.dscp),
                pcp: profile.filter(|_| !keep_pcp).map(|profile| profile.pcp),
            }
        };
        let own = self.named(&port.profile);
        let mut dscp = [Treatment::default(); 64];
        for (value, entry) in (0_u8..).zip(&mut dscp) {
            *entry = trusted(false, self.dscp.get(&value).map(String::as_str));
        }
        let mut pcp = [Treatment::default(); 8];
        for (value, entry) in (0_u8..).zip(&mut pcp) {
            *entry = trusted(true, self.pcp.get(&value).map(String::as_str));
        }
        ClassMap {
            trust_dscp: port.trust_l3 != TrustMode::Ignore,
            trust_pcp: port.trust_l2 != TrustMode::Ignore,
            dscp,
            pcp,
            default: Treatment {
                class: own.map_or(0, |own| own.traffic_class),
                dscp: own.map(|own| own.dscp),
                pcp: own.map(|own| own.pcp),
            },
        }
    }

    fn named(&self, name: &str) -> Option<&QosProfile> {
        let own = |profile: &&QosProfile| profile.name == name && !profile.disabled;
        self.profiles.iter().find(own)
    }
}
