//! Capture of the packets that a device sends and receives, as a file for Wireshark.
//!
//! The file is pcapng (draft-ietf-opsawg-pcapng) with raw IP packets. A socket does not show IP and UDP
//! headers: they are made from the addresses and ancillary data of the socket call, so TTL, DSCP and ECN are
//! those of the wire; the UDP checksum is left out over IPv4 and computed over IPv6. Many processes may write
//! to one file: it has one section and one interface, each process appends whole batches, and each packet has
//! its direction.

use crate::flow::identification;
use crate::settings;
use os::write_signals::without_signals;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::ipv4::{IPV4_SIZE, Ipv4};
use wire::ipv6::{IPV6_SIZE, Ipv6};
use wire::udp::{PROTOCOL_UDP, ROCE_PORT, UDP_SIZE, Udp};
use wire::{Flow, Identification, TrafficClass};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const LINKTYPE_RAW: u16 = 101;
const OPTION_NAME: u16 = 2;
const OPTION_FLAGS: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
/// Resolution of timestamps: ten to the power of minus this, in seconds.
const NANOSECONDS: u8 = 9;

/// Direction of a packet: the direction bits of its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Received = 1,
    Sent = 2,
}

/// Properties that the packets of a batch have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'a> {
    pub(crate) direction: Direction,
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) source_port: u16,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// Flow of the packets, for the IPv4 identification, which the ICRC covers.
    pub(crate) flow: &'a Flow,
}

/// The capture file of a device.
#[derive(Debug)]
pub(crate) struct Capture {
    file: File,
    /// The block of a batch, written at once so that those of several processes do not mix.
    block: Vec<u8>,
}

/// Makes an empty capture file; an existing file is truncated.
///
/// # Errors
/// Those of creating and writing the file.
pub fn create(path: &Path) -> io::Result<()> {
    create_file(path)?.write_all(&header())
}

/// Makes an empty file; an existing file is truncated. A FIFO needs a process that reads it: without one,
/// opening it would wait.
///
/// # Errors
/// Those of creating the file, and a FIFO that no process reads.
pub fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let opened = options.custom_flags(libc::O_NONBLOCK).open(path);
    match opened {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Err(io::Error::other(
            "it is a FIFO that no process reads: start the reader first",
        )),
        opened => opened,
    }
}

impl Capture {
    /// Opens the file that [`settings::capture`] names, if any. An error is printed on standard error,
    /// because the program cannot report it.
    pub(crate) fn from_environment() -> Option<Self> {
        let path = settings::capture()?;
        match Self::open(&path) {
            Ok(capture) => Some(capture),
            Err(error) => {
                crate::note(format_args!(
                    "rockery: no capture: cannot write {}: {error}",
                    path.display()
                ));
                None
            }
        }
    }

    fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata()?.len() == 0 {
            file.write_all(&header())?;
        }
        Ok(Self {
            file,
            block: Vec::new(),
        })
    }

    /// Writes datagrams of `segment` bytes each, the last one of the remaining bytes. False when the file
    /// cannot be written any more: the device then works without a capture.
    pub(crate) fn write(&mut self, envelope: &Envelope<'_>, bytes: &[u8], segment: usize) -> bool {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        self.block.clear();
        for (index, datagram) in bytes.chunks(segment.max(1)).enumerate() {
            put_packet(&mut self.block, envelope, index as u16, datagram, time);
        }
        match without_signals(|| self.file.write_all(&self.block)) {
            Ok(()) => true,
            Err(error) => {
                crate::note(format_args!("rockery: the capture ends here: {error}"));
                false
            }
        }
    }
}

fn put_packet(out: &mut Vec<u8>, envelope: &Envelope<'_>, index: u16, datagram: &[u8], time: u64) {
    let headers = headers(envelope, index, datagram);
    let length = (headers.len() + datagram.len()) as u32;
    put_block(out, ENHANCED_PACKET, |out| {
        for word in [0, (time >> 32) as u32, time as u32, length, length] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&headers);
        out.extend(datagram);
        pad(out);
        put_option(
            out,
            OPTION_FLAGS,
            &(envelope.direction as u32).to_le_bytes(),
        );
        put_end_of_options(out);
    });
}

/// IP and UDP headers as on the wire, as far as they are known.
fn headers(envelope: &Envelope<'_>, index: u16, datagram: &[u8]) -> Vec<u8> {
    let udp_length = (UDP_SIZE + datagram.len()) as u16;
    let mut udp = Udp {
        source_port: envelope.source_port,
        destination_port: ROCE_PORT,
        length: udp_length,
        checksum: 0,
    };
    let traffic_class = TrafficClass(envelope.traffic_class);
    let mut headers = Vec::with_capacity(IPV6_SIZE + UDP_SIZE);
    match (
        envelope.source.to_ipv4_mapped(),
        envelope.destination.to_ipv4_mapped(),
    ) {
        (Some(source), Some(destination)) => {
            let assumed = Identification::ZERO.plus(index);
            let ip = Ipv4 {
                traffic_class,
                total_length: IPV4_SIZE as u16 + udp_length,
                identification: identification(envelope.flow, datagram, assumed).unwrap_or(assumed),
                ttl: envelope.hop_limit,
                protocol: PROTOCOL_UDP,
                source,
                destination,
            };
            headers.extend(ip.to_bytes());
        }
        _ => {
            let ip = Ipv6 {
                traffic_class,
                flow_label: 0,
                payload_length: udp_length,
                next_header: PROTOCOL_UDP,
                hop_limit: envelope.hop_limit,
                source: envelope.source,
                destination: envelope.destination,
            };
            headers.extend(ip.to_bytes());
            udp.checksum = checksum(envelope, &udp, datagram);
        }
    }
    headers.extend(udp.to_bytes());
    headers
}

/// The UDP checksum, which IPv6 demands (RFC 8200, 8.1); where it comes out as 0 it is sent as all ones.
fn checksum(envelope: &Envelope<'_>, udp: &Udp, datagram: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u64 {
        let word = |pair: &[u8]| {
            u64::from(u16::from_be_bytes([
                pair[0],
                pair.get(1).copied().unwrap_or(0),
            ]))
        };
        bytes.chunks(2).map(word).sum()
    };
    let addresses = words(&envelope.source.octets()) + words(&envelope.destination.octets());
    let pseudo = addresses + u64::from(udp.length) + u64::from(PROTOCOL_UDP);
    let mut sum = pseudo + words(&udp.to_bytes()) + words(datagram);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => u16::MAX,
        checksum => checksum,
    }
}

/// Section header and interface description.
fn header() -> Vec<u8> {
    let mut out = Vec::new();
    put_block(&mut out, SECTION_HEADER, |out| {
        out.extend(BYTE_ORDER.to_le_bytes());
        // Version 1.0, and an unspecified length.
        out.extend([1, 0, 0, 0]);
        out.extend(u64::MAX.to_le_bytes());
    });
    put_block(&mut out, INTERFACE_DESCRIPTION, |out| {
        out.extend(u32::from(LINKTYPE_RAW).to_le_bytes());
        // No limit to the length of packets.
        out.extend(0u32.to_le_bytes());
        put_option(out, OPTION_NAME, b"rockery");
        put_option(out, OPTION_TIME_RESOLUTION, &[NANOSECONDS]);
        put_end_of_options(out);
    });
    out
}

fn put_block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = ((out.len() - start + 4) as u32).to_le_bytes();
    out.extend(length);
    out[start + 4..start + 8].copy_from_slice(&length);
}

fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend(value);
    pad(out);
}

fn put_end_of_options(out: &mut Vec<u8>) {
    out.extend([0; 4]);
}

/// Pads to a multiple of four: blocks and their fields are aligned.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::flow_between;

    #[test]
    fn blocks_are_framed_by_their_length() {
        let mut file = header();
        let (source, destination) = (
            "::ffff:10.0.0.1".parse().unwrap(),
            "::ffff:10.0.0.2".parse().unwrap(),
        );
        let flow = flow_between(source, destination, 0xc001);
        let envelope = Envelope {
            direction: Direction::Sent,
            source,
            destination,
            source_port: 0xc001,
            traffic_class: 0x6a,
            hop_limit: 64,
            flow: &flow,
        };
        put_packet(&mut file, &envelope, 0, &[7; 21], 1);
        let (mut rest, mut kinds) = (&file[..], Vec::new());
        while let Some((kind, _)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(rest[4..8].try_into().unwrap());
            let block = &rest[..length as usize];
            assert_eq!(block[block.len() - 4..], length.to_le_bytes());
            kinds.push(u32::from_le_bytes(*kind));
            rest = &rest[length as usize..];
        }
        assert_eq!(
            kinds,
            [SECTION_HEADER, INTERFACE_DESCRIPTION, ENHANCED_PACKET]
        );
        let (ip, udp) = Ipv4::parse(&file[file.len() - 4 - 12 - 52..]).unwrap();
        assert_eq!(
            (ip.traffic_class, ip.ttl, udp.len()),
            (TrafficClass(0x6a), 64, 29)
        );
    }

    #[test]
    fn a_file_that_another_process_began_is_gone_on_with() {
        let path = std::env::temp_dir().join(format!("rockery-capture-{}", std::process::id()));
        create(&path).unwrap();
        let before = std::fs::metadata(&path).unwrap().len();
        drop(Capture::open(&path).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
        std::fs::remove_file(&path).unwrap();
        drop(Capture::open(&path).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
        std::fs::remove_file(&path).unwrap();
    }
}
