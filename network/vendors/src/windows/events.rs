//! Events of SMB's logs (`Get-WinEvent`). Their numbers count: their texts are in the system's language.

use super::records::{is_dashes, records};
use crate::facts::{HostFacts, SmbEvent};
use crate::sections::Section;
use crate::text::{Line, ReadError};

const CLIENT: &str = "microsoft-windows-smbclient";
const DIRECT: &str = "microsoft-windows-smbdirect";

/// A provider's event; `None` of other providers.
fn event(provider: &str, number: u32) -> Option<SmbEvent> {
    let provider = provider.to_lowercase();
    // The name of a log has the provider's before its slash.
    match provider.split('/').next() {
        Some(CLIENT) => Some(SmbEvent::Client(number)),
        // The Debug log has other events with the same numbers.
        Some(DIRECT) if !provider.ends_with("/debug") => Some(SmbEvent::Direct(number)),
        _ => None,
    }
}

fn count(section: &Section<'_>, line: &Line<'_>, own: Option<SmbEvent>, host: &mut HostFacts) {
    let Some(own) = own else {
        return;
    };
    let events = &mut host.windows.get_or_insert_default().events;
    let first = || (0, section.fact(line, ()));
    events.entry(own).or_insert_with(first).0 += 1;
}

/// The provider that the command names: `-LogName Microsoft-Windows-SMBClient/Connectivity`.
fn named(section: &Section<'_>) -> String {
    let words = section.command.split(|letter: char| {
        letter.is_whitespace() || matches!(letter, ',' | '\'' | '"' | ';' | '=')
    });
    let is_log = |word: &&str| word.to_lowercase().starts_with("microsoft-windows-smb");
    words
        .into_iter()
        .find(is_log)
        .unwrap_or_default()
        .to_owned()
}

pub(super) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    host.windows.get_or_insert_default();
    let by_command = named(section);
    let provider_of = |text: &str| {
        let (key, provider) = text.split_once(':')?;
        (key.trim() == "ProviderName").then(|| provider.trim().to_owned())
    };
    let has_table = section.lines.iter().any(is_dashes);
    if !has_table {
        for record in records(section)? {
            let provider = record.get("providername").map(|(_, name)| name.to_owned());
            let provider = provider.unwrap_or_else(|| by_command.clone());
            if let Some((line, number)) = record.get("id") {
                let own = event(&provider, section.number(line, number)?);
                count(section, line, own, host);
            }
        }
        return Ok(());
    }
    // A table for each provider, below its name.
    let mut provider = by_command;
    let mut end = None;
    for (index, line) in section.lines.iter().enumerate() {
        let is_head = section.lines.get(index + 1).is_some_and(is_dashes);
        if let Some(name) = provider_of(line.text) {
            // The command says which log, and the table only the provider.
            if !provider.to_lowercase().starts_with(&name.to_lowercase()) {
                provider = name;
            }
        } else if is_dashes(line) {
            end = index
                .checked_sub(1)
                .and_then(|heads| end_of_id(&section.lines[heads]));
        } else if !is_head {
            let letters = end.map(|end: usize| end.saturating_sub(line.indent));
            let cell: String = line.text.chars().take(letters.unwrap_or(0)).collect();
            let number = cell.split_whitespace().last().unwrap_or_default();
            let own = event(&provider, section.number(line, number)?);
            count(section, line, own, host);
        }
    }
    Ok(())
}

/// The column at which the numbers of events end, which are at the right of their column.
fn end_of_id(heads: &Line<'_>) -> Option<usize> {
    let at = heads.text.find(" Id ")? + " Id".len();
    Some(heads.indent + heads.text[..at].chars().count())
}
