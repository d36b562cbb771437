//! Memory for data: it begins at a page boundary, as direct I/O and RDMA like it, never moves, and can be
//! known
//! to a device.

use std::alloc::{self, Layout};
use std::ffi::c_int;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use abi::ibv_mr;

use super::arena::Piece;
use super::domain::Domain;
use super::library::failed;
use crate::Error;

/// What buffers begin at and are a multiple of, in bytes.
pub const ALIGNMENT: usize = 4096;

/// From here on the kernel makes zeros where they are touched.
const MAPPED_MIN: usize = 256 << 10;
/// No right but to read.
const READ_ONLY: c_int = 0;
/// `IBV_ACCESS_LOCAL_WRITE`: what requests of this process need, and no more.
const LOCAL_WRITE: c_int = 1;
/// `IBV_ACCESS_REMOTE_WRITE` and `IBV_ACCESS_REMOTE_READ`.
const REMOTE: c_int = 2 | 4;

/// Bytes whose address is fixed while it lives.
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
    registration: Option<Registration>,
    /// Of what is lent, with the first device that it is lent to; none where that takes no more memory.
    lent: OnceLock<Option<Box<Registration>>>,
    /// A mapping of its own; the others are on the heap.
    piece: Option<Box<Piece>>,
}

struct Registration {
    domain: Arc<Domain>,
    region: NonNull<ibv_mr>,
    key: u32,
    /// The key that peers need, if they may reach it.
    remote: Option<u32>,
}

// SAFETY: a buffer owns its memory alone, as a Box would, and verbs may be called from any thread.
unsafe impl Send for Buffer {}
// SAFETY: shared access reads only.
unsafe impl Sync for Buffer {}

fn whole_pages(length: usize) -> usize {
    length.max(1).next_multiple_of(ALIGNMENT)
}

fn layout(length: usize) -> Layout {
    Layout::from_size_align(length, ALIGNMENT).expect("buffers have at most a few MiB")
}

impl Buffer {
    /// At least `length` zeros, a whole number of pages and not none.
    ///
    /// # Panics
    /// When `length` is more than an address space has.
    pub fn zeroed(length: usize) -> Self {
        let length = whole_pages(length);
        if length >= MAPPED_MIN
            && let Some(piece) = Piece::alone(length)
        {
            return Self::of(piece, length);
        }
        let layout = layout(length);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        Self { start, length, registration: None, lent: OnceLock::new(), piece: None }
    }

    fn of(piece: Piece, length: usize) -> Self {
        let (start, lent) = (piece.start(), OnceLock::new());
        Self { start, length, registration: None, lent, piece: Some(Box::new(piece)) }
    }

    /// The same, known to the device: connections of this domain can work on it. No peer can reach it.
    ///
    /// # Errors
    /// When the device takes no more memory.
    pub fn registered(domain: &Arc<Domain>, length: usize) -> Result<Self, Error> {
        Self::zeroed(length).with_access(domain, LOCAL_WRITE)
    }

    /// The same, opened to the peers of this domain's connections: one that is told [`Buffer::remote`] can
    /// read and write it until it is dropped. What a peer writes while it was not asked to may be seen half
    /// written, so nothing in it is to be believed before it was checked. Peers on this host can map it.
    ///
    /// # Errors
    /// As [`Buffer::registered`].
    pub fn open(domain: &Arc<Domain>, length: usize) -> Result<Self, Error> {
        let length = whole_pages(length);
        let buffer = match Piece::take(length) {
            Some(piece) => Self::of(piece, length),
            None => Self::zeroed(length),
        };
        buffer.with_access(domain, LOCAL_WRITE | REMOTE)
    }

    fn with_access(mut self, domain: &Arc<Domain>, access: c_int) -> Result<Self, Error> {
        self.registration = Some(self.register(domain, access)?);
        Ok(self)
    }

    fn register(&self, domain: &Arc<Domain>, access: c_int) -> Result<Registration, Error> {
        let (start, size) = (self.start.as_ptr(), self.length);
        // SAFETY: the memory is this buffer's, and stays until it was deregistered, in `drop`. Without remote
        // access only requests of this process touch it, which own the buffer meanwhile, or only read where
        // it is lent; with it the peer does what it was asked to while the buffer waits for the answer, and
        // holds plain bytes always.
        let region = unsafe { (domain.library.ibv_reg_mr)(domain.raw.as_ptr(), start.cast(), size, access) };
        let region = NonNull::new(region).ok_or_else(|| failed("ibv_reg_mr"))?;
        // SAFETY: a region that was just made.
        let (key, rkey) = unsafe { (region.as_ref().lkey, region.as_ref().rkey) };
        let remote = (access & REMOTE != 0).then_some(rkey);
        Ok(Registration { domain: Arc::clone(domain), region, key, remote })
    }

    /// Whether connections of this domain can work on it.
    pub fn is_known_to(&self, domain: &Arc<Domain>) -> bool {
        self.key(domain).is_some()
    }

    /// The key for requests of this domain that only read, of a buffer that others read as well.
    pub(crate) fn key_to_read(&self, domain: &Arc<Domain>) -> Option<u32> {
        if let Some(key) = self.key(domain) {
            return Some(key);
        }
        let lent = self.lent.get_or_init(|| self.register(domain, READ_ONLY).ok().map(Box::new)).as_ref();
        lent.filter(|it| Arc::ptr_eq(&it.domain, domain)).map(|it| it.key)
    }

    /// Address and key for peers of this domain's connections; `None` when it was not opened to them.
    pub fn remote(&self, domain: &Arc<Domain>) -> Option<(u64, u32)> {
        let registration = self.registration.as_ref().filter(|it| Arc::ptr_eq(&it.domain, domain))?;
        Some((self.start.as_ptr() as u64, registration.remote?))
    }

    /// The key for requests of this domain.
    pub(crate) fn key(&self, domain: &Arc<Domain>) -> Option<u32> {
        let registration = self.registration.as_ref()?;
        Arc::ptr_eq(&registration.domain, domain).then_some(registration.key)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` leads to `length` initialised bytes that this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let lent = self.lent.get().and_then(Option::as_deref);
        for registration in self.registration.iter().chain(lent) {
            // SAFETY: a region of this domain, which is still there.
            unsafe { (registration.domain.library.ibv_dereg_mr)(registration.region.as_ptr()) };
        }
        if self.piece.is_none() {
            // SAFETY: allocated with this layout, in `zeroed`, and the device has let go of it.
            unsafe { alloc::dealloc(self.start.as_ptr(), layout(self.length)) }
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.length).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_pages() {
        let mut buffer = Buffer::zeroed(5000);
        assert_eq!((buffer.len(), buffer.as_ptr() as usize % ALIGNMENT), (8192, 0));
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer[8191] = 1;
        assert_eq!(Buffer::zeroed(0).len(), ALIGNMENT);
    }

    #[test]
    fn pieces_of_the_file_are_zeros_and_apart() {
        let taken = [Piece::take(8192).unwrap(), Piece::take(4096).unwrap()];
        for (piece, length) in taken.iter().zip([8192, 4096]) {
            // SAFETY: the piece's own bytes.
            let bytes = unsafe { std::slice::from_raw_parts_mut(piece.start().as_ptr(), length) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
        }
    }
}
