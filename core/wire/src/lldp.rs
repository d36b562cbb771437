//! LLDP frames (IEEE 802.1AB clause 8) and the TLVs of DCBX (802.1Q annex D.2.8 to D.2.11, which 802.1Qaz
//! added):
//! ETS configuration and recommendation, PFC, and application priorities. TLVs of the older CEE form of
//! DCBX are
//! recognised and not taken apart.

use crate::ethernet::MacAddress;

/// Where LLDP frames go: no bridge forwards them (802.1AB table 7-1).
pub const LLDP_DESTINATION: MacAddress = MacAddress([0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e]);

/// The organization of DCBX in 802.1Q's own form.
pub const OUI_8021: [u8; 3] = [0x00, 0x80, 0xc2];

/// The organization of DCBX in the form before 802.1Qaz (CEE).
pub const OUI_CEE: [u8; 3] = [0x00, 0x1b, 0x21];

/// Bytes of a TLV's value at most: the length field has nine bits.
pub const TLV_VALUE_MAX: usize = 511;

const TLV_HEADER: usize = 2;
const ORGANIZATION: u8 = 127;
const SUBTYPE_ETS: u8 = 0x09;
const SUBTYPE_ETS_RECOMMENDATION: u8 = 0x0a;
const SUBTYPE_PFC: u8 = 0x0b;
const SUBTYPE_APPLICATIONS: u8 = 0x0c;
const WILLING: u8 = 0x80;
const ETS_SIZE: usize = 21;
const PFC_SIZE: usize = 2;

/// Why a TLV cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LldpError {
    /// The frame ends within a TLV.
    #[error("the TLV at byte {at} ends after the frame")]
    Truncated {
        /// The position of the TLV in the frame's payload.
        at: usize,
    },
    /// A TLV of another length than its type has.
    #[error("a TLV of type {kind}, subtype {subtype}, has {length} bytes")]
    Length {
        /// The type of the TLV.
        kind: u8,
        /// The subtype, where it has one.
        subtype: u8,
        /// The length of the value in bytes.
        length: usize,
    },
}

/// How a traffic class is served (802.1Q table D-5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tsa {
    /// Strict priority, 0.
    Strict,
    /// The credit-based shaper, 1.
    CreditBased,
    /// Enhanced transmission selection, 2.
    Ets,
    /// Another value: 255 is the vendor's own.
    Other(u8),
}

impl Tsa {
    const fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Strict,
            1 => Self::CreditBased,
            2 => Self::Ets,
            other => Self::Other(other),
        }
    }

    const fn to_byte(self) -> u8 {
        match self {
            Self::Strict => 0,
            Self::CreditBased => 1,
            Self::Ets => 2,
            Self::Other(other) => other,
        }
    }
}

/// ETS configuration or recommendation (802.1Q D.2.8 and D.2.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EtsTlv {
    /// Whether it is a recommendation to the peer; then the next three fields have no meaning.
    pub recommendation: bool,
    /// Whether the sender takes the peer's recommendation.
    pub willing: bool,
    /// Whether the sender has the credit-based shaper.
    pub credit_based: bool,
    /// The number of traffic classes that the sender has; 0 encodes 8.
    pub classes_max: u8,
    /// Traffic class by priority.
    pub class_of_priority: [u8; 8],
    /// Percent of bandwidth by traffic class.
    pub bandwidth: [u8; 8],
    /// Transmission selection algorithm by traffic class.
    pub tsa: [Tsa; 8],
}

/// PFC configuration (802.1Q D.2.10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PfcTlv {
    /// Whether the sender takes the peer's setting.
    pub willing: bool,
    /// Whether MACsec is bypassed, so that the sender may stop late.
    pub macsec_bypass: bool,
    /// How many priorities may have PFC at once.
    pub capability: u8,
    /// Priorities with PFC, one bit each.
    pub enabled: u8,
}

/// An entry of the application priority TLV (802.1Q D.2.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Application {
    /// The priority of the application's packets.
    pub priority: u8,
    /// The meaning of `protocol`: 1 EtherType, 2 TCP or SCTP port, 3 UDP or DCCP port, 4 any of these
    /// ports, 5 DSCP.
    pub selector: u8,
    /// The protocol: 4791 with selector 3 is RoCEv2.
    pub protocol: u16,
}

/// Entries of an application priority TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applications<'a>(&'a [u8]);

impl<'a> Applications<'a> {
    /// Entries from their bytes, three each.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The entries in order.
    pub fn iter(self) -> impl Iterator<Item = Application> + 'a {
        self.0.chunks_exact(3).map(|entry| Application {
            priority: entry[0] >> 5,
            selector: entry[0] & 7,
            protocol: u16::from_be_bytes([entry[1], entry[2]]),
        })
    }
}

impl Application {
    /// The three bytes of an entry.
    pub const fn to_bytes(self) -> [u8; 3] {
        let [high, low] = self.protocol.to_be_bytes();
        [self.priority << 5 | self.selector & 7, high, low]
    }
}

/// One TLV of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LldpTlv<'a> {
    /// The end of the list (type 0).
    End,
    /// Chassis ID (type 1): its subtype, 4 for a MAC address, and the identifier.
    Chassis(u8, &'a [u8]),
    /// Port ID (type 2): its subtype, 5 for an interface's name, and the identifier.
    Port(u8, &'a [u8]),
    /// Seconds for which the information is valid (type 3).
    TimeToLive(u16),
    /// Port description (type 4).
    PortDescription(&'a [u8]),
    /// System name (type 5).
    SystemName(&'a [u8]),
    /// ETS configuration, or recommendation.
    Ets(EtsTlv),
    /// The PFC configuration of the sender.
    Pfc(PfcTlv),
    /// Priorities of applications.
    Applications(Applications<'a>),
    /// A TLV of another organization, or another of 802.1: OUI, subtype and value.
    Organization([u8; 3], u8, &'a [u8]),
    /// A TLV of another type: type and value.
    Other(u8, &'a [u8]),
}

/// The TLVs of a frame, from the bytes behind its Ethernet header.
#[derive(Clone, Copy, Debug)]
pub struct LldpTlvs<'a> {
    bytes: &'a [u8],
    at: usize,
    ended: bool,
}

impl<'a> LldpTlvs<'a> {
    /// The TLVs of a frame's payload.
    pub const fn new(payload: &'a [u8]) -> Self {
        Self {
            bytes: payload,
            at: 0,
            ended: false,
        }
    }
}

impl<'a> Iterator for LldpTlvs<'a> {
    type Item = Result<LldpTlv<'a>, LldpError>;

    /// The next TLV; nothing after the end TLV, after the frame, or after a TLV that ends behind the frame.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || self.at >= self.bytes.len() {
            return None;
        }
        let rest = &self.bytes[self.at..];
        let value = rest
            .split_first_chunk::<TLV_HEADER>()
            .and_then(|(header, rest)| {
                let header = u16::from_be_bytes(*header);
                Some((
                    (header >> 9) as u8,
                    rest.get(..usize::from(header & 0x1ff))?,
                ))
            });
        let Some((kind, value)) = value else {
            self.ended = true;
            return Some(Err(LldpError::Truncated { at: self.at }));
        };
        self.at += TLV_HEADER + value.len();
        let tlv = parse(kind, value);
        self.ended = tlv == Ok(LldpTlv::End);
        Some(tlv)
    }
}

fn parse(kind: u8, value: &[u8]) -> Result<LldpTlv<'_>, LldpError> {
    let wrong = |subtype| LldpError::Length {
        kind,
        subtype,
        length: value.len(),
    };
    let identifier = || {
        value
            .split_first()
            .map(|(subtype, id)| (*subtype, id))
            .ok_or(wrong(0))
    };
    match kind {
        0 if value.is_empty() => Ok(LldpTlv::End),
        1 => identifier().map(|(subtype, id)| LldpTlv::Chassis(subtype, id)),
        2 => identifier().map(|(subtype, id)| LldpTlv::Port(subtype, id)),
        3 => match value {
            [high, low] => Ok(LldpTlv::TimeToLive(u16::from_be_bytes([*high, *low]))),
            _ => Err(wrong(0)),
        },
        4 => Ok(LldpTlv::PortDescription(value)),
        5 => Ok(LldpTlv::SystemName(value)),
        ORGANIZATION => {
            let ([a, b, c, subtype], rest) = value.split_first_chunk::<4>().ok_or(wrong(0))?;
            organization([*a, *b, *c], *subtype, rest, wrong(*subtype))
        }
        _ => Ok(LldpTlv::Other(kind, value)),
    }
}

fn organization(
    oui: [u8; 3],
    subtype: u8,
    rest: &[u8],
    wrong: LldpError,
) -> Result<LldpTlv<'_>, LldpError> {
    if oui != OUI_8021 {
        return Ok(LldpTlv::Organization(oui, subtype, rest));
    }
    match subtype {
        SUBTYPE_ETS | SUBTYPE_ETS_RECOMMENDATION => {
            let bytes: &[u8; ETS_SIZE] = rest.try_into().map_err(|_| wrong)?;
            Ok(LldpTlv::Ets(ets(
                bytes,
                subtype == SUBTYPE_ETS_RECOMMENDATION,
            )))
        }
        SUBTYPE_PFC => {
            let [flags, enabled]: [u8; PFC_SIZE] = rest.try_into().map_err(|_| wrong)?;
            Ok(LldpTlv::Pfc(PfcTlv {
                willing: flags & WILLING != 0,
                macsec_bypass: flags & 0x40 != 0,
                capability: flags & 0x0f,
                enabled,
            }))
        }
        SUBTYPE_APPLICATIONS => match rest.split_first() {
            Some((_, entries)) if entries.len().is_multiple_of(3) => {
                Ok(LldpTlv::Applications(Applications(entries)))
            }
            _ => Err(wrong),
        },
        _ => Ok(LldpTlv::Organization(oui, subtype, rest)),
    }
}

fn ets(bytes: &[u8; ETS_SIZE], recommendation: bool) -> EtsTlv {
    let mut ets = EtsTlv {
        recommendation,
        willing: !recommendation && bytes[0] & WILLING != 0,
        credit_based: !recommendation && bytes[0] & 0x40 != 0,
        classes_max: if recommendation { 0 } else { bytes[0] & 7 },
        class_of_priority: [0; 8],
        bandwidth: [0; 8],
        tsa: [Tsa::Strict; 8],
    };
    for priority in 0..8 {
        // Two priorities a byte, the lower one in the upper half.
        let pair = bytes[1 + priority / 2];
        ets.class_of_priority[priority] = if priority % 2 == 0 {
            pair >> 4
        } else {
            pair & 15
        };
        ets.bandwidth[priority] = bytes[5 + priority];
        ets.tsa[priority] = Tsa::from_byte(bytes[13 + priority]);
    }
    ets
}

impl LldpTlv<'_> {
    /// Writes the TLV; returns its length, or nothing where it does not fit.
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        match *self {
            Self::End => put_tlv(out, 0, &[]),
            Self::Chassis(subtype, id) => put_tlv(out, 1, &[&[subtype], id]),
            Self::Port(subtype, id) => put_tlv(out, 2, &[&[subtype], id]),
            Self::TimeToLive(seconds) => put_tlv(out, 3, &[&seconds.to_be_bytes()]),
            Self::PortDescription(text) => put_tlv(out, 4, &[text]),
            Self::SystemName(text) => put_tlv(out, 5, &[text]),
            Self::Ets(ets) => {
                let subtype = if ets.recommendation {
                    SUBTYPE_ETS_RECOMMENDATION
                } else {
                    SUBTYPE_ETS
                };
                put_tlv(out, ORGANIZATION, &[&OUI_8021, &[subtype], &ets.to_bytes()])
            }
            Self::Pfc(pfc) => {
                let flags = u8::from(pfc.willing) << 7
                    | u8::from(pfc.macsec_bypass) << 6
                    | pfc.capability & 15;
                put_tlv(
                    out,
                    ORGANIZATION,
                    &[&OUI_8021, &[SUBTYPE_PFC, flags, pfc.enabled]],
                )
            }
            Self::Applications(Applications(entries)) => put_tlv(
                out,
                ORGANIZATION,
                &[&OUI_8021, &[SUBTYPE_APPLICATIONS, 0], entries],
            ),
            Self::Organization(oui, subtype, value) => {
                put_tlv(out, ORGANIZATION, &[&oui, &[subtype], value])
            }
            Self::Other(kind, value) => put_tlv(out, kind, &[value]),
        }
    }
}

impl EtsTlv {
    fn to_bytes(self) -> [u8; ETS_SIZE] {
        let mut bytes = [0; ETS_SIZE];
        if !self.recommendation {
            bytes[0] = u8::from(self.willing) << 7
                | u8::from(self.credit_based) << 6
                | self.classes_max & 7;
        }
        for priority in 0..8 {
            let class = self.class_of_priority[priority] & 15;
            bytes[1 + priority / 2] |= if priority % 2 == 0 { class << 4 } else { class };
            bytes[5 + priority] = self.bandwidth[priority];
            bytes[13 + priority] = self.tsa[priority].to_byte();
        }
        bytes
    }
}

fn put_tlv(out: &mut [u8], kind: u8, parts: &[&[u8]]) -> Option<usize> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if length > TLV_VALUE_MAX {
        return None;
    }
    let out = out.get_mut(..TLV_HEADER + length)?;
    let header = u16::from(kind) << 9 | length as u16;
    out[..TLV_HEADER].copy_from_slice(&header.to_be_bytes());
    let mut at = TLV_HEADER;
    for part in parts {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PFC: PfcTlv = PfcTlv {
        willing: false,
        macsec_bypass: false,
        capability: 8,
        enabled: 1 << 3,
    };

    fn ets(recommendation: bool) -> EtsTlv {
        let mut tsa = [Tsa::Ets; 8];
        (tsa[6], tsa[7]) = (Tsa::Strict, Tsa::Other(255));
        EtsTlv {
            recommendation,
            willing: !recommendation,
            credit_based: false,
            classes_max: 0,
            class_of_priority: [0, 0, 0, 3, 0, 0, 6, 7],
            bandwidth: [50, 0, 0, 50, 0, 0, 0, 0],
            tsa,
        }
    }

    #[test]
    fn every_tlv_reads_back() {
        let entry = Application {
            priority: 3,
            selector: 3,
            protocol: 4791,
        }
        .to_bytes();
        let tlvs = [
            LldpTlv::Chassis(4, &[2, 0, 0, 0, 0, 1]),
            LldpTlv::Port(5, b"eth0"),
            LldpTlv::TimeToLive(120),
            LldpTlv::PortDescription(b"uplink"),
            LldpTlv::SystemName(b"leaf1"),
            LldpTlv::Ets(ets(false)),
            LldpTlv::Ets(ets(true)),
            LldpTlv::Pfc(PFC),
            LldpTlv::Applications(Applications::new(&entry)),
            LldpTlv::Organization(OUI_CEE, 2, &[1, 2, 3]),
            LldpTlv::Other(8, &[1; 300]),
            LldpTlv::End,
        ];
        let mut frame = [0; 1500];
        let mut length = 0;
        for tlv in tlvs {
            length += tlv.encode(&mut frame[length..]).expect("it fits");
        }
        // Padding of a short frame follows the end.
        assert!(LldpTlvs::new(&frame[..length + 10]).eq(tlvs.map(Ok)));
        let LldpTlv::Applications(found) = tlvs[8] else {
            unreachable!("it is the ninth")
        };
        assert!(found.iter().eq([Application {
            priority: 3,
            selector: 3,
            protocol: 4791
        }]));
    }

    #[test]
    fn the_pfc_tlv_has_the_bytes_of_the_standard() {
        let mut bytes = [0; 8];
        assert_eq!(LldpTlv::Pfc(PFC).encode(&mut bytes), Some(8));
        assert_eq!(bytes, [0xfe, 0x06, 0x00, 0x80, 0xc2, 0x0b, 0x08, 0x08]);
    }

    #[test]
    fn what_ends_early_is_an_error_and_the_last() {
        let mut tlvs = LldpTlvs::new(&[0xfe, 0x06, 0x00]);
        assert_eq!(tlvs.next(), Some(Err(LldpError::Truncated { at: 0 })));
        assert_eq!(tlvs.next(), None);
        let short = [0xfe, 0x05, 0x00, 0x80, 0xc2, 0x0b, 0x08, 0x00, 0x00];
        let error = LldpError::Length {
            kind: 127,
            subtype: 0x0b,
            length: 5,
        };
        assert!(LldpTlvs::new(&short).eq([Err(error), Ok(LldpTlv::End)]));
    }
}
