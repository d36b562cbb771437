//! A socket that sends RoCE packets from one address of this machine.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use doctor::probe::{Ends, HOP_LIMIT};

use crate::sys::datagrams;

/// Source ports of RoCEv2 packets begin here (IBTA A17.4.1: from 0xc000, for entropy).
const FIRST_PORT: u16 = 0xc000;

/// Sends from one address to one port of other hosts.
#[derive(Debug)]
pub(super) struct Speaker {
    socket: UdpSocket,
    address: SocketAddr,
    port: u16,
}

impl Speaker {
    /// A socket at this address of the machine, for packets to this port.
    ///
    /// # Errors
    /// As bind(2) and setsockopt(2).
    pub(super) fn new(address: IpAddr, port: u16) -> io::Result<Self> {
        let first = FIRST_PORT | (std::process::id() as u16 & 0x3fff);
        let candidates = (0..16)
            .map(|more| first.wrapping_add(more) | FIRST_PORT)
            .chain([0]);
        let bound = |port| UdpSocket::bind((address, port));
        let mut last = Err(io::ErrorKind::AddrInUse.into());
        for candidate in candidates {
            last = bound(candidate);
            if last
                .as_ref()
                .map_or_else(|error| error.kind() != io::ErrorKind::AddrInUse, |_| true)
            {
                break;
            }
        }
        let socket = last?;
        datagrams::ask_plainly(&socket, address.is_ipv6(), HOP_LIMIT)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self {
            socket,
            address,
            port,
        })
    }

    /// The addresses and ports of a packet to a host.
    pub(super) fn ends(&self, destination: IpAddr) -> Ends {
        let source = self.address.ip();
        Ends {
            source,
            destination,
            source_port: self.address.port(),
            destination_port: self.port,
        }
    }

    /// Sets DSCP and ECN of the packets that follow.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub(super) fn mark(&self, traffic_class: u8) -> io::Result<()> {
        datagrams::set_traffic_class(&self.socket, self.address.is_ipv6(), traffic_class)
    }

    /// Sends to a host, at a port other than this one's where that is named.
    ///
    /// # Errors
    /// As sendto(2), `WouldBlock` when the interface takes no packet now.
    pub(super) fn send(
        &self,
        destination: IpAddr,
        port: Option<u16>,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.socket
            .send_to(bytes, (destination, port.unwrap_or(self.port)))
            .map(drop)
    }

    /// The next ICMP error that one of the packets has caused.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub(super) fn report(&self) -> io::Result<Option<datagrams::Report>> {
        datagrams::report(&self.socket)
    }

    pub(super) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
