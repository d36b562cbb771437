//! Texts of OS10, read as intents.

use std::collections::BTreeMap;

use crate::blocks::{Block, blocks};
use crate::intent::{Ecn, Intent, Port, Queue, Schedule, Trust};
use crate::text::{ReadError, list, mask, number};

/// Class maps and policies read so far, by name.
#[derive(Default)]
struct Policies<'a> {
    dscp: BTreeMap<&'a str, [u8; 64]>,
    pcp: BTreeMap<&'a str, [u8; 8]>,
    wred: BTreeMap<&'a str, (Option<Ecn>, bool)>,
    /// Queues of class maps of type queuing.
    queue_maps: BTreeMap<&'a str, u8>,
    /// Lossless priorities of policies of type network-qos.
    network: BTreeMap<&'a str, u8>,
    queuing: BTreeMap<&'a str, [Queue; 8]>,
    dcbx: bool,
    /// Trust maps of `system qos`: DSCP, then 802.1p.
    system: (Option<&'a str>, Option<&'a str>),
}

pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Intent>, ReadError> {
    let blocks = blocks(file, text)?;
    let mut policies = Policies::default();
    // The first pass reads the definitions that policies refer to, wherever they are in the text.
    for pass in 0..2 {
        for block in &blocks {
            policies.block(file, block, pass)?;
        }
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
    fn block(&mut self, file: &str, block: &Block<'a>, pass: u8) -> Result<(), ReadError> {
        match (pass, block.line.words().as_slice()) {
            (0, ["dcbx", "enable"]) => self.dcbx = true,
            (0, ["trust", "dscp-map", name]) => {
                let mut map = [0; 64];
                trust_map(file, block, "dscp", 63, &mut map)?;
                self.dscp.insert(name, map);
            }
            (0, ["trust", "dot1p-map", name]) => {
                let mut map = [0; 8];
                trust_map(file, block, "dot1p", 7, &mut map)?;
                self.pcp.insert(name, map);
            }
            (0, ["qos-map", "traffic-class", _]) => {
                for line in &block.below {
                    let words = line.line.words();
                    let ["queue", queue, "qos-group", groups, ..] = words.as_slice() else {
                        return Err(line.wrong(file, "this line of a qos-map is not known"));
                    };
                    let queue = number(file, line.line.number, queue, 0..=7)? as u8;
                    // Groups that share queue 0 with group 0 appear in Dell's examples.
                    if queue != 0 && list(file, line.line.number, groups, 7)? != [queue] {
                        return Err(line.wrong(
                            file,
                            "a queue of another number than its group is not supported",
                        ));
                    }
                }
            }
            (0, ["wred", name]) => {
                let profile = wred(file, block)?;
                self.wred.insert(name, profile);
            }
            (0, ["class-map", "type", "queuing", name]) => {
                for line in &block.below {
                    if let ["match", "queue", queue] = line.line.words().as_slice() {
                        self.queue_maps
                            .insert(name, number(file, line.line.number, queue, 0..=7)? as u8);
                    }
                }
            }
            (1, ["policy-map", "type", "network-qos", name]) => {
                let pfc = network(file, block)?;
                self.network.insert(name, pfc);
            }
            (1, ["policy-map", "type", "queuing", name]) => {
                let queues = self.queuing(file, block)?;
                self.queuing.insert(name, queues);
            }
            (1, ["system", "qos"]) => {
                for line in &block.below {
                    match line.line.words().as_slice() {
                        ["trust-map", "dscp", name] => self.system.0 = Some(name),
                        ["trust-map", "dot1p", name] => self.system.1 = Some(name),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn queuing(&self, file: &str, block: &Block<'a>) -> Result<[Queue; 8], ReadError> {
        let mut queues = [Queue {
            schedule: Schedule::Weighted(1),
            ecn: None,
        }; 8];
        for class in &block.below {
            let name = class
                .after("class")
                .ok_or_else(|| class.wrong(file, "this line of a policy is not known"))?;
            let number_of = self.queue_maps.get(name);
            let queue = *number_of
                .ok_or_else(|| class.wrong(file, "there is no class map of this name"))?;
            let queue = &mut queues[usize::from(queue)];
            for line in &class.below {
                match line.line.words().as_slice() {
                    ["priority"] => queue.schedule = Schedule::Strict,
                    ["bandwidth", "percent", percent] => {
                        let percent = number(file, line.line.number, percent, 0..=100)?;
                        queue.schedule = Schedule::Weighted(percent.max(1) as u8);
                    }
                    ["random-detect", name] => {
                        let found = self.wred.get(name);
                        let (ecn, marks) = found.ok_or_else(|| {
                            line.wrong(file, "there is no wred profile of this name")
                        })?;
                        queue.ecn = ecn.filter(|_| *marks);
                    }
                    ["shape", ..] => {}
                    _ => return Err(line.wrong(file, "this setting of a queue is not known")),
                }
            }
        }
        Ok(queues)
    }

    fn interface(
        &self,
        file: &str,
        name: &str,
        block: &Block<'a>,
    ) -> Result<Option<Intent>, ReadError> {
        let (mut dscp, mut pcp) = self.system;
        let (mut pfc, mut queuing, mut on, mut mtu) = (None, None, false, 1500);
        let mut about = false;
        for line in &block.below {
            let words = line.line.words();
            about |= matches!(
                words.first(),
                Some(&("trust-map" | "service-policy" | "priority-flow-control" | "ets"))
            );
            match words.as_slice() {
                ["trust-map", "dscp", name] => dscp = Some(name),
                ["trust-map", "dot1p", name] => pcp = Some(name),
                ["priority-flow-control", "mode", "on"] => on = true,
                ["service-policy", "input", "type", "network-qos", name] => pfc = Some(*name),
                ["service-policy", "output", "type", "queuing", name] => queuing = Some(*name),
                ["mtu", value] => mtu = number(file, line.line.number, value, 576..=65_535)?,
                ["trust-map" | "service-policy", ..] => {
                    return Err(line.wrong(file, "this policy is not known"));
                }
                _ => {}
            }
        }
        if !about {
            return Ok(None);
        }
        let missing =
            |name: &str| block.wrong(file, &format!("there is no map or policy \"{name}\""));
        let dscp = dscp
            .map(|name| self.dscp.get(name).ok_or_else(|| missing(name)))
            .transpose()?;
        let pcp = pcp
            .map(|name| self.pcp.get(name).ok_or_else(|| missing(name)))
            .transpose()?;
        let pfc = pfc
            .map(|name| self.network.get(name).ok_or_else(|| missing(name)))
            .transpose()?;
        let queues = queuing
            .map(|name| self.queuing.get(name).ok_or_else(|| missing(name)))
            .transpose()?;
        let pfc = if on { pfc.copied().unwrap_or(0) } else { 0 };
        Ok(Some(Intent {
            trust: Trust::of(dscp.is_some(), pcp.is_some()),
            dscp: dscp.copied().unwrap_or([0; 64]),
            pcp: pcp.copied().unwrap_or([0; 8]),
            default_class: 0,
            queues: queues.copied().unwrap_or(
                [Queue {
                    schedule: Schedule::Weighted(1),
                    ecn: None,
                }; 8],
            ),
            pfc_send: pfc,
            pfc_obey: pfc,
            dcbx: self.dcbx,
            mtu,
            ports: vec![Port {
                name: name.to_owned(),
                gbps: None,
                metres: None,
            }],
            ..Intent::default()
        }))
    }
}

fn trust_map(
    file: &str,
    block: &Block<'_>,
    header: &str,
    max: u8,
    map: &mut [u8],
) -> Result<(), ReadError> {
    for line in &block.below {
        let words = line.line.words();
        let ["qos-group", group, kind, values] = words.as_slice() else {
            return Err(line.wrong(file, "this line of a trust map is not known"));
        };
        if *kind != header {
            return Err(line.wrong(file, "this header is not that of the map"));
        }
        let group = number(file, line.line.number, group, 0..=7)? as u8;
        list(file, line.line.number, values, max)?
            .iter()
            .for_each(|value| map[usize::from(*value)] = group);
    }
    Ok(())
}

fn wred(file: &str, block: &Block<'_>) -> Result<(Option<Ecn>, bool), ReadError> {
    let (mut ecn, mut marks) = (None, false);
    for line in &block.below {
        let value = |word: &str, max| number(file, line.line.number, word, 0..=max);
        match line.line.words().as_slice() {
            ["random-detect", "ecn"] => marks = true,
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
                    ecn = Some(Ecn::Thresholds { min, max, percent });
                }
            }
            ["random-detect", ..] => {}
            _ => return Err(line.wrong(file, "this line of a wred profile is not known")),
        }
    }
    Ok((ecn, marks))
}

fn network(file: &str, block: &Block<'_>) -> Result<u8, ReadError> {
    let mut pfc = 0;
    for class in &block.below {
        if class.after("class").is_none() {
            return Err(class.wrong(file, "this line of a policy is not known"));
        }
        let paused = class.below.iter().any(|line| line.after("pause").is_some());
        for line in &class.below {
            match line.line.words().as_slice() {
                ["pause", ..] | ["queue-limit", ..] => {}
                ["pfc-cos", values] => {
                    let values = mask(&list(file, line.line.number, values, 7)?);
                    pfc |= if paused { values } else { 0 };
                }
                _ => return Err(line.wrong(file, "this line of a network-qos class is not known")),
            }
        }
    }
    Ok(pfc)
}
