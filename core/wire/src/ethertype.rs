//! Types of Ethernet frames (IEEE 802.3 clause 3.2.6, registered with the IEEE).

use core::fmt;

/// The protocol of a frame's payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// A customer VLAN tag follows (802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// MAC control: pause and priority flow control (802.3 annex 31A).
    pub const MAC_CONTROL: Self = Self(0x8808);
    /// Link layer discovery (802.1AB).
    pub const LLDP: Self = Self(0x88cc);
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtherType({:#06x})", self.0)
    }
}
