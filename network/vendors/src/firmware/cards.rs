//! Cards by the names and addresses that tools have for them, and their PCI identifiers.

use crate::facts::{Adapter, CardFacts, HostFacts};
use crate::sections::Section;

/// An address with its domain: `01:00.0` and `0000:01:00.0` are one.
pub(super) fn address(text: &str) -> Option<String> {
    let is_hex = |part: &str| !part.is_empty() && part.chars().all(|it| it.is_ascii_hexdigit());
    let (before, function) = text.rsplit_once('.')?;
    let parts: Vec<&str> = before.split(':').collect();
    let is_own = parts.iter().all(|part| is_hex(part)) && is_hex(function);
    match parts.len() {
        2 if is_own => Some(format!("0000:{text}").to_lowercase()),
        3 if is_own => Some(text.to_lowercase()),
        _ => None,
    }
}

/// The facts of the card that a tool names: by its device of `mst`, its PCI address or its RDMA device.
pub(super) fn card<'h>(host: &'h mut HostFacts, name: &str) -> &'h mut CardFacts {
    let name = name.trim_start_matches("/dev/mst/").to_owned();
    let pci = address(&name);
    let known = host
        .cards
        .iter()
        .position(|own| own.name == name || (pci.is_some() && own.pci == pci));
    let index = known.unwrap_or_else(|| {
        host.cards.push(CardFacts {
            name,
            pci,
            ..CardFacts::default()
        });
        host.cards.len() - 1
    });
    &mut host.cards[index]
}

/// The adapter at a port of a card, if the snapshot has it.
pub(super) fn adapter<'h>(host: &'h mut HostFacts, name: &str) -> Option<&'h mut Adapter> {
    let pci = card(host, name).pci.clone();
    match pci {
        Some(pci) => host.adapter_at(&pci),
        None => host.adapters.iter_mut().find(|own| own.device == name),
    }
}

/// `01:00.0 Ethernet controller [0200]: Mellanox … [15b3:1019]`: the last pair is vendor and device.
pub(super) fn lspci(section: &Section<'_>, host: &mut HostFacts) {
    for line in &section.lines {
        let Some(pci) = line.text.split(' ').next().and_then(address) else {
            continue;
        };
        let mut ids = line.text.split('[').filter_map(|part| {
            let (vendor, device) = part.split(']').next()?.split_once(':')?;
            let hex = |text: &str| {
                u16::from_str_radix(text, 16)
                    .ok()
                    .filter(|_| text.len() == 4)
            };
            hex(vendor).zip(hex(device))
        });
        if let Some(ids) = ids.next_back()
            && let Some(adapter) = host.adapter_at(&pci)
        {
            adapter.card = Some(section.fact(line, ids));
        }
    }
}
