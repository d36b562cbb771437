//! The port of a device in a host of a lab: packets are exchanged with the lab through shared memory instead
//! of a socket. The lab is the network between its hosts (`rockery lab`).

use crate::settings;
use crate::subnet;
use crate::sys::Epoll;
use crate::sys::memory::ProcessMemory;
use crate::transmit::gather;
use link::attachment::{self, DeviceEnds, MEMORIES};
use link::lab::{Header, Hello, MESSAGE_BYTES, WAKE, Welcome};
use link::memory::{HEADERS_MAX, Record, Sleeper, Writer};
use link::port_state::PortState;
use link::unix;
use rnic::{Arrival, Fault, Gather, Gid, Instant, PacketKind, Path, Payload};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;
use wire::opcode::MAX_HEADERS;
use wire::{Message, Packet, Qpn};

/// Limit of records that are taken before packets are sent again.
const TURN_RECORDS: usize = 64;
/// Limit of payload bytes that are copied before they are handled, as in [`crate::shm`].
const COPIED_MAX: usize = 8;
/// Bytes of a message of the lab at most.
const MESSAGE_MAX: usize = 256;
/// Time that the lab may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

const _: () = assert!(
    Header::BYTES + MAX_HEADERS <= HEADERS_MAX,
    "headers fit a record"
);

/// The port of a device.
#[derive(Debug)]
pub(crate) struct LabPort {
    socket: OwnedFd,
    rings: DeviceEnds,
    /// The lab's assignment of packets to rings.
    welcome: Welcome,
    /// The time stamp of packets.
    now: Instant,
    /// The progress thread sleeps, and the lab wakes it.
    sleeps: bool,
    /// One bit for each class whose ring had no room for the last packet of that class.
    full: u8,
    /// Whether the lab has ended, or has written invalid data: the port is disconnected.
    cut: bool,
    /// The last state of an InfiniBand port that the lab has told.
    port: Option<PortState>,
}

impl LabPort {
    /// Attaches a device to the lab that the environment names; `None` where it names none.
    pub(crate) fn attach(first: Qpn, count: u32) -> io::Result<Option<Self>> {
        let Some(name) = settings::lab() else {
            return Ok(None);
        };
        let socket = unix::connect(&name, TIMEOUT)?;
        let fd = socket.as_raw_fd();
        // Any program of the host could listen at the name.
        let user = unix::peer_user(fd)?;
        if user != os::user() && user != 0 {
            return Err(io::Error::other(format!(
                "user {user} listens at its socket"
            )));
        }
        unix::set_timeouts(fd, TIMEOUT)?;
        unix::send(fd, &hello(first, count), None)?;
        let mut answer = [0; Welcome::BYTES];
        let (length, memories) = unix::receive_fds::<MEMORIES>(fd, &mut answer)?;
        if length == 0 {
            return Err(io::Error::other("it has no room for another device"));
        }
        let welcome = Welcome::parse(&answer[..length]);
        let memories: Option<Vec<OwnedFd>> = memories.into_iter().collect();
        let memories: Option<[OwnedFd; MEMORIES]> = memories.and_then(|all| all.try_into().ok());
        let (Some(welcome), Some(memories)) = (welcome, memories) else {
            return Err(io::Error::other(
                "it is of another version: use one installation of rockery",
            ));
        };
        unix::set_nonblocking(fd)?;
        let mut rings = attachment::open(&memories)?;
        rings
            .classes
            .iter_mut()
            .for_each(|ring| ring.fill_up_to(welcome.ahead as usize));
        Ok(Some(Self {
            socket,
            rings,
            welcome,
            now: Instant(0),
            sleeps: false,
            full: 0,
            cut: false,
            // Asked for after the lab has the device, which is then told of changes.
            port: subnet::port_state(),
        }))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Sends the lab a further range of queue pair numbers.
    pub(crate) fn add_range(&self, first: Qpn, count: u32) {
        // Without the message the lab drops packets for the new queue pairs, which time out.
        let _ = unix::send_now(self.raw(), &hello(first, count));
    }

    /// Sets the time stamp of the packets that are sent next.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.now = now;
    }

    /// Wakes the lab if it sleeps, after packets were sent.
    pub(crate) fn end(&mut self) {
        let rings = self
            .rings
            .classes
            .iter_mut()
            .chain([&mut self.rings.notifications]);
        if rings.filter_map(Writer::must_wake).count() > 0 {
            self.signal();
        }
    }

    fn signal(&self) {
        // A full socket buffer contains enough wake-ups.
        let _ = unix::send_now(self.raw(), &[WAKE]);
    }

    /// Whether a packet may be sent now. If not, the lab wakes the progress thread when there is room, if
    /// that thread sleeps. While a program polls, a wake-up would cost the lab a system call for each round,
    /// and run one more thread, although the program looks again by itself.
    #[inline]
    pub(crate) fn has_room(&mut self, path: &Path, kind: PacketKind) -> bool {
        let class = self
            .welcome
            .ring(path.traffic_class, kind == PacketKind::Acknowledgement);
        let ring = &mut self.rings.classes[class];
        let has_room =
            self.cut || ring.has_room() || self.sleeps && ring.wait_for_room(Sleeper::Thread);
        self.full = self.full & !(1 << class) | u8::from(!has_room) << class;
        has_room
    }

    /// Sends a packet.
    pub(crate) fn send(
        &mut self,
        path: &Path,
        packet: &Packet,
        payload: Gather<'_>,
    ) -> Result<(), Fault> {
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
            service_level: path.service_level,
        };
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            place[..Header::BYTES].copy_from_slice(&header.to_bytes());
            Some(
                Header::BYTES
                    + packet
                        .encode(0, place[Header::BYTES..].first_chunk_mut()?)
                        .ok()?,
            )
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
        ring.write(0, length, headers, |place| gather(payload, place))
            .unwrap_or(Ok(()))
    }

    /// Takes the records that have arrived. False when there were none.
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

    /// Requests a wake-up of the progress thread for the next record, and for room where a packet waits for
    /// some. True when there is one or the other already.
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

    /// Cancels the request for wake-ups.
    pub(crate) fn wake(&mut self) {
        self.sleeps = false;
        self.rings.arrivals.wake();
    }

    /// The last state of an InfiniBand port that the lab has told.
    pub(crate) fn port_state(&self) -> Option<&PortState> {
        self.port.as_ref()
    }

    /// Handles the socket, if it is the one that is ready. The device follows what the lab tells of its port.
    pub(crate) fn attend(&mut self, ready: RawFd, epoll: &Epoll, rnic: &mut rnic::Device) -> bool {
        if ready != self.raw() {
            return false;
        }
        let mut bytes = [0; MESSAGE_MAX];
        match unix::receive_now(ready, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(length) if length > 0 => {
                if let Some(state) = PortState::parse(&bytes[..length]) {
                    subnet::follow(rnic, &state);
                    self.port = Some(state);
                }
            }
            _ => {
                self.cut = true;
                // An error changes nothing: the descriptor is closed with the device.
                let _ = epoll.remove(ready);
            }
        }
        true
    }
}

fn hello(first: Qpn, count: u32) -> [u8; MESSAGE_BYTES] {
    Hello {
        first: first.value(),
        count,
    }
    .to_bytes()
}

/// Passes a packet to the device; `None` where the record is not valid.
fn handle(rnic: &mut rnic::Device, now: Instant, record: &Record) -> Option<()> {
    let (header, rest) = Header::parse(record.headers())?;
    let (packet, _) = Packet::parse(rest).ok()?;
    let arrival = Arrival {
        source: Gid(header.source),
        destination: Gid(header.destination),
        traffic_class: header.traffic_class,
        hop_limit: header.hop_limit,
        service_level: header.service_level,
    };
    let mut copied = [0; COPIED_MAX];
    let payload = if record.length as usize <= COPIED_MAX {
        Payload::Bytes(record.copy(&mut copied))
    } else {
        Payload::Foreign {
            address: record.payload,
            length: record.length,
        }
    };
    rnic.handle_packet(now, &arrival, &packet, payload, &mut ProcessMemory);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::memory::Reader;

    /// A port, and the lab's ends of its rings.
    fn port() -> (LabPort, attachment::LabEnds) {
        let (ends, memories) = attachment::create().unwrap();
        let [socket, _] = unix::message_pair().unwrap();
        let welcome = Welcome {
            ahead: 1 << 19,
            classes: [0; 2],
            by_dscp: [0; 64],
        };
        let rings = attachment::open(&memories).unwrap();
        (
            LabPort {
                socket,
                rings,
                welcome,
                now: Instant(0),
                sleeps: false,
                full: 0,
                cut: false,
                port: None,
            },
            ends,
        )
    }

    fn fill(port: &mut LabPort) {
        let packet = Packet::new(
            wire::Service::Rc,
            Qpn::new(7),
            wire::Psn::new(0),
            Message::Congestion,
        );
        let headers =
            |place: &mut [u8; HEADERS_MAX]| packet.encode(0, place.first_chunk_mut()?).ok();
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
