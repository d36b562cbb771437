//! The `ibv_wr_…` functions: requests are built field by field, and posted together by `wr_complete`.

use crate::context::context;
use crate::post::{INLINE, SGES, send};
use crate::qp::Qp;
use abi::{
    ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_sge, ibv_wr_atomic,
    ibv_wr_bind_mw, ibv_wr_rdma, ibv_wr_remote, ibv_wr_ud,
};
use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::Ordering;
use door::{Errno, door};
use rnic::QpType;

/// Requests under construction. Its buffers stay allocated from one batch to the next.
#[derive(Default)]
pub(crate) struct Batch {
    requests: Vec<(ibv_send_wr, Local)>,
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
    failure: Option<Errno>,
}

/// The local side of a request: ranges of the batch's buffers.
#[derive(Default)]
struct Local {
    sges: Range<usize>,
    inline: Option<Range<usize>>,
}

impl Batch {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.failure = None;
    }

    /// The request that setters fill. Setters before any request are a program's mistake.
    fn current(&mut self) -> Option<&mut (ibv_send_wr, Local)> {
        if self.requests.is_empty() {
            self.failure = Some(Errno::INVALID);
        }
        self.requests.last_mut()
    }

    fn set_sges(&mut self, sges: impl IntoIterator<Item = ibv_sge>) {
        let start = self.sges.len();
        self.sges.extend(sges.into_iter().take(SGES + 1));
        let range = start..self.sges.len();
        if range.len() > SGES {
            self.failure = Some(Errno::INVALID);
        }
        if let Some((_, local)) = self.current() {
            local.sges = range;
        }
    }

    /// Bytes go to the buffer, `end` of them being there before.
    fn set_inline(&mut self, start: usize) {
        let range = start..self.inline.len();
        if range.len() > INLINE {
            self.failure = Some(Errno::INVALID);
        }
        if let Some((wr, local)) = self.current() {
            wr.send_flags |= abi::IBV_SEND_INLINE;
            local.inline = Some(range);
        }
    }
}

/// Operations that each transport has.
pub(crate) fn check(kind: QpType, asked: u64) -> Result<(), Errno> {
    let sends = abi::IBV_QP_EX_WITH_SEND | abi::IBV_QP_EX_WITH_SEND_WITH_IMM;
    let writes = abi::IBV_QP_EX_WITH_RDMA_WRITE | abi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let keys =
        abi::IBV_QP_EX_WITH_LOCAL_INV | abi::IBV_QP_EX_WITH_BIND_MW | abi::IBV_QP_EX_WITH_SEND_WITH_INV;
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
    if asked & !u64::from(can) == 0 { Ok(()) } else { Err(Errno::UNSUPPORTED) }
}

/// The functions of a queue pair, for `static inline` calls.
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

/// The batch that this thread builds.
///
/// # Safety
/// `raw` is live, and this thread is between `wr_start` and `wr_complete`.
unsafe fn batch<'a>(raw: *mut ibv_qp_ex) -> &'a mut Batch {
    // SAFETY: as above: `wr_start` keeps other threads out.
    unsafe { &mut *(*raw.cast::<Qp>()).batch.get() }
}

/// Begins a request.
///
/// # Safety
/// As [`batch`].
unsafe fn begin(
    raw: *mut ibv_qp_ex,
    opcode: u32,
    imm_data: u32,
    wr: ibv_wr_remote,
) -> &'static mut ibv_send_wr {
    // SAFETY: as above.
    let (batch, wr_id, send_flags) = unsafe { (batch(raw), (*raw).wr_id, (*raw).wr_flags) };
    let info = ibv_mw_bind_info { mr: core::ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
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
        bind_mw: ibv_wr_bind_mw { mw: core::ptr::null_mut(), rkey: 0, bind_info: info },
    };
    batch.requests.push((request, Local::default()));
    let last = batch.requests.len() - 1;
    &mut batch.requests[last].0
}

const fn remote(rkey: u32, remote_addr: u64) -> ibv_wr_remote {
    atomic(rkey, remote_addr, 0, 0)
}

/// The longest variant, so that no byte of the union stays unwritten; `rdma` has its address in the same
/// place.
const fn atomic(rkey: u32, remote_addr: u64, compare_add: u64, swap: u64) -> ibv_wr_remote {
    ibv_wr_remote { atomic: ibv_wr_atomic { remote_addr, compare_add, swap, rkey } }
}

/// Posts what was built.
///
/// # Safety
/// As [`batch`].
unsafe fn post(raw: *mut ibv_qp_ex) -> Result<(), Errno> {
    // SAFETY: as above.
    let (batch, queue) = unsafe { (batch(raw), &*raw.cast::<Qp>()) };
    if let Some(errno) = batch.failure {
        return Err(errno);
    }
    let Batch { requests, sges, inline, .. } = batch;
    // SAFETY: as above.
    unsafe { context((*raw).qp_base.context) }.device.post(|poster| {
        for (wr, local) in requests {
            let bytes = &inline[local.inline.clone().unwrap_or_default()];
            let mut whole = [ibv_sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey: 0 }];
            let list = match local.inline {
                Some(_) => &mut whole[..],
                None => &mut sges[local.sges.clone()],
            };
            (wr.sg_list, wr.num_sge) = (list.as_mut_ptr(), list.len() as i32);
            // SAFETY: the lists are in this batch, the rest is the program's.
            unsafe { send(poster, queue.qpn, (*raw).qp_base.qp_type, wr) }?;
        }
        Ok(())
    })
}

door! {
    fn wr_start(raw: *mut ibv_qp_ex) -> plain(()) {
        let building = &(*raw.cast::<Qp>()).building;
        while building.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        batch(raw).clear();
    }

    fn wr_complete(raw: *mut ibv_qp_ex) -> code(i32) {
        let answer = post(raw);
        (*raw.cast::<Qp>()).building.store(false, Ordering::Release);
        answer
    }

    fn wr_abort(raw: *mut ibv_qp_ex) -> plain(()) {
        (*raw.cast::<Qp>()).building.store(false, Ordering::Release);
    }

    fn wr_send(raw: *mut ibv_qp_ex) -> plain(()) {
        begin(raw, abi::IBV_WR_SEND, 0, remote(0, 0));
    }

    fn wr_send_imm(raw: *mut ibv_qp_ex, imm_data: u32) -> plain(()) {
        begin(raw, abi::IBV_WR_SEND_WITH_IMM, imm_data, remote(0, 0));
    }

    fn wr_send_inv(raw: *mut ibv_qp_ex, rkey: u32) -> plain(()) {
        begin(raw, abi::IBV_WR_SEND_WITH_INV, rkey, remote(0, 0));
    }

    fn wr_local_inv(raw: *mut ibv_qp_ex, rkey: u32) -> plain(()) {
        begin(raw, abi::IBV_WR_LOCAL_INV, rkey, remote(0, 0));
    }

    fn wr_rdma_read(raw: *mut ibv_qp_ex, rkey: u32, address: u64) -> plain(()) {
        begin(raw, abi::IBV_WR_RDMA_READ, 0, rdma(rkey, address));
    }

    fn wr_rdma_write(raw: *mut ibv_qp_ex, rkey: u32, address: u64) -> plain(()) {
        begin(raw, abi::IBV_WR_RDMA_WRITE, 0, rdma(rkey, address));
    }

    fn wr_rdma_write_imm(raw: *mut ibv_qp_ex, rkey: u32, address: u64, imm_data: u32) -> plain(()) {
        begin(raw, abi::IBV_WR_RDMA_WRITE_WITH_IMM, imm_data, rdma(rkey, address));
    }

    fn wr_atomic_cmp_swp(raw: *mut ibv_qp_ex, rkey: u32, address: u64, compare: u64, swap: u64) -> plain(()) {
        begin(raw, abi::IBV_WR_ATOMIC_CMP_AND_SWP, 0, atomic(rkey, address, compare, swap));
    }

    fn wr_atomic_fetch_add(raw: *mut ibv_qp_ex, rkey: u32, address: u64, add: u64) -> plain(()) {
        begin(raw, abi::IBV_WR_ATOMIC_FETCH_AND_ADD, 0, atomic(rkey, address, add, 0));
    }

    /// Its eight bytes are inline data.
    fn wr_atomic_write(raw: *mut ibv_qp_ex, rkey: u32, address: u64, value: *const c_void) -> plain(()) {
        begin(raw, abi::IBV_WR_ATOMIC_WRITE, 0, rdma(rkey, address));
        let batch = batch(raw);
        let start = batch.inline.len();
        batch.inline.extend_from_slice(core::slice::from_raw_parts(value.cast::<u8>(), 8));
        batch.set_inline(start);
    }

    fn wr_bind_mw(raw: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info)
        -> plain(()) {
        let request = begin(raw, abi::IBV_WR_BIND_MW, 0, remote(0, 0));
        request.bind_mw = ibv_wr_bind_mw { mw, rkey, bind_info: *info };
    }

    /// Refused when the queue pair is created; here for those who call it all the same.
    fn wr_send_tso(raw: *mut ibv_qp_ex, _header: *mut c_void, _length: u16, _mss: u16) -> plain(()) {
        batch(raw).failure = Some(Errno::UNSUPPORTED);
    }

    fn wr_set_ud_addr(raw: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) -> plain(()) {
        if let Some((wr, _)) = batch(raw).current() {
            wr.wr.ud = ibv_wr_ud { ah, remote_qpn, remote_qkey };
        }
    }

    fn wr_set_xrc_srqn(raw: *mut ibv_qp_ex, number: u32) -> plain(()) {
        if let Some((wr, _)) = batch(raw).current() {
            wr.xrc_remote_srqn = number;
        }
    }

    fn wr_set_inline_data(raw: *mut ibv_qp_ex, data: *mut c_void, length: usize) -> plain(()) {
        let batch = batch(raw);
        let start = batch.inline.len();
        if length > 0 {
            let bytes = core::slice::from_raw_parts(data.cast::<u8>(), length.min(INLINE + 1));
            batch.inline.extend_from_slice(bytes);
        }
        batch.set_inline(start);
    }

    fn wr_set_inline_data_list(raw: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) -> plain(()) {
        let batch = batch(raw);
        let start = batch.inline.len();
        for index in 0..count {
            let ibv_data_buf { addr, length } = *list.add(index);
            if length > 0 {
                let bytes = core::slice::from_raw_parts(addr.cast::<u8>(), length.min(INLINE + 1));
                batch.inline.extend_from_slice(bytes);
            }
        }
        batch.set_inline(start);
    }

    fn wr_set_sge(raw: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) -> plain(()) {
        batch(raw).set_sges([ibv_sge { addr, length, lkey }]);
    }

    fn wr_set_sge_list(raw: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) -> plain(()) {
        let list = if count == 0 { &[] } else { core::slice::from_raw_parts(list, count) };
        batch(raw).set_sges(list.iter().copied());
    }
}

/// The remote side of a READ or WRITE.
const fn rdma(rkey: u32, remote_addr: u64) -> ibv_wr_remote {
    let mut wr = remote(0, 0);
    wr.rdma = ibv_wr_rdma { remote_addr, rkey };
    wr
}
