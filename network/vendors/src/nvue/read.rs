//! Texts of NVUE, read as intents: commands, or YAML.

use std::collections::{BTreeMap, BTreeSet};

use super::commands::{self, Setting};
use super::write::{INTERVAL_MS, INTERVALS};
use super::yaml;
use crate::highest_rate::{HighestRate, KILOBIT};
use crate::intent::{Ecn, Intent, Pause, Port, Queue, Schedule, Trust};
use crate::outcome::{Area, Outcomes};
use crate::path_spread::PathSpread;
use crate::text::{Line, ReadError, lines, list, mask, number, shortened};
use crate::watchdog::PauseWatchdog;

/// The profile of every port that has no other.
pub(crate) const PROFILE: &str = "default-global";

/// Areas of `nv set qos` whose settings are in profiles.
const AREAS: [&str; 7] = [
    "mapping",
    "egress-queue-mapping",
    "pfc",
    "egress-scheduler",
    "congestion-control",
    "remark",
    "egress-shaper",
];

/// Areas of QoS that do not change classes, pauses or marks: shares of the packet memory, and headers that
/// packets leave with.
const UNUSED: [&str; 2] = ["traffic-pool", "remark"];

/// Objects below `nv set` that do not concern QoS.
const OTHERS: [&str; 14] = [
    "acl",
    "bridge",
    "evpn",
    "header",
    "maintenance",
    "mlag",
    "nve",
    "platform",
    "router",
    "service",
    "system",
    "vrf",
    "vlan",
    "cluster",
];

/// Settings of an interface that do not concern QoS.
const OF_INTERFACE: [&str; 16] = [
    "acl",
    "base-interface",
    "bond",
    "bridge",
    "description",
    "evpn",
    "ip",
    "link",
    "lldp",
    "parent",
    "ptp",
    "router",
    "storm-control",
    "tunnel",
    "type",
    "vlan",
];

/// A speed in Mb/s: `100G`, `2.5G` or `100M`; none where it is left to the port.
fn speed(word: &str) -> Option<u32> {
    if let Some(mega) = word.strip_suffix('M') {
        return mega.parse().ok();
    }
    let (whole, part) = word
        .strip_suffix('G')
        .map(|giga| giga.split_once('.').unwrap_or((giga, "0")))?;
    let thousandths: u32 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(thousandths)
}

/// A port of a text, by name.
#[derive(Clone, Default)]
struct Link {
    mtu: Option<u32>,
    mbps: Option<u32>,
    dcbx: bool,
    /// Whether the PFC watchdog is on.
    watches: bool,
    /// Whether packets that leave by this port are spread, where they are for the switch.
    spreads: bool,
    /// Names of the profiles, by area.
    profiles: BTreeMap<&'static str, String>,
}

/// The settings of a port's profiles, read so far.
struct Reading<'a> {
    file: &'a str,
    intent: Intent,
    pfc: u8,
    /// Whether the priorities are those of `nv set qos roce`: a profile with its own ones replaces them.
    pfc_is_preset: bool,
    tx: bool,
    rx: bool,
    strict: u8,
    percents: [u8; 8],
    ecn: u8,
    min: [u32; 8],
    max: [u32; 8],
    /// Chance of a mark at the upper threshold, in percent.
    chance: [u8; 8],
    rates: [Option<HighestRate>; 8],
    /// Traffic class, which has a queue, by switch priority, which has pauses.
    queue_of: [u8; 8],
}

/// The traffic class of each switch priority without configuration.
const QUEUES: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

impl<'a> Reading<'a> {
    /// The settings of a switch before any command.
    fn new(file: &'a str) -> Self {
        let mut intent = Intent {
            trust: Trust::Pcp,
            pcp: [0, 1, 2, 3, 4, 5, 6, 7],
            ..Intent::default()
        };
        (0_u8..)
            .zip(&mut intent.dscp)
            .for_each(|(value, class)| *class = value / 8);
        Self {
            file,
            intent,
            pfc: 0,
            pfc_is_preset: false,
            tx: true,
            rx: true,
            strict: 0,
            percents: [12, 13, 12, 13, 12, 13, 12, 13],
            ecn: 1,
            min: [150_000; 8],
            max: [1_500_000; 8],
            chance: [100; 8],
            rates: [None; 8],
            queue_of: QUEUES,
        }
    }

    /// Applies `nv set qos roce`, in its lossless or lossy mode.
    fn roce(&mut self, lossless: bool) {
        self.intent.trust = Trust::Both;
        self.pfc = if lossless { 1 << 3 } else { 0 };
        self.pfc_is_preset = true;
        (self.strict, self.ecn) = (1 << 6, 1 << 3 | 1);
        self.percents = [50, 0, 0, 50, 0, 0, 0, 0];
    }

    fn qos(&mut self, line: &Setting<'_>, area: &str, rest: &[&str]) -> Result<(), ReadError> {
        let value = |word: &str, max| number(self.file, line.line, word, 0..=max);
        match (area, rest) {
            ("mapping", ["trust", word]) => {
                self.intent.trust = match *word {
                    "port" => Trust::None,
                    "l2" => Trust::Pcp,
                    "l3" => Trust::Dscp,
                    "both" => Trust::Both,
                    _ => return Err(line.wrong(self.file, "trust is l2, l3, both or port")),
                };
            }
            ("mapping", ["port-default-sp", word]) => {
                self.intent.default_class = value(word, 7)? as u8
            }
            ("mapping", ["dscp", values, "switch-priority", class]) => {
                let class = value(class, 7)? as u8;
                for dscp in list(self.file, line.line, values, 63)? {
                    self.intent.dscp[usize::from(dscp)] = class;
                }
            }
            ("mapping", ["pcp", values, "switch-priority", class]) => {
                let class = value(class, 7)? as u8;
                for pcp in list(self.file, line.line, values, 7)? {
                    self.intent.pcp[usize::from(pcp)] = class;
                }
            }
            ("egress-queue-mapping", rest) => {
                map_queues(self.file, line, rest, &mut self.queue_of)?
            }
            ("pfc", ["switch-priority", values]) => {
                let own = mask(&list(self.file, line.line, values, 7)?);
                let preset = core::mem::take(&mut self.pfc_is_preset);
                self.pfc = own | if preset { 0 } else { self.pfc };
            }
            ("pfc", ["tx", word]) => self.tx = able(self.file, line, word)?,
            ("pfc", ["rx", word]) => self.rx = able(self.file, line, word)?,
            ("pfc", ["xoff-threshold", bytes]) => {
                self.intent.pause.xoff = Some(value(bytes, u32::MAX)?)
            }
            ("pfc", ["xon-threshold", bytes]) => {
                self.intent.pause.xon = Some(value(bytes, u32::MAX)?)
            }
            ("pfc", ["cable-length" | "port-buffer", bytes]) => {
                value(bytes, u32::MAX)?;
            }
            ("egress-shaper", ["traffic-class", values, "max-rate", rate]) => {
                let kbps = u64::from(value(rate, u32::MAX)?);
                for class in list(self.file, line.line, values, 7)? {
                    self.rates[usize::from(class)] = HighestRate::in_units(kbps, KILOBIT);
                }
            }
            ("egress-shaper", ["traffic-class", _, "min-rate", "0"]) => {}
            ("egress-shaper", ["port-max-rate", _]) => {
                let what = "a highest rate of the whole port is not compared";
                return Err(line.wrong(self.file, what));
            }
            ("egress-scheduler" | "congestion-control", ["traffic-class", values, rest @ ..]) => {
                for class in list(self.file, line.line, values, 7)? {
                    self.queue(line, usize::from(class), rest)?;
                }
            }
            _ => return Err(line.wrong(self.file, "this QoS setting is not known")),
        }
        Ok(())
    }

    fn queue(&mut self, line: &Setting<'_>, class: usize, rest: &[&str]) -> Result<(), ReadError> {
        let bytes = |word: &str| number(self.file, line.line, word, 0..=u32::MAX);
        match rest {
            ["mode", "strict"] => self.strict |= 1 << class,
            ["mode", "dwrr"] => self.strict &= !(1 << class),
            ["bw-percent", percent] => {
                self.percents[class] = number(self.file, line.line, percent, 0..=100)? as u8;
            }
            ["min-threshold", word] => self.min[class] = bytes(word)?,
            ["max-threshold", word] => self.max[class] = bytes(word)?,
            ["ecn", word] => {
                let on = able(self.file, line, word)?;
                self.ecn = self.ecn & !(1 << class) | u8::from(on) << class;
            }
            ["red", word] => {
                able(self.file, line, word)?;
            }
            ["probability", percent] => {
                self.chance[class] = number(self.file, line.line, percent, 0..=100)? as u8;
            }
            _ => return Err(line.wrong(self.file, "this setting of a queue is not known")),
        }
        Ok(())
    }

    /// A priority with pauses, and the traffic class that others are in as well.
    fn shared(&self) -> Option<(u8, u8)> {
        let own = (0..).zip(self.queue_of);
        let mut lossless = own.filter(|(priority, _)| self.pfc >> priority & 1 == 1);
        lossless.find(|(_, class)| self.queue_of.iter().filter(|own| *own == class).count() > 1)
    }

    /// The settings of a port with these profiles.
    fn finish(mut self) -> Intent {
        for (priority, class) in self.queue_of.map(usize::from).into_iter().enumerate() {
            let strict = self.strict >> class & 1 == 1;
            let schedule = if strict {
                Schedule::Strict
            } else {
                Schedule::Weighted(self.percents[class].max(1))
            };
            let (min, max) = (self.min[class], self.max[class]);
            let ecn = (self.ecn >> class & 1 == 1).then_some(Ecn::Thresholds {
                min,
                max,
                percent: self.chance[class],
            });
            self.intent.queues[priority] = Queue {
                schedule,
                ecn,
                rate: self.rates[class],
            };
        }
        let mut sharing =
            (0..8).filter(|class| self.queue_of.iter().filter(|own| *own == class).count() > 1);
        if let Some(class) = sharing.next() {
            let why = format!("several switch priorities share traffic class {class}");
            self.intent.forget(Area::Queues, why);
        }
        self.intent.pfc_send = if self.tx { self.pfc } else { 0 };
        self.intent.pfc_obey = if self.rx { self.pfc } else { 0 };
        if self.pfc == 0 {
            self.intent.pause = Pause::default();
        }
        self.intent
    }
}

/// The settings of a text, by what they are about.
#[derive(Default)]
struct Text<'a> {
    /// `nv set qos roce` and its mode, in order.
    roce: Vec<Setting<'a>>,
    /// Settings of profiles, by area and name.
    profiles: BTreeMap<(&'static str, String), Vec<Setting<'a>>>,
    links: BTreeMap<String, Link>,
    /// Ports that are named, if only with settings that are not of QoS.
    named: BTreeSet<String>,
    /// Settings that name a profile, with its area and name.
    uses: Vec<(Setting<'a>, &'static str, String)>,
    /// Milliseconds between two looks of the PFC watchdog, and how many of them make a storm.
    interval_ms: Option<u32>,
    looks: Option<u32>,
    /// Whether adaptive routing is on for the switch.
    spreads: bool,
}

impl<'a> Text<'a> {
    /// Takes a setting. What concerns a profile is read with the ports that have the profile.
    fn take(&mut self, file: &str, setting: Setting<'a>, outcomes: &mut Outcomes) {
        let line = setting.line;
        match setting.words.as_slice() {
            ["qos", "roce", ..] => {
                outcomes.applied(line);
                self.roce.push(setting);
            }
            ["qos", "pfc-watchdog", rest @ ..] => {
                let read = match rest {
                    ["polling-interval", word] => {
                        number(file, line, word, INTERVAL_MS).map(|ms| self.interval_ms = Some(ms))
                    }
                    ["robustness", word] => {
                        number(file, line, word, INTERVALS).map(|looks| self.looks = Some(looks))
                    }
                    _ => Err(setting.wrong(file, "this setting of the PFC watchdog is not known")),
                };
                outcomes.take(line, read);
            }
            ["qos", area, ..] if UNUSED.contains(area) => outcomes.irrelevant(line),
            ["qos", area, profile, ..] => {
                let Some(area) = AREAS.iter().find(|own| *own == area) else {
                    let what = "this area of QoS is not known";
                    outcomes.not_understood(&setting.wrong(file, what));
                    return;
                };
                let key = (*area, (*profile).to_owned());
                self.profiles.entry(key).or_default().push(setting);
            }
            ["interface", _, rest @ ..] => {
                let ports = setting.interfaces();
                outcomes.within(ports.clone());
                if rest == ["link", "state", "down"] {
                    outcomes.down(line);
                }
                let is_port = |name: &&String| name.starts_with("swp");
                self.named.extend(ports.iter().filter(is_port).cloned());
                match self.interface(file, &setting, &ports, rest) {
                    Ok(true) => outcomes.applied(line),
                    Ok(false) => outcomes.irrelevant(line),
                    Err(error) => outcomes.not_understood(&error),
                }
                outcomes.within(Vec::new());
            }
            ["router", "adaptive-routing", rest @ ..] => {
                let read = spread(file, &setting, rest);
                self.spreads = outcomes.take(line, read).flatten().unwrap_or(self.spreads);
            }
            [object, ..] if OTHERS.contains(object) => outcomes.irrelevant(line),
            _ => outcomes.not_understood(&setting.wrong(file, "this setting is not known")),
        }
    }

    /// Takes a setting of interfaces; whether it is used.
    fn interface(
        &mut self,
        file: &str,
        setting: &Setting<'a>,
        ports: &[String],
        rest: &[&str],
    ) -> Result<bool, ReadError> {
        let number = |word: &str| number(file, setting.line, word, 1..=65_535);
        let (mut mtu, mut mbps, mut dcbx, mut profile) = (None, None, None, None);
        let (mut watches, mut spreads) = (None, None);
        match rest {
            ["router", "adaptive-routing", rest @ ..] => spreads = spread(file, setting, rest)?,
            ["link", "mtu", word] => mtu = Some(number(word)?),
            ["link", "speed", "auto"] => {}
            ["link", "speed", word] => {
                let known = speed(word);
                let what = "a speed is 100G, 2.5G, 100M or auto";
                mbps = Some(known.ok_or_else(|| setting.wrong(file, what))?);
            }
            ["lldp", "dcbx-pfc-tlv", word] => dcbx = Some(able(file, setting, word)?),
            ["qos", "pfc-watchdog"] => watches = Some(true),
            ["qos", "pfc-watchdog", "state", word] => watches = Some(able(file, setting, word)?),
            ["qos", area, "profile", name] => {
                let known = AREAS.iter().find(|own| *own == area);
                let known = known.ok_or_else(|| setting.wrong(file, "this area is not known"))?;
                self.uses.push((setting.clone(), known, (*name).to_owned()));
                profile = Some((*known, (*name).to_owned()));
            }
            [first, ..] if OF_INTERFACE.contains(first) => return Ok(false),
            [] => {}
            _ => return Err(setting.wrong(file, "this setting of an interface is not known")),
        }
        for name in ports {
            let link = self.links.entry(name.clone()).or_default();
            (link.mtu, link.mbps) = (mtu.or(link.mtu), mbps.or(link.mbps));
            link.dcbx = dcbx.unwrap_or(link.dcbx);
            link.watches = watches.unwrap_or(link.watches);
            link.spreads = spreads.unwrap_or(link.spreads);
            link.profiles.extend(profile.clone());
        }
        Ok(true)
    }

    /// Takes the ports that have the settings of all ports, and none of their own.
    fn take_named(&mut self) {
        let mut profiles = self.profiles.keys();
        if self.roce.is_empty() && !profiles.any(|(_, name)| name == PROFILE) {
            return;
        }
        for name in core::mem::take(&mut self.named) {
            self.links.entry(name).or_default();
        }
    }

    /// Whether RoCE is off: the last word about it decides, whatever its mode is.
    fn has_roce_off(&self) -> bool {
        let mut words = self
            .roce
            .iter()
            .rev()
            .map(|setting| setting.words.as_slice());
        let last = words.find_map(|words| match words {
            ["qos", "roce", "enable", word] => Some(*word),
            _ => None,
        });
        matches!(last, Some("off" | "disabled"))
    }

    /// Ports whose profile is not in the text: what they do is not known.
    fn name_missing_profiles(&self, file: &str, outcomes: &mut Outcomes) {
        for (setting, area, name) in &self.uses {
            let is_there = self.profiles.contains_key(&(*area, name.clone()));
            if !is_there && name != PROFILE {
                let what = format!("no {area} profile is called {}", shortened(name));
                outcomes.within(setting.interfaces());
                outcomes.not_understood(&setting.wrong(file, &what));
                outcomes.within(Vec::new());
            }
        }
    }

    /// The intent of a port, without its own name and speed.
    fn of_profiles(
        &self,
        file: &str,
        names: &BTreeMap<&'static str, String>,
        outcomes: &mut Outcomes,
    ) -> Intent {
        let mut reading = Reading::new(file);
        for setting in &self.roce {
            outcomes.take(setting.line, reading.mode(setting));
        }
        if self.has_roce_off() {
            reading = Reading::new(file);
        }
        for area in AREAS {
            let name = names.get(area).map_or(PROFILE, String::as_str);
            let settings = self.profiles.get(&(area, name.to_owned()));
            for setting in settings.into_iter().flatten() {
                let rest = setting.words.get(3..).unwrap_or_default();
                outcomes.take(setting.line, reading.qos(setting, area, rest));
            }
        }
        let area = "egress-queue-mapping";
        let name = names.get(area).map_or(PROFILE, String::as_str);
        let mapping = self.profiles.get(&(area, name.to_owned()));
        let last = mapping.and_then(|settings| settings.last());
        if let (Some((priority, class)), Some(setting)) = (reading.shared(), last) {
            let why = format!(
                "switch priority {priority} has pauses, and other priorities are in its traffic class \
                 {class}: a pause stops them too"
            );
            outcomes.not_judged(setting.line, why);
        }
        reading.finish()
    }
}

impl Reading<'_> {
    /// Applies `qos roce` with its mode.
    fn mode(&mut self, line: &Setting<'_>) -> Result<(), ReadError> {
        match line.words.get(2..).unwrap_or_default() {
            [] | ["mode", "lossless"] | ["enable", "on" | "enabled"] => self.roce(true),
            ["mode", "lossy"] => self.roce(false),
            ["cable-length", metres] => {
                number(self.file, line.line, metres, 0..=100_000)?;
            }
            ["enable", "off" | "disabled"] => {}
            _ => return Err(line.wrong(self.file, "this mode of RoCE is not known")),
        }
        Ok(())
    }
}

/// Takes the traffic class of switch priorities.
fn map_queues(
    file: &str,
    line: &Setting<'_>,
    rest: &[&str],
    queue_of: &mut [u8; 8],
) -> Result<(), ReadError> {
    let ["switch-priority", values, "traffic-class", class] = rest else {
        return Err(line.wrong(file, "switch-priority N traffic-class N was expected"));
    };
    let class = number(file, line.line, class, 0..=7)? as u8;
    for priority in list(file, line.line, values, 7)? {
        queue_of[usize::from(priority & 7)] = class;
    }
    Ok(())
}

/// Whether a setting of adaptive routing switches it: its thresholds do not (Cumulus Linux, "Equal Cost
/// Multipath Load Sharing": Adaptive Routing).
fn spread(file: &str, line: &Setting<'_>, rest: &[&str]) -> Result<Option<bool>, ReadError> {
    match rest {
        [] => Ok(None),
        ["enable", word] => able(file, line, word).map(Some),
        ["link-utilization-threshold", _] => Ok(None),
        _ => Err(line.wrong(file, "this setting of adaptive routing is not known")),
    }
}

/// Whether a word switches on.
fn able(file: &str, line: &Setting<'_>, word: &str) -> Result<bool, ReadError> {
    match word {
        "enable" | "enabled" | "on" => Ok(true),
        "disable" | "disabled" | "off" => Ok(false),
        _ => Err(line.wrong(file, "it is enable or disable")),
    }
}

/// Reads the settings of a text.
fn settings<'a>(file: &str, lines: &[Line<'a>], outcomes: &mut Outcomes) -> Text<'a> {
    let mut found = Text::default();
    let settings = match yaml::is_yaml(lines) {
        true => yaml::settings(file, lines, outcomes),
        false => commands::settings(file, lines, outcomes),
    };
    for setting in settings {
        found.take(file, setting, outcomes);
    }
    found
}

/// What the names of a configuration are, by port.
#[derive(Default)]
pub(crate) struct Names {
    /// The profiles of each port, by area.
    pub(crate) profiles: BTreeMap<String, BTreeMap<&'static str, String>>,
    /// The traffic class of each switch priority.
    pub(crate) queues: BTreeMap<String, [u8; 8]>,
}

/// The names of a configuration. What is not understood is named where its settings are read.
pub(crate) fn names(text: &str) -> Names {
    let Ok(lines) = lines("", text, &['#']) else {
        return Names::default();
    };
    let found = settings("", &lines, &mut Outcomes::of("", &lines));
    let mut names = Names::default();
    for (port, link) in &found.links {
        let mut queues = QUEUES;
        let name = link.profiles.get("egress-queue-mapping");
        let name = name.map_or(PROFILE, String::as_str).to_owned();
        let settings = found.profiles.get(&("egress-queue-mapping", name));
        for setting in settings.into_iter().flatten() {
            let rest = setting.words.get(3..).unwrap_or_default();
            // What is not understood is named where the settings are read.
            let _ = map_queues("", setting, rest, &mut queues);
        }
        names.queues.insert(port.clone(), queues);
        names.profiles.insert(port.clone(), link.profiles.clone());
    }
    names
}

/// The traffic class of each switch priority, where all ports have the same: outputs count by traffic class.
pub fn queue_of_priority(text: &str) -> Option<[u8; 8]> {
    let all = names(text).queues;
    let queues = *all.values().next()?;
    let is_same = all.values().all(|own| *own == queues);
    (is_same && queues != QUEUES).then_some(queues)
}

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let lines = lines(file, text, &['#'])?;
    let mut outcomes = Outcomes::of(file, &lines);
    let mut found = settings(file, &lines, &mut outcomes);
    found.take_named();
    if found.links.is_empty() && !lines.is_empty() {
        found.links.insert(PROFILE.to_owned(), Link::default());
    }
    found.name_missing_profiles(file, &mut outcomes);
    Ok((intents(file, &found, &mut outcomes), outcomes))
}

/// The intents of all ports. Ports with the same profiles are read once.
fn intents(file: &str, text: &Text<'_>, outcomes: &mut Outcomes) -> Vec<Intent> {
    let mut read: BTreeMap<&BTreeMap<&'static str, String>, Intent> = BTreeMap::new();
    // Profiles of no port are read as well, so that their lines have an outcome.
    let mut used: BTreeSet<(&'static str, &str)> = BTreeSet::new();
    for link in text.links.values() {
        read.entry(&link.profiles)
            .or_insert_with(|| text.of_profiles(file, &link.profiles, outcomes));
        let names = AREAS.iter().map(|area| {
            (
                *area,
                link.profiles.get(area).map_or(PROFILE, String::as_str),
            )
        });
        used.extend(names);
    }
    for (area, name) in text.profiles.keys() {
        if !used.contains(&(*area, name.as_str())) {
            text.of_profiles(file, &BTreeMap::from([(*area, name.clone())]), outcomes);
        }
    }
    let detect_ms = text.interval_ms.unwrap_or(100) * text.looks.unwrap_or(3);
    let watchdog = PauseWatchdog {
        detect_ms: Some(detect_ms),
        restore_ms: None,
    };
    let one = |(name, link): (&String, &Link)| Intent {
        watchdog: Some(watchdog).filter(|_| link.watches),
        spread: match text.spreads && link.spreads {
            true => PathSpread::Packets,
            false => PathSpread::Flows,
        },
        mtu: link.mtu.unwrap_or(9216),
        dcbx: link.dcbx,
        ports: vec![Port {
            name: name.clone(),
            mbps: link.mbps,
            metres: None,
        }],
        ..read.get(&link.profiles).cloned().unwrap_or_default()
    };
    text.links.iter().map(one).collect()
}
