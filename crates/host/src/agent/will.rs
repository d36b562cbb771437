//! What is said to peers when a client is gone: it writes that into a file without a name, which it shares
//! with the agent, one record for each connection.

use super::protocol::DATAGRAM_BYTES;
use link::udp::{Route, Socket};
use std::fs::File;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Bytes of a record: whether it counts, interface, two addresses, traffic class and TTL, the datagram.
const RECORD_BYTES: usize = 44 + DATAGRAM_BYTES;
/// Records that are read: as many as a client has connections at most.
const RECORDS_MAX: u64 = 1 << 17;

/// The client's side.
#[derive(Debug)]
pub(crate) struct Will(File);

impl Will {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// Sets what is to be said of the connection with this number; `None`: nothing. Where there is no memory
    /// for it, peers find out by their time-outs.
    pub(crate) fn set(&self, number: u32, words: Option<(&Route, &[u8; DATAGRAM_BYTES])>) {
        let mut record = [0; RECORD_BYTES];
        let mut length = 4;
        if let Some((route, datagram)) = words {
            record[0] = 1;
            record[4..8].copy_from_slice(&route.interface.to_ne_bytes());
            record[8..24].copy_from_slice(&route.source.octets());
            record[24..40].copy_from_slice(&route.destination.octets());
            (record[40], record[41]) = (route.traffic_class, route.hop_limit);
            record[44..].copy_from_slice(datagram);
            length = RECORD_BYTES;
        }
        let _ = self.0.write_all_at(&record[..length], u64::from(number) * RECORD_BYTES as u64);
    }
}

/// Says everything in a will.
pub(super) fn execute(will: OwnedFd, socket: &Socket) {
    let file = File::from(will);
    for number in 0..RECORDS_MAX {
        let mut record = [0; RECORD_BYTES];
        if file.read_exact_at(&mut record, number * RECORD_BYTES as u64).is_err() {
            return;
        }
        if record[0] == 0 {
            continue;
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&record[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        let route = Route {
            source: address(8),
            destination: address(24),
            interface: u32::from_ne_bytes([record[4], record[5], record[6], record[7]]),
            traffic_class: record[40],
            hop_limit: record[41],
        };
        // The network may lose it as well.
        let _ = socket.send(&route, &record[44..], DATAGRAM_BYTES);
    }
}
