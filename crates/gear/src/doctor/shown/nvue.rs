//! NVIDIA Cumulus Linux: `nv show qos roce` and `nv show interface PORT qos roce status`.

use super::super::sections::Section;
use super::ShownPort;
use super::table::tables;
use crate::text::{Line, ReadError, list, mask};

pub(super) fn roce(section: &Section<'_>, port: &mut ShownPort) -> Result<(), ReadError> {
    let (mut priority, mut directions) = (None, Vec::new());
    for line in &section.lines {
        let words = line.words();
        let [name, value, ..] = words.as_slice() else { continue };
        match *name {
            "pfc-priority" => priority = Some((line, mask(&numbers(section, line, value)?))),
            "rx-enabled" | "tx-enabled" => directions.push(matches!(*value, "yes" | "enabled" | "on")),
            "trust-mode" => {
                port.trusts_dscp = Some(section.fact(line, value.split(',').any(|own| own == "dscp")))
            }
            "enabled-tc" => port.marks = Some(section.fact(line, mask(&numbers(section, line, value)?))),
            _ => {}
        }
    }
    if let Some((line, value)) = priority {
        // Without both directions pauses are either not sent or not obeyed.
        let on = directions.iter().all(|on| *on);
        port.pfc = Some(section.fact(line, if on { value } else { 0 }));
    }
    for table in tables(section) {
        let (Some(dscp), Some(class)) = (table.column("dscp"), table.column("switch-prio")) else { continue };
        for (line, cells) in &table.rows {
            let class: u8 = section.number(line, &cells[class])?;
            let known = port.dscp.get_or_insert_with(|| section.fact(line, [None; 64]));
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

fn numbers_to(section: &Section<'_>, line: &Line<'_>, text: &str, most: u8) -> Result<Vec<u8>, ReadError> {
    match text {
        "-" | "" => Ok(Vec::new()),
        text => list(section.file, line.number, text, most),
    }
}
