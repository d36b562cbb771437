//! PCI bridges, as `lspci -v` shows them.

use crate::facts::{Bridge, PciTree, pci_parts};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// Takes the first line of a device, if the device is a bridge: `00:1c.4 PCI bridge: Intel Corporation …`.
pub(super) fn take_device(
    tree: &mut PciTree,
    section: &Section<'_>,
    line: &Line<'_>,
    address: &str,
) {
    if !line.text.contains("PCI bridge") {
        return;
    }
    let is_chipset = is_chipset(address, line.text);
    let bridge = Bridge {
        is_chipset,
        secondary: None,
        ari: None,
    };
    let known = tree.bridges.entry(address.to_owned());
    let known = known.or_insert_with(|| section.fact(line, bridge));
    known.value.is_chipset |= is_chipset;
}

/// Takes a line below that of a bridge: its buses, or the settings of its port.
pub(super) fn take_line(
    tree: &mut PciTree,
    section: &Section<'_>,
    line: &Line<'_>,
    address: &str,
) -> Result<(), ReadError> {
    let Some(bridge) = tree.bridges.get_mut(address) else {
        return Ok(());
    };
    if let Some((_, rest)) = line.text.split_once("secondary=") {
        let digits = rest.split(',').next().unwrap_or_default();
        let bus = u8::from_str_radix(digits.trim(), 16);
        let bus = bus.map_err(|_| section.wrong(line, "a bus in hexadecimal was expected"))?;
        bridge.value.secondary = Some(bus);
    }
    // DevCap2 says whether the port can, and DevCtl2 whether it does.
    if line.text.starts_with("DevCtl2:") && line.text.contains("ARIFwd") {
        bridge.value.ari = Some(section.fact(line, line.text.contains("ARIFwd+")));
    }
    Ok(())
}

/// Whether a bridge is a port of a chipset. Intel's have the devices 1b to 1d of bus 0; AMD's contain a
/// PCI Express switch: its ports have the device IDs 43xx and 57ad (pci.ids).
fn is_chipset(address: &str, text: &str) -> bool {
    let of_amd = text.split("[1022:").nth(1).and_then(|rest| rest.get(..4));
    let amd = of_amd.is_some_and(|device| device.starts_with("43") || device == "57ad")
        || (text.contains("[AMD]")
            && (text.contains("Chipset") || text.contains("Matisse Switch Upstream")));
    let intel = text.contains("Intel Corporation") || text.contains("[8086:");
    let of_pch = pci_parts(address).is_some_and(|(domain, bus, place)| {
        let device = place.split('.').next().unwrap_or_default();
        domain == "0000" && bus == 0 && matches!(device, "1b" | "1c" | "1d")
    });
    amd || (intel && of_pch)
}
