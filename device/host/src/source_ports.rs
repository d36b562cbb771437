//! UDP source ports: the entropy by which switches and receivers distribute flows.
//!
//! A queue pair has one port for its life, so its packets stay in order, and two queue pairs probably have
//! different ones. The device computes a port of 14 bits as Linux does (IBTA A17.3.2.1); here these are
//! folded into few, each with a socket of its own that is made when first needed. All devices of a process
//! share these sockets, and processes share the ports. They lie above what Linux gives to programs that ask
//! for no port in particular, and where one cannot be had the packets leave from port 4791.

use crate::log::HOST;
use link::udp::{ROCE_PORT, Route, ScopedAddress, Socket};
use std::io;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Number of different source ports.
pub(crate) const PORTS: usize = 32;
const FIRST: u16 = 0xf800;
/// Source addresses of one port that have sockets of their own. Packets with further ones leave by a socket
/// without an address.
const SOURCES_MAX: usize = 4;

/// What a socket that sends is bound to: the index of its port, and a source address with its interface.
type Place = (usize, Option<ScopedAddress>);

/// The sockets that devices of this process have open.
static OPEN: Mutex<Vec<(Place, Weak<Socket>)>> = Mutex::new(Vec::new());

/// The process's socket at this place; created where no device has it.
fn shared(place: Place) -> io::Result<Arc<Socket>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, socket)| socket.strong_count() > 0);
    let known = open
        .iter()
        .find(|(known, _)| *known == place)
        .and_then(|(_, socket)| socket.upgrade());
    if let Some(socket) = known {
        return Ok(socket);
    }
    let (index, source) = place;
    let socket = Arc::new(Socket::to_send_from(FIRST + index as u16, source)?);
    open.push((place, Arc::downgrade(&socket)));
    Ok(socket)
}

/// The sockets from which packets are sent.
#[derive(Debug)]
pub(crate) struct SourcePorts {
    /// The socket that receives packets; `None` in the child of a fork.
    main: Option<Arc<Socket>>,
    ports: [Port; PORTS],
}

#[derive(Default, Debug)]
struct Port {
    /// Sockets that are bound to the source address beside them.
    bound: Vec<(Ipv6Addr, Sender)>,
    /// The socket for all other packets.
    unbound: Sender,
}

#[derive(Default, Debug)]
enum Sender {
    #[default]
    Unused,
    Open(Arc<Socket>),
    /// The port or the address could not be bound.
    Refused,
}

/// Index of the port that the device's source port is folded into.
pub(crate) fn index_of(source_port: u16) -> usize {
    usize::from(source_port ^ source_port >> 5 ^ source_port >> 10) % PORTS
}

impl SourcePorts {
    pub(crate) fn new(main: Arc<Socket>) -> Self {
        Self {
            main: Some(main),
            ports: [const { Port::new() }; PORTS],
        }
    }

    /// Closes the sockets: nothing is sent any more.
    pub(crate) fn sever(&mut self) {
        self.main = None;
        self.ports = [const { Port::new() }; PORTS];
    }

    /// The socket with this index for packets of a route, and its port.
    pub(crate) fn open(&mut self, index: usize, route: &Route) -> Option<(Arc<Socket>, u16)> {
        let main = self.main.as_ref()?;
        let port = self.ports.get_mut(index)?;
        let opened = port.bound_to(index, route).or_else(|| port.unbound(index));
        Some(opened.map_or_else(
            || (Arc::clone(main), ROCE_PORT),
            |socket| (socket, FIRST + index as u16),
        ))
    }

    /// The socket with this index that is bound to no address, where it has this port.
    pub(crate) fn unbound(&mut self, index: usize, port: u16) -> Option<Arc<Socket>> {
        let socket = self.ports.get_mut(index)?.unbound(index)?;
        (FIRST + index as u16 == port).then_some(socket)
    }
}

impl Port {
    const fn new() -> Self {
        Self {
            bound: Vec::new(),
            unbound: Sender::Unused,
        }
    }

    /// The socket that is bound to the source address of a route. Packets to groups have none: each of their
    /// sends names the interface.
    fn bound_to(&mut self, index: usize, route: &Route) -> Option<Arc<Socket>> {
        if route.is_to_group() {
            return None;
        }
        let Route {
            source, interface, ..
        } = *route;
        if let Some((_, known)) = self.bound.iter().find(|(address, _)| *address == source) {
            return known.socket();
        }
        if self.bound.len() >= SOURCES_MAX {
            return None;
        }
        let local = ScopedAddress {
            ip: source,
            scope: interface,
        };
        let opened = Sender::open((index, Some(local)));
        let socket = opened.socket();
        self.bound.push((source, opened));
        socket
    }

    /// The socket that is bound to no address.
    fn unbound(&mut self, index: usize) -> Option<Arc<Socket>> {
        if matches!(self.unbound, Sender::Unused) {
            self.unbound = Sender::open((index, None));
        }
        self.unbound.socket()
    }
}

impl Sender {
    fn open(place: Place) -> Self {
        let number = FIRST + place.0 as u16;
        shared(place).map(Self::Open).unwrap_or_else(|error| {
            let address = place.1.map(|local| local.ip);
            tracing::info!(target: HOST, number, ?address, "a UDP source port is refused: {error}");
            Self::Refused
        })
    }

    fn socket(&self) -> Option<Arc<Socket>> {
        match self {
            Self::Open(socket) => Some(Arc::clone(socket)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_and_all_ports_are_used() {
        let mut used = [0u32; PORTS];
        (0xc000..=0xffff).for_each(|port| used[index_of(port)] += 1);
        assert!(
            used.iter().all(|&count| count == 0x4000 / PORTS as u32),
            "{used:?}"
        );
        assert_ne!(index_of(0xc000), index_of(0xc001));
    }
}
