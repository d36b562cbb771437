//! Queue pair attributes, from C and to C.

use crate::address::{ah_attr, vector};
use crate::memory::access;
use abi::{ibv_qp_attr, ibv_qp_cap};
use ffi::Errno;
use rnic::{AttrMask, Capacity, Migration, Mtu, QpAttr, QpType, State};
use wire::{Psn, Qpn};

/// The transport for a value of `ibv_qp_type`.
pub(crate) fn kind(qp_type: u32) -> Result<QpType, Errno> {
    Ok(match qp_type {
        abi::IBV_QPT_RC => QpType::Rc,
        abi::IBV_QPT_UC => QpType::Uc,
        abi::IBV_QPT_UD => QpType::Ud,
        abi::IBV_QPT_XRC_SEND => QpType::XrcSend,
        abi::IBV_QPT_XRC_RECV => QpType::XrcReceive,
        _ => return Err(Errno::UNSUPPORTED),
    })
}

/// Queue capacities from C.
pub(crate) fn capacity(cap: &ibv_qp_cap) -> Capacity {
    Capacity {
        send_wr: cap.max_send_wr,
        receive_wr: cap.max_recv_wr,
        send_sge: cap.max_send_sge,
        receive_sge: cap.max_recv_sge,
        inline: cap.max_inline_data,
    }
}

/// Queue capacities for C.
pub(crate) fn cap(capacity: &Capacity) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: capacity.send_wr,
        max_recv_wr: capacity.receive_wr,
        max_send_sge: capacity.send_sge,
        max_recv_sge: capacity.receive_sge,
        max_inline_data: capacity.inline,
    }
}

fn state(value: u32) -> Result<State, Errno> {
    Ok(match value {
        0 => State::Reset,
        1 => State::Init,
        2 => State::ReadyToReceive,
        3 => State::ReadyToSend,
        4 => State::SendQueueDrained,
        5 => State::SendQueueError,
        6 => State::Error,
        _ => return Err(Errno::INVALID),
    })
}

fn migration(value: u32) -> Result<Migration, Errno> {
    Ok(match value {
        0 => Migration::Migrated,
        1 => Migration::Rearm,
        2 => Migration::Armed,
        _ => return Err(Errno::INVALID),
    })
}

/// Attributes of a modification. Programs leave fields that their mask does not name uninitialised, so only
/// fields that it names are read.
pub(crate) fn from_c(
    attr: &ibv_qp_attr,
    bits: i32,
    qp_type: u32,
    is_subnet: bool,
) -> Result<(QpAttr, AttrMask), Errno> {
    let mask = AttrMask::from_bits(bits as u32)
        .ok_or(Errno::INVALID)?
        .difference(foreign(qp_type));
    let mut to = QpAttr::default();
    if mask.contains(AttrMask::STATE) {
        to.state = state(attr.qp_state)?;
    }
    if mask.contains(AttrMask::CUR_STATE) {
        to.current_state = state(attr.cur_qp_state)?;
    }
    if mask.contains(AttrMask::PATH_MTU) {
        to.path_mtu = Mtu::from_code(attr.path_mtu).ok_or(Errno::INVALID)?;
    }
    if mask.contains(AttrMask::PATH_MIG_STATE) {
        to.migration = migration(attr.path_mig_state)?;
    }
    if mask.contains(AttrMask::ACCESS_FLAGS) {
        to.access = access(attr.qp_access_flags)?;
    }
    if mask.contains(AttrMask::AV) {
        to.vector = vector(&attr.ah_attr, is_subnet)?;
    }
    to.qkey = attr.qkey;
    to.receive_psn = Psn::new(attr.rq_psn);
    to.send_psn = Psn::new(attr.sq_psn);
    to.destination = Qpn::new(attr.dest_qp_num);
    to.pkey_index = attr.pkey_index;
    to.drain_notify = attr.en_sqd_async_notify != 0;
    to.max_rd_atomic = attr.max_rd_atomic;
    to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    to.min_rnr_timer = attr.min_rnr_timer;
    to.port = attr.port_num;
    to.timeout = attr.timeout;
    to.retry_count = attr.retry_cnt;
    to.rnr_retry = attr.rnr_retry;
    to.rate_limit_kbps = attr.rate_limit;
    Ok((to, mask))
}

/// Attributes of the half of an XRC connection that a queue pair does not have. Linux ignores them, and
/// perftest relies on it: it sets all of them on both halves.
fn foreign(qp_type: u32) -> AttrMask {
    match qp_type {
        abi::IBV_QPT_XRC_SEND => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
        abi::IBV_QPT_XRC_RECV => {
            AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY
        }
        _ => AttrMask::empty(),
    }
}

/// Attributes as a query returns them.
pub(crate) fn to_c(attr: &QpAttr, capacity: &Capacity) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attr.state as u32,
        cur_qp_state: attr.state as u32,
        path_mtu: attr.path_mtu as u32,
        path_mig_state: attr.migration as u32,
        qkey: attr.qkey,
        rq_psn: attr.receive_psn.value(),
        sq_psn: attr.send_psn.value(),
        dest_qp_num: attr.destination.value(),
        qp_access_flags: attr.access.bits(),
        cap: cap(capacity),
        ah_attr: ah_attr(&attr.vector),
        pkey_index: attr.pkey_index,
        en_sqd_async_notify: attr.drain_notify.into(),
        sq_draining: attr.draining.into(),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port,
        timeout: attr.timeout,
        retry_cnt: attr.retry_count,
        rnr_retry: attr.rnr_retry,
        rate_limit: attr.rate_limit_kbps,
        ..ibv_qp_attr::default()
    }
}
