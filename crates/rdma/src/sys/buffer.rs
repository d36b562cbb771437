//! Data buffers: aligned to pages for direct I/O and RDMA, never moved, and optionally registered with a
//! device.

use std::alloc::{self, Layout};
use std::ffi::c_int;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use abi::{IBV_MW_TYPE_2, ibv_mr, ibv_mw, ibv_mw_bind_info, ibv_wr_bind_mw};

use super::arena::Piece;
use super::domain::Domain;
use super::library::failed;
use crate::Error;

/// Alignment of buffers and unit of their length, in bytes.
pub const ALIGNMENT: usize = 4096;

/// From this length on memory is mapped, because the kernel then zeroes pages on first access.
const MAPPED_MIN: usize = 256 << 10;
/// No access rights: only requests of this process may read.
const READ_ONLY: c_int = 0;
/// `IBV_ACCESS_LOCAL_WRITE`: requests of this process may write.
const LOCAL_WRITE: c_int = 1;
/// Local write, `IBV_ACCESS_REMOTE_WRITE` and `IBV_ACCESS_REMOTE_READ`.
const REMOTE: c_int = 2 | 4;
/// `IBV_ACCESS_MW_BIND`: peers get access by memory windows that are bound to the region.
const BINDABLE: c_int = 16;
/// The byte of a window's key that each binding changes (IBTA 10.6.7.2.2).
const KEY_BYTE: u32 = 0xff;

/// Bytes whose address is fixed while the buffer lives.
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
    registration: Option<Registration>,
    /// Registration for reading a shared buffer, with the first device that needs it; `None` inside where
    /// that device takes no more memory.
    shared_registration: OnceLock<Option<Box<Registration>>>,
    /// A mapping; other buffers are on the heap.
    piece: Option<Box<Piece>>,
}

struct Registration {
    domain: Arc<Domain>,
    region: NonNull<ibv_mr>,
    key: u32,
    /// The remote key, if peers may access the buffer.
    remote: Option<u32>,
    /// The memory window whose key that is, if it is not the region's.
    window: Option<NonNull<ibv_mw>>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(window) = self.window {
            // SAFETY: a window of the domain's device that nothing else uses. This ends its binding.
            unsafe {
                let context = self.domain.raw.as_ref().context;
                (*context).ops.dealloc_mw.map(|deallocate| deallocate(window.as_ptr()));
            }
        }
        // SAFETY: a region of this domain, which is still there, and to which no window is bound any more.
        unsafe { (self.domain.library.ibv_dereg_mr)(self.region.as_ptr()) };
    }
}

// SAFETY: a buffer owns its memory alone, as a Box would, and verbs may be called from any thread.
unsafe impl Send for Buffer {}
// SAFETY: shared access reads only.
unsafe impl Sync for Buffer {}

/// A buffer that several RDMA READs fill, each a range of it. Its bytes can be used when all of them have
/// completed: each holds a reference meanwhile.
#[derive(Debug)]
pub struct Landing(Buffer);

impl Landing {
    /// Takes a registered buffer.
    pub fn new(buffer: Buffer) -> Arc<Self> {
        Arc::new(Self(buffer))
    }

    /// The buffer, when no READ works on it.
    ///
    /// # Errors
    /// The landing itself while READs are outstanding.
    pub fn into_buffer(self: Arc<Self>) -> Result<Buffer, Arc<Self>> {
        Arc::try_unwrap(self).map(|landing| landing.0)
    }

    /// Address, length and local key of a range; `None` when it exceeds the buffer, or connections of the
    /// domain cannot use the buffer.
    pub(crate) fn place(&self, domain: &Arc<Domain>, range: Range<usize>) -> Option<(u64, u32, u32)> {
        let bytes = self.0.get(range)?;
        Some((bytes.as_ptr() as u64, u32::try_from(bytes.len()).ok()?, self.0.key(domain)?))
    }
}

fn whole_pages(length: usize) -> usize {
    length.max(1).next_multiple_of(ALIGNMENT)
}

fn layout(length: usize) -> Layout {
    Layout::from_size_align(length, ALIGNMENT).expect("buffers have at most a few MiB")
}

impl Buffer {
    /// A buffer of at least `length` zeroed bytes, rounded up to whole pages and at least one.
    ///
    /// # Panics
    /// When `length` is larger than an address space.
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
        Self { start, length, registration: None, shared_registration: OnceLock::new(), piece: None }
    }

    fn of(piece: Piece, length: usize) -> Self {
        let (start, shared_registration) = (piece.start(), OnceLock::new());
        Self { start, length, registration: None, shared_registration, piece: Some(Box::new(piece)) }
    }

    /// A buffer registered with the device of a domain, for this process's requests only. Peers have no
    /// access.
    ///
    /// # Errors
    /// When the device registers no more memory.
    pub fn registered(domain: &Arc<Domain>, length: usize) -> Result<Self, Error> {
        Self::zeroed(length).with_access(domain, LOCAL_WRITE)
    }

    /// A buffer that peers of this domain's connections may read and write, as long as it lives, if they are
    /// told [`Buffer::remote`]. A peer may write at any time, so the contents have to be validated before
    /// use. Peers on this host can map it.
    ///
    /// # Errors
    /// As [`Buffer::registered`].
    pub fn open(domain: &Arc<Domain>, length: usize) -> Result<Self, Error> {
        Self::mappable(length).with_access(domain, LOCAL_WRITE | REMOTE)
    }

    /// A buffer that the peer of one connection may read and write from
    /// [`Connection::bind`](crate::Connection::bind) on, by a key that a SEND with Invalidate of the peer
    /// ends. As for [`Buffer::open`], its contents have to be validated.
    ///
    /// # Errors
    /// As [`Buffer::registered`], and when the device has no memory windows of type 2.
    pub fn windowed(domain: &Arc<Domain>, length: usize) -> Result<Self, Error> {
        let mut buffer = Self::mappable(length).with_access(domain, LOCAL_WRITE | BINDABLE)?;
        let pd = domain.raw.as_ptr();
        // SAFETY: the domain's own device, and its table of functions.
        let window = unsafe {
            let allocate = (*(*pd).context).ops.alloc_mw;
            allocate.map_or(std::ptr::null_mut(), |allocate| allocate(pd, IBV_MW_TYPE_2))
        };
        let window = NonNull::new(window).ok_or_else(|| failed("ibv_alloc_mw"))?;
        if let Some(registration) = &mut buffer.registration {
            registration.window = Some(window);
        }
        Ok(buffer)
    }

    /// Memory that peers on this host can map, if there is any left.
    fn mappable(length: usize) -> Self {
        let length = whole_pages(length);
        match Piece::take(length) {
            Some(piece) => Self::of(piece, length),
            None => Self::zeroed(length),
        }
    }

    /// The next binding of the window to the first `length` bytes; `None` when the buffer has no window of
    /// this domain, or the length exceeds it.
    pub(crate) fn next_binding(&mut self, domain: &Arc<Domain>, length: usize) -> Option<ibv_wr_bind_mw> {
        let bytes = self.get(..length)?;
        let (addr, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
        let registration = self.registration.as_mut().filter(|it| Arc::ptr_eq(&it.domain, domain))?;
        let window = registration.window?;
        // SAFETY: the buffer's own window.
        let last = registration.remote.unwrap_or(unsafe { window.as_ref() }.rkey);
        let rkey = (last & !KEY_BYTE) | (last.wrapping_add(1) & KEY_BYTE);
        registration.remote = Some(rkey);
        let mw_access_flags = REMOTE as u32;
        let bind_info = ibv_mw_bind_info { mr: registration.region.as_ptr(), addr, length, mw_access_flags };
        Some(ibv_wr_bind_mw { mw: window.as_ptr(), rkey, bind_info })
    }

    fn with_access(mut self, domain: &Arc<Domain>, access: c_int) -> Result<Self, Error> {
        self.registration = Some(self.register(domain, access)?);
        Ok(self)
    }

    fn register(&self, domain: &Arc<Domain>, access: c_int) -> Result<Registration, Error> {
        let (start, size) = (self.start.as_ptr(), self.length);
        // SAFETY: the memory belongs to this buffer, and is freed after it was deregistered, in `drop`.
        // Without remote access only requests of this process use it: they own the buffer, or only read a
        // shared one. With remote access the peer may write at any time, and any bytes are valid contents.
        let region = unsafe { (domain.library.ibv_reg_mr)(domain.raw.as_ptr(), start.cast(), size, access) };
        let region = NonNull::new(region).ok_or_else(|| failed("ibv_reg_mr"))?;
        // SAFETY: a region that was just made.
        let (key, rkey) = unsafe { (region.as_ref().lkey, region.as_ref().rkey) };
        let remote = (access & REMOTE != 0).then_some(rkey);
        Ok(Registration { domain: Arc::clone(domain), region, key, remote, window: None })
    }

    /// Whether connections of this domain can use the buffer.
    pub fn is_known_to(&self, domain: &Arc<Domain>) -> bool {
        self.key(domain).is_some()
    }

    /// The local key for requests of this domain that read a shared buffer.
    pub(crate) fn read_key(&self, domain: &Arc<Domain>) -> Option<u32> {
        if let Some(key) = self.key(domain) {
            return Some(key);
        }
        let shared_registration = self
            .shared_registration
            .get_or_init(|| {
                let refused = |error| tracing::warn!("a shared buffer is not registered: {error}");
                self.register(domain, READ_ONLY).map_err(refused).ok().map(Box::new)
            })
            .as_ref();
        shared_registration.filter(|it| Arc::ptr_eq(&it.domain, domain)).map(|it| it.key)
    }

    /// Address and remote key for peers; `None` when the buffer was not opened to them, or has a window that
    /// was never bound.
    pub fn remote(&self, domain: &Arc<Domain>) -> Option<(u64, u32)> {
        let registration = self.registration.as_ref().filter(|it| Arc::ptr_eq(&it.domain, domain))?;
        Some((self.start.as_ptr() as u64, registration.remote?))
    }

    /// The local key for requests of this domain.
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
        // SAFETY: the memory is allocated with this length, and this has the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        drop(self.registration.take());
        drop(self.shared_registration.take());
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
    fn pieces_are_zeroed_and_disjoint() {
        let taken = [Piece::take(8192).unwrap(), Piece::take(4096).unwrap()];
        for (piece, length) in taken.iter().zip([8192, 4096]) {
            // SAFETY: the piece's own bytes.
            let bytes = unsafe { std::slice::from_raw_parts_mut(piece.start().as_ptr(), length) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
        }
    }
}
