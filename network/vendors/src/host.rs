//! Snapshots of hosts: outputs of their commands, each below a line with the command.

use crate::facts::HostFacts;
use crate::sections::sections;
use crate::text::ReadError;
use crate::{linux, windows};

/// Reads a snapshot of a host.
///
/// # Errors
/// The first line that is not understood.
pub fn read_host(file: &str, text: &str) -> Result<HostFacts, ReadError> {
    let mut host = HostFacts {
        name: file.to_owned(),
        ..HostFacts::default()
    };
    for section in sections(file, text)? {
        // Sections of other commands are not used by any rule.
        let _ =
            linux::shown::take(&section, &mut host)? || windows::shown::take(&section, &mut host)?;
    }
    Ok(host)
}
