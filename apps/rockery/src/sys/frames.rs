//! Frames of an interface, by a packet socket (packet(7)).

use os::{checked, owned};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

/// The EtherType of LLDP (802.1AB).
const LLDP: u16 = 0x88cc;

/// The group address that LLDP frames are sent to; bridges do not forward it.
const NEAREST_BRIDGE: [u8; 8] = [0x01, 0x80, 0xc2, 0, 0, 0x0e, 0, 0];

/// A descriptor from which LLDP frames of an interface are read, one with each read.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`, `ENODEV` for an interface that does not exist.
pub(crate) fn listen_for_lldp(interface: &str) -> io::Result<File> {
    let name = CString::new(interface)?;
    // SAFETY: the name ends with a zero and lives until the call returns.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // No protocol yet: frames of other interfaces would arrive before bind(2) names this one.
    // SAFETY: numbers only; the call makes a descriptor.
    let fd = unsafe { owned(libc::socket(libc::AF_PACKET, kind, 0)) }?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: LLDP.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives until the call returns, and the length is its own.
    checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    let group = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_MULTICAST as u16,
        mr_alen: 6,
        mr_address: NEAREST_BRIDGE,
    };
    let (pointer, length) = (
        (&raw const group).cast(),
        size_of::<libc::packet_mreq>() as libc::socklen_t,
    );
    let (level, name) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
    // SAFETY: the request lives until the call returns, and the length is its own.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, pointer, length) })?;
    Ok(File::from(fd))
}
