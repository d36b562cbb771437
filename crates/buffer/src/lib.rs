//! Data buffers: memory that is aligned to pages for direct I/O and RDMA, and never moves. A buffer can carry
//! a registration with a device, of which this crate knows only that it ends before the memory is freed. So
//! storage and protocols over TCP use buffers without knowing verbs; `rdma::Domain` registers them.
#![deny(unsafe_code)]

mod sys;

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::OnceLock;

use sys::memory::Memory;

/// Alignment of buffers and unit of their length, in bytes.
pub const ALIGNMENT: usize = 4096;

/// A registration of a buffer's memory with a device. Dropping it deregisters the memory.
pub type Registration = Box<dyn Any + Send + Sync>;

/// Bytes whose address is fixed while the buffer lives.
pub struct Buffer {
    // Fields are dropped in this order: registrations end before the memory is freed.
    registration: Option<Registration>,
    /// Registration for reading a shared buffer, with the first device that needs it; `None` inside where
    /// that device takes no more memory.
    shared_registration: OnceLock<Option<Registration>>,
    memory: Memory,
}

impl Buffer {
    /// A buffer of at least `length` zeroed bytes, rounded up to whole pages and at least one.
    ///
    /// # Panics
    /// When `length` is larger than an address space.
    pub fn zeroed(length: usize) -> Self {
        Self::of(Memory::zeroed(whole_pages(length)))
    }

    /// As [`Buffer::zeroed`], for contents of which most may stay zero: pages that are never written use no
    /// memory, and there are no large ones.
    ///
    /// # Panics
    /// As [`Buffer::zeroed`].
    pub fn sparse(length: usize) -> Self {
        Self::of(Memory::sparse(whole_pages(length)))
    }

    /// As [`Buffer::zeroed`], in memory that peers on this host can map, if there is any left.
    ///
    /// # Panics
    /// As [`Buffer::zeroed`].
    pub fn mappable(length: usize) -> Self {
        Self::of(Memory::mappable(whole_pages(length)))
    }

    fn of(memory: Memory) -> Self {
        Self { registration: None, shared_registration: OnceLock::new(), memory }
    }

    /// Asks the processor to load a range into its second-level cache, because it is read soon. Bytes beyond
    /// the buffer are left out.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        let end = range.end.min(self.len());
        sys::prefetch::prefetch(self.get(range.start..end).unwrap_or_default());
    }

    /// The address of the first byte, for registration.
    pub fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }

    /// Attaches a registration of this buffer's memory, in place of an earlier one. It is dropped before the
    /// memory is freed, and is never given back.
    pub fn attach(&mut self, registration: Registration) {
        self.registration = Some(registration);
    }

    /// The registration of type `R`, if the buffer has one.
    #[inline]
    pub fn registration<R: 'static>(&self) -> Option<&R> {
        self.registration.as_deref()?.downcast_ref()
    }

    /// As [`Buffer::registration`], to change it.
    pub fn registration_mut<R: 'static>(&mut self) -> Option<&mut R> {
        self.registration.as_deref_mut()?.downcast_mut()
    }

    /// The registration of type `R` for reading this buffer while it is shared. `register` is called the
    /// first time; its answer is kept, `None` included.
    pub fn shared_registration<R: Any + Send + Sync>(
        &self,
        register: impl FnOnce() -> Option<R>,
    ) -> Option<&R> {
        let kept = self.shared_registration.get_or_init(|| Some(Box::new(register()?)));
        kept.as_deref()?.downcast_ref()
    }
}

fn whole_pages(length: usize) -> usize {
    length.max(1).next_multiple_of(ALIGNMENT)
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn buffers_begin_at_pages() {
        for make in [Buffer::zeroed, Buffer::sparse, Buffer::mappable] {
            for (length, rounded) in [(0, ALIGNMENT), (5000, 8192), (1 << 20, 1 << 20)] {
                let mut buffer = make(length);
                assert_eq!((buffer.len(), buffer.as_ptr() as usize % ALIGNMENT), (rounded, 0));
                assert!(buffer.iter().all(|byte| *byte == 0));
                buffer[rounded - 1] = 1;
            }
        }
    }

    /// A registration that counts how often one has ended.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn registrations_end_when_they_are_replaced_and_with_the_buffer() {
        let ended = Arc::new(AtomicUsize::new(0));
        let mut buffer = Buffer::zeroed(1);
        assert!(buffer.registration::<Counted>().is_none());
        buffer.attach(Box::new(Counted(Arc::clone(&ended))));
        assert!(buffer.registration::<Counted>().is_some() && buffer.registration_mut::<u32>().is_none());
        buffer.attach(Box::new(7_u32));
        assert_eq!((ended.load(Ordering::Relaxed), buffer.registration()), (1, Some(&7_u32)));
        assert!(buffer.shared_registration(|| Some(Counted(Arc::clone(&ended)))).is_some());
        drop(buffer);
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn every_range_can_be_prefetched() {
        let mut buffer = Buffer::zeroed(ALIGNMENT);
        buffer.fill(3);
        for (start, end) in [(0, ALIGNMENT), (1, 2), (7, 7), (ALIGNMENT, 2 * ALIGNMENT), (9000, 9001)] {
            buffer.prefetch(start..end);
        }
        assert!(buffer.iter().all(|byte| *byte == 3));
    }

    #[test]
    fn a_shared_registration_is_made_once() {
        let buffer = Buffer::zeroed(1);
        assert_eq!(buffer.shared_registration::<u32>(|| None), None);
        assert_eq!(buffer.shared_registration(|| Some(1_u32)), None);
    }
}
