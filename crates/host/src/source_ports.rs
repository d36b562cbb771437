//! UDP source ports: the entropy by which switches and receivers distribute flows.
//!
//! A queue pair has one port for its life, so its packets stay in order, and two queue pairs probably have
//! different ones. The device computes a port of 14 bits as Linux does (IBTA A17.3.2.1); here these are
//! folded into few, each with a socket of its own that is made when first needed. All devices of a process
//! share these sockets, and processes share the ports. They lie above what Linux gives to programs that ask
//! for no port in particular, and where one cannot be had the packets leave from port 4791.

use crate::log::HOST;
use link::udp::{ROCE_PORT, Socket};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Number of different source ports.
pub(crate) const PORTS: usize = 32;
const FIRST: u16 = 0xf800;

/// The sockets that devices of this process have open.
static OPEN: Mutex<[Weak<Socket>; PORTS]> = Mutex::new([const { Weak::new() }; PORTS]);

/// The process's socket with this index; created where no device has it.
fn shared(index: usize) -> io::Result<Arc<Socket>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = open.get_mut(index).ok_or(io::ErrorKind::InvalidInput)?;
    if let Some(socket) = known.upgrade() {
        return Ok(socket);
    }
    let socket = Arc::new(Socket::to_send_from(FIRST + index as u16)?);
    *known = Arc::downgrade(&socket);
    Ok(socket)
}

/// The sockets from which packets are sent.
#[derive(Debug)]
pub(crate) struct SourcePorts {
    /// The socket that receives packets; `None` in the child of a fork.
    main: Option<Arc<Socket>>,
    ports: [Port; PORTS],
}

#[derive(Debug)]
enum Port {
    Unused,
    Open(Arc<Socket>),
    /// The port could not be bound.
    Refused,
}

/// Index of the port that the device's source port is folded into.
pub(crate) fn index_of(source_port: u16) -> usize {
    usize::from(source_port ^ source_port >> 5 ^ source_port >> 10) % PORTS
}

impl SourcePorts {
    pub(crate) fn new(main: Arc<Socket>) -> Self {
        Self { main: Some(main), ports: [const { Port::Unused }; PORTS] }
    }

    /// Closes the sockets: nothing is sent any more.
    pub(crate) fn sever(&mut self) {
        self.main = None;
        self.ports = [const { Port::Unused }; PORTS];
    }

    /// The socket with this index, and its port.
    pub(crate) fn open(&mut self, index: usize) -> Option<(&Socket, u16)> {
        let main = self.main.as_ref()?;
        let number = FIRST + index as u16;
        let port = self.ports.get_mut(index)?;
        if matches!(port, Port::Unused) {
            *port = shared(index).map(Port::Open).unwrap_or_else(|error| {
                tracing::info!(target: HOST, "UDP source port {number} is refused: 4791 instead: {error}");
                Port::Refused
            });
        }
        Some(match port {
            Port::Open(socket) => (socket, number),
            _ => (main, ROCE_PORT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_and_all_ports_are_used() {
        let mut used = [0u32; PORTS];
        (0xc000..=0xffff).for_each(|port| used[index_of(port)] += 1);
        assert!(used.iter().all(|&count| count == 0x4000 / PORTS as u32), "{used:?}");
        assert_ne!(index_of(0xc000), index_of(0xc001));
    }
}
