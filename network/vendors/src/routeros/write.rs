//! Intents, written for RouterOS: what fits, and the text.

use std::fmt::Write;

use super::RouterOsVersion;
use super::config::MAPS_BY_PROFILE;
use crate::highest_rate::shown;
use crate::intent::{Ecn, Fit, Intent, Pause, Port, Schedule, Trust};
use crate::names::routeros as quoted;
use crate::text::{classes, ranges};
use crate::version::Version;

/// The class of the built-in profile `default`, which headers without a map entry get.
const UNMAPPED_CLASS: u8 = 1;

/// Bits per second of 1 Mb/s.
const MEGABIT: u64 = 1_000_000;

/// The largest rate of a queue in bits per second.
const RATE_MAX: u64 = 8_000_000 * MEGABIT;

/// The lanes of a 100G port, each of which is an interface.
const LANES: u8 = 4;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.by_flow(intent);
    intent.remark = match (intent.trust.dscp(), intent.remark) {
        (true, Some(_)) => {
            fit.add_note("DSCP and PCP of packets without a trusted header are not rewritten");
            None
        }
        (true, None) => None,
        (false, Some(remark)) => Some(remark),
        (false, None) => {
            fit.add_note("packets without a trusted header leave with DSCP 0 and PCP 0");
            Some((0, 0))
        }
    };
    for (class, queue) in intent.queues.iter_mut().enumerate() {
        if let Some(Ecn::Thresholds { .. }) = queue.ecn {
            fit.add_note(format!(
                "queue {class}: the device chooses the ECN thresholds (wred-threshold)"
            ));
            queue.ecn = Some(Ecn::Automatic);
        }
    }
    let own = if intent.pfc_send == 0 {
        intent.pfc_obey
    } else {
        intent.pfc_send
    };
    if intent.pfc_obey & !own != 0 {
        fit.add_note("pause frames are obeyed for classes of the PFC profile only");
        intent.pfc_obey &= own;
    }
    if intent.pause.headroom.is_some() {
        fit.add_note("headroom is not set: the shared pool takes what arrives after a pause");
        intent.pause.headroom = None;
    }
    if intent.pfc_send == 0 {
        intent.pause = Pause::default();
    }
    for port in &mut intent.ports {
        port.name = first_lane(&port.name);
        port.metres = None;
        port.mbps = match (intent.pfc_obey, port.mbps) {
            (0, _) => None,
            (_, None) => {
                fit.add_note("egress-rate-queueN needs the speed of a port: 100 Gb/s is written");
                Some(100_000)
            }
            (_, mbps) => mbps,
        };
    }
    fit_rates(intent, fit);
    fit.no_watchdog(intent);
    intent.ports.sort();
    intent.ports.dedup_by(|one, other| one.name == other.name);
}

/// Highest rates of queues: `egress-rate-queueN`, which is the speed of the port where a queue obeys pauses.
fn fit_rates(intent: &mut Intent, fit: &mut Fit) {
    fit.rates(intent, MEGABIT, RATE_MAX);
    if intent.pfc_obey != 0 {
        for class in classes(intent.pfc_send & !intent.pfc_obey) {
            if intent.queues[usize::from(class)].rate.take().is_some() {
                fit.add_note(format!(
                    "queue {class}: with a highest rate it would obey pauses: the rate is not written"
                ));
            }
        }
    }
    let obeyed = |class: usize| intent.pfc_obey >> class & 1 == 1;
    let slowest = intent.ports.iter().filter_map(|port| port.mbps).min();
    for class in (0..8).filter(|class| obeyed(*class)) {
        let queue = &mut intent.queues[class];
        let speed = slowest.map_or(u64::MAX, |mbps| u64::from(mbps) * MEGABIT);
        if let Some(rate) = queue.rate.filter(|rate| rate.bps >= speed) {
            let shown = shown(rate.bps);
            fit.add_note(format!(
                "queue {class}: a highest rate of {shown} is not below the port's speed"
            ));
            queue.rate = None;
        }
    }
    // The fastest rate of queues that obey pauses is read as the speed of the port.
    let rates = (0..8).filter(|class| obeyed(*class));
    let rates: Option<Vec<u64>> = rates
        .map(|class| Some(intent.queues[class].rate?.bps))
        .collect();
    let Some(fastest) = rates.and_then(|rates| rates.into_iter().max()) else {
        return;
    };
    let obeys = intent.pfc_obey;
    let queues = intent.queues.iter_mut().enumerate();
    for (_, queue) in queues.filter(|(class, _)| obeys >> class & 1 == 1) {
        queue.rate = queue.rate.filter(|rate| rate.bps != fastest);
    }
    for port in &mut intent.ports {
        port.mbps = Some((fastest / MEGABIT) as u32);
    }
}

/// The first of the four lanes that a lane of RouterOS is one port with: `qsfp28-1-1` of `qsfp28-1-3`, and
/// `qsfp56-dd-1-5` of `qsfp56-dd-1-7`, since a port of eight lanes has two halves.
pub fn first_lane(name: &str) -> String {
    let found = name.rsplit_once('-').and_then(|(module, lane)| {
        let has_lanes = module.starts_with("qsfp") && module.contains('-');
        let most = if module.starts_with("qsfp56-dd-") {
            2 * LANES
        } else {
            LANES
        };
        let lane = lane.parse::<u8>().ok().filter(|lane| *lane > 0)?;
        let first = (lane - 1) / LANES * LANES + 1;
        (has_lanes && (1..=most).contains(&lane)).then(|| format!("{module}-{first}"))
    });
    found.unwrap_or_else(|| name.to_owned())
}

/// The interfaces of a port: all lanes, or none of them works.
fn interfaces(name: &str) -> Vec<String> {
    match name.strip_suffix("-1") {
        Some(module)
            if first_lane(name) == name && module.starts_with("qsfp") && module.contains('-') =>
        {
            (1..=LANES).map(|lane| format!("{module}-{lane}")).collect()
        }
        _ => vec![name.to_owned()],
    }
}

/// What comes before any configuration, by hand: a switch that was in use has other settings.
const FIRST: &str = "\
# Before, by hand: /system package update install and /system routerboard upgrade, to this version; then
# /system reset-configuration no-defaults=yes, which deletes all settings, and a bridge with the ports
# (/interface bridge add, /interface bridge port add), so that the switch chip forwards.
";

pub(crate) fn write(intent: &Intent, version: Version) -> String {
    let mut text = FIRST.to_owned();
    let maps_by_profile = RouterOsVersion(version.0, version.1) >= MAPS_BY_PROFILE;
    profiles(&mut text, intent, maps_by_profile);
    if maps_by_profile && intent.pfc_send != 0 {
        let classes = ranges(classes(intent.pfc_send));
        let _ = writeln!(
            text,
            "/interface ethernet switch qos settings\nset lossless-traffic-class={classes}"
        );
    }
    text.push_str("/interface ethernet switch qos tx-manager queue\n");
    for (class, queue) in intent.queues.iter().enumerate() {
        let schedule = match queue.schedule {
            Schedule::Strict => "strict-priority".to_owned(),
            Schedule::Weighted(weight) => format!("high-priority-group weight={weight}"),
            Schedule::Background(weight) => format!("low-priority-group weight={weight}"),
        };
        let ecn = if queue.ecn.is_some() { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "set {class} ecn={ecn} schedule={schedule} use-shared-buffers=yes"
        );
    }
    let own = if intent.pfc_send == 0 {
        intent.pfc_obey
    } else {
        intent.pfc_send
    };
    if own != 0 {
        let yes = |mask: u8| if mask == 0 { "no" } else { "yes" };
        let pause = intent.pause;
        let threshold = |name: &str, bytes: Option<u32>| {
            bytes.map_or_else(String::new, |bytes| format!(" {name}={bytes}"))
        };
        let _ = writeln!(
            text,
            "/interface ethernet switch qos priority-flow-control\nadd name=lossless{}{} rx={} \
                traffic-class={} tx={}",
            threshold("pause-threshold", pause.xoff),
            threshold("resume-threshold", pause.xon),
            yes(intent.pfc_obey),
            ranges(classes(own)),
            yes(intent.pfc_send)
        );
    }
    text.push_str("/interface ethernet switch qos port\n");
    for port in &intent.ports {
        for name in interfaces(&port.name) {
            text.push_str(&port_line(intent, port, &name));
        }
    }
    let dcbx = if intent.dcbx { "yes" } else { "no" };
    let _ = write!(
        text,
        "/interface ethernet switch\nset switch1 qos-hw-offloading=yes\n\
         /ip neighbor discovery-settings\nset lldp-dcbx={dcbx}\n\
         /interface ethernet\nset [ find switch=switch1 ] l2mtu={}\n",
        intent.mtu
    );
    text
}

/// Scripts of groups of ports as one: lines that are in several stand once, and profiles of the second and
/// later groups are numbered.
pub(crate) fn joined(scripts: &[&str]) -> String {
    let mut whole = String::new();
    let mut seen: Vec<(String, String)> = Vec::new();
    for (index, script) in scripts.iter().enumerate() {
        let number = match index {
            0 => String::new(),
            index => format!("{}", index + 1),
        };
        let mut menu = String::new();
        let mut is_open = false;
        for line in script.lines() {
            if line.starts_with('/') || line.starts_with('#') {
                (menu, is_open) = (line.to_owned(), false);
                continue;
            }
            let line = numbered(line, &number);
            let entry = (menu.clone(), line.clone());
            if seen.contains(&entry) {
                continue;
            }
            if !is_open {
                whole += &menu;
                whole.push('\n');
                is_open = true;
            }
            whole += &line;
            whole.push('\n');
            seen.push(entry);
        }
    }
    let first = scripts.first().copied().unwrap_or_default().lines();
    let header: Vec<&str> = first.take_while(|line| line.starts_with('#')).collect();
    format!("{}\n{whole}", header.join("\n"))
}

/// A line with numbered names of the profiles that differ between groups.
fn numbered(line: &str, number: &str) -> String {
    let names = [
        "name=lossless",
        "pfc=lossless",
        "name=untrusted",
        "profile=untrusted",
    ];
    let words = line.split(' ').map(|word| match names.contains(&word) {
        true => format!("{word}{number}"),
        false => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn profiles(text: &mut String, intent: &Intent, maps_by_profile: bool) {
    // The maps are written whole, so that profiles need not make any.
    let automap = if maps_by_profile { "automap=no " } else { "" };
    text.push_str("/interface ethernet switch qos profile\n");
    if let Some((dscp, pcp)) = intent.remark {
        let class = intent.default_class;
        let _ = writeln!(
            text,
            "add {automap}dscp={dscp} name=untrusted pcp={pcp} traffic-class={class}"
        );
    }
    let mapped = if intent.trust == Trust::None {
        0
    } else {
        intent.used()
    };
    for class in classes(mapped).filter(|class| *class != UNMAPPED_CLASS) {
        let dscp = if intent.trust.dscp() {
            intent.dscp_of(class).next().unwrap_or(0)
        } else {
            0
        };
        let _ = writeln!(
            text,
            "add {automap}dscp={dscp} name=tc{class} pcp={class} traffic-class={class}"
        );
    }
    if intent.trust.dscp() {
        text.push_str("/interface ethernet switch qos map ip\n");
        for class in (0..8)
            .filter(|class| *class != UNMAPPED_CLASS && intent.dscp_of(*class).next().is_some())
        {
            let _ = writeln!(
                text,
                "add dscp={} profile=tc{class}",
                ranges(intent.dscp_of(class))
            );
        }
    }
    if intent.trust.pcp() {
        text.push_str("/interface ethernet switch qos map vlan\n");
        for class in (0..8)
            .filter(|class| *class != UNMAPPED_CLASS && intent.pcp_of(*class).next().is_some())
        {
            let _ = writeln!(
                text,
                "add pcp={} profile=tc{class}",
                ranges(intent.pcp_of(class))
            );
        }
    }
}

/// A rate as RouterOS prints it: `100.0Gbps`, `2500.0Mbps`.
pub(super) fn rate(mbps: u32) -> String {
    if mbps.is_multiple_of(1000) {
        format!("{}.0Gbps", mbps / 1000)
    } else {
        format!("{mbps}.0Mbps")
    }
}

fn port_line(intent: &Intent, port: &Port, name: &str) -> String {
    let mut line = format!("set {}", quoted(name));
    for class in 0..8 {
        let own = intent.queues[class]
            .rate
            .map(|own| (own.bps / MEGABIT) as u32);
        let speed = || port.mbps.unwrap_or(100_000);
        let obeys = intent.pfc_obey >> class & 1 == 1;
        if let Some(mbps) = own.or_else(|| obeys.then(speed)) {
            let _ = write!(line, " egress-rate-queue{class}={}", rate(mbps));
        }
    }
    if intent.pfc_send | intent.pfc_obey != 0 {
        line.push_str(" pfc=lossless");
    }
    match (intent.remark, intent.default_class) {
        (Some(_), _) => line.push_str(" profile=untrusted"),
        (None, UNMAPPED_CLASS) => {}
        (None, class) => {
            let _ = write!(line, " profile=tc{class}");
        }
    }
    // The header that decides keeps its value.
    if intent.trust.pcp() {
        line.push_str(" trust-l2=keep");
    }
    if intent.trust.dscp() {
        line.push_str(" trust-l3=keep");
    }
    line.push('\n');
    line
}
