//! Names of values, spelled as rdma-core prints them: programs show them and scripts search for them.

use core::ffi::{CStr, c_char};

const STATUS: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const EVENT: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const NODE: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT: [&CStr; 6] = [
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active deferred",
];

/// `enum ibv_wr_opcode`, by value.
const OPCODE: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];

fn name(table: &[&'static CStr], value: i32) -> *const c_char {
    let known = usize::try_from(value)
        .ok()
        .and_then(|value| table.get(value));
    known.copied().unwrap_or(c"unknown").as_ptr()
}

pub(crate) extern "C" fn ibv_wc_status_str(status: i32) -> *const c_char {
    name(&STATUS, status)
}

pub(crate) extern "C" fn ibv_event_type_str(event: i32) -> *const c_char {
    name(&EVENT, event)
}

pub(crate) extern "C" fn ibv_node_type_str(node: i32) -> *const c_char {
    name(&NODE, node)
}

pub(crate) extern "C" fn ibv_port_state_str(state: i32) -> *const c_char {
    name(&PORT, state)
}

pub(crate) extern "C" fn ibv_wr_opcode_str(opcode: i32) -> *const c_char {
    name(&OPCODE, opcode)
}
