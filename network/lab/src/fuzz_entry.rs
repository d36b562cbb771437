//! Untrusted input from a host of a lab, passed to the code that parses it: for fuzzers, which have no
//! namespaces.

use crate::clock::Clock;
use crate::device::Device;
use crate::frame::{VNET_BYTES, link_local};
use crate::neighbours::Neighbours;
use crate::network::{Network, Port};
use crate::plan::LiveHost;
use crate::tap::{FRAME_MAX, Tap};
use crate::tap_buffers::Slice;
use fabric::{Rate, Time};
use link::attachment::{self, DeviceEnds};
use link::lab::{Header, Hello, Welcome};
use link::memory::HEADERS_MAX;
use link::unix;
use sim::world::{HostConfig, LiveHosts, Offer};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

/// DSCP 26 with a congestion mark: what a switch may leave in a frame.
const MARKED: u8 = 26 << 2 | 3;

/// A frame behind the header of a virtual network device, as a tap gives it: it is classified, cut and passed
/// on. The network gets no frame that is longer than those it carries.
///
/// # Panics
/// When that does not hold.
pub fn tap_frame(bytes: &[u8]) {
    let neighbours: Neighbours = (0..2).map(host).map(|host| host.addresses()).collect();
    // A message is read as a frame is, and no other one comes.
    let Ok([ours, theirs]) = unix::message_pair() else {
        return;
    };
    let ready = unix::set_nonblocking(ours.as_raw_fd())
        .and_then(|()| unix::send_now(theirs.as_raw_fd(), bytes));
    if ready.is_err() {
        return;
    }
    let mut tap = Tap::new(ours, neighbours);
    let mut out = vec![0; FRAME_MAX];
    while let Some(class) = tap.next_class(&host(0).marks) {
        assert!(class < 8, "class {class}");
        let Some(taken) = tap.take(&mut out) else {
            continue;
        };
        let length = taken.length + taken.payload.as_ref().map_or(0, Slice::len);
        assert!(
            taken.wire_bytes + VNET_BYTES == length && length <= FRAME_MAX,
            "{taken:?}"
        );
        tap.write_frame(&mut out[..taken.length], taken.payload.as_ref(), MARKED);
    }
    for frame in &tap.lldp {
        let _ = crate::lldp::said(frame);
    }
    for frame in &tap.unknown {
        let _ = crate::neighbours::heard(frame);
    }
    tap.flush();
    ip_packet(bytes);
}

/// The same bytes as a packet of an interface of IP over InfiniBand, behind that header.
fn ip_packet(bytes: &[u8]) {
    let Ok([ours, theirs]) = unix::message_pair() else {
        return;
    };
    let ready = unix::set_nonblocking(ours.as_raw_fd())
        .and_then(|()| unix::send_now(theirs.as_raw_fd(), bytes));
    if ready.is_err() {
        return;
    }
    let mut tap = Tap::of_ip(ours);
    let mut out = vec![0; FRAME_MAX];
    while let Some(packet) = tap.next_packet() {
        let _ = infiniband::ipoib::destination_of(packet);
        let Some(taken) = tap.take(&mut out) else {
            continue;
        };
        let length = taken.length + taken.payload.as_ref().map_or(0, Slice::len);
        assert!(
            taken.wire_bytes + VNET_BYTES == length && length <= FRAME_MAX,
            "{taken:?}"
        );
        tap.put_packet(&mut out[..taken.length], taken.payload.as_ref());
    }
    tap.flush();
}

/// Headers of a record of a device, the number of bytes of its payload, and how many of both there are: what
/// enters the network is for the other host, in a class that there is.
///
/// # Panics
/// When that does not hold.
pub fn ring_record(bytes: &[u8]) {
    let Ok(mut attached) = Attached::new() else {
        return;
    };
    for piece in bytes.chunks(HEADERS_MAX) {
        attached.write(piece, usize::from(piece[0]) * 16);
        for _ in 0..2 {
            if let Offer::Packet(packet) = attached.network.pull(0, 0xff, Time(u64::MAX)) {
                assert!(packet.to == 1 && packet.class < 8, "{packet:?}");
            }
        }
        attached.network.take_payloads();
        attached.network.flush();
    }
}

pub(crate) fn host(number: u32) -> LiveHost {
    let HostConfig {
        data,
        acknowledgements,
        notifications,
        ..
    } = HostConfig::new();
    LiveHost {
        number,
        name: format!("h{number}"),
        v4: Ipv4Addr::new(10, 0, 0, number as u8 + 1),
        v6: Ipv6Addr::new(0xfd6c, 0x6162, 0, 0, 0, 0, 0, number as u16 + 1),
        mac: [2, 0, 0, 0, 0, number as u8 + 1],
        link_local: link_local([2, 0, 0, 0, 0, number as u8 + 1]),
        mtu: 9000,
        rate: Rate::from_gbps(100),
        function: None,
        is_infiniband: false,
        marks: [data, acknowledgements, notifications],
        variables: Vec::new(),
    }
}

/// Two hosts, and what a program in the first one has of its device.
pub(crate) struct Attached {
    pub(crate) network: Network,
    rings: DeviceEnds,
    welcome: Welcome,
    _socket: OwnedFd,
}

impl Attached {
    pub(crate) fn new() -> io::Result<Self> {
        let ports = vec![Port::new(host(0), None), Port::new(host(1), None)];
        let mut network = Network::new(2, ports, Clock::new(1));
        let [ours, theirs] = unix::message_pair()?;
        let hello = Hello { first: 4, count: 4 };
        unix::send_fds(theirs.as_raw_fd(), &hello.to_bytes(), &[])?;
        let welcome = host(0).welcome(1);
        network.ports[0]
            .devices
            .push(Device::welcome(ours, &welcome)?);
        let (_, fds) =
            unix::receive_fds::<{ attachment::MEMORIES }>(theirs.as_raw_fd(), &mut [0; 64])?;
        let memories: Vec<OwnedFd> = fds.into_iter().flatten().collect();
        let memories = memories
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self {
            network,
            rings: attachment::open(&memories)?,
            welcome,
            _socket: theirs,
        })
    }

    /// Writes a record; false where there is no room.
    pub(crate) fn write(&mut self, headers: &[u8], payload: usize) -> bool {
        self.write_filled(headers, payload, 0)
    }

    /// The same, with a payload of one value.
    pub(crate) fn write_filled(&mut self, headers: &[u8], payload: usize, value: u8) -> bool {
        let place = |place: &mut [u8; HEADERS_MAX]| {
            place.get_mut(..headers.len())?.copy_from_slice(headers);
            Some(headers.len())
        };
        let traffic_class = Header::parse(headers).map_or(0, |(header, _)| header.traffic_class);
        let ring = self.welcome.ring(traffic_class, false);
        let fill = |place: &mut [u8]| {
            place.fill(value);
            Ok::<(), ()>(())
        };
        let ring = &mut self.rings.classes[ring];
        // Looks how much the lab has given back; a record may have room where the longest one has none.
        let _ = ring.has_room();
        ring.write(0, payload, place, fill).is_some()
    }

    /// The payload of the next packet that the lab has handed to the device.
    #[cfg(test)]
    pub(crate) fn arrived(&mut self) -> Option<Vec<u8>> {
        let record = self.rings.arrivals.next().expect("valid records")?;
        let mut payload = vec![0; record.length as usize];
        record.copy(&mut payload);
        self.rings.arrivals.release(&record);
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric::Pcg32;

    /// A frame of TCP over IPv4 that is to be cut, with the header before it.
    fn long_frame() -> Vec<u8> {
        let mut frame = vec![1, 1, 54, 0, 0xb4, 5, 34, 0, 16, 0];
        frame.extend([
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0x13, 0x88, 0, 0, 0, 0, 64, 6, 0, 0,
        ]);
        frame.extend([
            10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10,
        ]);
        frame.resize(10 + 14 + 5000, 7);
        frame
    }

    #[test]
    fn frames_and_records_with_random_bytes_do_no_harm() {
        let mut random = Pcg32::new(7, 1);
        let mut header = link::lab::Header {
            stamp: 0,
            source: host(0).v4.to_ipv6_mapped().octets(),
            destination: host(1).v4.to_ipv6_mapped().octets(),
            traffic_class: 0,
            hop_limit: 64,
            source_port: 1,
            service_level: 0,
        };
        for round in 0..2000_u32 {
            let mut frame = long_frame();
            for _ in 0..random.below(8) {
                let at = random.below(80) as usize;
                frame[at] = random.next_u32() as u8;
            }
            frame.truncate(frame.len() - random.below(5000) as usize);
            tap_frame(&frame);
            header.traffic_class = random.next_u32() as u8;
            let mut record = header.to_bytes().to_vec();
            record.extend((0..HEADERS_MAX - record.len()).map(|_| random.next_u32() as u8));
            record.truncate(record.len() - (round % 64) as usize);
            ring_record(&record);
        }
    }
}
