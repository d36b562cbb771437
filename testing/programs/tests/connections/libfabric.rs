//! libfabric's provider for verbs, and qperf: their connections come by RDMA-CM.

use programs::{Exchange, Machine, Pair, qperf};

const SECONDS: u64 = 60;
/// Where fi_pingpong's server talks to its client.
const PINGPONG_PORT: u16 = 47592;
/// Where qperf's does.
const QPERF_PORT: u16 = 19765;

/// Connected endpoints, and reliable datagrams made of them and of UD.
const PROVIDERS: [(&str, &str); 3] = [
    ("verbs", "msg"),
    ("verbs;ofi_rxm", "rdm"),
    ("verbs;ofi_rxd", "rdm"),
];

/// Runs `fi_pingpong`, which looks at every byte (`-c`).
fn pingpong(server: &dyn Machine, client: &dyn Machine) {
    for (provider, endpoint) in PROVIDERS {
        let argv = [
            "fi_pingpong",
            "-p",
            provider,
            "-e",
            endpoint,
            "-I",
            "10",
            "-c",
        ];
        let exchange = Exchange::run(server, client, &argv, "", PINGPONG_PORT, SECONDS);
        let exchange = exchange
            .unwrap_or_else(|error| panic!("{provider}: {error}"))
            .expect_success();
        assert!(
            exchange.client.output.contains("1m"),
            "{provider}: {}",
            exchange.client.output
        );
    }
}

#[test]
fn libfabric_plays_between_two_hosts_and_on_one() {
    for mtu in [1500, 9000] {
        let pair = Pair::with_rockery(mtu);
        pingpong(&pair.left, &pair.right);
        pingpong(&pair.left, &pair.left);
    }
}

/// Reliable datagrams over XRC: libfabric makes two connections, one in each direction, and tells their
/// events apart by the length of private data. Those of the passive side have none.
#[test]
fn libfabric_connects_over_xrc() {
    let pair = Pair::with_rockery(1500);
    let argv = [
        "env",
        "FI_VERBS_PREFER_XRC=1",
        "FI_OFI_RXM_USE_SRX=1",
        "fi_pingpong",
    ];
    let argv = [
        &argv[..],
        &["-p", "verbs;ofi_rxm", "-e", "rdm", "-I", "10", "-c"],
    ]
    .concat();
    for client in [&pair.right, &pair.left] {
        let exchange = Exchange::run(&pair.left, client, &argv, "", PINGPONG_PORT, SECONDS);
        let exchange = exchange.expect("it plays").expect_success();
        assert!(
            exchange.client.output.contains("1m"),
            "{}",
            exchange.client.output
        );
    }
}

/// It finds devices as it would find hardware. (Not on a loopback interface: libfabric leaves those out for
/// connected endpoints.)
#[test]
fn libfabric_offers_all_that_verbs_have() {
    let pair = Pair::with_rockery(1500);
    let said = pair
        .left
        .run(&["fi_info", "-p", "verbs"], SECONDS)
        .unwrap()
        .expect_success()
        .output;
    for what in [
        "FI_EP_MSG",
        "FI_EP_DGRAM",
        "FI_PROTO_RDMA_CM_IB_RC",
        "FI_PROTO_IB_UD",
        "domain: rk_eth0",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
}

/// qperf has connections for RC alone: its other transports use no GID, which RoCE needs.
#[test]
fn qperf_measures_connected_queue_pairs() {
    let pair = Pair::with_rockery(9000);
    let mut server = pair.left.start(&["qperf"]).expect("it starts");
    pair.left
        .wait_for_listener(QPERF_PORT, SECONDS)
        .expect("it listens");
    for test in [
        "rc_bw",
        "rc_lat",
        "rc_rdma_write_bw",
        "rc_rdma_read_bw",
        "ver_rc_compare_swap",
        "ver_rc_fetch_add",
    ] {
        let client = qperf::client(&pair.right, "10.88.0.1", test, SECONDS);
        let client = client.unwrap().expect_success();
        assert!(client.output.contains(" = "), "{test}: {}", client.output);
    }
    server.kill().unwrap();
}
