//! Packets that meet faults on their way to the socket.

use super::{decide_inside, interest, raise, timer};
use ::faults::{Action, Occasion, PacketKind, Point, QpKind};
use link::udp::{Route, Socket};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::{Message, Packet, Service, split_icrc};

/// How long a packet waits for others that would overtake it, at most.
const REORDER_MAX: Duration = Duration::from_millis(10);
/// Congestion experienced (RFC 3168).
const ECN_CE: u8 = 3;

/// The faults of the packets that leave by one interface.
#[derive(Debug)]
pub(crate) struct PacketFaults {
    interface: u32,
    /// Packets that others overtake, and by how many more.
    behind: Vec<(u64, Waiting)>,
    /// When each rule of a rate lets the next packet leave.
    free_at: HashMap<u32, Instant>,
}

/// A packet that one of two takes: the packet that it waits for, or the timer.
type Waiting = Arc<Mutex<Option<Leaving>>>;

/// A packet that leaves by itself.
#[derive(Clone, Debug)]
struct Leaving {
    socket: Arc<Socket>,
    route: Route,
    bytes: Vec<u8>,
}

impl Leaving {
    fn go(&self) {
        // A packet that cannot be sent is lost, as a packet may be.
        let _ = self.socket.send(&self.route, &self.bytes, self.bytes.len());
    }

    fn later(self, time: Duration) {
        timer::after(time, move || self.go());
    }
}

fn take(waiting: &Waiting) -> Option<Leaving> {
    waiting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
}

impl PacketFaults {
    /// The faults of this process, if it meets some.
    pub(crate) fn of_process(interface: u32) -> Option<Self> {
        super::is_on().then(|| Self {
            interface,
            behind: Vec::new(),
            free_at: HashMap::new(),
        })
    }

    /// Whether packets meet faults: they leave by [`Self::pass`] then, one by one.
    pub(crate) fn take_packets(&self) -> bool {
        interest().packets || !self.behind.is_empty() || raise::is_down(self.interface)
    }

    /// Lets the packets of a batch leave with their faults.
    pub(crate) fn pass(
        &mut self,
        socket: &Arc<Socket>,
        route: &Route,
        bytes: &[u8],
        segment: usize,
    ) {
        if raise::is_down(self.interface) {
            return;
        }
        for bytes in bytes.chunks(segment.max(1)) {
            self.one(Leaving {
                socket: Arc::clone(socket),
                route: *route,
                bytes: bytes.to_vec(),
            });
        }
    }

    fn one(&mut self, mut packet: Leaving) {
        let decision = occasion(&packet).and_then(|occasion| decide_inside(&occasion, |_| true));
        match decision.map(|decision| decision.action) {
            None => packet.go(),
            Some(Action::Drop) => return,
            Some(Action::Delay(time)) => return packet.later(time),
            Some(Action::Duplicate) => {
                packet.go();
                packet.go();
            }
            Some(Action::Corrupt) => {
                // The last byte before the ICRC: payload, or the end of the headers.
                let place = packet.bytes.len().saturating_sub(5);
                packet
                    .bytes
                    .iter_mut()
                    .skip(place)
                    .take(1)
                    .for_each(|byte| *byte ^= 1);
                packet.go();
            }
            Some(Action::Mark) => {
                packet.route.traffic_class |= ECN_CE;
                packet.go();
            }
            Some(Action::Reorder(packets)) => return self.overtaken(packet, packets),
            Some(Action::Rate(rate)) => {
                let rule = decision.map_or(0, |decision| decision.rule);
                return self.at_rate(packet, rule, rate);
            }
            Some(_) => packet.go(),
        }
        self.note_passed();
    }

    /// Lets a packet wait for others.
    fn overtaken(&mut self, packet: Leaving, packets: u64) {
        let waiting = Arc::new(Mutex::new(Some(packet)));
        let timed = Arc::clone(&waiting);
        timer::after(REORDER_MAX, move || {
            take(&timed).iter().for_each(Leaving::go);
        });
        self.behind.push((packets, waiting));
    }

    /// A packet has left: those that have waited for it leave.
    fn note_passed(&mut self) {
        self.behind.retain_mut(|(left, waiting)| {
            *left -= 1;
            if *left == 0 {
                take(waiting).iter().for_each(Leaving::go);
            }
            *left > 0
        });
    }

    fn at_rate(&mut self, packet: Leaving, rule: u32, rate: u64) {
        let now = Instant::now();
        let free_at = self.free_at.entry(rule).or_insert(now);
        let leaves_at = (*free_at).max(now);
        let bits = packet.bytes.len() as u64 * 8;
        *free_at = leaves_at + Duration::from_nanos(bits.saturating_mul(1_000_000_000) / rate);
        packet.later(leaves_at - now);
    }
}

/// What rules can ask about a packet; `None` for bytes that are none.
fn occasion(packet: &Leaving) -> Option<Occasion<'static>> {
    let (transport, _) = split_icrc(&packet.bytes)?;
    let (header, payload) = Packet::parse(transport).ok()?;
    let kind = match header.service {
        Service::Rc => QpKind::Rc,
        Service::Uc => QpKind::Uc,
        Service::Ud => QpKind::Ud,
        Service::Xrc => QpKind::Xrc,
    };
    Some(Occasion {
        kind: Some(kind),
        peer: Some(IpAddr::from(packet.route.destination).to_canonical()),
        packet: Some(packet_kind(&header.message)),
        size: Some(payload.len() as u64),
        ..Occasion::at(Point::Packet)
    })
}

const fn packet_kind(message: &Message) -> PacketKind {
    match message {
        Message::Send { .. } => PacketKind::Send,
        Message::Write { .. } => PacketKind::RdmaWrite,
        Message::ReadRequest { .. } => PacketKind::ReadRequest,
        Message::ReadResponse { .. } => PacketKind::ReadResponse,
        Message::Acknowledge(_) => PacketKind::Acknowledge,
        Message::AtomicAcknowledge { .. } => PacketKind::AtomicAcknowledge,
        Message::CompareSwap(_) => PacketKind::CompareSwap,
        Message::FetchAdd(_) => PacketKind::FetchAdd,
        Message::AtomicWrite(_) => PacketKind::AtomicWrite,
        Message::Datagram { .. } => PacketKind::Datagram,
        Message::Congestion => PacketKind::Cnp,
    }
}
