//! Outputs of Junos: `show class-of-service congestion-notification` (Juniper's command summary of QFX
//! Series), `show interfaces queue` (layout of public parsers of it), and `show interfaces extensive`.

use crate::sections::Section;
use crate::switch_facts::Shown;
use crate::text::{Line, ReadError};

/// `show class-of-service congestion-notification`: priorities with PFC of each profile. Ports are not in
/// it, so the priorities of all profiles together are those of any port.
pub(crate) fn profiles(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    let mut is_input = false;
    let mut found: Option<(u8, &Line<'_>)> = None;
    for line in &section.lines {
        match line.words().as_slice() {
            ["Type:", kind, ..] => {
                is_input = kind.trim_end_matches(',') == "Input";
                if is_input {
                    found = found.or(Some((0, line)));
                }
            }
            ["Priority", ..] | ["Cable", "Length:", ..] => {}
            [bits, state @ ("Enabled" | "Disabled"), ..] if bits.len() == 3 => {
                let priority = u8::from_str_radix(bits, 2)
                    .map_err(|_| section.wrong(line, "a code point of three bits was expected"))?;
                if is_input && *state == "Enabled" {
                    let before = found.map_or(0, |(mask, _)| mask);
                    found = Some((before | 1 << (priority & 7), line));
                }
            }
            _ => {
                return Err(section.wrong(
                    line,
                    "a profile, or a code point and its state was expected",
                ));
            }
        }
    }
    if let Some((mask, line)) = found {
        shown.all.pfc = Some(section.fact(line, mask));
    }
    Ok(())
}

/// `show interfaces queue`: dropped and marked packets, by queue of each port.
pub(crate) fn queues(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    let (mut port, mut queue): (Option<String>, Option<u8>) = (None, None);
    let mut dropped = 0_u64;
    for line in &section.lines {
        let text = line.text;
        if physical(line, &mut port, shown, section) {
            queue = None;
            continue;
        }
        if let Some(rest) = text.strip_prefix("Queue: ") {
            let number = rest.split(',').next().unwrap_or_default();
            let number: u8 = section.number(line, number.trim())?;
            // Queues from 8 on are of multicast.
            (queue, dropped) = (Some(number).filter(|number| *number < 8), 0);
            continue;
        }
        let (Some(name), Some(queue), Some((label, rest))) = (&port, queue, text.split_once(':'))
        else {
            continue;
        };
        let label = label.trim();
        let is_drop = matches!(label, "Tail-dropped packets" | "RED-dropped packets");
        if !is_drop && label != "ECN-CE packets" {
            continue;
        }
        let count = rest.split_whitespace().next().unwrap_or_default();
        let count: u64 = section.number(line, count)?;
        let own = shown.port(name);
        match is_drop {
            true => {
                dropped = dropped.saturating_add(count);
                own.dropped(queue, section.fact(line, dropped));
            }
            false => _ = own.marked.insert(queue, section.fact(line, count)),
        }
    }
    Ok(())
}

/// `show interfaces extensive`: whether ports are up. Its counters of pauses concern no rule.
pub(crate) fn extensive(section: &Section<'_>, shown: &mut Shown) {
    let mut port = None;
    for line in &section.lines {
        physical(line, &mut port, shown, section);
    }
}

/// `Physical interface: et-0/0/1, Enabled, Physical link is Up`: the port, and whether it is up.
fn physical(
    line: &Line<'_>,
    port: &mut Option<String>,
    shown: &mut Shown,
    section: &Section<'_>,
) -> bool {
    let Some(rest) = line.text.strip_prefix("Physical interface: ") else {
        return false;
    };
    let name = rest.split(',').next().unwrap_or_default().trim().to_owned();
    if let Some((_, state)) = rest.split_once("Physical link is ") {
        let is_up = state.trim().eq_ignore_ascii_case("up");
        shown.port(&name).up = Some(section.fact(line, is_up));
    }
    *port = Some(name);
    true
}
