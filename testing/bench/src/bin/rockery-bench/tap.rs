//! Tap interfaces.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Offloads that frames on the tap use: checksums that are not computed yet, and TCP segments longer than the
/// MTU.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
/// The same for UDP, in which RoCEv2 packets are: Linux 6.2. Without it the kernel cuts what one call sends
/// into frames of the MTU before the tap, and the receiver takes each by itself.
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Makes a tap interface of the network namespace that this process is in, and opens it. Each frame begins
/// with a `virtio_net_hdr`. The interface goes with its last descriptor.
///
/// # Errors
/// When `/dev/net/tun` is missing, or the user may make no interfaces here.
pub(crate) fn open_tap(name: &str) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    // SAFETY: zero is a value of each field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .take(libc::IFNAMSIZ - 1)
        .zip(name.bytes())
    {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the request is one of an interface, with room for the answer.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    let set = |offloads: libc::c_uint| {
        // SAFETY: the argument is a number.
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) }
    };
    if set(OFFLOADS | UDP_OFFLOADS) < 0 && set(OFFLOADS) < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
