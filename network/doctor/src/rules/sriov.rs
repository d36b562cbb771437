//! What a host needs for virtual functions: an IOMMU that is on, a card that offers them, and a group of
//! devices without those of others.

use super::{Adapter, Consequence, Evidence, Finding, Found, HostFacts};
use vendors::facts::{Fact, KernelEvent};

/// Classes of PCI devices that work beside a function only by chance: storage, networks, and USB controllers.
const OTHERS: [(u32, &str); 3] = [
    (0x01, "storage"),
    (0x02, "a network card"),
    (0x0c, "a USB controller"),
];

/// The consequence for guests, which the simulator does not run.
const GUESTS: Consequence =
    Consequence::NotSimulated("guests are not simulated: none gets a function");

pub(super) fn check(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let planned = host.planned.as_ref().map_or(0, |planned| planned.functions);
    let made = adapter.functions.as_ref().map_or(0, |made| made.value);
    // Without functions none of this matters.
    if planned.max(made) == 0 && failure(host, adapter).is_none() {
        return;
    }
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    if let Some(groups) = host
        .iommu_groups
        .as_ref()
        .filter(|groups| groups.value == 0)
    {
        let what =
            "virtual functions are wanted, and the IOMMU is off: none can be given to a guest";
        let fix = "VT-d or AMD-Vi on in the BIOS; on Intel intel_iommu=on iommu=pt for the kernel";
        found.push(own("sriov-iommu").say(what, &[&groups.seen], GUESTS, fix));
    }
    if let Some(most) = adapter
        .functions_max
        .as_ref()
        .filter(|most| most.value < planned.max(1))
    {
        let what = format!(
            "the card offers {} virtual functions, and {} are wanted",
            most.value,
            planned.max(made)
        );
        let fix = format!(
            "more functions in the firmware (NVIDIA: mlxconfig -d DEVICE set SRIOV_EN=1 NUM_OF_VFS={}, then \
             a reset), and SR-IOV on in the BIOS",
            planned.max(made)
        );
        let consequence = Consequence::NotSimulated("functions that are missing carry nothing");
        found.push(own("sriov-offer").say(what, &[&most.seen], consequence, fix));
    }
    ari(&own("sriov-ari"), planned, made, found);
    let before = found.len();
    group(&own("sriov-group"), found);
    slot(&own("sriov-slot"), found, before);
}

/// Functions that a bus has addresses for without Alternative Routing-IDs, besides the card itself.
const WITHOUT_ARI: u32 = 7;

/// The port above the card does not forward the addresses of so many functions.
fn ari(own: &Found<'_>, planned: u32, made: u32, found: &mut Vec<Finding>) {
    let of_port = || {
        let pci = own.adapter.pci.as_deref()?;
        let above = own.host.bridges.above(pci);
        above
            .first()
            .and_then(|(_, bridge)| bridge.value.ari.as_ref())
    };
    let forwards = own.adapter.ari.as_ref().or_else(of_port);
    let Some(off) = forwards.filter(|ari| !ari.value && planned > made.max(WITHOUT_ARI)) else {
        return;
    };
    let what = format!(
        "{planned} virtual functions are wanted, and the port above the card does not forward the addresses \
         of more than {WITHOUT_ARI} (ARI is off)"
    );
    let consequence = Consequence::NotSimulated("functions that are missing carry nothing");
    let fix = "ARI on in the firmware settings of the host (\"ARI forwarding\"), or another slot";
    found.push(own.say(what, &[&off.seen], consequence, fix));
}

/// What the kernel wrote when it could not make functions of the card.
fn failure<'a>(host: &'a HostFacts, adapter: &Adapter) -> Option<&'a Fact<(String, KernelEvent)>> {
    let is_own = |event: &&Fact<(String, KernelEvent)>| {
        let (address, kind) = &event.value;
        let failed = matches!(kind, KernelEvent::NoMemorySpace | KernelEvent::NoBusNumber);
        failed && Some(address) == adapter.pci.as_ref()
    };
    host.kernel_events.iter().find(is_own)
}

/// The card is behind a chipset, and functions have failed: in such slots they do on some boards.
fn slot(own: &Found<'_>, found: &mut Vec<Finding>, before: usize) {
    let Some(pci) = own.adapter.pci.as_deref() else {
        return;
    };
    let Some((port, bridge)) = own.host.bridges.chipset_port(pci) else {
        return;
    };
    // By itself such a slot is no fault: many boards have functions there.
    let failed = failure(own.host, own.adapter);
    let shared = found
        .get(before)
        .and_then(|finding| finding.evidence.first());
    let Some(trouble) = failed.map(|event| event.seen.clone()).or(shared.cloned()) else {
        return;
    };
    let what = format!(
        "the card is in a slot of the chipset (port {port}), where virtual functions fail on some boards"
    );
    let fix = "a slot of the processor: lspci -t shows it, and the manual of the board names it";
    found.push(own.say(what, &[&bridge.seen, &trouble], GUESTS, fix));
}

/// Devices of others in the group of the card: they leave the host with it.
fn group(own: &Found<'_>, found: &mut Vec<Finding>) {
    let slot = |address: &str| {
        address
            .rsplit_once('.')
            .map_or("", |(slot, _)| slot)
            .to_owned()
    };
    let card = own.adapter.pci.as_deref().map(slot).unwrap_or_default();
    let named = own.adapter.group.iter().filter_map(|member| {
        let (address, class) = &member.value;
        let kind = OTHERS.iter().find(|(base, _)| class >> 16 == *base)?.1;
        // Functions of the card itself belong together, and functions of it have the bus of the card.
        let bus = |address: &str| {
            address
                .rsplit_once(':')
                .map_or("", |(bus, _)| bus)
                .to_owned()
        };
        (slot(address) != card && bus(address) != bus(&card))
            .then(|| (format!("{address} ({kind})"), &member.seen))
    });
    let (names, seen): (Vec<String>, Vec<&Evidence>) = named.unzip();
    if names.is_empty() {
        return;
    }
    let what = format!(
        "the IOMMU group of the card has devices of others: {}: they leave the host with a function",
        names.join(", ")
    );
    let fix = "the card in a slot of the processor and not of the chipset, or ACS on in the BIOS";
    found.push(own.say(what, &seen, GUESTS, fix));
}
