//! The tables of functions that are watched: they meet faults, or are traced.

use crate::faulty::{extended, poll, receive, send};
use abi::{ibv_context_ops, ibv_cq_ex, ibv_qp_ex};

/// The table of a context, with hooks if this process is watched.
pub(crate) fn operations(without: ibv_context_ops) -> ibv_context_ops {
    if !host::watch::is_on() {
        return without;
    }
    ibv_context_ops {
        poll_cq: Some(poll::poll_cq),
        req_notify_cq: Some(poll::req_notify_cq),
        post_srq_recv: Some(receive::post_srq_recv),
        post_send: Some(send::post_send),
        post_recv: Some(receive::post_recv),
        ..without
    }
}

/// The table of a completion queue, with hooks if this process is watched.
pub(crate) fn polling(without: ibv_cq_ex) -> ibv_cq_ex {
    if !host::watch::is_on() {
        return without;
    }
    ibv_cq_ex {
        start_poll: Some(poll::start_poll),
        next_poll: Some(poll::next_poll),
        ..without
    }
}

/// The table of a queue pair, with hooks if this process is watched.
pub(crate) fn building(without: ibv_qp_ex) -> ibv_qp_ex {
    if !host::watch::is_on() {
        return without;
    }
    ibv_qp_ex {
        wr_complete: Some(extended::wr_complete),
        ..without
    }
}
