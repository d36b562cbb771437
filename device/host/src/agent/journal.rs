//! The disconnect journal of a process: an unnamed file that the process shares with the agent, and
//! from which the agent ends the process's connections when the process has exited. It begins with the number
//! of communication IDs that the process has used, for the next process that gets its slot; one record for
//! each connection follows, with the message that the agent sends to the peer (a DREQ for an established
//! connection).

use super::protocol::DATAGRAM_BYTES;
use link::udp::{Route, Socket};
use os::write_signals::without_signals;
use std::fs::File;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use wire::cm::CommId;
use wire::mad::MAD_SIZE;

/// Bytes before the records.
const HEADER_BYTES: u64 = 4;
/// Bytes of a record: valid flag, interface, two addresses, traffic class and TTL, the datagram.
const RECORD_BYTES: usize = 44 + DATAGRAM_BYTES;
/// Limit of records that are read: the limit of a process's connections.
pub(super) const RECORDS_MAX: u32 = 1 << 17;
/// Offset of the management datagram in a datagram: after BTH and DETH.
const MAD: usize = 12 + 8;
/// Offsets in a management datagram (IBTA 13.4.3): lower half of the transaction ID, attribute ID, and local
/// communication ID of a CM message.
const TRANSACTION_LOW: std::ops::Range<usize> = 12..16;
const ATTRIBUTE: std::ops::Range<usize> = 16..18;
const LOCAL_COMM_ID: std::ops::Range<usize> = 24..28;
const ATTRIBUTE_DREQ: [u8; 2] = [0, 0x15];

/// The journal as its process writes it.
#[derive(Debug)]
pub(crate) struct JournalWriter(File);

impl JournalWriter {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// Sets how many communication IDs count as used. An error (no memory) is ignored: the next process in
    /// this slot may then use IDs that a peer still has in TIMEWAIT.
    pub(crate) fn set_used(&self, used: u32) {
        let _ = without_signals(|| self.0.write_all_at(&used.to_ne_bytes(), 0));
    }

    /// Sets the message for the connection of a record; `None` clears the record. An error (no memory) is
    /// ignored: the peer's requests then fail by their timeouts.
    pub(crate) fn set(&self, number: u32, message: Option<(&Route, &[u8; DATAGRAM_BYTES])>) {
        let mut record = [0; RECORD_BYTES];
        let mut length = 4;
        if let Some((route, datagram)) = message {
            record[0] = 1;
            record[4..8].copy_from_slice(&route.interface.to_ne_bytes());
            record[8..24].copy_from_slice(&route.source.octets());
            record[24..40].copy_from_slice(&route.destination.octets());
            (record[40], record[41]) = (route.traffic_class, route.hop_limit);
            record[44..].copy_from_slice(datagram);
            length = RECORD_BYTES;
        }
        let (record, offset) = (&record[..length], record_offset(number));
        let _ = without_signals(|| self.0.write_all_at(record, offset));
    }
}

/// Puts the number of the record into the transaction ID of a DREQ: the peer's DREP returns it.
pub(crate) fn name_record(mad: &mut [u8; MAD_SIZE], number: u32) {
    if mad[ATTRIBUTE] == ATTRIBUTE_DREQ {
        mad[TRANSACTION_LOW].copy_from_slice(&number.to_be_bytes());
    }
}

fn record_offset(number: u32) -> u64 {
    HEADER_BYTES + u64::from(number) * RECORD_BYTES as u64
}

/// The journal of a process that has exited, as the agent reads it.
#[derive(Debug)]
pub(super) struct JournalReader(File);

/// The last CM message of a connection, which the agent sends on behalf of a dead process.
pub(super) struct FinalMessage {
    route: Route,
    datagram: [u8; DATAGRAM_BYTES],
}

impl FinalMessage {
    /// Sends the message. The network may lose it.
    pub(super) fn send(&self, socket: &Socket) {
        let _ = socket.send(&self.route, &self.datagram, DATAGRAM_BYTES);
    }

    /// Whether the peer answers: a DREQ is answered by a DREP.
    pub(super) fn is_answered(&self) -> bool {
        self.datagram[MAD..][ATTRIBUTE] == ATTRIBUTE_DREQ
    }

    /// Communication ID of the connection on the dead process's side.
    pub(super) fn local_comm_id(&self) -> CommId {
        let mut id = [0; 4];
        id.copy_from_slice(&self.datagram[MAD..][LOCAL_COMM_ID]);
        CommId(u32::from_be_bytes(id))
    }

    pub(super) const fn route(&self) -> &Route {
        &self.route
    }
}

impl JournalReader {
    pub(super) fn new(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// The number of communication IDs that count as used.
    pub(super) fn used(&self) -> Option<u32> {
        let mut used = [0; 4];
        self.0.read_exact_at(&mut used, 0).ok()?;
        Some(u32::from_ne_bytes(used))
    }

    /// The number of records, valid or not.
    pub(super) fn records(&self) -> u32 {
        let bytes = self
            .0
            .metadata()
            .map_or(0, |it| it.len())
            .saturating_sub(HEADER_BYTES);
        u32::try_from(bytes.div_ceil(RECORD_BYTES as u64))
            .unwrap_or(RECORDS_MAX)
            .min(RECORDS_MAX)
    }

    /// The message of a record; `None` where the record is not valid.
    pub(super) fn read(&self, number: u32) -> Option<FinalMessage> {
        let mut record = [0; RECORD_BYTES];
        self.0
            .read_exact_at(&mut record, record_offset(number))
            .ok()?;
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
        Some(FinalMessage { route, datagram })
    }

    /// Marks a record as not valid: its message needs not be sent again.
    pub(super) fn clear(&self, number: u32) {
        let _ = self.0.write_all_at(&[0], record_offset(number));
    }
}
