//! Segmentation of the kernel's long TCP frames before the first switch, and their merging after the last.
//!
//! A tap passes up to 64 KiB as one frame, with the length that segments are to have in the header of the
//! virtual network device (virtio 1.2, 5.1.6). Switches, queues and marks act on frames of the MTU.
//! Checksums of segments stay partial, as the kernel passed them: a sum over the pseudo header alone.

use crate::frame::{Checksum, ETHERNET_BYTES, VNET_BYTES};
use crate::tap_buffers::{PIECES_MAX, Pieces, Slice};
use std::io::IoSlice;
use std::ops::Range;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
/// Flag of the type of segmentation: the first segment alone carries CWR (RFC 3168, 6.1.2).
const GSO_ECN: u8 = 0x80;
const TCP: u8 = 6;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;
/// Bytes of a merged frame at most: below the longest IPv4 packet, of 65,535 bytes.
const MERGED_MAX: usize = 65_000;

/// Where the parts of a TCP frame begin, counted from the Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    tcp: usize,
    payload: usize,
    is_v6: bool,
}

fn layout(frame: &[u8]) -> Option<Layout> {
    let kind = frame.get(12..14)?;
    let (tcp, is_v6) = match kind {
        [8, 0] => (ETHERNET_BYTES + usize::from(frame.get(14)? & 15) * 4, false),
        [0x86, 0xdd] => (ETHERNET_BYTES + 40, true),
        _ => return None,
    };
    let protocol = if is_v6 {
        frame.get(20)?
    } else {
        frame.get(23)?
    };
    let words = frame.get(tcp + 12)? >> 4;
    let payload = tcp + usize::from(words) * 4;
    let is_valid =
        *protocol == TCP && tcp >= ETHERNET_BYTES + 20 && words >= 5 && payload <= frame.len();
    is_valid.then_some(Layout {
        tcp,
        payload,
        is_v6,
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| {
        u32::from_be_bytes([word[0], word[1], word[2], word[3]])
    })
}

/// Sets the lengths of a frame that begins with these headers, and its checksums: of IPv4 whole, of TCP over
/// the pseudo header.
fn finish(frame: &mut [u8], at: Layout, payload: usize) {
    let ip_bytes = (at.payload - ETHERNET_BYTES + payload) as u16;
    let tcp_bytes = (at.payload - at.tcp + payload) as u16;
    let mut sum = Checksum::default();
    if at.is_v6 {
        frame[18..20].copy_from_slice(&(ip_bytes - 40).to_be_bytes());
        sum.add(&frame[22..54]);
    } else {
        frame[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
        frame[24..26].fill(0);
        let mut header = Checksum::default();
        header.add(&frame[ETHERNET_BYTES..at.tcp]);
        frame[24..26].copy_from_slice(&header.finish());
        sum.add(&frame[26..34]);
    }
    sum.add(&[0, TCP]);
    sum.add(&tcp_bytes.to_be_bytes());
    frame[at.tcp + 16..at.tcp + 18].copy_from_slice(&sum.folded().to_be_bytes());
}

/// A segment of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Bytes of its headers, that of the virtual network device included.
    pub(crate) headers: usize,
    /// Place of the packet's payload in what was read.
    pub(crate) payload: Range<usize>,
    pub(crate) is_last: bool,
}

/// A long frame that is cut into segments, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    layout: Layout,
    segment: usize,
    /// Segments that were made.
    made: usize,
}

impl Cut {
    /// How the frame behind a header is to be cut; `None` for a frame that goes as it is.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (head, frame) = bytes.split_at_checked(VNET_BYTES)?;
        let segment = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let layout = layout(frame)?;
        let is_tcp = matches!(head[1] & !GSO_ECN, GSO_TCP_V4 | GSO_TCP_V6);
        (is_tcp && segment > 0 && frame.len() - layout.payload > segment).then_some(Self {
            layout,
            segment,
            made: 0,
        })
    }

    /// Writes the headers of the next segment to `out`, which the segment has to fit. `None` where it does
    /// not.
    pub(crate) fn next(&mut self, bytes: &[u8], out: &mut [u8]) -> Option<Segment> {
        let (head, frame) = bytes.split_at_checked(VNET_BYTES)?;
        let Layout {
            tcp,
            payload,
            is_v6,
        } = self.layout;
        let begin = payload + self.made * self.segment;
        let end = (begin + self.segment).min(frame.len());
        let (is_first, is_last) = (self.made == 0, end == frame.len());
        let length = end.checked_sub(begin)?;
        let out = out.get_mut(..VNET_BYTES + payload + length)?;
        let (out_head, segment) = out[..VNET_BYTES + payload].split_at_mut(VNET_BYTES);
        out_head.fill(0);
        out_head[0] = NEEDS_CHECKSUM;
        out_head[6..10].copy_from_slice(&head[6..10]);
        segment.copy_from_slice(&frame[..payload]);
        let sequence = word(frame, tcp + 4).wrapping_add((self.made * self.segment) as u32);
        segment[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        if !is_first {
            segment[tcp + 13] &= !CWR;
        }
        if !is_last {
            segment[tcp + 13] &= !(FIN | PSH);
        }
        if !is_v6 {
            let id = u16::from_be_bytes([frame[18], frame[19]]).wrapping_add(self.made as u16);
            segment[18..20].copy_from_slice(&id.to_be_bytes());
        }
        finish(segment, self.layout, length);
        self.made += 1;
        let payload = VNET_BYTES + begin..VNET_BYTES + end;
        Some(Segment {
            headers: VNET_BYTES + self.layout.payload,
            payload,
            is_last,
        })
    }
}

/// Segments of one flow that follow each other, about to be handed to the kernel as one frame.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// The headers of the first one.
    headers: Vec<u8>,
    payload: Pieces,
    layout: Option<Layout>,
    segment: usize,
    count: usize,
    next: u32,
}

impl Merged {
    /// Adds a frame, of which a part of the payload may be elsewhere; false where it does not continue what
    /// is here.
    pub(crate) fn add(&mut self, bytes: &[u8], slice: Option<&Slice>) -> bool {
        let Some((head, frame)) = bytes.split_at_checked(VNET_BYTES) else {
            return false;
        };
        let Some(layout) = layout(frame) else {
            return false;
        };
        let own = &frame[layout.payload..];
        let length = own.len() + slice.map_or(0, Slice::len);
        let flags = frame[layout.tcp + 13];
        if head[0] & NEEDS_CHECKSUM == 0 || head[1] != 0 || length == 0 || flags & !PSH != ACK {
            return false;
        }
        let sequence = word(frame, layout.tcp + 4);
        if self.count == 0 {
            self.headers
                .extend_from_slice(&bytes[..VNET_BYTES + layout.payload]);
            (self.layout, self.segment, self.count) = (Some(layout), length, 1);
        } else {
            let continues = self.layout == Some(layout)
                && sequence == self.next
                && length <= self.segment
                && self.headers.len() + self.payload.len() + length <= MERGED_MAX
                && self.payload.has_room()
                && same_headers(&self.headers[VNET_BYTES..], frame, layout);
            if !continues {
                return false;
            }
            self.headers[VNET_BYTES + layout.tcp + 13] |= flags & PSH;
            self.count += 1;
        }
        self.payload.copy(own);
        if let Some(slice) = slice {
            self.payload.push(slice);
        }
        self.next = sequence.wrapping_add(length as u32);
        true
    }

    /// Whether nothing can follow: the segments have PSH set, or the last one was shorter.
    pub(crate) fn is_closed(&self) -> bool {
        let Some(layout) = self.layout else {
            return false;
        };
        let is_pushed = self.headers[VNET_BYTES + layout.tcp + 13] & PSH != 0;
        is_pushed || self.payload.len() != self.count * self.segment
    }

    /// Passes on what is here, and begins anew.
    pub(crate) fn flush(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> bool) -> bool {
        let Some(layout) = self.layout.take() else {
            return true;
        };
        if self.count > 1 {
            let (head, frame) = self.headers.split_at_mut(VNET_BYTES);
            head[1] = if layout.is_v6 { GSO_TCP_V6 } else { GSO_TCP_V4 };
            head[2..4].copy_from_slice(&(layout.payload as u16).to_le_bytes());
            head[4..6].copy_from_slice(&(self.segment as u16).to_le_bytes());
            finish(frame, layout, self.payload.len());
        }
        let mut all = [IoSlice::new(&[]); PIECES_MAX + 1];
        all[0] = IoSlice::new(&self.headers);
        let count = 1 + self.payload.fill(&mut all[1..]);
        let written = write(&all[..count]);
        self.headers.clear();
        self.payload.clear();
        self.count = 0;
        written
    }
}

/// Whether two frames differ in nothing but lengths, identification, sequence numbers and checksums.
fn same_headers(one: &[u8], other: &[u8], at: Layout) -> bool {
    let ip = if at.is_v6 {
        [0..18, 18..18, 20..at.tcp + 4]
    } else {
        [0..16, 20..24, 26..at.tcp + 4]
    };
    let tcp = [
        at.tcp + 8..at.tcp + 13,
        at.tcp + 14..at.tcp + 16,
        at.tcp + 18..at.payload,
    ];
    let mut ranges = ip.into_iter().chain(tcp);
    ranges.all(|range| one.get(range.clone()) == other.get(range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// A frame of IPv4 or IPv6 with `payload` bytes, that is to be cut into segments of 1448.
    fn long(payload: usize, is_v6: bool) -> Vec<u8> {
        let ip = if is_v6 { 40 } else { 20 };
        let mut frame = vec![0; ETHERNET_BYTES + ip + 32];
        frame[12..14].copy_from_slice(if is_v6 { &[0x86, 0xdd] } else { &[8, 0] });
        frame[14] = if is_v6 { 0x60 } else { 0x45 };
        frame[if is_v6 { 20 } else { 23 }] = TCP;
        let tcp = ETHERNET_BYTES + ip;
        frame[tcp + 4..tcp + 8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
        (frame[tcp + 12], frame[tcp + 13]) = (8 << 4, ACK | PSH);
        frame.extend((0..payload).map(|byte| (byte % 251) as u8));
        let layout = layout(&frame).unwrap();
        finish(&mut frame, layout, payload);
        let mut bytes = vec![NEEDS_CHECKSUM, if is_v6 { GSO_TCP_V6 } else { GSO_TCP_V4 }];
        bytes.extend(((tcp + 32) as u16).to_le_bytes());
        bytes.extend(1448_u16.to_le_bytes());
        bytes.extend((tcp as u16).to_le_bytes());
        bytes.extend(16_u16.to_le_bytes());
        bytes.extend(frame);
        bytes
    }

    fn segments(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut cut = Cut::of(bytes).unwrap();
        let mut all = Vec::new();
        loop {
            let mut out = vec![0; 9216];
            let segment = cut.next(bytes, &mut out).unwrap();
            out.truncate(segment.headers);
            out.extend_from_slice(&bytes[segment.payload]);
            all.push(out);
            if segment.is_last {
                return all;
            }
        }
    }

    #[test]
    fn what_was_cut_is_merged_to_the_same_frame() {
        for (payload, is_v6) in [(10_000, false), (60_000, true), (1449, false), (2896, true)] {
            let bytes = long(payload, is_v6);
            let all = segments(&bytes);
            assert_eq!(all.len(), payload.div_ceil(1448));
            let whole: Rc<[u8]> = bytes.as_slice().into();
            // Copied, shared, and in turns.
            for shared in [0, 1, 2] {
                let mut merged = Merged::default();
                let mut begin = bytes.len() - payload;
                for (index, segment) in all.iter().enumerate() {
                    let headers = bytes.len() - payload;
                    let slice = Slice::new(&whole, begin..begin + segment.len() - headers);
                    begin += segment.len() - headers;
                    let is_shared = shared == 1 || shared == 2 && index % 2 == 0;
                    let (bytes, slice) = if is_shared {
                        (&segment[..headers], Some(&slice))
                    } else {
                        (&segment[..], None)
                    };
                    assert!(!merged.is_closed() && merged.add(bytes, slice), "{index}");
                }
                assert!(merged.is_closed());
                let mut out = Vec::new();
                assert!(merged.flush(|pieces| {
                    out = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                    assert!(shared != 1 || pieces.len() == 2, "one piece of memory");
                    true
                }));
                assert_eq!(out, bytes);
            }
        }
    }

    #[test]
    fn every_segment_has_its_own_lengths_and_sums() {
        let all = segments(&long(4000, false));
        let mut sums = Vec::new();
        for (index, segment) in all.iter().enumerate() {
            let frame = &segment[VNET_BYTES..];
            let mut sum = Checksum::default();
            sum.add(&frame[14..34]);
            assert_eq!(sum.finish(), [0, 0]);
            assert_eq!(
                usize::from(u16::from_be_bytes([frame[16], frame[17]])),
                frame.len() - 14
            );
            assert_eq!(
                word(frame, 38),
                0xffff_f000_u32.wrapping_add(index as u32 * 1448)
            );
            assert_eq!(frame[47] & PSH != 0, index == 2);
            assert_eq!((segment[0], segment[1]), (NEEDS_CHECKSUM, 0));
            sums.push(segment.len());
        }
        assert_eq!(sums, [1524, 1524, 1180]);
    }

    #[test]
    fn other_flows_and_marks_are_not_merged() {
        let all = segments(&long(4000, false));
        for (at, value) in [(15, 3), (26, 9), (34, 9), (42, 9), (60, 9)] {
            let mut merged = Merged::default();
            assert!(merged.add(&all[0], None));
            let mut other = all[1].clone();
            other[VNET_BYTES + at] ^= value;
            assert!(!merged.add(&other, None), "{at}");
            assert!(!merged.add(&all[2], None), "a gap");
            assert!(merged.add(&all[1], None));
        }
    }

    #[test]
    fn short_and_foreign_frames_are_left_alone() {
        assert_eq!(Cut::of(&[0; 9]), None);
        assert_eq!(Cut::of(&long(1000, false)), None);
        let mut udp = long(4000, false);
        udp[VNET_BYTES + 23] = 17;
        assert_eq!(Cut::of(&udp), None);
        for length in 0..80 {
            assert_eq!(Cut::of(&long(4000, true)[..length]), None);
            assert!(!Merged::default().add(&long(4000, true)[..length], None));
        }
    }
}
