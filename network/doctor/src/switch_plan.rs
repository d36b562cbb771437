//! The plan of a switch of the fabric file: intents of its ports, and what no intent has.

use fabric::config::Profile;
use fabric::topology::{LinkConfig, Node};
use fabric::{Rate, Span, Spread, Watchdog};
use fabric_file::{NamedSwitch, Network, automatic_headroom};
use vendors::dialect::grouped;
use vendors::intent::{Intent, Port, Schedule};
use vendors::profile;
use vendors::{Dialect, PathSpread, PauseWatchdog};

use crate::from_fabric::SourceError;

/// Propagation delay in a cable: picoseconds per metre, as in fabric files.
const PS_PER_METRE: u64 = 5000;

/// Bytes above the rate of a queue where a fabric file names none.
const BURST_DEFAULT: u32 = 64 << 10;

/// Bits per second of 1 Mb/s, the unit of the speed of ports.
const MEGABIT: u64 = 1_000_000;

/// The plan of one switch.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchPlan {
    /// Ports that are configured alike are one intent.
    pub groups: Vec<Intent>,
    /// Settings that are not written, each with what becomes of it.
    pub notes: Vec<String>,
}

/// A port of the switch: its link, and how it treats traffic.
struct PlannedPort<'a> {
    number: usize,
    link: LinkConfig,
    profile: &'a Profile,
    /// Whether the other end is a switch, so that there may be other paths.
    is_uplink: bool,
}

/// The plan of a switch of the fabric file, for a system. Ports without names get the default names of
/// `dialect`.
///
/// # Errors
/// When there is no such switch, and when devices serve its strict queues in another order.
pub fn switch_plan(
    network: &Network,
    name: &str,
    dialect: Dialect,
) -> Result<SwitchPlan, SourceError> {
    let number = switch_number(network, name)?;
    let switch = &network.switches[number];
    if let Some(groups) = own_groups(switch, dialect) {
        return match groups.is_empty() {
            true => Err(SourceError::NoPorts(name.to_owned())),
            false => Ok(SwitchPlan {
                groups,
                notes: Vec::new(),
            }),
        };
    }
    let ports = ports_of(network, number);
    if ports.is_empty() {
        return Err(SourceError::NoPorts(name.to_owned()));
    }
    let mut notes = Vec::new();
    let mut add = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    for port in &ports {
        let order = profile::check_order(port.profile);
        order.map_err(|what| SourceError::Order(name.to_owned(), what))?;
        profile::left_out(port.profile)
            .into_iter()
            .for_each(&mut add);
        rounded(port, dialect).into_iter().for_each(&mut add);
    }
    of_switch(switch).into_iter().for_each(&mut add);
    if network
        .topology
        .reserved_ports()
        .contains_key(&(number as u32))
    {
        let how = "a filter of the device's routing chooses next hops by the opcode of the BTH";
        add(format!(
            "links for packets of some opcodes are not written: {how}"
        ));
    }
    let watched = |port: &PlannedPort<'_>| Intent {
        spread: match port.is_uplink || !dialect.spreads_by_port() {
            true => spread(network),
            false => PathSpread::Flows,
        },
        ..intent(port, switch.watchdog, dialect)
    };
    let groups = grouped(ports.iter().map(watched).collect());
    let strict = groups
        .iter()
        .filter_map(|group| strict_below(group, dialect));
    notes.extend(strict);
    Ok(SwitchPlan { groups, notes })
}

/// A strict queue below a weighted one, on NX-OS: its strict queues are the highest ones (Cisco Nexus 9000
/// NX-OS Quality of Service Configuration Guide, "Configuring Priority").
fn strict_below(intent: &Intent, dialect: Dialect) -> Option<String> {
    let is_strict = |class: usize| intent.queues[class].schedule == Schedule::Strict;
    let weighted = (0..8).rev().find(|class| !is_strict(*class))?;
    let strict = (0..weighted).rev().find(|class| is_strict(*class))?;
    (dialect == Dialect::NxOs).then(|| {
        format!(
            "queue {strict} is strict below the weighted queue {weighted}: NX-OS has its strict queues at \
             the top; put notifications in class 7"
        )
    })
}

/// The intent of a switch of the fabric file: that of most of its ports.
///
/// # Errors
/// When there is no such switch.
pub fn switch_intent(
    network: &Network,
    name: &str,
    dialect: Dialect,
) -> Result<Intent, SourceError> {
    let number = switch_number(network, name)?;
    let groups = own_groups(&network.switches[number], dialect).unwrap_or_else(|| {
        let ports = ports_of(network, number);
        let watchdog = network.switches[number].watchdog;
        let own = ports.iter().map(|port| intent(port, watchdog, dialect));
        grouped(own.collect())
    });
    let largest = groups
        .into_iter()
        .rev()
        .max_by_key(|group| group.ports.len());
    largest.ok_or_else(|| SourceError::NoPorts(name.to_owned()))
}

fn switch_number(network: &Network, name: &str) -> Result<usize, SourceError> {
    let found = network
        .switches
        .iter()
        .position(|switch| switch.name == name);
    found.ok_or_else(|| {
        let names = network.switches.iter().take(8);
        let names: Vec<&str> = names.map(|switch| switch.name.as_str()).collect();
        SourceError::NoSuchNode {
            kind: "switch",
            name: name.to_owned(),
            there: names.join(", "),
        }
    })
}

/// The groups of ports of a configuration in a vendor's file. All of its ports count, also those without a
/// link; those of another system are named by number.
fn own_groups(switch: &NamedSwitch, dialect: Dialect) -> Option<Vec<Intent>> {
    let imported = switch.imported.as_ref()?;
    let mut groups = imported.intents();
    if imported.dialect() == dialect {
        return Some(groups);
    }
    // A simulated port has fewer settings than RouterOS's, and as many as SONiC's.
    if imported.dialect() == Dialect::Sonic {
        return None;
    }
    let ports = groups.iter_mut().flat_map(|group| &mut group.ports);
    for (index, port) in ports.enumerate() {
        port.name = dialect.port_name(index);
    }
    Some(groups.into_iter().map(Intent::normal).collect())
}

/// The ports of a switch that have links, in the order of their numbers.
fn ports_of(network: &Network, switch: usize) -> Vec<PlannedPort<'_>> {
    let config = &network.switches[switch].config;
    let links = network.topology.links().iter();
    let ends = links.flat_map(|link| {
        let is_switch = |node: Node| matches!(node, Node::Switch(_));
        let [one, other] = link.ends;
        [(one, other), (other, one)].map(|(end, peer)| (end, link.config, is_switch(peer.node)))
    });
    let own = ends.filter(|(end, ..)| end.node == Node::Switch(switch as u32));
    let mut ports: Vec<PlannedPort<'_>> = own
        .filter_map(|(end, link, is_uplink)| {
            let number = usize::from(end.port);
            let profile = usize::from(config.ports.get(number)?.profile);
            Some(PlannedPort {
                number,
                link,
                profile: config.profiles.get(profile)?,
                is_uplink,
            })
        })
        .collect();
    ports.sort_by_key(|port| port.number);
    ports
}

fn intent(port: &PlannedPort<'_>, watchdog: Option<Watchdog>, dialect: Dialect) -> Intent {
    let mut intent = profile::intent_of(port.profile);
    for rate in intent
        .queues
        .iter_mut()
        .filter_map(|queue| queue.rate.as_mut())
    {
        // A fabric file that names no burst leaves it to the device.
        rate.burst = rate.burst.filter(|burst| *burst != BURST_DEFAULT);
    }
    intent.watchdog = watchdog.map(|watchdog| PauseWatchdog {
        detect_ms: Some(milliseconds(watchdog.detect)),
        restore_ms: Some(milliseconds(watchdog.restore)),
    });
    let automatic = automatic_headroom(&port.link, port.profile.pfc.response);
    intent.pause = profile::pause_of(port.profile, automatic);
    // SONiC has Xoff and headroom in one profile.
    if dialect == Dialect::Sonic && intent.pause.xoff.is_some() {
        intent.pause.headroom.get_or_insert(automatic);
    }
    intent.ports.push(Port {
        name: dialect.port_name(port.number),
        mbps: Some((port.link.rate.bps() / MEGABIT) as u32),
        metres: Some(port.link.delay.0.div_ceil(PS_PER_METRE) as u32),
    });
    intent
}

/// How the switches of a fabric file spread packets.
pub fn spread(network: &Network) -> PathSpread {
    match network.spread {
        Spread::Hash => PathSpread::Flows,
        Spread::Random | Spread::RoundRobin | Spread::Adaptive => PathSpread::Packets,
        Spread::Flowlet(gap) => {
            let us = gap.0.div_ceil(Span::from_us(1).0);
            PathSpread::Flowlets(Some(u32::try_from(us).unwrap_or(u32::MAX)))
        }
    }
}

/// Speeds and lengths that configurations have in whole units only.
fn rounded(port: &PlannedPort<'_>, dialect: Dialect) -> Option<String> {
    let mbps = (port.link.rate.bps() / MEGABIT) as u32;
    let written = Rate::from_bps(u64::from(mbps) * MEGABIT);
    (written != port.link.rate).then(|| {
        format!(
            "port {}: a speed is in whole Mb/s: {mbps} Mb/s of {} bit/s",
            dialect.port_name(port.number),
            port.link.rate.bps()
        )
    })
}

/// The unit of the times of watchdogs.
const MILLISECOND: Span = Span::from_us(1000);

/// A time in whole milliseconds, at least one.
fn milliseconds(span: Span) -> u32 {
    u32::try_from(span.0.div_ceil(MILLISECOND.0).max(1)).unwrap_or(u32::MAX)
}

/// Settings of the whole switch that no intent has.
fn of_switch(switch: &NamedSwitch) -> Vec<String> {
    let mut left = Vec::new();
    if let Some(watchdog) = &switch.watchdog {
        for (what, span) in [
            ("detection", watchdog.detect),
            ("restoration", watchdog.restore),
        ] {
            if !span.0.is_multiple_of(MILLISECOND.0) {
                left.push(format!(
                    "the {what} of the PFC watchdog is in whole milliseconds: {} ms of {} ms",
                    milliseconds(span),
                    span.0 as f64 / MILLISECOND.0 as f64
                ));
            }
        }
        let sends = |profile: &Profile| profile.pfc.send != 0;
        if !switch.config.profiles.iter().any(sends) {
            left.push("the PFC watchdog has no lossless class, and is not written".to_owned());
        }
    }
    if let Some(bytes) = switch.config.buffer.headroom_pool_bytes {
        left.push(format!(
            "the common pool of {bytes} bytes for headroom is not written: the device sizes its pools"
        ));
    }
    left
}
