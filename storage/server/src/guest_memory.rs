//! Bytes that buffers of an unauthenticated host take from its memory, until the host authenticates.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::UnauthenticatedShare;

/// The memory of the unauthenticated host of a connection. Buffers that outlive the connection keep it.
#[derive(Debug)]
pub struct GuestMemory(Mutex<Option<Arc<UnauthenticatedShare>>>);

/// Bytes of this memory that are taken; returned when this is dropped.
#[derive(Debug)]
pub struct GuestCharge {
    memory: Arc<GuestMemory>,
    bytes: usize,
}

impl GuestMemory {
    /// The memory of a host that holds this share.
    pub fn new(share: Arc<UnauthenticatedShare>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(share))))
    }

    fn share(&self) -> MutexGuard<'_, Option<Arc<UnauthenticatedShare>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes`; `None` if the budget of unauthenticated hosts does not allow it.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Option<GuestCharge> {
        let is_allowed = self.share().as_ref().is_none_or(|share| share.grow(bytes));
        is_allowed.then(|| GuestCharge {
            memory: Arc::clone(self),
            bytes,
        })
    }

    /// Ends all charges, because the host is authenticated.
    pub fn end(&self) {
        *self.share() = None;
    }
}

impl GuestCharge {
    /// Adds the bytes of another charge to the same memory.
    pub fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Returns `bytes` of it.
    pub fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if let Some(share) = &*self.memory.share() {
            share.shrink(bytes);
        }
    }
}

impl Drop for GuestCharge {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}
