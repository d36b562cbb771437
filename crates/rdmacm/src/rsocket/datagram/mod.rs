//! Sockets for datagrams. Each has a UDP socket of the kernel, which gives it address and port and finds out
//! the queue pairs of peers, and a UD queue pair for each local address that it sends from.
//!
//! - [`header`] is what datagrams begin with, [`outlet`] a queue pair, [`udp`] the kernel's socket.
//! - [`calls`] is what programs ask for.

mod calls;
mod header;
mod outlet;
mod udp;

pub(super) use calls::{bind, connect, option, peer, receive, send, set_option, shutdown};

use super::defaults::{self, Sizes};
use super::wait::{Endpoint, Shared};
use core::ffi::c_int;
use door::Errno;
use header::{Purpose, SERVICE_BYTES_MAX};
use libc::pollfd;
use outlet::{Arrival, Outlet, Way};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use udp::Udp;

/// Local addresses that one socket sends from.
const OUTLETS_MAX: usize = 64;
/// Peers whose queue pairs are remembered. Others are sent to by UDP.
const PEERS_MAX: usize = 4096;
/// The longest datagram of UDP over IPv4, without the header that it has here.
const DATAGRAM_BYTES_MAX: usize = 65_507 - SERVICE_BYTES_MAX;
/// A peer's queue pair is asked for so often, by a datagram that goes by UDP: a peer that was started again
/// has another.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The UDP socket is looked at so often while a program polls: each look is a system call.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// Datagrams that are taken from it at a time.
const BATCH: usize = 64;

/// A peer, and its queue pair if that is known.
struct Peer {
    outlet: usize,
    way: Option<Way>,
    asked: Option<Instant>,
}

/// A datagram that waits to be read.
struct Waiting {
    from: SocketAddr,
    place: Place,
}

enum Place {
    /// In a slot of an outlet.
    Slot(usize, Arrival),
    Apart(Box<[u8]>),
}

/// What one thread at a time sees.
pub(super) struct Datagrams {
    udp: Udp,
    port: Option<u16>,
    /// Readable when an outlet's completion was asked for and came.
    events: OwnedFd,
    outlets: Vec<Outlet>,
    peers: HashMap<SocketAddr, Peer>,
    connected: Option<SocketAddr>,
    arrived: VecDeque<Waiting>,
    sizes: Sizes,
    nonblocking: bool,
    receive_timeout: Option<Duration>,
    send_timeout: Option<Duration>,
    is_readable: bool,
    is_writable: bool,
    /// What the UDP socket said that the program has not heard yet.
    error: Option<Errno>,
    looked: Option<Instant>,
    room: Box<[u8]>,
}

/// A socket; `flags` are those of its type.
pub(super) fn fresh(family: c_int, flags: c_int) -> Result<Shared<Datagrams>, Errno> {
    let udp = Udp::new(family, flags)?;
    // SAFETY: numbers only.
    let events = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if events < 0 {
        return Err(Errno::last());
    }
    let fd = udp.descriptor();
    let datagrams = Datagrams {
        udp,
        port: None,
        // SAFETY: just made, and ours.
        events: unsafe { OwnedFd::from_raw_fd(events) },
        outlets: Vec::new(),
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
        looked: None,
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

    /// Which outlet sends to a peer; made when there is none.
    fn outlet_to(&mut self, to: SocketAddr) -> Result<usize, Errno> {
        let address = self.udp.source(to)?;
        if let Some(found) = self.outlets.iter().position(|outlet| outlet.address == address) {
            return Ok(found);
        }
        if self.outlets.len() >= OUTLETS_MAX {
            return Err(Errno::NO_MEMORY);
        }
        let outlet = Outlet::new(address, &self.sizes)?;
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are ours, and the event is read before the call returns.
        Errno::check(unsafe {
            libc::epoll_ctl(
                self.events.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                outlet.completions.descriptor(),
                &mut event,
            )
        })?;
        self.outlets.push(outlet);
        Ok(self.outlets.len() - 1)
    }

    /// Remembers a peer, if there is room.
    fn meet(&mut self, address: SocketAddr) -> Result<(), Errno> {
        if !self.peers.contains_key(&address) {
            let outlet = self.outlet_to(address)?;
            // Whoever it is can ask again. Address handles outlive the requests that use them.
            if self.peers.len() >= PEERS_MAX && self.outlets.iter().all(Outlet::is_idle) {
                self.peers.clear();
            }
            if self.peers.len() < PEERS_MAX {
                self.peers.insert(address, Peer { outlet, way: None, asked: None });
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
            self.meet(to)?;
        }
        let Some(peer) = self.peers.get_mut(&to) else { return self.send_by_udp(to, pieces) };
        let outlet = &mut self.outlets[peer.outlet];
        let is_due = peer.asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        if let Some(way) = peer.way.as_ref().filter(|_| !is_due && outlet.fits(length)) {
            let header = header::of_source(SocketAddr::new(outlet.address, port));
            return Ok(outlet.send(header.as_slice(), pieces, way)?.then_some(()));
        }
        peer.asked = Some(Instant::now());
        self.send_by_udp(to, pieces)
    }

    /// With our queue pair in it, which the peer answers with its own.
    fn send_by_udp(&mut self, to: SocketAddr, pieces: &[&[u8]]) -> Result<Option<()>, Errno> {
        let at = match self.peers.get(&to) {
            Some(peer) => peer.outlet,
            None => self.outlet_to(to)?,
        };
        let outlet = &self.outlets[at];
        let header = header::of_service(Purpose::Data, outlet.address, outlet.qpn());
        self.udp.send(to, &[&[header.as_slice()], pieces].concat())
    }

    /// Takes what the UDP socket has received: data, and the queue pairs of peers.
    fn take_from_udp(&mut self) {
        for _ in 0..BATCH {
            let mut room = core::mem::take(&mut self.room);
            let received = self.udp.receive(&mut room);
            let outcome = match received {
                Ok(Some((from, length))) => {
                    self.hear(from, room.get(..length).unwrap_or_default());
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

    /// What a peer says by UDP. What cannot be served is dropped, as datagrams are.
    fn hear(&mut self, from: SocketAddr, bytes: &[u8]) {
        let Some(said) = header::service(bytes, from.ip()) else { return };
        if self.meet(from).is_err() {
            return;
        }
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let outlet = &self.outlets[peer.outlet];
        if peer.way.as_ref().is_none_or(|way| way.qpn != said.qpn) {
            peer.way = outlet.way(from.ip(), said.qpn).ok();
            peer.asked.get_or_insert_with(Instant::now);
        }
        if said.purpose == Purpose::Data {
            let header = header::of_service(Purpose::Answer, outlet.address, outlet.qpn());
            // A peer that is not answered asks again.
            _ = self.udp.send(from, &[header.as_slice()]);
            if self.accepts(from) && self.arrived.len() < outlet::slots_of_receives(&self.sizes) as usize {
                let bytes = bytes.get(said.length..).unwrap_or_default();
                self.arrived.push_back(Waiting { from, place: Place::Apart(bytes.into()) });
            }
        }
    }

    /// A connected socket hears its peer only.
    fn accepts(&self, from: SocketAddr) -> bool {
        self.is_readable && self.connected.is_none_or(|peer| is_same(peer, from))
    }

    /// Takes the next datagram away.
    fn drop_first(&mut self) {
        if let Some(Waiting { place: Place::Slot(at, arrival), .. }) = self.arrived.pop_front() {
            // A queue pair that takes no receives any more is told by sending.
            _ = self.outlets[at].release(&arrival);
        }
    }

    /// Whether all that was sent has left.
    fn is_idle(&self) -> bool {
        self.outlets.iter().all(Outlet::is_idle)
    }
}

/// Flow labels and scopes aside.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

impl Endpoint for Datagrams {
    fn progress(&mut self) {
        let (accepts, connected) = (self.is_readable, self.connected);
        for at in 0..self.outlets.len() {
            let (outlet, arrived) = (&mut self.outlets[at], &mut self.arrived);
            let mut unwanted = Vec::new();
            outlet.progress(|arrival| {
                if accepts && connected.is_none_or(|peer| is_same(peer, arrival.from)) {
                    let from = arrival.from;
                    arrived.push_back(Waiting { from, place: Place::Slot(at, arrival) });
                } else {
                    unwanted.push(arrival);
                }
            });
            for arrival in unwanted {
                _ = outlet.release(&arrival);
            }
        }
    }

    fn attend(&mut self) {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            self.take_from_udp();
            self.looked = Some(Instant::now());
        }
    }

    fn arm(&mut self) -> Result<(), Errno> {
        self.looked = None;
        self.outlets.iter_mut().try_for_each(|outlet| outlet.completions.arm())
    }

    fn quiet(&mut self) {
        self.looked = None;
        self.outlets.iter_mut().for_each(|outlet| outlet.completions.quiet());
    }

    fn descriptors(&self) -> [pollfd; 2] {
        let events = pollfd { fd: self.events.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        [self.udp.pollfd(libc::POLLIN), events]
    }

    fn readiness(&self) -> i16 {
        let mut ready = 0;
        if !self.arrived.is_empty() || !self.is_readable || self.error.is_some() {
            ready |= libc::POLLIN | libc::POLLRDNORM;
        }
        if !self.is_writable || self.outlets.is_empty() || self.outlets.iter().any(Outlet::can_send) {
            ready |= libc::POLLOUT | libc::POLLWRNORM;
        }
        if self.error.is_some() {
            ready |= libc::POLLERR;
        }
        ready
    }

    fn used(&mut self) {}
}
