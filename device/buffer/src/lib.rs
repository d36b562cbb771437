//! Data buffers: memory that is aligned to pages for direct I/O and RDMA, and never moves. A buffer can carry
//! a registration with a device, of which this crate knows only that it ends before the memory is freed. So
//! storage and protocols over TCP use buffers without knowing verbs; `rdma::Domain` registers them.
#![deny(unsafe_code)]

mod pages;
mod sys;

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::OnceLock;

use pages::Pages;
pub use sys::heap::note_freed;
use sys::memory::Memory;

/// Alignment of buffers and unit of their length, in bytes.
pub const ALIGNMENT: usize = 4096;

/// A registration of a buffer's memory with a device. Dropping it deregisters the memory.
pub type Registration = Box<dyn Any + Send + Sync>;

/// What the owner of a buffer has been charged for it. Dropping it gives the bytes back.
pub type Charge = Box<dyn Any + Send + Sync>;

/// Bytes whose address is fixed while the buffer lives.
pub struct Buffer {
    // Fields are dropped in this order: registrations end before the memory is freed.
    registration: Option<Registration>,
    /// Registration for reading a shared buffer, with the first device that needs it; `None` inside where
    /// that device takes no more memory.
    shared_registration: OnceLock<Option<Registration>>,
    memory: Memory,
    /// Behind the memory: bytes are given back to a budget when they are free.
    charge: Option<Charge>,
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
        Self {
            registration: None,
            shared_registration: OnceLock::new(),
            memory,
            charge: None,
        }
    }

    /// Asks the processor to load a range into its second-level cache, because it is read soon. Bytes beyond
    /// the buffer are left out.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        let end = range.end.min(self.len());
        sys::prefetch::prefetch(self.get(range.start..end).unwrap_or_default());
    }

    /// Whether [`Buffer::refer`] may be called: the buffer is a mapping of its own, whose pages go back to
    /// the kernel when the buffer is dropped.
    pub fn can_be_referred(&self) -> bool {
        self.memory.referred().is_some()
    }

    /// Notes that the kernel may read the pages of this range at any later time, because a pipe or a socket
    /// refers to them. [`Buffer::renew`] has to be called before any of them is changed, and the buffer must
    /// not be used again for other contents; dropping it is safe.
    pub fn refer(&self, range: Range<usize>) {
        if let Some(referred) = self.memory.referred() {
            referred
                .get_or_init(|| Pages::new(self.len() / ALIGNMENT))
                .insert(&pages(&range));
        }
    }

    /// Whether the kernel may still read some of its pages.
    pub fn is_referred(&self) -> bool {
        self.memory
            .referred()
            .and_then(OnceLock::get)
            .is_some_and(|pages| !pages.is_empty())
    }

    /// Prepares the change of a range: pages that the kernel may still read are replaced by new ones with the
    /// same contents. Their bytes within the range are unspecified afterwards, and have to be written.
    /// `false`, without effect, where that is not possible: the buffer is registered with a device, or the
    /// kernel refuses it.
    #[must_use]
    pub fn renew(&mut self, range: Range<usize>) -> bool {
        let referred = self.memory.referred().and_then(OnceLock::get);
        if !referred.is_some_and(|it| it.has_any(&pages(&range))) {
            return true;
        }
        let is_registered = self.registration.is_some() || self.shared_registration.get().is_some();
        !is_registered && self.memory.replace_pages(&range)
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

    /// Sets what the buffer was charged to, and returns what was set before. It is dropped after the memory
    /// is freed.
    pub fn set_charge(&mut self, charge: Option<Charge>) -> Option<Charge> {
        std::mem::replace(&mut self.charge, charge)
    }

    /// The charge of type `C`, to change it.
    pub fn charge_mut<C: 'static>(&mut self) -> Option<&mut C> {
        self.charge.as_deref_mut()?.downcast_mut()
    }

    /// The registration of type `R` for reading this buffer while it is shared. `register` is called the
    /// first time; its answer is kept, `None` included.
    pub fn shared_registration<R: Any + Send + Sync>(
        &self,
        register: impl FnOnce() -> Option<R>,
    ) -> Option<&R> {
        let kept = self
            .shared_registration
            .get_or_init(|| Some(Box::new(register()?)));
        kept.as_deref()?.downcast_ref()
    }
}

/// The pages that a range touches.
fn pages(range: &Range<usize>) -> Range<usize> {
    range.start / ALIGNMENT..range.end.div_ceil(ALIGNMENT)
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
        f.debug_struct("Buffer")
            .field("length", &self.len())
            .finish()
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
                assert_eq!(
                    (buffer.len(), buffer.as_ptr() as usize % ALIGNMENT),
                    (rounded, 0)
                );
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
        assert!(
            buffer.registration::<Counted>().is_some()
                && buffer.registration_mut::<u32>().is_none()
        );
        buffer.attach(Box::new(7_u32));
        assert_eq!(
            (ended.load(Ordering::Relaxed), buffer.registration()),
            (1, Some(&7_u32))
        );
        assert!(
            buffer
                .shared_registration(|| Some(Counted(Arc::clone(&ended))))
                .is_some()
        );
        drop(buffer);
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_charge_ends_with_the_buffer_that_has_it() {
        let ended = Arc::new(AtomicUsize::new(0));
        let [mut one, mut other] = [1, 1].map(Buffer::zeroed);
        assert!(
            one.set_charge(Some(Box::new(Counted(Arc::clone(&ended)))))
                .is_none()
        );
        assert!(one.charge_mut::<Counted>().is_some() && one.charge_mut::<u32>().is_none());
        other.set_charge(one.set_charge(None));
        drop(one);
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(other);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn pages_that_are_referred_to_are_replaced_once() {
        const LENGTH: usize = 1 << 20;
        let mut buffer = Buffer::zeroed(LENGTH);
        buffer.fill(1);
        assert!(buffer.can_be_referred() && buffer.renew(0..LENGTH) && buffer[0] == 1);
        buffer.refer(ALIGNMENT + 1..3 * ALIGNMENT);
        assert!(buffer.is_referred() && buffer.renew(0..ALIGNMENT));
        assert!(buffer.renew(ALIGNMENT + 10..2 * ALIGNMENT + 10));
        let (before, behind) = (&buffer[..ALIGNMENT + 10], &buffer[2 * ALIGNMENT + 10..]);
        assert!(before.iter().chain(behind).all(|byte| *byte == 1));
        assert!(!buffer.is_referred());
        // The kernel's pages may be longer.
        buffer.refer(0..ALIGNMENT);
        assert!(buffer.renew(0..ALIGNMENT) && !buffer.is_referred());
        assert!(buffer[2 * ALIGNMENT + 10..].iter().all(|byte| *byte == 1));
        buffer.refer(0..LENGTH);
        assert!(buffer.shared_registration(|| Some(1_u32)).is_some());
        assert!(
            !buffer.renew(0..1) && buffer.is_referred(),
            "a device may have the pages"
        );
        assert!(
            !Buffer::zeroed(ALIGNMENT).can_be_referred()
                && !Buffer::mappable(LENGTH).can_be_referred()
        );
    }

    #[test]
    fn every_range_can_be_prefetched() {
        let mut buffer = Buffer::zeroed(ALIGNMENT);
        buffer.fill(3);
        for (start, end) in [
            (0, ALIGNMENT),
            (1, 2),
            (7, 7),
            (ALIGNMENT, 2 * ALIGNMENT),
            (9000, 9001),
        ] {
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
