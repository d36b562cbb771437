//! Network interfaces: taps, addresses, and their state.

use os::checked;
use os::interface::{open_tap, open_tun, request, set_tap_offloads};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Not in every libc's headers: `linux/if_tun.h`.
const TUNSETCARRIER: libc::c_ulong = 0x4004_54e2;
/// Hardware type of InfiniBand: `linux/if_arp.h`.
const ARPHRD_INFINIBAND: u16 = 32;
/// Checksums, and TCP segments over IPv4 and IPv6, ECN included.
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

fn mac_request(name: &str, mac: [u8; 6]) -> io::Result<libc::ifreq> {
    let mut request = request(name.as_bytes())?;
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr = unsafe { zeroed() };
    address.sa_family = libc::ARPHRD_ETHER;
    address
        .sa_data
        .iter_mut()
        .zip(mac)
        .for_each(|(place, byte)| *place = byte as libc::c_char);
    request.ifr_ifru.ifru_hwaddr = address;
    Ok(request)
}

/// Makes a tap in this network namespace. It lasts as long as its descriptor.
pub(crate) fn tap(name: &str) -> io::Result<OwnedFd> {
    let tap = open_tap(name, libc::O_NONBLOCK)?;
    // Without offloads the kernel cuts segments itself.
    let _ = set_tap_offloads(&tap, OFFLOADS);
    Ok(tap.into())
}

/// Makes an interface of IP over InfiniBand in this network namespace, as [`tap`].
pub(crate) fn infiniband(name: &str) -> io::Result<OwnedFd> {
    let tun = open_tun(name, libc::O_NONBLOCK, ARPHRD_INFINIBAND)?;
    let _ = set_tap_offloads(&tun, OFFLOADS);
    Ok(tun.into())
}

/// Sets the MTU of an interface in the network namespace of a socket.
pub(crate) fn set_mtu_at(socket: RawFd, name: &str, mtu: u32) -> io::Result<()> {
    let mut request = request(name.as_bytes())?;
    request.ifr_ifru.ifru_mtu = mtu as i32;
    // SAFETY: a request that lives until the call returns.
    checked(unsafe { libc::ioctl(socket, libc::SIOCSIFMTU as _, &raw mut request) }).map(drop)
}

/// Sockets by which interfaces of this network namespace are changed.
pub(crate) struct Interfaces {
    v4: OwnedFd,
    v6: io::Result<OwnedFd>,
}

#[repr(C)]
struct Ipv6Request {
    address: libc::in6_addr,
    prefix: u32,
    index: i32,
}

impl Interfaces {
    pub(crate) fn new() -> io::Result<Self> {
        let open = |family: i32| {
            let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
            // SAFETY: no pointers; the call makes a descriptor.
            unsafe { os::owned(libc::socket(family, kind, 0)) }
        };
        Ok(Self {
            v4: open(libc::AF_INET)?,
            v6: open(libc::AF_INET6),
        })
    }

    fn call(&self, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: a request that lives until the call returns.
        checked(unsafe { libc::ioctl(self.v4.as_raw_fd(), call as _, std::ptr::from_mut(request)) })
            .map(drop)
    }

    /// Brings an interface up.
    pub(crate) fn up(&self, name: &str) -> io::Result<()> {
        let mut request = request(name.as_bytes())?;
        self.call(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the call before has set the flags.
        request.ifr_ifru.ifru_flags = unsafe { request.ifr_ifru.ifru_flags } | libc::IFF_UP as i16;
        self.call(libc::SIOCSIFFLAGS as _, &mut request)
    }

    pub(crate) fn set_mtu(&self, name: &str, mtu: u32) -> io::Result<()> {
        set_mtu_at(self.v4.as_raw_fd(), name, mtu)
    }

    /// The socket by which interfaces of this network namespace are changed from another one.
    pub(crate) fn into_socket(self) -> OwnedFd {
        self.v4
    }

    pub(crate) fn set_mac(&self, name: &str, mac: [u8; 6]) -> io::Result<()> {
        self.call(libc::SIOCSIFHWADDR as _, &mut mac_request(name, mac)?)
    }

    /// Gives an interface an IPv4 address with a prefix of 8 bits.
    pub(crate) fn add_v4(&self, name: &str, address: Ipv4Addr) -> io::Result<()> {
        for (call, value) in [
            (libc::SIOCSIFADDR, address),
            (libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 0, 0, 0)),
        ] {
            let mut request = request(name.as_bytes())?;
            // SAFETY: all zeros is a valid address; both kinds have the same size.
            unsafe {
                let mut place: libc::sockaddr_in = zeroed();
                place.sin_family = libc::AF_INET as u16;
                place.sin_addr.s_addr = u32::from_ne_bytes(value.octets());
                const { assert!(size_of::<libc::sockaddr_in>() == size_of::<libc::sockaddr>()) };
                request.ifr_ifru.ifru_addr =
                    std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(place);
            }
            self.call(call as _, &mut request)?;
        }
        Ok(())
    }

    /// Gives an interface an IPv6 address with a prefix of 64 bits.
    pub(crate) fn add_v6(&self, name: &str, address: Ipv6Addr) -> io::Result<()> {
        let socket = self
            .v6
            .as_ref()
            .map_err(|error| io::Error::from(error.kind()))?;
        let mut named = request(name.as_bytes())?;
        self.call(libc::SIOCGIFINDEX as _, &mut named)?;
        let mut request = Ipv6Request {
            address: libc::in6_addr {
                s6_addr: address.octets(),
            },
            prefix: 64,
            // SAFETY: the call before has set the index.
            index: unsafe { named.ifr_ifru.ifru_ifindex },
        };
        // SAFETY: `struct in6_ifreq`, which lives until the call returns.
        checked(unsafe {
            libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR as _, &raw mut request)
        })
        .map(drop)
    }
}

/// Sets whether a tap has a carrier. Kernels before 5.0 cannot: packets are lost all the same.
pub(crate) fn set_carrier(tap: RawFd, on: bool) {
    let on = i32::from(on);
    // SAFETY: an int that lives until the call returns.
    unsafe { libc::ioctl(tap, TUNSETCARRIER as _, &raw const on) };
}

/// Sets the MAC address of a tap's interface, in whatever network namespace it is.
pub(crate) fn set_mac_of_tap(tap: RawFd, mac: [u8; 6]) -> io::Result<()> {
    let mut request = mac_request("", mac)?;
    // SAFETY: a request that lives until the call returns.
    checked(unsafe { libc::ioctl(tap, libc::SIOCSIFHWADDR as _, &raw mut request) }).map(drop)
}

/// Reads a frame from a tap; `None` when there is none.
pub(crate) fn read(tap: RawFd, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: a slice and its length.
    let length = unsafe { libc::read(tap, buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(length).ok().filter(|length| *length > 0)
}

/// Reads a packet into several places, one after the other; as [`read`].
pub(crate) fn read_into(tap: RawFd, places: &mut [IoSliceMut<'_>]) -> Option<usize> {
    // SAFETY: an `IoSliceMut` is an `iovec` with bytes that may be written.
    let length = unsafe { libc::readv(tap, places.as_ptr().cast(), places.len() as i32) };
    usize::try_from(length).ok().filter(|length| *length > 0)
}

/// Writes a frame to a tap, in pieces; false when the kernel does not take it.
pub(crate) fn write(tap: RawFd, pieces: &[IoSlice<'_>]) -> bool {
    // SAFETY: an `IoSlice` is an `iovec`, which the call only reads, as it does the bytes.
    unsafe { libc::writev(tap, pieces.as_ptr().cast(), pieces.len() as i32) > 0 }
}
