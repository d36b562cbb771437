//! The devices of this host: one per network interface that is up and has an address.

use crate::{settings, subnet};
use link::interface::{Address, Interface, interfaces};
use link::port_state::PortState;
use rnic::{Gid, GidTable, Mtu};
use std::io;
use std::net::IpAddr;

/// A device that can be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// `rk_` and the interface's name, unless the environment gives another one ([`settings::NAMES`]).
    pub name: String,
    /// The network interface.
    pub interface: String,
    /// Index of the network interface.
    pub ifindex: u32,
    /// Whether it is the loopback interface, which reaches only this host.
    pub is_loopback: bool,
    /// MTU of the network interface in bytes.
    pub interface_mtu: u32,
    /// The largest path MTU whose packets fit the interface's MTU.
    pub active_mtu: Mtu,
    /// Node GUID: the EUI-64 of the MAC address, as on Linux; made of an IP address for interfaces without
    /// MAC address, such as tunnels.
    pub guid: [u8; 8],
    /// The GID table, as [`GidTable::new`] makes it: in Linux's order (link-local, then IPv4, then IPv6), and
    /// the first IPv4 address again at the indices that programs use as defaults.
    pub gids: Vec<Gid>,
    /// The IP addresses of the interface, by which connection management finds the device. Those of RoCE are
    /// its GIDs.
    pub addresses: Vec<Gid>,
    /// The port's place in an InfiniBand subnet, as it was when the device was listed; `None` for RoCE.
    pub subnet: Option<PortState>,
}

impl DeviceInfo {
    /// The name of this device in reports, independent of the names in the environment.
    pub fn own_name(&self) -> String {
        own_name(&self.interface)
    }

    /// Whether it is the device of an IP address.
    pub fn has_address(&self, address: Gid) -> bool {
        self.addresses.contains(&address)
    }

    /// Whether `name` is a name of this device, of its interface, or one of its addresses; an IPv6 address
    /// may have the interface's name or index as its zone, as in `fe80::1%eth0`.
    pub fn is_called(&self, name: &str) -> bool {
        let (address, zone) = name
            .split_once('%')
            .map_or((name, None), |(it, zone)| (it, Some(zone)));
        let is_zone =
            zone.is_none_or(|zone| self.interface == zone || self.ifindex.to_string() == zone);
        let address: Option<IpAddr> = address
            .parse()
            .ok()
            .filter(|it: &IpAddr| zone.is_none() || it.is_ipv6());
        let gid = address.map(|address| match address {
            IpAddr::V4(address) => Gid::from_ipv4(address.octets()),
            IpAddr::V6(address) => Gid(address.octets()),
        });
        let is_own = self.name == name || own_name(&self.interface) == name;
        is_own
            || self.interface == name
            || is_zone && gid.is_some_and(|gid| self.has_address(gid) || self.gids.contains(&gid))
    }
}

/// The devices of this host that the environment does not hide ([`crate::settings::DEVICES`]), ordered as
/// [`all`].
pub fn list() -> Vec<DeviceInfo> {
    try_list().unwrap_or_default()
}

/// The same devices, or the reason why there are none.
///
/// # Errors
/// Those of [`interfaces`]: the kernel does not list interfaces.
pub fn try_list() -> io::Result<Vec<DeviceInfo>> {
    let mut devices = try_all()?;
    if let Some(wanted) = settings::devices() {
        devices.retain(|device| wanted.iter().any(|name| device.is_called(name)));
    }
    Ok(devices)
}

/// The devices of [`list`], with those that were `known` before and are down now: their connections wait
/// until the interface comes back. `None` when the kernel does not list interfaces.
pub(crate) fn list_keeping(known: &[DeviceInfo]) -> Option<Vec<DeviceInfo>> {
    let mut devices = list();
    let present = interfaces().ok()?;
    let is_listed = |index| devices.iter().any(|device| device.ifindex == index);
    let is_known = |index| known.iter().any(|device| device.ifindex == index);
    let down = present
        .iter()
        .filter(|interface| is_known(interface.index) && !is_listed(interface.index));
    let port = subnet::port_state();
    let down = down.map(|interface| device_of(interface, port.as_ref()));
    devices.extend(down.collect::<Vec<_>>());
    Some(devices)
}

/// All devices of this host in order of interface index, the loopback interface last. Empty when no interface
/// is up, or when the kernel does not list interfaces.
pub fn all() -> Vec<DeviceInfo> {
    try_all().unwrap_or_default()
}

fn try_all() -> io::Result<Vec<DeviceInfo>> {
    let mut found: Vec<Interface> = interfaces()?;
    let port = subnet::port_state();
    // An InfiniBand port is a device also while no manager has made it active, and its interface has no link.
    let is_port = |interface: &Interface| port.is_some() && !interface.is_loopback;
    found.retain(|interface| {
        (interface.is_up || is_port(interface)) && !interface.addresses.is_empty()
    });
    found.sort_by_key(|interface| (interface.is_loopback, interface.index));
    Ok(found
        .iter()
        .map(|interface| device_of(interface, port.as_ref()))
        .collect())
}

/// The current state of an open device's interface.
#[derive(Debug)]
pub(crate) struct InterfaceState {
    pub(crate) is_up: bool,
    pub(crate) active_mtu: Mtu,
    pub(crate) gids: Vec<Gid>,
    /// The port's place in an InfiniBand subnet.
    pub(crate) subnet: Option<PortState>,
}

/// The current state of an interface; `None` when it was removed.
pub(crate) fn state(ifindex: u32) -> io::Result<Option<InterfaceState>> {
    let found = interfaces()?
        .into_iter()
        .find(|interface| interface.index == ifindex);
    Ok(found.map(|interface| {
        let device = device_of(&interface, subnet::port_state().as_ref());
        InterfaceState {
            subnet: device.subnet,
            is_up: interface.is_up,
            active_mtu: device.active_mtu,
            gids: device.gids,
        }
    }))
}

/// All addresses of the host.
pub(crate) fn addresses() -> Vec<Gid> {
    let interfaces = interfaces().unwrap_or_default();
    interfaces
        .iter()
        .flat_map(|interface| &interface.addresses)
        .map(gid_of)
        .collect()
}

fn gid_of(address: &Address) -> Gid {
    match address {
        Address::V4(address) => Gid::from_ipv4(address.octets()),
        Address::V6(address) => Gid(address.octets()),
    }
}

/// The name of a device except in programs with another one in their environment: reports and counters of all
/// programs are found by it.
pub(crate) fn own_name(interface: &str) -> String {
    format!("rk_{interface}")
}

fn device_of(interface: &Interface, port: Option<&PortState>) -> DeviceInfo {
    // The only interface of a lab's host besides loopback is that of its port.
    if let Some(port) = port.filter(|_| !interface.is_loopback) {
        return port_of(interface, port);
    }
    let guid = guid(interface);
    let gids = gids(&interface.addresses);
    DeviceInfo {
        subnet: None,
        addresses: gids.clone(),
        name: settings::name_of(&interface.name).unwrap_or_else(|| own_name(&interface.name)),
        interface: interface.name.clone(),
        ifindex: interface.index,
        is_loopback: interface.is_loopback,
        interface_mtu: interface.mtu,
        active_mtu: Mtu::fitting(interface.mtu),
        guid,
        gids,
    }
}

/// The device of an InfiniBand port.
fn port_of(interface: &Interface, port: &PortState) -> DeviceInfo {
    let gid = u128::from(port.prefix) << 64 | u128::from(port.guid);
    let own_name = || link::management::DEVICE.to_owned();
    DeviceInfo {
        name: settings::name_of(&interface.name).unwrap_or_else(own_name),
        interface: interface.name.clone(),
        ifindex: interface.index,
        is_loopback: false,
        interface_mtu: interface.mtu,
        active_mtu: subnet::active_mtu(port),
        guid: port.node_guid.to_be_bytes(),
        gids: vec![Gid(gid.to_be_bytes())],
        addresses: gids(&interface.addresses),
        subnet: Some(port.clone()),
    }
}

/// The node GUID. Tunnels have no MAC address, and the EUI-64 of zeros would be the GUID of each one on every
/// host: a connection manager takes two peers with one GUID and one queue pair number for the same (IBTA
/// 12.9.8). An address is unique in its network. The loopback interface, which has no peers on other hosts,
/// has that of Linux.
fn guid(interface: &Interface) -> [u8; 8] {
    if interface.mac != [0; 6] || interface.is_loopback {
        return eui64(interface.mac);
    }
    let v4 = interface
        .addresses
        .iter()
        .find_map(|address| match address {
            Address::V4(address) => Some(address.octets()),
            Address::V6(_) => None,
        });
    let v6 = interface
        .addresses
        .iter()
        .find_map(|address| match address {
            Address::V6(address) => address.octets().last_chunk().copied(),
            Address::V4(_) => None,
        });
    // The interface identifier of an IPv4 address (RFC 5214, 6.1), or of the IPv6 address.
    let of_v4 = v4.map(|[a, b, c, d]| [0, 0, 0x5e, 0xfe, a, b, c, d]);
    of_v4.or(v6).unwrap_or_else(|| eui64(interface.mac))
}

/// EUI-64 of a MAC address (RFC 4291 appendix A: the universal/local bit inverted).
fn eui64([a, b, c, d, e, f]: [u8; 6]) -> [u8; 8] {
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

fn gids(addresses: &[Address]) -> Vec<Gid> {
    let mut ordered: Vec<Gid> = addresses.iter().map(gid_of).collect();
    // Further link-local addresses are sorted among those of IPv6, so that index 1 stays IPv4's.
    let first = ordered.iter().copied().find(Gid::is_link_local);
    ordered.sort_by_key(|gid| (Some(*gid) != first, gid.ipv4().is_none()));
    GidTable::new(&ordered).used().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn gids_are_ordered_as_linux_orders_them() {
        let link_local: Ipv6Addr = "fe80::5".parse().unwrap();
        let global: Ipv6Addr = "2001:db8::5".parse().unwrap();
        let v4 = Ipv4Addr::new(10, 0, 0, 5);
        let addresses = [
            Address::V6(global),
            Address::V4(v4),
            Address::V6(link_local),
        ];
        let (link_local, v4, global) = (
            Gid(link_local.octets()),
            Gid::from_ipv4(v4.octets()),
            Gid(global.octets()),
        );
        assert_eq!(gids(&addresses), [link_local, v4, global, v4]);
    }

    #[test]
    fn the_guid_is_made_of_the_mac_address() {
        assert_eq!(
            eui64([0x52, 0x54, 0, 1, 2, 3]),
            [0x50, 0x54, 0, 0xff, 0xfe, 1, 2, 3]
        );
    }

    #[test]
    fn a_device_is_called_by_an_address_with_its_zone() {
        let address: Ipv6Addr = "fe80::5".parse().unwrap();
        let device = DeviceInfo {
            interface: "eth0".to_owned(),
            ifindex: 7,
            gids: vec![Gid(address.octets())],
            addresses: vec![Gid(address.octets())],
            ..list().pop().unwrap()
        };
        for name in ["fe80::5", "fe80::5%eth0", "fe80::5%7"] {
            assert!(device.is_called(name), "{name}");
        }
        for name in [
            "fe80::6%eth0",
            "fe80::5%eth1",
            "fe80::5%8",
            "fe80::5%",
            "10.0.0.5%eth0",
        ] {
            assert!(!device.is_called(name), "{name}");
        }
    }

    #[test]
    fn tunnels_of_two_hosts_have_different_guids() {
        let of = |mac, is_loopback, addresses: &[Address]| {
            let (name, addresses) = ("tun0".to_owned(), addresses.to_vec());
            let (index, mtu, is_up) = (7, 1420, true);
            guid(&Interface {
                index,
                name,
                mtu,
                mac,
                is_up,
                is_loopback,
                addresses,
            })
        };
        let v4 = |last| Address::V4(Ipv4Addr::new(10, 0, 0, last));
        let v6 = |last: u16| Address::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 1, 2, 3, last));
        assert_ne!(of([0; 6], false, &[v4(1)]), of([0; 6], false, &[v4(2)]));
        assert_ne!(of([0; 6], false, &[v6(1)]), of([0; 6], false, &[v6(2)]));
        assert_eq!(
            of([0; 6], false, &[v6(1), v4(1)]),
            [0, 0, 0x5e, 0xfe, 10, 0, 0, 1]
        );
        for is_loopback in [false, true] {
            assert_eq!(
                of([2, 0, 0, 0, 0, 1], is_loopback, &[v4(1)]),
                eui64([2, 0, 0, 0, 0, 1])
            );
        }
        assert_eq!(of([0; 6], true, &[v4(1)]), eui64([0; 6]));
    }

    #[test]
    fn the_loopback_device_is_listed_last() {
        let devices = list();
        assert_eq!(
            devices.last().map(|device| device.name.as_str()),
            Some("rk_lo")
        );
        assert_eq!(
            devices.last().map(|device| device.active_mtu),
            Some(Mtu::B4096)
        );
    }
}
