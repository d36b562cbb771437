//! Arista EOS with queuing profiles (published RoCE guides for EOS 4.36; aristanetworks/avd's data model).

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::blocks::{Block, blocks};
use crate::intent::{Ecn, Fit, Intent, Pause, Port, Queue, Schedule, Trust};
use crate::text::{ReadError, classes, list, mask, number};

/// Name of the profile that is written.
const PROFILE: &str = "ROCKERY";

/// Class by class of service on a new switch: 0 and 1 are exchanged.
const COS: [u8; 8] = [1, 0, 2, 3, 4, 5, 6, 7];

/// Class by DSCP on a new switch: the DSCP divided by eight, with 0 and 1 exchanged.
fn dscp_default() -> [u8; 64] {
    core::array::from_fn(|value| COS[value / 8])
}

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    if intent.trust == Trust::Both {
        fit.note("a port trusts DSCP or CoS: it trusts DSCP");
        intent.trust = Trust::Dscp;
    }
    if intent.trust.pcp() && !intent.pcp.contains(&intent.default_class) {
        fit.note("untagged packets have a class of service, and with it a class that tagged packets have");
        intent.default_class = intent.pcp[0];
    }
    fit.no_remark(intent);
    fit.percents(intent);
    fit.thresholds(intent, 1000);
    fit.symmetric_pfc(intent);
    fit.no_buffers(intent);
    fit.bare_ports(intent);
}

/// Writes the class of each value that has another one on a new switch.
fn write_map(text: &mut String, field: &str, class_of: &[u8], default: &[u8]) {
    for class in 0..8 {
        let values: Vec<String> = (0..class_of.len())
            .filter(|value| class_of[*value] == class && default[*value] != class)
            .map(|value| value.to_string())
            .collect();
        if !values.is_empty() {
            let values = values.join(" ");
            let _ = writeln!(text, "qos map {field} {values} to traffic-class {class}");
        }
    }
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::new();
    if intent.trust.dscp() {
        write_map(&mut text, "dscp", &intent.dscp, &dscp_default());
    }
    if intent.trust.pcp() {
        write_map(&mut text, "cos", &intent.pcp, &COS);
    }
    let _ = writeln!(text, "!\nqos profile {PROFILE}");
    if intent.pfc_send != 0 {
        text.push_str("   priority-flow-control on\n");
        for class in classes(intent.pfc_send) {
            let _ = writeln!(text, "   priority-flow-control priority {class} no-drop");
        }
    }
    for (class, queue) in intent.queues.iter().enumerate() {
        write_queue(&mut text, class, queue);
    }
    let map = if intent.trust.pcp() { intent.pcp } else { COS };
    let cos = map
        .iter()
        .position(|class| *class == intent.default_class)
        .unwrap_or(0);
    for port in &intent.ports {
        let _ = writeln!(
            text,
            "!\ninterface {}\n   mtu {}\n   qos cos {cos}",
            port.name, intent.mtu
        );
        let trust = match intent.trust {
            Trust::None => "no qos trust",
            Trust::Pcp => "qos trust cos",
            Trust::Dscp | Trust::Both => "qos trust dscp",
        };
        let _ = writeln!(text, "   {trust}\n   service-profile {PROFILE}");
        if intent.dcbx {
            text.push_str("   dcbx mode ieee\n");
        }
    }
    text
}

fn write_queue(text: &mut String, class: usize, queue: &Queue) {
    let _ = writeln!(text, "   !\n   tx-queue {class}");
    match queue.schedule {
        Schedule::Strict => text.push_str("      priority strict\n"),
        Schedule::Weighted(percent) | Schedule::Background(percent) => {
            let _ = writeln!(text, "      no priority\n      bandwidth percent {percent}");
        }
    }
    if let Some(Ecn::Thresholds { min, max, percent }) = queue.ecn {
        let (min, max) = (min / 1000, max / 1000);
        let _ = writeln!(
            text,
            "      random-detect ecn minimum-threshold {min} kbytes maximum-threshold {max} kbytes \
             max-mark-probability {percent} weight 0"
        );
    }
}

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
        found.extend(read_interface(file, name, block, &profiles, (&dscp, &cos))?);
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
    (dscp, cos): (&[u8; 64], &[u8; 8]),
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
