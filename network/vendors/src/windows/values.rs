//! Values of objects that PowerShell prints: true or false, and the adapter that an object is of.

use super::records::Record;
use crate::facts::{Adapter, HostFacts};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// True or False; `ConvertTo-Json` prints enumerations as numbers.
pub(super) fn boolean(
    section: &Section<'_>,
    line: &Line<'_>,
    word: &str,
) -> Result<bool, ReadError> {
    match word.to_lowercase().as_str() {
        "true" | "1" | "enabled" | "allowed" => Ok(true),
        "false" | "0" | "disabled" | "blocked" => Ok(false),
        _ => Err(section.wrong(line, "True or False was expected")),
    }
}

/// The adapter that a record names. Records without a name are of the only adapter.
pub(super) fn adapter<'h>(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &'h mut HostFacts,
) -> Result<&'h mut Adapter, ReadError> {
    let name = record.get("name").map(|(_, name)| name.to_owned());
    let found = match (&name, host.adapters.len()) {
        (Some(name), _) => {
            let line = record.first().unwrap_or(&section.head);
            return device(section, line, host, name);
        }
        (None, 0 | 1) => (host.adapters.len() == 1).then_some(0),
        (None, _) => {
            let line = record.first().unwrap_or(&section.head);
            return Err(section.wrong(line, "the name of the adapter was expected"));
        }
    };
    let index = found.unwrap_or_else(|| {
        host.adapters.push(Adapter {
            device: name.unwrap_or_else(|| "RDMA".to_owned()),
            ..Adapter::default()
        });
        host.adapters.len() - 1
    });
    Ok(&mut host.adapters[index])
}

/// Whether a table's cell was cut, because its column is not wide enough.
pub(super) fn is_cut(text: &str) -> bool {
    text.ends_with("...") || text.ends_with('\u{2026}')
}

/// The adapter of a name, in any case as Windows takes it. A name that a table has cut is that of the only
/// adapter that begins with it.
///
/// # Errors
/// A name that was cut and is of none or of several.
pub(super) fn device<'h>(
    section: &Section<'_>,
    line: &Line<'_>,
    host: &'h mut HostFacts,
    name: &str,
) -> Result<&'h mut Adapter, ReadError> {
    let begin = name.trim_end_matches(['.', '\u{2026}']).to_lowercase();
    let is_own = |own: &Adapter| match is_cut(name) {
        true => own.device.to_lowercase().starts_with(&begin),
        false => own.device.to_lowercase() == name.to_lowercase(),
    };
    let known: Vec<String> = host
        .adapters
        .iter()
        .filter(|own| is_own(own))
        .map(|own| own.device.clone())
        .collect();
    match known.as_slice() {
        [only] => Ok(host.device(only)),
        [] if !is_cut(name) => Ok(host.device(name)),
        _ => {
            let what = "the table has cut the name of the adapter: Format-List prints it whole";
            Err(section.wrong(line, what))
        }
    }
}
