//! Records that refer to their payload: the receiver fetches it from the sender's memory by one copy of the
//! kernel, in place of two copies through the ring. The sender completes such a SEND when it is acknowledged,
//! and its program may not reuse the buffer before, so the payload is still there when it is fetched.

use super::direct::PeerMemory;
use super::flags::{BY_REFERENCE, SAME_PATH};
use super::stream::MEASURED_FROM;
use crate::sys::memory::ProcessMemory;
use crate::sys::other_process::{Copy, OtherProcess};
use link::memory::{Broken, PAYLOAD_MAX, Reader, Record};
use rnic::{Arrival, Backing, Fault, Gather, Memory, Payload, Piece, Senders};
use std::collections::VecDeque;
use wire::{Message, Packet, Position, Qpn, Service};

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
        let Gather::Pieces(
            &[
                Piece {
                    address,
                    length,
                    backing: Backing::Pinned,
                },
            ],
        ) = payload
        else {
            return None;
        };
        let is_send =
            packet.service == Service::Rc && matches!(packet.message, Message::Send { .. });
        Some(Self { address, length }).filter(|reference| is_send && reference.has_valid_length())
    }

    /// The reference that a record contains.
    pub(super) fn of_record(record: &Record) -> Option<Self> {
        let mut bytes = [0; REFERENCE_BYTES];
        Self::parse(record.copy(&mut bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (address, length) = bytes.split_first_chunk()?;
        let (address, length) = (
            u64::from_le_bytes(*address),
            u32::from_le_bytes(length.try_into().ok()?),
        );
        Some(Self { address, length }).filter(Self::has_valid_length)
    }

    /// The copy of the payload to the beginning of a receive.
    fn copy_to(self, into: &Piece) -> Copy {
        Copy {
            ours: into.address,
            theirs: self.address,
            length: self.length,
        }
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
        Payload::Foreign {
            address: self.address,
            length: self.length,
        }
    }
}

/// Limit of payloads that are fetched together, by one system call: the first of them is delivered when all
/// have been copied.
pub(super) const TOGETHER_MAX: usize = 8;

/// Payloads that were fetched before their records are handled, into the receives that the records will
/// probably take. One system call for several payloads costs less than one for each. Where a record then
/// takes another receive, or is refused, the program has got nothing: its receive is still posted.
#[derive(Default, Debug)]
pub(super) struct FetchedAhead {
    /// End positions of the records, and their payloads, the oldest first.
    payloads: VecDeque<(u64, Copy)>,
}

impl FetchedAhead {
    /// Whether the payload of the record that ends there was fetched.
    pub(super) fn has(&self, end: u64) -> bool {
        self.payloads.iter().any(|(at, _)| *at == end)
    }

    /// Removes the payload of the record that ends there, and all before it.
    pub(super) fn take(&mut self, end: u64) -> Option<Copy> {
        while let Some((at, payload)) = self.payloads.pop_front() {
            if at == end {
                return Some(payload);
            }
        }
        None
    }

    /// Fetches payloads from the sender's memory together: `waiting` are the references of consecutive SENDs
    /// and the end positions of their records, `receives` the memory that they will fill. Returns the number
    /// of bytes; 0 where there are not several.
    pub(super) fn fetch(
        &mut self,
        sender: &OtherProcess,
        waiting: &[(u64, Reference)],
        receives: &[Piece],
    ) -> u32 {
        let mut copies = [Copy::default(); TOGETHER_MAX];
        let fitting = waiting
            .iter()
            .zip(receives)
            .take_while(|((_, one), into)| one.length <= into.length);
        let wanted = fitting.map(|((_, from), into)| from.copy_to(into));
        let count = copies
            .iter_mut()
            .zip(wanted)
            .map(|(place, copy)| *place = copy)
            .count();
        if count < 2 {
            return 0;
        }
        let done = sender.fetch_all(&copies[..count]);
        let ends = waiting.iter().map(|(end, _)| *end);
        self.payloads.extend(ends.zip(copies).take(done));
        copies[..done].iter().map(|copy| copy.length).sum()
    }
}

/// References of consecutive SENDs to one queue pair, with the end positions of their records.
#[derive(Debug)]
pub(super) struct Waiting {
    found: [(u64, Reference); TOGETHER_MAX],
    count: usize,
}

impl Waiting {
    /// The SEND of a record, and those that follow it in the ring on the same path: whole messages to one
    /// queue pair, each with a reference.
    pub(super) fn behind(
        reader: &Reader,
        first: &Record,
        reference: Reference,
        dest: Qpn,
    ) -> Result<Self, Broken> {
        let mut waiting = Self {
            found: [(0, reference); TOGETHER_MAX],
            count: 0,
        };
        waiting.add(first.end, reference);
        let mut last = *first;
        while waiting.count < TOGETHER_MAX
            && let Some(record) = reader.after(&last)?
            && let Some(reference) = reference_to(&record, dest)
        {
            waiting.add(record.end, reference);
            last = record;
        }
        Ok(waiting)
    }

    fn add(&mut self, end: u64, reference: Reference) {
        if let Some(place) = self.found.get_mut(self.count) {
            *place = (end, reference);
            self.count += 1;
        }
    }

    pub(super) fn all(&self) -> &[(u64, Reference)] {
        &self.found[..self.count]
    }
}

/// The reference of a record with a whole SEND to this queue pair, on the path of the record before it.
fn reference_to(record: &Record, dest: Qpn) -> Option<Reference> {
    if record.flags != SAME_PATH | BY_REFERENCE {
        return None;
    }
    let (packet, _) = Packet::parse(record.headers()).ok()?;
    if packet.dest == dest && is_whole_send(&packet) {
        Reference::of_record(record)
    } else {
        None
    }
}

/// Whether a packet is all of a SEND.
pub(super) fn is_whole_send(packet: &Packet) -> bool {
    matches!(
        packet.message,
        Message::Send {
            position: Position::Only,
            ..
        }
    )
}

/// The memory of the process that has sent a packet to a local queue pair; `None` where its queue pair is not
/// known to be connected to it.
pub(super) fn sender_of<'a>(
    memory: &'a mut Option<PeerMemory>,
    rnic: &mut rnic::Device,
    senders: Senders,
    arrival: &Arrival,
    ours: Qpn,
) -> Option<&'a OtherProcess> {
    let theirs = rnic
        .shm()
        .peer(ours)
        .filter(|theirs| senders.have(*theirs))?;
    memory.as_mut()?.of_sender(arrival, theirs, ours)
}

/// The memory of this process, for requests whose payload is in the sender's memory.
#[derive(Debug)]
pub(super) struct Fetching<'a> {
    /// The sender's memory; `None` where it must not be read.
    sender: Option<&'a OtherProcess>,
    /// The payload, where it was fetched already.
    fetched: Option<Copy>,
    has_failed: bool,
}

impl<'a> Fetching<'a> {
    pub(super) fn new(sender: Option<&'a OtherProcess>, fetched: Option<Copy>) -> Self {
        Self {
            sender,
            fetched,
            has_failed: false,
        }
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
        if self.fetched
            == Some(Copy {
                ours: piece.address,
                theirs: address,
                length,
            })
        {
            return Ok(());
        }
        let into = [Piece {
            length: length.min(piece.length),
            ..piece
        }];
        if self
            .sender
            .is_some_and(|sender| sender.read(address, Gather::Pieces(&into)))
        {
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
        let piece = Piece {
            address: kept.as_mut_ptr() as u64,
            length: payload.len(),
            backing: Backing::Pinned,
        };
        // `has_failed` notes a failure.
        let _ = self.write(piece, payload);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Psn, Tail};

    fn send(service: Service) -> Packet {
        let message = Message::Send {
            position: Position::Only,
            tail: Tail::None,
        };
        Packet::new(service, Qpn::new(2), Psn::new(7), message)
    }

    fn piece(length: u32, backing: Backing) -> Piece {
        Piece {
            address: 0x1234_5000,
            length,
            backing,
        }
    }

    #[test]
    fn references_are_parsed_as_they_were_encoded() {
        for length in [MEASURED_FROM, 65536, PAYLOAD_MAX as u32] {
            let reference = Reference {
                address: 0x7fff_1234_5678,
                length,
            };
            assert_eq!(Reference::parse(&reference.to_bytes()), Some(reference));
        }
        for length in [0, MEASURED_FROM - 1, PAYLOAD_MAX as u32 + 1, u32::MAX] {
            assert_eq!(
                Reference::parse(&Reference { address: 1, length }.to_bytes()),
                None
            );
        }
        assert_eq!(Reference::parse(&[0; REFERENCE_BYTES - 1]), None);
        assert_eq!(Reference::parse(&[255; REFERENCE_BYTES + 1]), None);
    }

    #[test]
    fn only_long_sends_of_one_piece_on_rc_are_referred_to() {
        let one = [piece(65536, Backing::Pinned)];
        let found = Reference::of_send(&send(Service::Rc), Gather::Pieces(&one));
        assert_eq!(
            found,
            Some(Reference {
                address: 0x1234_5000,
                length: 65536
            })
        );
        assert_eq!(
            Reference::of_send(&send(Service::Uc), Gather::Pieces(&one)),
            None
        );
        assert_eq!(
            Reference::of_send(&send(Service::Rc), Gather::Inline(&[0; 8192])),
            None
        );
        for pieces in [
            &[piece(MEASURED_FROM - 1, Backing::Pinned)][..],
            &[piece(65536, Backing::OnDemand)],
            &[piece(65536, Backing::Null)],
            &[one[0], one[0]],
        ] {
            assert_eq!(
                Reference::of_send(&send(Service::Rc), Gather::Pieces(pieces)),
                None
            );
        }
    }

    #[test]
    fn a_payload_is_fetched_or_its_absence_is_a_fault_of_the_payload() {
        let (token, source) = (77_u64, vec![5_u8; 10_000]);
        let own = OtherProcess::open(std::process::id(), std::ptr::from_ref(&token) as u64, token)
            .unwrap();
        let mut target = vec![0_u8; 10_000];
        let into = Piece {
            address: target.as_mut_ptr() as u64,
            length: 10_000,
            backing: Backing::Pinned,
        };
        let payload = |address| Payload::Foreign {
            address,
            length: 10_000,
        };
        let mut memory = Fetching::new(Some(&own), None);
        assert_eq!(memory.write(into, payload(source.as_ptr() as u64)), Ok(()));
        assert!(!memory.has_failed() && std::hint::black_box(&target) == &source);
        assert_eq!(memory.keep(payload(source.as_ptr() as u64))[..], source[..]);
        assert_eq!(
            memory.write(into, payload(4096)),
            Err(Fault::Payload),
            "nothing is mapped there"
        );
        assert!(memory.has_failed());
        let mut without = Fetching::new(None, None);
        assert_eq!(
            without.write(into, payload(source.as_ptr() as u64)),
            Err(Fault::Payload)
        );
        assert_eq!(
            without.write(
                Piece {
                    backing: Backing::Null,
                    ..into
                },
                payload(1)
            ),
            Ok(())
        );
    }

    /// Records 100 to 102 with payloads of 9,000 bytes, one every 10,000 bytes of `source`.
    fn three_waiting(source: &[u8]) -> Waiting {
        let reference = |index| Reference {
            address: source.as_ptr() as u64 + index * 10_000,
            length: 9_000,
        };
        let mut waiting = Waiting {
            found: [(0, reference(0)); TOGETHER_MAX],
            count: 0,
        };
        (0..3).for_each(|index| waiting.add(100 + index, reference(index)));
        waiting
    }

    #[test]
    fn payloads_are_fetched_together_into_the_receives_that_follow() {
        let (token, source) = (
            78_u64,
            (0..40_000_u32).map(|byte| byte as u8).collect::<Vec<u8>>(),
        );
        let own = OtherProcess::open(std::process::id(), std::ptr::from_ref(&token) as u64, token)
            .unwrap();
        let mut target = vec![0_u8; 40_000];
        let start = target.as_mut_ptr() as u64;
        let receive = |index: u64, length| Piece {
            address: start + index * 10_000,
            length,
            backing: Backing::Pinned,
        };
        let waiting = three_waiting(&source);
        let receives = [receive(0, 10_000), receive(1, 9_000), receive(2, 8_999)];
        let mut ahead = FetchedAhead::default();
        assert_eq!(ahead.fetch(&own, waiting.all(), &receives), 18_000);
        let target = std::hint::black_box(&target);
        assert_eq!(
            (&target[..9_000], &target[10_000..19_000]),
            (&source[..9_000], &source[10_000..19_000])
        );
        assert_eq!(target[20_000..], [0; 20_000], "too long for its receive");
        let copy = |index: usize| waiting.all()[index].1.copy_to(&receives[index]);
        assert_eq!(ahead.take(100), Some(copy(0)));
        assert_eq!(ahead.take(101), Some(copy(1)));
        assert_eq!(ahead.take(102), None);
        assert_eq!(
            ahead.fetch(&own, waiting.all(), &receives[..1]),
            0,
            "one is fetched with its record"
        );
        ahead.fetch(&own, waiting.all(), &receives);
        assert_eq!(
            ahead.take(102),
            None,
            "payloads before the record are dropped"
        );
        assert_eq!(ahead.take(101), None);

        // Where a record takes another receive than was expected, its payload is fetched again.
        let fetched = Some(copy(0));
        let payload = Payload::Foreign {
            address: source.as_ptr() as u64,
            length: 9_000,
        };
        assert_eq!(
            Fetching::new(None, fetched).write(receive(0, 10_000), payload),
            Ok(())
        );
        assert_eq!(
            Fetching::new(None, fetched).write(receive(3, 10_000), payload),
            Err(Fault::Payload)
        );
        assert_eq!(
            Fetching::new(Some(&own), fetched).write(receive(3, 10_000), payload),
            Ok(())
        );
        assert_eq!(
            std::hint::black_box(target)[30_000..39_000],
            source[..9_000]
        );
    }
}
