//! `getifaddrs(3)`, and the MTU, which it does not report. It needs a netlink socket; where a sandbox refuses
//! those, [`without_netlink`] finds the same.

mod without_netlink;

use crate::sys::cancellation;
use std::ffi::CStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface in its network namespace.
    pub index: u32,
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// MAC address of the interface; zeros where it has none.
    pub mac: [u8; 6],
    /// Whether this is the loopback interface.
    pub is_loopback: bool,
    /// Whether the interface is up and running.
    pub is_up: bool,
    /// Addresses of the interface, in the kernel's order.
    pub addresses: Vec<Address>,
}

/// All interfaces of this network namespace.
///
/// # Errors
/// Those of `getifaddrs(3)` and `socket(2)`: the kernel has no memory or no descriptors left.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    cancellation::without(by_netlink)
        .or_else(|error| without_netlink::interfaces().map_err(|_| error))
}

fn by_netlink() -> io::Result<Vec<Interface>> {
    let socket = any_socket()?;
    let mut first = std::ptr::null_mut();
    // SAFETY: a place for the list's head.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found: Vec<Interface> = Vec::new();
    let mut entry = first;
    // SAFETY: the list is as getifaddrs made it and lives until freeifaddrs; names are C strings; an address
    // has the type that its family says.
    unsafe {
        while let Some(here) = entry.as_ref() {
            add(&mut found, here, &socket);
            entry = here.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    Ok(found)
}

/// # Safety
/// `entry` is of a list of getifaddrs that was not freed.
unsafe fn add(found: &mut Vec<Interface>, entry: &libc::ifaddrs, socket: &OwnedFd) {
    // SAFETY: getifaddrs gives each entry a name.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) };
    let text = name.to_string_lossy();
    let position = found
        .iter()
        .position(|interface| interface.name == text)
        .unwrap_or_else(|| {
            let flags = entry.ifa_flags as i32;
            found.push(Interface {
                name: text.clone().into_owned(),
                // SAFETY: a C string.
                index: unsafe { libc::if_nametoindex(name.as_ptr()) },
                mtu: mtu(name, socket).unwrap_or(MTU_UNKNOWN),
                mac: [0; 6],
                is_loopback: flags & libc::IFF_LOOPBACK != 0,
                is_up: flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0,
                addresses: Vec::new(),
            });
            found.len() - 1
        });
    // SAFETY: null or a socket address of the family that it says.
    let Some(family) =
        (unsafe { entry.ifa_addr.as_ref() }).map(|address| i32::from(address.sa_family))
    else {
        return;
    };
    let interface = &mut found[position];
    // SAFETY: the family says which structure it is.
    unsafe {
        match family {
            libc::AF_INET => {
                let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                let octets = address.sin_addr.s_addr.to_ne_bytes();
                interface
                    .addresses
                    .push(Address::V4(Ipv4Addr::from(octets)));
            }
            libc::AF_INET6 => {
                let address = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                interface
                    .addresses
                    .push(Address::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)));
            }
            libc::AF_PACKET => {
                let address = &*entry.ifa_addr.cast::<libc::sockaddr_ll>();
                if address.sll_halen == 6 {
                    interface.mac.copy_from_slice(&address.sll_addr[..6]);
                }
            }
            _ => {}
        }
    }
}

/// Ethernet's MTU, for an interface that was removed between two calls.
const MTU_UNKNOWN: u32 = 1500;

fn any_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the call makes a descriptor.
    unsafe { os::owned(libc::socket(libc::AF_UNIX, kind, 0)) }
}

/// A request that names an interface; none if the name is too long for one.
fn named(name: &CStr) -> Option<libc::ifreq> {
    os::interface::request(name.to_bytes()).ok()
}

fn mtu(name: &CStr, socket: &OwnedFd) -> Option<u32> {
    let mut request = named(name)?;
    // SAFETY: SIOCGIFMTU takes an ifreq with a name and fills the MTU.
    unsafe {
        let asked = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request);
        (asked == 0).then_some(request.ifr_ifru.ifru_mtu as u32)
    }
}
