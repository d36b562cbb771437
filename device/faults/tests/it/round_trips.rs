//! Every rule is read as it is written, and no text makes the reader panic.

use faults::{CALLS, Rule, Rules, read_file};
use proptest::prelude::*;

/// Words of rules and others, which make texts that are almost rules.
fn word() -> impl Strategy<Value = String> {
    let known = "post_send: reg_mr: completion: fail slow block status late ENOMEM RETRY_EXC_ERR \
                 5ms 10us 0 1 after every times nth probability seed size opcode type qpn peer \
                 process device 1% 1/3 0.5 rdma_write send recv rc ud 4KiB.. ..64 1..2 10.0.0.1 \
                 fe80::1 ; = [[fault]] on do \"x\" from until 2s rnr expire odp_fault post_recv:";
    let known: Vec<String> = known.split_whitespace().map(str::to_owned).collect();
    prop_oneof![8 => proptest::sample::select(known), 1 => "\\PC{0,12}"]
}

fn condition() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<u64>().prop_map(|value| format!("after {value}")),
        (1..u64::MAX).prop_map(|value| format!("every {value}")),
        (1..u64::MAX).prop_map(|value| format!("times {value}")),
        (1..1000_u64, 1000..u64::MAX)
            .prop_map(|(part, whole)| format!("probability {part}/{whole}")),
        any::<u64>().prop_map(|value| format!("seed {value}")),
        (any::<u32>(), any::<u32>())
            .prop_map(|(from, more)| format!("size {from}..{}", u64::from(from) + u64::from(more))),
        (1..0xff_ffff_u32).prop_map(|value| format!("qpn {value}")),
        any::<std::net::IpAddr>().prop_map(|value| format!("peer {value}")),
        (0..u64::from(u32::MAX)).prop_map(|value| format!("from {value}us")),
        "process [a-z_]{1,15}",
        "device [a-z_0-9]{1,20}",
    ]
}

proptest! {
    #[test]
    fn a_rule_is_read_as_it_is_written(conditions in proptest::collection::vec(condition(), 0..6)) {
        let text = format!("post_send: fail EAGAIN {}", conditions.join(" "));
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse(), Ok(rule));
        } else {
            let mut names: Vec<&str> = conditions.iter().filter_map(|one| one.split(' ').next()).collect();
            names.sort_unstable();
            prop_assert!(names.windows(2).any(|pair| pair[0] == pair[1]), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_the_readers_panic(words in proptest::collection::vec(word(), 0..20)) {
        for separator in [" ", "\n", ""] {
            let text = words.join(separator);
            if let Ok(rules) = text.parse::<Rules>() {
                prop_assert_eq!(rules.to_string().parse(), Ok(rules));
            }
            let _ = read_file("file", &text);
        }
    }
}

#[test]
fn each_call_fails_is_slow_and_blocks() {
    for call in CALLS {
        for action in [
            "fail EIO",
            "slow 3us",
            "block",
            "block 1s",
            "block 1s after 2",
        ] {
            let text = format!("{call}: {action}");
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
    }
}

#[test]
fn each_kind_of_rule_is_read_as_it_is_written() {
    for text in [
        "completion: status REM_ACCESS_ERR opcode rdma_read",
        "completion: late 5ms",
        "post_recv: rnr 3 type rc nth 2",
        "post_srq_recv: rnr 3",
        "reg_mr: expire 2s size 4096..",
        "reg_mr: odp_fault 4096",
        "packet: drop type rc peer 10.0.0.1 opcode acknowledge size 0..64",
        "packet: delay 1ms every 7",
        "packet: duplicate",
        "packet: reorder 3",
        "packet: corrupt",
        "packet: mark",
        "packet: rate 10Gb/s",
        "cm: drop opcode rep times 1",
        "cm: delay 2s opcode rtu",
        "cm: reject 28",
        "time: raise port_err from 2s",
        "post_send: raise qp_fatal nth 3",
        "rdma_resolve_addr: report ETIMEDOUT",
        "limit: max_qp 8 device rk_lo",
        "limit: registered_bytes 65536",
    ] {
        assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
    }
}
