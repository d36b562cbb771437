//! Which devices this host has: one per network interface that is up and has an address.

use crate::settings;
use link::interface::{Address, Interface, interfaces};
use rnic::{Gid, Mtu};
use std::io;
use std::net::IpAddr;

/// Entries of the GID table that addresses fill; what an interface has beyond them has no device address.
const GIDS_MAX: usize = 16;

/// A device that can be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// `rk_` and the interface's name.
    pub name: String,
    /// The network interface.
    pub interface: String,
    /// Its index.
    pub ifindex: u32,
    /// Whether nobody but this host is behind it.
    pub is_loopback: bool,
    /// Its MTU in bytes.
    pub interface_mtu: u32,
    /// The longest RoCEv2 payload that fits.
    pub active_mtu: Mtu,
    /// Node GUID: the EUI-64 of the MAC address, as Linux makes it.
    pub guid: [u8; 8],
    /// The GID table as Linux orders it: link-local, then IPv4, then IPv6.
    pub gids: Vec<Gid>,
}

impl DeviceInfo {
    /// Whether somebody who says `name` means this device: by its name, its interface or one of its
    /// addresses.
    pub fn is_called(&self, name: &str) -> bool {
        let address: Option<IpAddr> = name.parse().ok();
        let gid = address.map(|address| match address {
            IpAddr::V4(address) => Gid::from_ipv4(address.octets()),
            IpAddr::V6(address) => Gid(address.octets()),
        });
        self.name == name || self.interface == name || gid.is_some_and(|gid| self.gids.contains(&gid))
    }
}

/// The devices of this host that the environment does not hide ([`crate::settings::DEVICES`]), ordered as
/// [`all`].
pub fn list() -> Vec<DeviceInfo> {
    let mut devices = all();
    if let Some(wanted) = settings::devices() {
        devices.retain(|device| wanted.iter().any(|name| device.is_called(name)));
    }
    devices
}

/// The same, and of those that were known before also which are down for now: their connections wait until
/// they come back. `None` when the kernel does not tell.
pub(crate) fn list_keeping(known: &[DeviceInfo]) -> Option<Vec<DeviceInfo>> {
    let mut devices = list();
    let present = interfaces().ok()?;
    let is_listed = |index| devices.iter().any(|device| device.ifindex == index);
    let is_known = |index| known.iter().any(|device| device.ifindex == index);
    let down = present.iter().filter(|interface| is_known(interface.index) && !is_listed(interface.index));
    devices.extend(down.map(device_of).collect::<Vec<_>>());
    Some(devices)
}

/// All devices of this host in order of interface index, the loopback interface last. Empty when no interface
/// is up, or when the kernel does not tell.
pub fn all() -> Vec<DeviceInfo> {
    let mut found: Vec<Interface> = interfaces().unwrap_or_default();
    found.retain(|interface| interface.is_up && !interface.addresses.is_empty());
    found.sort_by_key(|interface| (interface.is_loopback, interface.index));
    found.iter().map(device_of).collect()
}

/// How an open device's interface is now.
#[derive(Debug)]
pub(crate) struct InterfaceState {
    pub(crate) is_up: bool,
    pub(crate) active_mtu: Mtu,
    pub(crate) gids: Vec<Gid>,
}

/// Looks at an interface again; `None` when it is gone.
pub(crate) fn state(ifindex: u32) -> io::Result<Option<InterfaceState>> {
    let found = interfaces()?.into_iter().find(|interface| interface.index == ifindex);
    Ok(found.map(|interface| {
        let device = device_of(&interface);
        InterfaceState { is_up: interface.is_up, active_mtu: device.active_mtu, gids: device.gids }
    }))
}

/// All addresses of the host.
pub(crate) fn addresses() -> Vec<Gid> {
    let interfaces = interfaces().unwrap_or_default();
    interfaces.iter().flat_map(|interface| &interface.addresses).map(gid_of).collect()
}

fn gid_of(address: &Address) -> Gid {
    match address {
        Address::V4(address) => Gid::from_ipv4(address.octets()),
        Address::V6(address) => Gid(address.octets()),
    }
}

fn device_of(interface: &Interface) -> DeviceInfo {
    let guid = eui64(interface.mac);
    DeviceInfo {
        name: format!("rk_{}", interface.name),
        interface: interface.name.clone(),
        ifindex: interface.index,
        is_loopback: interface.is_loopback,
        interface_mtu: interface.mtu,
        active_mtu: Mtu::fitting(interface.mtu),
        guid,
        gids: gids(&interface.addresses, guid),
    }
}

/// EUI-64 of a MAC address (RFC 4291 appendix A: the universal/local bit inverted).
fn eui64([a, b, c, d, e, f]: [u8; 6]) -> [u8; 8] {
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Index 0 is the link-local address, made from the MAC address where the interface has none: programs that
/// name no index use it.
fn gids(addresses: &[Address], guid: [u8; 8]) -> Vec<Gid> {
    let all: Vec<Gid> = addresses.iter().map(gid_of).collect();
    let mut default = [0; 16];
    default[..2].copy_from_slice(&[0xfe, 0x80]);
    default[8..].copy_from_slice(&guid);
    let first = all.iter().copied().find(Gid::is_link_local).unwrap_or(Gid(default));
    let v4 = all.iter().copied().filter(|gid| gid.ipv4().is_some());
    let v6 = all.iter().copied().filter(|gid| gid.ipv4().is_none() && *gid != first);
    std::iter::once(first).chain(v4).chain(v6).take(GIDS_MAX).collect()
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
        let addresses = [Address::V6(global), Address::V4(v4), Address::V6(link_local)];
        let table = gids(&addresses, [1; 8]);
        assert_eq!(table, [Gid(link_local.octets()), Gid::from_ipv4(v4.octets()), Gid(global.octets())]);
    }

    #[test]
    fn an_interface_without_a_link_local_address_gets_one_of_its_mac() {
        let guid = eui64([0x52, 0x54, 0, 1, 2, 3]);
        assert_eq!(guid, [0x50, 0x54, 0, 0xff, 0xfe, 1, 2, 3]);
        let table = gids(&[Address::V4(Ipv4Addr::LOCALHOST)], guid);
        assert_eq!(table[0].0[..8], [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        assert_eq!(table[0].0[8..], guid);
        assert_eq!(table[1], Gid::from_ipv4([127, 0, 0, 1]));
    }

    #[test]
    fn the_loopback_device_is_listed_last() {
        let devices = list();
        assert_eq!(devices.last().map(|device| device.name.as_str()), Some("rk_lo"));
        assert_eq!(devices.last().map(|device| device.active_mtu), Some(Mtu::B4096));
    }
}
