//! SONiC: tables of `pfc`, `pfcwd`, `queuestat` and `intfutil` (sonic-net/sonic-utilities).

use crate::sections::Section;
use crate::switch_facts::{Shown, StormsOver};
use crate::table::tables;
use crate::text::{Line, ReadError, list, mask};

/// `show pfc priority`: what is configured in `PORT_QOS_MAP`, which SONiC programs.
pub(crate) fn priorities(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for table in tables(section) {
        let (Some(port), Some(priorities)) = (
            table.column("Interface"),
            table.column("Lossless priorities"),
        ) else {
            continue;
        };
        for (line, cells) in &table.rows {
            let text = &cells[priorities];
            let value = match text.as_str() {
                "N/A" | "" => 0,
                text => mask(&list(section.file, line.number, text, 7)?),
            };
            shown.port(&cells[port]).pfc = Some(section.fact(line, value));
        }
    }
    Ok(())
}

/// `show pfcwd stats`: `Ethernet0:3  stormed  1/0  0/12  0/0 …`: storms detected and restored, packets sent
/// and
/// dropped, received and dropped.
pub(crate) fn watchdog(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for table in tables(section) {
        let (Some(queue), Some(status)) = (table.column("QUEUE"), table.column("STATUS")) else {
            continue;
        };
        let storms = table.column("STORM DETECTED/RESTORED");
        let drops = [table.column("TX OK/DROP"), table.column("RX OK/DROP")];
        for (line, cells) in &table.rows {
            let Some((port, number)) = cells[queue].split_once(':') else {
                return Err(section.wrong(line, "PORT:QUEUE was expected"));
            };
            let number: u8 = section.number(line, number)?;
            if number > 7 {
                continue;
            }
            // Two counters with a slash between them.
            let pair = |column: usize| -> Result<(u64, u64), ReadError> {
                let parts = cells[column].split_once('/');
                let (one, other) =
                    parts.ok_or_else(|| section.wrong(line, "COUNT/COUNT was expected"))?;
                Ok((section.number(line, one)?, section.number(line, other)?))
            };
            let detected = storms
                .map(pair)
                .transpose()?
                .map_or(0, |(detected, _)| detected);
            let mut dropped = 0_u64;
            for column in drops.iter().flatten() {
                dropped = dropped.saturating_add(pair(*column)?.1);
            }
            let own = shown.port(port);
            if cells[status] == "stormed" {
                own.stormed.insert(number, section.fact(line, ()));
            } else if detected > 0 {
                let storms = StormsOver { detected, dropped };
                own.storms_over.insert(number, section.fact(line, storms));
            }
        }
    }
    Ok(())
}

/// `show priority-group drop counters`: packets dropped on arrival, by priority group.
pub(crate) fn group_drops(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for table in tables(section) {
        let Some(port) = table.column("Port") else {
            continue;
        };
        for (line, cells) in &table.rows {
            for group in 0..8_u8 {
                let Some(column) = table.column(&format!("PG{group}")) else {
                    continue;
                };
                if let Some(dropped) = counter(section, line, &cells[column])? {
                    let fact = section.fact(line, dropped);
                    shown.port(&cells[port]).arrival_drops.insert(group, fact);
                }
            }
        }
    }
    Ok(())
}

/// `show queue counters`: unicast queues (`UC3`) of each port.
pub(crate) fn queues(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for table in tables(section) {
        let columns = (
            table.column("Port"),
            table.column("TxQ"),
            table.column("Drop/pkts"),
        );
        let (Some(port), Some(queue), Some(drops)) = columns else {
            continue;
        };
        for (line, cells) in &table.rows {
            let Some(number) = cells[queue]
                .strip_prefix("UC")
                .and_then(|number| number.parse::<u8>().ok())
            else {
                continue;
            };
            if let Some(dropped) = counter(section, line, &cells[drops])?
                && number < 8
            {
                shown
                    .port(&cells[port])
                    .drops
                    .insert(number, section.fact(line, dropped));
            }
        }
    }
    Ok(())
}

/// `sonic-db-cli STATE_DB hget 'BUFFER_MAX_PARAM_TABLE|global' mmu_size`, or `hgetall`: the chip's memory,
/// alone or behind the name of the field.
pub(crate) fn memory(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for line in &section.lines {
        let text = line.text.trim();
        let value = text.split_once("mmu_size").map_or(text, |(_, after)| {
            after.trim_start_matches(['\'', '"', ':', ' '])
        });
        let end = value.find(|letter: char| !letter.is_ascii_digit());
        let digits = &value[..end.unwrap_or(value.len())];
        let is_other = text.is_empty() || (digits.is_empty() && !text.contains("mmu_size"));
        if !is_other {
            shown.memory = Some(section.fact(line, section.number(line, digits)?));
        }
    }
    Ok(())
}

/// Counters have commas between thousands, and `N/A` where the chip has none.
fn counter(section: &Section<'_>, line: &Line<'_>, text: &str) -> Result<Option<u64>, ReadError> {
    if text == "N/A" {
        return Ok(None);
    }
    section.number(line, &text.replace(',', "")).map(Some)
}

/// Other systems have a command of the same name, with other columns.
pub(crate) fn is_own_status(section: &Section<'_>) -> bool {
    section
        .lines
        .iter()
        .any(|line| line.text.contains("Lanes") && line.text.contains("MTU"))
}

/// `show interfaces status`.
pub(crate) fn status(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for table in tables(section) {
        let columns = (
            table.column("Interface"),
            table.column("MTU"),
            table.column("Oper"),
        );
        let (Some(port), Some(mtu), Some(state)) = columns else {
            continue;
        };
        for (line, cells) in &table.rows {
            let own = shown.port(&cells[port]);
            if cells[mtu] != "N/A" {
                own.mtu = Some(section.fact(line, section.number(line, &cells[mtu])?));
            }
            own.up = Some(section.fact(line, cells[state] == "up"));
        }
    }
    Ok(())
}
