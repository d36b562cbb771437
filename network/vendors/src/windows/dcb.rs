//! DCB in operation: `Get-NetAdapterQos` and `Get-NetQosDcbxSetting`.

use super::records::Record;
use super::values::{adapter, boolean};
use crate::facts::{Fact, HostFacts};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// "Priority 3 Enabled", "Priorities 3,4 Enabled", "All Priorities Enabled" or "… Disabled".
fn flow_control(
    section: &Section<'_>,
    line: &Line<'_>,
    value: &str,
) -> Result<Fact<u8>, ReadError> {
    let mut words = value.split_whitespace();
    let on = match words.next_back() {
        Some("Enabled") => true,
        Some("Disabled") => false,
        _ => {
            return Err(section.wrong(
                line,
                "priorities that are Enabled or Disabled were expected",
            ));
        }
    };
    let mut mask = 0;
    let numbers = value
        .split(|letter: char| !letter.is_ascii_digit())
        .filter(|word| !word.is_empty());
    for word in numbers {
        let priority: u8 = section.number(line, word)?;
        mask |= 1 << (priority & 7);
    }
    let is_all = value.starts_with("All ");
    Ok(section.fact(
        line,
        match (on, is_all) {
            (true, true) => 0xff,
            (true, false) => mask,
            (false, _) => 0,
        },
    ))
}

pub(super) fn adapter_qos(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let own = adapter(section, record, host)?;
    if let Some((line, value)) = record.get("enabled") {
        own.qos_enabled = Some(section.fact(line, boolean(section, line, value)?));
    }
    if let Some((line, value)) = record.get("operationalflowcontrol") {
        own.pfc = Some(flow_control(section, line, value)?);
    }
    if let Some((line, value)) = record.get("remoteflowcontrol") {
        own.remote_pfc = Some(flow_control(section, line, value)?);
    }
    Ok(())
}

/// The table within the value of `OperationalClassifications`: rows of protocol, port and priority. `Default`
/// has no port.
pub(super) fn classifications(
    section: &Section<'_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let base = section
        .lines
        .iter()
        .map(|line| line.indent)
        .min()
        .unwrap_or(0);
    let (mut name, mut within) = (None, None);
    for line in &section.lines {
        let key = line.text.split_once(':').filter(|_| line.indent == base);
        match key.map(|(key, value)| (key.trim(), value.trim())) {
            Some(("Name", value)) => name = Some(value.to_owned()),
            Some(("OperationalClassifications", _)) => {
                within = Some(line);
                set(section, line, host, name.as_deref(), None);
            }
            Some(_) => within = None,
            None if within.is_some() => {
                if let ["NetDirect", "445", priority] = line.words()[..] {
                    let priority = section.number::<u8>(line, priority)? & 7;
                    set(section, line, host, name.as_deref(), Some(priority));
                }
            }
            None => {}
        }
    }
    Ok(())
}

fn set(
    section: &Section<'_>,
    line: &Line<'_>,
    host: &mut HostFacts,
    name: Option<&str>,
    priority: Option<u8>,
) {
    let fact = Some(section.fact(line, priority));
    match (name, host.adapters.as_mut_slice()) {
        (Some(name), _) => host.device(name).smb_class = fact,
        (None, [only]) => only.smb_class = fact,
        (None, _) => {}
    }
}

pub(super) fn dcbx(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let Some((line, value)) = record.get("willing") else {
        return Ok(());
    };
    let willing = section.fact(line, boolean(section, line, value)?);
    let of_command = section.argument("-InterfaceAlias");
    let of_record = record
        .get("interfacealias")
        .map(|(_, name)| name.to_owned());
    let name = of_command.map(|name| name.trim_matches(['"', '\'']).to_owned());
    match name.or(of_record) {
        Some(name) => host.device(&name).willing = Some(willing),
        None => host.windows.get_or_insert_default().willing = Some(willing),
    }
    Ok(())
}
