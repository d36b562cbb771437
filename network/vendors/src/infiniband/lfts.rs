//! Forwarding tables of switches, as OpenSM writes them (`opensm-lfts.dump`, with `-D 0x43`) and `dump_fts`
//! prints them.

use crate::text::{Line, ReadError, lines, shortened};

/// The first LID of groups.
const FIRST_MULTICAST: u16 = 0xc000;

/// The forwarding table of a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpedTable {
    /// The GUID of the switch.
    pub guid: u64,
    /// The node description of the switch.
    pub description: String,
    /// LIDs that it forwards, each with the port and the GUID of the port that has the LID, where it is said.
    pub entries: Vec<DumpedEntry>,
}

/// An entry of a forwarding table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumpedEntry {
    /// The LID of the destination.
    pub lid: u16,
    /// The port that leads there; 0 is the switch itself.
    pub port: u8,
    /// The GUID of the destination's port.
    pub port_guid: Option<u64>,
}

/// Reads tables of unicast LIDs.
///
/// # Errors
/// The first line that is neither a table's head nor an entry; a table that is there twice, and an empty
/// file.
pub fn forwarding_tables(file: &str, text: &str) -> Result<Vec<DumpedTable>, ReadError> {
    let mut tables: Vec<DumpedTable> = Vec::new();
    for line in lines(file, text, &['#'])? {
        let wrong = |what: String| ReadError::new(file, line.number, what);
        if let Some(rest) = line.text.strip_prefix("Unicast lids ") {
            let table = head(rest).ok_or_else(|| {
                wrong(format!(
                    "\"{}\" is no head of a table: expected \"Unicast lids [0-N] of switch \
                     Lid N guid 0xN ('NAME'):\"",
                    shortened(line.text)
                ))
            })?;
            if tables.iter().any(|known| known.guid == table.guid) {
                return Err(wrong(format!(
                    "switch 0x{:016x} has two tables",
                    table.guid
                )));
            }
            tables.push(table);
        } else if !is_other(&line) {
            let entry = entry(line.text).ok_or_else(|| {
                wrong(format!(
                    "\"{}\" is no entry of a table: expected \"0xLID PORT\" and the destination",
                    shortened(line.text)
                ))
            })?;
            let Some(table) = tables.last_mut() else {
                return Err(wrong("an entry before the head of its table".to_owned()));
            };
            table.entries.extend(entry);
        }
    }
    if tables.is_empty() {
        return Err(ReadError::new(
            file,
            1,
            "there is no table of unicast LIDs in it",
        ));
    }
    Ok(tables)
}

/// Lines about entries: titles of columns, and how many there were.
fn is_other(line: &Line<'_>) -> bool {
    let words = line.words();
    matches!(words[..], ["Lid", "Out", ..] | ["Port", "Info", ..])
        || matches!(words[..], [.., "lids", "dumped"])
}

/// `[0-36] of switch Lid 2 guid 0x0002c90300000001 ('name'):`
fn head(text: &str) -> Option<DumpedTable> {
    let (before, name) = text.split_once('(')?;
    let guid = before
        .split_whitespace()
        .skip_while(|word| *word != "guid")
        .nth(1)?;
    let name = name.trim_end_matches(':').trim_end_matches(')');
    let name = name
        .strip_prefix('\'')
        .and_then(|name| name.strip_suffix('\''));
    Some(DumpedTable {
        guid: hexadecimal(guid)?,
        description: name?.to_owned(),
        entries: Vec::new(),
    })
}

/// `0x0016 002 # Channel Adapter portguid 0x0002c90300000001: 'name'`, or with a colon and parentheses; none
/// if the LID is not forwarded.
fn entry(text: &str) -> Option<Option<DumpedEntry>> {
    let mut words = text.split_whitespace();
    let lid = u16::try_from(hexadecimal(words.next()?)?).ok()?;
    let port = words.next()?;
    if port == "UNREACHABLE" || port == "255" {
        return Some(None);
    }
    let port: u8 = port.parse().ok()?;
    let guid = words.skip_while(|word| *word != "portguid").nth(1);
    let port_guid = guid.map(|guid| hexadecimal(guid.trim_end_matches(':')));
    if lid == 0 || lid >= FIRST_MULTICAST || port_guid == Some(None) {
        return None;
    }
    Some(Some(DumpedEntry {
        lid,
        port,
        port_guid: port_guid.flatten(),
    }))
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_both_programs_are_read() {
        let opensm = "Unicast lids [0-3] of switch Lid 2 guid 0x0002c903000a0100 ('leaf (1)'):\n\
                      0x0001 001 # Channel Adapter portguid 0x0002c903000a1b21: 'h0'\n\
                      0x0002 000 # Switch portguid 0x0002c903000a0100: 'leaf (1)'\n\
                      0x0003 UNREACHABLE\n3 lids dumped \n";
        let tool = "Unicast lids [0x0-0x3] of switch Lid 2 guid 0x0002c903000a0100 ('leaf (1)'):\n  \
                    Lid  Out   Destination\n       Port     Info\n\
                    0x0001 001 : (Channel Adapter portguid 0x0002c903000a1b21: 'h0')\n\
                    0x0002 000 : (Switch portguid 0x0002c903000a0100: 'leaf (1)')\n2 valid lids dumped\n";
        for text in [opensm, tool] {
            let tables = forwarding_tables("t", text).unwrap();
            assert_eq!(tables.len(), 1);
            assert_eq!(
                (tables[0].guid, tables[0].description.as_str()),
                (0x0002_c903_000a_0100, "leaf (1)")
            );
            let first = DumpedEntry {
                lid: 1,
                port: 1,
                port_guid: Some(0x0002_c903_000a_1b21),
            };
            assert_eq!((tables[0].entries.len(), tables[0].entries[0]), (2, first));
        }
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        let head = "Unicast lids [0-3] of switch Lid 2 guid 0x1 ('a'):\n";
        for (text, line, what) in [
            ("", 1, "no table"),
            ("0x0001 001\n", 1, "before the head"),
            (&format!("{head}nonsense\n"), 2, "no entry"),
            (&format!("{head}0xc001 001\n"), 2, "no entry"),
            (&format!("{head}0x0001 999\n"), 2, "no entry"),
            (&format!("{head}0x0001 001\n{head}"), 3, "two tables"),
            ("Unicast lids of nobody\n", 1, "no head"),
        ] {
            let error = forwarding_tables("t", text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.what.contains(what), "{text}: {}", error.what);
        }
    }
}
