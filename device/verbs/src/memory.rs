//! Memory regions.

use crate::context::{Context, ContextRef};
use crate::device_memory::DeviceMemory;
use crate::faulty::register;
use crate::mapping::Mapping;
use crate::packed::Packed;
use crate::pd::PdArg;
use crate::traced;
use abi::{ibv_mr, ibv_sge};
use core::ffi::c_void;
use ffi::{BeginsWith, Errno, GivenUp, Object, Subject, exports};
use rnic::{Access, Lkey, RegionChange, RegionInit, RegionKeys};
use std::sync::Arc;
use wire::Rkey;

/// Access flags from C. Optional flags that the device does not know are ignored, as `ibv_reg_mr(3)`
/// requires.
pub(crate) fn access(bits: u32) -> Result<Access, Errno> {
    Access::from_bits(bits & !abi::IBV_ACCESS_OPTIONAL_RANGE).ok_or(Errno::INVALID)
}

/// A memory region. C sees the first field.
#[repr(C)]
pub(crate) struct Region {
    pub(crate) abi: ibv_mr,
    pub(crate) backing: Backing,
    context: ContextRef,
}

// SAFETY: C sees the first field; `boxed` makes the pointers.
unsafe impl BeginsWith<ibv_mr> for Region {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}

/// The memory that a region lies in.
pub(crate) enum Backing {
    /// The program's own memory.
    Program,
    /// Device memory, which cannot be freed before the region.
    Device(Arc<DeviceMemory>),
    /// A mapping of this library, unmapped with the region.
    Mapping(Mapping),
}

/// Registers memory with the device.
pub(crate) fn register(
    domain: PdArg<'_>,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    bits: u32,
    backing: Backing,
) -> Result<*mut ibv_mr, Errno> {
    let is_of_program = matches!(backing, Backing::Program);
    let keys = keys_of(domain, addr, length, iova, bits, is_of_program);
    if traced::is_on() {
        traced::registered(addr as u64, length, iova, Some(bits), &keys);
    }
    boxed(domain, addr, length, keys?, backing)
}

/// Registers memory with the device, and returns its keys.
fn keys_of(
    domain: PdArg<'_>,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    bits: u32,
    is_of_program: bool,
) -> Result<RegionKeys, Errno> {
    let below = domain.get()?;
    let init = RegionInit {
        address: addr as u64,
        length: length as u64,
        iova,
        access: access(bits)?,
    };
    check_registered(&below.context, length)?;
    if !init.access.contains(Access::ON_DEMAND) {
        touch_pages(init.address, init.length, init.access)?;
    }
    let keys = below
        .context
        .device
        .with(|rnic, _| rnic.memory().register(below.handle, init))?;
    below
        .context
        .objects()
        .regions
        .insert(keys.lkey.value(), length);
    if is_of_program && host::faults::is_on() {
        register::registered(&below.context, &init, keys.lkey);
    }
    Ok(keys)
}

/// Refuses a region with which the device would have more bytes registered than a rule of faults allows.
fn check_registered(context: &Context, length: usize) -> Result<(), Errno> {
    if !host::faults::is_on() {
        return Ok(());
    }
    let most = host::faults::registered_bytes(&context.device.info().name);
    let now: u64 = context
        .objects()
        .regions
        .values()
        .map(|bytes| *bytes as u64)
        .sum();
    match most.is_some_and(|most| now.saturating_add(length as u64) > most) {
        true => Err(Errno::NO_MEMORY),
        false => Ok(()),
    }
}

/// A region as C's struct.
///
/// # Errors
/// `EINVAL` where the domain is NULL.
pub(crate) fn boxed(
    domain: PdArg<'_>,
    addr: *mut c_void,
    length: usize,
    keys: RegionKeys,
    backing: Backing,
) -> Result<*mut ibv_mr, Errno> {
    let context = domain.get()?.context.clone();
    let (pd, lkey, rkey) = (domain.raw(), keys.lkey.value(), keys.rkey.0);
    let abi = ibv_mr {
        context: context.raw(),
        pd,
        addr,
        length,
        handle: lkey,
        lkey,
        rkey,
    };
    Ok(Box::into_raw(Box::new(Region {
        abi,
        backing,
        context,
    }))
    .cast())
}

/// Registration touches the region's pages, and fails where one is not mapped.
fn touch_pages(address: u64, length: u64, access: Access) -> Result<(), Errno> {
    host::pin(address, length, access.contains(Access::LOCAL_WRITE)).map_err(|error| match error {
        host::PinError::Fault => Errno(libc::EFAULT),
        host::PinError::Kernel(error) => error.into(),
    })
}

exports! {
    fn ibv_reg_mr(domain: PdArg<'_>, addr: *mut c_void, length: usize, bits: i32) -> pointer(*mut ibv_mr) {
        register(domain, addr, length, addr as u64, bits as u32, Backing::Program)
    }

    fn ibv_reg_mr_iova(domain: PdArg<'_>, addr: *mut c_void, length: usize, iova: u64, bits: i32)
        -> pointer(*mut ibv_mr) {
        register(domain, addr, length, iova, bits as u32, Backing::Program)
    }

    fn ibv_reg_mr_iova2(domain: PdArg<'_>, addr: *mut c_void, length: usize, iova: u64, bits: u32)
        -> pointer(*mut ibv_mr) {
        register(domain, addr, length, iova, bits, Backing::Program)
    }

    /// Returns -1 (the old region is valid, the input was not) or -4 (the region is lost), and sets `errno`.
    fn ibv_rereg_mr(
        raw: Object<'_, Region, ibv_mr>, flags: i32, domain: PdArg<'_>, addr: *mut c_void, length: usize,
        bits: i32,
    ) -> number(i32) {
        let context = &raw.get()?.context;
        // SAFETY: what C sees of a live region, of which the program makes one such call at a time.
        let region = unsafe { &mut *raw.raw() };
        let flags = flags as u32;
        if flags == 0 || flags & !7 != 0 {
            return Err(Errno::INVALID);
        }
        let has = |flag| flags & flag != 0;
        let change = RegionChange {
            translation: has(abi::IBV_REREG_MR_CHANGE_TRANSLATION)
                .then_some((addr as u64, length as u64, addr as u64)),
            pd: if has(abi::IBV_REREG_MR_CHANGE_PD) { Some(domain.get()?.handle) } else { None },
            access: if has(abi::IBV_REREG_MR_CHANGE_ACCESS) { Some(access(bits as u32)?) } else { None },
        };
        if let Some((address, length, _)) = change.translation {
            touch_pages(address, length, change.access.unwrap_or_default())?;
        }
        let handle = Lkey::from_value(region.handle);
        let keys = context.device.with(|rnic, _| rnic.memory().reregister(handle, change))?;
        let before = region.handle;
        if traced::is_on() {
            traced::deregistered(region.lkey, region.rkey, &Ok(()));
        }
        (region.lkey, region.handle, region.rkey) = (keys.lkey.value(), keys.lkey.value(), keys.rkey.0);
        if change.translation.is_some() {
            (region.addr, region.length) = (addr, length);
        }
        let regions = &mut context.objects().regions;
        regions.remove(&before);
        regions.insert(region.handle, region.length);
        if change.pd.is_some() {
            region.pd = domain.raw();
        }
        if traced::is_on() {
            let address = region.addr as u64;
            let bits = change.access.map(|access| access.bits());
            traced::registered(address, region.length, address, bits, &Ok(keys));
        }
        Ok(0)
    }

    /// Pages are touched before this returns, with or without `IBV_ADVISE_MR_FLAG_FLUSH`. With
    /// `IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT` nothing is done, because resident pages are usable already.
    fn advise_mr(domain: PdArg<'_>, advice: u32, flags: u32, list: *mut ibv_sge, count: u32) -> code(i32) {
        const PREFETCH: u32 = 0;
        const PREFETCH_WRITE: u32 = 1;
        const PREFETCH_NO_FAULT: u32 = 2;
        const FLUSH: u32 = 1;
        domain.get()?;
        if flags & !FLUSH != 0 || count == 0 || list.is_null() {
            return Err(Errno::INVALID);
        }
        let rights = match advice {
            PREFETCH => Access::empty(),
            PREFETCH_WRITE => Access::LOCAL_WRITE,
            PREFETCH_NO_FAULT => return Ok(()),
            _ => return Err(Errno::UNSUPPORTED),
        };
        // SAFETY: the program passes `count` elements.
        let ranges = unsafe { core::slice::from_raw_parts(list.cast::<Packed<ibv_sge>>(), count as usize) };
        for range in ranges.iter().map(|range| range.get()) {
            if host::faults::are_lost(range.addr, range.length.into()) {
                return Err(Errno(libc::EFAULT));
            }
            touch_pages(range.addr, range.length.into(), rights)?;
        }
        Ok(())
    }

    fn ibv_dereg_mr(given_up: GivenUp<Region, ibv_mr>) -> code(i32) {
        let region = given_up.get()?;
        let handle = region.abi.handle;
        let ended = region.context.device.with(|rnic, _| rnic.memory().deregister(Lkey::from_value(handle)));
        let ended = match ended {
            // The device has lost it already, of which the program knows nothing.
            Err(rnic::Error::NoSuchObject) if region.context.objects().expired.contains(&handle) => Ok(()),
            ended => ended.map_err(Errno::from),
        };
        if traced::is_on() {
            traced::deregistered(region.abi.lkey, region.abi.rkey, &ended);
        }
        ended?;
        let mut objects = region.context.objects();
        objects.regions.remove(&handle);
        objects.expired.remove(&handle);
        drop(objects);
        register::deregistered(&region.context, Lkey::from_value(handle));
        match given_up.take().map(|region| region.backing) {
            Some(Backing::Device(memory)) => memory.release(),
            Some(Backing::Mapping(mapping)) => drop(mapping),
            Some(Backing::Program) | None => {}
        }
        Ok(())
    }

    /// A region of all addresses, without memory behind it. Its remote key is 0.
    fn alloc_null_mr(domain: PdArg<'_>) -> pointer(*mut ibv_mr) {
        let below = domain.get()?;
        let lkey = below.context.device.with(|rnic, _| rnic.memory().register_null(below.handle))?;
        let keys = RegionKeys { lkey, rkey: Rkey(0) };
        boxed(domain, core::ptr::null_mut(), usize::MAX, keys, Backing::Program)
    }
}
