//! Packets on a lane.
//!
//! A record has the addresses, unless they are those of the record before it, then the headers as they would
//! be on the wire, then the payload.

use super::direct::{LARGE, Reach, SMALL};
use super::{Found, Lanes};
use crate::sys::memory::ProcessMemory;
use crate::sys::unix;
use crate::transmit::{Transmitter, gather};
use link::memory::{Broken, PAYLOAD_MAX, Reader, Record, Writer};
use rnic::{Arrival, Direct, Fault, Gather, Gid, Instant, Path, Payload, Senders, Sink};
use std::os::fd::RawFd;
use wire::opcode::MAX_HEADERS;
use wire::{Packet, Qpn, Reth};

/// The record comes from where, and goes where, the one before it did.
const SAME_WAY: u16 = 1;
/// Source, destination, traffic class, hop limit.
const WAY_BYTES: usize = 34;
/// Records taken from one lane before the next one has its turn.
const TURN_RECORDS: usize = 64;
/// Looks at whether somebody is still busy before the core is given away in between.
const LOOKS: u64 = 1000;
/// Payload up to this length is copied out of the shared memory before it is handled: a store of eight bytes
/// at once needs bytes that do not change.
const COPIED_MAX: usize = 64;

const _: () = assert!(WAY_BYTES + MAX_HEADERS <= link::memory::HEADERS_MAX);

/// Both directions of a lane.
#[derive(Debug)]
pub(super) struct Traffic {
    writer: Writer,
    reader: Reader,
    sent: Option<[u8; WAY_BYTES]>,
    arrival: Option<Arrival>,
    /// The other side's memory, where we can reach it.
    pub(super) reach: Option<Reach>,
}

impl Traffic {
    pub(super) fn new(writer: Writer, reader: Reader) -> Self {
        Self { writer, reader, sent: None, arrival: None, reach: None }
    }

    pub(super) fn sleep(&mut self) -> bool {
        self.reader.sleep()
    }

    pub(super) fn wake(&mut self) {
        self.reader.wake();
    }

    /// Waits until the other side is not busy with our memory, or is gone.
    pub(super) fn wait_while_busy(&self, socket: RawFd) {
        for look in 0u64.. {
            if !self.reader.writer_is_busy() || (look % LOOKS == LOOKS - 1 && unix::is_closed(socket)) {
                break;
            }
            if look < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    fn execute(&self, path: &Path, from: Qpn, to: Qpn, reth: &Reth, direct: Direct<'_>) -> bool {
        let Some(reach) = &self.reach else { return false };
        let worth = reth.length <= SMALL || (reth.length <= LARGE && self.writer.reader_sleeps());
        worth && self.writer.busy(|| reach.execute(path, from, to, reth, direct))
    }

    pub(super) fn must_wake(&mut self) -> bool {
        let (sent, taken) = (self.writer.must_wake(), self.reader.must_wake());
        sent || taken
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

    /// Takes what is there, from somebody who adds no more.
    pub(super) fn receive_all(&mut self, rnic: &mut rnic::Device, senders: Senders, now: Instant) {
        while self.receive(rnic, senders, now, |_| false).is_ok_and(|taken| taken > 0) {}
    }

    fn handle(
        &mut self,
        rnic: &mut rnic::Device,
        senders: Senders,
        now: Instant,
        record: &Record,
    ) -> Result<(), Broken> {
        let mut headers = record.headers();
        if record.flags & SAME_WAY == 0 {
            let (way, rest) = headers.split_first_chunk().ok_or(Broken)?;
            self.arrival = Some(arrival(way));
            headers = rest;
        }
        let arrival = self.arrival.ok_or(Broken)?;
        let (packet, _) = Packet::parse(headers).map_err(|_| Broken)?;
        let mut copied = [0; COPIED_MAX];
        let payload = if record.length as usize <= COPIED_MAX {
            Payload::Bytes(record.copy(&mut copied))
        } else {
            Payload::Foreign { address: record.payload, length: record.length }
        };
        rnic.handle_lane_packet(now, &arrival, senders, &packet, payload, &mut ProcessMemory);
        Ok(())
    }

    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Option<Result<(), Fault>> {
        let mut headers = [0; WAY_BYTES + MAX_HEADERS];
        let mut encoded = [0; MAX_HEADERS];
        let length = packet.encode(0, &mut encoded).ok()?;
        let way = way(path);
        let same = self.sent == Some(way);
        let from = if same { 0 } else { WAY_BYTES };
        headers[..from].copy_from_slice(&way[..from]);
        headers[from..from + length].copy_from_slice(&encoded[..length]);
        let flags = if same { SAME_WAY } else { 0 };
        let bytes = payload.len() as usize;
        let written =
            self.writer.write(&headers[..from + length], flags, bytes, |place| gather(payload, place))?;
        if written.is_ok() {
            self.sent = Some(way);
        }
        Some(written)
    }
}

fn way(path: &Path) -> [u8; WAY_BYTES] {
    let mut way = [0; WAY_BYTES];
    way[..16].copy_from_slice(&path.source.0);
    way[16..32].copy_from_slice(&path.destination.0);
    (way[32], way[33]) = (path.traffic_class, path.hop_limit);
    way
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
    /// The first request may be executed here and now, for nothing else is about to be sent.
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
        let allowed = std::mem::take(&mut self.direct);
        let lane = self.lanes.traffic(path.lane).filter(|_| allowed);
        let done = lane.is_some_and(|lane| lane.execute(path, from, to, reth, direct));
        self.transmitter.counters.lane_direct += u64::from(done);
        done
    }

    fn lane(&mut self, path: &Path, from: Qpn, to: Qpn) -> u16 {
        match self.lanes.look_up(from, to, path.destination) {
            Found::Lane(lane) => lane,
            _ => 0,
        }
    }
}
