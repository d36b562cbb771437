//! Numbers of connection management, by name.

use super::layout::number_field;

/// Names a connection (or a SIDR request) at one of its two ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct CommId(pub u32);

/// The service that a REQ or SIDR_REQ requests. RDMA-CM makes service IDs from a port space and a port:
/// [`ServiceId::ip`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ServiceId(pub u64);

/// The port spaces of RDMA-CM that have a place in the service ID (`enum rdma_port_space`; IBTA A11.6 defines
/// the form, with the IP protocol number in the low byte).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortSpace {
    /// `RDMA_PS_IPOIB`: IP over InfiniBand, not routed by RoCE.
    Ipoib,
    /// `RDMA_PS_TCP`: reliable connections by port number.
    Tcp,
    /// `RDMA_PS_UDP`: datagrams by port number.
    Udp,
    /// `RDMA_PS_IB`: anything with native addressing.
    Ib,
}

/// Which message an MRA or REJ is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Subject {
    /// The message is about a REQ.
    #[default]
    Request,
    /// The message is about a REP.
    Reply,
    /// In an MRA a LAP; in a REJ no message in particular.
    Other,
    /// A value without meaning.
    Reserved,
}

/// Why a connection was rejected (IBTA table 109).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RejectReason(pub u16);

/// The result of a service ID resolution (IBTA table 121).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SidrStatus(pub u8);

/// The result of loading an alternate path (IBTA table 117).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct AprStatus(pub u8);

/// The bits of a service ID that RDMA-CM leaves 0 (IBTA A11.6: the prefix 0x0000000001).
const IP_PREFIX: u64 = 0x0000_0000_0100_0000;
const IP_PREFIX_MASK: u64 = !0x00ff_ffff;

impl PortSpace {
    /// All port spaces.
    pub const ALL: [Self; 4] = [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib];

    /// The value of `enum rdma_port_space`.
    pub const fn value(self) -> u16 {
        match self {
            Self::Ipoib => 0x0002,
            Self::Tcp => 0x0106,
            Self::Udp => 0x0111,
            Self::Ib => 0x013f,
        }
    }

    /// The port space of a value of `enum rdma_port_space`.
    pub const fn of(value: u16) -> Option<Self> {
        match value {
            0x0002 => Some(Self::Ipoib),
            0x0106 => Some(Self::Tcp),
            0x0111 => Some(Self::Udp),
            0x013f => Some(Self::Ib),
            _ => None,
        }
    }
}

impl ServiceId {
    /// The service behind a port (IBTA A11.6).
    pub const fn ip(space: PortSpace, port: u16) -> Self {
        Self((space.value() as u64) << 16 | port as u64)
    }

    /// The port space and port, if this is the service ID of an IP protocol and its private data therefore
    /// begins with a [`super::CmaHeader`].
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        if self.0 & IP_PREFIX_MASK != IP_PREFIX {
            return None;
        }
        match PortSpace::of((self.0 >> 16) as u16) {
            Some(space) => Some((space, self.0 as u16)),
            None => None,
        }
    }
}

impl RejectReason {
    /// No queue pair is available.
    pub const NO_QP: Self = Self(1);
    /// Another resource is not available.
    pub const NO_RESOURCES: Self = Self(3);
    /// The sender gave up waiting. The additional information is its GUID.
    pub const TIMEOUT: Self = Self(4);
    /// The request is for something that is not supported.
    pub const UNSUPPORTED: Self = Self(5);
    /// The communication ID is unknown.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// Communication ID, queue pair and service do not belong together.
    pub const INVALID_COMM_INSTANCE: Self = Self(7);
    /// No program listens on the service ID.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The transport service is not the listener's.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The queue pair is in a connection already.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The remote GID of the primary path is not the receiver's. The additional information is one that is.
    pub const INVALID_GID: Self = Self(12);
    /// The path MTU is none, or too large. The additional information is the largest there is.
    pub const INVALID_MTU: Self = Self(26);
    /// More responder resources are needed.
    pub const INSUFFICIENT_RESPONDER_RESOURCES: Self = Self(27);
    /// The program rejected the request.
    pub const CONSUMER: Self = Self(28);
    /// The communication ID is in use already.
    pub const DUPLICATE_LOCAL_COMM_ID: Self = Self(30);
    /// The class version is not supported. The additional information is the one that is.
    pub const INVALID_CLASS_VERSION: Self = Self(31);
    /// An option of enhanced connection establishment is not supported.
    pub const VENDOR_OPTION: Self = Self(35);
}

impl SidrStatus {
    /// The queue pair is in the answer.
    pub const VALID: Self = Self(0);
    /// No program listens on the service ID.
    pub const UNSUPPORTED: Self = Self(1);
    /// The program rejected the request.
    pub const REJECTED: Self = Self(2);
    /// There is no queue pair.
    pub const NO_QP: Self = Self(3);
}

impl AprStatus {
    /// The path is loaded.
    pub const LOADED: Self = Self(0);
    /// The communication ID is unknown.
    pub const INVALID_COMM_ID: Self = Self(1);
    /// Alternate paths are not supported.
    pub const UNSUPPORTED: Self = Self(2);
    /// The program rejected the request.
    pub const REJECTED: Self = Self(3);
}

impl Subject {
    const fn of(number: u64) -> Self {
        match number {
            0 => Self::Request,
            1 => Self::Reply,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }

    const fn value(self) -> u64 {
        match self {
            Self::Request => 0,
            Self::Reply => 1,
            Self::Other => 2,
            Self::Reserved => 3,
        }
    }
}

number_field! {
    CommId: |number| Self(number as u32), |value| u64::from(value.0);
    ServiceId: |number| Self(number), |value| value.0;
    RejectReason: |number| Self(number as u16), |value| u64::from(value.0);
    SidrStatus: |number| Self(number as u8), |value| u64::from(value.0);
    AprStatus: |number| Self(number as u8), |value| u64::from(value.0);
    Subject: |number| Self::of(number), |value| value.value();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_ids_are_made_from_port_spaces() {
        assert_eq!(
            ServiceId::ip(PortSpace::Tcp, 7174),
            ServiceId(0x0000_0000_0106_1c06)
        );
        for space in PortSpace::ALL {
            assert_eq!(PortSpace::of(space.value()), Some(space));
        }
        for space in [PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib] {
            assert_eq!(ServiceId::ip(space, 0xfffe).port(), Some((space, 0xfffe)));
        }
        assert_eq!(ServiceId(0x0000_0001_0106_1c06).port(), None);
        assert_eq!(ServiceId(0x0000_0000_0107_1c06).port(), None);
        assert_eq!(ServiceId(0x1000_cea1_0000_0001).port(), None);
    }
}
