//! Texts of EOS, read as intents.

use std::collections::BTreeMap;

use super::write::{COS, dscp_default};
use crate::blocks::{Block, blocks};
use crate::intent::{Ecn, Intent, Pause, Port, Queue, Schedule, Trust};
use crate::text::{ReadError, list, mask, number};

/// The settings of a `qos profile`, or of an interface itself.
#[derive(Clone)]
struct Profile {
    pfc_on: bool,
    pfc: u8,
    queues: [Queue; 8],
}

impl Default for Profile {
    fn default() -> Self {
        // Queues of a new switch: strict priority, the higher number first.
        let queue = Queue {
            schedule: Schedule::Strict,
            ecn: None,
        };
        Self {
            pfc_on: false,
            pfc: 0,
            queues: [queue; 8],
        }
    }
}

pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Intent>, ReadError> {
    let blocks = blocks(file, text)?;
    let (mut dscp, mut cos) = (dscp_default(), COS);
    let mut profiles: BTreeMap<&str, Profile> = BTreeMap::new();
    for block in &blocks {
        if let Some(rest) = block.after("qos map") {
            read_map(file, block, rest, &mut dscp, &mut cos)?;
        } else if let Some(name) = block.after("qos profile") {
            let mut profile = Profile::default();
            for line in &block.below {
                if !read_profile(file, line, &mut profile)? {
                    return Err(line.wrong(file, "this setting of a qos profile is not known"));
                }
            }
            profiles.insert(name, profile);
        } else if let Some(rest) = block.after("qos")
            && !["rewrite", "random-detect", "tail-drop", "ecn"]
                .iter()
                .any(|word| rest.starts_with(word))
        {
            return Err(block.wrong(file, "this QoS command is not known"));
        }
    }
    let mut found = Vec::new();
    for block in &blocks {
        let Some(name) = block.after("interface") else {
            continue;
        };
        found.extend(read_interface(file, name, block, &profiles, &dscp, &cos)?);
    }
    Ok(found)
}

fn read_map(
    file: &str,
    block: &Block<'_>,
    rest: &str,
    dscp: &mut [u8; 64],
    cos: &mut [u8; 8],
) -> Result<(), ReadError> {
    let line = block.line.number;
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words.as_slice() {
        ["traffic-class", from, "to", "tx-queue", to]
        | ["traffic-class", from, "to", "uc-tx-queue", to]
            if from == to =>
        {
            number(file, line, from, 0..=7).map(|_| ())
        }
        ["traffic-class", _, "to", "dscp" | "cos", ..] => Ok(()),
        [
            kind @ ("dscp" | "cos"),
            values @ ..,
            "to",
            "traffic-class",
            class,
        ] => {
            let class = number(file, line, class, 0..=7)? as u8;
            let is_dscp = *kind == "dscp";
            for value in list(file, line, &values.join(","), if is_dscp { 63 } else { 7 })? {
                let entry = if is_dscp {
                    dscp.get_mut(usize::from(value))
                } else {
                    cos.get_mut(usize::from(value))
                };
                entry.into_iter().for_each(|entry| *entry = class);
            }
            Ok(())
        }
        _ => Err(block.wrong(file, "this map is not known")),
    }
}

/// Whether the command is one of a profile.
fn read_profile(file: &str, block: &Block<'_>, profile: &mut Profile) -> Result<bool, ReadError> {
    let line = block.line.number;
    match block.line.words().as_slice() {
        ["priority-flow-control", "on"] => profile.pfc_on = true,
        ["no", "priority-flow-control", ..] => profile.pfc_on = false,
        ["priority-flow-control", "priority", values, "no-drop"] => {
            profile.pfc |= mask(&list(file, line, values, 7)?);
        }
        ["priority-flow-control", "priority", values, "drop"] => {
            profile.pfc &= !mask(&list(file, line, values, 7)?);
        }
        ["priority-flow-control", "pause", ..] => {}
        ["tx-queue" | "uc-tx-queue", class] => {
            let class = number(file, line, class, 0..=7)? as usize;
            for below in &block.below {
                read_queue(file, below, &mut profile.queues[class])?;
            }
        }
        ["qos", "trust" | "cos" | "dscp", ..] | ["shape", ..] => {}
        _ => return Ok(false),
    }
    Ok(true)
}

fn read_queue(file: &str, block: &Block<'_>, queue: &mut Queue) -> Result<(), ReadError> {
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
        ["bandwidth", "guaranteed", ..]
        | ["shape", ..]
        | ["random-detect", "ecn", "count"]
        | ["latency", ..] => {}
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
            queue.ecn = Some(Ecn::Thresholds {
                min: bytes(min, unit)?,
                max: bytes(max, unit2)?,
                percent,
            });
        }
        _ => return Err(block.wrong(file, "this setting of a queue is not known")),
    }
    Ok(())
}

fn read_interface(
    file: &str,
    name: &str,
    block: &Block<'_>,
    profiles: &BTreeMap<&str, Profile>,
    dscp: &[u8; 64],
    cos: &[u8; 8],
) -> Result<Option<Intent>, ReadError> {
    let (mut own, mut about, mut cos_default) = (Profile::default(), false, 0);
    // By default, switched ports trust the class of service.
    let mut trust = Trust::Pcp;
    let (mut mtu, mut dcbx) = (9214, false);
    for line in &block.below {
        match line.line.words().as_slice() {
            ["service-profile", profile] => {
                let found = profiles.get(profile);
                own = found
                    .ok_or_else(|| line.wrong(file, "there is no qos profile of this name"))?
                    .clone();
                about = true;
            }
            ["qos", "trust", "dscp"] => trust = Trust::Dscp,
            ["qos", "trust", "cos"] => trust = Trust::Pcp,
            ["no", "qos", "trust"] => trust = Trust::None,
            ["qos", "cos", value] => {
                cos_default = number(file, line.line.number, value, 0..=7)? as usize
            }
            ["mtu", value] => mtu = number(file, line.line.number, value, 68..=65_535)?,
            ["dcbx", "mode", mode] => dcbx = *mode != "none",
            ["qos", "dscp", value] => {
                number(file, line.line.number, value, 0..=63)?;
            }
            ["qos", ..] => return Err(line.wrong(file, "this QoS command is not known")),
            _ => {
                let known = read_profile(file, line, &mut own)?;
                about |= known;
                continue;
            }
        }
        about |= line.line.text.contains("qos ");
    }
    let default_class = if trust.pcp() {
        cos[cos_default]
    } else {
        COS[cos_default]
    };
    let pfc = if own.pfc_on { own.pfc } else { 0 };
    Ok(about.then(|| Intent {
        trust,
        dscp: *dscp,
        pcp: *cos,
        default_class,
        queues: own.queues,
        pfc_send: pfc,
        pfc_obey: pfc,
        pause: Pause::default(),
        dcbx,
        mtu,
        ports: vec![Port {
            name: name.to_owned(),
            gbps: None,
            metres: None,
        }],
        ..Intent::default()
    }))
}
