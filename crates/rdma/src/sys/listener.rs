//! Event channels, identifiers, and listening.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use abi::{RDMA_PS_TCP, rdma_cm_event, rdma_cm_id, rdma_event_channel, sockaddr_storage};

use super::connection::{Connection, Sizes};
use super::domain::Domain;
use super::library::{Library, check, failed, library, set_nonblocking};
use super::shared::SharedReceives;
use crate::Error;

/// Where events come from.
pub(crate) struct Channel {
    pub(crate) library: &'static Library,
    pub(crate) raw: NonNull<rdma_event_channel>,
}

// SAFETY: librdmacm's objects may be used from any thread (rdma_cm(7)).
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// What an event said.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) private_data: Vec<u8>,
}

impl Channel {
    pub(crate) fn new() -> Result<Self, Error> {
        let library = library()?;
        // SAFETY: takes nothing.
        let raw = unsafe { (library.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(|| failed("rdma_create_event_channel"))?;
        let channel = Self { library, raw };
        set_nonblocking(channel.descriptor())?;
        Ok(channel)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        // SAFETY: a channel of the library.
        unsafe { self.raw.as_ref() }.fd
    }

    /// The next event, if there is one.
    pub(crate) fn event(&self) -> Result<Option<Event>, Error> {
        let mut raw: *mut rdma_cm_event = ptr::null_mut();
        // SAFETY: a channel of the library, and a place for the event.
        let code = unsafe { (self.library.rdma_get_cm_event)(self.raw.as_ptr(), &mut raw) };
        if code != 0 {
            let error = std::io::Error::last_os_error();
            return match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => Ok(None),
                _ => Err(Error::Call { call: "rdma_get_cm_event", source: error }),
            };
        }
        // SAFETY: the library gave an event; its private data are there until it is acknowledged, and of
        // connections, which are all that is made here, `conn` is what the union has.
        let event = unsafe {
            let param = (*raw).param.conn;
            let has_data = !param.private_data.is_null() && param.private_data_len != 0;
            let private_data = match has_data {
                true => std::slice::from_raw_parts(param.private_data.cast(), param.private_data_len.into()),
                false => &[],
            };
            Event {
                kind: (*raw).event,
                status: (*raw).status,
                id: (*raw).id,
                private_data: private_data.to_vec(),
            }
        };
        // SAFETY: an event that was not acknowledged before.
        unsafe { (self.library.rdma_ack_cm_event)(raw) };
        Ok(Some(event))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: identifiers on it are destroyed before: they are declared before it.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw.as_ptr()) }
    }
}

/// An identifier that is destroyed when it is dropped.
pub(crate) struct Id {
    pub(crate) library: &'static Library,
    pub(crate) raw: NonNull<rdma_cm_id>,
}

// SAFETY: as for channels.
unsafe impl Send for Id {}

impl Id {
    pub(crate) fn new(channel: &Channel) -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        let (library, place) = (channel.library, &mut raw);
        // SAFETY: a channel of the library, and a place for the identifier.
        let code =
            unsafe { (library.rdma_create_id)(channel.raw.as_ptr(), place, ptr::null_mut(), RDMA_PS_TCP) };
        check("rdma_create_id", code)?;
        let raw = NonNull::new(raw).ok_or_else(|| failed("rdma_create_id"))?;
        Ok(Self { library, raw })
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: an identifier of the library whose queue pair, if it had one, is destroyed.
        unsafe { (self.library.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

/// An identifier and the channel that it is on, which ends after it.
pub(crate) struct Link {
    pub(crate) id: Id,
    pub(crate) channel: Channel,
}

/// An address as C has it.
pub(crate) fn sockaddr(address: SocketAddr) -> [u8; 28] {
    let mut bytes = [0; 28];
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => bytes[4..8].copy_from_slice(&v4.ip().octets()),
        SocketAddr::V6(v6) => {
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// The address in what C has; that which nobody has where there is none of IP.
fn ip_of(storage: &sockaddr_storage) -> IpAddr {
    let mut bytes = [0; 28];
    for (place, word) in bytes.chunks_mut(8).zip(storage) {
        place.copy_from_slice(&word.to_ne_bytes()[..place.len()]);
    }
    let [family0, family1, _, _, a, b, c, d, v6 @ ..] = bytes;
    match i32::from(u16::from_ne_bytes([family0, family1])) {
        libc::AF_INET => Ipv4Addr::new(a, b, c, d).into(),
        libc::AF_INET6 => v6.first_chunk::<16>().map_or(Ipv6Addr::UNSPECIFIED, |it| (*it).into()).into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Takes requests for connections.
pub struct Listener {
    _id: Id,
    channel: Arc<Channel>,
}

/// A peer that wants to connect.
pub struct Request {
    id: Id,
    // What the identifier is on.
    _channel: Arc<Channel>,
    /// What it says: for RDMA-CM's own header, the library has taken it off.
    pub private_data: Vec<u8>,
}

impl Listener {
    /// Listens on an address, on every device that has it.
    ///
    /// # Errors
    /// When the libraries are not there, or the address cannot be had.
    pub fn new(address: SocketAddr, backlog: i32) -> Result<Self, Error> {
        let channel = Arc::new(Channel::new()?);
        let id = Id::new(&channel)?;
        let place = sockaddr(address);
        // SAFETY: an identifier of the library, and an address of the family that it names.
        let code = unsafe { (id.library.rdma_bind_addr)(id.raw.as_ptr(), place.as_ptr().cast::<c_void>()) };
        check("rdma_bind_addr", code)?;
        // SAFETY: an identifier that is bound.
        check("rdma_listen", unsafe { (id.library.rdma_listen)(id.raw.as_ptr(), backlog) })?;
        Ok(Self { _id: id, channel })
    }

    /// Can be read when a peer wants to connect.
    pub fn descriptor(&self) -> RawFd {
        self.channel.descriptor()
    }

    /// A peer that wants to connect, if there is one.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn request(&self) -> Result<Option<Request>, Error> {
        const CONNECT_REQUEST: u32 = 4;
        while let Some(event) = self.channel.event()? {
            // Events of connections that ended before they were accepted concern nobody.
            if event.kind != CONNECT_REQUEST {
                continue;
            }
            let Some(raw) = NonNull::new(event.id) else { continue };
            let id = Id { library: self.channel.library, raw };
            let private_data = event.private_data;
            return Ok(Some(Request { id, _channel: Arc::clone(&self.channel), private_data }));
        }
        Ok(None)
    }
}

impl Request {
    /// Refuses, with a reason that the peer can read.
    pub fn reject(self, private_data: &[u8]) {
        let length = private_data.len().min(148) as u8;
        // SAFETY: an identifier with a request, and private data of this length.
        unsafe { (self.id.library.rdma_reject)(self.id.raw.as_ptr(), private_data.as_ptr().cast(), length) };
    }

    /// Who it is.
    pub fn peer(&self) -> IpAddr {
        // SAFETY: an identifier of the library.
        ip_of(unsafe { &self.id.raw.as_ref().route.addr.dst_storage })
    }

    /// The domain of all that came in by this device: no buffer of it may be opened to peers.
    ///
    /// # Errors
    /// When the device has no more.
    pub fn domain(&self) -> Result<Arc<Domain>, Error> {
        // SAFETY: an identifier with a request has a device, which librdmacm keeps open.
        unsafe { Domain::of_servers(self.id.raw.as_ref().verbs) }
    }

    /// Makes a connection of it that can be posted to: [`Connection::accept`] has to follow.
    ///
    /// # Errors
    /// When the device has no more room.
    pub fn prepare(self, domain: &Arc<Domain>, sizes: Sizes) -> Result<Connection, Error> {
        self.made(domain, sizes, None)
    }

    /// The same, for a connection whose messages come into receives that others have as well.
    ///
    /// # Errors
    /// As [`Request::prepare`].
    pub fn prepare_shared(self, sizes: Sizes, receives: &Arc<SharedReceives>) -> Result<Connection, Error> {
        self.made(receives.domain(), sizes, Some(Arc::clone(receives)))
    }

    /// The device that it came in by: the same number for the same device.
    pub fn device(&self) -> usize {
        // SAFETY: an identifier of the library.
        unsafe { self.id.raw.as_ref() }.verbs as usize
    }

    fn made(
        self,
        domain: &Arc<Domain>,
        sizes: Sizes,
        shared: Option<Arc<SharedReceives>>,
    ) -> Result<Connection, Error> {
        let channel = Channel::new()?;
        // SAFETY: an identifier and a channel of the library.
        let code = unsafe { (self.id.library.rdma_migrate_id)(self.id.raw.as_ptr(), channel.raw.as_ptr()) };
        check("rdma_migrate_id", code)?;
        Connection::new(Link { id: self.id, channel }, domain, sizes, shared)
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("private_data", &self.private_data).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_again() {
        assert_eq!(ip_of(&[0; 16]), IpAddr::from(Ipv6Addr::UNSPECIFIED));
        for address in ["192.0.2.7:4420", "[2001:db8::7]:4420", "[fe80::1]:1"] {
            let address: SocketAddr = address.parse().unwrap();
            let mut storage = [0; 16];
            for (word, bytes) in storage.iter_mut().zip(sockaddr(address).chunks(8)) {
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_ne_bytes(whole);
            }
            assert_eq!(ip_of(&storage), address.ip());
        }
    }
}
