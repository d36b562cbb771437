//! Every program of librdmacm on two hosts and on one, with MTU 1500 and 9000, over IPv4 and over IPv6.

use programs::machine::until;
use programs::{Exchange, Machine, Namespace, Pair, connection, qperf};

const SECONDS: u64 = 60;
/// A hundred thousand of rping's messages, on a busy machine.
const LONG_SECONDS: u64 = 600;

/// Runs something with a server's host, a client's, and the server's address.
fn everywhere(run: impl Fn(&Namespace, &Namespace, &str)) {
    for mtu in [1500, 9000] {
        let pair = Pair::with_rockery(mtu);
        for address in ["10.88.0.1", "fd88::1"] {
            run(&pair.left, &pair.right, address);
        }
    }
    let alone = Namespace::with_rockery();
    for address in ["127.0.0.1", "::1"] {
        run(&alone, &alone, address);
    }
}

/// The same with the two ends of a program, with `{}` as the address. The client has to print `said`.
fn expect_everywhere(server: &str, client: &str, said: &str) {
    everywhere(|left, right, address| {
        let lines = [server, client].map(|line| line.replace("{}", address));
        let Exchange { client: end, .. } =
            connection::expect((left, &lines[0]), (right, &lines[1]), SECONDS);
        assert!(end.output.contains(said), "{}: {}", lines[1], end.output);
    });
}

#[test]
fn rping_with_its_own_queue_pairs_port_and_sizes() {
    for options in ["-S 64", "-S 65000", "-q -S 4001", "-p 7999"] {
        let [server, client] =
            ["-s", "-c"].map(|end| format!("rping {end} -a {{}} -V -v -C 20 {options}"));
        expect_everywhere(&server, &client, "ping data: rdma-ping-19:");
    }
}

#[test]
fn rping_to_a_server_that_stays() {
    everywhere(|left, right, address| {
        let mut server = left
            .start(&["rping", "-s", "-P", "-a", address])
            .expect("rping");
        assert!(
            until(SECONDS, || left.awaits_requests()).unwrap(),
            "it listens"
        );
        for _ in 0..3 {
            let client = ["rping", "-c", "-a", address, "-V", "-C", "20"];
            right.run(&client, SECONDS).unwrap().expect_success();
        }
        server.kill().unwrap();
    });
}

/// `ROCKERY_TEST_PINGS=100000` for as many.
#[test]
fn rping_ten_thousand_times() {
    let pings = std::env::var("ROCKERY_TEST_PINGS").unwrap_or_else(|_| "10000".to_owned());
    let (pair, alone) = (Pair::with_rockery(1500), Namespace::with_rockery());
    for (left, right, address) in [
        (&alone, &alone, "127.0.0.1"),
        (&pair.left, &pair.right, "10.88.0.1"),
    ] {
        let lines =
            ["-s", "-c"].map(|end| format!("rping {end} -a {address} -V -C {pings} -S 100"));
        connection::expect((left, &lines[0]), (right, &lines[1]), LONG_SECONDS);
    }
}

#[test]
fn ucmatose_and_udaddy() {
    expect_everywhere(
        "ucmatose -b {} -c 4 -C 10 -S 5000",
        "ucmatose -s {} -c 4 -C 10 -S 5000",
        "status 0",
    );
    expect_everywhere(
        "udaddy -b {} -c 4 -C 10",
        "udaddy -s {} -c 4 -C 10",
        "status 0",
    );
}

#[test]
fn endpoints() {
    expect_everywhere("rdma_server -s {}", "rdma_client -s {}", "end 0");
}

/// Its server listens on the wildcard of IPv4 only.
#[test]
fn reliable_and_extended_reliable_connections() {
    for kind in ["r", "x"] {
        everywhere(|left, right, address| {
            if !address.contains(':') {
                let server = format!("rdma_xserver -c {kind}");
                let client = format!("rdma_xclient -c {kind} -s {address}");
                connection::expect((left, &server), (right, &client), SECONDS);
            }
        });
    }
}

#[test]
fn cmtime_connects_a_hundred_times() {
    everywhere(|left, right, address| {
        let mut server = left
            .start(&["cmtime", "-b", address, "-c", "100"])
            .expect("cmtime");
        assert!(
            until(SECONDS, || left.awaits_requests()).unwrap(),
            "it listens"
        );
        let client = ["cmtime", "-s", address, "-c", "100"];
        let client = right.run(&client, SECONDS).unwrap().expect_success();
        assert!(client.output.contains("disconnect"), "{}", client.output);
        server.kill().unwrap();
    });
}

#[test]
fn streams_and_mapped_memory() {
    for program in ["rstream", "riostream"] {
        let line = format!("{program} -T v -S 65536 -C 10 -I 5");
        expect_everywhere(
            &format!("{line} -b {{}}"),
            &format!("{line} -s {{}}"),
            "Gb/sec",
        );
    }
}

/// udpong has room for 2,048 bytes, whatever size it is given; 2,000 are more than a short frame takes.
#[test]
fn datagrams_of_all_sizes() {
    everywhere(|left, right, address| {
        let mut server = left.start(&["udpong", "-b", address]).expect("udpong");
        let is_there = || Ok(!left.call("ss -Hanu sport = :7174")?.is_empty());
        assert!(until(SECONDS, is_there).unwrap(), "it is there");
        for size in ["16", "64", "1000", "1400", "2000"] {
            let client = ["udpong", "-s", address, "-T", "e", "-C", "50", "-S", size];
            let client = right.run(&client, SECONDS).unwrap().expect_success();
            assert!(
                client.output.contains("custom"),
                "{size} bytes to {address}: {}",
                client.output
            );
        }
        server.kill().unwrap();
    });
}

#[test]
fn qperf_on_one_host() {
    let alone = Namespace::with_rockery();
    let mut server = alone.start(&["qperf"]).expect("qperf");
    alone.wait_for_listener(19765, SECONDS).expect("it listens");
    for test in ["rc_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_read_bw"] {
        let client = qperf::client(&alone, "127.0.0.1", test, SECONDS);
        let client = client.unwrap().expect_success();
        assert!(client.output.contains(" = "), "{test}: {}", client.output);
    }
    server.kill().unwrap();
}
