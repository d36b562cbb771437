//! Requests about network interfaces (netdevice(7)), and taps.

use crate::checked;
use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;

/// A request about the interface of this name.
///
/// # Errors
/// `InvalidInput` for a name that is too long for an interface.
pub fn request(name: &[u8]) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The last byte stays zero: it ends the longest name.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name) {
        *place = *byte as libc::c_char;
    }
    Ok(request)
}

/// Makes a tap in this network namespace, whose frames begin with a `virtio_net_hdr`. It lasts as long as the
/// file, which is opened with these flags besides.
///
/// # Errors
/// Where `/dev/net/tun` is missing, or the user may make no interfaces here.
pub fn open_tap(name: &str, flags: libc::c_int) -> io::Result<File> {
    open(name, flags, libc::IFF_TAP)
}

/// Makes an interface of IP packets without link headers, otherwise as [`open_tap`]. The kernel shows it as
/// one of this hardware type (`ARPHRD_*`).
///
/// # Errors
/// As [`open_tap`].
pub fn open_tun(name: &str, flags: libc::c_int, hardware: u16) -> io::Result<File> {
    let tun = open(name, flags, libc::IFF_TUN)?;
    let hardware = libc::c_ulong::from(hardware);
    // SAFETY: the argument is a number.
    checked(unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETLINK as _, hardware) })?;
    Ok(tun)
}

/// Not in every libc's headers: `linux/if_tun.h`.
const TUNSETLINK: libc::c_ulong = 0x4004_54cd;

fn open(name: &str, flags: libc::c_int, kind: libc::c_int) -> io::Result<File> {
    let mut request = request(name.as_bytes())?;
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    let mut options = File::options();
    let tap = options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open("/dev/net/tun")?;
    // SAFETY: a request that lives until the call returns.
    checked(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    Ok(tap)
}

/// Sets the offloads that frames of a tap may use (`TUN_F_CSUM` and others).
///
/// # Errors
/// Those of the system call: `EINVAL` for one that the kernel does not know.
pub fn set_tap_offloads(tap: &impl AsFd, offloads: libc::c_uint) -> io::Result<()> {
    let fd = tap.as_fd().as_raw_fd();
    // SAFETY: the argument is a number.
    checked(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD as _, libc::c_ulong::from(offloads)) })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_name_of_at_most_fifteen_bytes() {
        let named = request(b"a123456789bcdef").unwrap();
        assert_eq!(
            (named.ifr_name[0], named.ifr_name[14], named.ifr_name[15]),
            (97, 102, 0)
        );
        let error = request(b"a123456789bcdefg").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
