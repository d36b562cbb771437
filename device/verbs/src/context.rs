//! Open devices: the context that C sees, and the objects created in it.

use crate::device::ListedDevice;
use crate::device_memory::DeviceMemory;
use abi::{ibv_context, verbs_context};
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ops::{Deref, DerefMut};
use ffi::Argument;
use ffi::{Subject, lock};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// An open device. C sees the first field.
#[repr(C)]
pub(crate) struct Context {
    abi: verbs_context,
    pub(crate) device: Arc<host::Device>,
    /// Objects of the device, by handle; contexts that import the device share them.
    objects: Arc<Mutex<Objects>>,
    /// `cmd_fd`, the descriptor by which a program imports the device.
    _command: Option<OwnedFd>,
    /// References: one of the program until it closes the context, and one of each object created in it.
    references: AtomicUsize,
}

/// A reference to a context, which keeps it and its device open while an object of it exists. Programs may
/// close a device before they destroy its objects (pyverbs does where a constructor fails), and each object
/// points to its context.
#[derive(Debug)]
pub(crate) struct ContextRef(*mut ibv_context);

/// An open context, as an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextArg<'a>(*mut ibv_context, PhantomData<&'a Context>);

impl Argument for ContextArg<'_> {
    type Raw = *mut ibv_context;

    #[inline(always)]
    unsafe fn from_raw(raw: *mut ibv_context) -> Self {
        Self(raw, PhantomData)
    }

    fn describe(&self, subject: &mut Subject) {
        (**self).describe(subject);
    }
}

impl ContextArg<'_> {
    /// The pointer that C has.
    pub(crate) const fn raw(self) -> *mut ibv_context {
        self.0
    }

    /// Makes a reference for an object that is created in the context.
    pub(crate) fn hold(self) -> ContextRef {
        // SAFETY: by the contract of `from_raw`, the context is live.
        unsafe { ContextRef::new(self.0) }
    }
}

impl Deref for ContextArg<'_> {
    type Target = Context;

    #[inline(always)]
    fn deref(&self) -> &Context {
        // SAFETY: by the contract of `from_raw`, the context is live.
        unsafe { context(self.0) }
    }
}

impl ContextRef {
    /// # Safety
    /// `raw` is a live context.
    pub(crate) unsafe fn new(raw: *mut ibv_context) -> Self {
        // SAFETY: by this function's contract, `raw` is a live context.
        unsafe { context(raw) }
            .references
            .fetch_add(1, Ordering::Relaxed);
        Self(raw)
    }

    /// The pointer that C has.
    #[inline(always)]
    pub(crate) const fn raw(&self) -> *mut ibv_context {
        self.0
    }
}

impl Clone for ContextRef {
    fn clone(&self) -> Self {
        // SAFETY: this holds the context, which is live therefore.
        unsafe { Self::new(self.0) }
    }
}

impl Deref for ContextRef {
    type Target = Context;

    #[inline(always)]
    fn deref(&self) -> &Context {
        // SAFETY: this holds the context, which is live therefore.
        unsafe { context(self.0) }
    }
}

impl Drop for ContextRef {
    fn drop(&mut self) {
        // SAFETY: the context was live when this was made, and this has held it since.
        unsafe { release(self.0) };
    }
}

/// Drops one reference to a context; the last one closes the device.
///
/// # Safety
/// The caller owns the reference, and does not use it any more.
pub(crate) unsafe fn release(raw: *mut ibv_context) {
    // SAFETY: by this function's contract, the caller owns the reference, and does not use it any more.
    unsafe {
        let opened = core::ptr::from_ref(context(raw)).cast_mut();
        if (*opened).references.fetch_sub(1, Ordering::AcqRel) == 1 {
            let device = (*raw).device;
            drop(Box::from_raw(opened));
            ListedDevice::release(device);
        }
    }
}

/// Addresses of C's objects, by the device's handles.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) cqs: HashMap<u32, usize>,
    pub(crate) qps: HashMap<u32, usize>,
    pub(crate) srqs: HashMap<u32, usize>,
    /// Locked apart: opening or closing a domain waits for the agent.
    pub(crate) xrcds: Arc<Mutex<Vec<OpenXrcd>>>,
    /// Objects that can be imported by handle (`ibv_import_pd(3)`).
    pub(crate) pds: HashSet<u32>,
    /// Length of each region in bytes.
    pub(crate) regions: HashMap<u32, usize>,
    /// Keys of regions that a rule of faults has taken away from the device.
    pub(crate) expired: HashSet<u32>,
    pub(crate) device_memories: HashMap<u32, Arc<DeviceMemory>>,
    pub(crate) device_memories_made: u32,
}

/// An XRC domain.
pub(crate) struct OpenXrcd {
    /// Device and inode of the file that names it, if any.
    pub(crate) file: Option<(u64, u64)>,
    pub(crate) handle: rnic::Xrcd,
    /// How many handles to it are open.
    pub(crate) users: u32,
}

/// The objects, locked. A fork in another thread waits, since the child would inherit a locked mutex.
pub(crate) struct Locked<'a> {
    objects: MutexGuard<'a, Objects>,
    _inside: host::Inside,
}

impl Deref for Locked<'_> {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Objects {
        &mut self.objects
    }
}

impl Context {
    /// Completion vectors: one, because one thread makes all progress.
    pub(crate) const VECTORS: u32 = 1;

    /// Opens a context of the device. The pointer that C gets points into the struct.
    pub(crate) fn open(
        abi: verbs_context,
        device: Arc<host::Device>,
        objects: Arc<Mutex<Objects>>,
        command: Option<OwnedFd>,
    ) -> *mut ibv_context {
        let references = AtomicUsize::new(1);
        let opened = Box::into_raw(Box::new(Self {
            abi,
            device,
            objects,
            _command: command,
            references,
        }));
        // SAFETY: just made.
        unsafe { &raw mut (*opened).abi.context }
    }

    /// Says which device this is, for rules of faults.
    pub(crate) fn describe(&self, subject: &mut Subject) {
        subject.device = Some(self.device.info().name.clone());
    }

    /// The objects, for what happens later, unless the context is closed then.
    pub(crate) fn weak_objects(&self) -> Weak<Mutex<Objects>> {
        Arc::downgrade(&self.objects)
    }

    pub(crate) fn objects(&self) -> Locked<'_> {
        let inside = host::enter();
        Locked {
            objects: lock(&self.objects),
            _inside: inside,
        }
    }
}

/// The context behind a C pointer, which points to a field in its middle.
///
/// # Safety
/// The pointer comes from `ibv_open_device`, and the context is open or has objects left.
pub(crate) unsafe fn context<'a>(raw: *mut ibv_context) -> &'a Context {
    // SAFETY: by this function's contract, the pointer comes from `ibv_open_device`, and the context is
    // open or has objects left.
    unsafe {
        &*raw
            .byte_sub(offset_of!(verbs_context, context))
            .cast::<Context>()
    }
}
