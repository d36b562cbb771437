//! Protection domains.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use abi::{ibv_context, ibv_pd};

use super::library::{Library, failed, library};
use crate::Error;

/// A protection domain: requests of a connection can use buffers of the same domain only.
pub struct Domain {
    pub(crate) library: &'static Library,
    pub(crate) raw: NonNull<ibv_pd>,
}

// SAFETY: verbs are safe to call from any thread (ibv_fork_init(3) and verbs(7) say so of all objects).
unsafe impl Send for Domain {}
// SAFETY: verbs on one object may be called from several threads at once (verbs(7)).
unsafe impl Sync for Domain {}

impl Domain {
    /// Creates a protection domain of a device.
    ///
    /// # Safety
    /// The context is open and stays open. librdmacm never closes its contexts.
    pub(crate) unsafe fn new(context: *mut ibv_context) -> Result<Arc<Self>, Error> {
        let library = library()?;
        // SAFETY: the caller's.
        let raw = unsafe { (library.ibv_alloc_pd)(context) };
        let raw = NonNull::new(raw).ok_or_else(|| failed("ibv_alloc_pd"))?;
        Ok(Arc::new(Self { library, raw }))
    }

    /// The domain that all accepted connections of a device share, so that memory is registered once. Its
    /// buffers are never opened to peers.
    ///
    /// # Safety
    /// As [`Domain::new`].
    pub(crate) unsafe fn shared_by_accepted(context: *mut ibv_context) -> Result<Arc<Self>, Error> {
        static DOMAINS: Mutex<Vec<(usize, Weak<Domain>)>> = Mutex::new(Vec::new());
        let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = domains.iter().find(|(of, _)| *of == context as usize);
        if let Some(domain) = known.and_then(|(_, domain)| domain.upgrade()) {
            return Ok(domain);
        }
        // SAFETY: the caller's.
        let domain = unsafe { Self::new(context) }?;
        domains.retain(|(_, domain)| domain.strong_count() > 0);
        domains.push((context as usize, Arc::downgrade(&domain)));
        Ok(domain)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Domain")
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: every object of the domain holds an Arc of it, so none is left.
        unsafe { (self.library.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}
