//! The tap of a live host: frames of its kernel, TCP and everything else that is not a device's.
//!
//! A frame follows the header of a virtual network device (`struct virtio_net_hdr`), which contains the
//! offloads that the sender's kernel has left: checksums are not computed, because the receiver's kernel
//! knows from the same header that the frame never left the machine.

use crate::frame::{Checksum, ETHERNET_BYTES, VNET_BYTES, class_of};
use crate::gso::{Cut, Merged};
use crate::ip_frames;
use crate::neighbours::{
    ETHERTYPE_ARP, ETHERTYPE_IPV6, Neighbours, arp_answer, is_news, solicited,
};
use crate::sys::interface;
use crate::tap_buffers::{Buffers, Slice};
use sim::world::Marking;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Bytes of the longest frame in the network, with the header before it.
pub(crate) const FRAME_MAX: usize = 9216;
/// Bytes that one read may give.
const READ_BYTES_MAX: usize = 66 << 10;

const ETHERTYPE_IPV4: [u8; 2] = [8, 0];
const ETHERTYPE_LLDP: [u8; 2] = [0x88, 0xcc];

/// Frames of LLDP that wait to be looked at, at most; further ones are dropped.
const LLDP_MAX: usize = 16;

/// Frames about unknown addresses that wait to be looked at, at most; further ones are dropped.
const UNKNOWN_MAX: usize = 16;

/// A frame that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Bytes that were written, the header before the frame included.
    pub(crate) length: usize,
    /// The rest of the frame, where that stays in the memory of the tap.
    pub(crate) payload: Option<Slice>,
    /// Bytes of the frame from the destination address to the last byte before the check sequence.
    pub(crate) wire_bytes: usize,
    /// DSCP and ECN.
    pub(crate) tos: u8,
    /// Protocol and ports, for switches that hash.
    pub(crate) hash: u32,
    /// Destination MAC address.
    pub(crate) destination: [u8; 6],
    /// Source MAC address.
    pub(crate) source: [u8; 6],
    /// Source IP address, IPv4 mapped.
    pub(crate) source_ip: Ipv6Addr,
}

/// The tap of a host, with the frame that is being taken from it.
#[derive(Debug)]
pub(crate) struct Tap {
    fd: OwnedFd,
    buffers: Buffers,
    /// Bytes of the frame in the buffer; 0 when it is empty.
    length: usize,
    /// How the packet is cut into segments, if it is longer than the MTU.
    cut: Option<Cut>,
    merged: Merged,
    /// The kernel has signalled a frame, or has taken one, and reading has not found the queue empty since:
    /// within the call that hands an acknowledgement to it, TCP sends what that has made room for.
    readable: bool,
    /// The interface has packets of IP alone: they come as frames without addresses.
    is_ip: bool,
    neighbours: Neighbours,
    /// Frames of LLDP, which are for the port of the switch and go no further.
    pub(crate) lldp: VecDeque<Vec<u8>>,
    /// Frames of ARP and neighbour discovery about addresses that are not known.
    pub(crate) unknown: VecDeque<Vec<u8>>,
}

impl Tap {
    pub(crate) fn new(fd: OwnedFd, neighbours: Neighbours) -> Self {
        Self {
            fd,
            buffers: Buffers::new(READ_BYTES_MAX),
            length: 0,
            cut: None,
            merged: Merged::default(),
            readable: true,
            is_ip: false,
            neighbours,
            lldp: VecDeque::new(),
            unknown: VecDeque::new(),
        }
    }

    /// The interface of IP over InfiniBand.
    pub(crate) fn of_ip(fd: OwnedFd) -> Self {
        Self {
            is_ip: true,
            ..Self::new(fd, Neighbours::default())
        }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Has the kernel see the cable plugged in or pulled.
    pub(crate) fn set_carrier(&self, on: bool) {
        interface::set_carrier(self.fd.as_raw_fd(), on);
    }

    /// Gives the kernel's interface another MAC address.
    pub(crate) fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        interface::set_mac_of_tap(self.fd.as_raw_fd(), mac)
    }

    /// Takes the addresses of other hosts.
    pub(crate) fn set_neighbours(&mut self, neighbours: Neighbours) {
        self.neighbours = neighbours;
    }

    /// The kernel has a frame.
    pub(crate) fn set_readable(&mut self) {
        self.readable = true;
    }

    /// Whether a frame waits, or may wait.
    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        self.length > 0 || self.readable
    }

    /// The class of the next frame, which is read if none was.
    pub(crate) fn next_class(&mut self, marks: &[Marking; 3]) -> Option<u8> {
        let tos = loop {
            self.read_frame()?;
            match tos(self.frame()) {
                Some(tos) => break tos,
                // A frame that ends before these bits goes no further, and holds up no other frame.
                None => (self.length, self.cut) = (0, None),
            }
        };
        Some(if tos >> 2 == 0 {
            0
        } else {
            class_of(marks, tos >> 2) & 7
        })
    }

    /// The next packet of an interface of IP, which is read if none was.
    pub(crate) fn next_packet(&mut self) -> Option<&[u8]> {
        self.read_frame()?;
        self.frame().get(ETHERNET_BYTES..)
    }

    /// Reads the next frame that the network may carry, if none was read; `None` if the kernel has none.
    fn read_frame(&mut self) -> Option<()> {
        while self.length == 0 {
            if !self.readable {
                return None;
            }
            let read = if self.is_ip {
                ip_frames::read
            } else {
                interface::read
            };
            match read(self.fd.as_raw_fd(), self.buffers.free()) {
                Some(length) => {
                    self.length = length;
                    self.cut = self.buffers.bytes().get(..length).and_then(Cut::of);
                }
                None => {
                    self.readable = false;
                    return None;
                }
            }
            if !self.is_ip && self.is_answered() {
                (self.length, self.cut) = (0, None);
            }
        }
        Some(())
    }

    fn frame(&self) -> &[u8] {
        self.buffers
            .bytes()
            .get(VNET_BYTES..self.length)
            .unwrap_or_default()
    }

    /// Takes the next frame, or the next segment of one; `None` for one that no network carries. The payload
    /// of a segment stays where it was read, unless all memory of the tap has such payloads.
    pub(crate) fn take(&mut self, out: &mut [u8]) -> Option<Taken> {
        let bytes = self.buffers.bytes().get(..self.length)?;
        let (mut length, mut payload, mut is_last) = (0, None, true);
        match &mut self.cut {
            Some(cut) => {
                if let Some(segment) = cut.next(bytes, out) {
                    (length, is_last) = (segment.headers, segment.is_last);
                    payload = self.buffers.slice(segment.payload.clone());
                    if payload.is_none() {
                        let end = length + segment.payload.len();
                        let copied = out.get_mut(length..end).zip(bytes.get(segment.payload));
                        match copied {
                            Some((room, payload)) => {
                                room.copy_from_slice(payload);
                                length = end;
                            }
                            None => (length, is_last) = (0, true),
                        }
                    }
                }
            }
            None => {
                let fits = out
                    .get_mut(..bytes.len())
                    .map(|out| out.copy_from_slice(bytes));
                length = fits.map_or(0, |()| bytes.len());
            }
        }
        if is_last {
            (self.length, self.cut) = (0, None);
        }
        let frame = out.get(VNET_BYTES..length)?;
        let (tos, hash, destination) = (tos(frame)?, hash(frame), *frame.first_chunk()?);
        let (source, source_ip) = (*frame.get(6..)?.first_chunk()?, source_ip(frame)?);
        let wire_bytes = frame.len() + payload.as_ref().map_or(0, Slice::len);
        Some(Taken {
            length,
            payload,
            wire_bytes,
            tos,
            hash,
            destination,
            source,
            source_ip,
        })
    }

    /// Hands a frame to the kernel, marked as switches left it; false when the kernel does not take it. The
    /// rest of the frame may be elsewhere.
    pub(crate) fn write_frame(
        &mut self,
        bytes: &mut [u8],
        payload: Option<&Slice>,
        tos: u8,
    ) -> bool {
        let Some((_, frame)) = bytes.split_at_mut_checked(VNET_BYTES) else {
            return false;
        };
        set_tos(frame, tos);
        if self.merged.add(bytes, payload) {
            return !self.merged.is_closed() || self.flush();
        }
        self.flush();
        if self.merged.add(bytes, payload) {
            return !self.merged.is_closed() || self.flush();
        }
        // The header passes unchanged: a checksum left to compute stays so, and a verified one stays valid.
        self.readable = true;
        let payload = payload.map_or(&[][..], Slice::bytes);
        let pieces = &[IoSlice::new(bytes), IoSlice::new(payload)];
        write(self.is_ip, self.fd.as_raw_fd(), pieces)
    }

    /// Hands a packet to the kernel as it was sent.
    pub(crate) fn put_packet(&mut self, bytes: &mut [u8], payload: Option<&Slice>) -> bool {
        let tos = bytes.get(VNET_BYTES..).and_then(tos);
        tos.is_some_and(|tos| self.write_frame(bytes, payload, tos))
    }

    /// Hands a frame to the kernel that the port of the switch, or the lab, made.
    pub(crate) fn put_control(&self, frame: &[u8]) {
        if self.is_ip {
            return;
        }
        interface::write(
            self.fd.as_raw_fd(),
            &[IoSlice::new(&[0; VNET_BYTES]), IoSlice::new(frame)],
        );
    }

    /// Passes on segments that were held back to be merged.
    pub(crate) fn flush(&mut self) -> bool {
        let (fd, is_ip) = (self.fd.as_raw_fd(), self.is_ip);
        let readable = &mut self.readable;
        self.merged.flush(|pieces| {
            *readable = true;
            write(is_ip, fd, pieces)
        })
    }

    /// Answers ARP requests and neighbour solicitations. True for frames that go no further.
    fn is_answered(&mut self) -> bool {
        let frame = self.frame();
        let answer = match frame.get(12..14) {
            Some(kind) if kind == ETHERTYPE_ARP => arp_answer(&self.neighbours, frame),
            Some(kind) if kind == ETHERTYPE_IPV6 => solicited(&self.neighbours, frame),
            Some(kind) if kind == ETHERTYPE_IPV4 => return false,
            Some(kind) if kind == ETHERTYPE_LLDP => {
                if self.lldp.len() < LLDP_MAX {
                    self.lldp.push_back(self.frame().to_vec());
                }
                return true;
            }
            _ => return true,
        };
        let ends_here = answer.is_some() || frame.get(12..14) == Some(&ETHERTYPE_ARP);
        if self.unknown.len() < UNKNOWN_MAX && is_news(&self.neighbours, frame) {
            self.unknown.push_back(self.frame().to_vec());
        }
        if let Some(answer) = answer {
            self.put_control(&answer);
        }
        ends_here
    }
}

fn write(is_ip: bool, fd: RawFd, pieces: &[IoSlice<'_>]) -> bool {
    if is_ip {
        ip_frames::write(fd, pieces)
    } else {
        interface::write(fd, pieces)
    }
}

/// DSCP and ECN of an IP packet in a frame.
fn tos(frame: &[u8]) -> Option<u8> {
    match *frame.get(12..16)? {
        [8, 0, _, tos] => Some(tos),
        [0x86, 0xdd, high, low] => Some(high << 4 | low >> 4),
        _ => None,
    }
}

/// The source address of an IP packet in a frame.
fn source_ip(frame: &[u8]) -> Option<Ipv6Addr> {
    match *frame.get(12..14)? {
        [8, 0] => {
            let address: [u8; 4] = *frame.get(ETHERNET_BYTES + 12..)?.first_chunk()?;
            Some(Ipv4Addr::from(address).to_ipv6_mapped())
        }
        _ => {
            let address: [u8; 16] = *frame.get(ETHERNET_BYTES + 8..)?.first_chunk()?;
            Some(Ipv6Addr::from(address))
        }
    }
}

/// Sets them, and the checksum of an IPv4 header.
pub(crate) fn set_tos(frame: &mut [u8], tos: u8) {
    let Some(head) = frame.get(12..16) else {
        return;
    };
    match *head {
        [8, 0, _, old] if old != tos => {
            frame[15] = tos;
            let Some(header) = frame.get_mut(ETHERNET_BYTES..ETHERNET_BYTES + 20) else {
                return;
            };
            header[10..12].fill(0);
            let mut sum = Checksum::default();
            sum.add(header);
            header[10..12].copy_from_slice(&sum.finish());
        }
        [0x86, 0xdd, high, low] => {
            frame[14] = high & 0xf0 | tos >> 4;
            frame[15] = low & 0x0f | tos << 4;
        }
        _ => {}
    }
}

/// Protocol and ports, mixed.
fn hash(frame: &[u8]) -> u32 {
    let (protocol, at) = match frame.get(12..14) {
        Some(kind) if kind == ETHERTYPE_IPV4 => (23, ETHERNET_BYTES + 20),
        _ => (20, ETHERNET_BYTES + 40),
    };
    let protocol = frame.get(protocol).copied().unwrap_or(0);
    let ports = frame
        .get(at..at + 4)
        .map_or([0; 4], |ports| [ports[0], ports[1], ports[2], ports[3]]);
    u32::from_be_bytes(ports).wrapping_mul(0x85eb_ca6b) ^ u32::from(protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_entry::host;
    use link::unix;

    /// A host may send any bytes (AF_PACKET): frames of every length up to 64 bytes and every type, then
    /// headers of segmentation by chance. A right frame behind each of them enters the network.
    #[test]
    fn no_frame_of_a_host_holds_up_the_next_one() {
        let [ours, theirs] = unix::message_pair().expect("a pair of sockets");
        unix::set_nonblocking(ours.as_raw_fd()).expect("a socket that does not block");
        let mut tap = Tap::new(ours, Neighbours::default());
        let send = |header: [u8; VNET_BYTES], frame: &[u8]| {
            let pieces = [IoSlice::new(&header), IoSlice::new(frame)];
            assert!(interface::write(theirs.as_raw_fd(), &pieces));
        };
        let right: Vec<u8> = (0..60)
            .map(|at| [8, 0, 0x45, 0x6a][(at as usize) % 4])
            .collect();
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u8
        };
        let types = [
            [8, 0],
            [0x86, 0xdd],
            [8, 6],
            [0x88, 0xcc],
            [0x81, 0],
            [0, 46],
        ];
        let mut out = vec![0; VNET_BYTES + (64 << 10)];
        for round in 0..8 {
            for length in 0..=64 {
                for kind in types {
                    let mut frame: Vec<u8> = (0..length).map(|_| random()).collect();
                    let place = frame.iter_mut().skip(12).zip(kind);
                    place.for_each(|(byte, kind)| *byte = kind);
                    let mut header = [0; VNET_BYTES];
                    if round > 0 {
                        header.fill_with(&mut random);
                    }
                    send(header, &frame);
                    send([0; VNET_BYTES], &right);
                    tap.set_readable();
                    let mut last = 0;
                    while tap.next_class(&host(0).marks).is_some() {
                        // Segments of a frame come one by one.
                        last = tap.take(&mut out).map_or(0, |taken| taken.wire_bytes);
                    }
                    assert_eq!(last, right.len(), "{header:?} {frame:?}");
                    // What the lab answered.
                    while unix::set_nonblocking(theirs.as_raw_fd()).is_ok()
                        && interface::read(theirs.as_raw_fd(), &mut [0; 2048]).is_some()
                    {
                    }
                }
            }
        }
    }

    #[test]
    fn a_kernel_that_was_handed_a_frame_may_have_one() {
        let [ours, _theirs] = unix::message_pair().expect("a pair of sockets");
        unix::set_nonblocking(ours.as_raw_fd()).expect("a socket that does not block");
        let mut tap = Tap::new(ours, Neighbours::default());
        assert!(tap.next_class(&host(0).marks).is_none() && !tap.has_frame());
        let mut frame = [0; VNET_BYTES + 64];
        frame[VNET_BYTES + 12..][..3].copy_from_slice(&[8, 0, 0x45]);
        tap.write_frame(&mut frame, None, 0);
        assert!(tap.has_frame());
    }
}
