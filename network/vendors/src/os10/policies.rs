//! Trust maps, class maps and policies of OS10.

use std::collections::BTreeMap;

use crate::blocks::Block;
use crate::class_map::{ClassMap, ClassMaps};
use crate::highest_rate::{self, HighestRate};
use crate::intent::{Ecn, Intent, Queue, Schedule};
use crate::outcome::Outcomes;
use crate::text::{ReadError, dscp_list, list, mask, number};

/// Maps and policies read so far, by name.
#[derive(Default)]
pub(super) struct Policies<'a> {
    /// Class by DSCP, and by priority code point, of each trust map.
    pub(super) dscp: BTreeMap<&'a str, [u8; 64]>,
    pcp: BTreeMap<&'a str, [u8; 8]>,
    wred: BTreeMap<&'a str, (Option<Ecn>, bool)>,
    maps: ClassMaps<'a>,
    /// Class maps and groups of each policy of type qos, in order.
    inputs: BTreeMap<&'a str, Vec<(&'a str, u8)>>,
    /// Queues of class maps of type queuing.
    queue_maps: BTreeMap<&'a str, u8>,
    /// Lossless priorities of policies of type network-qos.
    pub(super) network: BTreeMap<&'a str, u8>,
    pub(super) queuing: BTreeMap<&'a str, [Queue; 8]>,
    pub(super) dcbx: bool,
    /// Trust maps of `system qos`: DSCP, then 802.1p.
    pub(super) system: (Option<&'a str>, Option<&'a str>),
    pub(super) system_input: Option<&'a str>,
    pub(super) system_network: Option<&'a str>,
    pub(super) system_queuing: Option<&'a str>,
}

/// Class by priority code point of the device's own trust map (SmartFabric OS10 User Guide 10.5.1, "Trust
/// based classification": it cannot be changed). The guide's table of DSCP was not found.
const PCP_DEFAULT: [u8; 8] = [1, 0, 2, 3, 4, 5, 6, 7];

impl<'a> Policies<'a> {
    /// The classes of a trust map of priority code points.
    pub(super) fn pcp_of(&self, name: &str) -> Option<[u8; 8]> {
        let own = self.pcp.get(name).copied();
        own.or_else(|| (name == "default").then_some(PCP_DEFAULT))
    }

    /// Takes a command in the first or second pass.
    pub(super) fn take(
        &mut self,
        file: &str,
        block: &Block<'a>,
        pass: u8,
        outcomes: &mut Outcomes,
    ) {
        match (pass, block.line.words().as_slice()) {
            (0, ["dcbx", "enable"]) => self.dcbx = true,
            (0, ["no", "dcbx", "enable"]) => self.dcbx = false,
            (0, ["trust", "dscp-map", name]) => {
                let map = self.dscp.entry(name).or_insert([0; 64]);
                block.each(outcomes, |line| trust_map(file, line, "dscp", 63, map));
            }
            (0, ["trust", "dot1p-map", name]) => {
                let map = self.pcp.entry(name).or_insert([0; 8]);
                block.each(outcomes, |line| trust_map(file, line, "dot1p", 7, map));
            }
            (0, ["qos-map", "traffic-class", _]) => {
                block.each(outcomes, |line| queue_of_group(file, line));
            }
            (0, ["wred", name]) => {
                let (ecn, marks) = self.wred.entry(name).or_default();
                block.each(outcomes, |line| wred(file, line, ecn, marks));
            }
            (0, ["class-map", "type", "queuing", rest @ ..]) => {
                let name = rest.last().copied().unwrap_or_default();
                let maps = &mut self.queue_maps;
                block.each(outcomes, |line| match line.line.words().as_slice() {
                    ["match", "queue", queue] => {
                        let queue = number(file, line.line.number, queue, 0..=7)? as u8;
                        maps.insert(name, queue);
                        Ok(())
                    }
                    _ => Err(line.wrong(file, "match queue N was expected")),
                });
            }
            // Policies of this type name the priorities themselves.
            (0, ["class-map", "type", "network-qos", ..]) => {
                block.each(outcomes, |line| match line.line.words().as_slice() {
                    ["match", "qos-group", groups] => {
                        list(file, line.line.number, groups, 7).map(|_| ())
                    }
                    _ => Err(line.wrong(file, "match qos-group N was expected")),
                });
            }
            (0, ["class-map", "type", "qos", rest @ ..]) => {
                let map = self.maps.named(rest.last().copied().unwrap_or_default());
                block.each(outcomes, |line| read_match(map, file, line));
            }
            (1, ["policy-map", "type", "qos", name]) => {
                let classes = input(file, block, outcomes);
                self.inputs.insert(name, classes);
            }
            (1, ["policy-map", "type", "network-qos", name]) => {
                let pfc = network(file, block, outcomes);
                self.network.insert(name, pfc);
            }
            (1, ["policy-map", "type", "queuing", name]) => {
                let queues = self.queues(file, block, outcomes);
                self.queuing.insert(name, queues);
            }
            (1, ["system", "qos"]) => block.each(outcomes, |line| self.system(file, line)),
            _ => return,
        }
        outcomes.applied(block.line.number);
    }

    fn system(&mut self, file: &str, line: &Block<'a>) -> Result<(), ReadError> {
        match line.line.words().as_slice() {
            ["trust-map", "dscp", name] => self.system.0 = Some(name),
            ["trust-map", "dot1p", name] => self.system.1 = Some(name),
            ["service-policy", "input", "type", "qos", name] => self.system_input = Some(name),
            ["ets", "mode", "on" | "off"] | ["qos-map", "traffic-class", _] => {}
            ["service-policy", "input", "type", "network-qos", name] => {
                self.system_network = Some(name);
            }
            ["service-policy", "output", "type", "queuing", name] => {
                self.system_queuing = Some(name);
            }
            // Sizes of the memory that lossless classes share, which the device sets without them.
            [
                "pfc-max-buffer-size"
                | "pfc-shared-buffer-size"
                | "pfc-shared-headroom-buffer-size",
                kbytes,
            ] => {
                number(file, line.line.number, kbytes, 0..=4_000_000)?;
            }
            ["pfc-watchdog" | "buffer-statistics-tracking", ..] => {}
            _ => return Err(line.wrong(file, "this line of system qos is not known")),
        }
        Ok(())
    }

    fn queues(&self, file: &str, block: &Block<'a>, outcomes: &mut Outcomes) -> [Queue; 8] {
        let mut queues = [Queue::WEIGHTED; 8];
        for class in &block.below {
            let name = class.after("class");
            let Some(number) = name.and_then(|name| self.queue_maps.get(name)) else {
                let what = "there is no class map of this name with a queue";
                outcomes.not_understood(&class.wrong(file, what));
                continue;
            };
            outcomes.applied(class.line.number);
            let queue = &mut queues[usize::from(*number)];
            class.each(outcomes, |line| self.queue(file, line, queue));
        }
        queues
    }

    fn queue(&self, file: &str, line: &Block<'a>, queue: &mut Queue) -> Result<(), ReadError> {
        match line.line.words().as_slice() {
            ["priority"] => queue.schedule = Schedule::Strict,
            ["bandwidth", "percent", percent] => {
                let percent = number(file, line.line.number, percent, 0..=100)?;
                queue.schedule = Schedule::Weighted(percent.max(1) as u8);
            }
            ["random-detect", name] => {
                let found = self.wred.get(name);
                let (ecn, marks) = found
                    .ok_or_else(|| line.wrong(file, "there is no wred profile of this name"))?;
                queue.ecn = ecn.filter(|_| *marks);
            }
            ["shape", "min", _, _, "max", unit, rate]
            | ["shape", "min", _, _, "max", unit, rate, _]
            | ["shape", "min", _, _, _, "max", unit, rate]
            | ["shape", "min", _, _, _, "max", unit, rate, _] => {
                let rate = rate.parse().ok().zip(highest_rate::unit(unit));
                let rate = rate.and_then(|(rate, unit)| HighestRate::in_units(rate, unit));
                let what = "a rate that is no number of kbps or mbps is not compared";
                queue.rate = Some(rate.ok_or_else(|| line.wrong(file, what))?);
            }
            _ => return Err(line.wrong(file, "this setting of a queue is not known")),
        }
        Ok(())
    }

    /// Gives packets the classes of a policy for arriving packets; whether there is one of this name.
    pub(super) fn classify(&self, policy: &str, intent: &mut Intent) -> bool {
        let Some(classes) = self.inputs.get(policy) else {
            return false;
        };
        self.maps.classify(classes.iter().copied(), intent);
        true
    }
}

/// Reads a line of a class map.
fn read_match(map: &mut ClassMap, file: &str, line: &Block<'_>) -> Result<(), ReadError> {
    let number = line.line.number;
    match line.line.words().as_slice() {
        ["match", "ip" | "ipv6" | "ip-any", "dscp", values] => map.match_dscp(file, number, values),
        ["match", "cos", values] => map.match_cos(file, number, values),
        ["match", "ip" | "ipv6", "precedence", values] => {
            map.match_precedence(file, number, values)
        }
        [
            "match",
            "ip" | "ipv6" | "mac" | "vlan" | "not" | "ip-any",
            ..,
        ] => {
            map.match_other(line);
            Ok(())
        }
        ["description", ..] => Ok(()),
        _ => Err(line.wrong(file, "this line of a class map is not known")),
    }
}

/// Classes and groups of a policy of type qos.
fn input<'a>(file: &str, block: &Block<'a>, outcomes: &mut Outcomes) -> Vec<(&'a str, u8)> {
    let mut classes = Vec::new();
    for class in &block.below {
        let Some(name) = class.after("class") else {
            let what = "this line of a policy is not known";
            outcomes.not_understood(&class.wrong(file, what));
            continue;
        };
        outcomes.applied(class.line.number);
        class.each(outcomes, |line| match line.line.words().as_slice() {
            ["set", "qos-group", value] => {
                let group = number(file, line.line.number, value, 0..=7)? as u8;
                classes.push((name, group));
                Ok(())
            }
            ["set" | "police" | "trust", ..] => Ok(()),
            _ => Err(line.wrong(file, "this line of a class is not known")),
        });
    }
    classes
}

fn trust_map(
    file: &str,
    line: &Block<'_>,
    header: &str,
    max: u8,
    map: &mut [u8],
) -> Result<(), ReadError> {
    let words = line.line.words();
    let ["qos-group", group, kind, values] = words.as_slice() else {
        return Err(line.wrong(file, "this line of a trust map is not known"));
    };
    if *kind != header {
        return Err(line.wrong(file, "this header is not that of the map"));
    }
    let group = number(file, line.line.number, group, 0..=7)? as u8;
    let values = match header {
        "dscp" => dscp_list(file, line.line.number, values)?,
        _ => list(file, line.line.number, values, max)?,
    };
    values
        .iter()
        .for_each(|value| map[usize::from(*value)] = group);
    Ok(())
}

/// A line of `qos-map traffic-class`.
fn queue_of_group(file: &str, line: &Block<'_>) -> Result<(), ReadError> {
    let words = line.line.words();
    let ["queue", queue, "qos-group", groups, ..] = words.as_slice() else {
        return Err(line.wrong(file, "this line of a qos-map is not known"));
    };
    let queue = number(file, line.line.number, queue, 0..=7)? as u8;
    // Groups that share queue 0 with group 0 appear in Dell's examples.
    if queue != 0 && list(file, line.line.number, groups, 7)? != [queue] {
        let what = "a queue of another number than its group is not supported";
        return Err(line.wrong(file, what));
    }
    Ok(())
}

fn wred(
    file: &str,
    line: &Block<'_>,
    ecn: &mut Option<Ecn>,
    marks: &mut bool,
) -> Result<(), ReadError> {
    let value = |word: &str, max| number(file, line.line.number, word, 0..=max);
    match line.line.words().as_slice() {
        ["random-detect", "ecn"] => *marks = true,
        [
            "random-detect",
            "color",
            colour,
            "minimum-threshold",
            min,
            "maximum-threshold",
            max,
            "drop-probability",
            percent,
        ] => {
            // Thresholds are in kB. Packets are green unless a policer colours them.
            let (min, max) = (value(min, 4_000_000)? * 1000, value(max, 4_000_000)? * 1000);
            let percent = value(percent, 100)? as u8;
            if *colour == "green" {
                *ecn = Some(Ecn::Thresholds { min, max, percent });
            }
        }
        ["random-detect", "weight" | "pool", ..] => {}
        _ => return Err(line.wrong(file, "this line of a wred profile is not known")),
    }
    Ok(())
}

/// Lossless priorities of a policy of type network-qos.
fn network(file: &str, block: &Block<'_>, outcomes: &mut Outcomes) -> u8 {
    let mut pfc = 0;
    for class in &block.below {
        if class.after("class").is_none() {
            let what = "this line of a policy is not known";
            outcomes.not_understood(&class.wrong(file, what));
            continue;
        }
        outcomes.applied(class.line.number);
        let paused = class.below.iter().any(|line| line.after("pause").is_some());
        class.each(outcomes, |line| match line.line.words().as_slice() {
            ["pause", ..] | ["queue-limit", ..] | ["mtu", _] => Ok(()),
            ["pfc-cos", values] => {
                let values = mask(&list(file, line.line.number, values, 7)?);
                pfc |= if paused { values } else { 0 };
                Ok(())
            }
            _ => Err(line.wrong(file, "this line of a network-qos class is not known")),
        });
    }
    pfc
}
