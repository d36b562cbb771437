//! Changes of state that `ibv_modify_qp` refused: the transition, or the attributes that it needs.

use crate::event::Event;
use crate::explain::ends::{Ends, UC, UD, key};
use crate::explain::mistake::{Finding, Mistake};
use crate::names::mask_names;
use abi::names::qp_state_name;

/// Bits of `enum ibv_qp_attr_mask`.
const ACCESS_FLAGS: u64 = 1 << 3;
const PKEY_INDEX: u64 = 1 << 4;
const PORT: u64 = 1 << 5;
const QKEY: u64 = 1 << 6;
const AV: u64 = 1 << 7;
const PATH_MTU: u64 = 1 << 8;
const TIMEOUT: u64 = 1 << 9;
const RETRY_CNT: u64 = 1 << 10;
const RNR_RETRY: u64 = 1 << 11;
const RQ_PSN: u64 = 1 << 12;
const MAX_QP_RD_ATOMIC: u64 = 1 << 13;
const MIN_RNR_TIMER: u64 = 1 << 15;
const SQ_PSN: u64 = 1 << 16;
const MAX_DEST_RD_ATOMIC: u64 = 1 << 17;
const DEST_QPN: u64 = 1 << 20;

/// The attributes that a transition needs besides the state (IBTA 11.2.5.2, ibv_modify_qp(3)); `None` for one
/// that is not allowed.
const fn needed(kind: u64, from: u64, to: u64) -> Option<u64> {
    Some(match (from, to) {
        // To RESET and to ERR from everywhere.
        (_, 0 | 6) => 0,
        (0, 1) if kind == UD => PKEY_INDEX | PORT | QKEY,
        (0, 1) => PKEY_INDEX | PORT | ACCESS_FLAGS,
        (1, 1) => 0,
        (1, 2) if kind == UD => 0,
        (1, 2) if kind == UC => AV | PATH_MTU | DEST_QPN | RQ_PSN,
        (1, 2) => AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
        (2, 3) if kind == UD || kind == UC => SQ_PSN,
        (2, 3) => SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC,
        (3..=5, 3) | (3 | 4, 4) => 0,
        _ => return None,
    })
}

/// Looks at a change that was refused.
pub(super) fn check(ends: &mut Ends, number: usize, event: &Event<'_>) {
    let (Some(to), true) = (event.field("to"), event.number("errno") != 0) else {
        return;
    };
    let from = event.number("from");
    let kind = ends.qp(key(event)).map_or(2, |qp| qp.kind);
    let (from_name, to_name) = (qp_state_name(from), qp_state_name(to));
    let what = match needed(kind, from, to) {
        None => format!("ibv_modify_qp from {from_name} to {to_name}, which is no transition"),
        Some(needed) => match needed & !event.number("mask") {
            0 => format!("ibv_modify_qp from {from_name} to {to_name} was refused for a value"),
            missing => format!(
                "ibv_modify_qp from {from_name} to {to_name} without {}",
                mask_names(missing)
            ),
        },
    };
    let finding = Finding {
        mistake: Mistake::WrongState,
        event: number,
        shown_by: None,
        what,
    };
    ends.report(key(event), finding);
}
