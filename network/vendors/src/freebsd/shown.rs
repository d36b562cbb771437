//! Outputs of FreeBSD about functions of adapters: `pciconf -l`, `kldstat`, `iovctl -S`, messages of drivers,
//! and the files that make functions and give them to guests (layouts: FreeBSD Journal, "SR-IOV is a First
//! Class FreeBSD Feature"; the published experiment with a T520).

use crate::facts::{BsdDevice, FreeBsdFacts, HostFacts};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// Takes the facts of one section; whether it is one of FreeBSD that no other reader takes.
pub(crate) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    match section.program() {
        "pciconf" => devices(section, facts(host))?,
        "kldstat" => modules(section, facts(host)),
        "iovctl" if section.command.contains(" -S") => schema(section, facts(host)),
        "cat" if is_file(section) => file(section, facts(host))?,
        "dmesg" => {
            messages(section, host);
            return Ok(false);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn facts(host: &mut HostFacts) -> &mut FreeBsdFacts {
    host.freebsd.get_or_insert_default()
}

/// `ixl0@pci0:1:0:0: class=0x020000 … vendor=0x8086 device=0x1572 …`, or with `chip=0x15728086` up to
/// FreeBSD 12. Lines of `-v` and `-c` are below, and indented.
fn devices(section: &Section<'_>, facts: &mut FreeBsdFacts) -> Result<(), ReadError> {
    facts.has_devices = true;
    for line in section.lines.iter().filter(|line| line.indent == 0) {
        let device = device(line.text);
        let what = "DRIVERUNIT@pciDOMAIN:BUS:SLOT:FUNCTION: class=… was expected";
        let device = device.ok_or_else(|| section.wrong(line, what))?;
        facts.devices.push(section.fact(line, device));
    }
    Ok(())
}

fn device(text: &str) -> Option<BsdDevice> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (first, rest) = words.split_first()?;
    let (name, place) = first.split_once("@pci")?;
    let mut place = place.trim_end_matches(':').split(':');
    let _domain: u32 = place.next()?.parse().ok()?;
    let mut number = || place.next()?.parse::<u8>().ok();
    let (bus, slot, function) = (number()?, number()?, number()?);
    let hex = |name: &str| {
        let pair = rest.iter().filter_map(|word| word.split_once('='));
        let (_, value) = pair.clone().find(|(key, _)| *key == name)?;
        u32::from_str_radix(value.trim_start_matches("0x"), 16).ok()
    };
    let class = hex("class")?;
    // `chip` has the device in its upper half.
    let vendor = hex("vendor").or_else(|| hex("chip").map(|chip| chip & 0xffff))?;
    Some(BsdDevice {
        name: name.to_owned(),
        place: [bus, slot, function],
        vendor: vendor as u16,
        is_network: class >> 16 == 2,
    })
}

/// `Id Refs Address Size Name`.
fn modules(section: &Section<'_>, facts: &mut FreeBsdFacts) {
    let is_row = |words: &Vec<&str>| words.len() >= 5 && words[2].starts_with("0x");
    let rows = section.lines.iter().map(Line::words).filter(is_row);
    let names = rows.filter_map(|words| words.get(4).map(|name| (*name).to_owned()));
    facts.modules = Some(section.fact(&section.head, names.collect()));
}

/// `iovctl -S -d ixl0`: the parameters of an adapter that offers functions, or an error.
fn schema(section: &Section<'_>, facts: &mut FreeBsdFacts) {
    let name = section.argument("-d").unwrap_or_default().to_owned();
    let offers = section
        .lines
        .iter()
        .any(|line| line.text.contains("num_vfs"));
    let line = section.lines.first().unwrap_or(&section.head);
    facts.offers.push(section.fact(line, (name, offers)));
}

/// Words of the files of `iovctl`, of vm-bhyve, and of the start.
const WORDS: &[&str] = &[
    "num_vfs",
    "PF {",
    "PF{",
    "passthru",
    "loader=",
    "disk0_",
    "pptdevs",
    "_load=",
    "iovctl_files",
];

/// Whether a file that is shown is one of these.
fn is_file(section: &Section<'_>) -> bool {
    let has = |line: &Line<'_>| WORDS.iter().any(|word| line.text.contains(word));
    section.lines.iter().any(has)
}

fn file(section: &Section<'_>, facts: &mut FreeBsdFacts) -> Result<(), ReadError> {
    let mut adapter = None;
    for line in &section.lines {
        let Some((key, value)) = line.text.split_once([':', '=']) else {
            continue;
        };
        let value = value.trim().trim_end_matches(';').trim().trim_matches('"');
        match key.trim() {
            "device" => adapter = Some(value.to_owned()),
            "num_vfs" => {
                let count: u16 = section.number(line, value)?;
                let name = adapter.clone().unwrap_or_default();
                facts.wanted.push(section.fact(line, (name, count)));
            }
            key if key.starts_with("passthru") => {
                let place = place(value);
                let what = "BUS/SLOT/FUNCTION was expected";
                let place = place.ok_or_else(|| section.wrong(line, what))?;
                facts.passed.push(section.fact(line, place));
            }
            _ => {}
        }
    }
    // The device may stand below the number.
    for wanted in &mut facts.wanted {
        if let (true, Some(name)) = (wanted.value.0.is_empty(), &adapter) {
            name.clone_into(&mut wanted.value.0);
        }
    }
    Ok(())
}

/// `4/0/8`, with options of bhyve behind it.
fn place(text: &str) -> Option<[u8; 3]> {
    let first = text.split([',', ' ']).next()?;
    let mut numbers = first.split('/').map(|number| number.parse::<u8>().ok());
    let place = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(place)
}

/// `ixl0: SR-IOV ready`.
fn messages(section: &Section<'_>, host: &mut HostFacts) {
    for line in &section.lines {
        if let Some((before, _)) = line.text.split_once(": SR-IOV ready") {
            let name = before
                .split_whitespace()
                .last()
                .unwrap_or_default()
                .to_owned();
            facts(host).offers.push(section.fact(line, (name, true)));
        }
    }
}
