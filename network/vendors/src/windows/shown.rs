//! Facts of Windows hosts, from the tables and lists that PowerShell prints.

use super::dcb;
use super::powershell::number_of;
use super::records::{Record, records};
use super::values::{adapter, boolean, is_cut};
use crate::facts::{Adapter, Feature, HostFacts, WindowsLink};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// Reads an object of a cmdlet's output.
type Reader = fn(&Section<'_>, &Record<'_, '_>, &mut HostFacts) -> Result<(), ReadError>;

/// Takes the facts of one section; whether it is one of Windows whose output is read.
pub(crate) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    // PowerShell takes cmdlets in any case.
    let program = section.program().to_lowercase();
    if section.command.contains("Win32_OperatingSystem") {
        let windows = host.windows.get_or_insert_default();
        windows.edition = section
            .lines
            .last()
            .map(|line| section.fact(line, edition(line.text)));
        return Ok(true);
    }
    let read: Reader = match program.as_str() {
        "get-netadapterqos" => dcb::adapter_qos,
        "get-netqosdcbxsetting" => dcb::dcbx,
        "get-netqospolicy" => policy,
        "get-netqosflowcontrol" => dcb::flow_control_of_host,
        "get-netqostrafficclass" => dcb::traffic_class,
        "get-netadapterrdma" => rdma,
        "get-netadapter" => link,
        "get-netipaddress" => address,
        "get-smbclientnetworkinterface" => interface,
        "get-smbservernetworkinterface" => server_interface,
        "get-smbmultichannelconnection" => connection,
        "get-smbclientconfiguration" | "get-smbserverconfiguration" => configuration,
        "get-netadapteradvancedproperty" => property,
        "get-windowsoptionalfeature" => feature,
        "get-netoffloadglobalsetting" => offload,
        "get-itemproperty" => registry,
        "get-winevent" => {
            super::events::take(section, host)?;
            return Ok(true);
        }
        "netstat" if section.command.contains("-x") => {
            super::endpoints::take(section, host)?;
            return Ok(true);
        }
        _ => return Ok(false),
    };
    host.windows.get_or_insert_default();
    let all = records(section)?;
    has_a_field(section, &program, &all)?;
    for record in all {
        read(section, &record, host)?;
    }
    if program == "get-netadapterqos" {
        dcb::classifications(section, host)?;
    }
    // A list of policies without one for SMB Direct shows that there is none.
    let windows = host.windows.get_or_insert_default();
    if program == "get-netqospolicy" && windows.smb_policy.is_none() {
        windows.smb_policy = Some(section.fact(&section.head, None));
    }
    Ok(true)
}

/// The fields that cmdlets' outputs are read for, where all outputs have one of them.
const FIELDS: &[(&str, &[&str])] = &[
    ("get-netadapterqos", &["enabled", "operationalflowcontrol"]),
    ("get-netqosdcbxsetting", &["willing"]),
    ("get-netqosflowcontrol", &["enabled"]),
    ("get-netqostrafficclass", &["priority", "priorityfriendly"]),
    ("get-netadapterrdma", &["enabled"]),
    ("get-smbclientnetworkinterface", &["rdmacapable"]),
    ("get-smbservernetworkinterface", &["rdmacapable"]),
    ("get-smbmultichannelconnection", &["clientrdmacapable"]),
    (
        "get-netadapteradvancedproperty",
        &[
            "registrykeyword",
            "displayname",
            "*jumbopacket",
            "*flowcontrol",
            "*networkdirecttechnology",
            "*networkdirect",
        ],
    ),
];

/// Checks that an output has a field that it is read for: one with others, or in another language, shows
/// nothing.
fn has_a_field(
    section: &Section<'_>,
    program: &str,
    all: &[Record<'_, '_>],
) -> Result<(), ReadError> {
    let Some((_, fields)) = FIELDS.iter().find(|(own, _)| *own == program) else {
        return Ok(());
    };
    let has_one = |record: &Record<'_, '_>| fields.iter().any(|field| record.has(field));
    if all.is_empty() || all.iter().any(has_one) {
        return Ok(());
    }
    let what = format!(
        "no object of the output has the field {}",
        fields.join(" or ")
    );
    Err(section.wrong(&section.head, &what))
}

/// The edition in a line: `Caption : Microsoft Windows 11 Pro`, or the name alone.
fn edition(text: &str) -> String {
    let name = text.split_once(':').map_or(text, |(_, name)| name.trim());
    name.trim_matches(['"', ',', ' ']).to_owned()
}

/// Puts adapters without RDMA aside, if RDMA of another one is enabled: they carry other traffic.
pub(crate) fn finish(host: &mut HostFacts) {
    if host.windows.is_none() {
        return;
    }
    let links = core::mem::take(&mut host.links_of_windows);
    for adapter in &mut host.adapters {
        if let Some(link) = links.get(&adapter.device) {
            adapter.up = link.up.clone();
            adapter.gbps = link.gbps.clone();
        }
    }
    let is_on = |adapter: &Adapter| adapter.rdma_enabled.as_ref().is_some_and(|on| on.value);
    if host.adapters.iter().any(is_on) {
        let all = core::mem::take(&mut host.adapters);
        (host.adapters, host.adapters_without_rdma) = all.into_iter().partition(is_on);
    }
    if host.adapters.is_empty() {
        let device = "RDMA".to_owned();
        host.adapters.push(Adapter {
            device,
            ..Adapter::default()
        });
    }
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
    let priority = priority.filter(|(_, value)| !value.eq_ignore_ascii_case("none"));
    let policy = match priority {
        Some((line, value)) => section.fact(line, Some(section.number(line, value)?)),
        None => section.fact(line, None),
    };
    let known = &mut host.windows.get_or_insert_default().smb_policy;
    if known
        .as_ref()
        .is_some_and(|own| own.value.is_some() && own.value != policy.value)
    {
        let what = "another policy gives port 445 another priority: which one counts is unknown";
        return Err(section.wrong(line, what));
    }
    *known = Some(policy);
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
    if let Some((line, value)) = record.get("operational") {
        let on = section.fact(line, boolean(section, line, value)?);
        adapter(section, record, host)?.rdma_operational = Some(on);
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

fn server_interface(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let name = record.get("friendlyname").or(record.get("interfaceindex"));
    let name = name.map_or("", |(_, name)| name).to_owned();
    if let Some((line, value)) = record.get("rdmacapable") {
        let fact = section.fact(line, (name, boolean(section, line, value)?));
        let windows = host.windows.get_or_insert_default();
        windows.server_interfaces.push(fact);
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
    let end = |key: &str| record.get(key).and_then(|(_, word)| word.parse().ok());
    let ends = end("clientip").or(end("clientipaddress"));
    let ends = ends.zip(end("serverip").or(end("serveripaddress")));
    if let (Some(ends), Some(line)) = (ends, record.first()) {
        let fact = section.fact(line, ends);
        host.windows.get_or_insert_default().ends.push(fact);
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
    let settings = [
        ("requiresecuritysignature", &mut windows.signs),
        ("encryptdata", &mut windows.encrypts),
    ];
    for (key, setting) in settings {
        if let Some((line, value)) = record.get(key) {
            let on = boolean(section, line, value)?;
            if !setting.as_ref().is_some_and(|fact| fact.value) {
                *setting = Some(section.fact(line, on));
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
    let shown = record.get("displayname").zip(record.get("displayvalue"));
    if let Some(((_, keyword), (line, value))) = pair {
        if is_cut(keyword) {
            let what = "the table has cut the keyword: Format-List prints it whole";
            return Err(section.wrong(line, what));
        }
        found.push((keyword.to_ascii_lowercase(), line, value));
    } else if let Some(((_, name), (line, value))) = shown {
        // Names and values of the Windows standard in English; drivers have others beside them.
        let keyword = match name.to_ascii_lowercase().as_str() {
            "jumbo packet" => "*jumbopacket",
            "flow control" => "*flowcontrol",
            "networkdirect functionality" => "*networkdirect",
            "networkdirect technology" => "*networkdirecttechnology",
            _ => return Ok(()),
        };
        let value = match (keyword, value) {
            ("*jumbopacket", "Disabled") => "1514",
            _ => in_numbers(value),
        };
        found.push((keyword.to_owned(), line, value));
    }
    for keyword in [
        "*jumbopacket",
        "*flowcontrol",
        "*networkdirecttechnology",
        "*networkdirect",
    ] {
        found.extend(
            record
                .get(keyword)
                .map(|(line, value)| (keyword.to_owned(), line, value)),
        );
    }
    for (keyword, line, value) in found {
        let value = value.trim_matches(['{', '}']);
        let value = value.strip_suffix(" Bytes").unwrap_or(value);
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
            "*networkdirect" => {
                let on = section.number::<u32>(line, value)? != 0;
                adapter(section, record, host)?.offers_rdma = Some(section.fact(line, on));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The registry's value of a display value of flow control, NetworkDirect and its technology (Microsoft,
/// "Standardized INF Keywords").
fn in_numbers(value: &str) -> &str {
    match value.to_ascii_lowercase().as_str() {
        "disabled" => "0",
        "tx enabled" | "enabled" | "iwarp" => "1",
        "rx enabled" | "infiniband" => "2",
        "rx & tx enabled" | "roce" => "3",
        "rocev2" => "4",
        _ => value,
    }
}

/// `Get-NetAdapter`: only adapters that others show as those of RDMA are examined.
fn link(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let Some((_, name)) = record.get("name") else {
        return Ok(());
    };
    let up = record.get("status").map(|(line, status)| {
        let is_up = status.eq_ignore_ascii_case("up") || status == "1";
        section.fact(line, is_up)
    });
    // "100 Gbps"; JSON has text, too.
    let gbps = record.get("linkspeed").and_then(|(line, speed)| {
        let (number, unit) = speed.split_once(' ')?;
        let number: f64 = number.parse().ok().filter(|_| unit.starts_with("Gb"))?;
        Some(section.fact(line, number as u32))
    });
    let own = host.links_of_windows.entry(name.to_owned()).or_default();
    *own = WindowsLink { up, gbps };
    Ok(())
}

fn address(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let (Some((line, address)), Some((_, length))) =
        (record.get("ipaddress"), record.get("prefixlength"))
    else {
        return Ok(());
    };
    // A link-local address has its interface behind a percent sign, unless a table cuts it. No route leads to
    // one.
    if address.contains('%') || address.to_ascii_lowercase().starts_with("fe80:") {
        return Ok(());
    }
    let address = address.parse();
    let address = address.map_err(|_| section.wrong(line, "an IP address was expected"))?;
    let fact = section.fact(line, (address, section.number(line, length)?));
    host.windows.get_or_insert_default().prefixes.push(fact);
    Ok(())
}

/// The states of features, in words and as the numbers of `Microsoft.Dism.Commands.FeatureState`.
fn feature(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let is_smb_direct = record
        .get("featurename")
        .is_some_and(|(_, name)| name.eq_ignore_ascii_case("smbdirect"));
    let Some((line, state)) = record.get("state").filter(|_| is_smb_direct) else {
        return Ok(());
    };
    let state = match state.to_lowercase().as_str() {
        "enabled" | "2" => Feature::Enabled,
        "disabled" | "disabledwithpayloadremoved" | "disablepending" | "0" | "1" | "6" => {
            Feature::Disabled
        }
        "enablepending" | "3" => Feature::Pending,
        _ => return Err(section.wrong(line, "Enabled, Disabled or EnablePending was expected")),
    };
    host.windows.get_or_insert_default().smb_direct = Some(section.fact(line, state));
    Ok(())
}

fn offload(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let windows = host.windows.get_or_insert_default();
    if let Some((line, value)) = record.get("networkdirect") {
        windows.network_direct = Some(section.fact(line, boolean(section, line, value)?));
    }
    if let Some((line, value)) = record.get("networkdirectacrossipsubnets") {
        windows.across_subnets = Some(section.fact(line, boolean(section, line, value)?));
    }
    Ok(())
}

/// Values of the registry that SMB's client reads.
fn registry(
    section: &Section<'_>,
    record: &Record<'_, '_>,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    if let Some((line, value)) = record.get("maxsmb2dialect") {
        let revision = number_of(value).and_then(|value| u16::try_from(value).ok());
        let revision = revision.ok_or_else(|| section.wrong(line, "a dialect was expected"))?;
        host.windows.get_or_insert_default().dialect_max = Some(section.fact(line, revision));
    }
    if let Some((line, "1")) = record.get("disablemultichannel") {
        let windows = host.windows.get_or_insert_default();
        windows.multichannel = Some(section.fact(line, false));
    }
    Ok(())
}
