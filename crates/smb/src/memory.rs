//! Registered data buffers of connections, limited for all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use buffer::Buffer;
use rdma::{Domain, Error};

/// Free buffers that a connection keeps, in bytes: registering memory costs more than keeping it.
const KEPT_BYTES: usize = 16 << 20;

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
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    /// Bytes of all buffers, in use and kept.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The share of a connection.
    pub fn share(self: &Arc<Self>, domain: Arc<Domain>) -> Share {
        Share { memory: Arc::clone(self), domain, own: 0, in_use: 0, kept: Default::default() }
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
    /// A registered buffer; `None` when the limit is reached.
    ///
    /// # Errors
    /// When the device registers no more memory, or has no memory windows.
    pub fn take(&mut self, length: usize, access: Access) -> Result<Option<Buffer>, Error> {
        if !self.has_room(class(length), access) {
            return Ok(None);
        }
        self.take_beyond(length, access).map(Some)
    }

    /// A registered buffer, whether the limit is reached or not.
    ///
    /// # Errors
    /// As [`Share::take`].
    pub fn take_beyond(&mut self, length: usize, access: Access) -> Result<Buffer, Error> {
        let length = class(length);
        let kept = &mut self.kept[access as usize];
        // The one that was returned last: its bytes are still in the processor's cache.
        let place = kept.iter().rposition(|buffer| buffer.len() == length);
        let buffer = match (place, access) {
            (Some(place), _) => kept.remove(place),
            (None, Access::None) => self.made(self.domain.registered(length)?),
            (None, Access::Region) => self.made(self.domain.open(length)?),
            (None, Access::Window) => self.made(self.domain.windowed(length)?),
        };
        self.in_use += buffer.len();
        Ok(buffer)
    }

    fn has_room(&mut self, length: usize, access: Access) -> bool {
        // The first buffer is admitted although the limit is reached, so that each connection makes progress.
        self.in_use == 0
            || self.kept[access as usize].iter().any(|buffer| buffer.len() == length)
            || self.memory.used() + length <= self.memory.limit
    }

    fn made(&mut self, buffer: Buffer) -> Buffer {
        self.own += buffer.len();
        self.memory.used.fetch_add(buffer.len(), Ordering::Relaxed);
        buffer
    }

    /// Takes a buffer back. The peer must have invalidated the key of a window's.
    pub fn give(&mut self, buffer: Buffer, access: Access) {
        self.in_use = self.in_use.saturating_sub(buffer.len());
        let is_kept = self.own - self.in_use <= KEPT_BYTES && self.memory.used() <= self.memory.limit;
        if is_kept { self.kept[access as usize].push(buffer) } else { self.free(buffer.len()) }
    }

    /// Takes a buffer back and frees it, so that the peer's access ends.
    pub fn discard(&mut self, buffer: Buffer) {
        self.in_use = self.in_use.saturating_sub(buffer.len());
        self.free(buffer.len());
    }

    fn free(&mut self, bytes: usize) {
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
        self.memory.used.fetch_sub(self.own, Ordering::Relaxed);
    }
}
