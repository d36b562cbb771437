//! Registered data buffers of connections, limited for all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use buffer::Buffer;
use rdma::{Domain, Error};
use server::UnauthenticatedShare;

/// Free buffers that a connection keeps, in bytes: registering memory costs more than keeping it.
const KEPT_BYTES: usize = 16 << 20;
/// The same of a connection whose client is not authenticated, while half of the memory of these is used.
const UNAUTHENTICATED_KEPT_BYTES: usize = 1 << 20;
/// The longest buffer for which another unauthenticated connection may have to end. Longer ones, and more
/// than one, wait until there is room.
const DISPLACING_BYTES_MAX: usize = 2 << 20;

/// The memory of all connections.
#[derive(Debug)]
pub struct Memory {
    used: AtomicUsize,
    limit: usize,
}

/// The buffers of one connection.
#[derive(Debug)]
pub struct Share {
    memory: Arc<Memory>,
    domain: Arc<Domain>,
    /// What an unauthenticated client holds: buffers are charged to it too.
    unauthenticated: Option<Arc<UnauthenticatedShare>>,
    /// Bytes of buffers in use and kept.
    own: usize,
    in_use: usize,
    /// Free buffers, by [`Access`].
    kept: [Vec<Buffer>; 3],
}

/// How the peer gets access to a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It does not.
    None,
    /// By the key of the memory region, as long as the buffer lives.
    Region,
    /// By the key of a memory window, which the peer invalidates.
    Window,
}

impl Memory {
    /// Memory of at most `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit,
        })
    }

    /// Bytes of all buffers, in use and kept.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The share of a connection, whose client is not authenticated if there is something to charge.
    pub fn share(
        self: &Arc<Self>,
        domain: Arc<Domain>,
        unauthenticated: Option<Arc<UnauthenticatedShare>>,
    ) -> Share {
        let (memory, kept) = (Arc::clone(self), Default::default());
        Share {
            memory,
            domain,
            unauthenticated,
            own: 0,
            in_use: 0,
            kept,
        }
    }
}

/// Buffers have one of a few lengths, so that a kept one fits: powers of two, and between two of them eight
/// steps. A mebibyte of data behind the head of a message takes an eighth more, and not twice as much.
fn class(length: usize) -> usize {
    let length = length.max(buffer::ALIGNMENT);
    let step = (length.next_power_of_two() / 16).max(buffer::ALIGNMENT);
    length.next_multiple_of(step)
}

impl Share {
    /// The client is authenticated: its buffers are charged to the memory of all connections only.
    pub fn trust(&mut self) {
        self.unauthenticated = None;
    }

    /// A registered buffer; `None` when a limit is reached.
    ///
    /// # Errors
    /// When the device registers no more memory, or has no memory windows.
    pub fn take(&mut self, length: usize, access: Access) -> Result<Option<Buffer>, Error> {
        if !self.has_room(class(length), access) {
            return Ok(None);
        }
        self.take_beyond(length, access)
    }

    /// A registered buffer, whether the limit of all connections is reached or not; `None` when that of
    /// unauthenticated clients is.
    ///
    /// # Errors
    /// As [`Share::take`].
    pub fn take_beyond(&mut self, length: usize, access: Access) -> Result<Option<Buffer>, Error> {
        let length = class(length);
        let kept = &mut self.kept[access as usize];
        // The one that was returned last: its bytes are still in the processor's cache.
        let place = kept.iter().rposition(|buffer| buffer.len() == length);
        let buffer = match place {
            Some(place) => kept.remove(place),
            None if !self.charge(length) => return Ok(None),
            None => match self.registered(length, access) {
                Ok(buffer) => self.made(buffer),
                Err(error) => {
                    self.discharge(length);
                    return Err(error);
                }
            },
        };
        self.in_use += buffer.len();
        Ok(Some(buffer))
    }

    fn registered(&self, length: usize, access: Access) -> Result<Buffer, Error> {
        match access {
            Access::None => self.domain.registered(length),
            Access::Region => self.domain.open(length),
            Access::Window => self.domain.windowed(length),
        }
    }

    fn has_room(&self, length: usize, access: Access) -> bool {
        // The first buffer is admitted although the limit is reached, so that each connection makes progress.
        self.in_use == 0
            || self.kept[access as usize]
                .iter()
                .any(|buffer| buffer.len() == length)
            || self.memory.used() + length <= self.memory.limit
    }

    /// Charges a new buffer to an unauthenticated client; returns whether that is possible. Kept buffers of
    /// other lengths give way.
    fn charge(&mut self, bytes: usize) -> bool {
        let Some(memory) = self.unauthenticated.clone() else {
            return true;
        };
        if !memory.has_room(bytes) {
            self.release_idle();
        }
        // The first buffer displaces others if necessary, so that few connections cannot stop all transfers.
        let may_displace = self.in_use == 0 && bytes <= DISPLACING_BYTES_MAX;
        (may_displace || memory.has_room(bytes)) && memory.grow(bytes)
    }

    fn discharge(&self, bytes: usize) {
        if let Some(memory) = &self.unauthenticated {
            memory.shrink(bytes);
        }
    }

    fn made(&mut self, buffer: Buffer) -> Buffer {
        self.own += buffer.len();
        self.memory.used.fetch_add(buffer.len(), Ordering::Relaxed);
        buffer
    }

    /// Takes a buffer back. The peer must have invalidated the key of a window's.
    pub fn give(&mut self, buffer: Buffer, access: Access) {
        self.in_use = self.in_use.saturating_sub(buffer.len());
        let is_scarce = self
            .unauthenticated
            .as_ref()
            .is_some_and(|memory| !memory.leaves_half(0));
        let limit = if is_scarce {
            UNAUTHENTICATED_KEPT_BYTES
        } else {
            KEPT_BYTES
        };
        let is_kept = self.own - self.in_use <= limit && self.memory.used() <= self.memory.limit;
        if is_kept {
            self.kept[access as usize].push(buffer)
        } else {
            self.free(buffer.len())
        }
    }

    /// Takes a buffer back and frees it, so that the peer's access ends.
    pub fn discard(&mut self, buffer: Buffer) {
        self.in_use = self.in_use.saturating_sub(buffer.len());
        self.free(buffer.len());
    }

    fn free(&mut self, bytes: usize) {
        self.discharge(bytes);
        self.own -= bytes;
        self.memory.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Frees all buffers that are not in use.
    pub fn release_idle(&mut self) {
        for buffer in std::mem::take(&mut self.kept).into_iter().flatten() {
            self.free(buffer.len());
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.discharge(self.own);
        self.memory.used.fetch_sub(self.own, Ordering::Relaxed);
    }
}
