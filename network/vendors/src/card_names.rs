//! Names of cards by their PCI identifiers (pci.ids, and the device tables of Linux drivers).

/// Cards by vendor and device. In the names of NVIDIA's tools, `mt4121` is the device in decimal digits.
const CARDS: &[(u16, u16, &str)] = &[
    (0x15b3, 4099, "ConnectX-3"),
    (0x15b3, 4103, "ConnectX-3 Pro"),
    (0x15b3, 4115, "ConnectX-4"),
    (0x15b3, 4117, "ConnectX-4 Lx"),
    (0x15b3, 4119, "ConnectX-5"),
    (0x15b3, 4121, "ConnectX-5 Ex"),
    (0x15b3, 4123, "ConnectX-6"),
    (0x15b3, 4125, "ConnectX-6 Dx"),
    (0x15b3, 4127, "ConnectX-6 Lx"),
    (0x15b3, 4129, "ConnectX-7"),
    (0x15b3, 4131, "ConnectX-8"),
    (0x15b3, 41_686, "BlueField-2"),
    (0x15b3, 41_692, "BlueField-3"),
    (0x14e4, 0x1750, "BCM57508"),
    (0x14e4, 0x1760, "BCM57608"),
    (0x8086, 0x1592, "E810-C"),
    (0x8086, 0x1593, "E810-C"),
    (0x8086, 0x159b, "E810-XXV"),
    (0x8086, 0x1572, "X710"),
    (0x1425, 0x5401, "T520-CR"),
];

/// The name of a card.
pub(crate) fn name(vendor: u16, device: u16) -> Option<&'static str> {
    let found = CARDS
        .iter()
        .find(|(one, other, _)| (*one, *other) == (vendor, device));
    found.map(|(.., name)| *name)
}
