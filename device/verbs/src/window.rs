//! Memory windows.

use crate::context::ContextRef;
use crate::memory::access;
use crate::pd::PdArg;
use crate::qp::QpArg;
use abi::{ibv_mw, ibv_mw_bind};
use ffi::{BeginsWith, Errno, GivenUp, In, Object, Subject, exports};
use rnic::{Data, Lkey, Operation, SendFlags, SendRequest, Window, WindowBinding, WindowKind};
use wire::Rkey;

/// A memory window. C sees the first field.
#[repr(C)]
pub(crate) struct MemoryWindow {
    abi: ibv_mw,
    context: ContextRef,
}

// SAFETY: C sees the first field; `alloc_mw` makes the pointers.
unsafe impl BeginsWith<ibv_mw> for MemoryWindow {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}

/// A window binding, from C's struct.
///
/// # Safety
/// `info.mr` is NULL or a live region.
pub(crate) unsafe fn binding(
    window: Window,
    rkey: Rkey,
    info: &abi::ibv_mw_bind_info,
) -> Result<WindowBinding, Errno> {
    // SAFETY: by this function's contract, `info.mr` is NULL or a live region.
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

exports! {
    fn alloc_mw(domain: PdArg<'_>, kind: u32) -> pointer(*mut ibv_mw) {
        let below = domain.get()?;
        let window_kind = match kind {
            abi::IBV_MW_TYPE_1 => WindowKind::Type1,
            abi::IBV_MW_TYPE_2 => WindowKind::Type2,
            _ => return Err(Errno::INVALID),
        };
        let (window, rkey) =
            below.context.device.with(|rnic, _| rnic.memory().alloc_window(below.handle, window_kind))?;
        let handle = window.value();
        let (context, pd) = (below.context.clone(), domain.raw());
        let abi = ibv_mw { context: context.raw(), pd, rkey: rkey.0, handle, mw_type: kind };
        Ok(Box::into_raw(Box::new(MemoryWindow { abi, context })).cast())
    }

    fn dealloc_mw(given_up: GivenUp<MemoryWindow, ibv_mw>) -> code(i32) {
        let window = given_up.get()?;
        let handle = Window::from_value(window.abi.handle);
        window.context.device.with(|rnic, _| rnic.memory().dealloc_window(handle))?;
        given_up.free();
        Ok(())
    }

    /// Type 1 windows: the device chooses the new key.
    fn bind_mw(queue: QpArg<'_>, raw: Object<'_, MemoryWindow, ibv_mw>, bind: In<'_, *mut ibv_mw_bind>)
        -> code(i32) {
        let (queue, window, bind) = (queue.get()?, raw.get()?, bind.get()?);
        let handle = Window::from_value(window.abi.handle);
        let device = &window.context.device;
        let rkey = device.with(|rnic, _| rnic.memory().next_window_key(handle))?;
        // SAFETY: the request names a live region or NULL.
        let binding = unsafe { binding(handle, rkey, &bind.bind_info) }?;
        let request = SendRequest {
            id: bind.wr_id,
            operation: Operation::BindWindow(binding),
            flags: SendFlags::from_bits_truncate(bind.send_flags),
            data: Data::Inline(&[]),
            destination: None,
            xrc_srq: None,
        };
        device.post_send(queue.qpn, &request)?;
        // SAFETY: a field of a live window, of which the program makes one such call at a time.
        unsafe { (*raw.raw()).rkey = rkey.0 };
        Ok(())
    }
}
