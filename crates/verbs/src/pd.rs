//! Protection domains, thread and parent domains, XRC domains.

use crate::context::{OpenXrcd, context};
use abi::{
    ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr, ibv_xrcd, ibv_xrcd_init_attr,
};
use door::{Errno, door};
use host::OpenDomain;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain, or a parent domain on top of one.
#[repr(C)]
pub(crate) struct Pd {
    abi: ibv_pd,
    pub(crate) handle: rnic::Pd,
    /// Parent domains on top of this one.
    children: AtomicU32,
    /// What this parent domain is on top of.
    below: Option<(*const Self, *const Td)>,
}

/// A thread domain: a promise of the program that makes nothing faster here.
#[repr(C)]
pub(crate) struct Td {
    abi: ibv_td,
    users: AtomicU32,
}

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    abi: ibv_xrcd,
    pub(crate) handle: rnic::Xrcd,
}

/// The domain behind a pointer of C.
///
/// # Safety
/// The pointer is one that this library gave out, and is not freed.
pub(crate) unsafe fn pd<'a>(pd: *mut ibv_pd) -> Result<&'a Pd, Errno> {
    // SAFETY: as above.
    unsafe { pd.cast::<Pd>().as_ref() }.ok_or(Errno::INVALID)
}

/// The domain behind a pointer of C.
///
/// # Safety
/// The pointer is one that this library gave out, and is not freed.
pub(crate) unsafe fn xrcd<'a>(xrcd: *mut ibv_xrcd) -> Result<&'a Xrcd, Errno> {
    // SAFETY: as above.
    unsafe { xrcd.cast::<Xrcd>().as_ref() }.ok_or(Errno::INVALID)
}

/// A domain as C has it.
pub(crate) fn boxed(
    context: *mut ibv_context,
    handle: rnic::Pd,
    below: Option<(*const Pd, *const Td)>,
) -> *mut ibv_pd {
    let abi = ibv_pd { context, handle: handle.value() };
    Box::into_raw(Box::new(Pd { abi, handle, children: AtomicU32::new(0), below })).cast()
}

door! {
    fn ibv_alloc_pd(raw: *mut ibv_context) -> pointer(*mut ibv_pd) {
        let handle = context(raw).device.with(|rnic, _| rnic.alloc_pd())?;
        context(raw).objects().pds.insert(handle.value());
        Ok(boxed(raw, handle, None))
    }

    fn ibv_dealloc_pd(raw: *mut ibv_pd) -> code(i32) {
        let domain = pd(raw)?;
        if domain.children.load(Ordering::Relaxed) > 0 {
            return Err(Errno::BUSY);
        }
        match domain.below {
            Some((below, thread)) => {
                (*below).children.fetch_sub(1, Ordering::Relaxed);
                if let Some(thread) = thread.as_ref() {
                    thread.users.fetch_sub(1, Ordering::Relaxed);
                }
            }
            None => {
                let owner = context(domain.abi.context);
                owner.device.with(|rnic, _| rnic.dealloc_pd(domain.handle))?;
                owner.objects().pds.remove(&domain.handle.value());
            }
        }
        drop(Box::from_raw(raw.cast::<Pd>()));
        Ok(())
    }

    fn alloc_parent_domain(raw: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr)
        -> pointer(*mut ibv_pd) {
        let attr = attr.as_ref().ok_or(Errno::INVALID)?;
        // Allocators for the provider's buffers, and their context: there are no such buffers.
        if attr.comp_mask & !3 != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let below = pd(attr.pd)?;
        below.children.fetch_add(1, Ordering::Relaxed);
        let thread = attr.td.cast::<Td>();
        if let Some(thread) = thread.as_ref() {
            thread.users.fetch_add(1, Ordering::Relaxed);
        }
        Ok(boxed(raw, below.handle, Some((below, thread))))
    }

    fn alloc_td(raw: *mut ibv_context, attr: *mut ibv_td_init_attr) -> pointer(*mut ibv_td) {
        if attr.as_ref().is_some_and(|attr| attr.comp_mask != 0) {
            return Err(Errno::UNSUPPORTED);
        }
        Ok(Box::into_raw(Box::new(Td { abi: ibv_td { context: raw }, users: AtomicU32::new(0) })).cast())
    }

    fn dealloc_td(raw: *mut ibv_td) -> code(i32) {
        let domain = raw.cast::<Td>();
        if domain.as_ref().ok_or(Errno::INVALID)?.users.load(Ordering::Relaxed) > 0 {
            return Err(Errno::BUSY);
        }
        drop(Box::from_raw(domain));
        Ok(())
    }

    /// A file names a domain to all processes that open it on this interface.
    fn open_xrcd(raw: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> pointer(*mut ibv_xrcd) {
        let attr = attr.as_ref().ok_or(Errno::INVALID)?;
        if attr.comp_mask & !(abi::IBV_XRCD_INIT_ATTR_FD | abi::IBV_XRCD_INIT_ATTR_OFLAGS) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let owner = context(raw);
        let file = if attr.comp_mask & abi::IBV_XRCD_INIT_ATTR_FD == 0 || attr.fd == -1 {
            None
        } else {
            Some(identity(attr.fd)?)
        };
        let mut objects = owner.objects();
        let known = objects.xrcds.iter_mut().find(|domain| file.is_some() && domain.file == file);
        let handle = match known {
            Some(_) if attr.oflags & libc::O_EXCL != 0 => return Err(Errno::INVALID),
            Some(domain) => {
                domain.users += 1;
                domain.handle
            }
            None if file.is_none() && attr.oflags & libc::O_CREAT == 0 => return Err(Errno::INVALID),
            None => {
                let (make, anew) = (attr.oflags & libc::O_CREAT != 0, attr.oflags & libc::O_EXCL != 0);
                let handle = owner.device.open_domain(OpenDomain { file, make, anew })?;
                objects.xrcds.push(OpenXrcd { file, handle, users: 1 });
                handle
            }
        };
        Ok(Box::into_raw(Box::new(Xrcd { abi: ibv_xrcd { context: raw }, handle })).cast())
    }

    fn close_xrcd(raw: *mut ibv_xrcd) -> code(i32) {
        let domain = xrcd(raw)?;
        let owner = context(domain.abi.context);
        let mut objects = owner.objects();
        let position = objects.xrcds.iter().position(|open| open.handle == domain.handle);
        let position = position.ok_or(Errno::INVALID)?;
        if objects.xrcds[position].users == 1 {
            owner.device.close_domain(domain.handle)?;
            objects.xrcds.swap_remove(position);
        } else {
            objects.xrcds[position].users -= 1;
        }
        drop(Box::from_raw(raw.cast::<Xrcd>()));
        Ok(())
    }
}

/// Which file a descriptor leads to: device and inode.
pub(crate) fn identity(fd: i32) -> Result<(u64, u64), Errno> {
    // SAFETY: zero is a value of every field.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the struct is there.
    if unsafe { libc::fstat(fd, &raw mut found) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok((found.st_dev, found.st_ino))
}
