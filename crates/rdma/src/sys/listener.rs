//! Event channels, communication identifiers, and listeners.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use abi::{RDMA_PS_TCP, rdma_cm_event, rdma_cm_id, rdma_event_channel, sockaddr_storage};
use buffer::Buffer;

use super::connection::{Connection, Sizes};
use super::domain::Domain;
use super::library::{Library, check, failed, library, set_nonblocking};
use super::shared::SharedReceives;
use crate::Error;

/// An event channel.
pub(crate) struct Channel {
    pub(crate) library: &'static Library,
    pub(crate) raw: NonNull<rdma_event_channel>,
}

// SAFETY: librdmacm's objects may be used from any thread (rdma_cm(7)).
unsafe impl Send for Channel {}
// SAFETY: librdmacm's functions lock what they share (rdma_cm(7)).
unsafe impl Sync for Channel {}

/// An event, acknowledged already.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) private_data: Vec<u8>,
    /// READs that this side may have outstanding, in the events CONNECT_REQUEST and ESTABLISHED.
    pub(crate) initiator_depth: u8,
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

    /// The next event, if one is queued.
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
        // SAFETY: the library returned an event; its private data is valid until it is acknowledged. All
        // identifiers here are of connections, whose events have `conn` in the union.
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
                initiator_depth: param.initiator_depth,
            }
        };
        // SAFETY: an event that was not acknowledged before.
        unsafe { (self.library.rdma_ack_cm_event)(raw) };
        Ok(Some(event))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: identifiers on it are destroyed first: they are declared before it.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw.as_ptr()) }
    }
}

/// A communication identifier, destroyed when it is dropped.
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

    /// Identifies the identifier in the events of its channel.
    pub(crate) fn key(&self) -> usize {
        self.raw.as_ptr() as usize
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: an identifier of the library whose queue pair, if it had one, is destroyed.
        unsafe { (self.library.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

/// An identifier and its channel, which outlives it.
pub(crate) struct Link {
    pub(crate) id: Id,
    pub(crate) channel: Arc<Channel>,
}

/// An IP address as C's bytes.
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

/// The IP address in C's bytes; the unspecified address for another family.
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

/// Listens for connection requests.
pub struct Listener {
    _id: Id,
    channel: Arc<Channel>,
}

/// An event of a listener.
#[derive(Debug)]
pub enum ListenerEvent {
    /// A peer requests a connection.
    Request(Request),
    /// The peer of the half-open connection with this key has confirmed it (RTU).
    Established(usize),
    /// The half-open connection with this key has failed: the peer rejected it, or did not confirm it in
    /// time.
    Failed(usize),
}

/// A connection request of a peer.
pub struct Request {
    id: Id,
    // The listener's channel, which the identifier uses.
    channel: Arc<Channel>,
    /// Private data of the REQ, without the RDMA-CM header.
    pub private_data: Vec<u8>,
    /// READs that the peer serves at once (its responder resources): the limit of [`Sizes::reads`].
    pub reads: u8,
}

impl Listener {
    /// Listens on an address, on every device that has it.
    ///
    /// # Errors
    /// When a library cannot be loaded, or the address cannot be bound.
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

    /// The descriptor, readable when an event is queued.
    pub fn descriptor(&self) -> RawFd {
        self.channel.descriptor()
    }

    /// The next event, if one is queued.
    ///
    /// # Errors
    /// When the device was removed.
    pub fn next_event(&self) -> Result<Option<ListenerEvent>, Error> {
        const CONNECT_REQUEST: u32 = 4;
        const CONNECT_ERROR: u32 = 6;
        const UNREACHABLE: u32 = 7;
        const REJECTED: u32 = 8;
        const ESTABLISHED: u32 = 9;
        const DISCONNECTED: u32 = 10;
        const DEVICE_REMOVAL: u32 = 11;
        while let Some(event) = self.channel.event()? {
            let Some(raw) = NonNull::new(event.id) else { continue };
            let key = raw.as_ptr() as usize;
            match event.kind {
                CONNECT_REQUEST => {
                    let id = Id { library: self.channel.library, raw };
                    let (channel, private_data) = (Arc::clone(&self.channel), event.private_data);
                    let request = Request { id, channel, private_data, reads: event.initiator_depth };
                    return Ok(Some(ListenerEvent::Request(request)));
                }
                ESTABLISHED => return Ok(Some(ListenerEvent::Established(key))),
                CONNECT_ERROR | UNREACHABLE | REJECTED | DISCONNECTED | DEVICE_REMOVAL => {
                    return Ok(Some(ListenerEvent::Failed(key)));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// An accepted connection whose peer has not confirmed it yet by an RTU, so that the source address may be
/// spoofed. The listener gets its events.
#[derive(Debug)]
pub struct HalfOpen(Connection);

impl HalfOpen {
    /// Identifies it in [`ListenerEvent`].
    pub fn key(&self) -> usize {
        self.0.key()
    }

    /// The protection domain of its buffers.
    pub fn domain(&self) -> &Arc<Domain> {
        self.0.domain()
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive(&mut self, buffer: Buffer, token: u64) -> Result<(), (Error, Buffer)> {
        self.0.receive(buffer, token)
    }

    /// Accepts the peer's request by sending a REP.
    ///
    /// # Errors
    /// When the peer or the device is gone.
    pub fn accept(&mut self, private_data: &[u8]) -> Result<(), Error> {
        self.0.accept(private_data)
    }

    /// The established connection, with an event channel of its own.
    ///
    /// # Errors
    /// When no event channel can be created.
    pub fn establish(mut self) -> Result<Connection, Error> {
        self.0.migrate()?;
        Ok(self.0)
    }
}

impl Request {
    /// Rejects the request, with private data for the peer.
    pub fn reject(self, private_data: &[u8]) {
        let length = private_data.len().min(148) as u8;
        // SAFETY: an identifier with a request, and private data of this length.
        unsafe { (self.id.library.rdma_reject)(self.id.raw.as_ptr(), private_data.as_ptr().cast(), length) };
    }

    /// Address of the peer, as its request states it.
    pub fn peer(&self) -> IpAddr {
        // SAFETY: an identifier of the library.
        ip_of(unsafe { &self.id.raw.as_ref().route.addr.dst_storage })
    }

    /// The domain that all accepted connections of the device share: its buffers may not be opened to peers.
    ///
    /// # Errors
    /// When the device has no room for it.
    pub fn domain(&self) -> Result<Arc<Domain>, Error> {
        // SAFETY: an identifier with a request has a device, which librdmacm keeps open.
        unsafe { Domain::shared_by_accepted(self.id.raw.as_ref().verbs) }
    }

    /// A domain of this connection alone: its buffers may be opened to the peer.
    ///
    /// # Errors
    /// As [`Request::domain`].
    pub fn own_domain(&self) -> Result<Arc<Domain>, Error> {
        // SAFETY: an identifier with a request has a device, and librdmacm does not close it.
        unsafe { Domain::new(self.id.raw.as_ref().verbs) }
    }

    /// Creates the queue pair, so that receives can be posted before [`HalfOpen::accept`].
    ///
    /// # Errors
    /// When the device has no room for it.
    pub fn prepare(self, domain: &Arc<Domain>, sizes: Sizes) -> Result<HalfOpen, Error> {
        self.made(domain, sizes, None)
    }

    /// Creates the queue pair, with shared receives.
    ///
    /// # Errors
    /// As [`Request::prepare`].
    pub fn prepare_shared(self, sizes: Sizes, receives: &Arc<SharedReceives>) -> Result<HalfOpen, Error> {
        self.made(receives.domain(), sizes, Some(Arc::clone(receives)))
    }

    /// Number of the device that received the request.
    pub fn device(&self) -> usize {
        // SAFETY: an identifier of the library.
        unsafe { self.id.raw.as_ref() }.verbs as usize
    }

    fn made(
        self,
        domain: &Arc<Domain>,
        sizes: Sizes,
        shared: Option<Arc<SharedReceives>>,
    ) -> Result<HalfOpen, Error> {
        let link = Link { id: self.id, channel: self.channel };
        let sizes = Sizes { reads: sizes.reads.min(self.reads), ..sizes };
        Connection::new(link, domain, sizes, shared).map(HalfOpen)
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
    fn socket_addresses_round_trip() {
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
