//! An event as a line of text.

use crate::event::Event;
use crate::kind::Kind;
use crate::names::{access_names, errno_name, mask_names};
use abi::names::{
    cm_event_name, event_name, qp_state_name, qp_type_name, wc_opcode_name, wc_status_name,
    wr_opcode_name,
};

/// A line for an event: seconds since `begin_ns`, process, thread, and what happened.
pub fn line(event: &Event<'_>, begin_ns: u64) -> String {
    let at_ns = event.at_ns.saturating_sub(begin_ns);
    let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
    let Event {
        process,
        thread,
        process_name,
        ..
    } = event;
    format!(
        "{seconds:>4}.{rest:09}  {process_name} {process}/{thread}  {}",
        what(event)
    )
}

/// What happened, without time and thread.
pub(crate) fn what(event: &Event<'_>) -> String {
    let text = match event.kind {
        Kind::Call => call(event),
        Kind::Send => send(event),
        Kind::Receive => receive(event),
        Kind::Completion => completion(event),
        Kind::Modify => modify(event),
        Kind::Register => register(event),
        Kind::Deregister => format!("ibv_dereg_mr lkey {:#x}", event.number("lkey")),
        Kind::Create => create(event),
        Kind::Destroy => format!("ibv_destroy_qp {}", queue_pair(event)),
        Kind::CmEvent => format!(
            "event {} status {} of id {:#x}",
            cm_event_name(event.number("event")),
            event.number("status") as u32 as i32,
            event.number("id")
        ),
        Kind::AsyncEvent => {
            let name = event_name(event.number("event"));
            match event.field("qpn") {
                Some(_) => format!("event {name} of {}", queue_pair(event)),
                None => format!("event {name}"),
            }
        }
        Kind::AddressHandle => {
            let (to, from) = event.text.split_once(' ').unwrap_or((event.text, ""));
            format!(
                "ibv_create_ah {:#x} to {to} from {from}",
                event.number("ah")
            )
        }
        Kind::State => format!(
            "{} is in state {}",
            queue_pair(event),
            qp_state_name(event.number("to"))
        ),
    };
    match event.field("errno") {
        Some(errno) if errno > 0 => format!("{text}: {}", errno_name(errno)),
        _ => text,
    }
}

fn queue_pair(event: &Event<'_>) -> String {
    format!("QP {:#x}", event.number("qpn"))
}

fn call(event: &Event<'_>) -> String {
    let mut text = event.text.to_owned();
    if event.field("qpn").is_some() {
        text += &format!(" {}", queue_pair(event));
    }
    if let Some(size) = event.field("size") {
        text += &format!(" {size} bytes");
    }
    let nanoseconds = event.number("duration_ns");
    text + &format!(" ({}.{:03} us)", nanoseconds / 1000, nanoseconds % 1000)
}

fn elements(event: &Event<'_>) -> String {
    let more = match event.number("elements") {
        0 | 1 => String::new(),
        count => format!(" and {} more elements", count - 1),
    };
    match event.field("lkey") {
        Some(lkey) => format!(" at {:#x} lkey {lkey:#x}{more}", event.number("address")),
        None => String::new(),
    }
}

fn send(event: &Event<'_>) -> String {
    let remote = match (event.field("rkey"), event.field("remote_qpn")) {
        (Some(rkey), _) => format!(" to {:#x} rkey {rkey:#x}", event.number("remote")),
        (None, Some(qpn)) => format!(
            " to QP {qpn:#x} by {:#x} Q_Key {:#x}",
            event.number("ah"),
            event.number("qkey")
        ),
        (None, None) => String::new(),
    };
    let signaled = match event.number("flags") & 2 {
        0 => " unsignaled",
        _ => "",
    };
    format!(
        "ibv_post_send {} wr_id {:#x} {} {} bytes{}{remote}{signaled}",
        queue_pair(event),
        event.number("wr_id"),
        wr_opcode_name(event.number("opcode")),
        event.number("length"),
        elements(event)
    )
}

fn receive(event: &Event<'_>) -> String {
    let queue = match event.field("srq") {
        Some(srq) => format!("ibv_post_srq_recv SRQ {srq:#x}"),
        None => format!("ibv_post_recv {}", queue_pair(event)),
    };
    format!(
        "{queue} wr_id {:#x} {} bytes{}",
        event.number("wr_id"),
        event.number("length"),
        elements(event)
    )
}

fn completion(event: &Event<'_>) -> String {
    format!(
        "completion {} wr_id {:#x} {} {} {} bytes",
        queue_pair(event),
        event.number("wr_id"),
        wc_opcode_name(event.number("opcode")),
        wc_status_name(event.number("status")),
        event.number("length")
    )
}

fn modify(event: &Event<'_>) -> String {
    let from = qp_state_name(event.number("from"));
    let mut text = match event.field("to") {
        Some(to) => format!(
            "ibv_modify_qp {} {from} to {}",
            queue_pair(event),
            qp_state_name(to)
        ),
        None => format!("ibv_modify_qp {} in {from}", queue_pair(event)),
    };
    if let Some(access) = event.field("access") {
        text += &format!(" access {}", access_names(access));
    }
    if let Some(peer) = event.field("peer") {
        text += &format!(" peer QP {peer:#x}");
    }
    if let Some(code) = event.field("mtu") {
        text += &format!(" MTU {}", mtu_bytes(code));
    }
    if let Some(qkey) = event.field("qkey") {
        text += &format!(" Q_Key {qkey:#x}");
    }
    if let Some((peer, own)) = event.text.split_once(' ') {
        text += &format!(" at {peer} from {own}");
    }
    for name in ["rq_psn", "sq_psn", "timeout", "retry", "rnr_retry"] {
        if let Some(value) = event.field(name) {
            text += &format!(" {name} {value}");
        }
    }
    match event.number("errno") {
        0 => text,
        _ => format!("{text} with mask {}", mask_names(event.number("mask"))),
    }
}

/// Bytes of an `enum ibv_mtu`.
pub(crate) const fn mtu_bytes(code: u64) -> u64 {
    match code {
        1..=5 => 128 << code,
        _ => 0,
    }
}

fn register(event: &Event<'_>) -> String {
    let keys = match event.field("lkey") {
        Some(lkey) => format!(" lkey {lkey:#x} rkey {:#x}", event.number("rkey")),
        None => String::new(),
    };
    let access = event.field("access").map(access_names);
    format!(
        "ibv_reg_mr {:#x} {} bytes access {}{keys}",
        event.number("address"),
        event.number("length"),
        access.as_deref().unwrap_or("as before")
    )
}

fn create(event: &Event<'_>) -> String {
    let signaled = match event.number("signal_all") {
        0 => "",
        _ => " all signaled",
    };
    format!(
        "ibv_create_qp {} {} {} send and {} receive requests{signaled}",
        queue_pair(event),
        qp_type_name(event.number("type")),
        event.number("send_wr"),
        event.number("receive_wr")
    )
}

#[cfg(test)]
mod tests {
    use crate::file::tests::{Record, file};
    use crate::{Kind, Trace, line};

    #[test]
    fn lines_say_what_a_program_has_called() {
        let records: &[Record] = &[
            Record(
                1_500_000_000,
                Kind::Send,
                &[
                    ("qpn", 0x4001),
                    ("wr_id", 3),
                    ("opcode", 0),
                    ("flags", 2),
                    ("length", 64),
                    ("address", 0x1000),
                    ("lkey", 0x10),
                    ("remote", 0x2000),
                    ("rkey", 0x20),
                    ("elements", 1),
                    ("errno", 0),
                ],
                "",
            ),
            Record(
                1_500_000_001,
                Kind::Modify,
                &[
                    ("qpn", 1),
                    ("from", 1),
                    ("to", 2),
                    ("mask", 0x101),
                    ("mtu", 3),
                    ("peer", 2),
                    ("errno", 22),
                ],
                "10.0.0.2 10.0.0.1",
            ),
            Record(
                1_500_000_002,
                Kind::Call,
                &[("duration_ns", 1500), ("errno", 110), ("size", 4096)],
                "ibv_reg_mr",
            ),
        ];
        let file = file(&[(7, "client", records)]);
        let trace = Trace::read(&[&file]).unwrap();
        let lines: Vec<String> = trace.events().map(|(_, event)| line(&event, 0)).collect();
        assert_eq!(
            lines,
            [
                "   1.500000000  client 7/8  ibv_post_send QP 0x4001 wr_id 0x3 RDMA_WRITE 64 bytes at 0x1000 \
                 lkey 0x10 to 0x2000 rkey 0x20",
                "   1.500000001  client 7/8  ibv_modify_qp QP 0x1 INIT to RTR peer QP 0x2 MTU 1024 at \
                 10.0.0.2 from 10.0.0.1 with mask IBV_QP_STATE | IBV_QP_PATH_MTU: EINVAL",
                "   1.500000002  client 7/8  ibv_reg_mr 4096 bytes (1.500 us): ETIMEDOUT",
            ]
        );
    }
}
