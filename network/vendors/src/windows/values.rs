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
        (Some(name), _) => return Ok(host.device(name)),
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
