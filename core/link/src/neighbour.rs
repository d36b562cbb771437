//! Neighbours: whether the kernel knows the link-layer address of a path's next hop (ARP, RFC 826; neighbour
//! discovery, RFC 4861), which it has to know before packets leave.
//!
//! Route netlink has the answer. Where a sandbox refuses it, or the kernel is too old for the request,
//! /proc/net/arp tells it for IPv4 addresses on the link, and other next hops count as known.

use crate::route::socket_address;
use crate::sys;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// The addresses of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// An address of this host.
    pub source: IpAddr,
    /// The peer's address.
    pub destination: IpAddr,
    /// The interface of link-local addresses; 0 for others.
    pub ifindex: u32,
}

/// The kernel's table of neighbours.
#[derive(Debug)]
pub struct Neighbours {
    netlink: Option<OwnedFd>,
}

impl Neighbours {
    /// Opens a netlink socket, if the system permits it.
    pub fn open() -> Self {
        Self {
            netlink: sys::netlink::open(0).ok(),
        }
    }

    /// Whether the next hop between two addresses is known, or none has to be: the peer's address is of this
    /// host, or its interface resolves no addresses.
    ///
    /// # Errors
    /// `ENETUNREACH` and others of connect(2): there is no route.
    pub fn is_known(&self, ends: Ends) -> io::Result<bool> {
        let netlink = self.netlink.as_ref();
        match netlink.map(|socket| Netlink { socket }.is_known(ends)) {
            Some(Ok(is_known)) => Ok(is_known),
            Some(Err(Failure::NoRoute(code))) => Err(io::Error::from_raw_os_error(code)),
            Some(Err(Failure::Refused)) | None => Ok(is_known_without_netlink(ends)),
        }
    }
}

/// Has the kernel look for the next hop: sends an empty datagram, which leaves once it is known. A hop limit
/// of 1 keeps the datagram on the link.
pub fn solicit(ends: Ends) {
    /// RFC 863: what arrives at this port is discarded, or refused.
    const DISCARD_PORT: u16 = 9;
    let source = socket_address(ends.source, 0, ends.ifindex);
    let Ok(socket) = sys::route::bound_socket(&source) else {
        return;
    };
    // A socket that does not take the hop limit sends with the host's own one.
    let _ = sys::route::set_hop_limit(&socket, ends.source.is_ipv6(), 1);
    let destination = socket_address(ends.destination, DISCARD_PORT, ends.ifindex);
    // An error is the result of an earlier attempt; the table has it as well.
    let _ = socket.set_nonblocking(true);
    let _ = socket.send_to(&[], destination);
}

/// Why netlink has no answer.
enum Failure {
    /// The kernel has no route to the address; its error number.
    NoRoute(i32),
    /// The request is not permitted or not implemented.
    Refused,
}

/// Requests of rtnetlink(7).
#[derive(Clone, Copy)]
struct Netlink<'a> {
    socket: &'a OwnedFd,
}

/// The answer of the kernel, after the header: the fixed structure and attributes, or an error number.
type Answer = Result<Vec<u8>, i32>;

const NLMSG_HEADER: usize = 16;
/// Bytes of `struct rtmsg`.
const ROUTE_HEADER: usize = 12;

impl Netlink<'_> {
    /// Sends a request and returns the answer.
    fn ask(self, kind: u16, body: &[u8]) -> Result<Answer, Failure> {
        /// Enough for a route and a neighbour; of an interface only the beginning is used.
        const ROOM: usize = 2048;
        let length = (NLMSG_HEADER + body.len()) as u32;
        let mut request = Vec::with_capacity(length as usize);
        request.extend(length.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request.extend([0; 8]);
        request.extend(body);
        let mut room = vec![0; ROOM];
        let received = sys::netlink::ask(self.socket, &request, &mut room);
        room.truncate(received.map_err(|_| Failure::Refused)?);
        answer_of(&room).ok_or(Failure::Refused)
    }

    fn is_known(self, ends: Ends) -> Result<bool, Failure> {
        let route = self.ask(libc::RTM_GETROUTE, &route_request(ends))?;
        let route = route.map_err(|code| match code {
            libc::EOPNOTSUPP | libc::EPERM => Failure::Refused,
            code => Failure::NoRoute(code),
        })?;
        let Some((ifindex, next_hop)) = next_hop(&route, ends.destination) else {
            return Ok(true);
        };
        match self.ask(libc::RTM_GETNEIGH, &neighbour_request(ifindex, next_hop))? {
            Ok(neighbour) if is_valid(&neighbour) => Ok(true),
            Ok(_) | Err(libc::ENOENT) => self.resolves_nothing(ifindex),
            Err(_) => Err(Failure::Refused),
        }
    }

    /// Whether an interface, such as a tunnel, has no link-layer addresses.
    fn resolves_nothing(self, ifindex: u32) -> Result<bool, Failure> {
        // `struct ifinfomsg`: family, type, index, flags, change.
        let mut request = [0; 16];
        request[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        let link = self.ask(libc::RTM_GETLINK, &request)?;
        let flags = link.ok().and_then(|link| word(&link, 8));
        Ok(flags.is_some_and(|flags| flags & libc::IFF_NOARP as u32 != 0))
    }
}

/// The content of a netlink message; none if it is cut before that.
fn answer_of(message: &[u8]) -> Option<Answer> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let content = message.get(NLMSG_HEADER..)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        return Some(Err(-(word(content, 0)? as i32)));
    }
    Some(Ok(content.to_vec()))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Appends an attribute, padded to 4 bytes.
fn attribute(request: &mut Vec<u8>, kind: u16, value: &[u8]) {
    request.extend((4 + value.len() as u16).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(value);
    request.resize(request.len().next_multiple_of(4), 0);
}

/// The attributes in these bytes, up to one that is cut.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?).into();
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).into());
    let v6 = || Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into());
    v4().or_else(v6)
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// `struct rtmsg` with source, destination, and the interface where there is one.
fn route_request(ends: Ends) -> Vec<u8> {
    let (source, destination) = (octets(ends.source), octets(ends.destination));
    let mut request = vec![0; ROUTE_HEADER];
    request[0] = family(ends.destination);
    request[1] = (destination.len() * 8) as u8;
    request[2] = (source.len() * 8) as u8;
    attribute(&mut request, libc::RTA_DST, &destination);
    attribute(&mut request, libc::RTA_SRC, &source);
    if ends.ifindex != 0 {
        attribute(&mut request, libc::RTA_OIF, &ends.ifindex.to_ne_bytes());
    }
    request
}

/// Interface and address of a route's next hop; none where packets need no neighbour: to this host, to a
/// group.
fn next_hop(route: &[u8], destination: IpAddr) -> Option<(u32, IpAddr)> {
    const TYPE: usize = 7;
    if route.get(TYPE) != Some(&libc::RTN_UNICAST) {
        return None;
    }
    let (mut ifindex, mut hop) = (None, destination);
    for (kind, value) in attributes(route.get(ROUTE_HEADER..)?) {
        match kind {
            libc::RTA_OIF => ifindex = word(value, 0),
            libc::RTA_GATEWAY => hop = address(value)?,
            // A router of the other address family: `struct rtvia`, two bytes of family and the address.
            libc::RTA_VIA => hop = address(value.get(2..)?)?,
            _ => {}
        }
    }
    Some((ifindex?, hop))
}

/// `struct ndmsg` with the address.
fn neighbour_request(ifindex: u32, hop: IpAddr) -> Vec<u8> {
    let mut request = vec![0; 12];
    request[0] = family(hop);
    request[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    attribute(&mut request, libc::NDA_DST, &octets(hop));
    request
}

/// Whether an entry has a link-layer address (`NUD_VALID`): addresses that were confirmed long ago count.
fn is_valid(neighbour: &[u8]) -> bool {
    const VALID: u16 = libc::NUD_PERMANENT
        | libc::NUD_NOARP
        | libc::NUD_REACHABLE
        | libc::NUD_PROBE
        | libc::NUD_STALE
        | libc::NUD_DELAY;
    let state = neighbour.get(8..10).and_then(|it| it.try_into().ok());
    state.is_some_and(|state| u16::from_ne_bytes(state) & VALID != 0)
}

/// By /proc/net/arp, which lists IPv4 neighbours of all interfaces. An address on the link is in it once a
/// packet was sent there; one without an entry is behind a router, and counts as known.
fn is_known_without_netlink(ends: Ends) -> bool {
    let listed = || std::fs::read_to_string("/proc/net/arp").unwrap_or_default();
    let is_known = || is_complete(&listed(), ends.destination);
    is_known()
        .or_else(|| {
            solicit(ends);
            is_known()
        })
        .unwrap_or(true)
}

/// Whether an entry of /proc/net/arp has a link-layer address; none without an entry.
fn is_complete(listed: &str, address: IpAddr) -> Option<bool> {
    /// `ATF_COM` of if_arp.h.
    const COMPLETE: u32 = 2;
    let mut flags = listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next()?.parse() == Ok(address);
        let flags = words.nth(1)?.strip_prefix("0x")?;
        is_it.then(|| u32::from_str_radix(flags, 16).ok())?
    });
    let first = flags.next()?;
    Some(flags.fold(first, |all, flags| all | flags) & COMPLETE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn ends(source: IpAddr, destination: IpAddr) -> Ends {
        Ends {
            source,
            destination,
            ifindex: 0,
        }
    }

    #[test]
    fn addresses_of_this_host_have_no_next_hop() {
        for here in [HERE, Ipv6Addr::LOCALHOST.into()] {
            let ends = ends(here, here);
            assert!(Neighbours::open().is_known(ends).unwrap(), "{here}");
            assert!(is_known_without_netlink(ends), "{here}");
        }
    }

    #[test]
    fn an_address_without_a_route_is_an_error() {
        // No interface has this index, so no route leads through it.
        let ends = Ends {
            ifindex: 0x7fff_fff0,
            ..ends(HERE, Ipv4Addr::new(198, 51, 100, 9).into())
        };
        assert!(Neighbours::open().is_known(ends).is_err());
    }

    #[test]
    fn a_route_names_its_interface_and_its_router() {
        let far: IpAddr = Ipv4Addr::new(198, 51, 100, 9).into();
        let route = |kind: u8, attributes: &[(u16, &[u8])]| {
            let mut route = vec![0; ROUTE_HEADER];
            route[7] = kind;
            for (kind, value) in attributes {
                attribute(&mut route, *kind, value);
            }
            next_hop(&route, far)
        };
        let interface = (libc::RTA_OIF, &7u32.to_ne_bytes()[..]);
        let router = Ipv4Addr::new(10, 0, 0, 1);
        let v6: Ipv6Addr = "fe80::1".parse().unwrap();
        let via = [&10u16.to_ne_bytes()[..], &v6.octets()].concat();
        assert_eq!(route(libc::RTN_UNICAST, &[interface]), Some((7, far)));
        let by_router = [(libc::RTA_GATEWAY, &router.octets()[..]), interface];
        assert_eq!(
            route(libc::RTN_UNICAST, &by_router),
            Some((7, router.into()))
        );
        let by_v6 = [(libc::RTA_VIA, &via[..]), interface];
        assert_eq!(route(libc::RTN_UNICAST, &by_v6), Some((7, v6.into())));
        assert_eq!(route(libc::RTN_LOCAL, &[interface]), None);
        assert_eq!(route(libc::RTN_MULTICAST, &[interface]), None);
        assert_eq!(route(libc::RTN_UNICAST, &[]), None);
    }

    #[test]
    fn an_entry_counts_while_it_has_an_address() {
        let entry = |state: u16| {
            let mut entry = [0; 12];
            entry[8..10].copy_from_slice(&state.to_ne_bytes());
            is_valid(&entry)
        };
        for state in [
            libc::NUD_REACHABLE,
            libc::NUD_STALE,
            libc::NUD_PERMANENT,
            libc::NUD_NOARP,
        ] {
            assert!(entry(state), "{state}");
        }
        for state in [0, libc::NUD_INCOMPLETE, libc::NUD_FAILED] {
            assert!(!entry(state), "{state}");
        }
        assert!(!is_valid(&[0; 4]));
    }

    #[test]
    fn the_arp_table_says_which_entries_are_complete() {
        let listed = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.0.0.2         0x1         0x2         52:54:00:00:00:02     *        eth0\n\
            10.0.0.3         0x1         0x0         00:00:00:00:00:00     *        eth0\n\
            10.0.0.3         0x1         0x6         52:54:00:00:00:03     *        eth1\n\
            10.0.0.4         0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        let of = |last| is_complete(listed, Ipv4Addr::new(10, 0, 0, last).into());
        assert_eq!(
            [of(2), of(3), of(4), of(5)],
            [Some(true), Some(true), Some(false), None]
        );
    }
}
