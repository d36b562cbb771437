//! Registration of buffers: a protection domain registers buffers that requests of its connections can use,
//! and has their keys.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use abi::{IBV_MW_TYPE_2, ibv_mr, ibv_mw, ibv_mw_bind_info, ibv_wr_bind_mw};
use buffer::Buffer;

use super::domain::Domain;
use super::library::failed;
use crate::Error;

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

/// A memory region of a domain's device, which a buffer carries.
struct Registration {
    domain: Arc<Domain>,
    region: NonNull<ibv_mr>,
    key: u32,
    /// The remote key, if peers may access the buffer.
    remote: Option<u32>,
    /// The memory window whose key that is, if it is not the region's.
    window: Option<NonNull<ibv_mw>>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Registration {}
// SAFETY: shared access reads keys only.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(window) = self.window {
            // SAFETY: a window of the domain's device that nothing else uses. This ends its binding.
            unsafe {
                let context = self.domain.raw.as_ref().context;
                (*context)
                    .ops
                    .dealloc_mw
                    .map(|deallocate| deallocate(window.as_ptr()));
            }
        }
        // SAFETY: a region of this domain, which is still there, and to which no window is bound any more.
        unsafe { (self.domain.library.ibv_dereg_mr)(self.region.as_ptr()) };
    }
}

impl Domain {
    /// A buffer registered with the device of this domain, for this process's requests only. Peers have no
    /// access.
    ///
    /// # Errors
    /// When the device registers no more memory.
    pub fn registered(self: &Arc<Self>, length: usize) -> Result<Buffer, Error> {
        self.with_access(Buffer::zeroed(length), LOCAL_WRITE)
    }

    /// A buffer that peers of this domain's connections may read and write, as long as it lives, if they have
    /// received [`Domain::remote`]. A peer may write at any time, so the contents have to be validated before
    /// use. Peers on this host can map it.
    ///
    /// # Errors
    /// As [`Domain::registered`].
    pub fn open(self: &Arc<Self>, length: usize) -> Result<Buffer, Error> {
        self.with_access(Buffer::mappable(length), LOCAL_WRITE | REMOTE)
    }

    /// A buffer that the peer of one connection may read and write from
    /// [`Connection::bind`](crate::Connection::bind) on, by a key that a SEND with Invalidate of the peer
    /// ends. As for [`Domain::open`], its contents have to be validated.
    ///
    /// # Errors
    /// As [`Domain::registered`], and when the device has no memory windows of type 2.
    pub fn windowed(self: &Arc<Self>, length: usize) -> Result<Buffer, Error> {
        let mut buffer = self.with_access(Buffer::mappable(length), LOCAL_WRITE | BINDABLE)?;
        let pd = self.raw.as_ptr();
        // SAFETY: the domain's own device, and its table of functions.
        let window = unsafe {
            let allocate = (*(*pd).context).ops.alloc_mw;
            allocate.map_or(ptr::null_mut(), |allocate| allocate(pd, IBV_MW_TYPE_2))
        };
        let window = NonNull::new(window).ok_or_else(|| failed("ibv_alloc_mw"))?;
        if let Some(registration) = buffer.registration_mut::<Registration>() {
            registration.window = Some(window);
        }
        Ok(buffer)
    }

    fn with_access(self: &Arc<Self>, mut buffer: Buffer, access: c_int) -> Result<Buffer, Error> {
        let registration = self.register(&buffer, access)?;
        buffer.attach(Box::new(registration));
        Ok(buffer)
    }

    /// Registers a buffer's memory. The caller stores the registration in the buffer.
    fn register(self: &Arc<Self>, buffer: &Buffer, access: c_int) -> Result<Registration, Error> {
        let (start, size) = (buffer.start().as_ptr().cast(), buffer.len());
        // SAFETY: the memory belongs to the buffer, which drops its registrations before it frees the memory,
        // and never gives one back. Without remote access only requests of this process use it: they own the
        // buffer, or only read a shared one. With remote access the peer may write at any time, and any bytes
        // are valid contents.
        let region = unsafe { (self.library.ibv_reg_mr)(self.raw.as_ptr(), start, size, access) };
        let region = NonNull::new(region).ok_or_else(|| failed("ibv_reg_mr"))?;
        // SAFETY: a region that was just made.
        let (key, rkey) = unsafe { (region.as_ref().lkey, region.as_ref().rkey) };
        let remote = (access & REMOTE != 0).then_some(rkey);
        Ok(Registration {
            domain: Arc::clone(self),
            region,
            key,
            remote,
            window: None,
        })
    }

    /// The registration of a buffer, if it is one with this domain.
    fn registration<'b>(&self, buffer: &'b Buffer) -> Option<&'b Registration> {
        buffer
            .registration::<Registration>()
            .filter(|it| self.is(&it.domain))
    }

    fn is(&self, other: &Arc<Self>) -> bool {
        ptr::eq(self, Arc::as_ptr(other))
    }

    /// Whether connections of this domain can use the buffer.
    pub fn has_registered(&self, buffer: &Buffer) -> bool {
        self.registration(buffer).is_some()
    }

    /// Address and remote key for peers; `None` when the buffer was not opened to them, or has a window that
    /// was never bound.
    pub fn remote(&self, buffer: &Buffer) -> Option<(u64, u32)> {
        Some((buffer.as_ptr() as u64, self.registration(buffer)?.remote?))
    }

    /// The local key for requests of this domain.
    pub(crate) fn key(&self, buffer: &Buffer) -> Option<u32> {
        Some(self.registration(buffer)?.key)
    }

    /// The local key for requests of this domain that read a shared buffer.
    pub(crate) fn read_key(self: &Arc<Self>, buffer: &Buffer) -> Option<u32> {
        if let Some(key) = self.key(buffer) {
            return Some(key);
        }
        let refused = |error| tracing::warn!("a shared buffer is not registered: {error}");
        let registration =
            buffer.shared_registration(|| self.register(buffer, READ_ONLY).map_err(refused).ok());
        registration
            .filter(|it| self.is(&it.domain))
            .map(|it| it.key)
    }

    /// The next binding of the buffer's window to its first `length` bytes; `None` when it has no window of
    /// this domain, or the length exceeds it.
    pub(crate) fn next_binding(
        &self,
        buffer: &mut Buffer,
        length: usize,
    ) -> Option<ibv_wr_bind_mw> {
        let bytes = buffer.get(..length)?;
        let (addr, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
        let registration = buffer
            .registration_mut::<Registration>()
            .filter(|it| self.is(&it.domain))?;
        let window = registration.window?;
        // SAFETY: the buffer's own window.
        let last = registration
            .remote
            .unwrap_or(unsafe { window.as_ref() }.rkey);
        let rkey = (last & !KEY_BYTE) | (last.wrapping_add(1) & KEY_BYTE);
        registration.remote = Some(rkey);
        let mw_access_flags = REMOTE as u32;
        let bind_info = ibv_mw_bind_info {
            mr: registration.region.as_ptr(),
            addr,
            length,
            mw_access_flags,
        };
        Some(ibv_wr_bind_mw {
            mw: window.as_ptr(),
            rkey,
            bind_info,
        })
    }
}
