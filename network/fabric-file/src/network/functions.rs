//! Adapters with virtual functions: each becomes a switch with a port for every function and one uplink,
//! which takes the place of the host's own link.

use super::{NamedSwitch, NetworkBuilder};
use crate::error::Mistake;
use crate::functions::{
    Eswitch, FUNCTIONS_MAX, Function, FunctionLink, FunctionSettings, Functions, VLAN_MAX,
    parse_mac, range,
};
use crate::profile::automatic_headroom;
use crate::schema::NicTable;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::config::{
    BufferConfig, CLASSES, ClassMap, GroupConfig, Limit, PfcConfig, PortConfig, Profile,
    QueueConfig, SwitchConfig, Treatment, Weigh,
};
use fabric::topology::{HOSTS_MAX, LinkConfig, Node, SWITCHES_MAX};
use fabric::{Rate, Span, Time};

/// The link between a function and the embedded switch, which is not a cable: serialization and delay are
/// negligible beside those of slot and port. The engine needs a delay that is not 0.
const INSIDE: LinkConfig = LinkConfig::new(Rate::from_gbps(1_000), Span::from_ns(100));

/// Size of the transmit buffer of all functions together, divided by their shares of the port. Adapters do
/// not publish it; it has an effect only while the port is paused.
const TRANSMIT_BYTES: u32 = 256 << 10;

/// Time from the last bit of a pause frame until its receiver stops, at the port (802.3 annex 31B.3.7).
const RESPONSE: Span = Span::from_ns(600);

/// An adapter with functions.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedAdapter {
    /// Number of the host that is the physical function.
    pub host: u32,
    /// Name of the adapter's table.
    pub nic: String,
    /// Number of the embedded switch. Its port 0 is the uplink, port 1 the physical function, and function n
    /// has port n + 2.
    pub switch: u32,
    /// How the embedded switch is managed.
    pub eswitch: Eswitch,
    /// Speed of the adapter's port.
    pub uplink: Rate,
    /// The virtual functions, by number.
    pub functions: Vec<NamedFunction>,
}

/// A virtual function: a host of its own, attached to the embedded switch.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedFunction {
    /// Number of the host that the function is.
    pub host: u32,
    /// Its settings, with defaults filled in.
    pub settings: FunctionSettings,
}

impl SharedAdapter {
    /// Weights by which functions share the port, the physical function's first. Guaranteed rates count as
    /// they are; functions without one share the rest, at least a hundredth of the port.
    pub fn weights(&self) -> Vec<u64> {
        let kept = self
            .functions
            .iter()
            .map(|function| function.settings.min_bps);
        let total: u64 = kept.clone().sum();
        let others = 1 + kept.clone().filter(|kept| *kept == 0).count() as u64;
        let left = self
            .uplink
            .bps()
            .saturating_sub(total)
            .max(self.uplink.bps() / 100)
            / others;
        core::iter::once(0)
            .chain(kept)
            .map(|kept| if kept == 0 { left.max(1) } else { kept })
            .collect()
    }

    /// Names of the embedded switch's ports.
    fn ports(&self) -> Vec<String> {
        let [uplink, physical, virtual_] = match self.eswitch {
            Eswitch::Legacy => ["uplink", "pf", "vf"],
            Eswitch::Switchdev => ["p0", "pf0", "pf0vf"],
        };
        let functions = (0..self.functions.len()).map(|number| format!("{virtual_}{number}"));
        [uplink.to_string(), physical.to_string()]
            .into_iter()
            .chain(functions)
            .collect()
    }
}

/// A host whose adapter has functions.
struct Owner<'a> {
    host: u32,
    /// Name of the adapter's table, and the functions in it.
    nic: &'a str,
    functions: &'a Functions,
    /// The host's link, and which of its two ends is the host's.
    link: u32,
    end: usize,
}

impl Owner<'_> {
    fn field(&self) -> String {
        format!("nic.{}.functions", self.nic)
    }
}

impl NetworkBuilder<'_> {
    /// Replaces each adapter with functions by its embedded switch, and adds the functions as hosts.
    pub(super) fn add_functions(&mut self) {
        let file = self.file;
        let tables: Vec<(&String, &Functions)> = file
            .nic
            .iter()
            .filter_map(|(name, nic)| Some((name, nic.functions.as_ref()?)))
            .collect();
        if tables.is_empty() || !self.problems.is_empty() {
            return;
        }
        tables
            .iter()
            .for_each(|(name, functions)| self.check_functions(name, functions));
        if !self.problems.is_empty() {
            return;
        }
        let mut links = alloc::vec![None; self.hosts.len()];
        for (number, link) in (0_u32..).zip(self.topology.links()) {
            for (index, end) in link.ends.iter().enumerate() {
                if let Node::Host(host) = end.node {
                    links[host as usize] = Some((number, index));
                }
            }
        }
        let mut taken = BTreeMap::new();
        for host in 0..self.hosts.len() as u32 {
            let entry = self.host_entry[host as usize];
            let nic = entry.map_or("default", |entry| file.host[entry].nic.as_str());
            let Some((table, functions)) = tables.iter().find(|(name, _)| *name == nic) else {
                continue;
            };
            // Without a link the host is reported with the others that have none.
            let Some((link, end)) = links[host as usize] else {
                continue;
            };
            let owner = Owner {
                host,
                nic: table,
                functions,
                link,
                end,
            };
            self.add_adapter(&owner, &mut taken);
        }
    }

    fn add_adapter(&mut self, owner: &Owner<'_>, taken: &mut BTreeMap<[u8; 6], String>) {
        let Owner {
            host,
            nic,
            functions,
            ..
        } = *owner;
        let field = owner.field();
        let too_many = self.hosts.len() as u64 + u64::from(functions.count) > u64::from(HOSTS_MAX);
        if too_many || self.switches.len() as u64 >= u64::from(SWITCHES_MAX) {
            let what = format!("with its functions the network has more than {HOSTS_MAX} hosts");
            let field = format!("{field}.count");
            return self.wrong(Mistake::Limit, &field, what, "fewer functions");
        }
        let name = self.hosts.iter().nth(host as usize);
        let name = name.unwrap_or_default().to_string();
        let uplink = self.topology.links()[owner.link as usize].config;
        let switch = self.topology.add_switch();
        let eswitch = format!("{name}.eswitch");
        let mut free = !self.hosts.has(&eswitch) && self.switches.add(&eswitch);
        self.switch_entry.push(None);
        self.port_names.push(Vec::new());
        let to = Node::Switch(switch);
        let mut connected = self.topology.move_end(owner.link, owner.end, to);
        connected = connected.and(self.topology.connect(Node::Host(host), to, INSIDE));
        let mut adapter = SharedAdapter {
            host,
            nic: nic.to_string(),
            switch,
            eswitch: functions.eswitch,
            uplink: port_rate(uplink.rate, self.file.nic.get(nic)),
            functions: Vec::with_capacity(functions.count as usize),
        };
        for number in 0..functions.count {
            let own = format!("{name}v{number}");
            free = free && !self.switches.has(&own) && self.hosts.add(&own);
            let function = self.topology.add_host();
            self.host_entry.push(self.host_entry[host as usize]);
            connected = connected.and(self.topology.connect(Node::Host(function), to, INSIDE));
            adapter.functions.push(NamedFunction {
                host: function,
                settings: self.function_settings(owner, number, own, taken),
            });
        }
        if !free {
            let what = format!(
                "{name}: its functions are called {name}v0 and so on, its switch {eswitch}"
            );
            let instead = "other names for hosts and switches";
            self.wrong(Mistake::Combination, &field, what, instead);
        } else if let Err(error) = connected {
            self.wrong(Mistake::Limit, &field, error.to_string(), "fewer functions");
        } else {
            self.check_guaranteed_rates(&adapter, &name);
        }
        self.shared.push(adapter);
    }

    /// The settings of the function that was connected last. No other function may have its MAC address.
    fn function_settings(
        &mut self,
        owner: &Owner<'_>,
        number: u32,
        name: String,
        taken: &mut BTreeMap<[u8; 6], String>,
    ) -> FunctionSettings {
        let written = owner.functions.written(number).unwrap_or_default();
        let settings = settings(&written, owner.host, number);
        if let Some(other) = taken.insert(settings.mac, name.clone()) {
            let what = format!("{other} and {name} have one MAC address");
            let instead = "one address for one function of one host";
            self.wrong(Mistake::Combination, &owner.field(), what, instead);
        }
        self.set_link_state(settings.state, owner.link);
        settings
    }

    /// The rates that are guaranteed to an adapter's functions have to fit its port.
    fn check_guaranteed_rates(&mut self, adapter: &SharedAdapter, name: &str) {
        let rates = adapter.functions.iter();
        let kept: u64 = rates.map(|function| function.settings.min_bps).sum();
        if kept > adapter.uplink.bps() {
            let what = format!(
                "the min-rate of all functions of {name} is {:.3} Gb/s, and its link has {:.3}",
                kept as f64 / 1e9,
                adapter.uplink.bps() as f64 / 1e9
            );
            let field = format!("nic.{}.functions.vf", adapter.nic);
            self.wrong(Mistake::Combination, &field, what, "rates that fit");
        }
    }

    /// Takes the last link, a function's, down as its state requires, or together with the uplink.
    fn set_link_state(&mut self, state: FunctionLink, uplink: u32) {
        let own = self.topology.links().len() as u32 - 1;
        match state {
            FunctionLink::Disable => self.topology.take_down(own, Time(0), Time::NEVER),
            FunctionLink::Enable => {}
            FunctionLink::Auto => {
                let outages = self
                    .topology
                    .outages()
                    .get(&uplink)
                    .cloned()
                    .unwrap_or_default();
                outages
                    .iter()
                    .for_each(|(from, until)| self.topology.take_down(own, *from, *until));
            }
        }
    }

    /// Checks the entries for functions in a table.
    fn check_functions(&mut self, nic: &str, functions: &Functions) {
        let field = format!("nic.{nic}.functions");
        if !(1..=FUNCTIONS_MAX).contains(&functions.count) {
            let what = format!("{} is not from 1 to {FUNCTIONS_MAX}", functions.count);
            return self.wrong(Mistake::Value, &format!("{field}.count"), what, "");
        }
        if self.file.nic.get(nic).is_some_and(|nic| nic.pcie.is_none()) {
            let what =
                "functions share the PCIe slot of their adapter, which the file does not describe";
            let instead = format!("add [nic.{nic}.pcie]");
            self.wrong(Mistake::Combination, &field, what.to_string(), &instead);
        }
        if let Err((key, what)) = functions.written(0) {
            return self.wrong(
                Mistake::Value,
                &format!("{field}.{key}"),
                what,
                "write 3 or \"0-7\"",
            );
        }
        for (key, entry) in &functions.vf {
            let single = range(key, functions.count).is_some_and(|(from, to)| from == to);
            if let Some((name, what)) = mistake(entry, single) {
                self.wrong(
                    Mistake::Value,
                    &format!("{field}.vf.{key}.{name}"),
                    what,
                    "",
                );
            }
        }
        for number in 0..functions.count {
            let Function {
                min_rate,
                max_rate,
                vlan,
                qos,
                ..
            } = functions.written(number).unwrap_or_default();
            if min_rate
                .zip(max_rate)
                .is_some_and(|(min, max)| min.0.bps() > max.0.bps())
            {
                let what = format!("function {number}: min-rate is above max-rate");
                self.wrong(Mistake::Combination, &format!("{field}.vf"), what, "");
            }
            if qos.is_some_and(|qos| qos > 0) && vlan.unwrap_or(0) == 0 {
                let what =
                    format!("function {number}: qos is of the VLAN tag, and there is no vlan");
                self.wrong(
                    Mistake::Combination,
                    &format!("{field}.vf"),
                    what,
                    "give it a vlan",
                );
            }
        }
    }

    /// The configuration of an embedded switch.
    pub(super) fn embedded(
        &self,
        adapter: &SharedAdapter,
        nic: &NicTable,
        uplink: &LinkConfig,
    ) -> NamedSwitch {
        let name = self.hosts_list[adapter.host as usize].clone();
        let weights = adapter.weights();
        let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let least = 2 * (nic.mtu + 128);
        let map = class_map(nic);
        let mut profiles = alloc::vec![port(nic, map.clone(), uplink)];
        let mut ports = alloc::vec![PortConfig {
            rate: adapter.uplink,
            profile: 0
        }];
        for weight in weights {
            let share = (u128::from(TRANSMIT_BYTES) * u128::from(weight) / total.max(1)) as u32;
            let profile = inside(map.clone(), share.max(least));
            let found = profiles.iter().position(|other| *other == profile);
            let index = found.unwrap_or_else(|| {
                profiles.push(profile);
                profiles.len() - 1
            });
            // At most 256 profiles exist: shares beyond these use the last profile.
            ports.push(PortConfig {
                rate: INSIDE.rate,
                profile: index.min(255) as u8,
            });
        }
        profiles.truncate(256);
        let mut config = SwitchConfig {
            ports,
            profiles,
            buffer: BufferConfig {
                total_bytes: u32::MAX,
                headroom_pool_bytes: None,
                cell_bytes: 1,
            },
        };
        // The transmit buffer is added to the receive buffer, and so is all headroom.
        config.buffer.total_bytes = 0;
        let reserved = config.overcommitted().unwrap_or(0);
        let receive = nic.pcie.as_ref().map_or(0, |pcie| pcie.receive_buffer.0);
        let transmit = u64::from(TRANSMIT_BYTES + least) * (adapter.functions.len() as u64 + 1);
        config.buffer.total_bytes =
            u32::try_from(reserved + receive + transmit).unwrap_or(u32::MAX);
        let ports = adapter.ports();
        let name = format!("{name}.eswitch");
        NamedSwitch {
            name,
            ports,
            config,
            imported: None,
            watchdog: None,
            willing: nic.willing,
        }
    }
}

/// A mistake in one entry: its field, and the reason.
fn mistake(entry: &Function, single: bool) -> Option<(&'static str, String)> {
    if let Some(mac) = &entry.mac {
        if parse_mac(mac).is_none() {
            let what = format!("\"{mac}\" is no unicast MAC address; write \"02:00:00:00:00:01\"");
            return Some(("mac", what));
        }
        if !single {
            return Some((
                "mac",
                "several functions cannot have one MAC address".to_string(),
            ));
        }
    }
    if let Some(vlan) = entry.vlan.filter(|vlan| *vlan > VLAN_MAX) {
        return Some(("vlan", format!("{vlan} is more than {VLAN_MAX}")));
    }
    entry
        .qos
        .filter(|qos| *qos > 7)
        .map(|qos| ("qos", format!("{qos} is more than 7")))
}

/// The speed of the port: the link's, or the adapter's own where that is lower.
fn port_rate(link: Rate, nic: Option<&NicTable>) -> Rate {
    let own = nic.and_then(|nic| nic.rate).map(|rate| rate.0);
    own.filter(|own| own.bps() < link.bps()).unwrap_or(link)
}

fn settings(written: &Function, host: u32, number: u32) -> FunctionSettings {
    let bps = |rate: Option<units::Bandwidth>| rate.map_or(0, |rate| rate.0.bps());
    let [_, a, b, c] = host.to_be_bytes();
    FunctionSettings {
        // Bit 1 of the first byte: locally administered (802 clause 8.4).
        mac: written
            .mac
            .as_deref()
            .and_then(parse_mac)
            .unwrap_or([0x06, a, b, c, 0, number as u8]),
        vlan: written.vlan.unwrap_or(0),
        qos: written.qos.unwrap_or(0),
        min_bps: bps(written.min_rate),
        max_bps: bps(written.max_rate),
        spoof_check: written.spoof_check.unwrap_or(true),
        trust: written.trust.unwrap_or(false),
        state: written.state.unwrap_or_default(),
    }
}

/// Classes by the adapter's own priorities, so that a pause stops the queue that the packets wait in.
fn class_map(nic: &NicTable) -> ClassMap {
    let mut dscp = [Treatment::default(); 64];
    let mut set = |value: u8, class: u8| {
        if let Some(treatment) = dscp.get_mut(usize::from(value)) {
            treatment.class = class & 7;
        }
    };
    set(nic.cnp_dscp, nic.cnp_priority);
    set(
        nic.ack_dscp.unwrap_or(nic.dscp),
        nic.ack_priority.unwrap_or(nic.priority),
    );
    set(nic.dscp, nic.priority);
    ClassMap {
        trust_dscp: true,
        trust_pcp: false,
        dscp,
        pcp: [Treatment::default(); 8],
        default: Treatment::default(),
    }
}

/// Queues as those of an adapter's port: notifications and higher priorities are served first.
fn queues() -> [QueueConfig; CLASSES] {
    core::array::from_fn(|class| QueueConfig {
        level: u8::from(class >= 6),
        ..QueueConfig::default()
    })
}

/// The uplink: priorities of `nic.pfc` are lossless, and pause frames of the external switch are obeyed.
fn port(nic: &NicTable, map: ClassMap, link: &LinkConfig) -> Profile {
    let lossless = nic
        .pfc
        .iter()
        .fold(0_u8, |mask, class| mask | 1 << (class & 7));
    let receive = nic
        .pcie
        .as_ref()
        .map_or(1 << 19, |pcie| pcie.receive_buffer.0);
    let receive = u32::try_from(receive).unwrap_or(u32::MAX);
    let group = |class: usize| GroupConfig {
        reserve_bytes: 0,
        limit: Limit::Static(receive / 2),
        headroom_bytes: if lossless >> class & 1 == 1 {
            automatic_headroom(link, RESPONSE)
        } else {
            0
        },
        xon_offset_bytes: receive / 4,
    };
    Profile {
        map,
        queues: queues(),
        weigh: Weigh::Bytes,
        group_of_class: [0, 1, 2, 3, 4, 5, 6, 7],
        groups: core::array::from_fn(group),
        pfc: PfcConfig {
            send: lossless,
            obey: lossless,
            response: RESPONSE,
            ..PfcConfig::default()
        },
    }
}

/// The port of a function. No packet is dropped inside the adapter: each class stops at its source.
fn inside(map: ClassMap, limit: u32) -> Profile {
    let group = GroupConfig {
        reserve_bytes: 0,
        limit: Limit::Static(limit),
        headroom_bytes: automatic_headroom(&INSIDE, Span::ZERO),
        xon_offset_bytes: limit / 4,
    };
    Profile {
        map,
        queues: queues(),
        weigh: Weigh::Bytes,
        group_of_class: [0, 1, 2, 3, 4, 5, 6, 7],
        groups: [group; CLASSES],
        pfc: PfcConfig {
            send: 0xff,
            obey: 0xff,
            ..PfcConfig::default()
        },
    }
}
