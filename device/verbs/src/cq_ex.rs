//! Extended polling: one completion at a time, read field by field.

use crate::cq::{Cq, work_completion};
use crate::record;
use abi::{ibv_cq, ibv_cq_ex, ibv_poll_cq_attr};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use ffi::{In, Live, exports};
use rnic::Completion;

/// Sets the queue's function pointers, which `static inline` functions call.
pub(crate) fn table(base: ibv_cq) -> ibv_cq_ex {
    ibv_cq_ex {
        base,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        read_completion_ts: Some(read_completion_ns),
        read_cvlan: Some(read_none_u16),
        read_flow_tag: Some(read_none_u32),
        read_tm_info: Some(read_tm_info),
        read_completion_wallclock_ns: Some(read_completion_wallclock_ns),
    }
}

/// A completion queue that the program polls: between `start_poll` and `end_poll` by one thread.
pub(crate) type Polled<'a> = Live<'a, Cq, ibv_cq_ex>;

/// Makes the next completion the current one. Only the thread that polls the queue calls this.
fn advance(queue: Polled<'_>) -> i32 {
    let count = queue.context.device.poll_cq(queue.handle, 1, |completion| {
        make_current(queue, completion)
    });
    if count == 0 { libc::ENOENT } else { 0 }
}

/// Makes a completion the current one. Only the thread that polls the queue calls this.
#[inline(always)]
pub(crate) fn make_current(queue: Polled<'_>, completion: &Completion) {
    let raw = queue.raw();
    if let Some(recorder) = record::active() {
        recorder.completed(completion);
    }
    // SAFETY: the fields of a live queue are those of the thread that polls it, until `end_poll`.
    unsafe {
        (*raw).status = completion.status as u32;
        (*raw).wr_id = completion.id;
    }
    // SAFETY: the cell is that of the thread that polls the queue, until `end_poll`.
    unsafe { queue.current.get().write(work_completion(completion)) };
    // SAFETY: the cell is that of the thread that polls the queue, until `end_poll`.
    unsafe { queue.current_at_ns.get().write(completion.at_ns) };
}

/// Takes the queue for the thread that polls it, and makes the first completion the current one.
pub(crate) fn begin_poll(
    queue: Polled<'_>,
    attr: &In<'_, *mut ibv_poll_cq_attr>,
    advance: impl FnOnce(Polled<'_>) -> i32,
) -> i32 {
    if attr.optional().is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    while queue.polling.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    let answer = advance(queue);
    if answer != 0 {
        // `start_poll` failed, so the program will not call `end_poll`.
        queue.polling.store(false, Ordering::Release);
    }
    answer
}

/// Nanoseconds from the device's clock to the wall clock's, now.
fn wall_clock_offset_ns(now: rnic::Instant) -> u64 {
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(wall.as_nanos())
        .unwrap_or(u64::MAX)
        .wrapping_sub(now.0)
}

macro_rules! read {
    ($($name:ident: $type:ty = |$completion:ident| $value:expr;)*) => {
        exports! {$(
            fn $name(queue: Polled<'_>) -> plain($type) {
                // SAFETY: the cell is that of the thread that polls the queue, until `end_poll`.
                let $completion = unsafe { &*queue.current.get() };
                $value
            }
        )*}
    };
}

read! {
    read_opcode: u32 = |completion| completion.opcode;
    read_vendor_err: u32 = |completion| completion.vendor_err;
    read_byte_len: u32 = |completion| completion.byte_len;
    read_imm_data: u32 = |completion| completion.imm_data;
    read_qp_num: u32 = |completion| completion.qp_num;
    read_src_qp: u32 = |completion| completion.src_qp;
    read_slid: u32 = |completion| completion.slid.into();
    read_sl: u8 = |completion| completion.sl;
    read_dlid_path_bits: u8 = |completion| completion.dlid_path_bits;
    read_wc_flags: u32 = |completion| completion.wc_flags;
}

extern "C" fn read_none_u32(_: *mut ibv_cq_ex) -> u32 {
    0
}

extern "C" fn read_none_u16(_: *mut ibv_cq_ex) -> u16 {
    0
}

extern "C" fn read_tm_info(_: *mut ibv_cq_ex, _: *mut c_void) {}

exports! {
    fn start_poll(queue: Polled<'_>, attr: In<'_, *mut ibv_poll_cq_attr>) -> plain(i32) {
        begin_poll(queue, &attr, advance)
    }

    fn next_poll(queue: Polled<'_>) -> plain(i32) {
        advance(queue)
    }

    fn end_poll(queue: Polled<'_>) -> plain(()) {
        queue.polling.store(false, Ordering::Release);
    }

    fn read_completion_ns(queue: Polled<'_>) -> plain(u64) {
        // SAFETY: the cell is that of the thread that polls the queue, until `end_poll`.
        unsafe { *queue.current_at_ns.get() }
    }

    fn read_completion_wallclock_ns(queue: Polled<'_>) -> plain(u64) {
        let offset_ns = queue.context.device.with(|_, now| wall_clock_offset_ns(now));
        // SAFETY: the cell is that of the thread that polls the queue, until `end_poll`.
        unsafe { *queue.current_at_ns.get() }.wrapping_add(offset_ns)
    }
}
