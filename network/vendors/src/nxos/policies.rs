//! Class maps and policies of NX-OS.

use std::collections::BTreeMap;

use super::timers::{INTERVAL_MS, RESTORE, SHUT, Timers};
use crate::blocks::Block;
use crate::class_map::{ClassMap, ClassMaps};
use crate::highest_rate::{self, HighestRate};
use crate::intent::{Ecn, Intent, Pause, Queue, Schedule, Trust};
use crate::outcome::Outcomes;
use crate::text::{ReadError, list, mask, number};

/// A policy of type queuing.
#[derive(Clone)]
pub(super) struct Queuing {
    pub(super) queues: [Queue; 8],
    /// Buffers of lossless classes, of a policy for arriving packets.
    pub(super) buffers: BTreeMap<u8, Pause>,
}

/// A policy of type network-qos.
#[derive(Clone, Default)]
pub(super) struct NetworkQos {
    /// Lossless classes, one bit each.
    pub(super) pfc: u8,
    /// The largest frame by class, where the policy says it.
    pub(super) mtu: BTreeMap<u8, u32>,
}

impl NetworkQos {
    /// The largest frame of lossless classes, or of all where none is lossless.
    pub(super) fn mtu(&self) -> Option<u32> {
        let lossless = self
            .mtu
            .iter()
            .filter(|(class, _)| self.pfc >> **class & 1 == 1);
        let own = lossless.map(|(_, mtu)| *mtu).min();
        own.or_else(|| self.mtu.values().copied().min())
    }
}

/// Class maps and policies read so far, by name.
#[derive(Default)]
pub(super) struct Policies<'a> {
    maps: ClassMaps<'a>,
    /// The QoS group of class maps of the types queuing and network-qos that a site has named.
    groups: BTreeMap<(&'a str, &'a str), u8>,
    /// Class maps and groups of each policy of type qos, in order.
    pub(super) inputs: BTreeMap<&'a str, Vec<(&'a str, u8)>>,
    pub(super) network: BTreeMap<&'a str, NetworkQos>,
    pub(super) queuing: BTreeMap<&'a str, Queuing>,
    pub(super) lldp: bool,
    /// Whether the PFC watchdog is on for the switch.
    pub(super) watches: bool,
    pub(super) timers: Timers,
    pub(super) system_network: Option<&'a str>,
    pub(super) system_output: Option<&'a str>,
    pub(super) system_input_queuing: Option<&'a str>,
    pub(super) system_input: Option<&'a str>,
}

impl<'a> Policies<'a> {
    /// Whether the text has no policies, and attaches none to the switch.
    pub(super) fn is_empty(&self) -> bool {
        let system = [
            self.system_network,
            self.system_output,
            self.system_input_queuing,
            self.system_input,
        ];
        self.inputs.is_empty()
            && self.network.is_empty()
            && self.queuing.is_empty()
            && system.iter().all(Option::is_none)
    }

    /// Takes a command that is not of an interface; whether it is one of QoS.
    pub(super) fn take(&mut self, file: &str, block: &Block<'a>, outcomes: &mut Outcomes) -> bool {
        match block.line.words().as_slice() {
            ["class-map", "type", "qos", rest @ ..] | ["class-map", rest @ ..]
                if !rest.is_empty() && !rest.starts_with(&["type"]) =>
            {
                let name = rest.last().copied().unwrap_or_default();
                let map = self.maps.named(name);
                map.is_all = rest.first() == Some(&"match-all");
                block.each(outcomes, |line| read_match(map, file, line));
            }
            [
                "class-map",
                "type",
                kind @ ("queuing" | "network-qos"),
                rest @ ..,
            ] => {
                let name = rest.last().copied().unwrap_or_default();
                for line in &block.below {
                    let read = match line.line.words().as_slice() {
                        ["match", "qos-group", group] => {
                            number(file, line.line.number, group, 0..=7)
                                .map(|group| self.groups.insert((kind, name), group as u8))
                        }
                        _ => Err(line.wrong(file, "match qos-group N was expected")),
                    };
                    outcomes.take(line.line.number, read);
                }
            }
            ["policy-map", "type", "qos", name] => {
                let mut classes = Vec::new();
                block.each(outcomes, |class| {
                    class
                        .after("class")
                        .map(|_| ())
                        .ok_or_else(|| class.wrong(file, "this line of a policy is not known"))
                });
                for class in &block.below {
                    classes.extend(input_class(file, class, outcomes));
                }
                self.inputs.insert(name, classes);
            }
            ["policy-map", "type", "network-qos", name] => {
                let policy = self.network_policy(file, block, outcomes);
                self.network.insert(name, policy);
            }
            ["policy-map", "type", "queuing", name] => {
                let policy = self.queuing_policy(file, block, outcomes);
                self.queuing.insert(name, policy);
            }
            ["system", "qos"] => block.each(outcomes, |line| self.system(file, line)),
            ["feature", "lldp"] => self.lldp = true,
            ["priority-flow-control" | "no", ..] => {
                let read = match self.watchdog(file, block) {
                    Ok(false) => return false,
                    read => read,
                };
                outcomes.take(block.line.number, read);
            }
            _ => return false,
        }
        outcomes.applied(block.line.number);
        true
    }

    /// Takes a command of the PFC watchdog of the whole switch; whether it is one.
    fn watchdog(&mut self, file: &str, block: &Block<'_>) -> Result<bool, ReadError> {
        let value = |word: &str, range| number(file, block.line.number, word, range);
        match block.line.words().as_slice() {
            [
                "priority-flow-control",
                "watch-dog-interval",
                state @ ("on" | "off"),
            ] => {
                self.watches = *state == "on";
            }
            ["no", "priority-flow-control", "watch-dog-interval", ..] => self.watches = false,
            ["priority-flow-control", "watch-dog", "interval", word] => {
                self.timers.interval_ms = value(word, INTERVAL_MS)?;
            }
            [
                "priority-flow-control",
                "watch-dog",
                "shutdown-multiplier",
                word,
            ] => self.timers.shut = value(word, SHUT)?,
            [
                "priority-flow-control",
                "auto-restore" | "fixed-restore",
                "multiplier",
                word,
            ] => self.timers.restore = value(word, RESTORE)?,
            [
                "priority-flow-control",
                "watch-dog-interval" | "watch-dog" | "auto-restore",
                ..,
            ] => {
                return Err(block.wrong(file, "this command of the PFC watchdog is not known"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn system(&mut self, file: &str, line: &Block<'a>) -> Result<(), ReadError> {
        match line.line.words().as_slice() {
            ["service-policy", "type", "network-qos", name] => self.system_network = Some(name),
            ["service-policy", "type", "queuing", "output", name] => {
                self.system_output = Some(name);
            }
            ["service-policy", "type", "queuing", "input", name] => {
                self.system_input_queuing = Some(name);
            }
            ["service-policy", "type", "qos", "input", name, ..] => {
                self.system_input = Some(name);
            }
            _ => return Err(line.wrong(file, "this line of system qos is not known")),
        }
        Ok(())
    }

    /// The group of a class of some type: that of its class map, else the number in the system's own name.
    fn group(&self, kind: &str, name: &str) -> Option<u8> {
        if let Some(group) = self.groups.get(&(kind, name)) {
            return Some(*group);
        }
        let number = match kind {
            "network-qos" => name.strip_prefix("c-8q-nq").or(name.strip_prefix("c-nq"))?,
            _ => ["c-out-8q-q", "c-out-q", "c-in-8q-q", "c-in-q"]
                .iter()
                .find_map(|begin| name.strip_prefix(begin))?,
        };
        match number {
            "-default" => Some(0),
            digits => digits.parse().ok().filter(|group| *group < 8),
        }
    }

    fn network_policy(&self, file: &str, block: &Block<'_>, outcomes: &mut Outcomes) -> NetworkQos {
        let mut policy = NetworkQos::default();
        let NetworkQos { pfc, mtu } = &mut policy;
        for class in &block.below {
            let name = class.after("class type network-qos");
            let group = match name {
                Some("class-default") => Some(0),
                name => name.and_then(|name| self.group("network-qos", name)),
            };
            let Some(group) = group else {
                let what = "no class map of type network-qos gives this class a qos-group";
                outcomes.not_understood(&class.wrong(file, what));
                continue;
            };
            outcomes.applied(class.line.number);
            class.each(outcomes, |line| match line.line.words().as_slice() {
                ["mtu", value] => {
                    mtu.insert(group, number(file, line.line.number, value, 576..=9216)?);
                    Ok(())
                }
                ["pause", "no-drop"] => {
                    *pfc |= 1 << group;
                    Ok(())
                }
                ["pause", .., "pfc-cos", value] => {
                    let values = list(file, line.line.number, value, 7)?;
                    if values != [group] {
                        let what = "pfc-cos of another number than the class is not supported";
                        return Err(line.wrong(file, what));
                    }
                    *pfc |= mask(&values);
                    Ok(())
                }
                [
                    "congestion-control" | "queue-limit" | "multicast-optimize" | "set",
                    ..,
                ] => Ok(()),
                _ => Err(line.wrong(file, "this line of a network-qos class is not known")),
            });
        }
        policy
    }

    fn queuing_policy(&self, file: &str, block: &Block<'_>, outcomes: &mut Outcomes) -> Queuing {
        let mut policy = Queuing {
            queues: [Queue::WEIGHTED; 8],
            buffers: BTreeMap::new(),
        };
        for class in &block.below {
            let name = class.after("class type queuing");
            let group = match name {
                Some("class-default") => Some(0),
                name => name.and_then(|name| self.group("queuing", name)),
            };
            let Some(group) = group else {
                let what = "no class map of type queuing gives this class a qos-group";
                outcomes.not_understood(&class.wrong(file, what));
                continue;
            };
            outcomes.applied(class.line.number);
            let queue = &mut policy.queues[usize::from(group)];
            let buffers = &mut policy.buffers;
            class.each(outcomes, |line| {
                let pause = line.after("pause");
                match pause {
                    Some(rest) => {
                        buffers.insert(group, buffer(file, line, rest)?);
                        Ok(())
                    }
                    None => read_queue(file, line, queue),
                }
            });
        }
        policy
    }

    /// Classes of packets by a policy of type qos.
    pub(super) fn classify(&self, classes: &[(&str, u8)], intent: &mut Intent) {
        let default = classes
            .iter()
            .find(|(name, _)| *name == "class-default")
            .map_or(0, |(_, group)| *group);
        intent.default_class = default;
        (intent.dscp, intent.pcp) = ([default; 64], [default; 8]);
        intent.trust = Trust::of(false, false);
        let named = classes.iter().copied();
        let named = named.filter(|(name, _)| *name != "class-default");
        self.maps.classify(named, intent);
    }
}

/// Reads a line of a class map of type qos.
fn read_match(map: &mut ClassMap, file: &str, line: &Block<'_>) -> Result<(), ReadError> {
    let number = line.line.number;
    match line.line.words().as_slice() {
        ["match", "dscp", values @ ..] | ["match", "ip", "dscp", values @ ..]
            if !values.is_empty() =>
        {
            map.match_dscp(file, number, &values.concat())
        }
        ["match", "cos", values @ ..] if !values.is_empty() => {
            map.match_cos(file, number, &values.concat())
        }
        ["match", "precedence", values @ ..] if !values.is_empty() => {
            map.match_precedence(file, number, &values.concat())
        }
        [
            "match",
            "access-group" | "protocol" | "ip" | "packet" | "qos-group" | "mpls",
            ..,
        ] => {
            map.match_other(line);
            Ok(())
        }
        ["description", ..] => Ok(()),
        _ => Err(line.wrong(file, "this line of a class map is not known")),
    }
}

/// The group that a class of a policy of type qos sets.
fn input_class<'a>(
    file: &str,
    class: &Block<'a>,
    outcomes: &mut Outcomes,
) -> Option<(&'a str, u8)> {
    let name = class.after("class")?;
    let name = name.strip_prefix("type qos ").unwrap_or(name);
    let mut group = None;
    class.each(outcomes, |line| match line.line.words().as_slice() {
        ["set", "qos-group", value] => {
            group = Some(number(file, line.line.number, value, 0..=7)? as u8);
            Ok(())
        }
        ["set" | "police", ..] => Ok(()),
        _ => Err(line.wrong(file, "this line of a class is not known")),
    });
    group.map(|group| (name, group))
}

/// `buffer-size N pause-threshold N resume-threshold N`, in bytes.
fn buffer(file: &str, line: &Block<'_>, rest: &str) -> Result<Pause, ReadError> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let bytes = |word: &str| number(file, line.line.number, word, 0..=u32::MAX);
    match words.as_slice() {
        [
            "buffer-size",
            size,
            "pause-threshold",
            xoff,
            "resume-threshold",
            xon,
        ] => {
            let (size, xoff) = (bytes(size)?, bytes(xoff)?);
            Ok(Pause {
                xoff: Some(xoff),
                xon: Some(bytes(xon)?),
                headroom: Some(size.saturating_sub(xoff)),
            })
        }
        ["no-drop"] => Ok(Pause::default()),
        _ => Err(line.wrong(
            file,
            "buffer-size N pause-threshold N resume-threshold N was expected",
        )),
    }
}

/// The highest rate of a queue: a number and its unit.
fn shape(file: &str, line: &Block<'_>, rate: &str, unit: &str) -> Result<HighestRate, ReadError> {
    let rate = rate.parse().ok().zip(highest_rate::unit(unit));
    let rate = rate.and_then(|(rate, unit)| HighestRate::in_units(rate, unit));
    rate.ok_or_else(|| line.wrong(file, "a rate is a number with bps, kbps, mbps or gbps"))
}

fn read_queue(file: &str, block: &Block<'_>, queue: &mut Queue) -> Result<(), ReadError> {
    let value = |word: &str, max| number(file, block.line.number, word, 0..=max);
    match block.line.words().as_slice() {
        ["priority", "level", level] => {
            value(level, 8)?;
            queue.schedule = Schedule::Strict;
        }
        ["priority"] => queue.schedule = Schedule::Strict,
        ["bandwidth", "remaining", "percent", percent] | ["bandwidth", "percent", percent] => {
            queue.schedule = Schedule::Weighted(value(percent, 100)?.max(1) as u8);
        }
        [
            "random-detect",
            "minimum-threshold",
            min,
            unit,
            "maximum-threshold",
            max,
            unit2,
            "drop-probability",
            percent,
            rest @ ..,
        ] => {
            let bytes = |word: &str, unit: &str| block.threshold(file, word, unit);
            let (min, max, percent) = (
                bytes(min, unit)?,
                bytes(max, unit2)?,
                value(percent, 100)? as u8,
            );
            queue.ecn = rest
                .contains(&"ecn")
                .then_some(Ecn::Thresholds { min, max, percent });
        }
        ["random-detect", "threshold", _, "ecn"] => queue.ecn = Some(Ecn::Automatic),
        ["shape", "min", _, "max", rate] => queue.rate = Some(shape(file, block, rate, "bps")?),
        ["shape", "min", _, _, "max", rate, unit] => {
            queue.rate = Some(shape(file, block, rate, unit)?);
        }
        ["queue-limit" | "afd", ..] => {}
        _ => return Err(block.wrong(file, "this setting of a queue is not known")),
    }
    Ok(())
}
