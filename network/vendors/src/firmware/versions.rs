//! Versions of firmware: `mst status`, `flint query`, `devlink dev info`, `ethtool -i`.

use super::cards::{address, card};
use crate::facts::{Fact, HostFacts};
use crate::sections::Section;
use crate::text::ReadError;

/// `mst status`: devices of the tools, with their PCI addresses on Linux; Windows prints bare names.
pub(super) fn mst(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let mut name = None;
    for line in &section.lines {
        let first = line.text.split_whitespace().next().unwrap_or_default();
        let bare = first.trim_start_matches("/dev/mst/");
        if bare.starts_with("mt") && bare.contains("_pci") {
            card(host, bare);
            name = Some(bare.to_owned());
        }
        let place = line
            .text
            .split_once("domain:bus:dev.fn=")
            .map(|(_, rest)| rest);
        let place = place
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(address);
        if let Some((name, pci)) = name.as_ref().zip(place) {
            card(host, name).pci = Some(pci);
        }
    }
    Ok(())
}

/// `flint query`: the image in the flash.
pub(super) fn flint(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let name = section
        .argument("-d")
        .or(section.argument("--device"))
        .unwrap_or_default();
    for line in &section.lines {
        if line.text.starts_with("-E-") {
            return Err(section.wrong(line, "the tool failed, so the firmware is unknown"));
        }
        let Some((key, value)) = line.text.split_once(':') else {
            continue;
        };
        let fact = section.fact(line, value.trim().to_owned());
        match key {
            "FW Version" => card(host, name).version = Some(fact),
            "PSID" => psid(host, name, fact),
            "Security Attributes" => {
                // Such a card takes signed images of its own PSID only.
                let is_secure = value.contains("secure-fw");
                card(host, name).secure = Some(section.fact(line, is_secure));
            }
            _ => {}
        }
    }
    Ok(())
}

fn psid(host: &mut HostFacts, name: &str, fact: Fact<String>) {
    // Tools differ in the case of letters.
    let fact = Fact {
        value: fact.value.to_uppercase(),
        ..fact
    };
    if let Some(adapter) = super::cards::adapter(host, name) {
        adapter.psid.get_or_insert_with(|| fact.clone());
    }
    card(host, name).psid = Some(fact);
}

/// `devlink dev info`, as text: versions below the device that they are of.
pub(super) fn devlink(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let is_json = section
        .lines
        .first()
        .is_some_and(|line| line.text.starts_with('{'));
    if is_json {
        return devlink_json(section, host);
    }
    let mut name = String::new();
    for line in &section.lines {
        if let Some(pci) = line.text.strip_prefix("pci/") {
            pci.trim_end_matches(':').clone_into(&mut name);
            continue;
        }
        if let Some((key, value)) = line.text.split_once(char::is_whitespace) {
            version(
                section.fact(line, value.trim().to_owned()),
                key,
                &name,
                host,
            );
        }
    }
    Ok(())
}

fn devlink_json(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let info = crate::json::read(section)?.and_then(|node| node.get("info"));
    let Some(info) = info else {
        return Ok(());
    };
    for (name, device) in info.entries()? {
        let name = name.trim_start_matches("pci/").to_owned();
        let Some(versions) = device.get("versions") else {
            continue;
        };
        for (_, group) in versions.entries()? {
            for (key, value) in group.entries()? {
                let text = value.text()?.to_owned();
                version(value.fact(text), &key, &name, host);
            }
        }
    }
    Ok(())
}

/// A version by its name in the kernel's devlink documentation.
fn version(fact: Fact<String>, key: &str, name: &str, host: &mut HostFacts) {
    match key {
        "fw.version" | "fw" | "fw.mgmt" => card(host, name).version = Some(fact),
        "fw.psid" => psid(host, name, fact),
        _ => {}
    }
}

/// `ethtool -i IF`: driver, PCI address, and `16.35.4030 (MT_0000000013)`.
pub(super) fn ethtool(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let mut found = Vec::new();
    for line in &section.lines {
        if let Some((key, value)) = line.text.split_once(':') {
            found.push((key.trim(), section.fact(line, value.trim().to_owned())));
        }
    }
    let of = |wanted: &str| {
        found
            .iter()
            .find(|(key, _)| *key == wanted)
            .map(|(_, fact)| fact.clone())
    };
    let Some(pci) = of("bus-info").and_then(|fact| address(&fact.value)) else {
        return Ok(());
    };
    if let (Some(driver), Some(adapter)) = (of("driver"), host.adapter_at(&pci)) {
        adapter.driver.get_or_insert(driver.value);
    }
    let Some(firmware) = of("firmware-version") else {
        return Ok(());
    };
    let (number, board) = match firmware.value.split_once(" (") {
        Some((number, board)) => (
            number.to_owned(),
            Some(board.trim_end_matches(')').to_owned()),
        ),
        None => (firmware.value.clone(), None),
    };
    let with = |value: String| Fact {
        value,
        seen: firmware.seen.clone(),
    };
    card(host, &pci).version = Some(with(number));
    if let Some(board) = board {
        psid(host, &pci, with(board));
    }
    Ok(())
}
