//! Corrections of a host's settings, in the words of the tools that its adapter has.

/// A setting that a host lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostRemedy {
    /// PFC for these priorities, one bit each.
    Pfc(u8),
    /// The DSCP of arriving and leaving packets decides about their priority.
    TrustDscp,
    /// Packets of a DSCP have a priority.
    MapDscp {
        /// The DSCP of the packets.
        dscp: u8,
        /// The priority that they shall have.
        priority: u8,
    },
    /// The ToS byte of connections.
    Tos(u8),
    /// Shares of the traffic classes in percent.
    Shares([u8; 8]),
    /// A receive buffer of its own for a priority.
    ReceiveBuffer(u8),
    /// The DSCP of notifications.
    CnpDscp(u8),
    /// The priority of notifications.
    CnpPriority(u8),
    /// DCQCN answers marked packets of a priority with notifications.
    Notify(u8),
    /// DCQCN reduces rates of a priority on notifications.
    React(u8),
    /// Pauses of the whole link are off.
    NoGlobalPause,
    /// Frames of so many bytes.
    Mtu(u32),
    /// Connections of rdma_cm use RoCEv2.
    RoceV2,
    /// The other direction of iWARP: the device speaks RoCE.
    Roce,
    /// So many virtual functions.
    Functions(u32),
    /// DCB is set by the host and not taken from the switch.
    NotWilling,
    /// QoS of the adapter is enabled.
    Qos,
    /// SMB Direct has a priority.
    SmbPriority(u8),
    /// Packets are placed in whatever order they arrive, or in order only.
    AnyOrder(bool),
    /// The port is enabled.
    Up,
    /// The speed of the link is negotiated.
    Speed,
    /// The interface has an address that is routed.
    Address,
    /// RDMA of the adapter is enabled.
    Rdma,
    /// The driver of the adapter offers RDMA.
    OfferRdma,
    /// RDMA is on for all adapters.
    NetworkDirect,
    /// RDMA may pass between subnets.
    AcrossSubnets,
    /// The feature SMB Direct is on.
    SmbDirect,
    /// SMB uses several connections, and with them RDMA.
    Multichannel,
    /// SMB neither signs nor encrypts all data.
    NoEncryption,
}

impl HostRemedy {
    /// The correction where no command is known for it.
    pub(crate) fn in_words(self) -> String {
        match self {
            Self::Pfc(mask) => {
                format!("PFC for priority {} of the adapter", classes(mask))
            }
            Self::TrustDscp => "the adapter trusts the DSCP".to_owned(),
            Self::MapDscp { dscp, priority } => format!("DSCP {dscp} in priority {priority}"),
            Self::Tos(tos) => format!("ToS {tos} of connections: DSCP {}", tos >> 2),
            Self::Shares(shares) => {
                let list = shares.map(|share| share.to_string()).join(",");
                format!("shares of the traffic classes: {list}")
            }
            Self::ReceiveBuffer(priority) => {
                format!("a receive buffer of its own for priority {priority}")
            }
            Self::CnpDscp(dscp) => format!("DSCP {dscp} of notifications, with the vendor's tool"),
            Self::CnpPriority(priority) => {
                format!("priority {priority} of notifications, with the vendor's tool")
            }
            Self::Notify(priority) | Self::React(priority) => {
                format!("DCQCN for priority {priority}, with the vendor's tool, at both ends")
            }
            Self::NoGlobalPause => "802.3x pause off".to_owned(),
            Self::Mtu(bytes) => format!("an MTU of {bytes}, at both ends"),
            Self::RoceV2 => "RoCEv2 as the mode of rdma_cm".to_owned(),
            Self::Roce => "the mode RoCE of the adapter, with its driver's option".to_owned(),
            Self::Functions(count) => format!("{count} virtual functions"),
            Self::NotWilling => "DCB that the host sets by itself".to_owned(),
            Self::Qos => "QoS of the adapter enabled".to_owned(),
            Self::SmbPriority(priority) => format!("priority {priority} for SMB Direct"),
            Self::AnyOrder(true) => {
                "packets in any order, if the adapter has that, at both ends".to_owned()
            }
            Self::AnyOrder(false) => "packets in order only, at both ends".to_owned(),
            Self::Up => "the port enabled".to_owned(),
            Self::Speed => "the speed of the link negotiated".to_owned(),
            Self::Address => "an address that is routed, on the adapter's interface".to_owned(),
            Self::Rdma => "RDMA of the adapter enabled".to_owned(),
            Self::OfferRdma => "RDMA offered by the adapter's driver".to_owned(),
            Self::NetworkDirect => "RDMA enabled for all adapters".to_owned(),
            Self::AcrossSubnets => "RDMA allowed between subnets".to_owned(),
            Self::SmbDirect => "the feature SMB Direct".to_owned(),
            Self::Multichannel => "multichannel of SMB enabled".to_owned(),
            Self::NoEncryption => "no signing and encryption of all data".to_owned(),
        }
    }
}

fn classes(mask: u8) -> String {
    crate::text::ranges(crate::text::classes(mask))
}
