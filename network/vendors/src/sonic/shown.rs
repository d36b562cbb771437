//! SONiC: tables of `pfc`, `pfcwd`, `queuestat` and `intfutil` (sonic-net/sonic-utilities).

use crate::sections::Section;
use crate::switch_facts::Shown;
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

/// `show pfcwd stats`: `Ethernet0:3  stormed  1/0 …`.
pub(crate) fn watchdog(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for table in tables(section) {
        let (Some(queue), Some(status)) = (table.column("QUEUE"), table.column("STATUS")) else {
            continue;
        };
        for (line, cells) in &table.rows {
            let Some((port, number)) = cells[queue].split_once(':') else {
                return Err(section.wrong(line, "PORT:QUEUE was expected"));
            };
            let number: u8 = section.number(line, number)?;
            if cells[status] == "stormed" && number < 8 {
                shown
                    .port(port)
                    .stormed
                    .insert(number, section.fact(line, ()));
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
