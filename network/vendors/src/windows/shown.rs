//! Facts of Windows hosts, from the tables and lists that PowerShell prints.

use crate::facts::{Adapter, HostFacts, WindowsFacts};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// Takes the facts of one section; whether it is one of Windows.
pub(crate) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    if !section.program().starts_with("Get-") && !section.command.starts_with("(Get-") {
        return Ok(false);
    }
    let windows = host.windows.get_or_insert_default();
    if host.adapters.is_empty() {
        host.adapters.push(Adapter {
            device: "RDMA".to_owned(),
            ..Adapter::default()
        });
    }
    let adapter = &mut host.adapters[0];
    let program = section.program();
    for line in &section.lines {
        let pair = line
            .text
            .split_once(':')
            .map(|(key, value)| (key.trim(), value.trim()));
        match program {
            "Get-NetAdapterQos" => adapter_qos(section, line, pair, adapter, windows)?,
            "Get-NetQosDcbxSetting" => {
                if let Some(("Willing", value)) = pair {
                    windows.willing = Some(section.fact(line, boolean(section, line, value)?));
                }
            }
            "Get-NetQosPolicy" => policy(section, line, pair, windows)?,
            "Get-NetAdapterRdma" => {
                if let Some(("Enabled", value)) = pair {
                    windows.rdma_enabled = Some(section.fact(line, boolean(section, line, value)?));
                }
            }
            "Get-SmbClientNetworkInterface" => {
                if let Some(("RdmaCapable" | "RDMA Capable", value)) = pair {
                    windows.rdma_capable = Some(section.fact(line, boolean(section, line, value)?));
                }
            }
            "Get-SmbClientConfiguration" | "Get-SmbServerConfiguration" => match pair {
                Some(("EnableMultiChannel", value)) => {
                    // The setting applies if both the client's and the server's are on.
                    let on = boolean(section, line, value)?;
                    if windows.multichannel.as_ref().is_none_or(|fact| fact.value) {
                        windows.multichannel = Some(section.fact(line, on));
                    }
                }
                Some(("RequireSecuritySignature" | "EncryptData", value)) => {
                    let on = boolean(section, line, value)?;
                    let before = windows.encrypts.as_ref().is_some_and(|fact| fact.value);
                    if !before {
                        windows.encrypts = Some(section.fact(line, on));
                    }
                }
                _ => {}
            },
            "Get-NetAdapterAdvancedProperty" => property(section, line, pair, adapter, windows)?,
            "Get-NetAdapterHardwareInfo" => {}
            _ if section.command.contains("Win32_OperatingSystem") => {
                windows.edition = Some(section.fact(line, line.text.to_owned()));
            }
            _ => {}
        }
    }
    // A list of policies without one for SMB Direct shows that there is none.
    if program == "Get-NetQosPolicy" && windows.smb_policy.is_none() {
        windows.smb_policy = Some(section.fact(&section.head, None));
    }
    Ok(true)
}

fn boolean(section: &Section<'_>, line: &Line<'_>, word: &str) -> Result<bool, ReadError> {
    match word.to_lowercase().as_str() {
        "true" | "1" | "enabled" => Ok(true),
        "false" | "0" | "disabled" => Ok(false),
        _ => Err(section.wrong(line, "True or False was expected")),
    }
}

fn adapter_qos(
    section: &Section<'_>,
    line: &Line<'_>,
    pair: Option<(&str, &str)>,
    adapter: &mut Adapter,
    windows: &mut WindowsFacts,
) -> Result<(), ReadError> {
    match pair {
        Some(("Name", value)) => value.clone_into(&mut adapter.device),
        Some(("Enabled", value)) => {
            windows.qos_enabled = Some(section.fact(line, boolean(section, line, value)?))
        }
        Some(("OperationalFlowControl", value)) => {
            let mut mask = 0;
            // "Priority 3 Enabled", "Priorities 3,4 Enabled" or "All Priorities Disabled".
            let numbers = value
                .split(|letter: char| !letter.is_ascii_digit())
                .filter(|word| !word.is_empty());
            for word in numbers {
                let priority: u8 = section.number(line, word)?;
                mask |= 1 << (priority & 7);
            }
            adapter.pfc = Some(section.fact(line, mask));
        }
        _ => {}
    }
    Ok(())
}

fn policy(
    section: &Section<'_>,
    line: &Line<'_>,
    pair: Option<(&str, &str)>,
    windows: &mut WindowsFacts,
) -> Result<(), ReadError> {
    match pair {
        Some(("NetDirectPort" | "NetDirectPortMatchCondition", "445")) => {
            windows.smb_policy = Some(section.fact(line, None));
        }
        Some(("PriorityValue" | "PriorityValue8021Action", value)) => {
            let priority = section.number(line, value)?;
            if let Some(policy) = &mut windows.smb_policy
                && policy.value.is_none()
            {
                *policy = section.fact(line, Some(priority));
            }
        }
        _ => {}
    }
    Ok(())
}

fn property(
    section: &Section<'_>,
    line: &Line<'_>,
    pair: Option<(&str, &str)>,
    adapter: &mut Adapter,
    windows: &mut WindowsFacts,
) -> Result<(), ReadError> {
    match pair {
        // With most drivers the property counts the Ethernet header.
        Some(("*JumboPacket", value)) => {
            let bytes: u32 = section.number(line, value)?;
            adapter.mtu = Some(section.fact(
                line,
                if bytes == 9000 {
                    9000
                } else {
                    bytes.saturating_sub(14)
                },
            ));
        }
        Some(("*FlowControl", value)) => {
            adapter.global_pause =
                Some(section.fact(line, section.number::<u32>(line, value)? != 0));
        }
        Some(("*NetworkDirectTechnology", value)) => {
            windows.technology = Some(section.fact(line, section.number(line, value)?));
        }
        _ => {}
    }
    Ok(())
}
