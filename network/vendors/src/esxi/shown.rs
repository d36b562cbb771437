//! Outputs of ESXi's `esxcli` about RDMA and DCB (layouts: Cisco UCS Manager, "RoCEv2 configuration guide").

use crate::facts::{EsxiDcb, EsxiFacts, HostFacts};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// Takes the facts of one section; whether it is one of ESXi.
pub(crate) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    let words: Vec<&str> = section.command.split_whitespace().collect();
    let ["esxcli", rest @ ..] = words.as_slice() else {
        return Ok(false);
    };
    let esxi = host.esxi.get_or_insert_default();
    match rest {
        ["rdma", "device", "list", ..] => devices(section, esxi)?,
        ["rdma", "device", "protocol", "list", ..] => protocols(section, esxi)?,
        ["rdma", "device", "vmknic", "list", ..] => bound(section, esxi)?,
        ["network", "nic", "dcb", "status", "get", ..] => dcb(section, esxi)?,
        // Names of functions concern no rule.
        ["network", "sriovnic", ..] => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// Rows of a table: lines after the one of dashes.
fn rows<'s, 'a>(section: &'s Section<'a>) -> impl Iterator<Item = &'s Line<'a>> {
    let is_head = |line: &&Line<'_>| !line.text.starts_with("---");
    section.lines.iter().skip_while(is_head).skip(1)
}

/// `Name Driver State MTU Speed …`.
fn devices(section: &Section<'_>, esxi: &mut EsxiFacts) -> Result<(), ReadError> {
    for line in rows(section) {
        match line.words().as_slice() {
            [name, _, state, ..] => {
                let own = ((*name).to_owned(), *state == "Active");
                esxi.devices.push(section.fact(line, own));
            }
            _ => {
                return Err(section.wrong(line, "name, driver and state of a device were expected"));
            }
        }
    }
    Ok(())
}

/// `Device, RoCE v1, RoCE v2, iWARP`.
fn protocols(section: &Section<'_>, esxi: &mut EsxiFacts) -> Result<(), ReadError> {
    for line in rows(section) {
        match line.words().as_slice() {
            [name, _, v2 @ ("true" | "false"), _] => {
                let own = ((*name).to_owned(), *v2 == "true");
                esxi.protocols.push(section.fact(line, own));
            }
            _ => {
                return Err(
                    section.wrong(line, "a device and three times true or false were expected")
                );
            }
        }
    }
    Ok(())
}

/// `Device Vmknic NetStack`: devices that a vmkernel port is bound to.
fn bound(section: &Section<'_>, esxi: &mut EsxiFacts) -> Result<(), ReadError> {
    let mut names = Vec::new();
    for line in rows(section) {
        match line.words().as_slice() {
            [name, _, ..] => names.push((*name).to_owned()),
            _ => return Err(section.wrong(line, "a device and its vmkernel port were expected")),
        }
    }
    esxi.bound = Some(section.fact(&section.head, names));
    Ok(())
}

/// `PFC Enabled`, and `PFC Configuration`, a bit for each priority.
fn dcb(section: &Section<'_>, esxi: &mut EsxiFacts) -> Result<(), ReadError> {
    let nic = section.argument("-n").unwrap_or_default().to_owned();
    let (mut is_on, mut mask, mut seen) = (None, 0_u8, None);
    for line in &section.lines {
        match line
            .text
            .split_once(':')
            .map(|(key, value)| (key.trim(), value.trim()))
        {
            Some(("PFC Enabled", value @ ("true" | "false"))) => {
                is_on = Some(value == "true");
                seen = Some(line);
            }
            Some(("PFC Configuration", bits)) => {
                for (priority, bit) in bits.split_whitespace().enumerate().take(8) {
                    let bit: u8 = section.number(line, bit)?;
                    mask |= u8::from(bit != 0) << priority;
                }
                seen = Some(line);
            }
            Some(_) => {}
            None => return Err(section.wrong(line, "KEY: VALUE was expected")),
        }
    }
    if let Some((is_on, line)) = is_on.zip(seen) {
        let pfc = if is_on { mask } else { 0 };
        esxi.dcb.push(section.fact(line, EsxiDcb { nic, pfc }));
    }
    Ok(())
}
