//! The port of a device in a host of a lab: packets go to the lab through shared memory, and come from there,
//! instead of through a socket. The lab is the network between its hosts (`rockery lab`).

use crate::settings;
use crate::sys::epoll::Epoll;
use crate::sys::memory::ProcessMemory;
use crate::sys::process;
use crate::transmit::gather;
use link::attachment::{self, DeviceEnds, MEMORIES};
use link::lab::{Header, Hello, MESSAGE_BYTES, WAKE, Welcome};
use link::memory::{HEADERS_MAX, Record, Sleeper, Writer};
use link::unix;
use rnic::{Arrival, Fault, Gather, Gid, Instant, PacketKind, Path, Payload};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;
use wire::opcode::MAX_HEADERS;
use wire::{Message, Packet, Qpn};

/// Records that are taken before packets are sent again.
const TURN_RECORDS: usize = 64;
/// Payload of up to so many bytes is copied before it is handled, as [`crate::shm`] does it.
const COPIED_MAX: usize = 8;
/// How long the lab may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

const _: () = assert!(Header::BYTES + MAX_HEADERS <= HEADERS_MAX, "headers fit a record");

/// The port of a device.
#[derive(Debug)]
pub(crate) struct LabPort {
    socket: OwnedFd,
    rings: DeviceEnds,
    /// Which ring a packet goes into.
    welcome: Welcome,
    /// The time that packets are stamped with.
    now: Instant,
    /// The progress thread sleeps, and the lab wakes it.
    sleeps: bool,
    /// One bit for each class whose ring had no room for the last packet of that class.
    full: u8,
    /// The lab has ended, or has written what is not valid: the cable is cut.
    cut: bool,
}

impl LabPort {
    /// Attaches a device to the lab that the environment names; `None` where it names none.
    pub(crate) fn attach(range: (Qpn, u32)) -> io::Result<Option<Self>> {
        let Some(name) = settings::lab() else { return Ok(None) };
        let socket = unix::connect(&name, TIMEOUT)?;
        let fd = socket.as_raw_fd();
        // Any program of the host could listen at the name.
        let user = unix::peer_user(fd)?;
        if user != process::user() && user != 0 {
            return Err(io::Error::other(format!("user {user} listens at its socket")));
        }
        unix::set_timeouts(fd, TIMEOUT)?;
        unix::send(fd, &hello(range), None)?;
        let mut answer = [0; Welcome::BYTES];
        let (length, memories) = unix::receive_fds::<MEMORIES>(fd, &mut answer)?;
        if length == 0 {
            return Err(io::Error::other("it has no room for another device"));
        }
        let welcome = Welcome::parse(&answer[..length]);
        let memories: Option<Vec<OwnedFd>> = memories.into_iter().collect();
        let memories: Option<[OwnedFd; MEMORIES]> = memories.and_then(|all| all.try_into().ok());
        let (Some(welcome), Some(memories)) = (welcome, memories) else {
            return Err(io::Error::other("it is of another version: use one installation of rockery"));
        };
        unix::set_nonblocking(fd)?;
        let mut rings = attachment::open(&memories)?;
        rings.classes.iter_mut().for_each(|ring| ring.fill_up_to(welcome.ahead as usize));
        Ok(Some(Self { socket, rings, welcome, now: Instant(0), sleeps: false, full: 0, cut: false }))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Tells the lab of a further range of queue pair numbers.
    pub(crate) fn add(&self, range: (Qpn, u32)) {
        // Without the message the lab drops packets for the new queue pairs, which time out.
        let _ = unix::send_now(self.raw(), &hello(range));
    }

    /// Before packets are sent: what they are stamped with.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.now = now;
    }

    /// After packets were sent: wakes the lab if it sleeps.
    pub(crate) fn end(&mut self) {
        let rings = self.rings.classes.iter_mut().chain([&mut self.rings.notifications]);
        if rings.filter_map(Writer::must_wake).count() > 0 {
            self.signal();
        }
    }

    fn signal(&self) {
        // A full socket has enough wake-ups in it.
        let _ = unix::send_now(self.raw(), &[WAKE]);
    }

    /// Whether a packet may be sent now. Where not, the lab wakes the progress thread when there is room, if
    /// that thread sleeps. While a program polls, a wake-up would be a system call of the lab for each round,
    /// and one more thread that runs, for a program that looks again by itself.
    #[inline]
    pub(crate) fn has_room(&mut self, path: &Path, kind: PacketKind) -> bool {
        let class = self.welcome.ring(path.traffic_class, kind == PacketKind::Acknowledgement);
        let ring = &mut self.rings.classes[class];
        let has_room = self.cut || ring.has_room() || self.sleeps && ring.wait_for_room(Sleeper::Thread);
        self.full = self.full & !(1 << class) | u8::from(!has_room) << class;
        has_room
    }

    /// Sends a packet.
    pub(crate) fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        if self.cut {
            return Ok(());
        }
        let header = Header {
            stamp: self.now.0,
            source: path.source.0,
            destination: path.destination.0,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            source_port: path.source_port,
        };
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            place[..Header::BYTES].copy_from_slice(&header.to_bytes());
            Some(Header::BYTES + packet.encode(0, place[Header::BYTES..].first_chunk_mut()?).ok()?)
        };
        let ring = match packet.message {
            Message::Congestion => &mut self.rings.notifications,
            Message::Acknowledge(_) | Message::AtomicAcknowledge { .. } => {
                &mut self.rings.classes[self.welcome.ring(path.traffic_class, true)]
            }
            _ => &mut self.rings.classes[self.welcome.ring(path.traffic_class, false)],
        };
        let length = payload.len() as usize;
        // A record without room is lost, as a packet may be on a network.
        ring.write(0, length, headers, |place| gather(payload, place)).unwrap_or(Ok(()))
    }

    /// Takes what has arrived. False when nothing had.
    pub(crate) fn receive(&mut self, rnic: &mut rnic::Device, now: Instant) -> bool {
        if self.cut {
            return false;
        }
        let mut taken = 0;
        while taken < TURN_RECORDS {
            match self.rings.arrivals.next() {
                Ok(Some(record)) if handle(rnic, now, &record).is_some() => {
                    self.rings.arrivals.release(&record);
                }
                Ok(None) => break,
                _ => {
                    self.cut = true;
                    break;
                }
            }
            taken += 1;
        }
        if self.rings.arrivals.must_wake().is_some() {
            self.signal();
        }
        taken > 0
    }

    /// Has the lab wake the progress thread for the next record, and for room where a packet waits for some.
    /// True when there is one or the other already.
    pub(crate) fn sleep(&mut self) -> bool {
        if self.cut {
            return false;
        }
        self.sleeps = true;
        let mut has_room = false;
        for (class, ring) in self.rings.classes.iter_mut().enumerate() {
            if self.full >> class & 1 == 1 && ring.wait_for_room(Sleeper::Thread) {
                self.full &= !(1 << class);
                has_room = true;
            }
        }
        self.rings.arrivals.sleep(Sleeper::Thread) || has_room
    }

    /// Has the lab send no wake-ups.
    pub(crate) fn wake(&mut self) {
        self.sleeps = false;
        self.rings.arrivals.wake();
    }

    /// Handles the socket, if it is the one that is ready.
    pub(crate) fn attend(&mut self, ready: RawFd, epoll: &Epoll) -> bool {
        if ready != self.raw() {
            return false;
        }
        let mut bytes = [0; 64];
        match unix::receive_now(ready, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(length) if length > 0 => {}
            _ => {
                self.cut = true;
                // An error changes nothing: the descriptor is closed with the device.
                let _ = epoll.remove(ready);
            }
        }
        true
    }
}

fn hello((first, count): (Qpn, u32)) -> [u8; MESSAGE_BYTES] {
    Hello { first: first.value(), count }.to_bytes()
}

/// Hands a packet to the device; `None` where the record is not valid.
fn handle(rnic: &mut rnic::Device, now: Instant, record: &Record) -> Option<()> {
    let (header, rest) = Header::parse(record.headers())?;
    let (packet, _) = Packet::parse(rest).ok()?;
    let arrival = Arrival {
        source: Gid(header.source),
        destination: Gid(header.destination),
        traffic_class: header.traffic_class,
        hop_limit: header.hop_limit,
    };
    let mut copied = [0; COPIED_MAX];
    let payload = if record.length as usize <= COPIED_MAX {
        Payload::Bytes(record.copy(&mut copied))
    } else {
        Payload::Foreign { address: record.payload, length: record.length }
    };
    rnic.handle_packet(now, &arrival, &packet, payload, &mut ProcessMemory);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::memory::Reader;

    /// A port, and what the lab has of it.
    fn port() -> (LabPort, attachment::LabEnds) {
        let (ends, memories) = attachment::create().unwrap();
        let [socket, _] = unix::message_pair().unwrap();
        let welcome = Welcome { ahead: 1 << 19, classes: [0; 2], by_dscp: [0; 64] };
        let rings = attachment::open(&memories).unwrap();
        (LabPort { socket, rings, welcome, now: Instant(0), sleeps: false, full: 0, cut: false }, ends)
    }

    fn fill(port: &mut LabPort) {
        let packet = Packet::new(wire::Service::Rc, Qpn::new(7), wire::Psn::new(0), Message::Congestion);
        let headers = |place: &mut [u8; HEADERS_MAX]| packet.encode(0, place.first_chunk_mut()?).ok();
        while port.has_room(&Path::default(), PacketKind::Data) {
            port.rings.classes[0].write(0, 4096, headers, |_: &mut [u8]| Ok::<(), ()>(()));
        }
    }

    fn take_all(ring: &mut Reader) {
        while let Some(record) = ring.next().unwrap() {
            ring.release(&record);
        }
    }

    #[test]
    fn only_a_thread_that_sleeps_is_woken_for_room() {
        let (mut port, mut lab) = port();
        let class = &mut lab.classes[0];
        fill(&mut port);
        take_all(class);
        assert_eq!(class.must_wake(), None, "the program polls");
        fill(&mut port);
        assert!(!port.sleep());
        take_all(class);
        assert_eq!(class.must_wake(), Some(Sleeper::Thread));
        port.wake();
        fill(&mut port);
        take_all(class);
        assert!(port.sleep(), "there is room already");
    }
}
