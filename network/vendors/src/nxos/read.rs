//! Texts of NX-OS, read as intents.

use std::collections::BTreeMap;

use crate::blocks::{Block, blocks};
use crate::intent::{Ecn, Intent, Pause, Port, Queue, Schedule, Trust};
use crate::text::{ReadError, list, number};

/// Class maps and policies read so far, by name.
#[derive(Default)]
struct Policies<'a> {
    /// DSCP and CoS values of each class map.
    maps: BTreeMap<&'a str, (Vec<u8>, Vec<u8>)>,
    /// Class maps and groups of each policy of type qos, in order.
    inputs: BTreeMap<&'a str, Vec<(&'a str, u8)>>,
    /// Lossless classes and the MTU of each policy of type network-qos.
    network: BTreeMap<&'a str, (u8, u32)>,
    /// Queues of each policy of type queuing.
    queuing: BTreeMap<&'a str, [Queue; 8]>,
    lldp: bool,
    system_network: Option<&'a str>,
    system_queuing: Option<&'a str>,
    system_input: Option<&'a str>,
}

pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Intent>, ReadError> {
    let blocks = blocks(file, text)?;
    let mut policies = Policies::default();
    for block in &blocks {
        policies.block(file, block)?;
    }
    let mut found = Vec::new();
    for block in &blocks {
        if let Some(name) = block.after("interface") {
            found.extend(policies.interface(file, name, block)?);
        }
    }
    Ok(found)
}

impl<'a> Policies<'a> {
    fn block(&mut self, file: &str, block: &Block<'a>) -> Result<(), ReadError> {
        match block.line.words().as_slice() {
            ["class-map", "type", "qos", rest @ ..] => {
                let name = rest
                    .last()
                    .ok_or_else(|| block.wrong(file, "the class map has no name"))?;
                let map = self.maps.entry(name).or_default();
                for line in &block.below {
                    match line.line.words().as_slice() {
                        ["match", "dscp", values] => {
                            map.0.extend(list(file, line.line.number, values, 63)?)
                        }
                        ["match", "cos", values] => {
                            map.1.extend(list(file, line.line.number, values, 7)?)
                        }
                        ["match", ..] | ["description", ..] => {}
                        _ => return Err(line.wrong(file, "this line of a class map is not known")),
                    }
                }
            }
            ["policy-map", "type", "qos", name] => {
                let mut classes = Vec::new();
                for class in &block.below {
                    classes.extend(input_class(file, class)?);
                }
                self.inputs.insert(name, classes);
            }
            ["policy-map", "type", "network-qos", name] => {
                let policy = network_policy(file, block)?;
                self.network.insert(name, policy);
            }
            ["policy-map", "type", "queuing", name] => {
                let queues = queuing_policy(file, block)?;
                self.queuing.insert(name, queues);
            }
            ["system", "qos"] => self.system(file, block)?,
            ["feature", "lldp"] => self.lldp = true,
            _ => {}
        }
        Ok(())
    }

    fn system(&mut self, file: &str, block: &Block<'a>) -> Result<(), ReadError> {
        for line in &block.below {
            match line.line.words().as_slice() {
                ["service-policy", "type", "network-qos", name] => self.system_network = Some(name),
                ["service-policy", "type", "queuing", "output", name] => {
                    self.system_queuing = Some(name)
                }
                ["service-policy", "type", "qos", "input", name, ..] => {
                    self.system_input = Some(name)
                }
                ["service-policy", "type", "queuing", "input", ..] => {}
                _ => return Err(line.wrong(file, "this line of system qos is not known")),
            }
        }
        Ok(())
    }

    fn interface(
        &self,
        file: &str,
        name: &str,
        block: &Block<'a>,
    ) -> Result<Option<Intent>, ReadError> {
        let (mut input, mut queuing) = (self.system_input, self.system_queuing);
        let (mut mode, mut mtu) = (None, 1500);
        for line in &block.below {
            match line.line.words().as_slice() {
                [
                    "priority-flow-control",
                    "mode",
                    word @ ("on" | "off" | "auto"),
                ] => mode = Some(*word),
                ["priority-flow-control", "mode", ..] => {
                    return Err(line.wrong(file, "the mode is on, off or auto"));
                }
                ["service-policy", "type", "qos", "input", name, ..] => input = Some(name),
                ["service-policy", "type", "queuing", "output", name, ..] => queuing = Some(name),
                ["service-policy", ..] => return Err(line.wrong(file, "this policy is not known")),
                ["mtu", value] => mtu = number(file, line.line.number, value, 576..=9216)?,
                _ => {}
            }
        }
        if input.is_none() && mode.is_none() {
            return Ok(None);
        }
        let missing = |name: &str| block.wrong(file, &format!("there is no policy \"{name}\""));
        let mut intent = Intent {
            dscp: [0; 64],
            pcp: [0; 8],
            mtu,
            dcbx: self.lldp,
            ..Intent::default()
        };
        if let Some(input) = input {
            let classes = self.inputs.get(input).ok_or_else(|| missing(input))?;
            self.classify(file, block, classes, &mut intent)?;
        } else {
            intent.trust = Trust::None;
        }
        intent.queues = match queuing {
            Some(name) => *self.queuing.get(name).ok_or_else(|| missing(name))?,
            None => {
                [Queue {
                    schedule: Schedule::Weighted(1),
                    ecn: None,
                }; 8]
            }
        };
        let network = self
            .system_network
            .map(|name| self.network.get(name).ok_or_else(|| missing(name)));
        let pfc = network.transpose()?.map_or(0, |(pfc, _)| *pfc);
        // With the mode auto the neighbour's DCBX decides: PFC is on where both ends agree.
        let pfc = if mode == Some("off") { 0 } else { pfc };
        (intent.pfc_send, intent.pfc_obey, intent.pause) = (pfc, pfc, Pause::default());
        intent.ports = vec![Port {
            name: name.to_owned(),
            gbps: None,
            metres: None,
        }];
        Ok(Some(intent))
    }

    fn classify(
        &self,
        file: &str,
        block: &Block<'_>,
        classes: &[(&str, u8)],
        intent: &mut Intent,
    ) -> Result<(), ReadError> {
        let default = classes
            .iter()
            .find(|(name, _)| *name == "class-default")
            .map_or(0, |(_, group)| *group);
        intent.default_class = default;
        (intent.dscp, intent.pcp) = ([default; 64], [default; 8]);
        let (mut by_dscp, mut by_cos) = (false, false);
        for (name, group) in classes
            .iter()
            .rev()
            .filter(|(name, _)| *name != "class-default")
        {
            let map = self.maps.get(name);
            let (dscp, cos) =
                map.ok_or_else(|| block.wrong(file, &format!("there is no class map \"{name}\"")))?;
            dscp.iter()
                .for_each(|value| intent.dscp[usize::from(*value)] = *group);
            cos.iter()
                .for_each(|value| intent.pcp[usize::from(*value)] = *group);
            (by_dscp, by_cos) = (by_dscp | !dscp.is_empty(), by_cos | !cos.is_empty());
        }
        intent.trust = Trust::of(by_dscp, by_cos);
        Ok(())
    }
}

fn input_class<'a>(file: &str, class: &Block<'a>) -> Result<Option<(&'a str, u8)>, ReadError> {
    let Some(name) = class.after("class") else {
        return Err(class.wrong(file, "this line of a policy is not known"));
    };
    let mut group = None;
    for line in &class.below {
        match line.line.words().as_slice() {
            ["set", "qos-group", value] => {
                group = Some(number(file, line.line.number, value, 0..=7)? as u8)
            }
            ["set" | "police", ..] => {}
            _ => return Err(line.wrong(file, "this line of a class is not known")),
        }
    }
    Ok(group.map(|group| (name, group)))
}

fn network_policy(file: &str, block: &Block<'_>) -> Result<(u8, u32), ReadError> {
    let (mut pfc, mut mtu) = (0, 0);
    for class in &block.below {
        let name = class.after("class type network-qos");
        let name = name.ok_or_else(|| class.wrong(file, "this line of a policy is not known"))?;
        let suffix = name.rsplit("nq").next().unwrap_or_default();
        let queue = if suffix == "-default" {
            Some(0)
        } else {
            suffix.parse::<u8>().ok()
        };
        for line in &class.below {
            match line.line.words().as_slice() {
                ["mtu", value] => mtu = number(file, line.line.number, value, 576..=9216)?.max(mtu),
                ["pause", .., "pfc-cos", value] => {
                    let values = list(file, line.line.number, value, 7)?;
                    if queue.is_none_or(|queue| values != [queue]) {
                        let what = "pfc-cos of another number than the class is not supported";
                        return Err(line.wrong(file, what));
                    }
                    pfc |= crate::text::mask(&values);
                }
                ["congestion-control", ..] | ["queue-limit", ..] => {}
                _ => return Err(line.wrong(file, "this line of a network-qos class is not known")),
            }
        }
    }
    Ok((pfc, mtu))
}

fn queuing_policy(file: &str, block: &Block<'_>) -> Result<[Queue; 8], ReadError> {
    let mut queues = [Queue {
        schedule: Schedule::Weighted(1),
        ecn: None,
    }; 8];
    for class in &block.below {
        let name = class.after("class type queuing");
        let name = name.ok_or_else(|| class.wrong(file, "this line of a policy is not known"))?;
        let suffix = name.rsplit('q').next().unwrap_or_default();
        let number_of = if suffix == "-default" {
            Some(0)
        } else {
            suffix.parse::<usize>().ok()
        };
        let Some(queue) = number_of.and_then(|number| queues.get_mut(number)) else {
            return Err(class.wrong(
                file,
                "queues are called c-out-8q-q1 to q7, and c-out-8q-q-default",
            ));
        };
        for line in &class.below {
            read_queue(file, line, queue)?;
        }
    }
    Ok(queues)
}

fn read_queue(file: &str, block: &Block<'_>, queue: &mut Queue) -> Result<(), ReadError> {
    let value = |word: &str, max| number(file, block.line.number, word, 0..=max);
    match block.line.words().as_slice() {
        ["priority", "level", level] => {
            value(level, 8)?;
            queue.schedule = Schedule::Strict;
        }
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
        ["shape" | "queue-limit" | "afd" | "random-detect", ..] => {}
        _ => return Err(block.wrong(file, "this setting of a queue is not known")),
    }
    Ok(())
}
