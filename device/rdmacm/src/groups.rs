//! The multicast groups of an identifier, and the attachment of its queue pair to them. Attaching makes the
//! host join on the network (IGMP, MLD).

use crate::sockaddr;
use crate::verbs::verbs;
use abi::{ibv_gid, ibv_qp};
use ffi::Errno;
use std::net::SocketAddr;

/// Groups of one identifier at most.
const GROUPS_MAX: usize = 1024;

/// A multicast group that an identifier joined.
pub(crate) struct Group {
    address: SocketAddr,
    /// Whether the queue pair is attached to it.
    attached: bool,
    sends_only: bool,
}

impl Group {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Detaches the queue pair, if it is attached.
    ///
    /// # Safety
    /// The identifier's queue pair, `qp`, is NULL or live.
    pub(crate) unsafe fn detach(&self, qp: *mut ibv_qp) {
        let gid = ibv_gid {
            raw: sockaddr::gid(self.address.ip()).0,
        };
        if let Ok(verbs) = verbs()
            && self.attached
            && !qp.is_null()
        {
            // SAFETY: by this function's contract, the queue pair is live.
            unsafe { (verbs.ibv_detach_mcast)(qp, &gid, 0) };
        }
    }
}

/// The groups that an identifier is a member of.
#[derive(Default)]
pub(crate) struct Groups(Vec<Group>);

impl Groups {
    /// Adds a group, to which the queue pair is not attached yet.
    ///
    /// # Errors
    /// `EADDRINUSE` if the identifier is a member already, `ENOMEM` at the limit.
    pub(crate) fn add(&mut self, address: SocketAddr, sends_only: bool) -> Result<(), Errno> {
        if self
            .0
            .iter()
            .any(|known| known.address.ip() == address.ip())
        {
            return Err(Errno(libc::EADDRINUSE));
        }
        if self.0.len() >= GROUPS_MAX {
            return Err(Errno::NO_MEMORY);
        }
        self.0.push(Group {
            address,
            attached: false,
            sends_only,
        });
        Ok(())
    }

    /// Removes the group of an address, which is compared without the port.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if the identifier is no member.
    pub(crate) fn remove(&mut self, address: SocketAddr) -> Result<Group, Errno> {
        let place = self
            .0
            .iter()
            .position(|group| group.address.ip() == address.ip());
        Ok(self.0.swap_remove(place.ok_or(Errno(libc::EADDRNOTAVAIL))?))
    }

    /// Attaches the queue pair to a group that was joined.
    ///
    /// # Safety
    /// The identifier's queue pair, `qp`, is NULL or live.
    pub(crate) unsafe fn attach(
        &mut self,
        address: SocketAddr,
        qp: *mut ibv_qp,
    ) -> Result<(), Errno> {
        let group = self
            .0
            .iter_mut()
            .find(|group| group.address == address)
            .ok_or(Errno::INVALID)?;
        if qp.is_null() || group.sends_only || group.attached {
            return Ok(());
        }
        let gid = ibv_gid {
            raw: sockaddr::gid(address.ip()).0,
        };
        // SAFETY: by this function's contract, the queue pair is live.
        Errno::check_code(unsafe { (verbs()?.ibv_attach_mcast)(qp, &gid, 0) })?;
        group.attached = true;
        Ok(())
    }

    /// Detaches the queue pair from all groups, and leaves them.
    ///
    /// # Safety
    /// The identifier's queue pair, `qp`, is NULL or live.
    pub(crate) unsafe fn leave_all(self, qp: *mut ibv_qp) {
        // SAFETY: by this function's contract, the queue pair is NULL or live.
        self.0.iter().for_each(|group| unsafe { group.detach(qp) });
    }
}
