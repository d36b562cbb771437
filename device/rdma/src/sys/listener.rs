//! Listeners, connection requests and half-open connections.

use std::ffi::c_void;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use buffer::Buffer;

use super::address::{ip_of, sockaddr};
use super::channel::{Channel, Id, Link};
use super::connection::{Connection, Sizes};
use super::domain::Domain;
use super::library::check_call;
use super::shared::SharedReceives;
use crate::Error;

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
        let code = unsafe {
            (id.library.rdma_bind_addr)(id.raw.as_ptr(), place.as_ptr().cast::<c_void>())
        };
        check_call("rdma_bind_addr", code)?;
        // SAFETY: an identifier that is bound.
        check_call("rdma_listen", unsafe {
            (id.library.rdma_listen)(id.raw.as_ptr(), backlog)
        })?;
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
            let Some(raw) = NonNull::new(event.id) else {
                continue;
            };
            let key = raw.as_ptr() as usize;
            match event.kind {
                CONNECT_REQUEST => {
                    let id = Id {
                        library: self.channel.library,
                        raw,
                    };
                    let (channel, private_data) = (Arc::clone(&self.channel), event.private_data);
                    let request = Request {
                        id,
                        channel,
                        private_data,
                        reads: event.initiator_depth,
                    };
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
        unsafe {
            (self.id.library.rdma_reject)(
                self.id.raw.as_ptr(),
                private_data.as_ptr().cast(),
                length,
            )
        };
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
    pub fn prepare_shared(
        self,
        sizes: Sizes,
        receives: &Arc<SharedReceives>,
    ) -> Result<HalfOpen, Error> {
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
        let link = Link {
            id: self.id,
            channel: self.channel,
        };
        let sizes = Sizes {
            reads: sizes.reads.min(self.reads),
            ..sizes
        };
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
        f.debug_struct("Request")
            .field("private_data", &self.private_data)
            .finish_non_exhaustive()
    }
}
