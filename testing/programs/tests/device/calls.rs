//! What calls return, where a call itself must refuse, or replace what the program asks for: as the manual
//! pages and Linux's devices do.

use programs::probe::Probe;
use programs::{Exchange, Machine, Namespace, Rockery};

const SECONDS: u64 = 60;
const PINGPONG_PORT: u16 = 18515;

/// Runs a case of `calls.c` over shared memory, and over packets.
fn expect_right(case: &str) {
    expect_right_with(&[Rockery::built(), Rockery::by_packets()], case);
}

fn expect_right_with(ways: &[Rockery], case: &str) {
    let probe = Probe::compile_with("cc", "calls", &["-libverbs"]).expect("it compiles");
    for rockery in ways {
        let alone = Namespace::alone().expect("a namespace").with(rockery);
        let path = probe.path().display().to_string();
        let ran = alone.run(&[&path, case], SECONDS).expect("it runs");
        assert!(
            ran.succeeded() && ran.output.ends_with("right\n"),
            "{case}, {rockery:?}:\n{}",
            ran.output
        );
    }
}

#[test]
fn a_batch_with_a_request_that_is_refused_executes_nothing() {
    expect_right("batch");
}

#[test]
fn a_query_returns_current_psns_and_whether_the_queue_is_draining() {
    expect_right("query");
    expect_right_with(&[Rockery::by_packets()], "query-peer");
}

#[test]
fn an_address_without_a_route_is_refused_by_the_call_that_names_it() {
    expect_right("unreachable");
}

#[test]
fn devices_exist_where_netlink_sockets_are_refused() {
    expect_right("without-netlink");
}

/// Two namespaces with a third between them, which forwards IPv4.
fn behind_a_router() -> [Namespace; 3] {
    let [left, router, right] = [
        ("10.91.1.2", "fd00:91:1::2"),
        ("10.91.1.1", "fd00:91:1::1"),
        ("10.91.2.2", "fd00:91:2::2"),
    ]
    .map(|(v4, v6)| {
        let address = |text: &str| text.parse().expect("an address");
        Namespace::new(address(v4), address(v6)).expect("a namespace")
    });
    router
        .call("sysctl -qw net.ipv4.ip_forward=1")
        .expect("it forwards");
    for (number, end) in [(1, &left), (2, &right)] {
        let line = |machine: &Namespace, line: &str| {
            machine
                .call(line)
                .unwrap_or_else(|error| panic!("{line}: {error}"));
        };
        let veth = format!(
            "ip link add eth0 mtu 9000 type veth peer name eth{number} mtu 9000 netns {}",
            router.netns()
        );
        line(end, &veth);
        line(end, "ip link set eth0 up");
        line(end, &format!("ip address add 10.91.{number}.2/24 dev eth0"));
        line(&router, &format!("ip link set eth{number} up"));
        line(
            &router,
            &format!("ip address add 10.91.{number}.1/24 dev eth{number}"),
        );
        line(
            end,
            &format!("ip route add default via 10.91.{number}.1 dev eth0"),
        );
    }
    let rockery = Rockery::built();
    [left.with(&rockery), router, right.with(&rockery)]
}

/// The ping-pongs ask for a hop limit of 1, which Linux replaces by the route's.
#[test]
fn pingpongs_of_all_transports_pass_a_router() {
    let [left, _router, right] = behind_a_router();
    for line in [
        "ibv_rc_pingpong -d rk_eth0 -g 1 -n 100 -c",
        "ibv_uc_pingpong -d rk_eth0 -g 1 -n 100 -c",
        "ibv_ud_pingpong -d rk_eth0 -g 1 -n 100 -s 1000 -c",
    ] {
        let argv: Vec<&str> = line.split_whitespace().collect();
        Exchange::run(&left, &right, &argv, "-g", PINGPONG_PORT, SECONDS)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
            .expect_success();
    }
}

/// As rping ends its threads, and many programs that were made of it.
#[test]
fn threads_are_cancelled_in_calls_that_wait_and_in_no_others() {
    let libraries = ["-libverbs", "-lrdmacm", "-pthread"];
    let probe = Probe::compile_with("cc", "cancel", &libraries).expect("it compiles");
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        let alone = Namespace::alone().expect("a namespace").with(&rockery);
        let path = probe.path().display().to_string();
        let ran = alone.run(&[&path], SECONDS).expect("it runs");
        assert!(
            ran.succeeded() && ran.output.ends_with("right\n"),
            "{rockery:?}:\n{}",
            ran.output
        );
    }
}
