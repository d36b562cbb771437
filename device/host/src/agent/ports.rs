//! RDMA-CM ports: which client has bound them, and which client listens. It allocates nothing: see
//! [`super::serve`].

use super::protocol::{Ask, Request};
use rnic::cm::ListenAddress;
use std::net::IpAddr;
use wire::cm::PortSpace;

/// Limit of entries: ranges of ports, and listeners.
const ENTRIES_MAX: usize = 4096;
/// Range of the ports for requests for any port: Linux's defaults (`net.ipv4.ip_local_port_range`).
const ANY_FIRST: u16 = 32_768;
const ANY_LAST: u16 = 60_999;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Free,
    Bound,
    Listening,
    /// The listener is closed, but requests that it has answered may be repeated.
    Former,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    role: Role,
    shared: bool,
    slot: u16,
    space: PortSpace,
    first: u16,
    count: u16,
    address: ListenAddress,
}

impl Entry {
    const FREE: Self = Self {
        role: Role::Free,
        shared: false,
        slot: 0,
        space: PortSpace::Tcp,
        first: 0,
        count: 0,
        address: ListenAddress::Any,
    };

    fn is(&self, slot: u16, request: &Request, role: Role) -> bool {
        self.role == role
            && self.slot == slot
            && (self.space, self.first, self.address)
                == (request.space, request.port, request.address)
    }

    fn has(&self, space: PortSpace, port: u16) -> bool {
        self.role != Role::Free && self.space == space && port.wrapping_sub(self.first) < self.count
    }

    fn overlaps(&self, request: &Request, first: u16) -> bool {
        let (ours, theirs) = (u32::from(self.first), u32::from(first));
        self.role == Role::Bound
            && self.space == request.space
            && ours < theirs + u32::from(request.count)
            && theirs < ours + u32::from(self.count)
            && !(self.shared && request.shared)
            && self.address.overlaps(&request.address)
    }
}

/// The ports that clients have bound or listen on.
#[derive(Debug)]
pub(super) struct Ports {
    entries: [Entry; ENTRIES_MAX],
    /// Index after the last entry that was ever used.
    used: usize,
    /// First port of the next search for free ports.
    next: u16,
}

impl Ports {
    pub(super) const fn new() -> Self {
        Self {
            entries: [Entry::FREE; ENTRIES_MAX],
            used: 0,
            next: ANY_FIRST,
        }
    }

    /// Executes a request of a client; returns an error number when it fails.
    pub(super) fn answer(&mut self, slot: u16, request: &Request) -> Result<u16, i32> {
        match request.ask {
            Ask::Attend | Ask::List => Ok(0),
            Ask::Bind => self.bind(slot, request),
            Ask::Unbind => self.drop_one(slot, request, Role::Bound),
            Ask::Listen => self.listen(slot, request),
            Ask::Unlisten => {
                let found = self
                    .live()
                    .iter_mut()
                    .find(|entry| entry.is(slot, request, Role::Listening));
                found.ok_or(libc::EINVAL)?.role = Role::Former;
                Ok(request.port)
            }
        }
    }

    fn live(&mut self) -> &mut [Entry] {
        &mut self.entries[..self.used]
    }

    fn add(&mut self, entry: Entry) -> Result<(), i32> {
        if let Some(place) = self
            .live()
            .iter_mut()
            .find(|entry| entry.role == Role::Free)
        {
            *place = entry;
        } else if self.used < ENTRIES_MAX {
            self.entries[self.used] = entry;
            self.used += 1;
        } else {
            let former = self
                .entries
                .iter_mut()
                .find(|entry| entry.role == Role::Former);
            *former.ok_or(libc::ENOMEM)? = entry;
        }
        Ok(())
    }

    fn bind(&mut self, slot: u16, request: &Request) -> Result<u16, i32> {
        if request.count == 0 || request.port.checked_add(request.count - 1).is_none() {
            return Err(libc::EINVAL);
        }
        let first = if request.port == 0 {
            self.find_free(request)?
        } else {
            request.port
        };
        if self
            .live()
            .iter()
            .any(|entry| entry.overlaps(request, first))
        {
            return Err(libc::EADDRINUSE);
        }
        self.add(Entry {
            role: Role::Bound,
            shared: request.shared,
            slot,
            space: request.space,
            first,
            count: request.count,
            address: request.address,
        })?;
        Ok(first)
    }

    /// Free ports; the search begins after the ports that were found last.
    fn find_free(&mut self, request: &Request) -> Result<u16, i32> {
        let tries = u32::from(ANY_LAST - ANY_FIRST) / u32::from(request.count);
        let whole = Request {
            address: ListenAddress::Any,
            shared: false,
            ..*request
        };
        for _ in 0..tries {
            if u32::from(self.next) + u32::from(request.count) > u32::from(ANY_LAST) + 1 {
                self.next = ANY_FIRST;
            }
            let first = self.next;
            self.next += request.count;
            if !self
                .live()
                .iter()
                .any(|entry| entry.overlaps(&whole, first))
            {
                return Ok(first);
            }
        }
        Err(libc::EADDRNOTAVAIL)
    }

    fn drop_one(&mut self, slot: u16, request: &Request, role: Role) -> Result<u16, i32> {
        let found = self
            .live()
            .iter_mut()
            .find(|entry| entry.is(slot, request, role));
        *found.ok_or(libc::EINVAL)? = Entry::FREE;
        Ok(request.port)
    }

    fn listen(&mut self, slot: u16, request: &Request) -> Result<u16, i32> {
        let is_ours = |entry: &Entry| {
            entry.role == Role::Bound
                && entry.slot == slot
                && entry.has(request.space, request.port)
        };
        if !self.live().iter().any(is_ours) {
            return Err(libc::EINVAL);
        }
        let same = |entry: &Entry| {
            entry.first == request.port
                && entry.space == request.space
                && entry.address == request.address
        };
        if self
            .live()
            .iter()
            .any(|entry| entry.role == Role::Listening && same(entry))
        {
            return Err(libc::EADDRINUSE);
        }
        // The current listener takes precedence over a former one.
        for entry in self
            .live()
            .iter_mut()
            .filter(|entry| entry.role == Role::Former && same(entry))
        {
            *entry = Entry::FREE;
        }
        self.add(Entry {
            role: Role::Listening,
            shared: false,
            slot,
            space: request.space,
            first: request.port,
            count: 1,
            address: request.address,
        })?;
        Ok(request.port)
    }

    /// The listener with this index.
    pub(super) fn nth_listener(&self, index: u16) -> Option<Request> {
        let mut listening = self.entries[..self.used]
            .iter()
            .filter(|entry| entry.role == Role::Listening);
        let Entry {
            space,
            first: port,
            address,
            shared,
            ..
        } = *listening.nth(index.into())?;
        Some(Request {
            ask: Ask::List,
            space,
            port,
            count: index,
            address,
            shared,
        })
    }

    /// The slot that takes requests for a port at an address: that of the most specific listener. Without a
    /// current or former listener, that of a former listener on the same port of another space, which may
    /// listen again next.
    pub(super) fn listener(
        &self,
        space: PortSpace,
        port: u16,
        address: Option<IpAddr>,
    ) -> Option<u16> {
        let takes = |entry: &&Entry| address.is_none_or(|address| entry.address.takes(address));
        let is_former = |entry: &&Entry| entry.role == Role::Former && entry.first == port;
        let rank = |entry: &&Entry| {
            let particularity = match entry.address {
                ListenAddress::One(_) => 0,
                ListenAddress::AnyV4 | ListenAddress::AnyV6 => 1,
                ListenAddress::Any => 2,
            };
            (entry.role == Role::Former, particularity)
        };
        let answers = |entry: &&Entry| {
            matches!(entry.role, Role::Listening | Role::Former)
                && entry.has(space, port)
                && takes(entry)
        };
        let entries = || self.entries[..self.used].iter();
        let found = entries().filter(answers).min_by_key(rank);
        let next = || entries().filter(takes).filter(is_former).min_by_key(rank);
        found.or_else(next).map(|entry| entry.slot)
    }

    /// Removes the ports of a client whose connection has ended.
    pub(super) fn forget(&mut self, slot: u16) {
        for entry in self.live().iter_mut().filter(|entry| entry.slot == slot) {
            *entry = Entry::FREE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ask: Ask, port: u16, address: ListenAddress) -> Request {
        Request {
            ask,
            space: PortSpace::Tcp,
            port,
            count: 1,
            address,
            shared: false,
        }
    }

    fn one(text: &str) -> ListenAddress {
        ListenAddress::One(text.parse().unwrap())
    }

    #[test]
    fn a_port_is_given_out_once() {
        let mut ports = Ports::new();
        let any = request(Ask::Bind, 7471, ListenAddress::Any);
        assert_eq!(ports.answer(1, &any), Ok(7471));
        assert_eq!(ports.answer(2, &any), Err(libc::EADDRINUSE));
        assert_eq!(
            ports.answer(
                2,
                &Request {
                    address: one("10.0.0.1"),
                    ..any
                }
            ),
            Err(libc::EADDRINUSE)
        );
        assert_eq!(
            ports.answer(
                2,
                &Request {
                    space: PortSpace::Udp,
                    ..any
                }
            ),
            Ok(7471)
        );
        assert_eq!(
            ports.answer(
                1,
                &Request {
                    ask: Ask::Unbind,
                    ..any
                }
            ),
            Ok(7471)
        );
        assert_eq!(ports.answer(2, &any), Ok(7471));
        ports.forget(2);
        assert_eq!(ports.answer(3, &any), Ok(7471));
    }

    #[test]
    fn addresses_and_who_shares_live_together() {
        let mut ports = Ports::new();
        assert_eq!(
            ports.answer(1, &request(Ask::Bind, 7, one("10.0.0.1"))),
            Ok(7)
        );
        assert_eq!(
            ports.answer(2, &request(Ask::Bind, 7, one("10.0.0.2"))),
            Ok(7)
        );
        assert_eq!(
            ports.answer(2, &request(Ask::Bind, 7, ListenAddress::AnyV6)),
            Ok(7)
        );
        assert_eq!(
            ports.answer(2, &request(Ask::Bind, 7, ListenAddress::AnyV4)),
            Err(libc::EADDRINUSE)
        );
        let shared = Request {
            shared: true,
            ..request(Ask::Bind, 9, ListenAddress::Any)
        };
        assert_eq!(
            (ports.answer(1, &shared), ports.answer(2, &shared)),
            (Ok(9), Ok(9))
        );
        assert_eq!(
            ports.answer(
                3,
                &Request {
                    shared: false,
                    ..shared
                }
            ),
            Err(libc::EADDRINUSE)
        );
    }

    #[test]
    fn any_ports_are_free_ones_in_a_row() {
        let mut ports = Ports::new();
        let many = Request {
            count: 64,
            ..request(Ask::Bind, 0, ListenAddress::Any)
        };
        let first = ports.answer(1, &many).unwrap();
        let second = ports.answer(2, &many).unwrap();
        assert!(first >= ANY_FIRST && second == first + 64);
        let inside = request(Ask::Bind, first + 63, one("10.0.0.1"));
        assert_eq!(ports.answer(2, &inside), Err(libc::EADDRINUSE));
        let mut given = 2;
        while ports.answer(3, &many).is_ok() {
            given += 1;
        }
        assert_eq!(given, usize::from(ANY_LAST - ANY_FIRST + 1) / 64);
        assert_eq!(ports.answer(4, &many), Err(libc::EADDRNOTAVAIL));
    }

    #[test]
    fn requests_go_to_the_listener_of_their_service() {
        let mut ports = Ports::new();
        let (any, here) = (ListenAddress::Any, one("10.0.0.1"));
        let address: Option<IpAddr> = "10.0.0.1".parse().ok();
        assert_eq!(
            ports.answer(1, &request(Ask::Listen, 7, any)),
            Err(libc::EINVAL),
            "not bound"
        );
        for (slot, address) in [(1, any), (2, here)] {
            let shared = Request {
                shared: true,
                ..request(Ask::Bind, 7, address)
            };
            ports.answer(slot, &shared).unwrap();
        }
        assert_eq!(
            ports.listener(PortSpace::Tcp, 7, address),
            None,
            "bound is not listening"
        );
        ports.answer(1, &request(Ask::Listen, 7, any)).unwrap();
        assert_eq!(
            ports.answer(1, &request(Ask::Listen, 7, any)),
            Err(libc::EADDRINUSE)
        );
        assert_eq!(ports.listener(PortSpace::Tcp, 7, address), Some(1));
        ports.answer(2, &request(Ask::Listen, 7, here)).unwrap();
        assert_eq!(ports.listener(PortSpace::Tcp, 7, address), Some(2));
        assert_eq!(ports.listener(PortSpace::Udp, 7, address), None);
        ports.answer(2, &request(Ask::Unlisten, 7, here)).unwrap();
        assert_eq!(ports.listener(PortSpace::Tcp, 7, address), Some(1));
        ports.answer(1, &request(Ask::Unlisten, 7, any)).unwrap();
        assert_eq!(
            ports.listener(PortSpace::Tcp, 7, address),
            Some(2),
            "requests that were answered"
        );
        assert_eq!(
            ports.listener(PortSpace::Udp, 7, address),
            Some(2),
            "it may listen there next"
        );
        assert_eq!(ports.listener(PortSpace::Udp, 8, address), None);
        ports.forget(2);
        ports.forget(1);
        assert_eq!(ports.listener(PortSpace::Tcp, 7, address), None);
    }

    #[test]
    fn there_is_a_limit() {
        let mut ports = Ports::new();
        for index in 0..ENTRIES_MAX {
            let address = ListenAddress::One(IpAddr::from((index as u32).to_be_bytes()));
            ports.answer(1, &request(Ask::Bind, 7, address)).unwrap();
        }
        assert_eq!(
            ports.answer(1, &request(Ask::Bind, 8, ListenAddress::Any)),
            Err(libc::ENOMEM)
        );
    }
}
