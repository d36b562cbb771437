//! NVIDIA Cumulus Linux: `nv show qos roce` and `nv show interface PORT qos roce status`, as tables and as
//! JSON, ECN by traffic class, and adaptive routing.

use crate::json;
use crate::sections::Section;
use crate::switch_facts::ShownPort;
use crate::table::tables;
use crate::text::{Line, ReadError, list, mask};

pub(crate) fn roce(section: &Section<'_>, port: &mut ShownPort) -> Result<(), ReadError> {
    let (mut priority, mut directions) = (None, Vec::new());
    for line in &section.lines {
        let words = line.words();
        let [name, value, ..] = words.as_slice() else {
            continue;
        };
        match *name {
            "pfc-priority" => priority = Some((line, mask(&numbers(section, line, value)?))),
            "rx-enabled" | "tx-enabled" => {
                directions.push(matches!(*value, "yes" | "enabled" | "on"))
            }
            "trust-mode" => {
                port.trusts_dscp =
                    Some(section.fact(line, value.split(',').any(|own| own == "dscp")))
            }
            "enabled-tc" => {
                port.marks = Some(section.fact(line, mask(&numbers(section, line, value)?)))
            }
            _ => {}
        }
    }
    if let Some((line, value)) = priority {
        // If a direction is off, pauses are either not sent or not obeyed.
        let on = directions.iter().all(|on| *on);
        port.pfc = Some(section.fact(line, if on { value } else { 0 }));
    }
    for table in tables(section) {
        let (Some(dscp), Some(class)) = (table.column("dscp"), table.column("switch-prio")) else {
            continue;
        };
        for (line, cells) in &table.rows {
            let class: u8 = section.number(line, &cells[class])?;
            let known = port
                .dscp
                .get_or_insert_with(|| section.fact(line, [None; 64]));
            for value in numbers_to(section, line, &cells[dscp], 63)? {
                known.value[usize::from(value)] = Some(class & 7);
                if value == 26 {
                    known.seen = section.fact(line, ()).seen;
                }
            }
        }
    }
    Ok(())
}

fn numbers(section: &Section<'_>, line: &Line<'_>, text: &str) -> Result<Vec<u8>, ReadError> {
    numbers_to(section, line, text, 7)
}

fn numbers_to(
    section: &Section<'_>,
    line: &Line<'_>,
    text: &str,
    most: u8,
) -> Result<Vec<u8>, ReadError> {
    match text {
        "-" | "" => Ok(Vec::new()),
        text => list(section.file, line.number, text, most),
    }
}

/// `nv show qos congestion-control PROFILE`: a table of traffic classes.
pub(crate) fn congestion_control(
    section: &Section<'_>,
    port: &mut ShownPort,
) -> Result<(), ReadError> {
    for table in tables(section) {
        let (Some(class), Some(ecn)) = (table.column("traffic-class"), table.column("ECN")) else {
            continue;
        };
        for (line, cells) in &table.rows {
            let on = match cells[ecn].as_str() {
                "enable" | "enabled" | "on" => true,
                "disable" | "disabled" | "off" => false,
                _ => return Err(section.wrong(line, "ECN: enable or disable was expected")),
            };
            let classes = numbers(section, line, &cells[class])?;
            let before = port.marks.as_ref().map_or(0, |marks| marks.value);
            port.marks =
                Some(section.fact(line, if on { before | mask(&classes) } else { before }));
        }
    }
    Ok(())
}

/// `nv show qos roce -o json` and `nv show interface PORT qos roce status -o json`: the rows of the same
/// command without `-o json`, as objects.
pub(crate) fn roce_json(section: &Section<'_>, port: &mut ShownPort) -> Result<(), ReadError> {
    let Some(all) = json::read(section)? else {
        return Ok(());
    };
    if let Some(priority) = all.at(&["pfc", "pfc-priority"]) {
        let directions = ["rx-enabled", "tx-enabled"].map(|key| all.at(&["pfc", key]));
        let directions: Vec<bool> = directions
            .into_iter()
            .flatten()
            .map(|on| on.is_on())
            .collect::<Result<_, _>>()?;
        let on = directions.iter().all(|on| *on);
        port.pfc = Some(priority.fact(if on { mask(&priority.classes()?) } else { 0 }));
    }
    if let Some(classes) = all.at(&["congestion-control", "enabled-tc"]) {
        port.marks = Some(classes.fact(mask(&classes.classes()?)));
    }
    if let Some(trust) = all.at(&["trust", "trust-mode"]) {
        port.trusts_dscp =
            Some(trust.fact(trust.text()?.split(',').any(|own| own.trim() == "dscp")));
    }
    Ok(())
}

/// `nv show qos pfc default-global -o json`: the priorities are the keys of an object.
pub(crate) fn pfc_json(section: &Section<'_>, port: &mut ShownPort) -> Result<(), ReadError> {
    let priorities = json::read(section)?.and_then(|all| all.get("switch-priority"));
    if let Some(priorities) = priorities {
        port.pfc = Some(priorities.fact(mask(&priorities.classes()?)));
    }
    Ok(())
}

/// `nv show router adaptive-routing`, and of a port: what is in operation, else what is applied.
pub(crate) fn adaptive_routing(
    section: &Section<'_>,
    port: &mut ShownPort,
) -> Result<(), ReadError> {
    for table in tables(section) {
        let Some(column) = table.column("operational").or(table.column("applied")) else {
            continue;
        };
        for (line, cells) in &table.rows {
            if line.words().first() != Some(&"enable") {
                continue;
            }
            let on = match cells.get(column).map(String::as_str) {
                Some("on" | "enabled") => true,
                Some("off" | "disabled") => false,
                _ => return Err(section.wrong(line, "on or off was expected")),
            };
            port.sprays = Some(section.fact(line, on));
        }
    }
    Ok(())
}

/// The same with `-o json`.
pub(crate) fn adaptive_routing_json(
    section: &Section<'_>,
    port: &mut ShownPort,
) -> Result<(), ReadError> {
    if let Some(on) = json::read(section)?.and_then(|all| all.get("enable")) {
        port.sprays = Some(on.fact(on.is_on()?));
    }
    Ok(())
}
