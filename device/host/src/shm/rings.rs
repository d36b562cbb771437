//! The two rings of a shared-memory channel, one for each direction, and the records in them.
//!
//! A record contains the addresses, unless they are those of the record before it, then the headers in their
//! wire format, then the payload.

use super::direct::PeerMemory;
use super::fetch::{
    FetchedAhead, Fetching, REFERENCE_BYTES, Reference, TOGETHER_MAX, Waiting, is_whole_send,
    sender_of,
};
use super::flags::{BY_REFERENCE, FORWARDED, SAME_PATH};
use super::forwarded::{self, FORWARDED_BYTES};
use super::stream::{MEASURED_FROM, Measured, Method, Streams};
use crate::counters::LinkCounters;
use crate::log::HOST;
use crate::progress::clock;
use crate::sys::memory::ProcessMemory;
use crate::sys::other_process::Copy;
use crate::transmit::gather;
use link::memory::{
    Broken, HEADERS_MAX, PAYLOAD_MAX, RECORDS_MAX, Reader, Record, Sleeper, Writer,
};
use link::unix;
use rnic::{
    Arrival, Backing, Direct, DirectPath, DirectRequest, Fault, ForwardedRequest, Gather, Gid,
    Instant, Path, Payload, Piece, RunRequest, Senders, Streamed,
};
use std::os::fd::{OwnedFd, RawFd};
use tracing::debug;
use wire::Packet;
use wire::opcode::MAX_HEADERS;

/// Bytes of source GID, destination GID, traffic class and hop limit.
const ADDRESSES_BYTES: usize = 34;
/// Limit of records that are taken from one channel before the next channel is read, and before
/// acknowledgements are sent.
const TURN_RECORDS: usize = 16;
/// Number of reads of the peer's busy word before the thread yields between two reads.
const SPINS: u64 = 1000;
/// Limit of payload bytes that are copied out of the shared memory before they are handled: they are stored
/// by one instruction, which needs bytes that the peer cannot change meanwhile.
const COPIED_MAX: usize = 8;
/// Limit of bytes that are executed on the peer's memory before the busy word is cleared once: the peer waits
/// for that when it deregisters memory.
const BUSY_BYTES_MAX: u32 = 1 << 20;
/// Limit of bytes that are fetched from one peer before the next channel is read: 0.1 ms with the device's
/// lock held.
const FETCHED_MAX: u32 = 1 << 20;
/// Number of long records with payload that a reader takes, after a payload could not be fetched, before it
/// offers to fetch payloads again.
const FETCH_PAUSE: u32 = 256;
/// Number of bytes that a shorter request counts as.
const BUSY_BYTES_MIN: u32 = 256;

const _: () = assert!(
    ADDRESSES_BYTES + MAX_HEADERS <= HEADERS_MAX && FORWARDED_BYTES + MAX_HEADERS <= HEADERS_MAX
);

/// Whether the first record of a channel may be taken. A peer's datagrams are sent as packets until there is
/// a channel, and these packets have to be taken before the first record, which was sent after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// No record has arrived yet.
    Awaited,
    /// The first record has arrived; the socket is read before it is taken.
    Seen,
    /// The socket has been read since: records are taken as they arrive.
    Over,
}

/// A record whose payload is in the sender's memory.
#[derive(Clone, Copy)]
struct Referring<'a> {
    arrival: &'a Arrival,
    packet: &'a Packet,
    reference: Reference,
}

/// The rings of an open channel, and the state of its two ends.
#[derive(Debug)]
pub(crate) struct Rings {
    /// Number of the channel, as in [`rnic::Path::channel`].
    pub(super) channel: u16,
    writer: Writer,
    reader: Reader,
    /// Addresses of the last record that was written.
    sent: Option<Addresses>,
    /// Addresses of the last record that was taken.
    arrival: Option<Arrival>,
    /// The peer process's memory, where the kernel permits access.
    pub(super) peer_memory: Option<PeerMemory>,
    /// Sending end of the peer's [`crate::progress::wake_up::WakeUp`].
    pub(super) wake_up: Option<OwnedFd>,
    /// Number of local shared files that were announced to the peer.
    pub(super) files_shown: usize,
    /// The peer's next message brings the descriptor of a file.
    pub(super) descriptor_follows: bool,
    pub(super) beginning: Beginning,
    /// The thread of this process that the peer wakes; `None` while this process reads the rings itself.
    sleeper: Option<Sleeper>,
    /// Whether a queue pair has found no room in the ring, and was not offered room since.
    is_full: bool,
    /// Bytes that were executed on the peer's memory since the busy word was set.
    busy_bytes: u32,
    /// Whether the SEND that goes through the ring now follows requests that are not answered yet.
    send_follows: bool,
    /// Payloads of records that are not handled yet.
    ahead: FetchedAhead,
    /// Number of long records until the peer is offered again to fetch its payloads; 0 while it is.
    fetch_pause: u32,
    /// Measurements of streams of long requests.
    streams: Box<Streams>,
}

impl Rings {
    pub(super) fn new(writer: Writer, reader: Reader) -> Self {
        Self {
            channel: 0,
            writer,
            reader,
            sent: None,
            arrival: None,
            peer_memory: None,
            wake_up: None,
            files_shown: 0,
            descriptor_follows: false,
            beginning: Beginning::Awaited,
            sleeper: None,
            is_full: false,
            busy_bytes: 0,
            send_follows: false,
            ahead: FetchedAhead::default(),
            fetch_pause: 0,
            streams: Box::new(Streams::new()),
        }
    }

    /// Requests wake-ups of `sleeper` from the peer for records, and for room if a queue pair waits for it.
    /// True when there is one or the other already.
    pub(super) fn sleep(&mut self, sleeper: Sleeper) -> bool {
        self.sleeper = Some(sleeper);
        let has_room = self.is_full && self.writer.wait_for_room(sleeper);
        self.is_full &= !has_room;
        self.reader.sleep(sleeper) || has_room
    }

    pub(super) fn wake(&mut self) {
        self.sleeper = None;
        self.reader.wake();
    }

    /// Waits until the peer is not executing a request on local memory, or has ended.
    pub(super) fn wait_while_busy(&self, socket: RawFd) -> Result<(), Broken> {
        for round in 0u64.. {
            if !self.reader.writer_is_busy()?
                || (round % SPINS == SPINS - 1 && unix::is_closed(socket))
            {
                break;
            }
            if round < SPINS {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
        }
        Ok(())
    }

    /// Executes a request on the peer's memory, if the peer grants it and a copy method pays.
    pub(crate) fn execute(
        &mut self,
        at: &DirectPath<'_>,
        request: &DirectRequest<'_>,
        may_call: bool,
    ) -> bool {
        let (kind, length) = (kind_of(&request.direct), request.reth.length);
        let is_faster = self.stream_method(kind, length) == Method::Call;
        let sleeps = self.writer.reader_sleeps();
        let Some(peer_memory) = &mut self.peer_memory else {
            return false;
        };
        let Some(method) = peer_memory.copy_method(length, may_call, sleeps, is_faster) else {
            return false;
        };
        let begun = is_faster.then(clock::now);
        self.writer.begin_busy();
        let done = peer_memory.execute(at, request, method);
        self.count_busy(length.max(BUSY_BYTES_MIN));
        if let (Some(begun), Some(stream)) = (begun, self.streams.stream_of(kind, length)) {
            match done {
                true => stream.called(u64::from(length), 1, elapsed_since(begun)),
                false => stream.refused(),
            }
        }
        done
    }

    /// Executes a request on memory of the peer that is mapped here, if the peer grants it.
    #[inline]
    pub(super) fn execute_at_once(
        &mut self,
        at: &DirectPath<'_>,
        request: &DirectRequest<'_>,
    ) -> bool {
        let Some(peer_memory) = self
            .peer_memory
            .as_mut()
            .filter(|memory| memory.may_execute_at_once(&request.reth))
        else {
            return false;
        };
        self.writer.begin_busy();
        let done = peer_memory.execute_shared(at, request);
        self.count_busy(request.reth.length.max(BUSY_BYTES_MIN));
        done
    }

    /// Executes requests that follow each other, from the first on, as [`Self::execute`] would one by one.
    /// Returns how many were, and of how many bytes. A system call moves `call_max` bytes at most, and only
    /// requests as long as the first.
    pub(crate) fn execute_run(
        &mut self,
        at: &DirectPath<'_>,
        is_read: bool,
        run: &[RunRequest],
        call_max: u32,
    ) -> (usize, u32) {
        let Some(length) = run.first().map(|request| request.reth.length) else {
            return (0, 0);
        };
        let kind = if is_read {
            Streamed::Read
        } else {
            Streamed::Write
        };
        let is_faster = self.stream_method(kind, length) == Method::Call;
        let Some(peer_memory) = &mut self.peer_memory else {
            return (0, 0);
        };
        let calls = if is_faster {
            (call_max / length) as usize
        } else {
            0
        };
        let begun = is_faster.then(clock::now);
        self.writer.begin_busy();
        let done = peer_memory.execute_run(at, is_read, run, calls);
        let bytes = run[..done].iter().fold(0_u32, |sum, request| {
            sum.saturating_add(request.reth.length)
        });
        self.count_busy(bytes.max(BUSY_BYTES_MIN * done as u32));
        if let (Some(begun), Some(stream), 1..) =
            (begun, self.streams.stream_of(kind, length), done)
        {
            stream.called(u64::from(bytes), done as u64, elapsed_since(begun));
        }
        (done, bytes)
    }

    /// Counts bytes that were executed while the busy word is set, and clears it after so many that the peer
    /// may have waited for long.
    #[inline]
    fn count_busy(&mut self, bytes: u32) {
        self.busy_bytes = self.busy_bytes.saturating_add(bytes);
        if self.busy_bytes >= BUSY_BYTES_MAX {
            self.end_busy();
        }
    }

    /// Ends a series of [`Self::execute`]: the peer may revoke its grants.
    pub(super) fn end_busy(&mut self) {
        self.busy_bytes = 0;
        self.writer.end_busy();
    }

    /// The method of executing the next request of a stream.
    pub(crate) fn stream_method(&mut self, kind: Streamed, length: u32) -> Method {
        match (&self.peer_memory, self.streams.stream_of(kind, length)) {
            (Some(memory), Some(stream)) if memory.can_call() => stream.method(),
            _ => Method::Ring,
        }
    }

    /// The measurements of streams of long requests.
    pub(crate) fn measured_streams(&self) -> impl Iterator<Item = Measured> {
        self.streams.measured()
    }

    /// Records a request that goes through the ring; `follows` is whether earlier ones are not answered yet.
    pub(crate) fn note_stream(&mut self, kind: Streamed, length: u32, follows: bool) {
        if kind == Streamed::Send {
            self.send_follows = follows;
            return;
        }
        if let (Some(memory), Some(stream)) =
            (&self.peer_memory, self.streams.stream_of(kind, length))
            && memory.can_call()
        {
            stream.sent(length, follows, clock::now);
        }
    }

    /// Whether requests can be executed in memory that both processes have mapped.
    pub(crate) fn has_shared_mappings(&self) -> bool {
        self.peer_memory
            .as_ref()
            .is_some_and(PeerMemory::has_shared_mappings)
    }

    /// Number of packets of this MTU that may be sent as one record now. 0 while the ring is full: a thread
    /// of this process that sleeps is then woken when there is room. While none sleeps, a wake-up would cost
    /// a system call for each record that the peer takes, and run one more thread, although the program looks
    /// again by itself.
    pub(crate) fn room(&mut self, mtu: u32) -> u32 {
        let writer = &mut self.writer;
        let has_room = writer.has_room()
            || self
                .sleeper
                .is_some_and(|sleeper| writer.wait_for_room(sleeper));
        self.is_full = !has_room;
        if has_room {
            (PAYLOAD_MAX as u32 / mtu).max(1)
        } else {
            0
        }
    }

    /// The sleepers of the peer that have to be woken: for records that were written, and because its ring to
    /// this process has room again.
    pub(super) fn must_wake(&mut self) -> [Option<Sleeper>; 2] {
        [self.writer.must_wake(), self.reader.must_wake()]
    }

    /// Whether the first record of the channel has arrived and was not taken yet.
    pub(super) fn begins(&self) -> bool {
        self.beginning != Beginning::Over && self.reader.has_record()
    }

    /// Takes records until `is_enough` holds, at most [`TURN_RECORDS`]. Returns how many were taken.
    pub(super) fn receive(
        &mut self,
        rnic: &mut rnic::Device,
        senders: Senders,
        now: Instant,
        is_enough: impl Fn(&rnic::Device) -> bool,
    ) -> Result<usize, Broken> {
        let mut fetched = 0;
        for taken in 0..TURN_RECORDS {
            let Some(record) = self.reader.next()? else {
                return Ok(taken);
            };
            fetched += self.handle(rnic, senders, now, &record)?;
            self.reader.release(&record);
            if fetched >= FETCHED_MAX || is_enough(rnic) {
                return Ok(taken + 1);
            }
        }
        Ok(TURN_RECORDS)
    }

    /// Takes all records of a peer that has ended: at most the capacity of a ring.
    pub(super) fn receive_all(&mut self, rnic: &mut rnic::Device, senders: Senders, now: Instant) {
        for _ in 0..RECORDS_MAX / TURN_RECORDS {
            if !self
                .receive(rnic, senders, now, |_| false)
                .is_ok_and(|taken| taken > 0)
            {
                break;
            }
        }
    }

    /// Handles a record. Returns the number of bytes that were fetched for it.
    fn handle(
        &mut self,
        rnic: &mut rnic::Device,
        senders: Senders,
        now: Instant,
        record: &Record,
    ) -> Result<u32, Broken> {
        let mut headers = record.headers();
        let mut copied = [0; COPIED_MAX];
        let payload = if record.length as usize <= COPIED_MAX {
            Payload::Bytes(record.copy(&mut copied))
        } else {
            Payload::Foreign {
                address: record.payload,
                length: record.length,
            }
        };
        if record.flags & FORWARDED != 0 {
            let (request, headers) = headers.split_first_chunk().ok_or(Broken)?;
            let request = forwarded::parse(request).ok_or(Broken)?;
            let (packet, _) = Packet::parse(headers).map_err(|_| Broken)?;
            let from = rnic::Channel {
                number: self.channel,
                senders,
            };
            rnic.shm()
                .handle_forwarded(now, from, &request, &packet, payload, &mut ProcessMemory);
            return Ok(0);
        }
        if record.flags & SAME_PATH == 0 {
            let (addresses, rest) = headers.split_first_chunk().ok_or(Broken)?;
            self.arrival = Some(arrival(addresses));
            headers = rest;
        }
        let arrival = self.arrival.ok_or(Broken)?;
        let (packet, _) = Packet::parse(headers).map_err(|_| Broken)?;
        if record.flags & BY_REFERENCE != 0 {
            let reference = Reference::of_record(record).ok_or(Broken)?;
            let referring = Referring {
                arrival: &arrival,
                packet: &packet,
                reference,
            };
            let ahead = self.fetch_ahead(rnic, senders, referring, record)?;
            let fetched = self.ahead.take(record.end);
            let bytes = if fetched.is_some() {
                ahead
            } else {
                reference.length
            };
            self.handle_reference(rnic, senders, now, referring, fetched);
            return Ok(bytes);
        }
        rnic.shm()
            .handle_packet(now, &arrival, senders, &packet, payload, &mut ProcessMemory);
        if self.fetch_pause > 0 && payload.len() >= MEASURED_FROM {
            self.fetch_pause -= 1;
            if self.fetch_pause == 0 {
                self.offer_fetches();
            }
        }
        Ok(0)
    }

    /// Handles a packet whose payload is in the sender's memory. Where it cannot be fetched, the packet
    /// counts as lost, and the peer sends records with payload for a while: its queue pair may have left RTS,
    /// its grant table may have no entry for it, or memory of either side may not be mapped.
    fn handle_reference(
        &mut self,
        rnic: &mut rnic::Device,
        senders: Senders,
        now: Instant,
        record: Referring<'_>,
        fetched: Option<Copy>,
    ) {
        let Referring {
            arrival,
            packet,
            reference,
        } = record;
        // The peer waits for the end of this before a queue pair that leaves RTS completes its requests, so
        // nothing is fetched from a buffer that the program has got back.
        self.writer.begin_busy();
        let peer = sender_of(&mut self.peer_memory, rnic, senders, arrival, packet.dest);
        let mut memory = Fetching::new(peer, fetched);
        rnic.shm().handle_packet(
            now,
            arrival,
            senders,
            packet,
            reference.payload(),
            &mut memory,
        );
        if memory.has_failed() {
            self.reader.offer_fetches(false);
            self.fetch_pause = FETCH_PAUSE;
            debug!(target: HOST, channel = self.channel,
                "a payload cannot be fetched from the peer's memory: SENDs go through the ring");
        }
        self.end_busy();
    }

    /// Fetches the payload of a record together with those of the SENDs that follow it, where several are
    /// waiting and this one was not fetched yet. Returns the number of bytes.
    fn fetch_ahead(
        &mut self,
        rnic: &mut rnic::Device,
        senders: Senders,
        referring: Referring<'_>,
        record: &Record,
    ) -> Result<u32, Broken> {
        let Referring {
            arrival,
            packet,
            reference,
        } = referring;
        if self.ahead.has(record.end) || !is_whole_send(packet) {
            return Ok(0);
        }
        let waiting = Waiting::behind(&self.reader, record, reference, packet.dest)?;
        let mut receives = [Piece {
            address: 0,
            length: 0,
            backing: Backing::Null,
        }; TOGETHER_MAX];
        let receives = match waiting.all() {
            [] | [_] => return Ok(0),
            all => {
                let count = rnic
                    .shm()
                    .next_receives(packet.dest, &mut receives[..all.len()]);
                &receives[..count]
            }
        };
        self.writer.begin_busy();
        let peer = sender_of(&mut self.peer_memory, rnic, senders, arrival, packet.dest);
        let bytes = peer.map_or(0, |peer| self.ahead.fetch(peer, waiting.all(), receives));
        self.end_busy();
        Ok(bytes)
    }

    /// Offers the peer to fetch payloads from its memory, if the kernel permits access to it.
    pub(super) fn offer_fetches(&self) {
        self.reader
            .offer_fetches(self.peer_memory.as_ref().is_some_and(PeerMemory::can_call));
    }

    /// The reference that takes the payload's place, if the peer fetches payloads and the stream of such
    /// SENDs is faster that way.
    fn reference(&mut self, packet: &Packet, payload: Gather<'_>) -> Option<Reference> {
        let reference = Reference::of_send(packet, payload)?;
        if !self.writer.reader_fetches() {
            return None;
        }
        // Of a message of several records each follows the one before it.
        let follows = std::mem::replace(&mut self.send_follows, true);
        let stream = self.streams.stream_of(Streamed::Send, reference.length)?;
        stream.sent(reference.length, follows, clock::now);
        (stream.method() == Method::Call).then_some(reference)
    }

    /// Writes a packet, or a run of packets of one message, as a record. `None` where there is no room.
    #[inline]
    pub(crate) fn send(
        &mut self,
        path: &Path,
        packet: &Packet,
        payload: Gather<'_>,
        counters: &mut LinkCounters,
    ) -> Option<Result<(), Fault>> {
        counters.shm_sent += 1;
        let addresses = Addresses::of(path);
        let same = self.sent == Some(addresses);
        let (from, flags) = if same {
            (0, SAME_PATH)
        } else {
            (ADDRESSES_BYTES, 0)
        };
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            if !same {
                place[..ADDRESSES_BYTES].copy_from_slice(&addresses.to_bytes());
            }
            let length = packet.encode(0, place[from..].first_chunk_mut()?).ok()?;
            Some(from + length)
        };
        let reference = if payload.len() < MEASURED_FROM {
            None
        } else {
            self.reference(packet, payload)
        };
        let written = match reference {
            Some(reference) => {
                counters.shm_by_reference += 1;
                let refer = |place: &mut [u8]| {
                    place.copy_from_slice(&reference.to_bytes());
                    Ok::<(), Fault>(())
                };
                self.writer
                    .write(flags | BY_REFERENCE, REFERENCE_BYTES, headers, refer)?
            }
            None => {
                let bytes = payload.len() as usize;
                self.writer
                    .write(flags, bytes, headers, |place| gather(payload, place))?
            }
        };
        if written.is_ok() {
            self.sent = Some(addresses);
        }
        Some(written)
    }

    /// Forwards an XRC request to the owner of its shared receive queue. It fits if [`Self::room`] was not 0.
    pub(crate) fn forward(&mut self, request: &ForwardedRequest, packet: &Packet, payload: &[u8]) {
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            place[..FORWARDED_BYTES].copy_from_slice(&forwarded::to_bytes(request));
            Some(
                FORWARDED_BYTES
                    + packet
                        .encode(0, place[FORWARDED_BYTES..].first_chunk_mut()?)
                        .ok()?,
            )
        };
        let copy = |place: &mut [u8]| {
            place.copy_from_slice(payload);
            Ok::<(), Fault>(())
        };
        let _ = self.writer.write(FORWARDED, payload.len(), headers, copy);
    }
}

/// The kind of a WRITE or READ; an atomic counts as a WRITE.
fn kind_of(direct: &Direct<'_>) -> Streamed {
    match direct {
        Direct::Read(_) => Streamed::Read,
        _ => Streamed::Write,
    }
}

/// Nanoseconds since a time.
fn elapsed_since(begun: Instant) -> u64 {
    clock::now().0.saturating_sub(begun.0)
}

/// Source and destination of a record, as integers, which are compared for each record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Addresses {
    source: u128,
    destination: u128,
    traffic_class: u8,
    hop_limit: u8,
}

impl Addresses {
    #[inline]
    fn of(path: &Path) -> Self {
        Self {
            source: u128::from_ne_bytes(path.source.0),
            destination: u128::from_ne_bytes(path.destination.0),
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
        }
    }

    fn to_bytes(self) -> [u8; ADDRESSES_BYTES] {
        let mut addresses = [0; ADDRESSES_BYTES];
        addresses[..16].copy_from_slice(&self.source.to_ne_bytes());
        addresses[16..32].copy_from_slice(&self.destination.to_ne_bytes());
        (addresses[32], addresses[33]) = (self.traffic_class, self.hop_limit);
        addresses
    }
}

fn arrival(addresses: &[u8; ADDRESSES_BYTES]) -> Arrival {
    let gid = |at: usize| Gid(std::array::from_fn(|byte| addresses[at + byte]));
    Arrival {
        source: gid(0),
        destination: gid(16),
        traffic_class: addresses[32],
        hop_limit: addresses[33],
        service_level: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Message, Position, Psn, Qpn, Service, Tail};

    fn fill(rings: &mut Rings) {
        let mut counters = LinkCounters::default();
        let send = Message::Send {
            position: Position::Only,
            tail: Tail::None,
        };
        let packet = Packet::new(Service::Rc, Qpn::new(5), Psn::new(0), send);
        while rings.room(4096) > 0 {
            assert_eq!(
                rings.send(
                    &Path::default(),
                    &packet,
                    Gather::Inline(&[1; 1000]),
                    &mut counters
                ),
                Some(Ok(()))
            );
        }
    }

    /// Takes all records; returns the sleeper that waits for room.
    fn take(rings: &mut Rings) -> Option<Sleeper> {
        while let Some(record) = rings.reader.next().unwrap() {
            rings.reader.release(&record);
        }
        rings.must_wake()[1]
    }

    #[test]
    fn only_a_sleeper_is_woken_for_room() {
        let (writer, reader, memory) = link::memory::create().unwrap();
        let mut ours = Rings::new(writer, reader);
        let (writer, reader) = link::memory::open(&memory).unwrap();
        let mut theirs = Rings::new(writer, reader);
        fill(&mut ours);
        assert_eq!(
            take(&mut theirs),
            None,
            "the program polls, and looks again"
        );
        fill(&mut ours);
        assert!(!ours.sleep(Sleeper::Program));
        assert_eq!(
            take(&mut theirs),
            Some(Sleeper::Program),
            "it sleeps after it has found no room"
        );
        fill(&mut ours);
        assert_eq!(
            take(&mut theirs),
            Some(Sleeper::Program),
            "it finds no room while it sleeps"
        );
        ours.wake();
        fill(&mut ours);
        assert_eq!(take(&mut theirs), None);
        assert!(
            ours.sleep(Sleeper::Thread),
            "there is room already, and something waits for it"
        );
        assert!(!ours.sleep(Sleeper::Thread), "that was said");
    }
}
