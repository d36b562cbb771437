//! librdmacm's own programs between two namespaces, and over the loopback.

use programs::{Machine, Namespace, Pair, Rockery, connection};

const SECONDS: u64 = 60;

fn pair(mtu: u32) -> Pair {
    Pair::new(mtu).expect("a pair").with(&Rockery::built())
}

#[test]
fn rping_checks_what_comes_back() {
    for mtu in [1500, 9000] {
        let pair = pair(mtu);
        for address in [pair.left.address(), pair.left.address_v6()] {
            let server = format!("rping -s -a {address} -V -C 500 -S 4000");
            let client = format!("rping -c -a {address} -V -C 500 -S 4000");
            connection::expect((&pair.left, &server), (&pair.right, &client), SECONDS);
        }
    }
}

#[test]
fn rping_runs_over_the_loopback() {
    let alone = Namespace::alone().unwrap().with(&Rockery::built());
    let (server, client) = ("rping -s -a 127.0.0.1 -V -C 100", "rping -c -a 127.0.0.1 -V -C 100");
    connection::expect((&alone, server), (&alone, client), SECONDS);
}

#[test]
fn ucmatose_transfers_in_both_directions() {
    let pair = pair(1500);
    let (server, client) = ("ucmatose -c 10 -C 20 -S 5000", "ucmatose -s 10.88.0.1 -c 10 -C 20 -S 5000");
    let exchange = connection::expect((&pair.left, server), (&pair.right, client), SECONDS);
    for end in [exchange.server, exchange.client] {
        assert!(end.output.contains("return status 0"), "{}", end.output);
    }
}
