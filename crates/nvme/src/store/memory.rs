//! A disk in memory. It takes room where it was written, as a sparse file does.

use std::io;
use std::sync::{PoisonError, RwLock};

use crate::limits::MEMORY_BYTES_MAX;

/// What is allocated at once, and locked at once: large enough that a table of them is small, and that a
/// write
/// seldom crosses from one to the next.
const CHUNK: usize = 256 << 10;

type Chunk = RwLock<Option<Box<[u8]>>>;

/// Chunks of memory, those absent read as zeros.
#[derive(Debug)]
pub struct Memory {
    // Locked for writing only to resize.
    chunks: RwLock<Vec<Chunk>>,
}

/// The part of a range that lies in one chunk.
struct Part {
    chunk: usize,
    within: std::ops::Range<usize>,
    /// Of the range.
    of: std::ops::Range<usize>,
}

fn parts(offset: u64, length: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let (chunk, start) = ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize);
        let take = (length - done).min(CHUNK - start);
        let part = Part { chunk, within: start..start + take, of: done..done + take };
        done += take;
        (take > 0).then_some(part)
    })
}

impl Memory {
    /// So many zeros.
    ///
    /// # Errors
    /// When it is more than the limit.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let memory = Self { chunks: RwLock::default() };
        memory.resize(bytes)?;
        Ok(memory)
    }

    pub(super) fn resize(&self, bytes: u64) -> io::Result<()> {
        if bytes > MEMORY_BYTES_MAX {
            let text = format!("a memory namespace has at most {MEMORY_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let count = bytes.div_ceil(CHUNK as u64) as usize;
        self.chunks.write().unwrap_or_else(PoisonError::into_inner).resize_with(count, Chunk::default);
        Ok(())
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for part in parts(offset, data.len()) {
            let chunk =
                chunks.get(part.chunk).map(|chunk| chunk.read().unwrap_or_else(PoisonError::into_inner));
            match chunk.as_deref() {
                Some(Some(bytes)) => data[part.of].copy_from_slice(&bytes[part.within]),
                _ => data[part.of].fill(0),
            }
        }
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for part in parts(offset, data.len()) {
            let Some(chunk) = chunks.get(part.chunk) else { continue };
            let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
            let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice());
            bytes[part.within].copy_from_slice(&data[part.of]);
        }
    }

    /// Whole chunks are given back.
    pub(super) fn clear(&self, offset: u64, length: u64) {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let (first, end) = (offset / CHUNK as u64, (offset + length).div_ceil(CHUNK as u64));
        for index in first..end {
            let Some(chunk) = chunks.get(index as usize) else { return };
            let start = index * CHUNK as u64;
            let from = offset.saturating_sub(start) as usize;
            let to = (offset + length - start).min(CHUNK as u64) as usize;
            let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
            match chunk.as_mut() {
                Some(_) if (from, to) == (0, CHUNK) => *chunk = None,
                Some(bytes) => bytes[from..to].fill(0),
                None => {}
            }
        }
    }

    #[cfg(test)]
    fn allocated(&self) -> usize {
        let chunks = self.chunks.read().unwrap();
        chunks.iter().filter(|chunk| chunk.read().unwrap().is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cross_chunks_and_zeros_take_no_room() {
        let memory = Memory::new(4 * CHUNK as u64).unwrap();
        let data: Vec<u8> = (0..2 * CHUNK + 100).map(|index| index as u8 | 1).collect();
        let offset = CHUNK as u64 - 50;
        memory.write(offset, &data);
        let mut back = vec![0; data.len()];
        memory.read(offset, &mut back);
        assert!(back == data);
        assert_eq!(memory.allocated(), 4);
        memory.clear(offset, 10);
        memory.clear(CHUNK as u64, 2 * CHUNK as u64 + 5);
        assert_eq!(memory.allocated(), 2);
        memory.read(offset, &mut back);
        assert_eq!(back[..10], [0; 10]);
        assert_eq!(back[10..50], data[10..50]);
        assert!(back[50..2 * CHUNK + 55].iter().all(|byte| *byte == 0));
        assert_eq!(back[2 * CHUNK + 55..], data[2 * CHUNK + 55..]);
    }

    #[test]
    fn what_grows_back_is_zero() {
        let memory = Memory::new(CHUNK as u64).unwrap();
        memory.write(0, &[1; 10]);
        memory.resize(0).unwrap();
        memory.write(0, &[1; 10]);
        memory.resize(CHUNK as u64).unwrap();
        let mut back = [9; 10];
        memory.read(0, &mut back);
        assert_eq!(back, [0; 10]);
        assert!(memory.resize(MEMORY_BYTES_MAX + 1).is_err());
    }
}
