//! Packets on a lane.
//!
//! A record has the addresses, unless they are those of the record before it, then the headers as they would
//! be on the wire, then the payload.

use super::direct::Reach;
use super::visits::{self, VISIT_BYTES};
use super::{Found, Lanes};
use crate::sys::memory::ProcessMemory;
use crate::sys::unix;
use crate::transmit::{Transmitter, gather};
use link::memory::{Broken, HEADERS_MAX, PAYLOAD_MAX, RECORDS_MAX, Reader, Record, Sleeper, Writer};
use rnic::{Arrival, Direct, Fault, Gather, Gid, Instant, Owner, Path, Payload, Senders, Sink, Visit};
use std::os::fd::{OwnedFd, RawFd};
use wire::opcode::MAX_HEADERS;
use wire::{Packet, Qpn, Reth};

/// The record comes from where, and goes where, the one before it did.
const SAME_WAY: u16 = 1;
/// A request that is handed on: no way, but what [`visits`] says.
const VISIT: u16 = 2;
/// Source, destination, traffic class, hop limit.
const WAY_BYTES: usize = 34;
/// Records taken from one lane before the next one has its turn.
const TURN_RECORDS: usize = 64;
/// Looks at whether somebody is still busy before the core is given away in between.
const LOOKS: u64 = 1000;
/// Payload up to this length is copied out of the shared memory before it is handled: a store of eight bytes
/// at once needs bytes that do not change.
const COPIED_MAX: usize = 8;

const _: () = assert!(WAY_BYTES + MAX_HEADERS <= HEADERS_MAX && VISIT_BYTES + MAX_HEADERS <= HEADERS_MAX);

/// How far the other side is with what it sends here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// Nothing has come by the lane.
    Awaited,
    /// Something has, but is not looked at before the packets that were sent before it.
    Seen,
    Over,
}

/// Both directions of a lane.
#[derive(Debug)]
pub(super) struct Traffic {
    /// The number of the lane.
    pub(super) lane: u16,
    writer: Writer,
    reader: Reader,
    sent: Option<Way>,
    arrival: Option<Arrival>,
    /// The other side's memory, where we can reach it.
    pub(super) reach: Option<Reach>,
    /// Wakes a program of the other side that waits for an event.
    pub(super) bell: Option<OwnedFd>,
    /// How many of our files the other side was shown.
    pub(super) files_shown: usize,
    pub(super) beginning: Beginning,
}

impl Traffic {
    pub(super) fn new(writer: Writer, reader: Reader) -> Self {
        Self {
            lane: 0,
            writer,
            reader,
            sent: None,
            arrival: None,
            reach: None,
            bell: None,
            files_shown: 0,
            beginning: Beginning::Awaited,
        }
    }

    pub(super) fn sleep(&mut self, sleeper: Sleeper) -> bool {
        self.reader.sleep(sleeper)
    }

    pub(super) fn wake(&mut self) {
        self.reader.wake();
    }

    /// Waits until the other side is not busy with our memory, or is gone.
    pub(super) fn wait_while_busy(&self, socket: RawFd) -> Result<(), Broken> {
        for look in 0u64.. {
            if !self.reader.writer_is_busy()? || (look % LOOKS == LOOKS - 1 && unix::is_closed(socket)) {
                break;
            }
            if look < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        path: &Path,
        ends: (Qpn, Qpn),
        reth: &Reth,
        direct: Direct<'_>,
        first: bool,
    ) -> bool {
        let Some(reach) = &mut self.reach else { return false };
        let Some(means) = reach.is_worth(reth, first, self.writer.reader_sleeps()) else { return false };
        self.writer.busy(|| reach.execute(path, ends, reth, direct, means))
    }

    /// Who has to be woken over what was sent, and whether their thread has to be for the room that there is
    /// now.
    pub(super) fn must_wake(&mut self) -> (Option<Sleeper>, bool) {
        (self.writer.must_wake(), self.reader.must_wake())
    }

    /// Whether the first record waits.
    pub(super) fn begins(&self) -> bool {
        self.beginning != Beginning::Over && self.reader.has_record()
    }

    /// Takes records until it is enough. Says how many there were.
    pub(super) fn receive(
        &mut self,
        rnic: &mut rnic::Device,
        senders: Senders,
        now: Instant,
        is_enough: impl Fn(&rnic::Device) -> bool,
    ) -> Result<usize, Broken> {
        for taken in 0..TURN_RECORDS {
            let Some(record) = self.reader.next()? else { return Ok(taken) };
            self.handle(rnic, senders, now, &record)?;
            self.reader.release(&record);
            if is_enough(rnic) {
                return Ok(taken + 1);
            }
        }
        Ok(TURN_RECORDS)
    }

    /// Takes what is there, from somebody who adds no more: a ring has room for so much.
    pub(super) fn receive_all(&mut self, rnic: &mut rnic::Device, senders: Senders, now: Instant) {
        for _ in 0..RECORDS_MAX / TURN_RECORDS {
            if !self.receive(rnic, senders, now, |_| false).is_ok_and(|taken| taken > 0) {
                break;
            }
        }
    }

    fn handle(
        &mut self,
        rnic: &mut rnic::Device,
        senders: Senders,
        now: Instant,
        record: &Record,
    ) -> Result<(), Broken> {
        let mut headers = record.headers();
        let mut copied = [0; COPIED_MAX];
        let payload = if record.length as usize <= COPIED_MAX {
            Payload::Bytes(record.copy(&mut copied))
        } else {
            Payload::Foreign { address: record.payload, length: record.length }
        };
        if record.flags & VISIT != 0 {
            let (visit, headers) = headers.split_first_chunk().ok_or(Broken)?;
            let visit = visits::parse(visit).ok_or(Broken)?;
            let (packet, _) = Packet::parse(headers).map_err(|_| Broken)?;
            rnic.handle_visit(now, self.lane, senders, &visit, &packet, payload, &mut ProcessMemory);
            return Ok(());
        }
        if record.flags & SAME_WAY == 0 {
            let (way, rest) = headers.split_first_chunk().ok_or(Broken)?;
            self.arrival = Some(arrival(way));
            headers = rest;
        }
        let arrival = self.arrival.ok_or(Broken)?;
        let (packet, _) = Packet::parse(headers).map_err(|_| Broken)?;
        rnic.handle_lane_packet(now, &arrival, senders, &packet, payload, &mut ProcessMemory);
        Ok(())
    }

    #[inline]
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Option<Result<(), Fault>> {
        let way = Way::of(path);
        let same = self.sent == Some(way);
        let (from, flags) = if same { (0, SAME_WAY) } else { (WAY_BYTES, 0) };
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            if !same {
                place[..WAY_BYTES].copy_from_slice(&way.to_bytes());
            }
            let length = packet.encode(0, place[from..].first_chunk_mut()?).ok()?;
            Some(from + length)
        };
        let bytes = payload.len() as usize;
        let written = self.writer.write(flags, bytes, headers, |place| gather(payload, place))?;
        if written.is_ok() {
            self.sent = Some(way);
        }
        Some(written)
    }
}

impl Traffic {
    /// Hands a request on. One for which there was room fits.
    fn visit(&mut self, visit: &Visit, packet: &Packet, payload: &[u8]) {
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            place[..VISIT_BYTES].copy_from_slice(&visits::to_bytes(visit));
            Some(VISIT_BYTES + packet.encode(0, place[VISIT_BYTES..].first_chunk_mut()?).ok()?)
        };
        let copy = |place: &mut [u8]| {
            place.copy_from_slice(payload);
            Ok::<(), Fault>(())
        };
        let _ = self.writer.write(VISIT, payload.len(), headers, copy);
    }
}

/// Where packets come from and go. In numbers, because it is compared for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Way {
    source: u128,
    destination: u128,
    traffic_class: u8,
    hop_limit: u8,
}

impl Way {
    #[inline]
    fn of(path: &Path) -> Self {
        Self {
            source: u128::from_ne_bytes(path.source.0),
            destination: u128::from_ne_bytes(path.destination.0),
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
        }
    }

    fn to_bytes(self) -> [u8; WAY_BYTES] {
        let mut way = [0; WAY_BYTES];
        way[..16].copy_from_slice(&self.source.to_ne_bytes());
        way[16..32].copy_from_slice(&self.destination.to_ne_bytes());
        (way[32], way[33]) = (self.traffic_class, self.hop_limit);
        way
    }
}

fn arrival(way: &[u8; WAY_BYTES]) -> Arrival {
    let gid = |at: usize| Gid(std::array::from_fn(|byte| way[at + byte]));
    Arrival { source: gid(0), destination: gid(16), traffic_class: way[32], hop_limit: way[33] }
}

/// Where the device's packets leave: by a lane, or by the network.
#[derive(Debug)]
pub(crate) struct Exit<'a> {
    pub(crate) transmitter: &'a mut Transmitter,
    pub(crate) lanes: &'a mut Lanes,
    /// The first request may be executed here and now by a system call, for nothing else is about to be sent.
    pub(crate) direct: bool,
}

impl Sink for Exit<'_> {
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        match self.lanes.traffic(path.lane) {
            // `room` said that it fits; what does not is lost, as it may be on a network.
            Some(traffic) => {
                self.transmitter.counters.lane_sent += 1;
                traffic.send(path, packet, payload).unwrap_or(Ok(()))
            }
            None => self.transmitter.send(path, packet, payload),
        }
    }

    fn room(&mut self, path: &Path, mtu: u32) -> u32 {
        let Some(Traffic { writer, .. }) = self.lanes.traffic(path.lane) else { return 1 };
        if writer.has_room() || writer.wait_for_room() { (PAYLOAD_MAX as u32 / mtu).max(1) } else { 0 }
    }

    fn execute(&mut self, path: &Path, from: Qpn, to: Qpn, reth: &Reth, direct: Direct<'_>) -> bool {
        let first = std::mem::take(&mut self.direct);
        let lane = self.lanes.traffic(path.lane);
        let done = lane.is_some_and(|lane| lane.execute(path, (from, to), reth, direct, first));
        self.transmitter.counters.lane_direct += u64::from(done);
        done
    }

    fn prefers_to_execute(&mut self, path: &Path) -> bool {
        let lane = self.lanes.traffic(path.lane);
        lane.and_then(|lane| lane.reach.as_ref()).is_some_and(Reach::has_views)
    }

    fn lane(&mut self, path: &Path, from: Qpn, to: Qpn) -> u16 {
        match self.lanes.look_up(from, to, path.destination) {
            Found::Lane(lane) => lane,
            _ => 0,
        }
    }

    fn owner(&mut self, holder: Qpn, srq: Qpn) -> Owner {
        self.lanes.owner(holder, srq)
    }

    fn visit(&mut self, lane: u16, visit: &Visit, packet: &Packet, payload: &[u8]) {
        if let Some(traffic) = self.lanes.traffic(lane) {
            self.transmitter.counters.lane_sent += 1;
            traffic.visit(visit, packet, payload);
        }
    }
}
