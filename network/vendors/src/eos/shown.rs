//! Arista EOS: `show priority-flow-control`, in the layout with words and in that with letters for the
//! status, ECN of queues, and JSON of counters and interfaces.

use crate::facts::Fact;
use crate::json;
use crate::sections::Section;
use crate::switch_facts::Shown;
use crate::table::tables;
use crate::text::{ReadError, mask};

pub(crate) fn priority_flow_control(
    section: &Section<'_>,
    shown: &mut Shown,
) -> Result<(), ReadError> {
    letters(section, shown)?;
    for table in tables(section) {
        let columns = (
            table.column("Port"),
            table.column("Enabled"),
            table.column("Priorities"),
        );
        let ((Some(port), Some(enabled), Some(priorities)), Some(active)) =
            (columns, table.column("Active"))
        else {
            continue;
        };
        for (line, cells) in &table.rows {
            let yes = |text: &str| match text {
                "Yes" => Ok(true),
                "No" => Ok(false),
                _ => Err(section.wrong(line, "Yes or No was expected")),
            };
            let (enabled, active) = (yes(&cells[enabled])?, yes(&cells[active])?);
            let digits = cells[priorities].split(|letter: char| !letter.is_ascii_digit());
            let numbers: Vec<u8> = digits
                .filter(|word| !word.is_empty())
                .map(|word| section.number(line, word))
                .collect::<Result<_, _>>()?;
            if numbers.iter().any(|number| *number > 7) {
                return Err(section.wrong(line, "priorities are from 0 to 7"));
            }
            let own = shown.port(&cells[port]);
            own.pfc_enabled = Some(section.fact(line, enabled));
            own.pfc = Some(section.fact(line, if active { mask(&numbers) } else { 0 }));
        }
    }
    Ok(())
}

/// Rows `Et1  E A -  3  …`: enabled or disabled, active, watchdog, and a digit for each priority.
fn letters(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for line in &section.lines {
        let words = line.words();
        let [
            port,
            enabled @ ("E" | "D"),
            active @ ("A" | "-"),
            "W" | "-",
            rest @ ..,
        ] = words.as_slice()
        else {
            continue;
        };
        let digits = rest
            .first()
            .filter(|word| word.chars().all(|letter| letter.is_ascii_digit()));
        let priorities = match (*active, digits) {
            ("A", Some(digits)) => digits.bytes().map(|digit| digit - b'0').collect(),
            ("A", None) => return Err(section.wrong(line, "the priorities were expected")),
            _ => Vec::new(),
        };
        if priorities.iter().any(|priority| *priority > 7) {
            return Err(section.wrong(line, "priorities are from 0 to 7"));
        }
        let own = shown.port(port);
        own.pfc_enabled = Some(section.fact(line, *enabled == "E"));
        own.pfc = Some(section.fact(line, mask(&priorities)));
    }
    Ok(())
}

/// `show qos interfaces [PORT] ecn`: rows `3  kbytes  256  512` of the queues that mark. Without a port in
/// the command, a line with its name is above its table.
pub(crate) fn ecn(
    section: &Section<'_>,
    words: &[&str],
    shown: &mut Shown,
) -> Result<(), ReadError> {
    let mut port = named_port(words);
    let mut begun = false;
    for line in &section.lines {
        let words = line.words();
        match words.as_slice() {
            [name] if name.starts_with("Et") => {
                (port, begun) = (Some(name.trim_end_matches(':').to_owned()), false)
            }
            [first, ..] if first.starts_with("--") => {
                begun = true;
                // A table without rows: none of its queues marks.
                if let Some(name) = &port {
                    shown.port(name).marks = Some(section.fact(line, 0));
                }
            }
            [queue, unit, min, max] if begun => {
                let Some(name) = &port else { continue };
                let queue: u8 = section.number(line, queue)?;
                if queue > 7 {
                    return Err(section.wrong(line, "queues are from 0 to 7"));
                }
                let marks = *unit != "-" && *min != "-" && *max != "-";
                let own = shown.port(name);
                let before = own.marks.as_ref().map_or(0, |marks| marks.value);
                own.marks = Some(section.fact(line, before | u8::from(marks) << queue));
            }
            _ => begun = begun && words.is_empty(),
        }
    }
    Ok(())
}

/// The port that a command names: `show qos interfaces ethernet 1/1 ecn`.
fn named_port(words: &[&str]) -> Option<String> {
    let at = words
        .iter()
        .position(|word| word.starts_with("interface"))?;
    match words.get(at + 1..)? {
        [kind, number, ..]
            if "ethernet".starts_with(&kind.to_ascii_lowercase()) && starts_with_digit(number) =>
        {
            Some(format!("Ethernet{number}"))
        }
        [name, ..] if name.to_ascii_lowercase().starts_with("et") => {
            let number = name.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
            Some(format!("Ethernet{number}"))
        }
        _ => None,
    }
}

fn starts_with_digit(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_digit())
}

/// `show qos interfaces ecn counters queue | json`: marked packets by queue, `-` where they are not counted.
pub(crate) fn marked(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    let Some(ports) = json::read(section)?.and_then(|all| all.get("intfQueueCounters")) else {
        return Ok(());
    };
    for (name, port) in ports.entries()? {
        let Some(queues) = port.get("queueCounters") else {
            continue;
        };
        for (queue, count) in queues.entries()? {
            if count.text().is_ok_and(|text| text == "-") {
                continue;
            }
            let queue: u8 = queue
                .parse()
                .map_err(|_| count.wrong("the number of a queue was expected"))?;
            shown
                .port(&name)
                .marked
                .insert(queue, count.fact(count.number()?));
        }
    }
    Ok(())
}

/// `show interfaces counters queue detail | json`: dropped packets of unicast queues by drop precedence.
/// Traffic classes that are counted together (`TC0-2`) show nothing of a single one.
pub(crate) fn drops(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    let ports = json::read(section)?.and_then(|all| all.at(&["egressQueueCounters", "interfaces"]));
    let Some(ports) = ports else { return Ok(()) };
    for (name, port) in ports.entries()? {
        let Some(classes) = port.at(&["ucastQueues", "trafficClasses"]) else {
            continue;
        };
        for (class, counters) in classes.entries()? {
            let Some(number) = class
                .strip_prefix("TC")
                .and_then(|number| number.parse::<u8>().ok())
            else {
                continue;
            };
            let mut dropped = 0_u64;
            let mut seen = counters.fact(()).seen;
            for (_, precedence) in counters
                .get("dropPrecedences")
                .map_or_else(|| Ok(Vec::new()), |all| all.entries())?
            {
                let Some(count) = precedence.get("droppedPackets") else {
                    continue;
                };
                let packets = count.number()?;
                if packets > 0 {
                    seen = count.fact(()).seen;
                }
                dropped = dropped.saturating_add(packets);
            }
            if number < 8 {
                shown.port(&name).drops.insert(
                    number,
                    Fact {
                        value: dropped,
                        seen,
                    },
                );
            }
        }
    }
    Ok(())
}

/// `show interfaces | json`: MTU and state of Ethernet ports.
pub(crate) fn interfaces(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    let Some(ports) = json::read(section)?.and_then(|all| all.get("interfaces")) else {
        return Ok(());
    };
    for (name, port) in ports.entries()? {
        if !name.starts_with("Ethernet") {
            continue;
        }
        if let Some(mtu) = port.get("mtu") {
            let bytes = u32::try_from(mtu.number()?).map_err(|_| mtu.wrong("it is no MTU"))?;
            shown.port(&name).mtu = Some(mtu.fact(bytes));
        }
        if let Some(state) = port.get("lineProtocolStatus") {
            shown.port(&name).up = Some(state.fact(state.text()? == "up"));
        }
    }
    Ok(())
}
