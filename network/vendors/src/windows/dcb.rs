//! DCB in operation: `Get-NetAdapterQos` and `Get-NetQosDcbxSetting`.

use super::records::Record;
use super::values::{adapter, boolean, device};
use crate::facts::{Fact, HostFacts, WindowsClass};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// "Priority 3 Enabled", "Priorities 3,4 Enabled", "All Priorities Enabled" or "… Disabled".
fn flow_control(
    section: &Section<'_>,
    line: &Line<'_>,
    value: &str,
) -> Result<Fact<u8>, ReadError> {
    let lower = value.to_ascii_lowercase();
    let expected = "priorities that are Enabled or Disabled were expected";
    let (named, on) = match lower.rsplit_once(char::is_whitespace) {
        Some((named, "enabled")) => (named, true),
        Some((named, "disabled")) => (named, false),
        _ => return Err(section.wrong(line, expected)),
    };
    let named = named.trim();
    let is_all = named.starts_with("all ");
    let mut mask = 0;
    if !is_all {
        let numbers = named
            .strip_prefix("priority")
            .or_else(|| named.strip_prefix("priorities"))
            .ok_or_else(|| section.wrong(line, expected))?;
        let numbers: String = numbers.split_whitespace().collect();
        mask = crate::text::mask(&crate::text::list(section.file, line.number, &numbers, 7)?);
    }
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
                set(section, line, host, name.as_deref(), None)?;
            }
            Some(_) => within = None,
            None if within.is_some() => {
                if let ["NetDirect", "445", priority] = line.words()[..] {
                    let priority = section.number::<u8>(line, priority)? & 7;
                    set(section, line, host, name.as_deref(), Some(priority))?;
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
) -> Result<(), ReadError> {
    let fact = Some(section.fact(line, priority));
    match (name, host.adapters.as_mut_slice()) {
        (Some(name), _) => device(section, line, host, name)?.smb_class = fact,
        (None, [only]) => only.smb_class = fact,
        (None, _) => {
            let what = "of which adapter this is, is not said: Format-List * prints its name";
            return Err(section.wrong(line, what));
        }
    }
    Ok(())
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
    let of_command = interface_alias(section)?;
    let of_record = record
        .get("interfacealias")
        .map(|(_, name)| name.to_owned());
    match of_command.or(of_record) {
        Some(name) => device(section, line, host, &name)?.willing = Some(willing),
        None => host.windows.get_or_insert_default().willing = Some(willing),
    }
    Ok(())
}

/// The interface that a command names by `-InterfaceAlias`, in any case and shortened as PowerShell takes
/// it, or as its first argument.
///
/// # Errors
/// A name whose quotes are not closed.
fn interface_alias(section: &Section<'_>) -> Result<Option<String>, ReadError> {
    let command = section.command.split('|').next().unwrap_or_default();
    let arguments = command
        .trim()
        .split_once(char::is_whitespace)
        .map_or("", |(_, rest)| rest.trim_start());
    let (parameter, value) = match arguments.starts_with('-') {
        true => arguments
            .split_once(char::is_whitespace)
            .unwrap_or((arguments, "")),
        false => ("-InterfaceAlias", arguments),
    };
    let parameter = parameter.to_ascii_lowercase();
    let is_alias = parameter.len() > 1 && "-interfacealias".starts_with(parameter.as_str());
    let value = value.trim();
    if !is_alias || value.is_empty() {
        return Ok(None);
    }
    let quote = value
        .chars()
        .next()
        .filter(|first| matches!(first, '"' | '\''));
    let name = match quote {
        Some(quote) => value[1..].split_once(quote).map(|(name, _)| name),
        None => value.split_whitespace().next(),
    };
    let name =
        name.ok_or_else(|| section.wrong(&section.head, "the quotes of the name are not closed"))?;
    Ok(Some(name.to_owned()))
}

/// Whether the settings of a record are of the whole host: those of one interface have its name.
fn is_of_host(record: &Record<'_, '_>) -> bool {
    record.get("ifalias").is_none() && record.get("interfacealias").is_none()
}

/// `Get-NetQosFlowControl`: the host's own settings, one priority in each record.
pub(super) fn flow_control_of_host(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let Some((line, value)) = record.get("enabled") else {
        return Ok(());
    };
    let on = boolean(section, line, value)?;
    let priority = record.get("priority").or(record.get("name"));
    let Some((_, priority)) = priority.filter(|_| is_of_host(record)) else {
        return Ok(());
    };
    let list = priorities(section, line, priority)?;
    let own = &mut host.windows.get_or_insert_default().own_pfc;
    let before = own.as_ref().map_or(0, |own| own.value);
    if own.is_none() || on {
        *own = Some(section.fact(line, before | if on { list } else { 0 }));
    }
    Ok(())
}

/// `Get-NetQosTrafficClass`: the host's own classes.
pub(super) fn traffic_class(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let list = record.get("priority").or(record.get("priorityfriendly"));
    let Some((line, list)) = list.filter(|_| is_of_host(record)) else {
        return Ok(());
    };
    let priorities = priorities(section, line, list)?;
    let is_strict = record
        .get("algorithm")
        .is_some_and(|(_, word)| word.eq_ignore_ascii_case("strict") || word == "0");
    let share = ["bandwidth(%)", "bandwidthpercentage", "bandwidth"];
    let share = share.iter().find_map(|key| record.get(key));
    let percent = match share.filter(|_| !is_strict) {
        Some((line, value)) => Some(section.number(line, value.trim_end_matches('%'))?),
        None => None,
    };
    let class = WindowsClass {
        name: record.get("name").map_or("", |(_, name)| name).to_owned(),
        percent,
        priorities,
    };
    let fact = section.fact(line, class);
    host.windows.get_or_insert_default().classes.push(fact);
    Ok(())
}

/// `0-2,4-7`, `{0, 1, 2}` or `3`.
fn priorities(section: &Section<'_>, line: &Line<'_>, text: &str) -> Result<u8, ReadError> {
    let list: String = text
        .chars()
        .filter(|letter| !letter.is_whitespace() && !matches!(letter, '{' | '}'))
        .collect();
    let list = crate::text::list(section.file, line.number, &list, 7)?;
    Ok(crate::text::mask(&list))
}
