//! Datagram sockets. Each has a kernel UDP socket, which has its address and port and exchanges queue pair
//! numbers with peers, and a UD queue pair for each local address that it sends from.
//!
//! - [`header`] has the headers of datagrams, [`ud_qp`] the UD queue pair, [`udp`] the kernel's socket.
//! - [`calls`] has the calls of programs.

mod calls;
mod header;
mod ud_qp;
mod udp;

pub(super) use calls::{bind, connect, option, peer, receive, send, set_option, shutdown};

use super::defaults;
use super::sizes::Sizes;
use super::wait::{Endpoint, Shared};
use core::ffi::c_int;
use ffi::Errno;
use header::{Purpose, SERVICE_BYTES_MAX};
use libc::pollfd;
use os::epoll::Epoll;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use ud_qp::{Arrival, Destination, UdQp};
use udp::Udp;

/// Local addresses, and so queue pairs, of one socket at most.
const UD_QPS_MAX: usize = 64;
/// Peers whose queue pairs are remembered at most. Datagrams to others go by UDP.
const PEERS_MAX: usize = 4096;
/// Longest datagram: that of UDP over IPv4, less the header.
const DATAGRAM_BYTES_MAX: usize = 65_507 - SERVICE_BYTES_MAX;
/// A datagram goes by UDP this often, to request the peer's queue pair number again: a restarted peer has
/// another.
const QPN_QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// The UDP socket is read at most this often while a program polls, because each read is a system call.
const UDP_READ_INTERVAL: Duration = Duration::from_micros(20);
/// Datagrams read from the UDP socket at a time.
const BATCH: usize = 64;

/// A peer, and its queue pair once that is known.
struct Peer {
    ud_qp: usize,
    destination: Option<Destination>,
    qpn_queried_at: Option<Instant>,
}

/// A datagram that the program has not read yet.
struct Waiting {
    from: SocketAddr,
    place: Storage,
}

enum Storage {
    /// In a receive slot of a queue pair.
    Slot(usize, Arrival),
    Heap(Box<[u8]>),
}

/// State of a socket, behind its lock.
pub(super) struct Datagrams {
    udp: Udp,
    port: Option<u16>,
    /// All completion channels. It is waited for with poll(2), and returns none of them.
    events: Epoll<1>,
    ud_qps: Vec<UdQp>,
    peers: HashMap<SocketAddr, Peer>,
    connected: Option<SocketAddr>,
    arrived: VecDeque<Waiting>,
    sizes: Sizes,
    nonblocking: bool,
    receive_timeout: Option<Duration>,
    send_timeout: Option<Duration>,
    is_readable: bool,
    is_writable: bool,
    /// An error of the UDP socket that was not reported to the program yet.
    error: Option<Errno>,
    udp_read_at: Option<Instant>,
    room: Box<[u8]>,
}

/// Creates a socket; `flags` are those of its type.
pub(super) fn fresh(family: c_int, flags: c_int) -> Result<Shared<Datagrams>, Errno> {
    let udp = Udp::new(family, flags)?;
    let fd = udp.descriptor();
    let datagrams = Datagrams {
        udp,
        port: None,
        events: Epoll::new()?,
        ud_qps: Vec::new(),
        peers: HashMap::new(),
        connected: None,
        arrived: VecDeque::new(),
        sizes: defaults::of_this_host().sizes.clone(),
        nonblocking: flags & libc::SOCK_NONBLOCK != 0,
        receive_timeout: None,
        send_timeout: None,
        is_readable: true,
        is_writable: true,
        error: None,
        udp_read_at: None,
        room: vec![0; DATAGRAM_BYTES_MAX + SERVICE_BYTES_MAX].into(),
    };
    Ok(Shared::new(fd, datagrams))
}

impl Datagrams {
    pub(super) fn is_nonblocking(&self) -> bool {
        self.nonblocking
    }

    pub(super) fn set_nonblocking(&mut self, nonblocking: bool) {
        self.nonblocking = nonblocking;
    }

    /// The queue pair that sends to a peer, created on first use.
    fn ud_qp_for(&mut self, to: SocketAddr) -> Result<usize, Errno> {
        let address = self.udp.source(to)?;
        if let Some(found) = self
            .ud_qps
            .iter()
            .position(|ud_qp| ud_qp.address == address)
        {
            return Ok(found);
        }
        if self.ud_qps.len() >= UD_QPS_MAX {
            return Err(Errno::NO_MEMORY);
        }
        let ud_qp = UdQp::new(address, &self.sizes)?;
        self.events.add(ud_qp.completions.descriptor())?;
        self.ud_qps.push(ud_qp);
        Ok(self.ud_qps.len() - 1)
    }

    /// Adds a peer, if there is room.
    fn add_peer(&mut self, address: SocketAddr) -> Result<(), Errno> {
        if !self.peers.contains_key(&address) {
            let ud_qp = self.ud_qp_for(address)?;
            // Peers request the number again. Address handles may be destroyed only when no request uses
            // them.
            if self.peers.len() >= PEERS_MAX && self.ud_qps.iter().all(UdQp::is_idle) {
                self.peers.clear();
            }
            if self.peers.len() < PEERS_MAX {
                self.peers.insert(
                    address,
                    Peer {
                        ud_qp,
                        destination: None,
                        qpn_queried_at: None,
                    },
                );
            }
        }
        Ok(())
    }

    /// Sends a datagram; `None` when there is no room for it now.
    fn send_to(
        &mut self,
        to: SocketAddr,
        pieces: &[&[u8]],
        length: usize,
        port: u16,
    ) -> Result<Option<()>, Errno> {
        if length > DATAGRAM_BYTES_MAX {
            return Err(Errno(libc::EMSGSIZE));
        }
        if !self.peers.contains_key(&to) {
            self.add_peer(to)?;
        }
        let Some(peer) = self.peers.get_mut(&to) else {
            return self.send_by_udp(to, pieces);
        };
        let ud_qp = &mut self.ud_qps[peer.ud_qp];
        let is_due = peer
            .qpn_queried_at
            .is_none_or(|qpn_queried_at| qpn_queried_at.elapsed() >= QPN_QUERY_INTERVAL);
        if let Some(destination) = peer
            .destination
            .as_ref()
            .filter(|_| !is_due && ud_qp.fits(length))
        {
            let header = header::of_source(SocketAddr::new(ud_qp.address, port));
            return Ok(ud_qp
                .send(header.as_slice(), pieces, destination)?
                .then_some(()));
        }
        peer.qpn_queried_at = Some(Instant::now());
        self.send_by_udp(to, pieces)
    }

    /// Sends it by UDP, with our queue pair number, which the peer answers with its own.
    fn send_by_udp(&mut self, to: SocketAddr, pieces: &[&[u8]]) -> Result<Option<()>, Errno> {
        let at = match self.peers.get(&to) {
            Some(peer) => peer.ud_qp,
            None => self.ud_qp_for(to)?,
        };
        let ud_qp = &self.ud_qps[at];
        let header = header::of_service(Purpose::Data, ud_qp.address, ud_qp.qpn());
        self.udp.send(to, &[&[header.as_slice()], pieces].concat())
    }

    /// Reads the UDP socket: datagrams, and the queue pair numbers of peers.
    fn read_udp(&mut self) {
        for _ in 0..BATCH {
            let mut room = core::mem::take(&mut self.room);
            let received = self.udp.receive(&mut room);
            let outcome = match received {
                Ok(Some((from, length))) => {
                    self.handle_udp(from, room.get(..length).unwrap_or_default());
                    true
                }
                Ok(None) => false,
                Err(error) => {
                    self.error.get_or_insert(error);
                    false
                }
            };
            self.room = room;
            if !outcome {
                break;
            }
        }
    }

    /// Handles a datagram of the UDP socket. It is dropped if it cannot be stored or its header is invalid.
    fn handle_udp(&mut self, from: SocketAddr, bytes: &[u8]) {
        let Some(service) = header::service(bytes, from.ip()) else {
            return;
        };
        if self.add_peer(from).is_err() {
            return;
        }
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        let ud_qp = &self.ud_qps[peer.ud_qp];
        if peer
            .destination
            .as_ref()
            .is_none_or(|destination| destination.qpn != service.qpn)
        {
            peer.destination = ud_qp.destination(from.ip(), service.qpn).ok();
            peer.qpn_queried_at.get_or_insert_with(Instant::now);
        }
        if service.purpose == Purpose::Data {
            let header = header::of_service(Purpose::Answer, ud_qp.address, ud_qp.qpn());
            // If the answer is lost, the peer requests it again.
            _ = self.udp.send(from, &[header.as_slice()]);
            if self.accepts(from)
                && self.arrived.len() < ud_qp::slots_of_receives(&self.sizes) as usize
            {
                let bytes = bytes.get(service.length..).unwrap_or_default();
                self.arrived.push_back(Waiting {
                    from,
                    place: Storage::Heap(bytes.into()),
                });
            }
        }
    }

    /// Whether a datagram is received: a connected socket receives from its peer only.
    fn accepts(&self, from: SocketAddr) -> bool {
        self.is_readable && self.connected.is_none_or(|peer| is_same(peer, from))
    }

    /// Removes the first received datagram.
    fn drop_first(&mut self) {
        if let Some(Waiting {
            place: Storage::Slot(at, arrival),
            ..
        }) = self.arrived.pop_front()
        {
            // If the queue pair has failed, the next send reports it.
            _ = self.ud_qps[at].release(&arrival);
        }
    }

    /// Whether all sent datagrams have left.
    fn is_idle(&self) -> bool {
        self.ud_qps.iter().all(UdQp::is_idle)
    }
}

/// Compares addresses and ports; flow labels and scopes are ignored.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

impl Endpoint for Datagrams {
    fn progress(&mut self) {
        let (accepts, connected) = (self.is_readable, self.connected);
        for at in 0..self.ud_qps.len() {
            let (ud_qp, arrived) = (&mut self.ud_qps[at], &mut self.arrived);
            let mut unwanted = Vec::new();
            ud_qp.progress(|arrival| {
                if accepts && connected.is_none_or(|peer| is_same(peer, arrival.from)) {
                    let from = arrival.from;
                    arrived.push_back(Waiting {
                        from,
                        place: Storage::Slot(at, arrival),
                    });
                } else {
                    unwanted.push(arrival);
                }
            });
            for arrival in unwanted {
                _ = ud_qp.release(&arrival);
            }
        }
    }

    fn progress_with_system_calls(&mut self) {
        if self
            .udp_read_at
            .is_none_or(|udp_read_at| udp_read_at.elapsed() >= UDP_READ_INTERVAL)
        {
            self.read_udp();
            self.udp_read_at = Some(Instant::now());
        }
    }

    fn arm(&mut self) -> Result<(), Errno> {
        self.udp_read_at = None;
        self.ud_qps
            .iter_mut()
            .try_for_each(|ud_qp| ud_qp.completions.arm())
    }

    fn take_events(&mut self) {
        self.udp_read_at = None;
        self.ud_qps
            .iter_mut()
            .for_each(|ud_qp| ud_qp.completions.take_events());
    }

    fn descriptors(&self) -> [pollfd; 2] {
        let events = pollfd {
            fd: self.events.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        [self.udp.pollfd(libc::POLLIN), events]
    }

    fn readiness(&self) -> i16 {
        let mut ready = 0;
        if !self.arrived.is_empty() || !self.is_readable || self.error.is_some() {
            ready |= libc::POLLIN | libc::POLLRDNORM;
        }
        if !self.is_writable || self.ud_qps.is_empty() || self.ud_qps.iter().any(UdQp::can_send) {
            ready |= libc::POLLOUT | libc::POLLWRNORM;
        }
        if self.error.is_some() {
            ready |= libc::POLLERR;
        }
        ready
    }

    fn used(&mut self) {}
}
