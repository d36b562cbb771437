//! What a host needs for virtual functions: an IOMMU that is on, a card that offers them, and a group of
//! devices without those of others.

use super::{Adapter, Consequence, Evidence, Finding, Found, HostFacts};

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
    if planned.max(made) == 0 {
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
    group(&own("sriov-group"), found);
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
