//! Protection domains, thread and parent domains, XRC domains.

use crate::context::{ContextArg, ContextRef, OpenXrcd};
use abi::{
    ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr, ibv_xrcd, ibv_xrcd_init_attr,
};
use ffi::lock;
use ffi::{BeginsWith, Errno, GivenUp, In, Object, Subject, exports};
use host::OpenDomain;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain, or a parent domain based on one.
#[repr(C)]
pub(crate) struct Pd {
    abi: ibv_pd,
    pub(crate) handle: rnic::Pd,
    /// Parent domains based on this one, and address handles; the device counts its other users. The thread
    /// that finds none left frees the domain, so the others leave with release order, and it looks with
    /// acquire order.
    pub(crate) users: AtomicU32,
    /// The domain that this parent domain is based on.
    below: Option<(*const Self, *const Td)>,
    pub(crate) context: ContextRef,
}

/// A thread domain: the program promises to use its objects from one thread. It has no effect here.
#[repr(C)]
pub(crate) struct Td {
    abi: ibv_td,
    users: AtomicU32,
    _context: ContextRef,
}

/// An XRC domain. C sees the first field.
#[repr(C)]
pub(crate) struct Xrcd {
    abi: ibv_xrcd,
    pub(crate) handle: rnic::Xrcd,
    context: ContextRef,
}

// SAFETY: C sees the first field; `boxed` makes the pointers.
unsafe impl BeginsWith<ibv_pd> for Pd {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}
// SAFETY: C sees the first field; `alloc_td` makes the pointers.
unsafe impl BeginsWith<ibv_td> for Td {
    fn describe(&self, subject: &mut Subject) {
        self._context.describe(subject);
    }
}
// SAFETY: C sees the first field; `open_xrcd` makes the pointers.
unsafe impl BeginsWith<ibv_xrcd> for Xrcd {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}

/// A protection domain, as an argument.
pub(crate) type PdArg<'a> = Object<'a, Pd, ibv_pd>;

/// The protection domain behind a C pointer.
///
/// # Safety
/// The pointer comes from this library, and the domain is not freed.
pub(crate) unsafe fn pd<'a>(pd: *mut ibv_pd) -> Result<&'a Pd, Errno> {
    // SAFETY: by this function's contract, the pointer comes from this library, and the domain is not freed.
    unsafe { pd.cast::<Pd>().as_ref() }.ok_or(Errno::INVALID)
}

/// The XRC domain behind a C pointer.
///
/// # Safety
/// The pointer comes from this library, and the domain is not closed.
pub(crate) unsafe fn xrcd<'a>(xrcd: *mut ibv_xrcd) -> Result<&'a Xrcd, Errno> {
    // SAFETY: by this function's contract, the pointer comes from this library, and the domain is not closed.
    unsafe { xrcd.cast::<Xrcd>().as_ref() }.ok_or(Errno::INVALID)
}

/// A protection domain as C's struct.
pub(crate) fn boxed(
    context: ContextRef,
    handle: rnic::Pd,
    below: Option<(*const Pd, *const Td)>,
) -> *mut ibv_pd {
    let abi = ibv_pd {
        context: context.raw(),
        handle: handle.value(),
    };
    Box::into_raw(Box::new(Pd {
        abi,
        handle,
        users: AtomicU32::new(0),
        below,
        context,
    }))
    .cast()
}

exports! {
    fn ibv_alloc_pd(context: ContextArg<'_>) -> pointer(*mut ibv_pd) {
        let handle = context.device.with(|rnic, _| rnic.alloc_pd())?;
        context.objects().pds.insert(handle.value());
        Ok(boxed(context.hold(), handle, None))
    }

    fn ibv_dealloc_pd(given_up: GivenUp<Pd, ibv_pd>) -> code(i32) {
        let domain = given_up.get()?;
        if domain.users.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        match domain.below {
            Some((below, thread)) => {
                // SAFETY: a domain with users is not freed.
                unsafe { &*below }.users.fetch_sub(1, Ordering::Release);
                // SAFETY: NULL, or a thread domain with users, which is not freed.
                if let Some(thread) = unsafe { thread.as_ref() } {
                    thread.users.fetch_sub(1, Ordering::Release);
                }
            }
            None => {
                domain.context.device.with(|rnic, _| rnic.dealloc_pd(domain.handle))?;
                domain.context.objects().pds.remove(&domain.handle.value());
            }
        }
        given_up.free();
        Ok(())
    }

    fn alloc_parent_domain(context: ContextArg<'_>, attr: In<'_, *mut ibv_parent_domain_init_attr>)
        -> pointer(*mut ibv_pd) {
        let attr = attr.get()?;
        // The allocators in the attributes are for the provider's buffers; there are no such buffers.
        if attr.comp_mask & !3 != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        // SAFETY: the attributes name a live domain.
        let below = unsafe { pd(attr.pd) }?;
        below.users.fetch_add(1, Ordering::Relaxed);
        let thread = attr.td.cast::<Td>();
        // SAFETY: NULL, or a live thread domain.
        if let Some(thread) = unsafe { thread.as_ref() } {
            thread.users.fetch_add(1, Ordering::Relaxed);
        }
        Ok(boxed(context.hold(), below.handle, Some((below, thread))))
    }

    fn alloc_td(context: ContextArg<'_>, attr: In<'_, *mut ibv_td_init_attr>) -> pointer(*mut ibv_td) {
        if attr.optional().is_some_and(|attr| attr.comp_mask != 0) {
            return Err(Errno::UNSUPPORTED);
        }
        let (abi, context) = (ibv_td { context: context.raw() }, context.hold());
        Ok(Box::into_raw(Box::new(Td { abi, users: AtomicU32::new(0), _context: context })).cast())
    }

    fn dealloc_td(given_up: GivenUp<Td, ibv_td>) -> code(i32) {
        if given_up.get()?.users.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        given_up.free();
        Ok(())
    }

    /// The file names the domain for all processes that open it on this interface.
    fn open_xrcd(context: ContextArg<'_>, attr: In<'_, *mut ibv_xrcd_init_attr>) -> pointer(*mut ibv_xrcd) {
        let attr = attr.get()?;
        if attr.comp_mask & !(abi::IBV_XRCD_INIT_ATTR_FD | abi::IBV_XRCD_INIT_ATTR_OFLAGS) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let file = if attr.comp_mask & abi::IBV_XRCD_INIT_ATTR_FD == 0 || attr.fd == -1 {
            None
        } else {
            Some(identity(attr.fd)?)
        };
        // A stopped agent must not keep other threads from the table of objects.
        let (_inside, domains) = (host::enter(), Arc::clone(&context.objects().xrcds));
        let mut domains = lock(&domains);
        let known = domains.iter_mut().find(|domain| file.is_some() && domain.file == file);
        let handle = match known {
            Some(_) if attr.oflags & libc::O_EXCL != 0 => return Err(Errno::INVALID),
            Some(domain) => {
                domain.users += 1;
                domain.handle
            }
            None if file.is_none() && attr.oflags & libc::O_CREAT == 0 => return Err(Errno::INVALID),
            None => {
                let (make, anew) = (attr.oflags & libc::O_CREAT != 0, attr.oflags & libc::O_EXCL != 0);
                let handle = context.device.open_domain(OpenDomain { file, make, anew })?;
                domains.push(OpenXrcd { file, handle, users: 1 });
                handle
            }
        };
        let abi = ibv_xrcd { context: context.raw() };
        Ok(Box::into_raw(Box::new(Xrcd { abi, handle, context: context.hold() })).cast())
    }

    fn close_xrcd(given_up: GivenUp<Xrcd, ibv_xrcd>) -> code(i32) {
        let domain = given_up.get()?;
        let (inside, domains) = (host::enter(), Arc::clone(&domain.context.objects().xrcds));
        let mut open = lock(&domains);
        let position = open.iter().position(|known| known.handle == domain.handle);
        let position = position.ok_or(Errno::INVALID)?;
        if open[position].users == 1 {
            domain.context.device.close_domain(domain.handle)?;
            open.swap_remove(position);
        } else {
            open[position].users -= 1;
        }
        drop((open, inside));
        given_up.free();
        Ok(())
    }
}

/// Device and inode of the file behind a descriptor.
pub(crate) fn identity(fd: i32) -> Result<(u64, u64), Errno> {
    // SAFETY: zero is a value of every field.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the struct is there.
    if unsafe { libc::fstat(fd, &raw mut found) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok((found.st_dev, found.st_ino))
}
