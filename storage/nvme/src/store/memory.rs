//! A store in memory. Only chunks that were written use memory, as in a sparse file.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use buffer::Buffer;

use super::Lent;
use crate::limits::{
    LENT_BYTES_MIN, LENT_SHORT_AFTER_READS, LENT_SHORT_BYTES_MIN, MEMORY_BYTES_MAX,
    REFERRED_AFTER_READS, REFERRED_BYTES_MIN, TRANSFER_BYTES_MAX,
};

/// The unit of allocation and locking: as long as the longest transfer, so that an aligned write of that
/// length exchanges one chunk for another.
const CHUNK: usize = TRANSFER_BYTES_MAX;

/// A chunk. A lent chunk is not changed: a write replaces it by a copy.
type Chunk = RwLock<Option<Arc<Buffer>>>;

/// A store in chunks; absent chunks read as zeros.
#[derive(Debug)]
pub struct Memory {
    // Locked exclusively only to resize.
    chunks: RwLock<Vec<Chunk>>,
    /// Short reads since the last write, up to [`LENT_SHORT_AFTER_READS`].
    calm: AtomicU32,
    /// Long reads since the last write, up to [`REFERRED_AFTER_READS`].
    long_reads: AtomicU32,
}

/// The part of a range that lies in one chunk.
struct Part {
    chunk: usize,
    within: Range<usize>,
    /// The bytes of the range that are in this chunk.
    of: Range<usize>,
}

fn parts(offset: u64, length: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let (chunk, start) = ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize);
        let take = (length - done).min(CHUNK - start);
        let part = Part {
            chunk,
            within: start..start + take,
            of: done..done + take,
        };
        done += take;
        (take > 0).then_some(part)
    })
}

/// The contents of absent chunks.
fn zeros() -> &'static Arc<Buffer> {
    static ZEROS: OnceLock<Arc<Buffer>> = OnceLock::new();
    ZEROS.get_or_init(|| Arc::new(Buffer::sparse(CHUNK)))
}

/// The bytes of a range of a chunk, all of which the caller writes. A lent chunk is copied first, unless the
/// range covers it. Pages that sockets still refer to are replaced.
fn own(chunk: &mut Option<Arc<Buffer>>, range: Range<usize>) -> &mut [u8] {
    let ours = chunk.as_mut().and_then(Arc::get_mut);
    if !ours.is_some_and(|bytes| bytes.renew(range.clone())) {
        let mut fresh = Buffer::sparse(CHUNK);
        if let Some(lent) = chunk.as_deref().filter(|_| range.len() != CHUNK) {
            fresh.copy_from_slice(lent);
        }
        *chunk = Some(Arc::new(fresh));
    }
    // The chunk exists and has no other reference: a reader that wants one waits for the lock.
    chunk
        .as_mut()
        .and_then(Arc::get_mut)
        .map(|bytes| &mut bytes[range])
        .unwrap_or_default()
}

impl Memory {
    /// A store of `bytes` zeros.
    ///
    /// # Errors
    /// When `bytes` exceeds the limit.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let memory = Self {
            chunks: RwLock::default(),
            calm: AtomicU32::new(0),
            long_reads: AtomicU32::new(0),
        };
        memory.resize(bytes)?;
        Ok(memory)
    }

    pub(super) fn resize(&self, bytes: u64) -> io::Result<()> {
        if bytes > MEMORY_BYTES_MAX {
            let text = format!("a memory namespace has at most {MEMORY_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let count = bytes.div_ceil(CHUNK as u64) as usize;
        self.chunks
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .resize_with(count, Chunk::default);
        Ok(())
    }

    /// Whether a read of this length should be lent: a long one, or a short one while nothing is written. A
    /// write to a lent chunk copies the whole chunk.
    pub(super) fn lends(&self, length: usize) -> bool {
        if !(LENT_SHORT_BYTES_MIN..LENT_BYTES_MIN).contains(&length) {
            return length >= LENT_BYTES_MIN;
        }
        let is_calm = self.calm.load(Ordering::Relaxed) >= LENT_SHORT_AFTER_READS;
        if !is_calm {
            self.calm.fetch_add(1, Ordering::Relaxed);
        }
        is_calm
    }

    /// Notes a write: short reads are copied for some time, and long ones are not referred to.
    fn disturb(&self) {
        for count in [&self.calm, &self.long_reads] {
            if count.load(Ordering::Relaxed) != 0 {
                count.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Whether sockets may refer to the pages of a read of this length: it is long, and nothing is written. A
    /// write replaces pages that sockets still refer to.
    fn refers(&self, length: usize) -> bool {
        if length < REFERRED_BYTES_MIN {
            return false;
        }
        let is_calm = self.long_reads.load(Ordering::Relaxed) >= REFERRED_AFTER_READS;
        if !is_calm {
            self.long_reads.fetch_add(1, Ordering::Relaxed);
        }
        is_calm
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for part in parts(offset, data.len()) {
            let chunk = chunks
                .get(part.chunk)
                .map(|chunk| chunk.read().unwrap_or_else(PoisonError::into_inner));
            match chunk.as_deref() {
                Some(Some(bytes)) => data[part.of].copy_from_slice(&bytes[part.within]),
                _ => data[part.of].fill(0),
            }
        }
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) {
        self.disturb();
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for part in parts(offset, data.len()) {
            let Some(chunk) = chunks.get(part.chunk) else {
                continue;
            };
            let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
            own(&mut chunk, part.within).copy_from_slice(&data[part.of]);
        }
    }

    /// Writes a buffer. A buffer that covers a whole chunk becomes the chunk, and the old chunk is returned
    /// unless it is lent, or sockets still refer to its pages.
    pub(super) fn write_buffer(&self, offset: u64, data: Buffer) -> Option<Buffer> {
        if data.len() != CHUNK || !offset.is_multiple_of(CHUNK as u64) {
            self.write(offset, &data);
            return Some(data);
        }
        self.disturb();
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let chunk = chunks.get((offset / CHUNK as u64) as usize)?;
        let before = chunk
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(Arc::new(data));
        before
            .and_then(|before| Arc::try_unwrap(before).ok())
            .filter(|before| !before.is_referred())
    }

    /// Lends the bytes that [`Memory::read`] would copy: they do not change while they are lent.
    pub(super) fn lend(&self, offset: u64, length: usize) -> Lent {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let lend = |part: Part| {
            let chunk = chunks
                .get(part.chunk)
                .map(|chunk| chunk.read().unwrap_or_else(PoisonError::into_inner));
            let bytes = chunk
                .as_deref()
                .and_then(Option::as_ref)
                .unwrap_or_else(|| zeros());
            // It is copied when the commands that came with this one are handled as well, and the processor
            // can fetch it meanwhile. Longer data follow each other for long enough to be fetched ahead.
            if length < LENT_BYTES_MIN {
                bytes.prefetch(part.within.clone());
            }
            (Arc::clone(bytes), part.within)
        };
        let lent: Lent = parts(offset, length).map(lend).collect();
        lent.may_be_referred(self.refers(length))
    }

    /// Asks the processor to fetch a range that is accessed soon.
    pub(super) fn prefetch(&self, offset: u64, length: usize) {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for part in parts(offset, length) {
            let chunk = chunks
                .get(part.chunk)
                .map(|chunk| chunk.read().unwrap_or_else(PoisonError::into_inner));
            if let Some(Some(bytes)) = chunk.as_deref() {
                bytes.prefetch(part.within);
            }
        }
    }

    /// Clears a range; whole chunks are freed.
    pub(super) fn clear(&self, offset: u64, length: u64) {
        self.disturb();
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let (first, end) = (
            offset / CHUNK as u64,
            (offset + length).div_ceil(CHUNK as u64),
        );
        for index in first..end {
            let Some(chunk) = chunks.get(index as usize) else {
                return;
            };
            let start = index * CHUNK as u64;
            let from = offset.saturating_sub(start) as usize;
            let to = (offset + length - start).min(CHUNK as u64) as usize;
            let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
            match chunk.as_ref() {
                Some(_) if (from, to) == (0, CHUNK) => *chunk = None,
                Some(_) => own(&mut chunk, from..to).fill(0),
                None => {}
            }
        }
    }

    #[cfg(test)]
    fn allocated(&self) -> usize {
        let chunks = self.chunks.read().unwrap();
        chunks
            .iter()
            .filter(|chunk| chunk.read().unwrap().is_some())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_chunks_and_zeros_use_no_memory() {
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
    fn a_write_of_a_whole_chunk_exchanges_buffers() {
        let memory = Memory::new(2 * CHUNK as u64).unwrap();
        let buffer = |byte| {
            let mut buffer = Buffer::zeroed(CHUNK);
            buffer.fill(byte);
            buffer
        };
        assert!(
            memory.write_buffer(CHUNK as u64, buffer(1)).is_none(),
            "nothing was there"
        );
        let back = memory.write_buffer(CHUNK as u64, buffer(2)).unwrap();
        assert!(back.iter().all(|byte| *byte == 1));
        let lent = memory.lend(CHUNK as u64, CHUNK);
        assert!(
            memory.write_buffer(CHUNK as u64, buffer(3)).is_none(),
            "the chunk is lent"
        );
        assert!(lent.pieces().flatten().all(|byte| *byte == 2));
        let back = memory.write_buffer(512, buffer(4)).unwrap();
        assert!(back.iter().all(|byte| *byte == 4), "it was copied");
        let mut now = vec![0; 2 * CHUNK];
        memory.read(0, &mut now);
        assert_eq!(
            [now[0], now[512], now[CHUNK + 511], now[CHUNK + 512]],
            [0, 4, 4, 3]
        );
    }

    #[test]
    fn short_reads_are_lent_while_nothing_is_written() {
        let memory = Memory::new(CHUNK as u64).unwrap();
        let calm_after = |memory: &Memory| {
            (0..)
                .position(|_| memory.lends(LENT_SHORT_BYTES_MIN))
                .unwrap()
        };
        assert_eq!(calm_after(&memory), LENT_SHORT_AFTER_READS as usize);
        for disturb in [
            |memory: &Memory| memory.write(0, &[1]),
            |memory: &Memory| memory.clear(0, 1),
            |memory: &Memory| _ = memory.write_buffer(0, Buffer::zeroed(CHUNK)),
        ] {
            assert!(memory.lends(LENT_BYTES_MIN - 1) && !memory.lends(LENT_SHORT_BYTES_MIN - 1));
            disturb(&memory);
            assert!(memory.lends(LENT_BYTES_MIN), "long reads are lent always");
            assert_eq!(calm_after(&memory), LENT_SHORT_AFTER_READS as usize);
        }
    }

    /// Reads until the store lets sockets refer to its pages; returns the last one.
    fn referable(memory: &Memory, offset: u64, length: usize) -> Lent {
        let reads = || memory.lend(offset, length);
        let (before, last) = (0..)
            .map(|count| (count, reads()))
            .find(|(_, lent)| lent.is_referable())
            .unwrap();
        assert_eq!(before, REFERRED_AFTER_READS);
        last
    }

    #[test]
    fn sockets_may_refer_to_long_reads_while_nothing_is_written() {
        let memory = Memory::new(2 * CHUNK as u64).unwrap();
        for _ in 0..2 {
            let lent = referable(&memory, 100, REFERRED_BYTES_MIN);
            assert!(
                lent.chunks().count() == 1
                    && !memory.lend(0, REFERRED_BYTES_MIN - 1).is_referable()
            );
            memory.write(0, &[1]);
        }
    }

    #[test]
    fn pages_that_sockets_refer_to_are_replaced() {
        let memory = Memory::new(2 * CHUNK as u64).unwrap();
        let whole = |byte| {
            let mut buffer = Buffer::zeroed(CHUNK);
            buffer.fill(byte);
            buffer
        };
        memory.write_buffer(0, whole(1));
        memory.write_buffer(CHUNK as u64, whole(2));
        let lent = referable(&memory, CHUNK as u64 / 2, CHUNK);
        lent.chunks()
            .for_each(|(chunk, range)| chunk.refer(range.clone()));
        drop(lent);
        let is_referred = |chunk: usize| {
            let chunks = memory.chunks.read().unwrap();
            let chunk = chunks[chunk].read().unwrap();
            chunk.as_ref().is_some_and(|bytes| bytes.is_referred())
        };
        assert!(is_referred(0) && is_referred(1));
        memory.write(CHUNK as u64 / 2 + 100, &[3; 10_000]);
        memory.clear(CHUNK as u64 - 9000, 9001);
        let mut now = vec![9; 2 * CHUNK];
        memory.read(0, &mut now);
        let expected = [
            (0, 1),
            (CHUNK / 2 + 99, 1),
            (CHUNK / 2 + 100, 3),
            (CHUNK / 2 + 10_099, 3),
        ]
        .into_iter()
        .chain([
            (CHUNK / 2 + 10_100, 1),
            (CHUNK - 9001, 1),
            (CHUNK - 9000, 0),
            (CHUNK, 0),
            (CHUNK + 1, 2),
        ]);
        expected.for_each(|(at, byte)| assert_eq!(now[at], byte, "{at}"));
        assert!(
            memory.write_buffer(0, whole(4)).is_none(),
            "the kernel may still read the old chunk"
        );
        assert!(memory.write_buffer(0, whole(5)).is_some() && is_referred(1));
        memory.write(CHUNK as u64, &[6; CHUNK]);
        assert!(!is_referred(1));
    }

    #[test]
    fn lent_memory_does_not_change() {
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
        assert_eq!(
            [
                now[0],
                now[100],
                now[110],
                now[CHUNK + 55],
                now[CHUNK + 100]
            ],
            [2, 2, 1, 0, 2]
        );
    }

    #[test]
    fn bytes_of_an_extended_store_are_zero() {
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
