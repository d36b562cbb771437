//! Facts of Windows hosts, from the tables and lists that PowerShell prints.

use super::records::{Record, records};
use crate::facts::{Adapter, HostFacts};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// Takes the facts of one section; whether it is one of Windows whose output is read.
pub(crate) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    let program = section.program();
    if section.command.contains("Win32_OperatingSystem") {
        let windows = host.windows.get_or_insert_default();
        windows.edition = section
            .lines
            .last()
            .map(|line| section.fact(line, line.text.to_owned()));
        return Ok(true);
    }
    let read: fn(&Section<'_>, &Record<'_, '_>, &mut HostFacts) -> Result<(), ReadError> =
        match program {
            "Get-NetAdapterQos" => adapter_qos,
            "Get-NetQosDcbxSetting" => dcbx,
            "Get-NetQosPolicy" => policy,
            "Get-NetAdapterRdma" => rdma,
            "Get-SmbClientNetworkInterface" => interface,
            "Get-SmbMultichannelConnection" => connection,
            "Get-SmbClientConfiguration" | "Get-SmbServerConfiguration" => configuration,
            "Get-NetAdapterAdvancedProperty" => property,
            _ => return Ok(false),
        };
    host.windows.get_or_insert_default();
    for record in records(section) {
        read(section, &record, host)?;
    }
    // A list of policies without one for SMB Direct shows that there is none.
    let windows = host.windows.get_or_insert_default();
    if program == "Get-NetQosPolicy" && windows.smb_policy.is_none() {
        windows.smb_policy = Some(section.fact(&section.head, None));
    }
    Ok(true)
}

/// Leaves adapters without RDMA out, if RDMA of another one is enabled: they carry other traffic.
pub(crate) fn finish(host: &mut HostFacts) {
    if host.windows.is_none() {
        return;
    }
    let is_on = |adapter: &Adapter| adapter.rdma_enabled.as_ref().is_some_and(|on| on.value);
    if host.adapters.iter().any(is_on) {
        host.adapters.retain(is_on);
    }
    if host.adapters.is_empty() {
        let device = "RDMA".to_owned();
        host.adapters.push(Adapter {
            device,
            ..Adapter::default()
        });
    }
}

fn boolean(section: &Section<'_>, line: &Line<'_>, word: &str) -> Result<bool, ReadError> {
    match word.to_lowercase().as_str() {
        "true" | "1" | "enabled" => Ok(true),
        "false" | "0" | "disabled" => Ok(false),
        _ => Err(section.wrong(line, "True or False was expected")),
    }
}

/// The adapter that a record names. Records without a name are of the only adapter.
fn adapter<'h>(
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

fn adapter_qos(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let own = adapter(section, record, host)?;
    if let Some((line, value)) = record.get("enabled") {
        own.qos_enabled = Some(section.fact(line, boolean(section, line, value)?));
    }
    if let Some((line, value)) = record.get("operationalflowcontrol") {
        // "Priority 3 Enabled", "Priorities 3,4 Enabled", "All Priorities Enabled" or "… Disabled".
        let mut mask = match value {
            "All Priorities Enabled" => 0xff,
            _ => 0,
        };
        let numbers = value
            .split(|letter: char| !letter.is_ascii_digit())
            .filter(|word| !word.is_empty());
        for word in numbers {
            let priority: u8 = section.number(line, word)?;
            mask |= 1 << (priority & 7);
        }
        own.pfc = Some(section.fact(line, mask));
    }
    Ok(())
}

fn dcbx(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    if let Some((line, value)) = record.get("willing") {
        let willing = section.fact(line, boolean(section, line, value)?);
        host.windows.get_or_insert_default().willing = Some(willing);
    }
    Ok(())
}

fn policy(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let port = record
        .get("netdirectport")
        .or(record.get("netdirectportmatchcondition"));
    let Some((line, "445")) = port else {
        return Ok(());
    };
    let priority = record
        .get("priorityvalue")
        .or(record.get("priorityvalue8021action"));
    let policy = match priority {
        Some((line, value)) => section.fact(line, Some(section.number(line, value)?)),
        None => section.fact(line, None),
    };
    host.windows.get_or_insert_default().smb_policy = Some(policy);
    Ok(())
}

fn rdma(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    if let Some((line, value)) = record.get("enabled") {
        let on = section.fact(line, boolean(section, line, value)?);
        adapter(section, record, host)?.rdma_enabled = Some(on);
    }
    Ok(())
}

fn interface(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let name = record
        .get("friendlyname")
        .map_or("", |(_, name)| name)
        .to_owned();
    if let Some((line, value)) = record.get("rdmacapable") {
        let fact = section.fact(line, (name, boolean(section, line, value)?));
        host.windows.get_or_insert_default().interfaces.push(fact);
    }
    Ok(())
}

fn connection(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let server = record
        .get("servername")
        .map_or("", |(_, name)| name)
        .to_owned();
    if let Some((line, value)) = record.get("clientrdmacapable") {
        let fact = section.fact(line, (server, boolean(section, line, value)?));
        host.windows.get_or_insert_default().connections.push(fact);
    }
    Ok(())
}

fn configuration(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let windows = host.windows.get_or_insert_default();
    if let Some((line, value)) = record.get("enablemultichannel") {
        // The setting applies if both the client's and the server's are on.
        let on = boolean(section, line, value)?;
        if windows.multichannel.as_ref().is_none_or(|fact| fact.value) {
            windows.multichannel = Some(section.fact(line, on));
        }
    }
    for key in ["requiresecuritysignature", "encryptdata"] {
        if let Some((line, value)) = record.get(key) {
            let on = boolean(section, line, value)?;
            if !windows.encrypts.as_ref().is_some_and(|fact| fact.value) {
                windows.encrypts = Some(section.fact(line, on));
            }
        }
    }
    Ok(())
}

/// `Get-NetAdapterAdvancedProperty` prints the keyword and its value in two fields; lists that people make
/// have the keyword itself as the field.
fn property(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let pair = record
        .get("registrykeyword")
        .zip(record.get("registryvalue"));
    let mut found: Vec<(String, &Line<'_>, &str)> = Vec::new();
    if let Some(((_, keyword), (line, value))) = pair {
        found.push((keyword.to_ascii_lowercase(), line, value));
    }
    for keyword in ["*jumbopacket", "*flowcontrol", "*networkdirecttechnology"] {
        found.extend(
            record
                .get(keyword)
                .map(|(line, value)| (keyword.to_owned(), line, value)),
        );
    }
    for (keyword, line, value) in found {
        let value = value.trim_matches(['{', '}']);
        match keyword.as_str() {
            // With most drivers the property counts the Ethernet header.
            "*jumbopacket" => {
                let bytes: u32 = section.number(line, value)?;
                let mtu = if bytes == 9000 {
                    9000
                } else {
                    bytes.saturating_sub(14)
                };
                adapter(section, record, host)?.mtu = Some(section.fact(line, mtu));
            }
            "*flowcontrol" => {
                let on = section.number::<u32>(line, value)? != 0;
                adapter(section, record, host)?.global_pause = Some(section.fact(line, on));
            }
            "*networkdirecttechnology" => {
                let fact = section.fact(line, section.number(line, value)?);
                adapter(section, record, host)?.technology = Some(fact);
            }
            _ => {}
        }
    }
    Ok(())
}
