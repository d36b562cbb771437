//! Access rights of memory regions, memory windows and queue pairs.

bitflags::bitflags! {
    /// Access rights; the bits are those of `ibv_access_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct Access: u32 {
        /// The device may store into it on behalf of its owner (receives, READ results).
        const LOCAL_WRITE = 1;
        /// Peers may WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may READ.
        const REMOTE_READ = 1 << 2;
        /// Peers may do atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const BIND_WINDOW = 1 << 4;
        /// Addresses count from zero, not from the virtual address.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging: the application may unmap and map pages, so every access is checked.
        const ON_DEMAND = 1 << 6;
        /// Requests huge pages for on-demand paging: accepted, without effect.
        const HUGETLB = 1 << 7;
        /// Peers may FLUSH to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may FLUSH to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Optional: permits PCIe to reorder accesses. No meaning for a software device.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// All rights of peers.
    pub const REMOTE: Self = Self::REMOTE_WRITE
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_ATOMIC);
}
