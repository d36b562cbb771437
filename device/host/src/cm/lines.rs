//! The connections of a connection manager: the agent passes datagrams on and answers requests about ports;
//! datagrams are sent from the process's own socket.

use super::grace::Grace;
use super::requests::{Requests, TIMEOUT};
use crate::agent::protocol::{
    ANSWER_BYTES, Answer, Ask, MESSAGE_BYTES_MAX, Request, unwrap as unwrap_message,
};
use crate::capture::{Capture, Direction, Envelope};
use crate::faults;
use crate::flow::flow_between;
use crate::gsi;
use crate::interface::{self, DeviceInfo};
use link::udp::{Datagrams, Socket};
use link::unix;
use rnic::cm::{Cm, Datagram, ListenAddress, LocalAddress};
use rnic::{Gid, Instant};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use wire::ROCE_PORT;
use wire::cm::PortSpace;

/// Limit of messages that are handled before other threads get the lock.
const MESSAGES_MAX: usize = 64;
/// Local CA ACK delay of the devices as a time code, as `ibv_query_device` reports it.
pub(super) const ACK_DELAY: u8 = 15;

#[derive(Debug)]
pub(super) struct Lines {
    socket: Arc<Socket>,
    requests: Arc<Requests>,
    pub(super) devices: Vec<DeviceInfo>,
    /// The interface of each local address.
    interfaces: HashMap<Gid, u32>,
    pub(super) grace: Grace,
    capture: Option<Capture>,
}

impl Lines {
    pub(super) fn new(socket: Socket, requests: Arc<Requests>) -> Self {
        let (devices, interfaces) = (Vec::new(), HashMap::new());
        let (grace, capture) = (Grace::default(), Capture::from_environment());
        Self {
            socket: Arc::new(socket),
            requests,
            devices,
            interfaces,
            grace,
            capture,
        }
    }

    /// The connection to the agent.
    pub(super) fn connection(&self) -> RawFd {
        self.requests.connection.as_raw_fd()
    }

    /// Requests that the agent pass on this process's datagrams from now on, and send the messages of the
    /// disconnect journal when this process has ended. The first message is the answer; datagrams follow.
    pub(super) fn attend(&mut self, journal: &OwnedFd) -> io::Result<()> {
        let connection = self.connection();
        unix::set_timeouts(connection, TIMEOUT)?;
        let address = ListenAddress::Any;
        let request = Request {
            ask: Ask::Attend,
            space: PortSpace::Tcp,
            port: 0,
            count: 0,
            address,
            shared: false,
        };
        unix::send(connection, &request.to_bytes(), Some(journal.as_raw_fd()))?;
        let mut answer = [0; ANSWER_BYTES];
        match unix::receive_next(connection, &mut answer)? {
            ANSWER_BYTES => Answer::parse(answer).map(drop),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Handles the held requests that have to wait no longer.
    pub(super) fn replay(&mut self, cm: &mut Cm, now: Instant) {
        for message in self.grace.take(now) {
            if let Some((from, datagram)) = unwrap_message(&message)
                && let Some((arrival, mad)) = gsi::decode(&from, datagram)
            {
                cm.handle_datagram(&arrival, mad, now);
            }
        }
    }

    /// Handles the messages of the agent. False when the agent has ended.
    pub(super) fn hear(&mut self, cm: &mut Cm, now: Instant) -> bool {
        let mut message = [0; MESSAGE_BYTES_MAX];
        for _ in 0..MESSAGES_MAX {
            let length = match unix::receive_now(self.connection(), &mut message) {
                Ok(0) => return false,
                Ok(length) => length,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            };
            let message = message.get(..length).unwrap_or_default();
            match message.try_into() {
                Ok(answer) => self.requests.take(answer),
                Err(_) => self.handle(cm, message, now),
            }
        }
        true
    }

    fn handle(&mut self, cm: &mut Cm, message: &[u8], now: Instant) {
        if let Some((from, datagram)) = unwrap_message(message)
            && let Some((arrival, mad)) = gsi::decode(&from, datagram)
        {
            self.record(Direction::Received, &from, datagram);
            if faults::is_on()
                && let Some(answer) = faults::reject(&arrival, mad)
            {
                return self.send(&answer);
            }
            if !self.grace.hold(mad, message, now) {
                cm.handle_datagram(&arrival, mad, now);
            }
        }
    }

    /// Writes a datagram to the capture, if there is one.
    fn record(&mut self, direction: Direction, way: &Datagrams, datagram: &[u8]) {
        let Some(capture) = &mut self.capture else {
            return;
        };
        let Datagrams {
            source,
            destination,
            source_port,
            traffic_class,
            hop_limit,
            ..
        } = *way;
        let flow = &flow_between(source, destination, source_port);
        let envelope = Envelope {
            direction,
            source,
            destination,
            source_port,
            traffic_class,
            hop_limit,
            flow,
        };
        if !capture.write(&envelope, datagram, datagram.len()) {
            self.capture = None;
        }
    }

    /// The interface with a local address.
    pub(super) fn interface_of(&self, gid: &Gid) -> u32 {
        self.interfaces.get(gid).copied().unwrap_or(0)
    }

    pub(super) fn send(&mut self, datagram: &Datagram) {
        let interface = self.interface_of(&datagram.path.source);
        let bytes = gsi::encode(&datagram.path, &datagram.mad);
        let route = gsi::route(&datagram.path, interface);
        if !faults::is_on() || !faults::send_message(&self.socket, &route, &datagram.mad, &bytes) {
            // A datagram that cannot be sent now is lost, and retransmitted.
            let _ = self.socket.send(&route, &bytes, bytes.len());
        }
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

    /// Sets the addresses of the connection manager to those of the host.
    pub(super) fn follow(&mut self, cm: &mut Cm) {
        let Some(devices) = interface::list_keeping(&self.devices) else {
            return;
        };
        let mut now = HashMap::new();
        self.devices = devices;
        for device in &self.devices {
            let ca_guid = u64::from_be_bytes(device.guid);
            for gid in &device.addresses {
                let known = LocalAddress {
                    gid: *gid,
                    ca_guid,
                    mtu: device.active_mtu,
                    ack_delay: ACK_DELAY,
                };
                cm.set_address(known);
                now.insert(*gid, device.ifindex);
            }
        }
        let gone = self.interfaces.keys().filter(|gid| !now.contains_key(gid));
        gone.for_each(|gid| cm.remove_address(*gid));
        self.interfaces = now;
    }
}
