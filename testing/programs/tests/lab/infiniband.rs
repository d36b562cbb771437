//! InfiniBand in a lab: OpenSM and the diagnostic tools, as they are packaged.

use programs::live;
use std::path::Path;

const SECONDS: u64 = 300;

/// `manager HOST OPTION…` starts OpenSM, and waits until it manages the subnet.
const MANAGER: &str = r#"
    manager() {
        M=$D/opensm-$1; mkdir -p $M; HOST=$1; shift
        printf 'force_log_flush TRUE\nsminfo_polling_timeout 500\npolling_retry_number 2\n' >$M/conf
        OSM_CACHE_DIR=$M OSM_TMP_DIR=$M $R lab exec $HOST -- opensm -F $M/conf -f $M/log "$@" >$M/out 2>&1 &
    }
    up() {
        until_it_prints "$2" "grep -c 'SUBNET UP' $D/opensm-$1/log" && return 0
        cat $D/opensm-$1/*
        return 1
    }
    lid() { $R lab exec $1 -- ibstat rk_ib0 | awk '/Base lid/ {print $3}'; }
"#;

fn script(text: &str) -> String {
    script_with(text, &[])
}

pub(crate) fn script_with(text: &str, files: &[&Path]) -> String {
    live::script_with(&format!("{MANAGER}\n{text}"), SECONDS, files)
}

#[test]
fn two_hosts_on_a_cable_are_initialized_before_a_manager_comes() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/two-hosts.toml || exit 1
        $R lab exec alice -- ibstat
        $R lab exec alice -- ibstat -p
        $R lab exec alice -- ibnetdiscover
        $R lab exec alice -- smpquery nodedesc -D 0,1
        $R lab exec bob -- ibportstate -D 0,1 1
        $R lab exec bob -- sminfo -D 0 2>&1
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "CA 'rk_ib0'",
            "State: Initializing",
            "Physical state: LinkUp",
            "Rate: 40\n",
            "Link layer: InfiniBand",
            "\n0x0002c903000a1b21\n",
            "\"H-0002c903000a1b20\"[1] (2c903000a1b21) \t\t# lid 0 lmc 0 \"alice mlx4_0\" lid 0 4xQDR",
            "bob mlx4_0",
            "LinkSpeedActive:.................10.0 Gbps",
            "left: 0 processes, 0 sockets",
        ],
    );
    assert_eq!(said.matches("CA '").count(), 1, "one device: {said}");
    assert!(
        said.contains("sminfo: iberror: failed: query"),
        "no manager is there: {said}"
    );
}

#[test]
fn opensm_makes_a_subnet_of_two_hosts() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/two-hosts.toml || exit 1
        manager alice
        up alice 1 || exit 1
        $R lab exec bob -- ibstat rk_ib0
        $R lab exec bob -- sminfo
        echo "records: $($R lab exec bob -- saquery | grep -c 'NodeRecord dump')"
        $R lab exec bob -- ibping -c 1 1 2>&1
        $R lab exec alice -- ibping -S &
        until_it_prints 1 "$R lab exec bob -- ibping -c 1 1 2>&1 | grep -c Pong"
        $R lab exec bob -- ibping -c 2 -G 0x0002c903000a1b21
        $R lab exec alice -- sh -c 'ibping -S >$D/second 2>&1; true' &
        $R lab exec bob -- perfquery
        $R lab exec bob -- cat /sys/class/infiniband/rk_ib0/ports/1/lid
        $R lab metrics | grep -E 'port_(state|lid|manager_lid)[{].*host="bob"'
        $R lab ps | grep ACTIVE
        $R lab link alice-bob down
        until_it_prints 1: "$R lab exec bob -- cut -d ' ' -f 1 /sys/class/infiniband/rk_ib0/ports/1/state"
        $R lab link alice-bob up
        until_it_prints 4: "$R lab exec bob -- cut -d ' ' -f 1 /sys/class/infiniband/rk_ib0/ports/1/state"
        echo "errors: $(grep -c ERR $D/opensm-alice/log)"
        cat $D/opensm-alice/log
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "State: Active",
            "Base lid: 2",
            "SM lid: 1",
            "sm lid 1 sm guid 0x2c903000a1b21",
            "SMINFO_MASTER",
            "records: 2",
            "Pong from alice",
            "2 packets transmitted, 2 received, 0% packet loss",
            "PortXmitDiscards:................0",
            "\n0x2\n",
            "rockery_lab_infiniband_port_state{lab=\"two-hosts\",host=\"bob\"} 4",
            "rockery_lab_infiniband_port_lid{lab=\"two-hosts\",host=\"bob\"} 2",
            "rockery_lab_infiniband_port_manager_lid{lab=\"two-hosts\",host=\"bob\"} 1",
            "  bob              ACTIVE       2      1 ",
            "errors: 0",
            "left: 0 processes, 0 sockets",
        ],
    );
    assert!(!said.contains("still:"), "{said}");
    let nobody = said
        .split("records: 2")
        .nth(1)
        .and_then(|rest| rest.split("Pong").next());
    let nobody = nobody.expect("the first ibping");
    assert!(
        nobody.contains("ibping: iberror") || nobody.contains("0 received"),
        "{said}"
    );
}

#[test]
fn opensm_routes_a_fat_tree_and_around_a_pulled_cable() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/fat-tree.toml || exit 1
        manager h0 -D 0x43
        up h0 1 || exit 1
        M=$D/opensm-h0
        ibdmchk -s $M/opensm-subnet.lst -f $M/opensm.fdbs -m $M/opensm.mcfdbs | grep -E 'Scanned|credit|^  6 '
        echo "hosts: $($R lab exec h15 -- ibhosts | wc -l)"
        echo "switches: $($R lab exec h15 -- ibswitches | wc -l)"
        $R lab exec h15 -- iblinkinfo | grep -c '4X      25.78125 Gbps Active/  LinkUp'
        echo "records: $($R lab exec h15 -- saquery | grep -c 'NodeRecord dump')"
        $R lab exec h15 -- ibqueryerrors
        $R lab exec h0 -- osmtest -f c -i $D/inventory 2>&1 | grep -o 'TEST .*'
        LID=$(lid h15)
        $R lab exec h15 -- ibping -S &
        until_it_prints 1 "$R lab exec h0 -- ibping -c 1 $LID 2>&1 | grep -c Pong"
        by() { $R lab exec h15 -- ibtracert $LID 1 | sed -n 's/.*switch port.*"\(agg[0-9]*\)".*/\1/p'; }
        AGG=$(by | head -1)
        $R lab link edge7-$AGG down
        up h0 2 || exit 1
        by | grep -qx "$AGG" && echo "still by $AGG"
        $R lab exec h0 -- ibping -c 2 $LID
        grep -o 'num:128 (Link state change) Producer:2 (Switch)' $D/opensm-h0/log | sort -u
        echo "errors: $(grep -c ERR $D/opensm-h0/log)"
        cat $D/opensm-h0/log
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "  6   192",
            "-I- Scanned:240 CA to CA paths",
            "-I- no credit loops found",
            "hosts: 16\nswitches: 20\n",
            "\n96\n",
            "records: 36",
            "36 nodes checked, 0 bad nodes found",
            "TEST \"Create Inventory\" PASS",
            "2 packets transmitted, 2 received, 0% packet loss",
            "num:128 (Link state change) Producer:2 (Switch)",
            "errors: 0",
            "left: 0 processes, 0 sockets",
        ],
    );
    assert!(!said.contains("still"), "{said}");
}

#[test]
fn a_second_opensm_stands_by_and_takes_over() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/two-hosts.toml || exit 1
        manager alice -p 5
        up alice 1 || exit 1
        manager bob
        until_it_prints 1 "grep -c 'Entering STANDBY state' $D/opensm-bob/log"
        # Hosts of a lab share the numbers of processes.
        kill $(pgrep -f "^[^ ]*opensm -F $D/opensm-alice/conf")
        until_it_prints 1 "grep -c 'Entering MASTER state' $D/opensm-bob/log"
        up bob 1
        $R lab exec alice -- sminfo
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "sm lid 2 sm guid 0x2c903000a1c41",
            "SMINFO_MASTER",
            "left: 0 processes, 0 sockets",
        ],
    );
    assert!(!said.contains("still:"), "{said}");
}

#[test]
fn programs_get_the_events_of_their_port() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/two-hosts.toml || exit 1
        $R lab exec bob -- stdbuf -oL ibv_asyncwatch -d rk_ib0 >$D/events 2>&1 &
        until_it_prints 1 "grep -c 'async event FD' $D/events"
        manager alice
        up alice 1 || exit 1
        until_it_prints 1 "grep -c PORT_ACTIVE $D/events"
        $R lab link alice-bob down
        until_it_prints 1 "grep -c PORT_ERR $D/events"
        $R lab link alice-bob up
        until_it_prints 2 "grep -c PORT_ACTIVE $D/events"
        cat $D/events
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "event_type IBV_EVENT_LID_CHANGE (11), port 1",
            "event_type IBV_EVENT_SM_CHANGE (13), port 1",
            "event_type IBV_EVENT_CLIENT_REREGISTER (17), port 1",
            "event_type IBV_EVENT_PORT_ERR (10), port 1",
            "left: 0 processes, 0 sockets",
        ],
    );
}

#[test]
fn programs_exchange_data_by_lid_and_by_gid() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/two-hosts.toml || exit 1
        $R lab exec alice -- ibv_devinfo
        manager alice
        up alice 1 || exit 1
        $R lab exec alice -- ibv_devinfo -v
        A=10.0.0.1
        pair() {
            NAME=$1; shift
            $R lab exec alice -- timeout 60 "$@" >$D/server 2>&1 &
            SERVER=$!
            until_it_listens 4853 alice || until_it_listens 4853 alice
            $R lab exec bob -- timeout 60 "$@" $A >$D/client 2>&1
            echo "$NAME client: $?"
            wait $SERVER
            echo "$NAME server: $?"
            cat $D/client
        }
        pair pingpong-lid ibv_rc_pingpong -p 18515 -n 50
        pair pingpong-gid ibv_rc_pingpong -p 18515 -n 50 -g 0
        pair ud-lid ibv_ud_pingpong -p 18515 -n 20
        pair ud-gid ibv_ud_pingpong -p 18515 -n 20 -g 0
        pair srq ibv_srq_pingpong -p 18515 -n 20
        pair write-lid ib_write_bw -d rk_ib0 -n 200 -s 65536
        pair write-gid ib_write_bw -d rk_ib0 -n 200 -s 65536 -x 0
        pair send-ud ib_send_lat -d rk_ib0 -c UD -n 50
        pair read-lid ib_read_lat -d rk_ib0 -n 50
        counted() { $R lab exec bob -- perfquery -x | awk -F. "/$1/ {print \$NF}"; }
        BEFORE=$(counted PortXmitData)
        pair write-again ib_write_bw -d rk_ib0 -n 200 -s 65536
        echo "words: $(($(counted PortXmitData) - BEFORE))"
        down"#,
    );
    for name in [
        "pingpong-lid",
        "pingpong-gid",
        "ud-lid",
        "ud-gid",
        "srq",
        "write-lid",
        "write-gid",
        "send-ud",
        "read-lid",
        "write-again",
    ] {
        let whole = format!("{name} client: 0\n{name} server: 0\n");
        assert!(said.contains(&whole), "{name}: {said}");
    }
    live::expect_lines(
        &said,
        &[
            "link_layer:\t\tInfiniBand",
            "state:\t\t\tPORT_INIT (2)",
            "state:\t\t\tPORT_ACTIVE (4)",
            "port_lid:\t\t1",
            "sm_lid:\t\t\t1",
            "active_speed:\t\t10.0 Gbps (4)",
            "remote address: LID 0x0001",
            "left: 0 processes, 0 sockets",
        ],
    );
    let words = said
        .split("words: ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let words: u64 = words.and_then(|words| words.parse().ok()).expect("a count");
    let payload = 200 * 65536 / 4;
    // The headers of 4,096 bytes take 28 to 60 more.
    assert!((payload..payload + payload / 20).contains(&words), "{said}");
}

#[test]
fn programs_connect_by_addresses_of_ip_over_infiniband() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/fat-tree.toml || exit 1
        manager h0
        up h0 1 || exit 1
        until_it_prints '1 received' "$R lab exec h15 -- ping -c 1 -W 5 10.0.0.1"
        pair() {
            NAME=$1; CLIENT=$2; shift 2
            $R lab exec h0 -- timeout 60 "$@" >$D/server 2>&1 &
            SERVER=$!
            sleep 1
            for _ in $(seq 20); do
                $R lab exec h15 -- timeout 60 $CLIENT >$D/client 2>&1 && break
                sleep 0.5
            done
            wait $SERVER
            echo "$NAME server: $?"
            cat $D/client
        }
        pair rping "rping -c -a 10.0.0.1 -C 3 -v" rping -s -a 10.0.0.1 -C 3
        pair write "ib_write_bw -d rk_ib0 -R -n 100 10.0.0.1" ib_write_bw -d rk_ib0 -R -n 100
        pair datagrams "udaddy -s 10.0.0.1 -C 3" udaddy -C 3
        GID=fe80::252:4b01:0:1
        pair gid "ucmatose -f gid -s $GID -C 3" ucmatose -f gid -C 3
        pair gid-datagrams "udaddy -f gid -s $GID -C 3" udaddy -f gid -C 3
        $R lab exec h15 -- timeout 60 rping -c -a 10.0.0.99 -C 1 2>&1
        $R lab exec h0 -- sh -c '
            rping -s -a 10.0.0.1 -C 2 & sleep 1
            rping -c -a 10.0.0.1 -C 2; echo "own: $?"'
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "rping server: 0",
            "ping data: rdma-ping-2",
            "write server: 0",
            "remote address: LID 0x01",
            "\ndatagrams server: 0",
            "return status 0",
            "gid server: 0",
            "gid-datagrams server: 0",
            "RDMA_CM_EVENT_ADDR_ERROR, error -110",
            "own: 0",
            "left: 0 processes, 0 sockets",
        ],
    );
}

#[test]
fn a_capture_has_all_that_crosses_a_link_and_ports_have_four_lids() {
    let said = script(
        r#"
        $R lab up -d $E/infiniband/two-hosts.toml || exit 1
        $R lab pcap bob=$D/bob.pcap
        manager alice -l 2
        up alice 1 || exit 1
        $R lab exec bob -- ibstat rk_ib0 | grep LMC
        until_it_prints '1 received' "$R lab exec bob -- ping -c 1 -W 5 10.0.0.1 | grep -o '1 received'"
        $R lab exec bob -- ibportstate 7 1 query | grep Lid:
        $R lab exec bob -- perfquery 5 1 | grep 'Port counters'
        $R lab pcap bob=off
        fields() {
            FILTER=$1; shift
            tshark -r $D/bob.pcap -Y "$FILTER" -T fields $(printf ' -e %s' "$@") 2>/dev/null | sort -u
        }
        echo "malformed: $(fields _ws.malformed frame.number | wc -l)"
        fields infiniband.mad.mgmtclass infiniband.lrh.vl infiniband.mad.mgmtclass | sed 's/^/mad: /'
        fields icmp infiniband.lrh.slid infiniband.lrh.dlid | sed 's/^/icmp: /'
        fields arp infiniband.lrh.dlid | sed 's/^/arp: /'
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "LMC: 2",
            "\nLid:.............................4\n",
            "# Port counters: Lid 5 port 1",
            "malformed: 0",
            // Subnet management by directed route, the administrator, performance management.
            "mad: 0x0f\t0x81",
            "mad: 0x00\t0x03",
            "mad: 0x00\t0x04",
            "icmp: 4\t8",
            "icmp: 8\t4",
            // The broadcast group.
            "arp: 49152",
            "left: 0 processes, 0 sockets",
        ],
    );
}
