//! Packets of an interface without link headers, as frames: the place of an Ethernet header is kept free
//! before them, so that they are cut and merged as frames are.

use crate::frame::{ETHERNET_BYTES, VNET_BYTES};
use crate::sys::interface;
use crate::tap_buffers::PIECES_MAX;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

/// The queue pair of every host's interface of IP over InfiniBand. Programs have others.
pub(crate) const QPN: u32 = 2;
/// Bytes before the packet: the header of a virtual network device, and the place of a link header.
pub(crate) const BEFORE_PACKET: usize = VNET_BYTES + ETHERNET_BYTES;
/// The flag of a packet whose checksum is to be computed.
const NEEDS_CHECKSUM: u8 = 1;
/// Where the type is in the place of the link header.
const TYPE_AT: usize = 12;

/// An IP packet as a frame that is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IpFrame(pub(crate) Vec<u8>);

impl AsRef<[u8]> for IpFrame {
    fn as_ref(&self) -> &[u8] {
        self.0.get(BEFORE_PACKET..).unwrap_or_default()
    }
}

impl IpFrame {
    /// A frame of this type, whose sums are all there.
    pub(crate) fn new(ether_type: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; BEFORE_PACKET];
        bytes[VNET_BYTES + TYPE_AT..].copy_from_slice(&ether_type.to_be_bytes());
        bytes.extend_from_slice(body);
        Self(bytes)
    }

    /// EtherType of the payload.
    pub(crate) fn ether_type(&self) -> u16 {
        ether_type(&self.0)
    }
}

/// What a frame carries.
pub(crate) fn ether_type(bytes: &[u8]) -> u16 {
    let place = bytes.get(VNET_BYTES + TYPE_AT..BEFORE_PACKET);
    place.map_or(0, |place| u16::from_be_bytes([place[0], place[1]]))
}

/// Reads a packet; the length is that of the frame.
pub(crate) fn read(tun: RawFd, buffer: &mut [u8]) -> Option<usize> {
    let (head, rest) = buffer.split_at_mut_checked(VNET_BYTES)?;
    let (link, packet) = rest.split_at_mut_checked(ETHERNET_BYTES)?;
    let places = &mut [IoSliceMut::new(head), IoSliceMut::new(packet)];
    let length = interface::read_into(tun, places)?;
    link.fill(0);
    let is_there = length > VNET_BYTES;
    let ether_type = match packet.first().filter(|_| is_there).map(|byte| byte >> 4) {
        Some(4) => [0x08, 0],
        Some(6) => [0x86, 0xdd],
        _ => [0, 0],
    };
    link[TYPE_AT..].copy_from_slice(&ether_type);
    move_offsets(head, |offset| offset.saturating_add(ETHERNET_BYTES as u16));
    // A packet without bytes is one that nothing carries.
    Some(length.max(VNET_BYTES) + ETHERNET_BYTES)
}

/// Writes a frame in pieces, of which the first has all headers.
pub(crate) fn write(tun: RawFd, pieces: &[IoSlice<'_>]) -> bool {
    let Some((first, others)) = pieces.split_first() else {
        return false;
    };
    let Some((head, packet)) = first.split_first_chunk::<VNET_BYTES>() else {
        return false;
    };
    let mut head = *head;
    move_offsets(&mut head, |offset| {
        offset.saturating_sub(ETHERNET_BYTES as u16)
    });
    let mut all = [IoSlice::new(&[]); PIECES_MAX + 2];
    all[0] = IoSlice::new(&head);
    all[1] = IoSlice::new(packet.get(ETHERNET_BYTES..).unwrap_or_default());
    let count = 2 + others.len().min(PIECES_MAX);
    all[2..count].copy_from_slice(&others[..count - 2]);
    interface::write(tun, &all[..count])
}

/// Offsets in the header of the device count from the beginning of what follows it: the length of the
/// headers, and where the checksum begins (virtio 1.2, 5.1.6).
fn move_offsets(head: &mut [u8], change: impl Fn(u16) -> u16) {
    let has = [(2, head[1] != 0), (6, head[0] & NEEDS_CHECKSUM != 0)];
    for (at, _) in has.into_iter().filter(|(_, has)| *has) {
        let offset = u16::from_le_bytes([head[at], head[at + 1]]);
        head[at..at + 2].copy_from_slice(&change(offset).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::unix;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_packet_is_written_as_it_was_read() {
        let [ours, theirs] = unix::message_pair().expect("a pair of sockets");
        let mut sent = vec![NEEDS_CHECKSUM, 1, 40, 0, 0xb4, 5, 20, 0, 16, 0];
        sent.extend([0x45; 60]);
        unix::send_now(theirs.as_raw_fd(), &sent).expect("a packet");
        let mut frame = vec![9; 200];
        let length = read(ours.as_raw_fd(), &mut frame).expect("a packet");
        assert_eq!(length, BEFORE_PACKET + 60);
        assert_eq!((frame[2], frame[6], ether_type(&frame)), (54, 34, 0x0800));
        assert_eq!(frame[BEFORE_PACKET..length], [0x45; 60]);
        let (one, other) = frame[..length].split_at(40);
        assert!(write(
            ours.as_raw_fd(),
            &[IoSlice::new(one), IoSlice::new(other)]
        ));
        let mut back = [0; 200];
        let length = unix::receive_now(theirs.as_raw_fd(), &mut back).expect("the packet");
        assert_eq!(back[..length], sent);
    }
}
