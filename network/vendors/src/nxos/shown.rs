//! Cisco NX-OS: `show interface priority-flow-control [detail]`, `show queuing interface`, `show queuing
//! pfc-queue` and `show policy-map interface`.

use crate::sections::Section;
use crate::switch_facts::Shown;
use crate::text::{Line, ReadError};

/// Rows `Ethernet1/2  Auto On   (8)  4088353  1890`: mode, whether it is in operation, a bit for each
/// priority in hexadecimal, received and sent pauses.
pub(crate) fn priority_flow_control(
    section: &Section<'_>,
    shown: &mut Shown,
) -> Result<(), ReadError> {
    for line in &section.lines {
        let words = line.words();
        let [port, mode, state, ..] = words.as_slice() else {
            continue;
        };
        if !port.starts_with("Eth") {
            continue;
        }
        let enabled = match mode.to_ascii_lowercase().as_str() {
            "on" => Some(true),
            "off" => Some(false),
            "auto" => None,
            _ => return Err(section.wrong(line, "the mode on, off or auto was expected")),
        };
        let lower = state.to_ascii_lowercase();
        let value = if lower == "off" {
            0
        } else if let Some(rest) = lower.strip_prefix("on") {
            let text = if rest.is_empty() {
                words.get(3).copied().unwrap_or_default()
            } else {
                rest
            };
            bits(section, line, text)?
        } else {
            return Err(section.wrong(line, "the state on or off was expected"));
        };
        let own = shown.port(port);
        own.pfc_enabled = enabled.map(|enabled| section.fact(line, enabled));
        own.pfc = Some(section.fact(line, value));
    }
    Ok(())
}

/// `(8)` or `(0x8)`: a bit for each priority.
fn bits(section: &Section<'_>, line: &Line<'_>, text: &str) -> Result<u8, ReadError> {
    let digits = text.trim_matches(['(', ')']).trim_start_matches("0x");
    u8::from_str_radix(digits, 16)
        .map_err(|_| section.wrong(line, "the bits of priorities were expected"))
}

/// `show interface priority-flow-control detail`: a line with the port, and below it `Admin Mode: On`, `Oper
/// Mode: On` and `VL bitmap: (20)`.
pub(crate) fn detail(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    let mut port: Option<String> = None;
    let mut on = false;
    for line in &section.lines {
        if let Some(name) = port_of(line.text.trim_end_matches(':')) {
            (port, on) = (Some(name), false);
            continue;
        }
        let (Some(name), Some((key, value))) = (&port, line.text.split_once(':')) else {
            continue;
        };
        let own = shown.port(name);
        match (key.trim(), value.trim().to_ascii_lowercase().as_str()) {
            ("Admin Mode", "auto") => own.pfc_enabled = None,
            ("Admin Mode", mode @ ("on" | "off")) => {
                own.pfc_enabled = Some(section.fact(line, mode == "on"));
            }
            ("Oper Mode", mode @ ("on" | "off")) => {
                on = mode == "on";
                if !on {
                    own.pfc = Some(section.fact(line, 0));
                }
            }
            ("VL bitmap", text) if on => {
                own.pfc = Some(section.fact(line, bits(section, line, text)?))
            }
            ("Admin Mode" | "Oper Mode", _) => {
                return Err(section.wrong(line, "on, off or auto was expected"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A port, where a text is nothing else.
fn port_of(text: &str) -> Option<String> {
    let number = text
        .strip_prefix("Ethernet")
        .or_else(|| text.strip_prefix("Eth"))?;
    let is_number = number.starts_with(|letter: char| letter.is_ascii_digit())
        && number
            .chars()
            .all(|letter| letter.is_ascii_digit() || letter == '/');
    is_number.then(|| format!("Ethernet{number}"))
}

/// The port that a command names: `show queuing interface e1/51`, `… interface ethernet 1/51`.
fn named_port(words: &[&str]) -> Option<String> {
    let at = words.iter().position(|word| *word == "interface")?;
    let words: String = words
        .get(at + 1..)?
        .iter()
        .take(2)
        .copied()
        .collect::<Vec<_>>()
        .concat();
    let number = words.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    let end = number
        .find(|letter: char| !letter.is_ascii_digit() && letter != '/')
        .unwrap_or(number.len());
    let is_port = words.to_ascii_lowercase().starts_with('e') && end > 0;
    is_port.then(|| format!("Ethernet{}", &number[..end]))
}

/// `show queuing interface`: a box for each QoS group, with the packets that were dropped. Words of the
/// counter differ between releases.
pub(crate) fn queuing(
    section: &Section<'_>,
    words: &[&str],
    shown: &mut Shown,
) -> Result<(), ReadError> {
    let mut port = named_port(words);
    let mut group: Option<u8> = None;
    for line in &section.lines {
        let text = line.text;
        let heading = text
            .strip_prefix("Egress Queuing for ")
            .or_else(|| text.strip_prefix("Ingress Queuing for "));
        if let Some(rest) = heading {
            let name = rest.split_whitespace().next().unwrap_or_default();
            let name = port_of(name)
                .ok_or_else(|| section.wrong(line, "the name of a port was expected"))?;
            (port, group) = (Some(name), None);
            continue;
        }
        if let Some((_, rest)) = text.split_once("QOS GROUP ") {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            group = Some(section.number(line, &digits)?);
            continue;
        }
        let (Some(port), Some(group)) = (&port, group.filter(|group| *group < 8)) else {
            continue;
        };
        let mut cells = text.trim_matches('|').split('|').map(str::trim);
        if cells.next().is_none_or(|head| {
            !matches!(
                head,
                "Dropped Pkts" | "WRED & Tail Drop Pkts" | "WRED/AFD & Tail Drop Pkts"
            )
        }) {
            continue;
        }
        let counts = cells.filter(|cell| !matches!(*cell, "" | "-"));
        let counts: Vec<u64> = counts
            .map(|cell| section.number(line, cell))
            .collect::<Result<_, _>>()?;
        let dropped = counts
            .iter()
            .fold(0_u64, |sum, count| sum.saturating_add(*count));
        shown.port(port).dropped(group, section.fact(line, dropped));
    }
    Ok(())
}

/// `show queuing pfc-queue`: `QOS GROUP 3 [Shutdown] PFC [YES] PFC-COS [3]` of a queue that the watchdog has
/// stopped.
pub(crate) fn watchdog(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    let mut port: Option<String> = None;
    for line in &section.lines {
        let text = line.text;
        if text.contains("PFC watchdog") {
            port = text.split_whitespace().next().and_then(port_of);
        } else if let (Some(port), Some((_, rest))) = (&port, text.split_once("QOS GROUP "))
            && rest.contains("[Shutdown]")
        {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let group: u8 = section.number(line, &digits)?;
            if group < 8 {
                shown
                    .port(port)
                    .stormed
                    .insert(group, section.fact(line, ()));
            }
        }
    }
    Ok(())
}

/// `show policy-map interface`: queues of the output policy, with ECN where the policy has it, and drops.
/// Without any `random-detect` in it nothing is known of ECN: not all releases print it.
pub(crate) fn policy_map(
    section: &Section<'_>,
    words: &[&str],
    shown: &mut Shown,
) -> Result<(), ReadError> {
    let mut port = named_port(words);
    let mut queue: Option<u8> = None;
    for line in &section.lines {
        let text = line.text;
        if let Some(name) = port_of(text) {
            (port, queue) = (Some(name), None);
        } else if let Some((_, rest)) = text.split_once("Class-map (queuing):") {
            let name = rest.split_whitespace().next().unwrap_or_default();
            queue = queue_of(name);
        } else if text.starts_with("Class-map") || text.starts_with("Service-policy") {
            queue = None;
        }
        let (Some(port), Some(queue)) = (&port, queue) else {
            continue;
        };
        let own = shown.port(port);
        if text.starts_with("random-detect ")
            || text.starts_with("congestion-control random-detect")
        {
            let marks = text.split_whitespace().any(|word| word == "ecn");
            let before = own.marks.as_ref().map_or(0, |marks| marks.value);
            own.marks = Some(section.fact(line, before | u8::from(marks) << queue));
        } else if let Some((_, count)) = text.split_once("queue dropped pkts :") {
            own.dropped(queue, section.fact(line, section.number(line, count)?));
        }
    }
    Ok(())
}

/// `c-out-8q-q3`, and `c-out-8q-q-default` for queue 0.
fn queue_of(class: &str) -> Option<u8> {
    let rest = class
        .strip_prefix("c-out-8q-q")
        .or_else(|| class.strip_prefix("c-out-q"))?;
    match rest {
        "-default" => Some(0),
        digits => digits.parse().ok().filter(|queue| *queue < 8),
    }
}
