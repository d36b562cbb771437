//! Names of the numbers in records, as `verbs.h` and `rdma_cma.h` have them, without their prefixes.

/// The name of an `enum ibv_wr_opcode`.
pub const fn opcode_name(opcode: u64) -> &'static str {
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
pub(crate) const fn completion_name(opcode: u64) -> &'static str {
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
pub const fn status_name(status: u64) -> &'static str {
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
pub const fn state_name(state: u64) -> &'static str {
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
pub(crate) const fn type_name(kind: u64) -> &'static str {
    match kind {
        2 => "RC",
        3 => "UC",
        4 => "UD",
        9 => "XRC_SEND",
        10 => "XRC_RECV",
        _ => "unknown type",
    }
}

/// The name of an `enum rdma_cm_event_type`.
pub const fn cm_event_name(event: u64) -> &'static str {
    const NAMES: [&str; 19] = [
        "ADDR_RESOLVED",
        "ADDR_ERROR",
        "ROUTE_RESOLVED",
        "ROUTE_ERROR",
        "CONNECT_REQUEST",
        "CONNECT_RESPONSE",
        "CONNECT_ERROR",
        "UNREACHABLE",
        "REJECTED",
        "ESTABLISHED",
        "DISCONNECTED",
        "DEVICE_REMOVAL",
        "MULTICAST_JOIN",
        "MULTICAST_ERROR",
        "ADDR_CHANGE",
        "TIMEWAIT_EXIT",
        "ADDRINFO_RESOLVED",
        "ADDRINFO_ERROR",
        "USER",
    ];
    if event < NAMES.len() as u64 {
        NAMES[event as usize]
    } else {
        "unknown event"
    }
}

/// The name of an `enum ibv_event_type`.
pub(crate) const fn event_name(event: u64) -> &'static str {
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

/// Bits of `enum ibv_access_flags` and their names.
const ACCESS: [(u64, &str); 7] = [
    (1, "LOCAL_WRITE"),
    (2, "REMOTE_WRITE"),
    (4, "REMOTE_READ"),
    (8, "REMOTE_ATOMIC"),
    (16, "MW_BIND"),
    (32, "ZERO_BASED"),
    (64, "ON_DEMAND"),
];

/// The names of access flags, with `|` between them; `none` for none.
pub fn access_names(bits: u64) -> String {
    let named = ACCESS.iter().filter(|(bit, _)| bits & bit != 0);
    let names: Vec<&str> = named.map(|(_, name)| *name).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join("|"),
    }
}

/// Bits of `enum ibv_qp_attr_mask` and their names.
const MASK: [(u64, &str); 20] = [
    (1 << 0, "STATE"),
    (1 << 1, "CUR_STATE"),
    (1 << 2, "EN_SQD_ASYNC_NOTIFY"),
    (1 << 3, "ACCESS_FLAGS"),
    (1 << 4, "PKEY_INDEX"),
    (1 << 5, "PORT"),
    (1 << 6, "QKEY"),
    (1 << 7, "AV"),
    (1 << 8, "PATH_MTU"),
    (1 << 9, "TIMEOUT"),
    (1 << 10, "RETRY_CNT"),
    (1 << 11, "RNR_RETRY"),
    (1 << 12, "RQ_PSN"),
    (1 << 13, "MAX_QP_RD_ATOMIC"),
    (1 << 14, "ALT_PATH"),
    (1 << 15, "MIN_RNR_TIMER"),
    (1 << 16, "SQ_PSN"),
    (1 << 17, "MAX_DEST_RD_ATOMIC"),
    (1 << 18, "PATH_MIG_STATE"),
    (1 << 20, "DEST_QPN"),
];

/// The names of the bits of a mask, as a program writes them.
pub(crate) fn mask_names(bits: u64) -> String {
    let named = MASK.iter().filter(|(bit, _)| bits & bit != 0);
    let names: Vec<String> = named.map(|(_, name)| format!("IBV_QP_{name}")).collect();
    names.join(" | ")
}

/// The name of an error number, where RDMA calls return it.
pub(crate) fn errno_name(errno: u64) -> String {
    let name = match errno {
        1 => "EPERM",
        2 => "ENOENT",
        4 => "EINTR",
        5 => "EIO",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        14 => "EFAULT",
        16 => "EBUSY",
        19 => "ENODEV",
        22 => "EINVAL",
        24 => "EMFILE",
        28 => "ENOSPC",
        95 => "EOPNOTSUPP",
        98 => "EADDRINUSE",
        99 => "EADDRNOTAVAIL",
        101 => "ENETUNREACH",
        104 => "ECONNRESET",
        106 => "EISCONN",
        107 => "ENOTCONN",
        110 => "ETIMEDOUT",
        111 => "ECONNREFUSED",
        113 => "EHOSTUNREACH",
        _ => return format!("errno {errno}"),
    };
    name.to_owned()
}
