//! Records that refer to their payload: the receiver fetches it from the sender's memory by one copy of the
//! kernel, in place of two copies through the ring. The sender completes such a SEND when it is acknowledged,
//! and its program may not reuse the buffer before, so the payload is still there when it is fetched.

use super::stream::MEASURED_FROM;
use crate::sys::memory::ProcessMemory;
use crate::sys::other_process::OtherProcess;
use link::memory::{PAYLOAD_MAX, Record};
use rnic::{Backing, Fault, Gather, Memory, Payload, Piece};
use wire::{Message, Packet, Service};

/// Bytes of an encoded reference.
pub(super) const REFERENCE_BYTES: usize = 12;

/// Place of a payload in the sender's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reference {
    address: u64,
    /// Bytes; at least [`MEASURED_FROM`], at most as many as a record may contain.
    pub(super) length: u32,
}

impl Reference {
    /// The reference to a payload; `None` for other requests than SENDs on RC, which alone wait for an
    /// acknowledgement before the program gets its buffer back, and for payloads of several pieces.
    pub(super) fn of_send(packet: &Packet, payload: Gather<'_>) -> Option<Self> {
        let Gather::Pieces(&[Piece { address, length, backing: Backing::Pinned }]) = payload else {
            return None;
        };
        let is_send = packet.service == Service::Rc && matches!(packet.message, Message::Send { .. });
        Some(Self { address, length }).filter(|reference| is_send && reference.has_valid_length())
    }

    /// The reference that a record contains.
    pub(super) fn of_record(record: &Record) -> Option<Self> {
        let mut bytes = [0; REFERENCE_BYTES];
        Self::parse(record.copy(&mut bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (address, length) = bytes.split_first_chunk()?;
        let (address, length) = (u64::from_le_bytes(*address), u32::from_le_bytes(length.try_into().ok()?));
        Some(Self { address, length }).filter(Self::has_valid_length)
    }

    fn has_valid_length(&self) -> bool {
        (MEASURED_FROM..=PAYLOAD_MAX as u32).contains(&self.length)
    }

    pub(super) fn to_bytes(self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// The payload, at an address that [`Fetching`] interprets.
    pub(super) fn payload(self) -> Payload<'static> {
        Payload::Foreign { address: self.address, length: self.length }
    }
}

/// The memory of this process, for requests whose payload is in the sender's memory.
#[derive(Debug)]
pub(super) struct Fetching<'a> {
    /// The sender's memory; `None` where it must not be read.
    sender: Option<&'a OtherProcess>,
    has_failed: bool,
}

impl<'a> Fetching<'a> {
    pub(super) fn new(sender: Option<&'a OtherProcess>) -> Self {
        Self { sender, has_failed: false }
    }

    /// Whether a payload was not fetched.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }
}

impl Memory for Fetching<'_> {
    fn write(&mut self, piece: Piece, payload: Payload<'_>) -> Result<(), Fault> {
        let Payload::Foreign { address, length } = payload else {
            return ProcessMemory.write(piece, payload);
        };
        if piece.backing == Backing::Null || length == 0 {
            return Ok(());
        }
        let into = [Piece { length: length.min(piece.length), ..piece }];
        if self.sender.is_some_and(|sender| sender.read(address, Gather::Pieces(&into))) {
            return Ok(());
        }
        self.has_failed = true;
        Err(Fault::Payload)
    }

    fn fetch_add(&mut self, piece: Piece, add: u64) -> Result<u64, Fault> {
        ProcessMemory.fetch_add(piece, add)
    }

    fn compare_swap(&mut self, piece: Piece, compare: u64, swap: u64) -> Result<u64, Fault> {
        ProcessMemory.compare_swap(piece, compare, swap)
    }

    fn store(&mut self, piece: Piece, bytes: [u8; 8]) -> Result<(), Fault> {
        ProcessMemory.store(piece, bytes)
    }

    /// Zeros where the payload cannot be fetched. A copy is taken for XRC, whose SENDs contain their payload.
    fn keep(&mut self, payload: Payload<'_>) -> Box<[u8]> {
        let mut kept = vec![0; payload.len() as usize].into_boxed_slice();
        let piece =
            Piece { address: kept.as_mut_ptr() as u64, length: payload.len(), backing: Backing::Pinned };
        // `has_failed` notes a failure.
        let _ = self.write(piece, payload);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Position, Psn, Qpn, Tail};

    fn send(service: Service) -> Packet {
        let message = Message::Send { position: Position::Only, tail: Tail::None };
        Packet::new(service, Qpn::new(2), Psn::new(7), message)
    }

    fn piece(length: u32, backing: Backing) -> Piece {
        Piece { address: 0x1234_5000, length, backing }
    }

    #[test]
    fn references_are_parsed_as_they_were_encoded() {
        for length in [MEASURED_FROM, 65536, PAYLOAD_MAX as u32] {
            let reference = Reference { address: 0x7fff_1234_5678, length };
            assert_eq!(Reference::parse(&reference.to_bytes()), Some(reference));
        }
        for length in [0, MEASURED_FROM - 1, PAYLOAD_MAX as u32 + 1, u32::MAX] {
            assert_eq!(Reference::parse(&Reference { address: 1, length }.to_bytes()), None);
        }
        assert_eq!(Reference::parse(&[0; REFERENCE_BYTES - 1]), None);
        assert_eq!(Reference::parse(&[255; REFERENCE_BYTES + 1]), None);
    }

    #[test]
    fn only_long_sends_of_one_piece_on_rc_are_referred_to() {
        let one = [piece(65536, Backing::Pinned)];
        let found = Reference::of_send(&send(Service::Rc), Gather::Pieces(&one));
        assert_eq!(found, Some(Reference { address: 0x1234_5000, length: 65536 }));
        assert_eq!(Reference::of_send(&send(Service::Uc), Gather::Pieces(&one)), None);
        assert_eq!(Reference::of_send(&send(Service::Rc), Gather::Inline(&[0; 8192])), None);
        for pieces in [
            &[piece(MEASURED_FROM - 1, Backing::Pinned)][..],
            &[piece(65536, Backing::OnDemand)],
            &[piece(65536, Backing::Null)],
            &[one[0], one[0]],
        ] {
            assert_eq!(Reference::of_send(&send(Service::Rc), Gather::Pieces(pieces)), None);
        }
    }

    #[test]
    fn a_payload_is_fetched_or_its_absence_is_a_fault_of_the_payload() {
        let (token, source) = (77_u64, vec![5_u8; 10_000]);
        let own = OtherProcess::open(std::process::id(), std::ptr::from_ref(&token) as u64, token).unwrap();
        let mut target = vec![0_u8; 10_000];
        let into = Piece { address: target.as_mut_ptr() as u64, length: 10_000, backing: Backing::Pinned };
        let payload = |address| Payload::Foreign { address, length: 10_000 };
        let mut memory = Fetching::new(Some(&own));
        assert_eq!(memory.write(into, payload(source.as_ptr() as u64)), Ok(()));
        assert!(!memory.has_failed() && std::hint::black_box(&target) == &source);
        assert_eq!(memory.keep(payload(source.as_ptr() as u64))[..], source[..]);
        assert_eq!(memory.write(into, payload(4096)), Err(Fault::Payload), "nothing is mapped there");
        assert!(memory.has_failed());
        let mut without = Fetching::new(None);
        assert_eq!(without.write(into, payload(source.as_ptr() as u64)), Err(Fault::Payload));
        assert_eq!(without.write(Piece { backing: Backing::Null, ..into }, payload(1)), Ok(()));
    }
}
