//! IP over InfiniBand in a lab: unmodified programs over `ib0`, while OpenSM manages the subnet.

use crate::infiniband::script_with;
use programs::live;
use std::path::Path;

/// `linked HOST` waits until the interface of a host has a link, `unlinked HOST` until it has none.
const LINKS: &str = r#"
    linked() { until_it_prints 1 "$R lab exec $1 -- ip link show ib0 | grep -c LOWER_UP"; }
    unlinked() { until_it_prints 0 "$R lab exec $1 -- ip link show ib0 | grep -c LOWER_UP"; }
"#;

fn script(text: &str) -> String {
    let paths = Path::new(env!("CARGO_BIN_EXE_infiniband_paths"));
    script_with(&format!("{LINKS}\n{text}"), &[paths])
}

#[test]
fn hosts_on_a_cable_reach_each_other_over_ib0() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/two-hosts.toml || exit 1
        $R lab exec alice -- ip -d link show ib0
        $R lab exec alice -- $D/infiniband_paths 10.0.0.2
        manager alice
        up alice 1 || exit 1
        linked alice && linked bob
        $R lab exec bob -- ip addr show ib0
        $R lab exec alice -- ping -4 -c 3 -i 0.2 bob
        $R lab exec alice -- ping -6 -c 3 -i 0.2 fd6c:6162::2
        $R lab exec alice -- ping -6 -c 3 -i 0.2 fe80::202:c903:a:1c41%ib0
        $R lab exec alice -- ping -4 -c 1 -s 2016 -M do bob
        $R lab exec alice -- ping -4 -c 1 -s 60000 bob
        $R lab exec alice -- $D/infiniband_paths \
            10.0.0.2 10.0.0.1 fd6c:6162::2 gid=fe80::2:c903:a:1c41 10.0.0.77 gid=fe80::77
        $R lab exec bob -- saquery --smkey 1 -m 0xC000
        for FILE in type addr_len address broadcast mode pkey carrier; do
            echo "$FILE: $($R lab exec bob -- cat /sys/class/net/ib0/$FILE)"
        done
        $R lab link alice-bob down
        unlinked alice && unlinked bob
        echo "carrier: $($R lab exec bob -- cat /sys/class/net/ib0/carrier)"
        $R lab link alice-bob up
        linked alice && linked bob
        $R lab exec bob -- ping -4 -c 2 -i 0.2 alice
        echo "errors: $(grep -c ERR $D/opensm-alice/log)"
        cat $D/opensm-alice/log
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "ib0: <NO-CARRIER,POINTOPOINT,MULTICAST,NOARP,UP> mtu 2044",
            "link/infiniband",
            "\n10.0.0.2: Connection timed out",
            "inet 10.0.0.2/8",
            "inet6 fd6c:6162::2/64",
            "inet6 fe80::202:c903:a:1c41/64 scope link",
            "icmp_seq=3",
            "bytes from fd6c:6162::2: icmp_seq=3",
            "bytes from fe80::202:c903:a:1c41%ib0: icmp_seq=3",
            "\n2024 bytes from bob (10.0.0.2)",
            "\n60008 bytes from bob (10.0.0.2)",
            "\n10.0.0.2: fe80::2:c903:a:1c41 lid 2 from 1 p_key 0xffff mtu 5",
            "\n10.0.0.1: fe80::2:c903:a:1b21 lid 1 from 1",
            "\nfd6c:6162::2: fe80::2:c903:a:1c41 lid 2",
            "\ngid=fe80::2:c903:a:1c41: fe80::2:c903:a:1c41 lid 2",
            "\n10.0.0.77: No route to host",
            "\ngid=fe80::77: Network is unreachable",
            "fe80::2:c903:a:1b21 (alice mlx4_0)",
            "fe80::2:c903:a:1c41 (bob mlx4_0)",
            "type: 32\naddr_len: 20\naddress: 00:00:00:02:fe:80:",
            ":02:c9:03:00:0a:1c:41\nbroadcast: 00:ff:ff:ff:ff:12:40:1b:ff:ff:",
            "mode: datagram\npkey: 0xffff\ncarrier: 1\n",
            "carrier: 0\n",
            "errors: 0",
            "left: 0 processes, 0 sockets",
        ],
    );
    assert_eq!(said.matches(" 0% packet loss").count(), 6, "{said}");
    assert!(!said.contains("still:"), "{said}");
}

#[test]
fn iperf_and_netpipe_run_over_ib0() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/two-hosts.toml || exit 1
        manager bob
        up bob 1 || exit 1
        linked alice && linked bob
        $R lab exec bob -- iperf3 -s -1 -D -I $D/pid --logfile $D/iperf-server
        until_it_listens 1451 bob
        $R lab exec alice -- iperf3 -c bob -t 1
        $R lab exec bob -- NPtcp >$D/server 2>&1 &
        until_it_listens 138A bob
        cd $D; $R lab exec alice -- NPtcp -h bob -u 65536 -n 20 2>&1
        echo "long packets: $($R lab exec alice -- ip -s link show ib0 |
            awk '/TX/ { getline; print ($1 / $2 > 2100) }')"
        echo "errors: $(grep -c ERR $D/opensm-bob/log)"
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "iperf Done.",
            "65536 bytes",
            // The kernel passes segments of TCP together, and the lab cuts them.
            "long packets: 1",
            "errors: 0",
            "left: 0 processes, 0 sockets",
        ],
    );
}

#[test]
fn packets_of_ib0_follow_the_switches_and_a_new_manager() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/fat-tree.toml || exit 1
        manager h0
        up h0 1 || exit 1
        linked h0 && linked h15
        $R lab exec h0 -- ping -4 -c 2 -i 0.2 h15
        $R lab exec h15 -- saquery --smkey 1 -m 0xC000
        echo "errors: $(grep -c ERR $D/opensm-h0/log)"
        LID=$(lid h15)
        $R lab exec h15 -- ibtracert $LID 1 >$D/route
        AGG=$(sed -n 's/.*switch port.*"\(agg[0-9]*\)".*/\1/p' $D/route | head -1)
        $R lab link edge7-$AGG down
        up h0 2 || exit 1
        $R lab exec h0 -- ping -4 -c 2 -i 0.2 h15
        manager h15
        until_it_prints 1 "grep -c 'Entering STANDBY state' $D/opensm-h15/log"
        # Hosts of a lab share the numbers of processes.
        kill $(pgrep -f "^[^ ]*opensm -F $D/opensm-h0/conf")
        until_it_prints 1 "grep -c 'Entering MASTER state' $D/opensm-h15/log"
        up h15 1
        $R lab exec h0 -- ping -6 -c 2 -w 10 fd6c:6162::10
        $R lab exec h0 -- ip link show ib0
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "(h0)",
            "(h15)",
            "errors: 0",
            "LOWER_UP",
            "left: 0 processes, 0 sockets",
        ],
    );
    assert_eq!(said.matches(" 0% packet loss").count(), 3, "{said}");
    assert!(!said.contains("still:"), "{said}");
}
