//! librdmacm's own programs between two namespaces, and over the loopback.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Machine, Namespace, Pair, connection, perftest};

const SECONDS: u64 = 60;

#[test]
fn rping_verifies_its_data() {
    for mtu in [1500, 9000] {
        let pair = Pair::with_rockery(mtu);
        for address in [pair.left.address(), pair.left.address_v6()] {
            let server = format!("rping -s -a {address} -V -C 500 -S 4000");
            let client = format!("rping -c -a {address} -V -C 500 -S 4000");
            connection::expect((&pair.left, &server), (&pair.right, &client), SECONDS);
        }
    }
}

#[test]
fn rping_runs_over_the_loopback() {
    let alone = Namespace::with_rockery();
    let (server, client) = (
        "rping -s -a 127.0.0.1 -V -C 100",
        "rping -c -a 127.0.0.1 -V -C 100",
    );
    connection::expect((&alone, server), (&alone, client), SECONDS);
}

#[test]
fn ucmatose_transfers_in_both_directions() {
    let pair = Pair::with_rockery(1500);
    let (server, client) = (
        "ucmatose -c 10 -C 20 -S 5000",
        "ucmatose -s 10.88.0.1 -c 10 -C 20 -S 5000",
    );
    let exchange = connection::expect((&pair.left, server), (&pair.right, client), SECONDS);
    for end in [exchange.server, exchange.client] {
        assert!(end.output.contains("return status 0"), "{}", end.output);
    }
}

#[test]
fn programs_that_create_their_own_queue_pairs_connect() {
    let pair = Pair::with_rockery(1500);
    let (server, client) = (
        "rping -s -a 10.88.0.1 -q -V -C 200",
        "rping -c -a 10.88.0.1 -q -V -C 200",
    );
    connection::expect((&pair.left, server), (&pair.right, client), SECONDS);
}

#[test]
fn a_persistent_server_takes_one_client_after_the_other() {
    let pair = Pair::with_rockery(1500);
    let mut server = pair
        .left
        .start(&["rping", "-s", "-P", "-a", "10.88.0.1"])
        .unwrap();
    until(SECONDS, || pair.left.awaits_requests()).unwrap();
    let client: Vec<&str> = "rping -c -a 10.88.0.1 -V -C 20".split(' ').collect();
    for _ in 0..5 {
        pair.right.run(&client, SECONDS).unwrap().expect_success();
    }
    server.kill().unwrap();
}

#[test]
fn endpoints_connect_synchronously() {
    let pair = Pair::with_rockery(1500);
    for (server, client) in [
        ("rdma_server", "rdma_client -s 10.88.0.1"),
        ("rdma_xserver -c r", "rdma_xclient -c r -s 10.88.0.1"),
        ("rdma_xserver -c x", "rdma_xclient -c x -s 10.88.0.1"),
    ] {
        let exchange = connection::expect((&pair.left, server), (&pair.right, client), SECONDS);
        assert!(
            exchange.client.output.contains("end 0"),
            "{client}: {}",
            exchange.client.output
        );
    }
}

#[test]
fn ucmatose_migrates_to_another_channel_and_runs_over_ipv6() {
    let pair = Pair::with_rockery(1500);
    let ends = [
        ("ucmatose -m", "ucmatose -m -s 10.88.0.1"),
        ("ucmatose -b fd88::1", "ucmatose -s fd88::1"),
    ];
    for (server, client) in ends {
        let exchange = connection::expect((&pair.left, server), (&pair.right, client), SECONDS);
        assert!(
            exchange.client.output.contains("return status 0"),
            "{}",
            exchange.client.output
        );
    }
}

#[test]
fn datagram_services_are_found() {
    let pair = Pair::with_rockery(1500);
    for address in ["10.88.0.1", "fd88::1"] {
        let server = format!("udaddy -b {address} -c 4 -C 20");
        let client = format!("udaddy -s {address} -c 4 -C 20");
        let exchange = connection::expect((&pair.left, &server), (&pair.right, &client), SECONDS);
        assert!(
            exchange.server.output.contains("return status 0"),
            "{}",
            exchange.server.output
        );
    }
}

#[test]
fn multicast_reaches_the_members_of_its_group() {
    let pair = Pair::with_rockery(1500);
    for (group, here, there) in [
        ("239.7.7.7", "10.88.0.1", "10.88.0.2"),
        ("ff0e::4791", "fd88::1", "fd88::2"),
    ] {
        let server = ["mckey", "-m", group, "-b", here];
        let mut server = pair.left.start(&server).unwrap();
        let joined = || Ok(pair.left.call("ip maddress show dev eth0")?.contains(group));
        assert!(until(SECONDS, joined).unwrap(), "{group} is joined");
        let client = ["mckey", "-m", group, "-b", there, "-s"];
        pair.right.run(&client, SECONDS).unwrap().expect_success();
        let server = server.wait(SECONDS).unwrap().expect_success();
        assert!(
            server.output.contains("return status 0"),
            "{}",
            server.output
        );
    }
}

#[test]
fn cmtime_opens_and_closes_many_connections() {
    let pair = Pair::with_rockery(1500);
    let mut server = pair
        .left
        .start(&["cmtime", "-b", "10.88.0.1", "-c", "500"])
        .unwrap();
    assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
    for _ in 0..2 {
        let client = ["cmtime", "-s", "10.88.0.1", "-c", "500"];
        let client = pair.right.run(&client, SECONDS).unwrap().expect_success();
        assert!(client.output.contains("disconnect"), "{}", client.output);
    }
    server.kill().unwrap();
}

#[test]
fn the_peer_of_a_killed_process_is_disconnected() {
    let pair = Pair::with_rockery(1500);
    for server_dies in [false, true] {
        let server = ["rping", "-s", "-a", "10.88.0.1", "-v"];
        let client = ["rping", "-c", "-a", "10.88.0.1", "-v"];
        let mut server = pair.left.start(&server).unwrap();
        assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
        let mut client = pair.right.start(&client).unwrap();
        let (dies, lives) = if server_dies {
            (&mut server, &mut client)
        } else {
            (&mut client, &mut server)
        };
        lives.expect_output("ping data", SECONDS);
        dies.kill().unwrap();
        lives.expect_output("DISCONNECT EVENT", SECONDS);
    }
}

/// perftest closes a listener and opens the next a second later, perhaps of the other port space; a client
/// that is refused in between crashes. Over IPv6 it has no connections.
#[test]
fn perftest_connects_by_rdma_cm() {
    let run = |server: &Namespace, client: &Namespace, address: &str, line: &str| {
        let lines = (
            format!("{line} -R -n 100"),
            format!("{line} -R -n 100 {address}"),
        );
        let exchange = connection::expect((server, &lines.0), (client, &lines.1), SECONDS);
        assert!(
            !perftest::rows(&exchange.client.output).is_empty(),
            "{}",
            exchange.client.output
        );
    };
    let jumbo = Pair::with_rockery(9000);
    for line in [
        "ib_send_bw",
        "ib_write_lat",
        "ib_read_bw -q 4",
        "ib_atomic_lat",
        "ib_send_bw -c UD -s 1024",
    ] {
        run(&jumbo.left, &jumbo.right, "10.88.0.1", line);
    }
    let pair = Pair::with_rockery(1500);
    for line in [
        "ib_send_lat -c UD -s 1024",
        "ib_read_lat",
        "ib_atomic_bw",
        "ib_write_bw",
    ] {
        run(&pair.left, &pair.right, "10.88.0.1", line);
    }
    for address in ["127.0.0.1", "10.88.0.1"] {
        run(&pair.left, &pair.left, address, "ib_write_bw");
        run(&pair.left, &pair.left, address, "ib_send_bw -c UD -s 1024");
    }
}

/// An XRC connection: each end receives the number of the other's queue pair.
#[test]
fn an_xrc_initiator_gets_the_queue_pair_number_of_its_target() {
    let probe = Probe::compile_with("cc", "initiator", &["-lrdmacm", "-libverbs"]).unwrap();
    let pair = Pair::with_rockery(1500);
    let path = probe.path().to_string_lossy();
    let said = pair
        .left
        .run(&[&path, "10.88.0.1"], SECONDS)
        .unwrap()
        .expect_success()
        .output;
    let expected = "the request names the initiator: yes\nthe reply names the target: yes\n\
                    the target's event has private data: no\n";
    assert_eq!(said, expected);
}

/// A completion and the end of its connection come by different ways, between two hosts and on one.
#[test]
fn requests_are_completed_before_their_connection_ends() {
    let probe = Probe::compile_with("cc", "acknowledged", &["-lrdmacm", "-libverbs"]).unwrap();
    let pair = Pair::with_rockery(1500);
    let path = probe.path().to_string_lossy();
    let mut server = pair.left.start(&[&path, "serve", "10.88.0.1"]).unwrap();
    assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
    for client in [&pair.right, &pair.left] {
        let said = client
            .run(&[&path, "ask", "10.88.0.1", "200"], SECONDS)
            .unwrap()
            .expect_success()
            .output;
        assert_eq!(said, "of 200 ends, 0 came before the completion\n");
    }
    server.kill().unwrap();
}

/// As Linux's rdma_cm does; without netlink sockets this is known of IPv4 neighbours on the link.
#[test]
fn a_neighbour_that_does_not_answer_is_an_error_of_address_resolution() {
    let confine = Probe::compile("confine").unwrap();
    let confine = confine.path().to_string_lossy();
    let pair = Pair::with_rockery(1500);
    let route = "ip route add 10.99.0.0/24 via 10.88.0.78";
    pair.left.call(route).unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&[], "10.88.0.77"),
        (&[], "fd88::77"),
        (&[], "10.99.0.1"),
        (&[&confine, "netlink"], "10.88.0.77"),
    ];
    let start = |(before, address): (&[&str], &'static str)| {
        let rping = ["rping", "-c", "-C", "1", "-a", address];
        (
            address,
            pair.left.start(&[before, &rping].concat()).unwrap(),
        )
    };
    for (address, mut rping) in cases.map(start) {
        let said = rping.wait(SECONDS).unwrap().output;
        let expected = "RDMA_CM_EVENT_ADDR_ERROR, error -110";
        assert!(said.contains(expected), "{address}: {said}");
    }
}

#[test]
fn a_neighbour_that_answers_is_found_without_an_entry_in_the_table() {
    let confine = Probe::compile("confine").unwrap();
    let confine = confine.path().to_string_lossy();
    let pair = Pair::with_rockery(1500);
    for address in ["10.88.0.1", "fd88::1"] {
        let mut server = pair
            .left
            .start(&["rping", "-s", "-P", "-a", address])
            .unwrap();
        assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
        let cases: [&[&str]; 2] = [&[], &[&confine, "netlink"]];
        for before in cases {
            pair.right.call("ip neigh flush all").unwrap();
            let rping = ["rping", "-c", "-C", "1", "-a", address];
            let client = pair.right.run(&[before, &rping].concat(), SECONDS);
            client.unwrap().expect_success();
        }
        server.kill().unwrap();
    }
}

#[test]
fn mistakes_return_the_errors_of_the_manual_pages() {
    let probe = Probe::compile_with(
        "cc",
        "cm_errors",
        &["-D_GNU_SOURCE", "-lrdmacm", "-libverbs"],
    )
    .unwrap();
    let pair = Pair::with_rockery(1500);
    let path = probe.path().to_string_lossy();
    let said = pair
        .left
        .run(&[&path, "10.88.0.1", "192.0.2.1", "10.88.0.77"], SECONDS)
        .unwrap()
        .expect_success()
        .output;
    assert_eq!(said, include_str!("../../probe/cm_errors.expected"));
}
