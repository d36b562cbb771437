//! The `ibv_wr_…` functions: requests are built field by field, and posted together by `wr_complete`.

use crate::batch::{Batch, Local};
use crate::limits::INLINE;
use crate::packed::Packed;
use crate::post::{PostedQueue, check_send, send};
use crate::qp::Qp;
use abi::{
    ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_sge,
    ibv_wr_atomic, ibv_wr_bind_mw, ibv_wr_rdma, ibv_wr_remote, ibv_wr_ud,
};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use ffi::{Errno, In, Live, exports};
use rnic::QpType;

/// Operations that each transport supports.
pub(crate) fn check_send_ops(kind: QpType, asked: u64) -> Result<(), Errno> {
    let sends = abi::IBV_QP_EX_WITH_SEND | abi::IBV_QP_EX_WITH_SEND_WITH_IMM;
    let writes = abi::IBV_QP_EX_WITH_RDMA_WRITE | abi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let keys = abi::IBV_QP_EX_WITH_LOCAL_INV
        | abi::IBV_QP_EX_WITH_BIND_MW
        | abi::IBV_QP_EX_WITH_SEND_WITH_INV;
    let answered = abi::IBV_QP_EX_WITH_RDMA_READ
        | abi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | abi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | abi::IBV_QP_EX_WITH_ATOMIC_WRITE;
    let can = match kind {
        QpType::Ud => sends,
        QpType::Uc => sends | writes | keys,
        QpType::Rc | QpType::XrcSend => sends | writes | keys | answered,
        QpType::XrcReceive => 0,
    };
    if asked & !u64::from(can) == 0 {
        Ok(())
    } else {
        Err(Errno::UNSUPPORTED)
    }
}

/// Sets the queue pair's function pointers, which `static inline` functions call.
pub(crate) fn table(qp_base: ibv_qp) -> ibv_qp_ex {
    ibv_qp_ex {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(wr_atomic_cmp_swp),
        wr_atomic_fetch_add: Some(wr_atomic_fetch_add),
        wr_bind_mw: Some(wr_bind_mw),
        wr_local_inv: Some(wr_local_inv),
        wr_rdma_read: Some(wr_rdma_read),
        wr_rdma_write: Some(wr_rdma_write),
        wr_rdma_write_imm: Some(wr_rdma_write_imm),
        wr_send: Some(wr_send),
        wr_send_imm: Some(wr_send_imm),
        wr_send_inv: Some(wr_send_inv),
        wr_send_tso: Some(wr_send_tso),
        wr_set_ud_addr: Some(wr_set_ud_addr),
        wr_set_xrc_srqn: Some(wr_set_xrc_srqn),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        wr_atomic_write: Some(wr_atomic_write),
        wr_flush: core::ptr::null_mut(),
    }
}

/// A queue pair for which a thread builds requests: between `wr_start` and `wr_complete`.
pub(crate) type Built<'a> = Live<'a, Qp, ibv_qp_ex>;

/// The batch that this thread builds. A function of this file takes it once.
#[expect(clippy::mut_from_ref, reason = "`building` keeps other threads out")]
pub(crate) fn batch<'a>(queue: &'a Built<'_>) -> &'a mut Batch {
    // SAFETY: the batch is that of the thread between `wr_start` and `wr_complete`, which runs one function
    // of this file at a time.
    unsafe { &mut *queue.batch.get() }
}

/// Begins a request.
fn begin(queue: Built<'_>, opcode: u32, imm_data: u32, wr: ibv_wr_remote) {
    let raw = queue.raw();
    // SAFETY: fields of a live queue pair, which the thread that builds requests writes.
    let (wr_id, send_flags) = unsafe { ((*raw).wr_id, (*raw).wr_flags) };
    let info = ibv_mw_bind_info {
        mr: core::ptr::null_mut(),
        addr: 0,
        length: 0,
        mw_access_flags: 0,
    };
    let request = ibv_send_wr {
        wr_id,
        next: core::ptr::null_mut(),
        sg_list: core::ptr::null_mut(),
        num_sge: 0,
        opcode,
        send_flags: send_flags & !abi::IBV_SEND_INLINE,
        imm_data,
        wr,
        xrc_remote_srqn: 0,
        bind_mw: ibv_wr_bind_mw {
            mw: core::ptr::null_mut(),
            rkey: 0,
            bind_info: info,
        },
    };
    batch(&queue).requests.push((request, Local::default()));
}

const fn remote(rkey: u32, remote_addr: u64) -> ibv_wr_remote {
    atomic(rkey, remote_addr, 0, 0)
}

/// Writes the longest variant of the union, so that no byte of it stays unwritten; `rdma` has its address at
/// the same offset.
const fn atomic(rkey: u32, remote_addr: u64, compare_add: u64, swap: u64) -> ibv_wr_remote {
    ibv_wr_remote {
        atomic: ibv_wr_atomic {
            remote_addr,
            compare_add,
            swap,
            rkey,
        },
    }
}

/// Posts the requests of the batch, all or none.
fn post(queue: Built<'_>) -> Result<(), Errno> {
    let batch = batch(&queue);
    if let Some(errno) = batch.failure {
        return Err(errno);
    }
    batch.point_to_data();
    let posted = PostedQueue::of_qp(&queue);
    queue.context.device.post(|poster| {
        // A single request is posted or not. Of several, none may be executed before the last is known to be
        // accepted (ibv_wr_post(3)).
        let checked = if batch.requests.len() > 1 {
            &batch.requests[..]
        } else {
            &[]
        };
        for (before, (wr, _)) in checked.iter().enumerate() {
            // SAFETY: the lists are in this batch, the rest is the program's.
            unsafe { check_send(poster, posted, wr, before) }?;
        }
        for (wr, _) in &batch.requests {
            // SAFETY: the lists are in this batch, the rest is the program's.
            unsafe { send(poster, posted, wr) }?;
        }
        Ok(())
    })
}

exports! {
    fn wr_start(queue: Built<'_>) -> plain(()) {
        while queue.building.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        batch(&queue).clear();
    }

    fn wr_complete(queue: Built<'_>) -> code(i32) {
        let answer = post(queue);
        queue.building.store(false, Ordering::Release);
        answer
    }

    fn wr_abort(queue: Built<'_>) -> plain(()) {
        queue.building.store(false, Ordering::Release);
    }

    fn wr_send(queue: Built<'_>) -> plain(()) {
        begin(queue, abi::IBV_WR_SEND, 0, remote(0, 0));
    }

    fn wr_send_imm(queue: Built<'_>, imm_data: u32) -> plain(()) {
        begin(queue, abi::IBV_WR_SEND_WITH_IMM, imm_data, remote(0, 0));
    }

    fn wr_send_inv(queue: Built<'_>, rkey: u32) -> plain(()) {
        begin(queue, abi::IBV_WR_SEND_WITH_INV, rkey, remote(0, 0));
    }

    fn wr_local_inv(queue: Built<'_>, rkey: u32) -> plain(()) {
        begin(queue, abi::IBV_WR_LOCAL_INV, rkey, remote(0, 0));
    }

    fn wr_rdma_read(queue: Built<'_>, rkey: u32, address: u64) -> plain(()) {
        begin(queue, abi::IBV_WR_RDMA_READ, 0, rdma(rkey, address));
    }

    fn wr_rdma_write(queue: Built<'_>, rkey: u32, address: u64) -> plain(()) {
        begin(queue, abi::IBV_WR_RDMA_WRITE, 0, rdma(rkey, address));
    }

    fn wr_rdma_write_imm(queue: Built<'_>, rkey: u32, address: u64, imm_data: u32) -> plain(()) {
        begin(queue, abi::IBV_WR_RDMA_WRITE_WITH_IMM, imm_data, rdma(rkey, address));
    }

    fn wr_atomic_cmp_swp(queue: Built<'_>, rkey: u32, address: u64, compare: u64, swap: u64) -> plain(()) {
        begin(queue, abi::IBV_WR_ATOMIC_CMP_AND_SWP, 0, atomic(rkey, address, compare, swap));
    }

    fn wr_atomic_fetch_add(queue: Built<'_>, rkey: u32, address: u64, add: u64) -> plain(()) {
        begin(queue, abi::IBV_WR_ATOMIC_FETCH_AND_ADD, 0, atomic(rkey, address, add, 0));
    }

    /// The eight bytes are inline data.
    fn wr_atomic_write(queue: Built<'_>, rkey: u32, address: u64, value: *const c_void)
        -> plain(()) {
        begin(queue, abi::IBV_WR_ATOMIC_WRITE, 0, rdma(rkey, address));
        let batch = batch(&queue);
        let start = batch.inline.len();
        // SAFETY: the program passes eight bytes.
        batch.inline.extend_from_slice(unsafe { core::slice::from_raw_parts(value.cast::<u8>(), 8) });
        batch.set_inline(start);
    }

    fn wr_bind_mw(queue: Built<'_>, mw: *mut ibv_mw, rkey: u32, info: In<'_, *const ibv_mw_bind_info>)
        -> plain(()) {
        begin(queue, abi::IBV_WR_BIND_MW, 0, remote(0, 0));
        let batch = batch(&queue);
        match (batch.requests.last_mut(), info.optional()) {
            (Some((request, _)), Some(info)) => {
                request.bind_mw = ibv_wr_bind_mw { mw, rkey, bind_info: *info };
            }
            _ => batch.failure = Some(Errno::INVALID),
        }
    }

    /// Creating a queue pair for TSO is refused; this fails a program that calls it nevertheless.
    fn wr_send_tso(queue: Built<'_>, _header: *mut c_void, _length: u16, _mss: u16) -> plain(()) {
        batch(&queue).failure = Some(Errno::UNSUPPORTED);
    }

    fn wr_set_ud_addr(queue: Built<'_>, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) -> plain(()) {
        if let Some((wr, _)) = batch(&queue).current() {
            wr.wr.ud = ibv_wr_ud { ah, remote_qpn, remote_qkey };
        }
    }

    fn wr_set_xrc_srqn(queue: Built<'_>, number: u32) -> plain(()) {
        if let Some((wr, _)) = batch(&queue).current() {
            wr.xrc_remote_srqn = number;
        }
    }

    fn wr_set_inline_data(queue: Built<'_>, data: *mut c_void, length: usize) -> plain(()) {
        let batch = batch(&queue);
        let start = batch.inline.len();
        if length > 0 {
            // SAFETY: the program passes so many bytes, and no more of them are read.
            let bytes = unsafe { core::slice::from_raw_parts(data.cast::<u8>(), length.min(INLINE + 1)) };
            batch.inline.extend_from_slice(bytes);
        }
        batch.set_inline(start);
    }

    fn wr_set_inline_data_list(queue: Built<'_>, count: usize, list: *const ibv_data_buf) -> plain(()) {
        let batch = batch(&queue);
        let start = batch.inline.len();
        for index in 0..count {
            // SAFETY: the program passes `count` buffers.
            let ibv_data_buf { addr, length } = unsafe { list.add(index).read_unaligned() };
            if length > 0 {
                // SAFETY: the buffer has so many bytes, and no more of them are read.
                let bytes = unsafe { core::slice::from_raw_parts(addr.cast::<u8>(), length.min(INLINE + 1)) };
                batch.inline.extend_from_slice(bytes);
            }
        }
        batch.set_inline(start);
    }

    fn wr_set_sge(queue: Built<'_>, lkey: u32, addr: u64, length: u32) -> plain(()) {
        batch(&queue).set_sges([ibv_sge { addr, length, lkey }]);
    }

    fn wr_set_sge_list(queue: Built<'_>, count: usize, list: *const ibv_sge) -> plain(()) {
        let list = match count {
            0 => &[],
            // SAFETY: the program passes `count` elements.
            _ => unsafe { core::slice::from_raw_parts(list.cast::<Packed<ibv_sge>>(), count) },
        };
        batch(&queue).set_sges(list.iter().map(|element| element.get()));
    }
}

/// The remote side of a READ or WRITE.
const fn rdma(rkey: u32, remote_addr: u64) -> ibv_wr_remote {
    let mut wr = remote(0, 0);
    wr.rdma = ibv_wr_rdma { remote_addr, rkey };
    wr
}
