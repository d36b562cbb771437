//! DCBX (802.1Q clause 38): the choice between a port's own settings and its peer's, after each end has sent
//! its own by LLDP.
//!
//! PFC is a symmetric attribute: both ends have to have the same priorities, so a willing port takes what its
//! peer has. ETS is an asymmetric one: each end may serve its classes otherwise, so a willing port takes what
//! its peer recommends.

use crate::ethernet::MacAddress;
use crate::lldp::{Applications, EtsTlv, LldpError, LldpTlv, LldpTlvs, PfcTlv};

/// A frame of LLDP, as a receiver reads it: the TLVs that every frame begins with, and those of DCBX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advertisement<'a> {
    /// Subtype and identifier of the chassis.
    pub chassis: (u8, &'a [u8]),
    /// Subtype and identifier of the port.
    pub port: (u8, &'a [u8]),
    /// Seconds for which it is valid; with 0 the sender withdraws it.
    pub seconds: u16,
    /// The name of the system, if the frame has it.
    pub system: &'a [u8],
    /// How the sender serves its own traffic classes.
    pub ets: Option<EtsTlv>,
    /// The ETS configuration that the sender recommends to its peer.
    pub recommended: Option<EtsTlv>,
    /// Priorities for which the sender has PFC.
    pub pfc: Option<PfcTlv>,
    /// Priorities of applications.
    pub applications: Option<Applications<'a>>,
}

/// Why a frame of LLDP is discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdvertisementError {
    /// It does not begin with chassis, port and time to live (802.1AB clause 9.2.7.7.1).
    #[error("the first three TLVs are not chassis, port and time to live")]
    Begin,
    /// One of these, or a TLV of DCBX, cannot be read.
    #[error(transparent)]
    Tlv(#[from] LldpError),
}

impl<'a> Advertisement<'a> {
    /// Reads the payload of a frame. Of TLVs that come twice, the last one counts.
    ///
    /// # Errors
    /// The reason for which a receiver discards the frame.
    pub fn parse(payload: &'a [u8]) -> Result<Self, AdvertisementError> {
        let mut tlvs = LldpTlvs::new(payload);
        let mut next = || tlvs.next().transpose();
        let (Some(LldpTlv::Chassis(chassis, chassis_id)), Some(LldpTlv::Port(port, port_id))) =
            (next()?, next()?)
        else {
            return Err(AdvertisementError::Begin);
        };
        let Some(LldpTlv::TimeToLive(seconds)) = next()? else {
            return Err(AdvertisementError::Begin);
        };
        let mut read = Self {
            chassis: (chassis, chassis_id),
            port: (port, port_id),
            seconds,
            system: &[],
            ets: None,
            recommended: None,
            pfc: None,
            applications: None,
        };
        for tlv in tlvs {
            match tlv? {
                LldpTlv::SystemName(name) => read.system = name,
                LldpTlv::Ets(ets) if ets.recommendation => read.recommended = Some(ets),
                LldpTlv::Ets(ets) => read.ets = Some(ets),
                LldpTlv::Pfc(pfc) => read.pfc = Some(pfc),
                LldpTlv::Applications(applications) => read.applications = Some(applications),
                _ => {}
            }
        }
        Ok(read)
    }

    /// Whether the sender takes part in DCBX.
    pub const fn has_dcbx(&self) -> bool {
        self.ets.is_some()
            || self.recommended.is_some()
            || self.pfc.is_some()
            || self.applications.is_some()
    }
}

/// Whether a port operates with its peer's PFC configuration instead of its own (symmetric attribute
/// passing): it is willing and the peer is not, or both are and the peer's MAC address is the lower one.
pub fn takes_pfc(own: PfcTlv, own_mac: MacAddress, peer: PfcTlv, peer_mac: MacAddress) -> bool {
    own.willing && (!peer.willing || peer_mac < own_mac)
}

/// Whether a port operates with the ETS that its peer recommends instead of its own (asymmetric attribute
/// passing): it is willing, and there is a recommendation.
pub const fn takes_ets(own: &EtsTlv, recommended: Option<&EtsTlv>) -> bool {
    own.willing && recommended.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lldp::Tsa;

    const LOW: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const HIGH: MacAddress = MacAddress([2, 1, 0, 0, 0, 0]);

    fn pfc(willing: bool) -> PfcTlv {
        PfcTlv {
            willing,
            macsec_bypass: false,
            capability: 8,
            enabled: 1 << 3,
        }
    }

    #[test]
    fn one_end_at_most_takes_the_pfc_of_the_other() {
        // Whether the end with the lower address is willing, and the other one; which of both takes.
        for (willing, takes) in [
            ([false, false], [false, false]),
            ([true, false], [true, false]),
            ([false, true], [false, true]),
            ([true, true], [false, true]),
        ] {
            let [low, high] = willing.map(pfc);
            assert_eq!(
                [
                    takes_pfc(low, LOW, high, HIGH),
                    takes_pfc(high, HIGH, low, LOW)
                ],
                takes
            );
        }
    }

    #[test]
    fn ets_is_taken_only_where_it_is_recommended() {
        let ets = |willing| EtsTlv {
            recommendation: false,
            willing,
            credit_based: false,
            classes_max: 0,
            class_of_priority: [0; 8],
            bandwidth: [0; 8],
            tsa: [Tsa::Ets; 8],
        };
        let recommended = EtsTlv {
            recommendation: true,
            ..ets(false)
        };
        assert!(takes_ets(&ets(true), Some(&recommended)));
        assert!(!takes_ets(&ets(true), None) && !takes_ets(&ets(false), Some(&recommended)));
    }

    #[test]
    fn a_frame_begins_with_chassis_port_and_time_to_live() {
        let mut payload = [0; 64];
        let mut length = 0;
        let tlvs = [
            LldpTlv::Chassis(4, &[2, 0, 0, 0, 0, 1]),
            LldpTlv::Port(5, b"eth0"),
            LldpTlv::TimeToLive(121),
            LldpTlv::SystemName(b"leaf"),
            LldpTlv::Pfc(pfc(true)),
            LldpTlv::End,
        ];
        for tlv in tlvs {
            length += tlv.encode(&mut payload[length..]).expect("it fits");
        }
        let read = Advertisement::parse(&payload[..length]).expect("a frame");
        assert_eq!(
            (read.port, read.seconds, read.system),
            ((5, &b"eth0"[..]), 121, &b"leaf"[..])
        );
        assert!(read.pfc == Some(pfc(true)) && read.has_dcbx());
        assert_eq!(
            Advertisement::parse(&payload[9..length]),
            Err(AdvertisementError::Begin)
        );
        assert_eq!(Advertisement::parse(&[]), Err(AdvertisementError::Begin));
    }
}
