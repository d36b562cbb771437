//! Texts of EOS, read as intents.

use std::collections::BTreeMap;

use super::classify::{Policies, map_name, read_map, read_named};
use super::watchdog::WatchdogSettings;
use super::write::{COS, dscp_default};
use crate::blocks::{Block, blocks, fit, interfaces, with_channels};
use crate::highest_rate::{self, HighestRate};
use crate::intent::{Ecn, Intent, Pause, Queue, Schedule, Trust};
use crate::interface::read_settings;
use crate::irrelevant::pass;
use crate::outcome::{Area, Outcomes};
use crate::text::{ReadError, list, mask, number};

/// The settings of a `qos profile`, or of an interface itself.
#[derive(Clone)]
struct Profile {
    pfc_on: bool,
    pfc: u8,
    queues: [Queue; 8],
    /// The trusted header, where one is configured.
    trust: Option<Trust>,
    /// The class of service of untagged packets.
    cos: usize,
    watchdog: WatchdogSettings,
    /// The policy for arriving packets. One of the interface itself replaces that of its profile.
    policy: Option<String>,
    /// The DSCP map, where it is not that of the switch.
    map: Option<String>,
}

impl Default for Profile {
    fn default() -> Self {
        // Queues of a new switch: strict priority, the higher number first.
        let queue = Queue {
            schedule: Schedule::Strict,
            ecn: None,
            rate: None,
        };
        Self {
            pfc_on: false,
            pfc: 0,
            queues: [queue; 8],
            trust: None,
            cos: 0,
            watchdog: WatchdogSettings::default(),
            policy: None,
            map: None,
        }
    }
}

/// The settings of the whole switch.
struct Switch<'a> {
    dscp: [u8; 64],
    cos: [u8; 8],
    /// DSCP maps with names, which count where they are attached.
    maps: BTreeMap<&'a str, [u8; 64]>,
    profiles: BTreeMap<&'a str, Profile>,
    policies: Policies<'a>,
    watchdog: WatchdogSettings,
    /// Whether `priority-flow-control all off` disables PFC on every interface.
    pfc_all_off: bool,
}

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let (blocks, mut outcomes) = blocks(file, text)?;
    let blocks = with_channels(blocks, &mut outcomes);
    let mut switch = Switch {
        dscp: dscp_default(),
        cos: COS,
        maps: BTreeMap::new(),
        profiles: BTreeMap::new(),
        policies: Policies::default(),
        watchdog: WatchdogSettings::default(),
        pfc_all_off: false,
    };
    for block in &blocks {
        if block.after("interface").is_none() && !switch.take(file, block, &mut outcomes) {
            pass(block, &mut outcomes);
        }
    }
    let mut found = Vec::new();
    for block in &blocks {
        if let Some(name) = block.after("interface") {
            let ports = interfaces(name);
            if !fit(file, block, &ports, found.len(), &mut outcomes) {
                continue;
            }
            outcomes.within(ports.clone());
            found.extend(switch.interface(file, &ports, block, &mut outcomes));
            outcomes.within(Vec::new());
        }
    }
    Ok((found, outcomes))
}

impl<'a> Switch<'a> {
    /// Takes a command that is not of an interface; whether it is one of QoS.
    fn take(&mut self, file: &str, block: &Block<'a>, outcomes: &mut Outcomes) -> bool {
        if self.policies.take(file, block, outcomes) {
            return true;
        }
        if let Some(name) = map_name(block) {
            let map = self.maps.entry(name).or_insert_with(dscp_default);
            outcomes.applied(block.line.number);
            block.each(outcomes, |line| read_named(file, line, map));
            return true;
        }
        if let Some(rest) = block.after("qos map") {
            let read = read_map(file, block, rest, &mut self.dscp, &mut self.cos);
            outcomes.take(block.line.number, read);
            return true;
        }
        match block.line.words().as_slice() {
            ["qos", "profile", name] => {
                let mut profile = Profile::default();
                for line in &block.below {
                    let read = match profile.take(file, line, outcomes) {
                        Ok(false) => {
                            Err(line.wrong(file, "this setting of a profile is not known"))
                        }
                        read => read,
                    };
                    outcomes.take(line.line.number, read);
                }
                self.profiles.insert(name, profile);
            }
            ["priority-flow-control", "all", "off"] => self.pfc_all_off = true,
            ["no", "priority-flow-control", "all", ..] => self.pfc_all_off = false,
            ["priority-flow-control", "pause", "watchdog", rest @ ..] => {
                let read = self.watchdog.of_switch(file, block, rest);
                outcomes.take(block.line.number, read);
                return true;
            }
            ["no", "priority-flow-control", "pause", "watchdog", ..] => self.watchdog.switch_off(),
            ["qos", "rewrite" | "ecn", ..] => {}
            _ => return false,
        }
        outcomes.applied(block.line.number);
        true
    }

    /// The intents of some interfaces that one command names; none where it says nothing of QoS.
    fn interface(
        &self,
        file: &str,
        ports: &[String],
        block: &Block<'a>,
        outcomes: &mut Outcomes,
    ) -> Vec<Intent> {
        let mut own = Interface::default();
        outcomes.applied(block.line.number);
        // Settings of the interface itself replace those of its profile.
        let is_profile = |line: &&Block<'_>| line.after("service-profile").is_some();
        let of_profile = block.below.iter().filter(is_profile);
        let others = block.below.iter().filter(|line| !is_profile(line));
        let lines = of_profile.chain(others);
        let is_unknown = read_settings(lines, outcomes, |line, outcomes| {
            own.line(file, line, self, outcomes)
        });
        own.about |= is_unknown;
        if !own.about {
            return Vec::new();
        }
        let intent = self.intent(file, block, own, outcomes);
        intent.for_ports(ports)
    }

    fn intent(
        &self,
        file: &str,
        block: &Block<'_>,
        own: Interface,
        outcomes: &mut Outcomes,
    ) -> Intent {
        // By default switched ports trust the class of service, and routed ports the DSCP.
        let usual = if own.is_routed {
            Trust::Dscp
        } else {
            Trust::Pcp
        };
        let trust = own.profile.trust.unwrap_or(usual);
        let default_class = if trust.pcp() {
            self.cos[own.profile.cos]
        } else {
            COS[own.profile.cos]
        };
        let is_on = own.profile.pfc_on && !self.pfc_all_off;
        let pfc = if is_on { own.profile.pfc } else { 0 };
        let mut intent = Intent {
            trust,
            dscp: self.dscp,
            pcp: self.cos,
            default_class,
            queues: own.profile.queues,
            pfc_send: pfc,
            pfc_obey: pfc,
            pause: Pause::default(),
            watchdog: own
                .profile
                .watchdog
                .running(self.watchdog)
                .filter(|_| pfc != 0),
            dcbx: own.dcbx,
            mtu: own.mtu,
            global_pause: own.global_pause,
            ..Intent::default()
        };
        if let Some(name) = &own.profile.map {
            match self.maps.get(name.as_str()) {
                Some(map) => intent.dscp = *map,
                None => {
                    let what = format!("there is no DSCP map to traffic-class \"{name}\"");
                    outcomes.not_understood(&block.wrong(file, &what));
                    intent.forget(Area::Classes, what);
                }
            }
        }
        if let Some(name) = &own.profile.policy
            && !self.policies.classify(name, &mut intent)
        {
            let what = format!("there is no policy-map \"{name}\"");
            outcomes.not_understood(&block.wrong(file, &what));
            intent.forget(Area::Classes, what);
        }
        intent
    }
}

/// The settings of an interface.
struct Interface {
    profile: Profile,
    is_routed: bool,
    mtu: u32,
    dcbx: bool,
    global_pause: bool,
    /// Whether a line is about QoS.
    about: bool,
}

impl Default for Interface {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            is_routed: false,
            mtu: 9214,
            dcbx: false,
            global_pause: false,
            about: false,
        }
    }
}

impl Interface {
    /// Takes a line; whether it is known.
    fn line(
        &mut self,
        file: &str,
        line: &Block<'_>,
        switch: &Switch<'_>,
        outcomes: &mut Outcomes,
    ) -> Result<bool, ReadError> {
        match line.line.words().as_slice() {
            ["service-profile", name] => {
                self.about = true;
                let found = switch.profiles.get(name);
                let found = found
                    .ok_or_else(|| line.wrong(file, "there is no qos profile of this name"))?;
                self.profile = found.clone();
            }
            ["no", "switchport"] => self.is_routed = true,
            ["switchport"] => self.is_routed = false,
            ["mtu", value] => self.mtu = number(file, line.line.number, value, 68..=65_535)?,
            ["dcbx", "mode", mode] => self.dcbx = *mode != "none",
            [
                "flowcontrol",
                "receive" | "send",
                state @ ("on" | "off" | "desired"),
            ] => {
                self.global_pause |= *state == "on";
            }
            _ => {
                let known = self.profile.take(file, line, outcomes)?;
                self.about |= known;
                return Ok(known);
            }
        }
        Ok(true)
    }
}

impl Profile {
    /// Takes a command of a profile; whether it is one.
    fn take(
        &mut self,
        file: &str,
        block: &Block<'_>,
        outcomes: &mut Outcomes,
    ) -> Result<bool, ReadError> {
        let line = block.line.number;
        match block.line.words().as_slice() {
            // Older versions have the word `mode`.
            ["priority-flow-control", "on"] | ["priority-flow-control", "mode", "on"] => {
                self.pfc_on = true;
            }
            ["priority-flow-control", "off"]
            | ["priority-flow-control", "mode", "off"]
            | ["no", "priority-flow-control"]
            | ["no", "priority-flow-control", "mode", ..] => {
                self.pfc_on = false;
            }
            ["priority-flow-control", "priority", values, "no-drop"] => {
                self.pfc |= mask(&list(file, line, values, 7)?);
            }
            ["priority-flow-control", "priority", values, "drop"]
            | ["no", "priority-flow-control", "priority", values, ..] => {
                self.pfc &= !mask(&list(file, line, values, 7)?);
            }
            ["priority-flow-control", "pause", "watchdog", rest @ ..] => {
                self.watchdog.of_port(file, block, rest)?;
            }
            ["no", "priority-flow-control", "pause", "watchdog"] => self.watchdog.switch_off(),
            ["no", "priority-flow-control", "pause", ..] => {}
            ["tx-queue" | "uc-tx-queue", class] => {
                let class = number(file, line, class, 0..=7)? as usize;
                block.each(outcomes, |line| {
                    read_queue(line, &mut self.queues[class], file)
                });
            }
            // Queues of multicast do not carry RoCE.
            ["mc-tx-queue", ..] => block.pass_below(outcomes),
            ["qos", "trust", "dscp"] => self.trust = Some(Trust::Dscp),
            ["qos", "trust", "cos"] => self.trust = Some(Trust::Pcp),
            ["no", "qos", "trust"] => self.trust = Some(Trust::None),
            ["qos", "cos", value] => self.cos = number(file, line, value, 0..=7)? as usize,
            ["qos", "dscp", value] => {
                number(file, line, value, 0..=63)?;
            }
            [
                "service-policy",
                "type",
                "qos" | "quality-of-service",
                "input",
                name,
            ] => {
                self.policy = Some((*name).to_owned());
            }
            ["service-policy", ..] => return Err(block.wrong(file, "this policy is not known")),
            ["qos", "map", ..] if map_name(block).is_some() => {
                self.map = map_name(block).map(str::to_owned);
            }
            ["qos", ..] => return Err(block.wrong(file, "this QoS command is not known")),
            ["shape", ..] => {
                return Err(block.wrong(file, "a highest rate of the whole port is not compared"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The highest rate of a queue: a number and its unit.
fn shape(file: &str, line: &Block<'_>, rate: &str, unit: &str) -> Result<HighestRate, ReadError> {
    let rate = rate.parse().ok().zip(highest_rate::unit(unit));
    let rate = rate.and_then(|(rate, unit)| HighestRate::in_units(rate, unit));
    rate.ok_or_else(|| {
        line.wrong(
            file,
            "a rate that is no number of kbps, mbps or gbps is not compared",
        )
    })
}

/// Units of thresholds that depend on the device: cells, a part of its memory, or time.
const OTHER_UNITS: [&str; 5] = ["segments", "percent", "%", "milliseconds", "microseconds"];

fn read_queue(block: &Block<'_>, queue: &mut Queue, file: &str) -> Result<(), ReadError> {
    let value = |word: &str, max| number(file, block.line.number, word, 0..=max);
    match block.line.words().as_slice() {
        ["priority", "strict"] => queue.schedule = Schedule::Strict,
        ["no", "priority"] => {
            if queue.schedule == Schedule::Strict {
                queue.schedule = Schedule::Weighted(1);
            }
        }
        ["bandwidth", "percent", percent] => {
            queue.schedule = Schedule::Weighted(value(percent, 100)?.max(1) as u8)
        }
        ["bandwidth", "guaranteed", ..] | ["random-detect", "ecn", "count"] | ["latency", ..] => {}
        [
            "random-detect",
            "ecn",
            "minimum-threshold",
            min,
            unit,
            "maximum-threshold",
            max,
            unit2,
            rest @ ..,
        ] => {
            let bytes = |word: &str, unit: &str| block.threshold(file, word, unit);
            let percent = match rest {
                ["max-mark-probability", percent, ..] => value(percent, 100)? as u8,
                _ => 100,
            };
            // Where thresholds are no bytes, the queue marks, and where it begins is the device's.
            let is_other = |unit: &str| OTHER_UNITS.contains(&unit);
            queue.ecn = if is_other(unit) && is_other(unit2) {
                Some(Ecn::Automatic)
            } else {
                Some(Ecn::Thresholds {
                    min: bytes(min, unit)?,
                    max: bytes(max, unit2)?,
                    percent,
                })
            };
        }
        ["shape", "rate", rate] => queue.rate = Some(shape(file, block, rate, "kbps")?),
        ["shape", "rate", rate, unit] => queue.rate = Some(shape(file, block, rate, unit)?),
        ["no", "shape", "rate"] => queue.rate = None,
        _ => return Err(block.wrong(file, "this setting of a queue is not known")),
    }
    Ok(())
}
