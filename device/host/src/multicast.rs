//! Multicast groups: the host joins the group of the first queue pair that is attached to it, and leaves it
//! after the last one.

use crate::log::HOST;
use crate::progress::pump::Pump;
use link::udp::Socket;
use rnic::{Error, Gid};
use std::os::fd::RawFd;
use wire::Qpn;

/// Attaches a queue pair to a multicast group. Returns the descriptor of the group's socket if the host has
/// joined the group for it.
pub(crate) fn attach_qp(
    pump: &mut Pump,
    qpn: Qpn,
    group: Gid,
    interface: u32,
) -> Result<Option<RawFd>, Error> {
    let joined = pump.rnic.multicast().has(group);
    pump.rnic.multicast().attach(qpn, group)?;
    // On an InfiniBand port the program has joined the group at the subnet's administrator.
    if joined || pump.rnic.port().subnet().is_some() {
        return Ok(None);
    }
    match pump.receiver.join(group, interface) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EMFILE)) => {
            pump.rnic.multicast().detach(qpn, group)?;
            Err(Error::Exhausted("sockets for multicast groups"))
        }
        // The kernel cannot join a group on some interfaces, such as loopback.
        Err(error) => {
            tracing::warn!(target: HOST, %group, "the host does not join the group: {error}");
            Ok(None)
        }
    }
}

/// Detaches a queue pair from a multicast group. After the last one the host leaves the group, when the
/// socket that this returns is dropped.
pub(crate) fn detach_qp(pump: &mut Pump, qpn: Qpn, group: Gid) -> Result<Option<Socket>, Error> {
    pump.rnic.multicast().detach(qpn, group)?;
    Ok(if pump.rnic.multicast().has(group) {
        None
    } else {
        pump.receiver.leave(group)
    })
}
