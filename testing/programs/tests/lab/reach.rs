//! What hosts of a lab reach: `rockery lab test`, addresses that the file does not name, and pictures of the
//! network.

use programs::live;
use serde_json::Value;

fn script(text: &str) -> String {
    live::script(text, 240)
}

#[test]
fn each_pair_that_does_not_reach_the_other_is_named_with_its_reason() {
    let said = script(
        r#"
        $R lab up -d $F/lab.toml >/dev/null || exit 1
        $R lab test; echo "status $?"
        $R lab test sender0 server --json; echo "status $?"
        $R lab link sender0-crs504 down || exit 1
        $R lab test server sender0 sender1; echo "status $?"
        $R lab link sender0-crs504 up || exit 1
        $R lab test nobody 2>&1; echo "status $?"
        $R lab test server 2>&1; echo "status $?"
        down"#,
    );
    let mut lines = said.lines();
    let mut next = || lines.next().expect("another line");
    assert_eq!(
        next(),
        "lab lab: all 12 pairs of 4 hosts reach each other (IPv4, IPv6, RDMA)"
    );
    assert_eq!(next(), "status 0");
    let document: Value = serde_json::from_str(next()).expect("JSON");
    assert_eq!(document["reached"], true, "{document}");
    assert_eq!(document["pairs"][1]["from"], "server", "{document}");
    assert_eq!(next(), "status 0");
    // Three ways from and to the host without a cable, four pairs.
    for _ in 0..12 {
        let line = next();
        let is_of_it = line.starts_with("sender0 → ") || line.contains(" → sender0: ");
        assert!(is_of_it, "{line}: {said}");
    }
    assert_eq!(
        next(),
        "lab lab: 4 of 6 pairs of 3 hosts do not reach each other (IPv4, IPv6, RDMA)"
    );
    assert_eq!(next(), "status 1");
    assert!(next().contains("no live host is called nobody"), "{said}");
    next();
    assert!(next().contains("a test needs two hosts"), "{said}");
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
}

#[test]
fn hosts_reach_addresses_that_the_file_does_not_name() {
    let said = script(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        on() { $R lab exec "$@"; }
        on sender0 ip address add 192.168.50.10/24 dev eth0
        on sender1 ip address add 192.168.50.11/24 dev eth0
        on sender0 ip address add fd77::10/64 dev eth0
        on sender1 ip address add fd77::11/64 dev eth0
        sleep 2
        on sender1 ping -c 1 -W 10 192.168.50.10 >/dev/null && echo over IPv4
        on sender1 ping -c 1 -W 10 fd77::10 >/dev/null && echo over IPv6
        on sender0 rping -s -a 192.168.50.10 -C 5 >/dev/null 2>&1 &
        for try in $(seq 50); do
            on sender1 rping -c -a 192.168.50.10 -C 5 >/dev/null 2>&1 && echo over RDMA && break
            sleep 0.2
        done
        kill $! 2>/dev/null
        # Neither an address of the file nor one that another host has been heard with.
        on sender2 ip address add 192.168.50.10/24 dev eth0
        on sender2 ip address add 10.0.0.2/32 dev eth0
        on sender2 ping -c 1 -W 1 -I 192.168.50.10 192.168.50.11 >/dev/null || echo taken
        on sender1 ip neighbour flush dev eth0
        on sender1 ping -c 1 -W 10 192.168.50.10 >/dev/null && echo the first one has it
        $R lab ps --json
        down"#,
    );
    for wanted in [
        "over IPv4",
        "over IPv6",
        "over RDMA",
        "taken",
        "the first one has it",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.lines().any(|line| line == wanted), "{wanted}: {said}");
    }
    let status = said.lines().find(|line| line.starts_with('{'));
    let status: Value = serde_json::from_str(status.expect("JSON")).expect("JSON");
    let host = |name: &str| {
        let hosts = status["hosts"].as_array().expect("hosts").iter();
        let mut own = hosts.filter(|host| host["name"] == name);
        own.next().expect("a host").clone()
    };
    let learned = host("sender0")["learned"].to_string();
    assert!(
        learned.contains("192.168.50.10") && learned.contains("fd77::10"),
        "{learned}"
    );
    assert!(host("server").get("learned").is_none());
    let forger = host("sender2");
    assert!(forger["counters"]["forged"].as_u64() > Some(0), "{forger}");
}

#[test]
fn the_network_is_drawn_in_the_languages_of_graphs() {
    let said = script(
        r#"
        $R lab graph $F/lab.toml || exit 1
        $R lab up -d $F/lab.toml || exit 1
        $R lab link sender0-crs504 down || exit 1
        $R lab graph --format mermaid || exit 1
        $R lab graph --format json || exit 1
        $R lab graph --format svg -o $D/lab.svg && grep -c '<line' $D/lab.svg
        $R lab graph --format svg | grep -c stroke-dasharray
        down"#,
    );
    for line in [
        "  \"server\" [shape=ellipse, label=\"server\\n10.0.0.1\\nfd6c:6162::1\"];",
        "  \"crs504\" [shape=box, label=\"crs504\"];",
        "  \"crs504\" -- \"sender0\" [taillabel=\"qsfp28-2-1\", label=\"100 Gb/s\"];",
        "graph TD",
        "  n4 -.-|\"qsfp28-2-1<br>100 Gb/s, down\"| n1",
        "  n4 ---|\"qsfp28-3-1<br>100 Gb/s\"| n2",
        "4",
        "1",
    ] {
        assert!(said.lines().any(|own| own == line), "{line}\n{said}");
    }
    let shape = said.lines().find(|line| line.starts_with('{'));
    let shape: Value = serde_json::from_str(shape.expect("JSON")).expect("JSON");
    let down = shape["links"].as_array().expect("links").iter();
    assert_eq!(down.filter(|link| link["up"] == false).count(), 1);
}
