//! One way of a link: a ring of records that one process writes and another one reads.
//!
//! A record begins at a multiple of [`LINE`] with the number of lines that it has; the number is written
//! last, with release order, and by then the same place of the next record holds 0. So the reader looks at
//! nothing but the record itself: a short message costs one cache line from core to core. Positions count
//! bytes since the ring was made.
//!
//! ```text
//! | lines | headers, flags | payload | 0 | headers … | payload …        | next: 0
//! ```
//!
//! The writer owns what lies between its position and the reader's, the reader the rest; neither touches
//! what is the other's. Nothing that the other side writes is believed: a length that does not fit is an end
//! of the link, and headers are copied out before they are looked at.

use super::shared::{Mapping, RING_BYTES};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Granularity of records: a cache line.
const LINE: usize = 64;
/// What a record begins with.
const PREFIX: usize = 16;
/// Headers that a record may have.
pub const HEADERS_MAX: usize = 96;
/// The longest record: what has room whenever [`Writer::has_room`] says so.
pub const PAYLOAD_MAX: usize = RING_BYTES / 4;
/// Records that a ring has room for.
pub const RECORDS_MAX: usize = RING_BYTES / LINE;
const RECORD_MAX: usize = (PREFIX + HEADERS_MAX + PAYLOAD_MAX).next_multiple_of(LINE) + LINE;
/// Headers that end within the first line of their record: only that line is touched for them.
const HEADERS_SHORT: usize = LINE - PREFIX;
/// What a writer says that is busy with the reader's memory.
const BUSY: u32 = 1;

/// What the two sides tell each other beside records; each on cache lines of its own.
#[repr(C, align(128))]
struct Control {
    /// Up to where the reader is done.
    done: Own<AtomicU64>,
    /// The writer found no room, and wants to be told.
    full: Own<AtomicU32>,
    /// The reader sleeps, and wants to be told: 0, or a [`Sleeper`].
    asleep: Own<AtomicU32>,
    /// The writer is busy with the reader's memory.
    busy: Own<AtomicU32>,
}

#[repr(align(128))]
struct Own<T>(T);

/// One ring of a mapping.
#[derive(Debug)]
struct Ring {
    control: NonNull<Control>,
    data: NonNull<u8>,
    _mapping: Arc<Mapping>,
}

// SAFETY: the memory lives as long as the mapping, which is kept; it is used through atomics and copies.
unsafe impl Send for Ring {}

impl Ring {
    fn new(mapping: &Arc<Mapping>, index: usize) -> Self {
        let control = mapping.control().cast::<Control>();
        // SAFETY: two control blocks fit in the control page, which is aligned.
        let control = unsafe { control.add(index & 1) };
        Self { control, data: mapping.ring(index), _mapping: Arc::clone(mapping) }
    }

    fn control(&self) -> &Control {
        // SAFETY: mapped, aligned, and all of it is atomics, for which any contents are valid.
        unsafe { self.control.as_ref() }
    }

    /// The bytes from a position on, of which `RING_BYTES` can be used.
    fn at(&self, position: u64) -> *mut u8 {
        // SAFETY: the ring is mapped twice in a row.
        unsafe { self.data.as_ptr().add(position as usize % RING_BYTES) }
    }

    /// The number that a record begins with.
    fn lines(&self, position: u64) -> &AtomicU32 {
        // SAFETY: positions of records are multiples of a line, so it is aligned and mapped.
        unsafe { &*self.at(position).cast::<AtomicU32>() }
    }
}

/// The side that writes.
#[derive(Debug)]
pub struct Writer {
    ring: Ring,
    position: u64,
    /// Up to where the reader was done when we looked last.
    done: u64,
    /// Something was written since the reader was looked after.
    written: bool,
}

impl Writer {
    /// Whether the longest record has room.
    pub fn has_room(&mut self) -> bool {
        if self.free() >= RECORD_MAX {
            return true;
        }
        self.done = self.ring.control().done.0.load(Ordering::Acquire);
        self.free() >= RECORD_MAX
    }

    /// Has the reader tell when there is room again. True when there is some already.
    pub fn wait_for_room(&mut self) -> bool {
        self.ring.control().full.0.store(1, Ordering::Relaxed);
        // The other side stores its position, then looks at this; we the other way round.
        fence(Ordering::SeqCst);
        self.has_room()
    }

    fn free(&self) -> usize {
        // A reader that claims to be ahead of us, or behind by more than there is, gets nothing any more.
        RING_BYTES.saturating_sub(self.position.wrapping_sub(self.done) as usize)
    }

    /// Writes a record, in its place: `headers` says how long those are that it wrote, `fill` gets the place
    /// for the payload. When it fails, nothing is written. `None` when there is no room for the record, it
    /// is too long, or there are no headers.
    #[inline]
    pub fn write<E>(
        &mut self,
        flags: u16,
        payload: usize,
        headers: impl FnOnce(&mut [u8; HEADERS_MAX]) -> Option<usize>,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        if payload > PAYLOAD_MAX || PREFIX + HEADERS_MAX + payload + 2 * LINE > self.free() {
            return None;
        }
        let start = self.ring.at(self.position);
        // SAFETY: free room, as was checked, which is ours until the record is published. The reader, if it
        // keeps to the rules, looks at nothing here but the first number.
        let length = headers(unsafe { &mut *start.add(PREFIX).cast() })?.min(HEADERS_MAX);
        // SAFETY: as above.
        let place = unsafe {
            let prefix = start.add(4);
            prefix.cast::<u16>().write(length as u16);
            prefix.add(2).cast::<u16>().write(flags);
            prefix.add(4).cast::<u32>().write(payload as u32);
            std::slice::from_raw_parts_mut(start.add(PREFIX + length), payload)
        };
        if let Err(error) = fill(place) {
            return Some(Err(error));
        }
        let lines = (PREFIX + length + payload).div_ceil(LINE);
        let next = self.position + (lines * LINE) as u64;
        self.ring.lines(next).store(0, Ordering::Relaxed);
        self.ring.lines(self.position).store(lines as u32, Ordering::Release);
        self.position = next;
        self.written = true;
        Some(Ok(()))
    }

    /// Whether the reader sleeps.
    pub fn reader_sleeps(&self) -> bool {
        self.ring.control().asleep.0.load(Ordering::Relaxed) != 0
    }

    /// Says that we are busy with the reader's memory while `work` runs. It has to look there whether it
    /// still may: the reader changes what it grants, then looks whether we are busy; we the other way round.
    pub fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        let busy = &self.ring.control().busy.0;
        busy.store(BUSY, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let result = work();
        busy.store(0, Ordering::Release);
        result
    }

    /// After any number of records: whether the reader sleeps, and who has to be woken. Says so once.
    pub fn must_wake(&mut self) -> Option<Sleeper> {
        if !std::mem::take(&mut self.written) {
            return None;
        }
        // The reader says that it sleeps, then looks for a record; we the other way round.
        fence(Ordering::SeqCst);
        let asleep = &self.ring.control().asleep.0;
        match asleep.load(Ordering::Relaxed) {
            0 => None,
            _ => Sleeper::of(asleep.swap(0, Ordering::Relaxed)),
        }
    }
}

/// Who waits for records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// The thread that serves the link.
    Thread = 1,
    /// The program itself, in a call that waits for an event.
    Program = 2,
}

impl Sleeper {
    fn of(value: u32) -> Option<Self> {
        match value {
            0 => None,
            2 => Some(Self::Program),
            _ => Some(Self::Thread),
        }
    }
}

/// The other side does not keep to the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a record in shared memory is not as it has to be")]
pub struct Broken;

/// A record that was found.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    headers: [u8; HEADERS_MAX],
    headers_length: u8,
    /// As they were written.
    pub flags: u16,
    /// Where the payload is, until the record is released. The other side can still change it.
    pub payload: u64,
    /// Its length.
    pub length: u32,
    end: u64,
}

impl Record {
    /// A copy of the headers: the other side cannot change it.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..usize::from(self.headers_length)]
    }

    /// Copies the first bytes of the payload; returns as many as there are room for.
    pub fn copy<'a>(&self, out: &'a mut [u8]) -> &'a [u8] {
        let length = out.len().min(self.length as usize);
        // SAFETY: the record is not released, as its users promise, so the payload is mapped.
        unsafe { out.as_mut_ptr().copy_from_nonoverlapping(self.payload as *const u8, length) };
        &out[..length]
    }
}

/// The side that reads.
#[derive(Debug)]
pub struct Reader {
    ring: Ring,
    position: u64,
    /// Records were released since the writer was looked after.
    released: bool,
}

impl Reader {
    /// Whether there is a record.
    #[inline]
    pub fn has_record(&self) -> bool {
        self.ring.lines(self.position).load(Ordering::Acquire) != 0
    }

    /// The next record, if there is one. It stays until it is released.
    ///
    /// # Errors
    /// [`Broken`] when it cannot be one.
    #[inline]
    pub fn next(&self) -> Result<Option<Record>, Broken> {
        let lines = self.ring.lines(self.position).load(Ordering::Acquire) as usize;
        if lines == 0 {
            return Ok(None);
        }
        let start = self.ring.at(self.position);
        // SAFETY: the prefix of a record is mapped; it is read once.
        let (headers_length, flags, length) = unsafe {
            let prefix = start.add(4);
            (
                prefix.cast::<u16>().read_volatile(),
                prefix.add(2).cast::<u16>().read_volatile(),
                prefix.add(4).cast::<u32>().read_volatile(),
            )
        };
        let used = PREFIX + usize::from(headers_length) + length as usize;
        if lines * LINE >= RING_BYTES || usize::from(headers_length) > HEADERS_MAX || used > lines * LINE {
            return Err(Broken);
        }
        let mut headers = [0; HEADERS_MAX];
        let from = start.wrapping_add(PREFIX);
        // Two lengths that are known to the compiler, instead of any: no call.
        let copied = if usize::from(headers_length) <= HEADERS_SHORT { HEADERS_SHORT } else { HEADERS_MAX };
        // SAFETY: mapped from any record's start on, and within the array.
        unsafe {
            match copied {
                HEADERS_SHORT => headers.as_mut_ptr().copy_from_nonoverlapping(from, HEADERS_SHORT),
                _ => headers.as_mut_ptr().copy_from_nonoverlapping(from, HEADERS_MAX),
            }
        }
        let payload = from.wrapping_add(usize::from(headers_length)) as u64;
        let end = self.position + (lines * LINE) as u64;
        Ok(Some(Record { headers, headers_length: headers_length as u8, flags, payload, length, end }))
    }

    /// Gives a record's room back.
    #[inline]
    pub fn release(&mut self, record: &Record) {
        self.position = record.end;
        self.ring.control().done.0.store(self.position, Ordering::Release);
        self.released = true;
    }

    /// After any number of records: whether the writer waits for room, and has to be woken. Says so once.
    pub fn must_wake(&mut self) -> bool {
        if !std::mem::take(&mut self.released) {
            return false;
        }
        fence(Ordering::SeqCst);
        let full = &self.ring.control().full.0;
        full.load(Ordering::Relaxed) != 0 && full.swap(0, Ordering::Relaxed) != 0
    }

    /// Says that we are about to sleep, and who wants to be woken. True when there is a record already.
    pub fn sleep(&self, sleeper: Sleeper) -> bool {
        self.ring.control().asleep.0.store(sleeper as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_record()
    }

    /// Whether the writer is busy with our memory; to be asked after a change of what it may do there.
    ///
    /// # Errors
    /// [`Broken`] when it says neither: nobody waits for what may never end.
    pub fn writer_is_busy(&self) -> Result<bool, Broken> {
        fence(Ordering::SeqCst);
        match self.ring.control().busy.0.load(Ordering::Acquire) {
            0 => Ok(false),
            BUSY => Ok(true),
            _ => Err(Broken),
        }
    }

    /// Says that we look by ourselves.
    pub fn wake(&self) {
        let asleep = &self.ring.control().asleep.0;
        if asleep.load(Ordering::Relaxed) != 0 {
            asleep.store(0, Ordering::Relaxed);
        }
    }
}

/// The two rings of a mapping: `first` says which of the two sides we are.
pub(crate) fn ends(mapping: &Arc<Mapping>, first: bool) -> (Writer, Reader) {
    let writer =
        Writer { ring: Ring::new(mapping, usize::from(!first)), position: 0, done: 0, written: false };
    let reader = Reader { ring: Ring::new(mapping, usize::from(first)), position: 0, released: false };
    (writer, reader)
}
