//! Memory regions and windows.

use crate::context::context;
use crate::dm::DeviceMemory;
use crate::dmabuf::Mapping;
use crate::pd::pd;
use crate::qp::qp;
use abi::{ibv_mr, ibv_mw, ibv_mw_bind, ibv_pd, ibv_qp, ibv_sge};
use core::ffi::c_void;
use door::{Errno, door};
use rnic::{
    Access, Data, Lkey, Operation, RegionChange, RegionInit, RegionKeys, SendFlags, SendRequest, Window,
    WindowBinding, WindowKind,
};
use std::sync::Arc;
use wire::Rkey;

/// Rights as C gives them. Optional ones that the device does not know are ignored, as the manual page
/// asks.
pub(crate) fn access(bits: u32) -> Result<Access, Errno> {
    Access::from_bits(bits & !abi::IBV_ACCESS_OPTIONAL_RANGE).ok_or(Errno::INVALID)
}

/// A region that a program has.
#[repr(C)]
pub(crate) struct Region {
    pub(crate) abi: ibv_mr,
    pub(crate) beneath: Beneath,
}

/// What a region lies in.
pub(crate) enum Beneath {
    /// The program's own memory.
    Program,
    /// Device memory, which cannot go before it.
    Device(Arc<DeviceMemory>),
    /// A mapping of ours, which goes with it.
    Mapping(Mapping),
}

/// # Safety
/// `domain` is a live protection domain.
pub(crate) unsafe fn register(
    domain: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    bits: u32,
    beneath: Beneath,
) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: as above.
    let (below, raw) = unsafe { (pd(domain)?, (*domain).context) };
    let init = RegionInit { address: addr as u64, length: length as u64, iova, access: access(bits)? };
    if !init.access.contains(Access::ON_DEMAND) {
        bring_in(init.address, init.length, init.access)?;
    }
    // SAFETY: a domain's context lives longer than the domain.
    let keys = unsafe { context(raw) }.device.with(|rnic, _| rnic.register(below.handle, init))?;
    // SAFETY: as above.
    unsafe { context(raw) }.objects().regions.insert(keys.lkey.value(), length);
    // SAFETY: as above.
    Ok(unsafe { boxed(domain, addr, length, keys, beneath) })
}

/// A region as C has it.
///
/// # Safety
/// `domain` is a live protection domain.
pub(crate) unsafe fn boxed(
    domain: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    keys: RegionKeys,
    beneath: Beneath,
) -> *mut ibv_mr {
    // SAFETY: as above.
    let context = unsafe { (*domain).context };
    let (lkey, rkey) = (keys.lkey.value(), keys.rkey.0);
    let abi = ibv_mr { context, pd: domain, addr, length, handle: lkey, lkey, rkey };
    Box::into_raw(Box::new(Region { abi, beneath })).cast()
}

/// A region's pages are brought in when it is registered, and must be there.
fn bring_in(address: u64, length: u64, access: Access) -> Result<(), Errno> {
    host::pin(address, length, access.contains(Access::LOCAL_WRITE)).map_err(|error| match error {
        host::PinError::Fault => Errno(libc::EFAULT),
        host::PinError::Kernel(error) => error.into(),
    })
}

/// A binding of a window, from C's.
///
/// # Safety
/// `info.mr` is NULL or a live region.
pub(crate) unsafe fn binding(
    window: Window,
    rkey: Rkey,
    info: &abi::ibv_mw_bind_info,
) -> Result<WindowBinding, Errno> {
    // SAFETY: as above.
    let region = unsafe { info.mr.as_ref() }.map_or(0, |region| region.lkey);
    Ok(WindowBinding {
        window,
        rkey,
        region: Lkey::from_value(region),
        address: info.addr,
        length: info.length,
        access: access(info.mw_access_flags)?,
    })
}

door! {
    fn ibv_reg_mr(domain: *mut ibv_pd, addr: *mut c_void, length: usize, bits: i32) -> pointer(*mut ibv_mr) {
        register(domain, addr, length, addr as u64, bits as u32, Beneath::Program)
    }

    fn ibv_reg_mr_iova(domain: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, bits: i32)
        -> pointer(*mut ibv_mr) {
        register(domain, addr, length, iova, bits as u32, Beneath::Program)
    }

    fn ibv_reg_mr_iova2(domain: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, bits: u32)
        -> pointer(*mut ibv_mr) {
        register(domain, addr, length, iova, bits, Beneath::Program)
    }

    /// Answers -1 (the old region is valid, the input was not) or -4 (the region is lost), and sets
    /// `errno`.
    fn ibv_rereg_mr(
        raw: *mut ibv_mr, flags: i32, domain: *mut ibv_pd, addr: *mut c_void, length: usize, bits: i32,
    ) -> number(i32) {
        let region = raw.as_mut().ok_or(Errno::INVALID)?;
        let flags = flags as u32;
        if flags == 0 || flags & !7 != 0 {
            return Err(Errno::INVALID);
        }
        let has = |flag| flags & flag != 0;
        let change = RegionChange {
            translation: has(abi::IBV_REREG_MR_CHANGE_TRANSLATION)
                .then_some((addr as u64, length as u64, addr as u64)),
            pd: if has(abi::IBV_REREG_MR_CHANGE_PD) { Some(pd(domain)?.handle) } else { None },
            access: if has(abi::IBV_REREG_MR_CHANGE_ACCESS) { Some(access(bits as u32)?) } else { None },
        };
        if let Some((address, length, _)) = change.translation {
            bring_in(address, length, change.access.unwrap_or_default())?;
        }
        let keys = context(region.context)
            .device
            .with(|rnic, _| rnic.reregister(Lkey::from_value(region.handle), change))?;
        let before = region.handle;
        (region.lkey, region.handle, region.rkey) = (keys.lkey.value(), keys.lkey.value(), keys.rkey.0);
        if change.translation.is_some() {
            (region.addr, region.length) = (addr, length);
        }
        let regions = &mut context(region.context).objects().regions;
        regions.remove(&before);
        regions.insert(region.handle, region.length);
        if change.pd.is_some() {
            region.pd = domain;
        }
        Ok(0)
    }

    /// Pages are brought in before this returns, with or without `IBV_ADVISE_MR_FLAG_FLUSH`. Without page
    /// faults, pages that are there are ready already.
    fn advise_mr(domain: *mut ibv_pd, advice: u32, flags: u32, list: *mut ibv_sge, count: u32) -> code(i32) {
        const PREFETCH: u32 = 0;
        const PREFETCH_WRITE: u32 = 1;
        const PREFETCH_NO_FAULT: u32 = 2;
        const FLUSH: u32 = 1;
        pd(domain)?;
        if flags & !FLUSH != 0 || count == 0 || list.is_null() {
            return Err(Errno::INVALID);
        }
        let rights = match advice {
            PREFETCH => Access::empty(),
            PREFETCH_WRITE => Access::LOCAL_WRITE,
            PREFETCH_NO_FAULT => return Ok(()),
            _ => return Err(Errno::UNSUPPORTED),
        };
        for range in core::slice::from_raw_parts(list, count as usize) {
            bring_in(range.addr, range.length.into(), rights)?;
        }
        Ok(())
    }

    fn ibv_dereg_mr(raw: *mut ibv_mr) -> code(i32) {
        let region = raw.as_ref().ok_or(Errno::INVALID)?;
        context(region.context).device.with(|rnic, _| rnic.deregister(Lkey::from_value(region.handle)))?;
        context(region.context).objects().regions.remove(&region.handle);
        let region = Box::from_raw(raw.cast::<Region>());
        match region.beneath {
            Beneath::Program => {}
            Beneath::Device(memory) => memory.release(),
            Beneath::Mapping(mapping) => drop(mapping),
        }
        Ok(())
    }

    /// A region of all addresses with nothing behind them. Peers have no key for it.
    fn alloc_null_mr(domain: *mut ibv_pd) -> pointer(*mut ibv_mr) {
        let (below, owner) = (pd(domain)?, context((*domain).context));
        let lkey = owner.device.with(|rnic, _| rnic.register_null(below.handle))?;
        let keys = RegionKeys { lkey, rkey: Rkey(0) };
        Ok(boxed(domain, core::ptr::null_mut(), usize::MAX, keys, Beneath::Program))
    }

    fn alloc_mw(domain: *mut ibv_pd, kind: u32) -> pointer(*mut ibv_mw) {
        let (below, raw) = (pd(domain)?, (*domain).context);
        let window_kind = match kind {
            abi::IBV_MW_TYPE_1 => WindowKind::Type1,
            abi::IBV_MW_TYPE_2 => WindowKind::Type2,
            _ => return Err(Errno::INVALID),
        };
        let (window, rkey) =
            context(raw).device.with(|rnic, _| rnic.alloc_window(below.handle, window_kind))?;
        let handle = window.value();
        Ok(Box::into_raw(Box::new(ibv_mw { context: raw, pd: domain, rkey: rkey.0, handle, mw_type: kind })))
    }

    fn dealloc_mw(raw: *mut ibv_mw) -> code(i32) {
        let window = raw.as_ref().ok_or(Errno::INVALID)?;
        let handle = Window::from_value(window.handle);
        context(window.context).device.with(|rnic, _| rnic.dealloc_window(handle))?;
        drop(Box::from_raw(raw));
        Ok(())
    }

    /// Type 1: the device chooses the new key.
    fn bind_mw(queue: *mut ibv_qp, raw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> code(i32) {
        let (queue, window) = (qp(queue)?, raw.as_mut().ok_or(Errno::INVALID)?);
        let bind = bind.as_ref().ok_or(Errno::INVALID)?;
        let handle = Window::from_value(window.handle);
        let device = &context(window.context).device;
        let rkey = device.with(|rnic, _| rnic.next_window_key(handle))?;
        let request = SendRequest {
            id: bind.wr_id,
            operation: Operation::BindWindow(binding(handle, rkey, &bind.bind_info)?),
            flags: SendFlags::from_bits_truncate(bind.send_flags),
            data: Data::Inline(&[]),
            destination: None,
            xrc_srq: None,
        };
        device.post_send(queue.qpn, &request)?;
        window.rkey = rkey.0;
        Ok(())
    }
}
