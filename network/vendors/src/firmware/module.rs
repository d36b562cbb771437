//! Cables, modules and links: `mlxlink`, `ethtool -m`, `lldptool`.

use super::cards::{adapter, card};
use crate::counted_faults::CountedFault;
use crate::facts::HostFacts;
use crate::sections::Section;
use crate::text::ReadError;

/// A text without the colours that a terminal gets.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

/// `mlxlink`: what the tool itself says of the link, and errors that error correction left.
pub(super) fn mlxlink(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let name = section.argument("-d").unwrap_or_default();
    let mut has_failed = false;
    for line in &section.lines {
        let text = plain(line.text);
        let Some((key, value)) = text.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key.trim() {
            "Status Opcode" => has_failed = !matches!(value, "0" | "N/A"),
            "Recommendation" if has_failed => {
                card(host, name).trouble = Some(section.fact(line, value.to_owned()));
            }
            key @ "Effective Physical Errors" => {
                let count: u64 = section.number(line, value)?;
                if let Some(own) = adapter(host, name).filter(|_| count > 0) {
                    let counted = (CountedFault::Damaged, section.fact(line, count));
                    own.counted.insert(key.to_owned(), counted);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// `ethtool -m IF`: alarms of the module that are on.
pub(super) fn ethtool(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let interface = section.argument("-m").unwrap_or_default();
    for line in &section.lines {
        let Some((key, value)) = line.text.split_once(':') else {
            continue;
        };
        let key = key.trim();
        if key.ends_with(" alarm") && value.trim() == "On" {
            let fact = section.fact(line, (interface.to_owned(), key.to_owned()));
            host.module_alarms.push(fact);
        }
    }
    Ok(())
}

/// `lldptool -t -i IF -V PFC`: the TLV that the host sends; tools that ask the adapter itself win.
pub(super) fn lldptool(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let words: Vec<&str> = section.command.split_whitespace().collect();
    let after = |short: &str| words.iter().skip_while(|word| **word != short).nth(1);
    let interface = after("-i").or(after("-ti")).or(after("-tni"));
    // The neighbour's TLVs (-n) are not the host's.
    if words.contains(&"-n") || words.contains(&"-tni") {
        return Ok(());
    }
    for line in &section.lines {
        let Some(list) = line.text.strip_prefix("PFC enabled:") else {
            continue;
        };
        let mut mask = 0;
        for word in list
            .split([',', ' '])
            .filter(|word| !word.is_empty() && *word != "none")
        {
            let priority: u8 = section.number(line, word)?;
            mask |= 1 << (priority & 7);
        }
        let fact = section.fact(line, mask);
        if let Some(own) = interface.and_then(|name| host.adapter_of(name)) {
            own.pfc.get_or_insert(fact);
        }
    }
    Ok(())
}
