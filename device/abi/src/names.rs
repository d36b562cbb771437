//! Names of values, as `verbs.h` and `rdma_cma.h` have them, without their prefixes. Values come from
//! programs, and may be any number.

use core::ffi::CStr;

/// The name of an `enum ibv_wr_opcode`.
pub const fn wr_opcode_name(opcode: u64) -> &'static str {
    match opcode {
        0 => "RDMA_WRITE",
        1 => "RDMA_WRITE_WITH_IMM",
        2 => "SEND",
        3 => "SEND_WITH_IMM",
        4 => "RDMA_READ",
        5 => "ATOMIC_CMP_AND_SWP",
        6 => "ATOMIC_FETCH_AND_ADD",
        7 => "LOCAL_INV",
        8 => "BIND_MW",
        9 => "SEND_WITH_INV",
        15 => "ATOMIC_WRITE",
        _ => "unknown operation",
    }
}

/// The name of an `enum ibv_wc_opcode`.
pub const fn wc_opcode_name(opcode: u64) -> &'static str {
    match opcode {
        0 => "SEND",
        1 => "RDMA_WRITE",
        2 => "RDMA_READ",
        3 => "COMP_SWAP",
        4 => "FETCH_ADD",
        5 => "BIND_MW",
        6 => "LOCAL_INV",
        9 => "ATOMIC_WRITE",
        128 => "RECV",
        129 => "RECV_RDMA_WITH_IMM",
        _ => "unknown operation",
    }
}

/// The name of an `enum ibv_wc_status`.
pub const fn wc_status_name(status: u64) -> &'static str {
    const NAMES: [&str; 24] = [
        "SUCCESS",
        "LOC_LEN_ERR",
        "LOC_QP_OP_ERR",
        "LOC_EEC_OP_ERR",
        "LOC_PROT_ERR",
        "WR_FLUSH_ERR",
        "MW_BIND_ERR",
        "BAD_RESP_ERR",
        "LOC_ACCESS_ERR",
        "REM_INV_REQ_ERR",
        "REM_ACCESS_ERR",
        "REM_OP_ERR",
        "RETRY_EXC_ERR",
        "RNR_RETRY_EXC_ERR",
        "LOC_RDD_VIOL_ERR",
        "REM_INV_RD_REQ_ERR",
        "REM_ABORT_ERR",
        "INV_EECN_ERR",
        "INV_EEC_STATE_ERR",
        "FATAL_ERR",
        "RESP_TIMEOUT_ERR",
        "GENERAL_ERR",
        "TM_ERR",
        "TM_RNDV_INCOMPLETE",
    ];
    if status < NAMES.len() as u64 {
        NAMES[status as usize]
    } else {
        "unknown status"
    }
}

/// The name of an `enum ibv_qp_state`.
pub const fn qp_state_name(state: u64) -> &'static str {
    match state {
        0 => "RESET",
        1 => "INIT",
        2 => "RTR",
        3 => "RTS",
        4 => "SQD",
        5 => "SQE",
        6 => "ERR",
        _ => "unknown state",
    }
}

/// The name of an `enum ibv_qp_type`.
pub const fn qp_type_name(kind: u64) -> &'static str {
    match kind {
        2 => "RC",
        3 => "UC",
        4 => "UD",
        9 => "XRC_SEND",
        10 => "XRC_RECV",
        _ => "unknown type",
    }
}

/// Names of `enum rdma_cm_event_type`, whole.
pub const CM_EVENTS: [&CStr; 20] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    c"RDMA_CM_EVENT_ADDRINFO_ERROR",
    c"RDMA_CM_EVENT_USER",
    c"RDMA_CM_EVENT_INTERNAL",
];

/// The name of an `enum rdma_cm_event_type`.
pub fn cm_event_name(event: u64) -> &'static str {
    let place = usize::try_from(event).unwrap_or(usize::MAX);
    let whole = CM_EVENTS.get(place).and_then(|name| name.to_str().ok());
    whole
        .and_then(|name| name.strip_prefix("RDMA_CM_EVENT_"))
        .unwrap_or("unknown event")
}

/// The name of an `enum ibv_event_type`.
pub const fn event_name(event: u64) -> &'static str {
    const NAMES: [&str; 19] = [
        "CQ_ERR",
        "QP_FATAL",
        "QP_REQ_ERR",
        "QP_ACCESS_ERR",
        "COMM_EST",
        "SQ_DRAINED",
        "PATH_MIG",
        "PATH_MIG_ERR",
        "DEVICE_FATAL",
        "PORT_ACTIVE",
        "PORT_ERR",
        "LID_CHANGE",
        "PKEY_CHANGE",
        "SM_CHANGE",
        "SRQ_ERR",
        "SRQ_LIMIT_REACHED",
        "QP_LAST_WQE_REACHED",
        "CLIENT_REREGISTER",
        "GID_CHANGE",
    ];
    if event < NAMES.len() as u64 {
        NAMES[event as usize]
    } else {
        "unknown event"
    }
}
