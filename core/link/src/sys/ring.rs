//! One direction of a shared-memory channel: a ring of records that one process writes and another one reads.
//!
//! A record begins at a multiple of [`LINE`] with its number of lines; the number is written last, with
//! release order, and by then the same word of the next record holds 0. So the reader reads only the record
//! itself: a short message costs one cache line from core to core. Positions count bytes since the creation
//! of the ring.
//!
//! ```text
//! | lines | headers, flags | payload | 0 | headers … | payload …        | next: 0
//! ```
//!
//! The writer owns the bytes between its position and the reader's, and the reader the rest. Each checks all
//! that the other writes: a length that does not fit breaks the ring, and headers are copied before they are
//! parsed.

use super::flags;
use super::shared::{Mapping, RING_BYTES};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a cache line: records are aligned to it.
const LINE: usize = 64;
/// Bytes before the headers of a record: number of lines, length of headers, flags, length of payload.
const PREFIX: usize = 16;
/// Bytes of headers that a record may have.
pub const HEADERS_MAX: usize = 96;
/// The longest payload of a record in bytes. Such a record fits whenever [`Writer::has_room`] is true.
pub const PAYLOAD_MAX: usize = RING_BYTES / 4;
/// Capacity of a ring in records.
pub const RECORDS_MAX: usize = RING_BYTES / LINE;
const RECORD_MAX: usize = (PREFIX + HEADERS_MAX + PAYLOAD_MAX).next_multiple_of(LINE) + LINE;
/// Longest headers that end within the first line of their record: only that line is read for them.
const HEADERS_SHORT: usize = LINE - PREFIX;
/// Value of the busy word while the writer executes a request on the reader's memory.
const BUSY: u32 = 1;
/// Value of the word by which the reader offers to fetch payloads from the writer's memory.
const FETCHES: u32 = 1;

/// The control words of a ring, each on cache lines of its own.
#[repr(C, align(128))]
struct Control {
    /// Position up to which the reader has released records.
    done: Own<AtomicU64>,
    /// Set when the writer found no room, and is to be woken when there is some: 0, or a [`Sleeper`].
    full: Own<AtomicU32>,
    /// Set when the reader sleeps, and is to be woken for a record: 0, or a [`Sleeper`].
    asleep: Own<AtomicU32>,
    /// Set while the writer executes a request on the reader's memory: 0 or [`BUSY`].
    busy: Own<AtomicU32>,
    /// Set while the reader fetches payloads from the writer's memory: 0 or [`FETCHES`].
    fetches: Own<AtomicU32>,
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
        Self {
            control,
            data: mapping.ring(index),
            _mapping: Arc::clone(mapping),
        }
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

    /// The number of lines of the record at a position; 0 where there is none yet.
    fn lines(&self, position: u64) -> &AtomicU32 {
        // SAFETY: positions of records are multiples of a line, so it is aligned and mapped.
        unsafe { &*self.at(position).cast::<AtomicU32>() }
    }
}

/// The writing end of a ring.
#[derive(Debug)]
pub struct Writer {
    ring: Ring,
    position: u64,
    /// The reader's position as last read.
    done: u64,
    /// Whether records were written since the last [`Self::must_wake`].
    written: bool,
    /// Whether the busy word is set.
    is_busy: bool,
    /// Number of free bytes from which on [`Self::has_room`] is true.
    reserve: usize,
}

impl Writer {
    fn new(ring: Ring) -> Self {
        Self {
            ring,
            position: 0,
            done: 0,
            written: false,
            is_busy: false,
            reserve: RECORD_MAX,
        }
    }

    /// Limits the bytes in the ring: above `bytes`, [`Self::has_room`] is false from now on.
    pub fn fill_up_to(&mut self, bytes: usize) {
        self.reserve = RING_BYTES.saturating_sub(bytes).max(RECORD_MAX);
    }

    /// Whether there is room for the longest record.
    pub fn has_room(&mut self) -> bool {
        if self.free() >= self.reserve {
            return true;
        }
        self.done = self.ring.control().done.0.load(Ordering::Acquire);
        self.free() >= self.reserve
    }

    /// Requests a wake-up of `sleeper`, in the writer's process, when there is room again. True when there is
    /// some already.
    pub fn wait_for_room(&mut self, sleeper: Sleeper) -> bool {
        let control = self.ring.control();
        let done = || control.done.0.load(Ordering::Acquire);
        self.done = flags::set_and_look(&control.full.0, sleeper as u32, done);
        self.free() >= self.reserve
    }

    fn free(&self) -> usize {
        // A reader's position ahead of the writer's, or more than a ring behind it, is invalid: no room.
        RING_BYTES.saturating_sub(self.position.wrapping_sub(self.done) as usize)
    }

    /// Writes a record in place: `headers` writes the headers and returns their length, `fill` writes the
    /// payload. When `fill` fails, there is no record. `None` when there is no room for the record, it is too
    /// long, or `headers` returns `None`.
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
        // SAFETY: free room, as was checked, which is ours until the record is published. The reader, if it
        // keeps to the rules, looks at nothing here but the first number.
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
        flags::publish(
            self.ring.lines(self.position),
            self.ring.lines(next),
            lines as u32,
        );
        self.position = next;
        self.written = true;
        Some(Ok(()))
    }

    /// Whether the reader sleeps.
    pub fn reader_sleeps(&self) -> bool {
        self.ring.control().asleep.0.load(Ordering::Relaxed) != 0
    }

    /// Whether the reader fetches payloads from the writer's memory, so that a record may refer to its
    /// payload instead of containing it.
    #[inline]
    pub fn reader_fetches(&self) -> bool {
        self.ring.control().fetches.0.load(Ordering::Relaxed) == FETCHES
    }

    /// Sets the busy word before requests are executed on the reader's memory, unless it is set. Each of them
    /// has to read its grant after this: the reader changes the grant and then loads the busy word, the
    /// writer does both in the other order. The fence between the two waits for all stores before it, those
    /// of the last request among them, so one call is made for many requests.
    pub fn begin_busy(&mut self) {
        if !std::mem::replace(&mut self.is_busy, true) {
            flags::hold(&self.ring.control().busy.0, BUSY);
        }
    }

    /// Clears the busy word: the reader may revoke its grants.
    pub fn end_busy(&mut self) {
        if std::mem::take(&mut self.is_busy) {
            flags::release(&self.ring.control().busy.0);
        }
    }

    /// The sleeper that has to be woken after any number of records, if the reader sleeps. Returned once.
    pub fn must_wake(&mut self) -> Option<Sleeper> {
        if !std::mem::take(&mut self.written) {
            return None;
        }
        Sleeper::of(flags::take(&self.ring.control().asleep.0))
    }
}

/// A thread that sleeps until there is a record, or room for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// The library's own progress thread.
    Thread = 1,
    /// A thread of the program, in a call that waits for an event.
    Program = 2,
}

impl Sleeper {
    fn of(value: u32) -> Option<Self> {
        match value {
            flags::CLEAR => None,
            2 => Some(Self::Program),
            _ => Some(Self::Thread),
        }
    }
}

/// The other process has written values that are not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the peer process wrote an invalid record into the shared ring")]
pub struct Broken;

/// A record that the reader has found.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    headers: [u8; HEADERS_MAX],
    headers_length: u8,
    /// The flags of the record.
    pub flags: u16,
    /// Address of the payload, until the record is released. The writer's process can still change it.
    pub payload: u64,
    /// Length of the payload in bytes.
    pub length: u32,
    /// End position of the record, which no other record has.
    pub end: u64,
}

impl Record {
    /// The headers, copied: the writer's process cannot change them any more.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..usize::from(self.headers_length)]
    }

    /// Copies the first bytes of the payload; returns as many as there are room for.
    pub fn copy<'a>(&self, out: &'a mut [u8]) -> &'a [u8] {
        self.body().copy(out)
    }

    /// The payload, and the end position of the record.
    pub fn body(&self) -> Body {
        Body {
            payload: self.payload,
            length: self.length,
            end: self.end,
        }
    }
}

/// The payload of a record that a reader has passed and not released yet.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    payload: u64,
    /// Length of the ring's memory in bytes.
    pub length: u32,
    /// End position of the record, for [`Reader::give_back`].
    pub end: u64,
}

impl Body {
    /// Copies the first bytes; returns as many as there are room for.
    pub fn copy<'a>(&self, out: &'a mut [u8]) -> &'a [u8] {
        let length = out.len().min(self.length as usize);
        // SAFETY: the record is not released, as its users promise, so the payload is mapped.
        unsafe {
            out.as_mut_ptr()
                .copy_from_nonoverlapping(self.payload as *const u8, length)
        };
        &out[..length]
    }
}

/// Prefetches a cache line that is read soon.
#[inline]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for which any address is allowed.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, for which any address is allowed.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Reader {
    ring: Ring,
    position: u64,
    /// Whether records were released since the last [`Self::must_wake`].
    released: bool,
}

impl Reader {
    fn new(ring: Ring) -> Self {
        Self {
            ring,
            position: 0,
            released: false,
        }
    }

    /// Whether there is a record.
    #[inline]
    pub fn has_record(&self) -> bool {
        flags::published(self.ring.lines(self.position)) != 0
    }

    /// The next record, if there is one. It stays until it is released.
    ///
    /// # Errors
    /// [`Broken`] when its lengths are not valid.
    #[inline]
    pub fn next(&self) -> Result<Option<Record>, Broken> {
        self.record_at(self.position)
    }

    /// The record after one that was found and is not released yet, if there is one.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn after(&self, record: &Record) -> Result<Option<Record>, Broken> {
        self.record_at(record.end)
    }

    #[inline(always)]
    fn record_at(&self, position: u64) -> Result<Option<Record>, Broken> {
        let lines = flags::published(self.ring.lines(position)) as usize;
        if lines == 0 {
            return Ok(None);
        }
        let start = self.ring.at(position);
        // The payload of a short record ends in that line, and is read after the headers were handled.
        prefetch(start.wrapping_add(LINE));
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
        if lines * LINE >= RING_BYTES
            || usize::from(headers_length) > HEADERS_MAX
            || used > lines * LINE
        {
            return Err(Broken);
        }
        let mut headers = [0; HEADERS_MAX];
        let from = start.wrapping_add(PREFIX);
        // Two lengths that are known at compile time, instead of any: no call.
        let copied = if usize::from(headers_length) <= HEADERS_SHORT {
            HEADERS_SHORT
        } else {
            HEADERS_MAX
        };
        // SAFETY: mapped from any record's start on, and within the array.
        unsafe {
            match copied {
                HEADERS_SHORT => headers
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(from, HEADERS_SHORT),
                _ => headers
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(from, HEADERS_MAX),
            }
        }
        let payload = from.wrapping_add(usize::from(headers_length)) as u64;
        let end = position + (lines * LINE) as u64;
        Ok(Some(Record {
            headers,
            headers_length: headers_length as u8,
            flags,
            payload,
            length,
            end,
        }))
    }

    /// Releases the room of a record to the writer.
    #[inline]
    pub fn release(&mut self, record: &Record) {
        self.pass(record);
        self.give_back(record.end);
    }

    /// Advances to the record after this one, which stays until [`Self::give_back`].
    #[inline]
    pub fn pass(&mut self, record: &Record) {
        self.position = record.end;
    }

    /// Releases the room of passed records to the writer: of all up to the one with this end.
    #[inline]
    pub fn give_back(&mut self, end: u64) {
        self.ring.control().done.0.store(end, Ordering::Release);
        self.released = true;
    }

    /// The sleeper that waits for room and has to be woken, after any number of records. Returned once.
    pub fn must_wake(&mut self) -> Option<Sleeper> {
        if !std::mem::take(&mut self.released) {
            return None;
        }
        Sleeper::of(flags::take(&self.ring.control().full.0))
    }

    /// Requests a wake-up of `sleeper` for the next record. True when there is a record already.
    pub fn sleep(&self, sleeper: Sleeper) -> bool {
        flags::set_and_look(&self.ring.control().asleep.0, sleeper as u32, || {
            self.has_record()
        })
    }

    /// Whether the writer is executing a request on local memory; to be called after a grant was revoked.
    ///
    /// # Errors
    /// [`Broken`] for an invalid value, so that the caller does not wait for a word that may never be
    /// cleared.
    pub fn writer_is_busy(&self) -> Result<bool, Broken> {
        match flags::is_set_after_change(&self.ring.control().busy.0) {
            flags::CLEAR => Ok(false),
            BUSY => Ok(true),
            _ => Err(Broken),
        }
    }

    /// Offers the writer to fetch payloads from its memory, or withdraws the offer. Records that were written
    /// before may still refer to their payloads.
    pub fn offer_fetches(&self, offer: bool) {
        self.ring.control().fetches.0.store(
            if offer { FETCHES } else { flags::CLEAR },
            Ordering::Relaxed,
        );
    }

    /// Cancels the request for wake-ups: the reader polls for records itself.
    pub fn wake(&self) {
        flags::withdraw(&self.ring.control().asleep.0);
    }
}

/// The two ends of one process: its writer and its reader. `first` is true for the process that created the
/// memory.
pub(crate) fn ends(mapping: &Arc<Mapping>, first: bool) -> (Writer, Reader) {
    let [to, from] =
        [usize::from(!first), usize::from(first)].map(|index| Ring::new(mapping, index));
    (Writer::new(to), Reader::new(from))
}

/// The two readers of a process that only reads from this memory.
pub(crate) fn readers(mapping: &Arc<Mapping>) -> [Reader; 2] {
    [0, 1].map(|index| Reader::new(Ring::new(mapping, index)))
}

/// The two writers of the other process.
pub(crate) fn writers(mapping: &Arc<Mapping>) -> [Writer; 2] {
    [0, 1].map(|index| Writer::new(Ring::new(mapping, index)))
}
