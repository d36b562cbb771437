//! The byte of IP headers that routers and switches go by: DSCP and ECN.

/// Explicit congestion notification (RFC 3168, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not take part: a congested switch drops.
    NotCapable = 0,
    /// ECN-capable transport, code point 1.
    Capable1 = 1,
    /// ECN-capable transport, code point 0: RoCEv2 senders use it.
    Capable0 = 2,
    /// A switch on the way was congested.
    CongestionExperienced = 3,
}

/// IPv4 type of service or IPv6 traffic class: DSCP in the upper six bits, ECN in the lower two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// From a DSCP (lower six bits) and an ECN code point.
    pub const fn new(dscp: u8, ecn: Ecn) -> Self {
        Self(dscp << 2 | ecn as u8)
    }

    /// Differentiated services code point (RFC 2474).
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// ECN code point.
    pub const fn ecn(self) -> Ecn {
        match self.0 & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::CongestionExperienced,
        }
    }

    /// The same DSCP with another ECN code point.
    #[must_use]
    pub const fn with_ecn(self, ecn: Ecn) -> Self {
        Self(self.0 & !3 | ecn as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscp_and_ecn_share_a_byte() {
        let class = TrafficClass::new(26, Ecn::Capable0);
        assert_eq!(class, TrafficClass(106));
        assert_eq!(
            class.with_ecn(Ecn::CongestionExperienced),
            TrafficClass(107)
        );
        for byte in 0..=u8::MAX {
            let class = TrafficClass(byte);
            assert_eq!(TrafficClass::new(class.dscp(), class.ecn()), class);
        }
    }
}
