//! `netstat -xan`: listeners and connections of NetworkDirect.

use crate::facts::{Endpoint, HostFacts};
use crate::sections::Section;
use crate::text::ReadError;

/// Ports of SMB Direct: over RoCE and InfiniBand, and over iWARP.
const PORTS: [&str; 2] = ["445", "5445"];

/// Takes the rows: mode, index of the interface, type, both addresses, and the process, which may be missing.
pub(super) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let mut found = Vec::new();
    for line in &section.lines {
        let words = line.words();
        let is_row = words.get(1).is_some_and(|word| word.parse::<u32>().is_ok());
        if !is_row {
            // The title and the heads, in the language of the system.
            let is_head = line.text.contains("NetworkDirect") || line.text.contains("IfIndex");
            match is_head {
                true => continue,
                false => return Err(section.wrong(line, "a row of netstat -xan was expected")),
            }
        }
        let (Some(kind), Some(local)) = (words.get(2), words.get(3)) else {
            return Err(section.wrong(line, "a type and an address were expected"));
        };
        let listens = match *kind {
            "Listener" => true,
            "Connection" => false,
            "SharedEndpoint" => continue,
            _ => return Err(section.wrong(line, "the type is Listener or Connection")),
        };
        let port = |address: &str| address.rsplit(':').next().map(str::to_owned);
        let ends = [Some(*local), words.get(4).copied()];
        let is_smb = ends
            .iter()
            .flatten()
            .filter_map(|end| port(end))
            .any(|port| PORTS.contains(&port.as_str()));
        found.push(Endpoint { listens, is_smb });
    }
    let fact = section.fact(&section.head, found);
    host.windows.get_or_insert_default().endpoints = Some(fact);
    Ok(())
}
