//! Event channels and communication identifiers.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use abi::{RDMA_PS_TCP, rdma_cm_event, rdma_cm_id, rdma_event_channel};

use super::library::{Library, check_call, failed, library, set_nonblocking};
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
                _ => Err(Error::Call {
                    call: "rdma_get_cm_event",
                    source: error,
                }),
            };
        }
        // SAFETY: the library returned an event; its private data is valid until it is acknowledged. All
        // identifiers here are of connections, whose events have `conn` in the union.
        let event = unsafe {
            let param = (*raw).param.conn;
            let has_data = !param.private_data.is_null() && param.private_data_len != 0;
            let private_data = match has_data {
                true => std::slice::from_raw_parts(
                    param.private_data.cast(),
                    param.private_data_len.into(),
                ),
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

// SAFETY: an identifier may be used from any thread (rdma_cm(7)).
unsafe impl Send for Id {}

impl Id {
    pub(crate) fn new(channel: &Channel) -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        let (library, place) = (channel.library, &mut raw);
        // SAFETY: a channel of the library, and a place for the identifier.
        let code = unsafe {
            (library.rdma_create_id)(channel.raw.as_ptr(), place, ptr::null_mut(), RDMA_PS_TCP)
        };
        check_call("rdma_create_id", code)?;
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
