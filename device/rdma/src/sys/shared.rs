//! Receives shared by all connections of a device, so that memory grows with the messages in flight and not
//! with the number of connections.

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abi::{ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use buffer::Buffer;
use slab::Slab;

use super::domain::Domain;
use super::library::failed;
use crate::Error;

/// Marks work request IDs of shared receives; those of connections are indices of a table, and smaller.
const SHARED: u64 = 1 << 63;

/// A shared receive queue. Any connection's message may arrive in any of its buffers.
pub struct SharedReceives {
    raw: NonNull<ibv_srq>,
    domain: Arc<Domain>,
    /// Posted buffers, each with its token.
    buffers: Mutex<Slab<(u64, Buffer)>>,
    size: u32,
}

// SAFETY: as for domains.
unsafe impl Send for SharedReceives {}
// SAFETY: as for domains; the table has a lock.
unsafe impl Sync for SharedReceives {}

impl SharedReceives {
    /// Creates an empty queue of `size` receives on the device of a domain.
    ///
    /// # Errors
    /// When the device has no room for it.
    pub fn new(domain: Arc<Domain>, size: u32) -> Result<Arc<Self>, Error> {
        let attr = ibv_srq_attr {
            max_wr: size,
            max_sge: 1,
            srq_limit: 0,
        };
        let mut init = ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr,
        };
        // SAFETY: a domain that lives as long as this, and attributes that are read now.
        let raw = unsafe { (domain.library.ibv_create_srq)(domain.raw.as_ptr(), &mut init) };
        let raw = NonNull::new(raw).ok_or_else(|| failed("ibv_create_srq"))?;
        Ok(Arc::new(Self {
            raw,
            domain,
            buffers: Mutex::new(Slab::new()),
            size,
        }))
    }

    /// The protection domain of its buffers, and of the connections that use it.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Receives that can be posted at most.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Receives that can be posted now.
    pub fn room(&self) -> usize {
        (self.size as usize).saturating_sub(self.lock().len())
    }

    pub(crate) fn raw(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }

    fn lock(&self) -> MutexGuard<'_, Slab<(u64, Buffer)>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a receive, for a message of any connection.
    ///
    /// # Errors
    /// The buffer with the reason, when the queue is full or the device was removed.
    pub fn receive(&self, buffer: Buffer, token: u64) -> Result<(), (Error, Buffer)> {
        let mut buffers = self.lock();
        if buffers.len() >= self.size as usize {
            return Err((Error::Full, buffer));
        }
        let Some(lkey) = self.domain.key(&buffer) else {
            return Err((Error::Disconnected, buffer));
        };
        let mut sge = ibv_sge {
            addr: buffer.as_ptr() as u64,
            length: buffer.len() as u32,
            lkey,
        };
        let slot = buffers.insert((token, buffer));
        let wr_id = SHARED | slot as u64;
        let mut request = ibv_recv_wr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: &mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue's own table of functions; the buffer is kept in its slot until completion, or
        // until
        // the queue is destroyed. Its address does not change when the table grows.
        let code: c_int = unsafe {
            let queue = self.raw.as_ptr();
            (*(*queue).context)
                .ops
                .post_srq_recv
                .map_or(-1, |post| post(queue, &mut request, &mut bad))
        };
        if code == 0 {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(code);
        let (_, buffer) = buffers.remove(slot);
        Err((
            Error::Call {
                call: "ibv_post_srq_recv",
                source,
            },
            buffer,
        ))
    }

    /// The token and buffer of a work request ID, if it is a shared receive's.
    pub(crate) fn take(&self, wr_id: u64) -> Option<(u64, Buffer)> {
        if wr_id & SHARED == 0 {
            return None;
        }
        self.lock().try_remove((wr_id & !SHARED) as usize)
    }
}

impl fmt::Debug for SharedReceives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceives")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        // SAFETY: connections that use it hold an Arc of it, and are gone. The device then uses none of the
        // buffers.
        unsafe { (self.domain.library.ibv_destroy_srq)(self.raw.as_ptr()) };
    }
}
