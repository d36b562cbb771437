//! The extended way to poll: one completion at a time, read field by field.

use crate::context::context;
use crate::cq::{self, Cq, CqInit, work_completion};
use abi::{ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use door::{Errno, door};

/// Fields that a completion can show: all up to the path bits, and the time stamps.
const FIELDS: u64 = 0x7f
    | abi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP as u64
    | abi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK as u64;

/// The functions of a queue, for `static inline` calls.
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
        read_slid: Some(read_none_u32),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_none_u8),
        read_completion_ts: Some(read_completion_ns),
        read_cvlan: Some(read_none_u16),
        read_flow_tag: Some(read_none_u32),
        read_tm_info: Some(read_tm_info),
        read_completion_wallclock_ns: Some(read_completion_wallclock_ns),
    }
}

/// Makes the next completion the current one.
///
/// # Safety
/// `raw` is a live queue that this thread polls.
unsafe fn advance(raw: *mut ibv_cq_ex) -> i32 {
    let queue = raw.cast::<Cq>();
    // SAFETY: as above; the cells are this thread's until `end_poll`.
    unsafe {
        let count = context((*raw).base.context).device.poll_cq((*queue).handle, 1, |completion| {
            (*raw).status = completion.status as u32;
            (*raw).wr_id = completion.id;
            *(*queue).current.get() = work_completion(completion);
            *(*queue).current_at_ns.get() = completion.at_ns;
        });
        if count == 0 { libc::ENOENT } else { 0 }
    }
}

/// Nanoseconds from the device's clock to the wall clock's, now.
fn wall_clock_offset_ns(now: rnic::Instant) -> u64 {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX).wrapping_sub(now.0)
}

macro_rules! read {
    ($($name:ident: $type:ty = |$completion:ident| $value:expr;)*) => {
        door! {$(
            fn $name(raw: *mut ibv_cq_ex) -> plain($type) {
                let $completion = &*(*raw.cast::<Cq>()).current.get();
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
    read_sl: u8 = |completion| completion.sl;
    read_wc_flags: u32 = |completion| completion.wc_flags;
}

extern "C" fn read_none_u32(_: *mut ibv_cq_ex) -> u32 {
    0
}

extern "C" fn read_none_u16(_: *mut ibv_cq_ex) -> u16 {
    0
}

extern "C" fn read_none_u8(_: *mut ibv_cq_ex) -> u8 {
    0
}

extern "C" fn read_tm_info(_: *mut ibv_cq_ex, _: *mut c_void) {}

door! {
    fn create_cq_ex(raw: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> pointer(*mut ibv_cq_ex) {
        let attr = attr.as_ref().ok_or(Errno::INVALID)?;
        let known = abi::IBV_CQ_INIT_ATTR_MASK_FLAGS | abi::IBV_CQ_INIT_ATTR_MASK_PD;
        if attr.wc_flags & !FIELDS != 0 || attr.comp_mask & !known != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let CqInit { entries, cq_context, channel, vector } = CqInit {
            entries: attr.cqe,
            cq_context: attr.cq_context,
            channel: attr.channel,
            vector: attr.comp_vector,
        };
        Ok(cq::create(raw, &CqInit { entries, cq_context, channel, vector })?.cast())
    }

    fn start_poll(raw: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> plain(i32) {
        if attr.as_ref().is_some_and(|attr| attr.comp_mask != 0) {
            return libc::EINVAL;
        }
        let polling = &(*raw.cast::<Cq>()).polling;
        while polling.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        let answer = advance(raw);
        if answer != 0 {
            // There is no `end_poll` after this.
            polling.store(false, Ordering::Release);
        }
        answer
    }

    fn next_poll(raw: *mut ibv_cq_ex) -> plain(i32) {
        advance(raw)
    }

    fn end_poll(raw: *mut ibv_cq_ex) -> plain(()) {
        (*raw.cast::<Cq>()).polling.store(false, Ordering::Release);
    }

    fn read_completion_ns(raw: *mut ibv_cq_ex) -> plain(u64) {
        *(*raw.cast::<Cq>()).current_at_ns.get()
    }

    fn read_completion_wallclock_ns(raw: *mut ibv_cq_ex) -> plain(u64) {
        let offset_ns = context((*raw).base.context).device.with(|_, now| wall_clock_offset_ns(now));
        (*(*raw.cast::<Cq>()).current_at_ns.get()).wrapping_add(offset_ns)
    }
}
