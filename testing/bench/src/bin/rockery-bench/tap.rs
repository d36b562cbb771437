//! Tap interfaces.

use std::fs::File;
use std::io;

use os::interface::set_tap_offloads;

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
    let tap = os::interface::open_tap(name, 0)?;
    set_tap_offloads(&tap, OFFLOADS | UDP_OFFLOADS)
        .or_else(|_| set_tap_offloads(&tap, OFFLOADS))?;
    Ok(tap)
}
