//! Buffers of one connection. They are used again, and only by the same host, so that nothing is ever in them
//! that it could not read as well: what it wrote or read, or what was on a disk where it wrote. How many
//! bytes are out is limited.

use std::sync::Arc;

use crate::limits::QUEUE_DATA_BYTES;
use crate::target::Request;
use rdma::{ALIGNMENT, Buffer, Domain};

/// Sizes are powers of two from one page to a transfer of the largest size, and one more.
const CLASSES: usize = 10;
/// Bytes that are kept although nothing is going on.
const KEPT: usize = QUEUE_DATA_BYTES / 4;

/// Buffers that are free, and how much is out.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<Buffer>; CLASSES],
    free_bytes: usize,
    out_bytes: usize,
    /// Where buffers have to be known to a device.
    domain: Option<Arc<Domain>>,
}

fn class_of(length: usize) -> usize {
    length.div_ceil(ALIGNMENT).next_power_of_two().trailing_zeros() as usize
}

impl Pool {
    /// A pool whose buffers a device can work on.
    pub(crate) fn registered(domain: Arc<Domain>) -> Self {
        Self { domain: Some(domain), ..Self::default() }
    }

    /// One that was not there before. Where the device takes no more memory it is not registered, and the
    /// connection ends when it is used.
    fn make(&self, size: usize) -> Buffer {
        let registered = self.domain.as_ref().and_then(|domain| Buffer::registered(domain, size).ok());
        registered.unwrap_or_else(|| Buffer::zeroed(size))
    }

    /// A buffer of at least this length. `None` when too much is out; something always comes back then.
    pub(crate) fn take(&mut self, length: usize) -> Option<Buffer> {
        let class = class_of(length);
        let size = ALIGNMENT << class;
        if self.out_bytes != 0 && self.out_bytes + size > QUEUE_DATA_BYTES {
            return None;
        }
        Some(self.take_beyond(length))
    }

    /// What a command needs before its data can move: a buffer, or the right to be lent as much. `None` when
    /// too much is out.
    pub(crate) fn provide(&mut self, request: &Request) -> Option<Option<Buffer>> {
        match request.lends() {
            true => self.lend(request.length).then_some(None),
            false => self.take(request.length).map(Some),
        }
    }

    /// So many bytes of a store are going to be lent, and count as a buffer would until
    /// [`Pool::lent_back`]. `false` when too much is out.
    fn lend(&mut self, length: usize) -> bool {
        let fits = self.out_bytes == 0 || self.out_bytes + length <= QUEUE_DATA_BYTES;
        if fits {
            self.out_bytes += length;
        }
        fits
    }

    /// So many bytes that were lent are not needed any more.
    pub(crate) fn lent_back(&mut self, length: usize) {
        self.out_bytes = self.out_bytes.saturating_sub(length);
    }

    /// The same as [`Pool::take`], for what is there already and has to go somewhere: data in capsules, whose
    /// sum has a limit of its own.
    pub(crate) fn take_beyond(&mut self, length: usize) -> Buffer {
        let class = class_of(length);
        let size = ALIGNMENT << class;
        self.out_bytes += size;
        match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => {
                self.free_bytes -= size;
                buffer
            }
            None => self.make(size),
        }
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        let size = buffer.len();
        self.out_bytes = self.out_bytes.saturating_sub(size);
        // What came from a disk in exchange need not be known to this device.
        let is_known = self.domain.as_ref().is_none_or(|domain| buffer.is_known_to(domain));
        if is_known
            && self.free_bytes + size <= QUEUE_DATA_BYTES
            && let Some(class) = self.free.get_mut(class_of(size))
        {
            self.free_bytes += size;
            class.push(buffer);
        }
    }

    /// Nothing is going on: lets go of what is more than a little. Not of what a device knows, since
    /// registering costs more than memory does.
    pub(crate) fn rest(&mut self) {
        if self.out_bytes != 0 || self.domain.is_some() {
            return;
        }
        for class in self.free.iter_mut().rev() {
            while self.free_bytes > KEPT
                && let Some(buffer) = class.pop()
            {
                self.free_bytes -= buffer.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TRANSFER_BYTES_MAX;

    #[test]
    fn no_more_than_the_limit_is_out() {
        let mut pool = Pool::default();
        let out: Vec<_> = std::iter::from_fn(|| pool.take(TRANSFER_BYTES_MAX)).collect();
        assert_eq!(out.len(), QUEUE_DATA_BYTES / TRANSFER_BYTES_MAX);
        assert!(pool.take(1).is_none());
        out.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!((pool.out_bytes, pool.free_bytes), (0, QUEUE_DATA_BYTES));
        pool.rest();
        assert_eq!(pool.free_bytes, KEPT);
        assert_eq!(pool.take(5000).unwrap().len(), 8192);
    }
}
