//! libibverbs' own examples, over a veth and over the loopback.

use programs::{Exchange, Machine, Namespace, Pair};

const PORT: u16 = 18515;
const SECONDS: u64 = 60;

/// Runs a ping-pong between two machines. Both ends check every message that arrives when `-c` is given.
fn expect(server: &dyn Machine, client: &dyn Machine, line: &str) {
    let argv: Vec<&str> = line.split_whitespace().collect();
    let exchange = Exchange::run(server, client, &argv, "-g", PORT, SECONDS);
    let exchange = exchange
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .expect_success();
    assert!(
        exchange.client.output.contains("iters in"),
        "{line}:\n{}",
        exchange.client.output
    );
}

#[test]
fn devices_are_listed_after_their_interfaces() {
    let pair = Pair::with_rockery(1500);
    let listed = pair
        .left
        .run(&["ibv_devices"], SECONDS)
        .unwrap()
        .expect_success()
        .output;
    assert!(
        listed.contains("rk_eth0") && listed.contains("rk_lo"),
        "{listed}"
    );
}

#[test]
fn the_active_mtu_follows_the_interface() {
    for (mtu, active) in [(1500, "1024 (3)"), (9000, "4096 (5)")] {
        let devinfo = ["ibv_devinfo", "-v", "-d", "rk_eth0"];
        let told = Pair::with_rockery(mtu)
            .left
            .run(&devinfo, SECONDS)
            .unwrap()
            .expect_success()
            .output;
        let line = told
            .lines()
            .find(|line| line.contains("active_mtu"))
            .unwrap_or_default();
        assert!(line.contains(active), "MTU {mtu}: {line}");
        assert!(
            told.contains("PORT_ACTIVE") && told.contains("::ffff:10.88.0.1"),
            "{told}"
        );
    }
}

#[test]
fn rc_pingpong_runs_over_a_veth_of_either_mtu() {
    for mtu in [1500, 9000] {
        let pair = Pair::with_rockery(mtu);
        expect(&pair.left, &pair.right, "ibv_rc_pingpong -g 1 -n 200 -c");
    }
}

#[test]
fn rc_pingpong_waits_for_events() {
    let pair = Pair::with_rockery(1500);
    expect(&pair.left, &pair.right, "ibv_rc_pingpong -g 1 -n 100 -e");
}

#[test]
fn rc_pingpong_carries_messages_of_all_sizes() {
    let pair = Pair::with_rockery(1500);
    for size in [1, 1024, 1025, 65536, 1_048_576] {
        expect(
            &pair.left,
            &pair.right,
            &format!("ibv_rc_pingpong -g 1 -n 20 -c -s {size}"),
        );
    }
}

#[test]
fn rc_pingpong_runs_over_ipv6() {
    let pair = Pair::with_rockery(1500);
    expect(&pair.left, &pair.right, "ibv_rc_pingpong -g 2 -n 100 -c");
}

#[test]
fn uc_pingpong_runs_over_a_veth() {
    let pair = Pair::with_rockery(1500);
    expect(&pair.left, &pair.right, "ibv_uc_pingpong -g 1 -n 100 -c");
}

#[test]
fn ud_pingpong_runs_over_a_veth() {
    let pair = Pair::with_rockery(1500);
    expect(
        &pair.left,
        &pair.right,
        "ibv_ud_pingpong -g 1 -n 100 -c -s 1024",
    );
}

#[test]
fn srq_pingpong_shares_receives_among_its_queue_pairs() {
    let pair = Pair::with_rockery(1500);
    expect(&pair.left, &pair.right, "ibv_srq_pingpong -g 1 -n 200 -c");
}

#[test]
fn xsrq_pingpong_shares_receives_among_connections_and_its_clients() {
    let pair = Pair::with_rockery(1500);
    for options in ["", "-e", "-s 1025"] {
        let line = format!("ibv_xsrq_pingpong -g 1 -n 100 {options}");
        let argv: Vec<&str> = line.split_whitespace().collect();
        let exchange = Exchange::run(&pair.left, &pair.right, &argv, "-g", PORT, SECONDS).unwrap();
        let client = exchange.expect_success().client;
        assert!(
            client.output.ends_with("success\n"),
            "{line}:\n{}",
            client.output
        );
    }
}

#[test]
fn uc_ud_and_srq_wait_for_events_and_carry_several_sizes() {
    let pair = Pair::with_rockery(9000);
    for line in ["ibv_uc_pingpong", "ibv_srq_pingpong"] {
        for options in ["-e", "-s 1", "-s 4097", "-s 65536 -e"] {
            expect(
                &pair.left,
                &pair.right,
                &format!("{line} -g 1 -n 50 -c {options}"),
            );
        }
    }
    for options in ["-e", "-s 1", "-s 2048 -e"] {
        expect(
            &pair.left,
            &pair.right,
            &format!("ibv_ud_pingpong -g 1 -n 50 -c {options}"),
        );
    }
}

/// Both ends on one host reach each other by memory.
#[test]
fn every_pingpong_runs_over_the_loopback() {
    let alone = Namespace::with_rockery();
    for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"] {
        for options in ["", "-e", "-s 1", "-s 1048576", "-s 65537 -e"] {
            expect(
                &alone,
                &alone,
                &format!("{program} -g 1 -n 100 -c {options}"),
            );
        }
    }
    for options in ["", "-e", "-s 1", "-s 4096 -e"] {
        expect(
            &alone,
            &alone,
            &format!("ibv_ud_pingpong -g 1 -n 100 -c {options}"),
        );
    }
    for options in ["", "-e", "-s 4097"] {
        let line = format!("ibv_xsrq_pingpong -g 1 -n 100 {options}");
        let argv: Vec<&str> = line.split_whitespace().collect();
        let exchange = Exchange::run(&alone, &alone, &argv, "-g", PORT, SECONDS).unwrap();
        let client = exchange.expect_success().client;
        assert!(
            client.output.ends_with("success\n"),
            "{line}:\n{}",
            client.output
        );
    }
}

/// A program that has all of its answers destroys its queue pairs at once, while a lane that is full may keep
/// the acknowledgements which its peer waits for.
#[test]
fn a_peer_that_ends_first_leaves_the_other_end_not_waiting() {
    let alone = Namespace::with_rockery();
    for _ in 0..12 {
        expect(&alone, &alone, "ibv_srq_pingpong -g 1 -n 50 -s 1048576");
    }
}

#[test]
fn a_missing_or_wrong_gid_index_is_explained() {
    let pair = Pair::with_rockery(1500);
    for line in ["ibv_rc_pingpong", "ibv_rc_pingpong -g 9", "ib_send_bw -x 9"] {
        let argv: Vec<&str> = line.split_whitespace().collect();
        let exchange = Exchange::run(&pair.left, &pair.right, &argv, "-g", PORT, SECONDS).unwrap();
        let said = exchange.server.output + &exchange.client.output;
        assert!(said.contains("`rockery devices` lists"), "{line}:\n{said}");
        assert!(exchange.client.status != Some(0), "{line}:\n{said}");
    }
}
