//! What drivers of adapters write into the kernel's log, besides the PCIe bandwidth.

use super::cards::{address, card};
use crate::facts::{HostFacts, KernelEvent};
use crate::sections::Section;

/// Messages and what they tell. Of cables the last message counts.
const MESSAGES: &[(&str, KernelEvent)] = &[
    ("Cable unplugged", KernelEvent::Unplugged),
    ("Cable plugged", KernelEvent::Plugged),
    (
        "Detected insufficient power on the PCIe slot",
        KernelEvent::Power,
    ),
    ("health compromised", KernelEvent::Health),
    (
        "not enough MMIO resources for SR-IOV",
        KernelEvent::NoMemorySpace,
    ),
    ("SR-IOV: bus number out of range", KernelEvent::NoBusNumber),
];

/// Takes lines of devices: `mlx5_core 0000:01:00.0: MESSAGE`. Other lines are of other parts of the system.
pub(super) fn take(section: &Section<'_>, host: &mut HostFacts) {
    for line in &section.lines {
        if let Some(module) = odd_module(line.text) {
            host.odd_modules.push(section.fact(line, module.to_owned()));
            continue;
        }
        let pci = line.text.split_whitespace().find_map(|word| {
            address(word.trim_end_matches(':')).filter(|_| word.len() > "0000:00:00".len())
        });
        let Some(pci) = pci else {
            continue;
        };
        if let Some((_, rest)) = line.text.split_once("firmware version: ") {
            let version = rest.split_whitespace().next().unwrap_or_default();
            card(host, &pci).version = Some(section.fact(line, version.to_owned()));
        }
        let found = MESSAGES.iter().find(|(text, _)| line.text.contains(text));
        if let Some((_, event)) = found {
            let own = (pci, *event);
            host.kernel_events.push(section.fact(line, own));
        }
    }
}

/// `cifs: disagrees about version of symbol ib_alloc_mr`: the module, where the symbol is one of RDMA.
fn odd_module(text: &str) -> Option<&str> {
    let (before, symbol) = text.split_once(": disagrees about version of symbol ")?;
    let is_rdma = ["ib_", "rdma_", "__ib_", "__rdma_"]
        .iter()
        .any(|begin| symbol.starts_with(begin));
    before
        .rsplit([' ', ']'])
        .next()
        .filter(|module| is_rdma && !module.is_empty())
}
