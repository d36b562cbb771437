//! A disk in memory. It takes room where it was written, as a sparse file does.

use std::io;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rdma::Buffer;

use super::Lent;
use crate::limits::{MEMORY_BYTES_MAX, TRANSFER_BYTES_MAX};

/// What is allocated at once, and locked at once: as much as a command moves, so that a long one is the
/// change of one for another.
const CHUNK: usize = TRANSFER_BYTES_MAX;

/// A chunk that is lent is not written any more: who writes puts a copy in its place.
type Chunk = RwLock<Option<Arc<Buffer>>>;

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

/// What chunks that are absent read as.
fn zeros() -> &'static Arc<Buffer> {
    static ZEROS: OnceLock<Arc<Buffer>> = OnceLock::new();
    ZEROS.get_or_init(|| Arc::new(Buffer::zeroed(CHUNK)))
}

/// A chunk's bytes, to be changed; all of them, if it is `whole`.
fn own(chunk: &mut Option<Arc<Buffer>>, whole: bool) -> &mut [u8] {
    let is_ours = chunk.as_mut().is_some_and(|bytes| Arc::get_mut(bytes).is_some());
    if !is_ours {
        let mut fresh = Buffer::zeroed(CHUNK);
        if let Some(lent) = chunk.as_deref().filter(|_| !whole) {
            fresh.copy_from_slice(lent);
        }
        *chunk = Some(Arc::new(fresh));
    }
    // It is here, and nobody else has it: whoever wants it waits for the lock.
    chunk.as_mut().and_then(Arc::get_mut).map(|bytes| &mut bytes[..]).unwrap_or_default()
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
            own(&mut chunk, part.within.len() == CHUNK)[part.within].copy_from_slice(&data[part.of]);
        }
    }

    /// Writes a buffer: one that is a whole chunk is put in its place, and what was there comes back, unless
    /// somebody has it.
    pub(super) fn write_buffer(&self, offset: u64, data: Buffer) -> Option<Buffer> {
        if data.len() != CHUNK || !offset.is_multiple_of(CHUNK as u64) {
            self.write(offset, &data);
            return Some(data);
        }
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let chunk = chunks.get((offset / CHUNK as u64) as usize)?;
        let before = chunk.write().unwrap_or_else(PoisonError::into_inner).replace(Arc::new(data));
        before.and_then(|before| Arc::try_unwrap(before).ok())
    }

    /// The same bytes as [`Memory::read`] gives, where they lie: they stay as they are.
    pub(super) fn lend(&self, offset: u64, length: usize) -> Lent {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let lend = |part: Part| {
            let chunk =
                chunks.get(part.chunk).map(|chunk| chunk.read().unwrap_or_else(PoisonError::into_inner));
            let bytes = chunk.as_deref().and_then(Option::as_ref);
            (Arc::clone(bytes.unwrap_or_else(|| zeros())), part.within)
        };
        Lent { pieces: parts(offset, length).map(lend).collect() }
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
            match chunk.as_ref() {
                Some(_) if (from, to) == (0, CHUNK) => *chunk = None,
                Some(_) => own(&mut chunk, false)[from..to].fill(0),
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
    fn a_whole_chunk_changes_places() {
        let memory = Memory::new(2 * CHUNK as u64).unwrap();
        let buffer = |byte| {
            let mut buffer = Buffer::zeroed(CHUNK);
            buffer.fill(byte);
            buffer
        };
        assert!(memory.write_buffer(CHUNK as u64, buffer(1)).is_none(), "nothing was there");
        let back = memory.write_buffer(CHUNK as u64, buffer(2)).unwrap();
        assert!(back.iter().all(|byte| *byte == 1));
        let lent = memory.lend(CHUNK as u64, CHUNK);
        assert!(memory.write_buffer(CHUNK as u64, buffer(3)).is_none(), "somebody has it");
        assert!(lent.pieces().flatten().all(|byte| *byte == 2));
        let back = memory.write_buffer(512, buffer(4)).unwrap();
        assert!(back.iter().all(|byte| *byte == 4), "it was copied");
        let mut now = vec![0; 2 * CHUNK];
        memory.read(0, &mut now);
        assert_eq!([now[0], now[512], now[CHUNK + 511], now[CHUNK + 512]], [0, 4, 4, 3]);
    }

    #[test]
    fn what_is_lent_stays_as_it_was() {
        let memory = Memory::new(3 * CHUNK as u64).unwrap();
        memory.write(0, &vec![1; 2 * CHUNK]);
        let lent = memory.lend(CHUNK as u64 - 100, CHUNK + 200);
        memory.write(0, &vec![2; CHUNK]);
        memory.write(CHUNK as u64, &[2; 10]);
        memory.clear(2 * CHUNK as u64 - 50, 10);
        memory.write(2 * CHUNK as u64, &[2; 10]);
        let bytes: Vec<u8> = lent.pieces().flatten().copied().collect();
        assert_eq!(bytes.len(), CHUNK + 200);
        assert!(bytes[..CHUNK + 100].iter().all(|byte| *byte == 1));
        assert!(bytes[CHUNK + 100..].iter().all(|byte| *byte == 0));
        let mut now = vec![9; CHUNK + 200];
        memory.read(CHUNK as u64 - 100, &mut now);
        assert_eq!([now[0], now[100], now[110], now[CHUNK + 55], now[CHUNK + 100]], [2, 2, 1, 0, 2]);
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
