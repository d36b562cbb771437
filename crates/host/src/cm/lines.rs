//! The ways in and out: the agent hands datagrams over and answers questions about ports; what we send leaves
//! from our own socket.

use super::grace::Grace;
use crate::agent::protocol::{
    ANSWER_BYTES, Answer, Ask, MESSAGE_BYTES_MAX, REQUEST_BYTES, Request, unwrap as unwrap_message,
};
use crate::capture::{Capture, Direction, Envelope};
use crate::gsi;
use crate::interface::{self, DeviceInfo};
use crate::sys::unix;
use crate::transmit::flow_between;
use link::udp::{Datagrams, Socket};
use rnic::cm::{Cm, Datagram, ListenAddress, LocalAddress};
use rnic::{Gid, Instant};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use wire::ROCE_PORT;
use wire::cm::PortSpace;

/// Messages that are taken at once before others get the lock.
const MESSAGES_MAX: usize = 64;
/// Datagrams that are kept while an answer is waited for: more than fit the connection's buffer at once.
const EARLY_MAX: usize = 1024;
/// How long the agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long our devices take to acknowledge, as a time code: what `ibv_query_device` tells.
pub(super) const ACK_DELAY: u8 = 15;

#[derive(Debug)]
pub(super) struct Lines {
    socket: Socket,
    pub(super) connection: OwnedFd,
    pub(super) devices: Vec<DeviceInfo>,
    /// The interface of each of our addresses.
    interfaces: HashMap<Gid, u32>,
    /// What came while an answer was waited for.
    early: VecDeque<Box<[u8]>>,
    pub(super) grace: Grace,
    capture: Option<Capture>,
}

impl Lines {
    pub(super) fn new(socket: Socket, connection: OwnedFd) -> Self {
        let (devices, interfaces, early) = (Vec::new(), HashMap::new(), VecDeque::new());
        let (grace, capture) = (Grace::default(), Capture::from_environment());
        Self { socket, connection, devices, interfaces, early, grace, capture }
    }

    /// From now on the agent hands over what concerns us, and says what is in the file when we are gone.
    pub(super) fn attend(&mut self, will: &OwnedFd) -> io::Result<()> {
        unix::set_patience(self.connection.as_raw_fd(), PATIENCE)?;
        let address = ListenAddress::Any;
        let request =
            Request { ask: Ask::Attend, space: PortSpace::Tcp, port: 0, count: 0, address, shared: false };
        unix::send(self.connection.as_raw_fd(), &request.to_bytes(), Some(will.as_raw_fd()))?;
        self.answer().map(drop)
    }

    /// Asks the agent, and waits for its answer.
    pub(super) fn ask(&mut self, request: &Request) -> io::Result<u16> {
        let fd = self.connection.as_raw_fd();
        let bytes: [u8; REQUEST_BYTES] = request.to_bytes();
        unix::send(fd, &bytes, None)?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<u16> {
        let fd = self.connection.as_raw_fd();
        let mut message = [0; MESSAGE_BYTES_MAX];
        loop {
            let length = unix::receive_next(fd, &mut message)?;
            if length == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            let message = message.get(..length).unwrap_or_default();
            match <[u8; ANSWER_BYTES]>::try_from(message) {
                Ok(answer) => return Answer::parse(answer),
                Err(_) if self.early.len() < EARLY_MAX => self.early.push_back(message.into()),
                // Lost, as on a network.
                Err(_) => {}
            }
        }
    }

    /// Takes what was handed over while an answer was waited for.
    pub(super) fn hear_early(&mut self, cm: &mut Cm, now: Instant) {
        while let Some(message) = self.early.pop_front() {
            self.handle(cm, &message, now);
        }
    }

    /// Handles what waited for a listener and waits no longer.
    pub(super) fn replay(&mut self, cm: &mut Cm, now: Instant) {
        for message in self.grace.take(now) {
            if let Some((from, datagram)) = unwrap_message(&message)
                && let Some((arrival, mad)) = gsi::decode(&from, datagram)
            {
                cm.handle_datagram(&arrival, mad, now);
            }
        }
    }

    /// Takes what was handed over. False when the agent is gone.
    pub(super) fn hear(&mut self, cm: &mut Cm, now: Instant) -> bool {
        let mut message = [0; MESSAGE_BYTES_MAX];
        for _ in 0..MESSAGES_MAX {
            match unix::receive_now(self.connection.as_raw_fd(), &mut message) {
                Ok(0) => return false,
                Ok(length) => self.handle(cm, message.get(..length).unwrap_or_default(), now),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn handle(&mut self, cm: &mut Cm, message: &[u8], now: Instant) {
        if let Some((from, datagram)) = unwrap_message(message)
            && let Some((arrival, mad)) = gsi::decode(&from, datagram)
        {
            self.record(Direction::Received, &from, datagram);
            if !self.grace.hold(mad, message, now) {
                cm.handle_datagram(&arrival, mad, now);
            }
        }
    }

    /// Writes a datagram to the capture, if there is one.
    fn record(&mut self, direction: Direction, way: &Datagrams, datagram: &[u8]) {
        let Some(capture) = &mut self.capture else { return };
        let Datagrams { source, destination, source_port, traffic_class, hop_limit, .. } = *way;
        let flow = &flow_between(source, destination, source_port);
        let envelope =
            Envelope { direction, source, destination, source_port, traffic_class, hop_limit, flow };
        if !capture.write(&envelope, datagram, datagram.len()) {
            self.capture = None;
        }
    }

    /// The interface that has an address of ours.
    pub(super) fn interface_of(&self, gid: &Gid) -> u32 {
        self.interfaces.get(gid).copied().unwrap_or(0)
    }

    pub(super) fn send(&mut self, datagram: &Datagram) {
        let interface = self.interface_of(&datagram.path.source);
        let bytes = gsi::encode(&datagram.path, &datagram.mad);
        let route = gsi::route(&datagram.path, interface);
        // What cannot be sent now is lost, and said again.
        let _ = self.socket.send(&route, &bytes, bytes.len());
        let way = Datagrams {
            length: bytes.len(),
            segment: bytes.len(),
            source: route.source,
            source_port: ROCE_PORT,
            destination: route.destination,
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
            interface,
        };
        self.record(Direction::Sent, &way, &bytes);
    }

    /// Tells the connection manager which addresses there are.
    pub(super) fn follow(&mut self, cm: &mut Cm) {
        let Some(devices) = interface::list_keeping(&self.devices) else { return };
        let mut now = HashMap::new();
        self.devices = devices;
        for device in &self.devices {
            let ca_guid = u64::from_be_bytes(device.guid);
            for gid in &device.gids {
                let known = LocalAddress { gid: *gid, ca_guid, mtu: device.active_mtu, ack_delay: ACK_DELAY };
                cm.set_address(known);
                now.insert(*gid, device.ifindex);
            }
        }
        let gone = self.interfaces.keys().filter(|gid| !now.contains_key(gid));
        gone.for_each(|gid| cm.remove_address(*gid));
        self.interfaces = now;
    }
}
