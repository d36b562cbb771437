//! Mistakes in rules.

use faults::{Rule, Rules};

fn error(text: &str) -> String {
    text.parse::<Rule>().expect_err(text).to_string()
}

/// Rules, and what is wrong with them.
const MISTAKES: &[(&str, &str)] = &[
    (
        "post_send",
        "`post_send` has to be followed by a colon and what happens, as in \
             `post_send: fail ENOMEM after 100`",
    ),
    (
        "post_send:",
        "`post_send:` has to be followed by what happens, as in `reg_mr: fail ENOMEM`",
    ),
    (
        "pst_send: fail EIO",
        "`pst_send` is no point of faults: did you mean post_send?",
    ),
    (
        "xyz: fail EIO",
        "`xyz` is no point of faults: write completion, packet, cm, time, limit, or a \
         call of libibverbs or librdmacm such as post_send, reg_mr or rdma_connect",
    ),
    (
        "ibv_ack_cq_events: fail EIO",
        "no adapter does this: ibv_ack_cq_events fails: the call reports no error number",
    ),
    (
        "reg_mr: fail",
        "`fail` has to be followed by an error number, as in `reg_mr: fail ENOMEM`",
    ),
    (
        "reg_mr: fail ENOMEM after",
        "`after` has to be followed by its value, as in `post_send: fail ENOMEM after 100`",
    ),
    (
        "reg_mr: fail ENOMEM sometimes",
        "`sometimes` is no condition: write one of process, device, type, qpn, peer, opcode, size, nth, \
         after, every, times, probability, seed, from, until",
    ),
    (
        "reg_mr: fail ENOMEM after 1 after 2",
        "`after` is given twice: leave out one of them",
    ),
    (
        "reg_mr: fail ENOMEM nth 2 times 3",
        "the rule would never apply: nth is one occasion: leave out after, every and times",
    ),
    (
        "reg_mr: fail ENOMEM nth 0",
        "`0` is no number of an occasion: write 1 or more",
    ),
    (
        "reg_mr: fail ENOMEM opcode send",
        "reg_mr has no opcode, so the rule would never apply: leave out `opcode`",
    ),
    (
        "rdma_connect: fail EIO device rk_lo",
        "rdma_connect has no device, so the rule would never apply: leave out `device`",
    ),
    (
        "post_send: slow 5",
        "`5` is no time: write a number with ns, us, ms, s or min: 10us",
    ),
    (
        "post_send: fail EIO type tcp",
        "`tcp` is no type of queue pairs: write one of rc, uc, ud, xrc",
    ),
    (
        "post_send: fail EIO probability 2",
        "`2` is no probability: write more than 0 and at most 1, as in 1%, 0.01 or 1/100",
    ),
    (
        "post_send: fail EIO from 2s until 1s",
        "the rule would never apply: no time is from 2s until 1s",
    ),
    (
        "post_send: fail EIO qpn 0x1000000",
        "`0x1000000` is no queue pair number: it has 24 bits: write 1 to 0xffffff",
    ),
    (
        "post_send: fail EIO process a-very-long-program",
        "`a-very-long-program` is no name of a process: the kernel keeps 15 bytes of a name: write \
             a-very-long-pro",
    ),
    (
        "post_send: fail EIO peer host1",
        "`host1` is no IP address: write one, as in 10.0.0.2 or fe80::1",
    ),
];

#[test]
fn each_mistake_names_the_value_and_what_to_write() {
    for (text, expected) in MISTAKES {
        assert_eq!(error(text), *expected, "{text}");
    }
}

#[test]
fn what_an_adapter_cannot_do_is_refused_with_the_reason() {
    for (text, expected) in [
        (
            "completion: double",
            "no adapter does this: a work request completes once, so that its wr_id can be used again",
        ),
        (
            "completion: drop",
            "no adapter does this: each signaled request completes, in error if need be; write `late` with a \
             long time, or a status",
        ),
        (
            "completion: status SUCCESS",
            "no adapter does this: a completion with SUCCESS: a request that was executed has no fault",
        ),
        (
            "completion: status RETRY_EXC_ERR type ud",
            "the rule would never apply: a queue pair of type ud cannot have `status RETRY_EXC_ERR`",
        ),
        (
            "completion: status RNR_RETRY_EXC_ERR opcode rdma_read",
            "the rule would never apply: rdma_read cannot have `status RNR_RETRY_EXC_ERR`",
        ),
        (
            "post_send: fail EIO opcode recv",
            "the rule would never apply: post_send has no recv",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn points_other_than_calls_have_their_own_words() {
    for (text, expected) in [
        (
            "packet: loose",
            "`loose` is no fault of a packet: write drop, delay TIME, duplicate, reorder PACKETS, corrupt, \
             mark or rate RATE",
        ),
        (
            "packet: pause",
            "no adapter does this: PFC pauses ports, and not programs: run a lab with PFC, or write `rate`",
        ),
        (
            "packet: drop qpn 5",
            "packet has no qpn, so the rule would never apply: leave out `qpn`",
        ),
        (
            "packet: rate 5",
            "`5` is no rate: write a number with Gb/s, Mb/s, kb/s or b/s: 1Gb/s",
        ),
        (
            "cm: reject 99",
            "`99` is no reason of a reject: write 1 to 35, as in IBTA 12.6.7.2: 28 is the consumer's",
        ),
        (
            "time: raise lid_change",
            "no adapter does this: lid_change: RoCE has no LIDs; in labs with InfiniBand the subnet manager \
             changes them",
        ),
        (
            "time: raise qp_fatal nth 2",
            "the rule would never apply: a time is one occasion: write `from TIME`, and neither numbers, \
             chance nor until",
        ),
        (
            "limit: max_qp 4 from 2s",
            "the rule would never apply: a limit holds for as long as a device is open: leave out numbers, \
             chance and times",
        ),
        (
            "limit: active_mtu 1500",
            "`1500` is no MTU: write 256, 512, 1024, 2048 or 4096",
        ),
        (
            "post_send: rnr 3",
            "the rule would never apply: post_send posts no receive, for which a message could be refused; \
             post_recv and post_srq_recv do",
        ),
        (
            "post_recv: rnr 0",
            "`0` is no number of RNR NAKs: write 1 or more",
        ),
        (
            "post_recv: rnr 3 type ud",
            "the rule would never apply: a queue pair of type ud cannot have `rnr 3`",
        ),
        (
            "rereg_mr: expire 2s",
            "the rule would never apply: rereg_mr registers no memory; reg_mr does",
        ),
        (
            "reg_mr: odp_fault",
            "`odp_fault` has to be followed by an offset, as in `reg_mr: odp_fault 4096`",
        ),
        (
            "rdma_connect: report EIO",
            "the rule would never apply: rdma_connect leads to no event with an error number; \
             rdma_resolve_addr and rdma_resolve_route do",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn several_rules_stand_in_one_text() {
    let rules: Rules = "seed 0x10; reg_mr: fail ENOMEM ;; completion: late 1ms\n none"
        .parse()
        .unwrap();
    assert_eq!((rules.seed, rules.rules.len()), (16, 2));
    assert_eq!("none".parse(), Ok(Rules::default()));
}
