//! Buffers of one connection. They are used again, and only by the same host, so that nothing of another
//! host's data is ever in them; how many bytes are out is limited.

use crate::limits::QUEUE_DATA_BYTES;
use crate::sys::buffer::{ALIGNMENT, Buffer};

/// Sizes are powers of two from one page to a transfer of the largest size, and one more.
const CLASSES: usize = 10;
/// Bytes that are kept although nobody uses them.
const KEPT: usize = QUEUE_DATA_BYTES / 4;

/// Buffers that are free, and how much is out.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<Buffer>; CLASSES],
    free_bytes: usize,
    out_bytes: usize,
}

fn class_of(length: usize) -> usize {
    length.div_ceil(ALIGNMENT).next_power_of_two().trailing_zeros() as usize
}

impl Pool {
    /// A buffer of at least this length. `None` when too much is out; something always comes back then.
    pub(crate) fn take(&mut self, length: usize) -> Option<Buffer> {
        let class = class_of(length);
        let size = ALIGNMENT << class;
        if self.out_bytes != 0 && self.out_bytes + size > QUEUE_DATA_BYTES {
            return None;
        }
        Some(self.take_beyond(length))
    }

    /// The same, for what is there already and has to go somewhere: data in capsules, whose sum has a limit
    /// of
    /// its own.
    pub(crate) fn take_beyond(&mut self, length: usize) -> Buffer {
        let class = class_of(length);
        let size = ALIGNMENT << class;
        self.out_bytes += size;
        match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => {
                self.free_bytes -= size;
                buffer
            }
            None => Buffer::zeroed(size),
        }
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        let size = buffer.len();
        self.out_bytes = self.out_bytes.saturating_sub(size);
        if self.free_bytes + size <= KEPT
            && let Some(class) = self.free.get_mut(class_of(size))
        {
            self.free_bytes += size;
            class.push(buffer);
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
        assert_eq!((pool.out_bytes, pool.free_bytes), (0, KEPT));
        assert_eq!(pool.take(5000).unwrap().len(), 8192);
    }
}
