//! The interfaces where netlink sockets are refused, as in a systemd unit whose `RestrictAddressFamilies=`
//! lacks AF_NETLINK: names and IPv6 addresses are in /proc/net, and calls on a socket of any family
//! (netdevice(7)) return the rest.

use super::{Address, Interface, MTU_UNKNOWN, any_socket, mtu, named};
use std::ffi::{CStr, CString};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Room for so many IPv4 addresses at first; it grows until all fit.
const ADDRESSES: usize = 64;

/// All interfaces, with their IPv4 addresses first.
pub(super) fn interfaces() -> io::Result<Vec<Interface>> {
    let socket = any_socket()?;
    let listed = std::fs::read_to_string("/proc/net/dev")?;
    let mut found: Vec<Interface> = names(&listed)
        .filter_map(|name| interface(name, &socket))
        .collect();
    let mut add = |name: &str, address| {
        if let Some(interface) = found.iter_mut().find(|interface| interface.name == name) {
            interface.addresses.push(address);
        }
    };
    for (name, address) in v4_addresses(&socket)? {
        add(&name, Address::V4(address));
    }
    // The file is missing where the kernel has no IPv6.
    let v6 = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    for (name, address) in v6.lines().filter_map(v6_address) {
        add(name, Address::V6(address));
    }
    Ok(found)
}

/// The names in /proc/net/dev: two lines of headings, then one interface a line, its name before a colon.
fn names(listed: &str) -> impl Iterator<Item = &str> {
    let lines = listed.lines().skip(2);
    lines.filter_map(|line| Some(line.rsplit_once(':')?.0.trim()))
}

/// The name and address of a line of /proc/net/if_inet6: the address, the interface's index, prefix length,
/// scope, flags and the interface's name.
fn v6_address(line: &str) -> Option<(&str, Ipv6Addr)> {
    let mut words = line.split_whitespace();
    let address = u128::from_str_radix(words.next()?, 16).ok()?;
    Some((words.nth(4)?, Ipv6Addr::from(address)))
}

/// An interface without its addresses; none if it was removed meanwhile.
fn interface(name: &str, socket: &OwnedFd) -> Option<Interface> {
    let c_name = CString::new(name).ok()?;
    // SAFETY: a C string.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    let flags = flags(&c_name, socket)?;
    Some(Interface {
        name: name.into(),
        index,
        mtu: mtu(&c_name, socket).unwrap_or(MTU_UNKNOWN),
        mac: mac(&c_name, socket).unwrap_or_default(),
        is_loopback: flags & libc::IFF_LOOPBACK != 0,
        is_up: flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0,
        addresses: Vec::new(),
    })
}

fn flags(name: &CStr, socket: &OwnedFd) -> Option<i32> {
    let mut request = named(name)?;
    // SAFETY: SIOCGIFFLAGS takes an ifreq with a name and fills the flags.
    unsafe {
        let asked = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &mut request);
        (asked == 0).then(|| i32::from(request.ifr_ifru.ifru_flags))
    }
}

/// The MAC address of an interface that has one of six bytes.
fn mac(name: &CStr, socket: &OwnedFd) -> Option<[u8; 6]> {
    let mut request = named(name)?;
    // SAFETY: SIOCGIFHWADDR takes an ifreq with a name and fills the hardware address.
    let address = unsafe {
        let asked = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as _, &mut request);
        (asked == 0).then_some(request.ifr_ifru.ifru_hwaddr)
    }?;
    let has_six = matches!(
        address.sa_family,
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK
    );
    has_six.then(|| std::array::from_fn(|at| address.sa_data[at] as u8))
}

/// Each IPv4 address with the name of its interface.
fn v4_addresses(socket: &OwnedFd) -> io::Result<Vec<(String, Ipv4Addr)>> {
    let mut room = ADDRESSES;
    loop {
        // SAFETY: all zeros is a valid ifreq.
        let mut requests: Vec<libc::ifreq> = vec![unsafe { std::mem::zeroed() }; room];
        let bytes = size_of_val(&requests[..]);
        let mut asked = libc::ifconf {
            ifc_len: bytes as i32,
            ifc_ifcu: libc::__c_anonymous_ifc_ifcu {
                ifcu_req: requests.as_mut_ptr(),
            },
        };
        // SAFETY: SIOCGIFCONF fills as many entries as there is room for, and says how many bytes.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFCONF as _, &mut asked) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let filled = asked.ifc_len as usize / size_of::<libc::ifreq>();
        if filled < room {
            requests.truncate(filled);
            return Ok(requests.iter().map(v4_address).collect());
        }
        // A full list may have been cut.
        room *= 2;
    }
}

/// The interface's name and the address of an entry that SIOCGIFCONF has filled in. A label such as `eth0:1`
/// names an address; the interface is what comes before the colon.
fn v4_address(entry: &libc::ifreq) -> (String, Ipv4Addr) {
    let label: Vec<u8> = entry
        .ifr_name
        .iter()
        .map(|&byte| byte as u8)
        .take_while(|&byte| byte != 0 && byte != b':')
        .collect();
    // SAFETY: SIOCGIFCONF returns addresses of AF_INET only.
    let address = unsafe {
        (&raw const entry.ifr_ifru.ifru_addr)
            .cast::<libc::sockaddr_in>()
            .read_unaligned()
    };
    let octets = address.sin_addr.s_addr.to_ne_bytes();
    (
        String::from_utf8_lossy(&label).into_owned(),
        Ipv4Addr::from(octets),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_stands_before_the_last_colon() {
        let listed = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3\nveth0:4 5 6\n  a:b: 7 8\n";
        assert_eq!(names(listed).collect::<Vec<_>>(), ["lo", "veth0", "a:b"]);
    }

    #[test]
    fn an_ipv6_address_is_read_with_its_interface() {
        let line = "fe8000000000000000505dfffe5b6a2f 03 40 20 80     eth0";
        assert_eq!(
            v6_address(line),
            Some(("eth0", "fe80::50:5dff:fe5b:6a2f".parse().unwrap()))
        );
        assert_eq!(v6_address("fe80"), None);
    }

    /// Both sources describe the machine that runs the test. The order of addresses may differ.
    #[test]
    fn the_interfaces_are_those_of_netlink() {
        let sorted = |mut found: Vec<Interface>| {
            for interface in &mut found {
                interface
                    .addresses
                    .sort_by_key(|address| format!("{address:?}"));
            }
            found.sort_by_key(|interface| interface.index);
            found
        };
        let by_netlink = sorted(super::super::by_netlink().unwrap());
        assert!(by_netlink.iter().any(|interface| interface.is_loopback));
        assert_eq!(sorted(interfaces().unwrap()), by_netlink);
    }
}
