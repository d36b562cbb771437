//! The discovery log page: which subsystems can be reached where (Base 5.16.1.23).

use crate::layout::layouts;

layouts! {
    /// The head of the page.
    Head[1024] {
        /// How often the page changed.
        generation: u64 = 0;
        /// How many entries follow.
        count: u64 = 8;
        /// Record format, always 0.
        format: u16 = 16;
    }
    /// One way to one subsystem.
    Entry[1024] {
        /// One of [`transport`].
        transport: u8 = 0;
        /// One of [`family`].
        family: u8 = 1;
        /// One of [`kind`].
        kind: u8 = 2;
        /// Requirements: bits 0 and 1 of secure channels, bit 2 whether flow control can be off.
        requirements: u8 = 3;
        /// The target's name for the port.
        port_id: u16 = 4;
        /// 0xffff: controllers are given by Connect.
        controller_id: u16 = 6;
        /// Entries of the admin queue.
        admin_size: u16 = 8;
        /// Flags: see [`flag`].
        flags: u16 = 10;
        /// The service: a port number in decimal.
        service: [u8; 32] = 32;
        /// The subsystem's name.
        subsystem: [u8; 256] = 256;
        /// Transport address (TRADDR), padded with spaces.
        address: [u8; 256] = 512;
        /// The transport's own part (TSAS).
        specific: [u8; 256] = 768;
    }
}

/// Values of the transport type (TRTYPE).
pub mod transport {
    /// The RDMA transport.
    pub const RDMA: u8 = 1;
    /// The TCP transport.
    pub const TCP: u8 = 3;
}

/// Values of the address family (ADRFAM).
pub mod family {
    /// An IPv4 address.
    pub const IPV4: u8 = 1;
    /// An IPv6 address.
    pub const IPV6: u8 = 2;
}

/// The kind of subsystem of an entry (SUBTYPE).
pub mod kind {
    /// Another discovery service.
    pub const REFERRAL: u8 = 1;
    /// A subsystem with namespaces.
    pub const NVM: u8 = 2;
    /// The discovery service that answers.
    pub const CURRENT: u8 = 3;
}

/// Flags of an entry.
pub mod flag {
    /// Other ports of the subsystem return the same log page.
    pub const DUPLICATE: u16 = 1;
    /// The discovery service keeps connections and sends events.
    pub const EXPLICIT_PERSISTENT: u16 = 1 << 1;
}

/// The transport may run without submission queue flow control.
pub const REQUIREMENT_NO_FLOW_CONTROL: u8 = 1 << 2;

/// RDMA's part of an entry: reliable connected queue pairs, RoCEv2, its connection manager.
pub const fn rdma_specific() -> [u8; 256] {
    let mut bytes = [0; 256];
    bytes[0] = 1;
    bytes[1] = 4;
    bytes[2] = 1;
    bytes
}

/// TCP's part of an entry: the kind of security, 0 none or 2 TLS 1.3.
pub const fn tcp_specific(tls: bool) -> [u8; 256] {
    let mut bytes = [0; 256];
    bytes[0] = if tls { 2 } else { 0 };
    bytes
}
