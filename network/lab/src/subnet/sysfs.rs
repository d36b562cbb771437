//! The files of an InfiniBand device as Linux has them in `/sys`
//! (`Documentation/ABI/stable/sysfs-class-infiniband`).

use crate::network::IP_MTU;
use infiniband::ipoib::{HARDWARE_BYTES, HardwareAddress, Link};
use infiniband::node::{Counters, Node, Port};
use link::management::FOLDERS;
use std::fmt::{Display, Write};

const DEVICE: &str = FOLDERS[0];
const MAD: &str = FOLDERS[1];
const INTERFACE: &str = FOLDERS[2];
/// Hardware type of InfiniBand: `linux/if_arp.h`.
const ARPHRD_INFINIBAND: u16 = 32;
/// Entries of the GID table.
const GIDS: usize = 8;
/// The largest value of the counters of 32, 16 and 8 bits. Linux reads the wide ones where there are such.
const WIDE: u64 = u64::MAX;

/// Lines of path, tab and value.
pub(super) fn describe(node: &Node, number: u8) -> String {
    let mut files = Files(String::new());
    let port = &node.ports[usize::from(number)];
    let identity = &node.identity;
    for (name, value) in [
        ("node_type", "1: CA".to_owned()),
        ("node_guid", groups(&identity.guid.to_be_bytes())),
        ("sys_image_guid", groups(&identity.guid.to_be_bytes())),
        ("node_desc", one_line(&identity.description)),
        ("hca_type", "rockery".to_owned()),
        ("board_id", "rockery".to_owned()),
        ("fw_ver", env!("CARGO_PKG_VERSION").to_owned()),
        ("hw_rev", "1".to_owned()),
    ] {
        files.add(DEVICE, name, value);
    }
    describe_port(&mut files, port, number);
    for (name, file, value) in [
        ("umad0", "ibdev", link::management::DEVICE),
        ("umad0", "port", "1"),
        ("umad0", "dev", "231:0"),
        ("issm0", "ibdev", link::management::DEVICE),
        ("issm0", "port", "1"),
        ("issm0", "dev", "231:64"),
    ] {
        files.add(MAD, &format!("{name}/{file}"), value);
    }
    files.0
}

/// Files of the network interface, as the driver of IP over InfiniBand has them.
pub(super) fn describe_interface(
    hardware: HardwareAddress,
    p_key: u16,
    link: Option<Link>,
) -> String {
    let mut files = Files(String::new());
    let broadcast = HardwareAddress::broadcast(p_key);
    for (name, value) in [
        ("type", ARPHRD_INFINIBAND.to_string()),
        ("addr_len", HARDWARE_BYTES.to_string()),
        ("address", bytes(&hardware.to_bytes())),
        ("broadcast", bytes(&broadcast.to_bytes())),
        ("mode", "datagram".to_owned()),
        ("pkey", format!("{p_key:#06x}")),
        ("umcast", "0".to_owned()),
        ("dev_id", "0x0".to_owned()),
        ("dev_port", "0".to_owned()),
        ("mtu", link.map_or(IP_MTU, |link| link.mtu).to_string()),
        ("carrier", u8::from(link.is_some()).to_string()),
        (
            "operstate",
            if link.is_some() { "up" } else { "down" }.to_owned(),
        ),
    ] {
        files.add(INTERFACE, name, value);
    }
    files.0
}

/// Bytes with colons between them.
fn bytes(all: &[u8]) -> String {
    let all: Vec<String> = all.iter().map(|byte| format!("{byte:02x}")).collect();
    all.join(":")
}

fn describe_port(files: &mut Files, port: &Port, number: u8) {
    let mut add =
        |name: &str, value: String| files.add(DEVICE, &format!("ports/{number}/{name}"), value);
    add(
        "state",
        format!("{}: {}", port.state as u8, port.state.name()),
    );
    add(
        "phys_state",
        format!("{}: {}", port.physical as u8, port.physical.name()),
    );
    add("rate", port.active.sysfs().to_string());
    add("link_layer", "InfiniBand".to_owned());
    add("cap_mask", format!("{:#010x}", port.capabilities.0));
    add("lid", format!("{:#x}", port.lid));
    add("lid_mask_count", port.lmc.to_string());
    add("sm_lid", format!("{:#x}", port.sm_lid));
    add("sm_sl", port.sm_sl.to_string());
    for (index, key) in port.partitions.0.iter().enumerate() {
        add(&format!("pkeys/{index}"), format!("{key:#06x}"));
    }
    for index in 0..GIDS {
        let gid = u128::from(port.gid_prefix) << 64 | u128::from(port.guid);
        let gid = if index == 0 { gid } else { 0 };
        add(&format!("gids/{index}"), groups(&gid.to_be_bytes()));
    }
    add("gid_attrs/types/0", "IB/RoCE v1".to_owned());
    for (name, most, value) in counters(&port.counters) {
        add(&format!("counters/{name}"), value.min(most).to_string());
    }
}

/// Counters by their names in Linux, with their largest values.
fn counters(all: &Counters) -> [(&'static str, u64, u64); 22] {
    let (narrow, byte) = (u64::from(u16::MAX), u64::from(u8::MAX));
    let unicast = |packets: u64, multicast: u64| packets.saturating_sub(multicast);
    [
        ("symbol_error", narrow, all.symbol_errors),
        ("link_error_recovery", byte, all.link_recovered),
        ("link_downed", byte, all.link_downed),
        ("port_rcv_errors", narrow, all.receive_errors),
        ("port_rcv_remote_physical_errors", narrow, 0),
        (
            "port_rcv_switch_relay_errors",
            narrow,
            all.switch_relay_errors,
        ),
        ("port_xmit_discards", narrow, all.transmit_discards),
        ("port_xmit_constraint_errors", byte, all.transmit_constraint),
        ("port_rcv_constraint_errors", byte, all.receive_constraint),
        ("local_link_integrity_errors", 15, 0),
        ("excessive_buffer_overrun_errors", 15, 0),
        ("VL15_dropped", narrow, all.vl15_dropped),
        ("port_xmit_data", WIDE, all.transmit_words),
        ("port_rcv_data", WIDE, all.receive_words),
        ("port_xmit_packets", WIDE, all.transmit_packets),
        ("port_rcv_packets", WIDE, all.receive_packets),
        ("port_xmit_wait", u64::from(u32::MAX), all.transmit_wait),
        (
            "unicast_xmit_packets",
            WIDE,
            unicast(all.transmit_packets, all.multicast_transmit_packets),
        ),
        (
            "unicast_rcv_packets",
            WIDE,
            unicast(all.receive_packets, all.multicast_receive_packets),
        ),
        (
            "multicast_xmit_packets",
            WIDE,
            all.multicast_transmit_packets,
        ),
        ("multicast_rcv_packets", WIDE, all.multicast_receive_packets),
        ("qp1_dropped", narrow, 0),
    ]
}

/// Lines that are being made.
struct Files(String);

impl Files {
    fn add(&mut self, folder: &str, name: &str, value: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{folder}/{name}\t{value}");
    }
}

/// A description whose control characters would break the lines.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

/// Groups of 16 bits.
fn groups(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes
        .chunks(2)
        .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use infiniband::LinkSpeed;
    use infiniband::node::{Identity, PortState};

    fn value<'a>(text: &'a str, path: &str) -> &'a str {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let mut found = lines.filter(|(there, _)| there.ends_with(path));
        found
            .next()
            .map(|(_, value)| value)
            .unwrap_or_else(|| panic!("{path}\n{text}"))
    }

    #[test]
    fn an_interface_is_described_as_linux_does() {
        let gid = (0xfe80_u128 << 112 | 0x0002_c903_000a_1b21).to_be_bytes();
        let hardware = HardwareAddress { qpn: 2, gid };
        let text = describe_interface(hardware, 0x7fff, None);
        let address = "00:00:00:02:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:1b:21";
        let broadcast = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff";
        assert_eq!(value(&text, "ib0/address"), address);
        assert_eq!(value(&text, "ib0/broadcast"), broadcast);
        assert_eq!(
            (value(&text, "ib0/type"), value(&text, "ib0/pkey")),
            ("32", "0x7fff")
        );
        assert_eq!(
            (value(&text, "ib0/carrier"), value(&text, "ib0/mtu")),
            ("0", "2044")
        );
    }

    #[test]
    fn a_port_is_described_as_linux_does() {
        let identity = Identity {
            guid: 0x0002_c903_000a_1b20,
            port_guid: 0x0002_c903_000a_1b21,
            description: "alice\tmlx4_0".to_owned(),
        };
        let mut node = Node::adapter(identity, LinkSpeed::parse("4x QDR").unwrap());
        let port = &mut node.ports[1];
        port.state = PortState::Initialize;
        port.active = port.supported;
        port.lid = 17;
        port.counters.link_downed = 999;
        let text = describe(&node, 1);
        assert_eq!(value(&text, "rk_ib0/node_guid"), "0002:c903:000a:1b20");
        assert_eq!(value(&text, "rk_ib0/node_desc"), "alice mlx4_0");
        assert_eq!(value(&text, "ports/1/state"), "2: INIT");
        assert_eq!(value(&text, "ports/1/rate"), "40 Gb/sec (4X QDR)");
        assert_eq!(value(&text, "ports/1/lid"), "0x11");
        assert_eq!(
            value(&text, "ports/1/gids/0"),
            "fe80:0000:0000:0000:0002:c903:000a:1b21"
        );
        assert_eq!(value(&text, "ports/1/pkeys/0"), "0xffff");
        assert_eq!(value(&text, "counters/link_downed"), "255");
        assert_eq!(value(&text, "umad0/ibdev"), "rk_ib0");
        assert!(text.len() < link::management::ANSWER_BYTES_MAX);
    }
}
