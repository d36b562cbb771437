//! What is said to peers when a client is gone: it writes that into a file without a name, which it shares
//! with the agent. First stands how many communication IDs it has used, for who gets its slot next; then one
//! record for each connection.

use super::protocol::DATAGRAM_BYTES;
use link::udp::{Route, Socket};
use std::fs::File;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use wire::cm::CommId;
use wire::mad::MAD_SIZE;

/// Bytes before the records.
const HEADER_BYTES: u64 = 4;
/// Bytes of a record: whether it counts, interface, two addresses, traffic class and TTL, the datagram.
const RECORD_BYTES: usize = 44 + DATAGRAM_BYTES;
/// Records that are read: as many as a client has connections at most.
pub(super) const RECORDS_MAX: u32 = 1 << 17;
/// Where the management datagram begins in a datagram: behind BTH and DETH.
const MAD: usize = 12 + 8;
/// Where in a management datagram the transaction's number ends, and what else is looked at (IBTA 13.4.3).
const TRANSACTION_LOW: std::ops::Range<usize> = 12..16;
const ATTRIBUTE: std::ops::Range<usize> = 16..18;
const LOCAL_COMM_ID: std::ops::Range<usize> = 24..28;
const ATTRIBUTE_DREQ: [u8; 2] = [0, 0x15];

/// The client's side.
#[derive(Debug)]
pub(crate) struct Will(File);

impl Will {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// Sets how many communication IDs count as used. Where there is no memory for it, who comes next may
    /// have to do with names that a peer remembers.
    pub(crate) fn set_used(&self, used: u32) {
        let _ = self.0.write_all_at(&used.to_ne_bytes(), 0);
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
        let _ = self.0.write_all_at(&record[..length], place(number));
    }
}

/// The answer to a DREQ has its transaction: that names the record.
pub(crate) fn name_record(mad: &mut [u8; MAD_SIZE], number: u32) {
    if mad[ATTRIBUTE] == ATTRIBUTE_DREQ {
        mad[TRANSACTION_LOW].copy_from_slice(&number.to_be_bytes());
    }
}

fn place(number: u32) -> u64 {
    HEADER_BYTES + u64::from(number) * RECORD_BYTES as u64
}

/// The agent's side: a will whose writer is gone.
#[derive(Debug)]
pub(super) struct Testament(File);

/// What stands in a record.
pub(super) struct Words {
    route: Route,
    datagram: [u8; DATAGRAM_BYTES],
}

impl Words {
    /// Says them. The network may lose it.
    pub(super) fn say(&self, socket: &Socket) {
        let _ = socket.send(&self.route, &self.datagram, DATAGRAM_BYTES);
    }

    /// Whether the peer answers: a DREP to a DREQ.
    pub(super) fn is_answered(&self) -> bool {
        self.datagram[MAD..][ATTRIBUTE] == ATTRIBUTE_DREQ
    }

    /// Whose they are.
    pub(super) fn speaker(&self) -> CommId {
        let mut id = [0; 4];
        id.copy_from_slice(&self.datagram[MAD..][LOCAL_COMM_ID]);
        CommId(u32::from_be_bytes(id))
    }

    pub(super) const fn route(&self) -> &Route {
        &self.route
    }
}

impl Testament {
    pub(super) fn new(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// How many communication IDs count as used.
    pub(super) fn used(&self) -> Option<u32> {
        let mut used = [0; 4];
        self.0.read_exact_at(&mut used, 0).ok()?;
        Some(u32::from_ne_bytes(used))
    }

    /// How many records there are.
    pub(super) fn records(&self) -> u32 {
        let bytes = self.0.metadata().map_or(0, |it| it.len()).saturating_sub(HEADER_BYTES);
        u32::try_from(bytes.div_ceil(RECORD_BYTES as u64)).unwrap_or(RECORDS_MAX).min(RECORDS_MAX)
    }

    /// What is to be said of the connection with this number, if anything is.
    pub(super) fn read(&self, number: u32) -> Option<Words> {
        let mut record = [0; RECORD_BYTES];
        self.0.read_exact_at(&mut record, place(number)).ok()?;
        if record[0] == 0 {
            return None;
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
        let mut datagram = [0; DATAGRAM_BYTES];
        datagram.copy_from_slice(&record[44..]);
        Some(Words { route, datagram })
    }

    /// There is nothing more to say of it.
    pub(super) fn strike(&self, number: u32) {
        let _ = self.0.write_all_at(&[0], place(number));
    }
}
