//! Neighbour resolution: the lab answers ARP requests and neighbour solicitations of kernels, notifies them
//! of a MAC address that has changed, and hears which other addresses they use.

use crate::frame::{Checksum, ETHERNET_BYTES};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Type of ARP frames.
pub(crate) const ETHERTYPE_ARP: [u8; 2] = [8, 6];
/// Type of IPv6 frames.
pub(crate) const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// The protocol number of ICMPv6.
const ICMPV6: u8 = 58;
/// Types of ICMPv6 messages (RFC 4861, 4.3 and 4.4).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Flags of an advertisement.
const SOLICITED: u8 = 0x40;
const OVERRIDES: u8 = 0x20;
/// Bytes of an ARP frame, padded to the shortest that there is.
const ARP_BYTES: usize = 60;

/// The addresses of a host in the neighbour tables of other kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HostAddresses {
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    pub(crate) link_local: Ipv6Addr,
    pub(crate) mac: [u8; 6],
}

/// The live hosts of one VLAN.
pub(crate) type Neighbours = std::sync::Arc<[HostAddresses]>;

impl HostAddresses {
    /// The frames that notify kernels of a changed MAC address: an ARP announcement (RFC 5227, 3), and
    /// unsolicited neighbour advertisements (RFC 4861, 7.2.6).
    pub(crate) fn announcements(&self) -> [Vec<u8>; 3] {
        let mut arp = arp_frame(1, [0xff; 6], self.mac, self.v4);
        arp[38..42].copy_from_slice(&self.v4.octets());
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let advertised = |address: Ipv6Addr| {
            advertisement(
                OVERRIDES,
                ([0x33, 0x33, 0, 0, 0, 1], all_nodes),
                self.mac,
                address,
            )
        };
        [arp, advertised(self.v6), advertised(self.link_local)]
    }
}

/// What a frame of ARP or neighbour discovery says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    /// The address that its sender has or claims.
    pub(crate) sender: Option<IpAddr>,
    /// The MAC address of its sender.
    pub(crate) mac: [u8; 6],
    /// The address that it is about.
    pub(crate) target: IpAddr,
    pub(crate) said: HeardKind,
}

/// The kind of such a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeardKind {
    /// An ARP request or a neighbour solicitation.
    Asks,
    /// The sender has it: to this MAC address.
    Answers([u8; 6]),
    /// The sender has it: to nobody in particular, or in a packet that finds its way by itself.
    Announces,
}

/// Reads a frame of ARP, or a solicitation or advertisement of a neighbour.
pub(crate) fn heard(frame: &[u8]) -> Option<Heard> {
    match *frame.get(12..14)?.first_chunk()? {
        ETHERTYPE_ARP => heard_arp(frame),
        ETHERTYPE_IPV6 => heard_neighbour(frame),
        _ => None,
    }
}

fn heard_arp(frame: &[u8]) -> Option<Heard> {
    let packet = frame.get(ETHERNET_BYTES..ETHERNET_BYTES + 28)?;
    // Ethernet and IPv4, with addresses of their lengths.
    if packet[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*packet[at..].first_chunk::<4>()?));
    let (sender, target) = (address(14)?, address(24)?);
    let to = *packet[18..].first_chunk::<6>()?;
    let said = match packet[7] {
        _ if sender == target => HeardKind::Announces,
        1 => HeardKind::Asks,
        2 => HeardKind::Answers(to),
        _ => return None,
    };
    Some(Heard {
        // A probe has none yet (RFC 5227, 2.1).
        sender: Some(sender)
            .filter(|sender| !sender.is_unspecified())
            .map(IpAddr::V4),
        mac: *packet[8..].first_chunk()?,
        target: IpAddr::V4(target),
        said,
    })
}

fn heard_neighbour(frame: &[u8]) -> Option<Heard> {
    let (ip, body) = frame.get(ETHERNET_BYTES..)?.split_at_checked(40)?;
    if ip[6] != ICMPV6 {
        return None;
    }
    let target = Ipv6Addr::from(*body.get(8..)?.first_chunk::<16>()?);
    let from = Ipv6Addr::from(*ip[8..].first_chunk::<16>()?);
    let (sender, said) = match *body.first()? {
        // Without a source it asks for its own address (RFC 4862, 5.4.2).
        SOLICITATION if from.is_unspecified() => (target, HeardKind::Asks),
        SOLICITATION => (from, HeardKind::Asks),
        ADVERTISEMENT => (target, HeardKind::Announces),
        _ => return None,
    };
    Some(Heard {
        sender: Some(IpAddr::V6(sender)),
        mac: *frame.get(6..)?.first_chunk()?,
        target: IpAddr::V6(target),
        said,
    })
}

/// Whether a frame says something of an address that no host is known to have.
pub(crate) fn is_news(neighbours: &[HostAddresses], frame: &[u8]) -> bool {
    let is_known = |address: IpAddr| match address {
        IpAddr::V4(v4) => neighbours.iter().any(|one| one.v4 == v4),
        IpAddr::V6(v6) => neighbours
            .iter()
            .any(|one| one.v6 == v6 || one.link_local == v6),
    };
    heard(frame).is_some_and(|heard| {
        let of_sender = heard.sender.is_some_and(|sender| !is_known(sender));
        let is_passed_on = matches!(heard.said, HeardKind::Answers(_));
        of_sender || is_passed_on || (heard.said == HeardKind::Asks && !is_known(heard.target))
    })
}

/// The answer to an ARP request for the address of another host (RFC 826).
pub(crate) fn arp_answer(neighbours: &[HostAddresses], frame: &[u8]) -> Option<Vec<u8>> {
    let packet = frame.get(ETHERNET_BYTES..ETHERNET_BYTES + 28)?;
    let target: [u8; 4] = packet.get(24..28)?.try_into().ok()?;
    let HostAddresses { mac, v4, .. } = neighbours.iter().find(|one| one.v4.octets() == target)?;
    let asks = packet[6..8] == [0, 1] && packet[14..18] != target;
    if !asks {
        return None;
    }
    let mut answer = arp_frame(2, *packet[8..].first_chunk()?, *mac, *v4);
    answer[32..42].copy_from_slice(&packet[8..18]);
    Some(answer)
}

/// An ARP frame without its target addresses.
fn arp_frame(operation: u8, to: [u8; 6], mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0; ARP_BYTES];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&ETHERTYPE_ARP);
    frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
    frame[22..28].copy_from_slice(&mac);
    frame[28..32].copy_from_slice(&address.octets());
    frame
}

/// The answer to a neighbour solicitation.
pub(crate) fn solicited(neighbours: &[HostAddresses], frame: &[u8]) -> Option<Vec<u8>> {
    let (ip, body) = frame.get(ETHERNET_BYTES..)?.split_at_checked(40)?;
    if frame.get(12..14)? != ETHERTYPE_IPV6 || ip[6] != ICMPV6 || *body.first()? != SOLICITATION {
        return None;
    }
    let target = Ipv6Addr::from(*body.get(8..)?.first_chunk::<16>()?);
    let found = neighbours
        .iter()
        .find(|one| one.v6 == target || one.link_local == target)?;
    let from = Ipv6Addr::from(*ip[8..].first_chunk::<16>()?);
    let to = (*frame.get(6..)?.first_chunk()?, from);
    Some(advertisement(SOLICITED | OVERRIDES, to, found.mac, target))
}

/// A neighbour advertisement to a MAC address and an IP address.
fn advertisement(flags: u8, to: ([u8; 6], Ipv6Addr), mac: [u8; 6], target: Ipv6Addr) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_BYTES + 40 + 32];
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV6);
    frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 32, 58, 255]);
    frame[22..38].copy_from_slice(&target.octets());
    frame[38..54].copy_from_slice(&to.1.octets());
    frame[54..62].copy_from_slice(&[ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
    frame[62..78].copy_from_slice(&target.octets());
    frame[78..80].copy_from_slice(&[2, 1]);
    frame[80..].copy_from_slice(&mac);
    let mut sum = Checksum::default();
    sum.add(&frame[22..54]);
    sum.add(&[0, 0, 0, 32, 0, 0, 0, 58]);
    sum.add(&frame[54..]);
    frame[56..58].copy_from_slice(&sum.finish());
    frame
}
