//! Numbers that must not be mixed up, and the one place where 24-bit serial arithmetic is done.

/// The bits of a PSN or a QPN (IBTA 9.2.1: 24 bits on the wire).
const MASK_24: u32 = 0x00ff_ffff;

/// Packet sequence number: 24 bits, compared serially (IBTA 9.7.1: a window of 2^23).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Psn(u32);

impl Psn {
    /// The PSN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The number itself, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN `count` packets further on; wraps.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The PSN `count` packets before; wraps.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// How many packets this one is ahead of `other`: negative when it lies behind. In -2^23..2^23.
    pub const fn distance_from(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// Whether this PSN comes before `other` in serial order.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }
}

/// Queue pair number: 24 bits. 0 and 1 are the management queue pairs, 0xffffff is the multicast one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services interface, where connection management happens (IBTA 3.9.4).
    pub const GSI: Self = Self(1);
    /// The destination of every multicast packet (IBTA 10.5.1).
    pub const MULTICAST: Self = Self(MASK_24);

    /// The QPN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The number itself, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// Remote key: a peer must present it to access a memory region or window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Rkey(pub u32);

/// Partition key (IBTA 10.9.1): the top bit is full membership. RoCE uses the default one only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PartitionKey(pub u16);

impl PartitionKey {
    /// The default partition, full member.
    pub const DEFAULT: Self = Self(0xffff);
}

impl Default for PartitionKey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_order_is_serial_across_the_wrap() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert!(last.is_before(Psn::new(0)));
        assert_eq!(Psn::new(2).distance_from(last), 3);
        assert_eq!(last.distance_from(Psn::new(2)), -3);
        assert_eq!(Psn::new(0).minus(1), last);
    }
}
