//! What a trace has of calls besides their names: requests, completions, attributes, keys.
//!
//! All of it is called by functions that are watched, and not by those on a data path without hooks.

use abi::{ibv_ah, ibv_qp, ibv_qp_attr, ibv_recv_wr, ibv_send_wr, ibv_sge};
use core::net::IpAddr;
use ffi::Errno;
use host::Device;
use rnic::{AttrMask, Capacity, Completion, Cq, RegionKeys, Status};
use trace::{Kind, NONE};
use wire::Qpn;

pub(crate) use host::traced::is_on;

/// The field `errno` of a result.
fn errno<T>(result: &Result<T, Errno>) -> u64 {
    match result {
        Ok(_) => 0,
        Err(errno) => errno.0 as u64,
    }
}

/// Sum, first element and number of the elements of a request.
struct Elements {
    length: u64,
    address: u64,
    lkey: u64,
    count: u64,
}

/// The elements of a request.
///
/// # Safety
/// The list is as the manual page of `ibv_post_send` asks.
unsafe fn elements(list: *const ibv_sge, count: i32) -> Elements {
    let mut found = Elements {
        length: 0,
        address: NONE,
        lkey: NONE,
        count: 0,
    };
    let count = usize::try_from(count).unwrap_or(0);
    for place in 0..if list.is_null() { 0 } else { count } {
        // SAFETY: by this function's contract, as many elements are there. Programs may pack them.
        let element = unsafe { list.add(place).read_unaligned() };
        if place == 0 {
            (found.address, found.lkey) = (element.addr, element.lkey.into());
        }
        found.length += u64::from(element.length);
        found.count += 1;
    }
    found
}

/// A send request was posted, or refused.
///
/// # Safety
/// The request is as the manual page of `ibv_post_send` asks.
#[cold]
pub(crate) unsafe fn sent(
    qpn: Qpn,
    is_datagram: bool,
    wr: &ibv_send_wr,
    result: &Result<(), Errno>,
) {
    // SAFETY: by this function's contract.
    let elements = unsafe { elements(wr.sg_list, wr.num_sge) };
    let has_remote = matches!(
        wr.opcode,
        abi::IBV_WR_RDMA_WRITE | abi::IBV_WR_RDMA_WRITE_WITH_IMM | abi::IBV_WR_RDMA_READ
    );
    let is_atomic = matches!(
        wr.opcode,
        abi::IBV_WR_ATOMIC_CMP_AND_SWP | abi::IBV_WR_ATOMIC_FETCH_AND_ADD
    );
    let is_inline = wr.send_flags & abi::IBV_SEND_INLINE != 0;
    // SAFETY: the opcode says which part of the union the program has written.
    let (remote, rkey) = unsafe {
        match (has_remote, is_atomic) {
            (true, _) => (wr.wr.rdma.remote_addr, u64::from(wr.wr.rdma.rkey)),
            (_, true) => (wr.wr.atomic.remote_addr, u64::from(wr.wr.atomic.rkey)),
            _ => (NONE, NONE),
        }
    };
    let (ah, remote_qpn, qkey) = if is_datagram {
        // SAFETY: requests on a queue pair of type UD have this part of the union.
        let to = unsafe { wr.wr.ud };
        (to.ah as u64, to.remote_qpn.into(), to.remote_qkey.into())
    } else {
        (NONE, NONE, NONE)
    };
    let fields = [
        qpn.value().into(),
        wr.wr_id,
        wr.opcode.into(),
        wr.send_flags.into(),
        elements.length,
        elements.address,
        if is_inline { NONE } else { elements.lkey },
        remote,
        rkey,
        elements.count,
        errno(result),
        ah,
        remote_qpn,
        qkey,
    ];
    host::traced::record(Kind::Send, &fields, "");
}

/// A receive request was posted, or refused: to a queue pair, or to a shared receive queue.
///
/// # Safety
/// The request is as the manual page of `ibv_post_recv` asks.
#[cold]
pub(crate) unsafe fn received(
    qpn: Option<u32>,
    srq: Option<u32>,
    wr: &ibv_recv_wr,
    result: &Result<(), Errno>,
) {
    // SAFETY: by this function's contract.
    let elements = unsafe { elements(wr.sg_list, wr.num_sge) };
    let fields = [
        qpn.map_or(NONE, u64::from),
        srq.map_or(NONE, u64::from),
        wr.wr_id,
        elements.length,
        elements.address,
        elements.lkey,
        elements.count,
        errno(result),
    ];
    host::traced::record(Kind::Receive, &fields, "");
}

/// The program takes a completion. Behind one with an error comes the state of its queue pair.
#[cold]
pub(crate) fn completed(queue: Cq, completion: &Completion) {
    let qpn = u64::from(completion.qpn.value());
    let fields = [
        qpn,
        queue.value().into(),
        completion.id,
        completion.status as u64,
        completion.kind as u64,
        completion.length.into(),
    ];
    host::traced::record(Kind::Completion, &fields, "");
}

/// The state of the queue pair of a completion with an error. Takes the lock of the device.
#[cold]
pub(crate) fn state_behind(device: &Device, completion: &Completion) {
    if matches!(completion.status, Status::Success | Status::Flushed) {
        return;
    }
    if let Ok((attr, _)) = device.with(|rnic, _| rnic.query_qp(completion.qpn)) {
        let fields = [completion.qpn.value().into(), attr.state as u64];
        host::traced::record(Kind::State, &fields, "");
    }
}

/// An address handle was made.
#[cold]
pub(crate) fn address_handle(device: &Device, ah: *mut ibv_ah, vector: &rnic::AddressVector) {
    host::traced::record(Kind::AddressHandle, &[ah as u64, 0], &path(device, vector));
}

/// The addresses of both ends of a path, for people.
fn path(device: &Device, vector: &rnic::AddressVector) -> String {
    let index = vector.source_index;
    let own = device.with(|rnic, _| rnic.port().gid(index));
    let shown = |gid: rnic::Gid| IpAddr::from(gid.0).to_canonical();
    let own = own.map_or_else(|| "nothing".to_owned(), |own| shown(own).to_string());
    format!("{} {own}", shown(vector.destination))
}

/// Attributes of a queue pair were changed, or not. Its state for C is still the one before.
#[cold]
pub(crate) fn modified(
    device: &Device,
    queue: &ibv_qp,
    attr: &ibv_qp_attr,
    bits: i32,
    result: &Result<(), Errno>,
) {
    let has = |flag: AttrMask| bits as u32 & flag.bits() != 0;
    let given = |flag, value: u64| if has(flag) { value } else { NONE };
    let fields = [
        queue.qp_num.into(),
        queue.state.into(),
        given(AttrMask::STATE, attr.qp_state.into()),
        u64::from(bits as u32),
        given(AttrMask::PATH_MTU, attr.path_mtu.into()),
        given(AttrMask::ACCESS_FLAGS, attr.qp_access_flags.into()),
        given(AttrMask::DEST_QPN, attr.dest_qp_num.into()),
        given(AttrMask::RQ_PSN, u64::from(attr.rq_psn & 0x00ff_ffff)),
        given(AttrMask::SQ_PSN, u64::from(attr.sq_psn & 0x00ff_ffff)),
        given(AttrMask::TIMEOUT, attr.timeout.into()),
        given(AttrMask::RETRY_CNT, attr.retry_cnt.into()),
        given(AttrMask::RNR_RETRY, attr.rnr_retry.into()),
        errno(result),
        given(AttrMask::QKEY, attr.qkey.into()),
    ];
    let text = match result.is_ok() && has(AttrMask::AV) {
        true => device
            .with(|rnic, _| rnic.query_qp(Qpn::new(queue.qp_num)))
            .map_or_else(|_| String::new(), |(now, _)| path(device, &now.vector)),
        false => String::new(),
    };
    host::traced::record(Kind::Modify, &fields, &text);
}

/// Memory was registered, or not. A region that is registered anew may keep flags, which are not known here.
#[cold]
pub(crate) fn registered(
    address: u64,
    length: usize,
    iova: u64,
    bits: Option<u32>,
    keys: &Result<RegionKeys, Errno>,
) {
    let (lkey, rkey) = match keys {
        Ok(keys) => (u64::from(keys.lkey.value()), u64::from(keys.rkey.0)),
        Err(_) => (NONE, NONE),
    };
    let length = length as u64;
    let access = bits.map_or(NONE, u64::from);
    let fields = [address, length, iova, access, lkey, rkey, errno(keys)];
    host::traced::record(Kind::Register, &fields, "");
}

/// Memory was deregistered, or not.
#[cold]
pub(crate) fn deregistered(lkey: u32, rkey: u32, result: &Result<(), Errno>) {
    let fields = [lkey.into(), rkey.into(), errno(result)];
    host::traced::record(Kind::Deregister, &fields, "");
}

/// A queue pair was created, with this shared receive queue.
#[cold]
pub(crate) fn created(
    base: &ibv_qp,
    srq: Option<rnic::Srq>,
    signal_all: bool,
    capacity: &Capacity,
) {
    let pointer = |address: usize| if address == 0 { NONE } else { address as u64 };
    let fields = [
        base.qp_num.into(),
        base.qp_type.into(),
        signal_all.into(),
        capacity.send_wr.into(),
        capacity.receive_wr.into(),
        pointer(base.send_cq as usize),
        pointer(base.recv_cq as usize),
        srq.map_or(NONE, |srq| srq.value().into()),
    ];
    host::traced::record(Kind::Create, &fields, "");
}

/// A queue pair is destroyed.
#[cold]
pub(crate) fn destroyed(qpn: Qpn) {
    host::traced::record(Kind::Destroy, &[qpn.value().into()], "");
}

/// The program takes an asynchronous event.
#[cold]
pub(crate) fn event(number: u32, qpn: Option<u32>) {
    let fields = [number.into(), qpn.map_or(NONE, u64::from)];
    host::traced::record(Kind::AsyncEvent, &fields, "");
}
