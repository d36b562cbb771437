//! Establishing a connection with the connection manager, and its end.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abi::rdma_conn_param;

use super::{Connection, Sizes};
use crate::Error;
use crate::sys::address::sockaddr;
use crate::sys::channel::{Channel, Event, Id, Link};
use crate::sys::domain::Domain;
use crate::sys::library::check_call;

/// Time-out in seconds of each step of connection establishment.
const STEP_SECONDS: u64 = 10;
/// Time-out in seconds of address resolution: less, so that the connection manager reports it.
const RESOLVE_SECONDS: u64 = 5;
/// Responder resources of a connection: READs of the peer that are served at once.
const RESPONDER_RESOURCES: u8 = 16;

/// Event types (`enum rdma_cm_event_type`, rdma_get_cm_event(3)).
mod event {
    pub(super) const ADDR_RESOLVED: u32 = 0;
    pub(super) const ROUTE_RESOLVED: u32 = 2;
    pub(super) const REJECTED: u32 = 8;
    pub(super) const ESTABLISHED: u32 = 9;
    pub(super) const DISCONNECTED: u32 = 10;
    pub(super) const TIMEWAIT_EXIT: u32 = 15;
}

impl Connection {
    /// Connects to a peer, and returns the private data of its REP. `prepare` is called when receives can be
    /// posted, which has to happen before the connection is established.
    ///
    /// # Errors
    /// When no device has a route to the peer, or the peer rejects or does not answer.
    pub fn connect(
        to: SocketAddr,
        sizes: Sizes,
        private_data: &[u8],
        prepare: impl FnOnce(&mut Self, &Arc<Domain>) -> Result<(), Error>,
    ) -> Result<(Self, Vec<u8>), Error> {
        let channel = Arc::new(Channel::new()?);
        let id = Id::new(&channel)?;
        let library = id.library;
        let address = sockaddr(to);
        let timeout_ms = (RESOLVE_SECONDS * 1000) as c_int;
        let place = address.as_ptr().cast::<c_void>();
        // SAFETY: an identifier of the library, and an address of the family that it names.
        let code =
            unsafe { (library.rdma_resolve_addr)(id.raw.as_ptr(), ptr::null(), place, timeout_ms) };
        check_call("rdma_resolve_addr", code)?;
        wait_for(&channel, event::ADDR_RESOLVED).map_err(|error| match error {
            Error::Event { status, .. } if status == -libc::ETIMEDOUT => Error::NoNeighbour(to),
            Error::Event { .. } => Error::NoRoute(to),
            error => error,
        })?;
        // SAFETY: an identifier whose address is resolved.
        check_call("rdma_resolve_route", unsafe {
            (library.rdma_resolve_route)(id.raw.as_ptr(), timeout_ms)
        })?;
        wait_for(&channel, event::ROUTE_RESOLVED)?;
        // SAFETY: an identifier whose address is resolved has a device, which librdmacm keeps open.
        let domain = unsafe { Domain::new(id.raw.as_ref().verbs) }?;
        let mut connection = Self::new(Link { id, channel }, &domain, sizes, None)?;
        prepare(&mut connection, &domain)?;
        connection.flush()?;
        let param = parameters(private_data, sizes);
        // SAFETY: an identifier with a route and a queue pair; the private data live until the call returns.
        let code = unsafe { (library.rdma_connect)(connection.link.id.raw.as_ptr(), &param) };
        check_call("rdma_connect", code)?;
        let answer = wait_for(&connection.link.channel, event::ESTABLISHED)?;
        connection.established = true;
        connection.sizes.reads = sizes.reads.min(answer.initiator_depth);
        Ok((connection, answer.private_data))
    }

    /// Accepts the peer's request by sending a REP.
    pub(in crate::sys) fn accept(&mut self, private_data: &[u8]) -> Result<(), Error> {
        self.flush()?;
        let param = parameters(private_data, self.sizes);
        // SAFETY: an identifier with a request and a queue pair; the private data live until the call
        // returns.
        check_call("rdma_accept", unsafe {
            (self.link.id.library.rdma_accept)(self.link.id.raw.as_ptr(), &param)
        })
    }

    /// Moves the identifier, and its queued events, to an event channel of its own.
    pub(in crate::sys) fn migrate(&mut self) -> Result<(), Error> {
        let channel = Channel::new()?;
        let raw = self.link.id.raw.as_ptr();
        // SAFETY: an identifier and a channel of the library.
        check_call("rdma_migrate_id", unsafe {
            (self.link.id.library.rdma_migrate_id)(raw, channel.raw.as_ptr())
        })?;
        self.link.channel = Arc::new(channel);
        self.established = true;
        Ok(())
    }

    /// Reads connection manager events, to find out whether the connection has ended.
    ///
    /// # Errors
    /// [`Error::Disconnected`] when it has disconnected, [`Error::Event`] when the connection has failed.
    pub fn check_events(&mut self) -> Result<(), Error> {
        while let Some(event) = self.link.channel.event()? {
            match event.kind {
                event::ESTABLISHED => self.established = true,
                kind if event.status != 0 => {
                    self.ended = true;
                    self.failure.get_or_insert((kind, event.status));
                }
                event::DISCONNECTED | event::TIMEWAIT_EXIT => self.ended = true,
                _ => {}
            }
        }
        match (self.ended, self.failure) {
            (false, _) => Ok(()),
            (true, None) => Err(Error::Disconnected),
            (true, Some((event, status))) => Err(Error::Event { event, status }),
        }
    }

    /// Disconnects: outstanding requests complete with an error.
    pub fn disconnect(&mut self) {
        if !self.ended {
            // SAFETY: an identifier with a queue pair; one that is not connected returns an error.
            unsafe { (self.link.id.library.rdma_disconnect)(self.link.id.raw.as_ptr()) };
        }
    }
}

/// Connection parameters of both sides.
fn parameters(private_data: &[u8], sizes: Sizes) -> rdma_conn_param {
    rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: private_data.len().min(56) as u8,
        responder_resources: RESPONDER_RESOURCES,
        initiator_depth: sizes.reads,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: sizes.rnr_retry.min(7),
        srq: 0,
        qp_num: 0,
    }
}

fn wait_for(channel: &Channel, wanted: u32) -> Result<Event, Error> {
    let deadline = Instant::now() + Duration::from_secs(STEP_SECONDS);
    loop {
        if let Some(found) = channel.event()? {
            return match found.kind {
                kind if kind == wanted && found.status == 0 => Ok(found),
                event::REJECTED => Err(Error::Rejected {
                    reason: found.status,
                    private_data: found.private_data,
                }),
                event => Err(Error::Event {
                    event,
                    status: found.status,
                }),
            };
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Silence {
                seconds: STEP_SECONDS,
            });
        }
        let mut poll = libc::pollfd {
            fd: channel.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor that is open.
        unsafe { libc::poll(&mut poll, 1, left.as_millis() as c_int + 1) };
    }
}
