//! Corrections of a switch's settings, in the words of its system.

use crate::intent::{Port, Trust};

/// A setting that a switch lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy<'a> {
    /// Packets of a DSCP belong to a class, and the DSCP is trusted.
    MapDscp {
        /// The DSCP of the packets.
        dscp: u8,
        /// The class that they shall be in.
        class: u8,
        /// The headers that are trusted now: another one stays trusted.
        trusted: Trust,
    },
    /// PFC for a class, in the configuration.
    Pfc {
        /// The class, 0 to 7.
        class: u8,
    },
    /// PFC for a class, in operation at a port whose state was shown.
    PfcOfPort {
        /// The class, 0 to 7.
        class: u8,
        /// The name of the port.
        port: &'a str,
    },
    /// Packets of a class are marked.
    MarkEcn {
        /// The class, 0 to 7.
        class: u8,
    },
    /// Received pauses are obeyed.
    ObeyPauses {
        /// The classes, one bit each.
        classes: u8,
        /// The ports that have the classes, each with its speed where it is known.
        ports: &'a [Port],
    },
    /// Pauses of the whole link (802.3x) are off.
    NoGlobalPause,
    /// A flow stays on one path.
    SpreadByFlow,
    /// Frames of 9,216 bytes fit, on all ports.
    Mtu,
    /// Frames of 9,216 bytes fit, on one port.
    MtuOfPort {
        /// The name of the port.
        port: &'a str,
    },
}

impl Remedy<'_> {
    /// The correction where a system's command for it is not known.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::MapDscp { dscp, class, .. } => {
                format!("DSCP {dscp} in class {class}, and DSCP trusted")
            }
            Self::Pfc { class } => format!("PFC for priority {class}"),
            Self::PfcOfPort { class, port } => format!("PFC for priority {class} on {port}"),
            Self::MarkEcn { class } => format!("ECN marking for class {class}"),
            Self::ObeyPauses { .. } => "pauses in both directions".to_owned(),
            Self::NoGlobalPause => "flowcontrol receive off, and flowcontrol send off".to_owned(),
            Self::SpreadByFlow => "paths chosen by flow, and not by packet".to_owned(),
            Self::Mtu => "mtu 9216 on the port (and in network-qos)".to_owned(),
            Self::MtuOfPort { port } => format!("an MTU of 9216 on {port}"),
        }
    }
}
