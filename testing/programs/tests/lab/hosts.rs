//! `rockery lab`: programs on the hosts of a fabric file, by a user without privileges.

use programs::live;

fn script(text: &str) -> String {
    live::script(text, 240)
}

#[test]
fn perftest_runs_between_two_hosts_and_nothing_is_left() {
    let said = script(
        r#"
        set -e
        $R lab up -d $F/lab.toml
        $R lab exec server -- ib_write_bw -n 200 -s 65536 >/dev/null &
        until_it_listens 4853
        $R lab exec sender0 -- ib_write_bw -n 200 -s 65536 server | grep -A2 '#bytes'
        wait
        $R lab ps --json
        down"#,
    );
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
    assert!(
        said.lines()
            .any(|line| line.trim().starts_with("65536") && line.contains("200")),
        "{said}"
    );
    // Every packet crossed the switch: 200 messages of 16 packets of 4096 bytes.
    let sent = said
        .split("\"rdma_sent\":")
        .skip(1)
        .filter_map(|rest| rest.split(',').next()?.parse().ok());
    assert!(sent.max().is_some_and(|sent: u64| sent >= 3200), "{said}");
}

#[test]
fn tcp_of_the_kernel_crosses_the_same_switch() {
    let said = script(
        r#"
        set -e
        $R lab up -d $F/lab.toml
        $R lab exec server -- iperf3 -s -1 >/dev/null &
        until_it_listens 1451
        $R lab exec sender1 -- iperf3 -c server -n 50M -J | grep -m1 -A9 '"sum_received"'
        wait
        $R lab ps
        down"#,
    );
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
    let bytes = said
        .split("\"bytes\":")
        .nth(1)
        .and_then(|rest| rest.split(',').next()?.trim().parse().ok());
    // iperf3 ends before the receiver has counted its last blocks.
    assert!(
        bytes.is_some_and(|bytes: u64| bytes >= 40_000_000),
        "{said}"
    );
}

/// A root that debootstrap has made has no /etc/hosts, over which a lab mounts the names of its hosts.
#[test]
fn a_lab_says_that_names_do_not_work_without_a_file_of_them() {
    let said = script(
        r#"
        set -e
        unshare -rm sh -ec '
            mount -t tmpfs none /etc
            $R lab up -d $F/lab.toml 2>&1
            $R lab exec server -- grep -c sender0 /etc/hosts 2>&1 || echo "no names"
            touch /etc/hosts
            $R lab down
            $R lab up -d $F/lab.toml 2>&1
            echo "names: $($R lab exec server -- grep -c sender0 /etc/hosts)"
            $R lab down'
        "#,
    );
    assert_eq!(said.matches("touch /etc/hosts").count(), 1, "{said}");
    assert!(
        said.contains("no names") && said.contains("names: 2"),
        "{said}"
    );
}

#[test]
fn nothing_is_left_of_a_killed_lab() {
    let said = script(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        CLOCK=$($R lab exec server -- sh -c 'echo $ROCKERY_LAB_CLOCK')
        $R lab exec server -- ib_write_bw -D 100 >/dev/null 2>&1 &
        until_it_listens 4853
        $R lab exec sender0 -- ib_write_bw -D 100 server >/dev/null 2>&1 &
        $R lab exec sender1 -- sh -c 'setsid sleep 100 & sleep 100' &
        until_it_prints 2 "$R lab ps --json | grep -o '\"devices\":1' | wc -l" || exit 1
        LAB=$($R lab ps --json | sed 's/.*"process":\([0-9]*\).*/\1/')
        kill -9 $LAB
        wait
        LEFT="grep -ls ROCKERY_LAB_CLOCK=$CLOCK /proc/[0-9]*/environ | wc -l"
        until_it_prints 0 "$LEFT" || exit 1
        echo "sockets: $(grep -c rockery-lab /proc/net/unix)"
        "#,
    );
    assert!(said.contains("sockets: 0"), "{said}");
}

#[test]
fn a_killed_program_leaves_its_lab_as_it_was() {
    let said = script(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        for round in 1 2 3; do
            $R lab exec server -- ib_write_bw -D 100 >/dev/null 2>&1 &
            until_it_listens 4853
            $R lab exec sender0 -- ib_write_bw -D 100 server >/dev/null 2>&1 &
            until_it_prints 2 "$R lab ps --json | grep -o '\"devices\":1' | wc -l" || exit 1
            kill -9 $!
            # The other end loses its connection, and ends as well.
            wait
            until_it_prints 4 "$R lab ps --json | grep -o '\"devices\":0' | wc -l" || exit 1
        done
        echo all rounds
        down"#,
    );
    assert!(said.contains("all rounds"), "{said}");
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
}

#[test]
fn a_pulled_cable_is_seen_by_its_host_alone() {
    let said = script(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        $R lab link sender0-crs504 down || exit 1
        for host in sender0 sender1; do
            $R lab exec $host -- sh -c 'echo $(hostname) $(cat /proc/net/dev | grep -c eth0) \
                $(ip link show eth0 | grep -c NO-CARRIER)'
        done
        $R lab exec sender1 -- ping -c 1 -W 5 server >/dev/null && echo sender1 reaches server
        $R lab exec sender0 -- ping -c 1 -W 1 server >/dev/null || echo sender0 does not
        $R lab link crs504-sender0 up
        $R lab exec sender0 -- ping -c 3 -W 5 server >/dev/null && echo sender0 is back
        $R lab show crs504 'queue print' | head -1
        $R lab report | grep findings
        $R lab metrics | grep -c rockery_lab_host_frames_sent_total
        down"#,
    );
    for line in [
        "sender0 1 1",
        "sender1 1 0",
        "sender1 reaches server",
        "sender0 does not",
        "sender0 is back",
        "[tx-manager queue print]",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[test]
fn a_port_of_a_running_lab_is_captured() {
    let said = script(
        r#"
        set -e
        $R lab up -d $F/lab.toml
        $R lab exec server -- ib_write_bw -n 50 -s 65536 >/dev/null &
        until_it_listens 4853
        $R lab pcap crs504:nothing=$D/none.pcap 2>&1 || true
        $R lab pcap crs504:qsfp28-1-1=$D/port.pcap
        $R lab ps --json | grep -o '"captured":.*'
        $R lab exec sender0 -- ib_write_bw -n 50 -s 65536 server >/dev/null
        wait
        $R lab exec sender0 -- ping -4 -c 1 server >/dev/null
        $R lab pcap crs504:qsfp28-1-1=off
        echo "ended: $($R lab pcap crs504:qsfp28-1-1=off 2>&1)"
        tshark -r $D/port.pcap -Y infiniband -T fields -e infiniband.bth.opcode | sort -n | uniq -c
        echo "pings: $(tshark -r $D/port.pcap -Y icmp | wc -l)"
        echo "malformed: $(tshark -r $D/port.pcap -Y _ws.malformed | wc -l)"
        down"#,
    );
    for line in [
        "no port is called crs504:nothing",
        "\"captured\":[\"crs504:qsfp28-1-1\"]",
        "is not captured",
        "pings: 2",
        "malformed: 0",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    // 50 messages of 16 packets, each a WRITE Only of its own with out-of-order receive; the server's
    // acknowledgements are in the other direction.
    let count = |opcode: &str| {
        said.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let number: u64 = words.next()?.parse().ok()?;
            (words.next()? == opcode).then_some(number)
        })
    };
    assert!(count("10") >= Some(800), "{said}");
    assert!(count("17") > Some(0), "{said}");
}

#[test]
fn values_of_the_file_change_while_the_lab_runs() {
    let said = script(
        r#"
        set -e
        $R lab up -d $F/lab.toml
        ping_server() {
            $R lab exec sender0 -- ping -c 2 -W 2 server >/dev/null && echo "$1: yes" || echo "$1: no"
        }
        ping_server before
        $R lab set link.1.loss=1
        ping_server lost
        $R lab set link.1.loss=0
        $R lab set link.1.rate=1Gbps
        $R lab set 'link.*.length=1km'
        ping_server after
        $R lab report --json | grep -o '"rate_bps": 1000000000,' | head -1
        $R lab ps | grep -c 'shortest link'
        for wrong in seed=1 link.1.rate=quick link.1.length=1m qos.default.pfc.classes=[]; do
            $R lab set $wrong 2>&1 && exit 1
        done
        down"#,
    );
    for line in [
        "before: yes",
        "lost: no",
        "after: yes",
        "\"rate_bps\": 1000000000,",
        "seed cannot change while the lab runs; what can is link.N, or A-B for all links",
        "the shortest when the lab began",
        "qos.default.pfc.classes: has no effect: no switch has qos = \"default\"",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// A program of the same user that has a socket with a name as of a lab, and answers what no lab does. (Of
/// another user's the reason is that it is another user's.)
#[test]
fn a_lab_that_does_not_answer_is_named_and_the_others_are_listed() {
    let said = script(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        cat >$D/false.py <<'FILE'
import os, socket
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind('\0rockery-lab-%d-a-false-one' % os.getuid())
listener.listen(4)
print('listens', flush=True)
while True:
    asked, _ = listener.accept()
    asked.recv(1 << 16)
    asked.send(b'no lab')
FILE
        python3 $D/false.py >$D/false.log &
        FALSE=$!
        until_it_prints listens "cat $D/false.log" || exit 1
        $R lab ps 2>$D/errors
        echo "status $?"
        cat $D/errors
        timeout 5 $R lab top 2>&1 | grep -c -e '^lab lab ' -e a-false-one | sed 's/^[1-9][0-9]*$/top goes on/'
        kill $FALSE
        wait $FALSE
        $R lab ps >/dev/null
        echo "status $?"
        down"#,
    );
    for line in [
        "lab lab (process",
        "rockery: lab a-false-one: ",
        "status 1",
        "top goes on",
        "status 0",
    ] {
        assert!(
            said.lines().any(|said| said.starts_with(line)),
            "{line}: {said}"
        );
    }
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
}

/// Programs are no flows of the file, from which a run knows that its traffic is unreliable.
#[test]
fn the_report_names_why_packets_of_programs_were_dropped() {
    let said = script(
        r#"
        set -e
        # With congestion control, packets are lost when programs begin at the same moment only.
        $R lab up -d --slow 1000 --set nic.default.congestion=off $F/as-written.toml
        for i in 0 1 2; do
            $R lab exec --machine-clock server -- ib_write_bw -q 4 -s 1048576 -p 1900$i >/dev/null &
            until_it_listens $(printf %04X 1900$i)
        done
        for i in 0 1 2; do
            $R lab exec --machine-clock sender$i -- ib_write_bw -q 4 -s 1048576 -p 1900$i server >/dev/null &
        done
        until $R lab report | grep ' dropped that '; do sleep 1; done
        $R lab report
        down"#,
    );
    live::expect_lines(
        &said,
        &[
            "seed 0 so far\n",
            "trust-l3=keep and no map ip entry for DSCP 26",
            "/interface ethernet switch qos map ip add dscp=26 profile=roce-profile",
        ],
    );
    assert!(!said.contains("this traffic is unreliable"), "{said}");
}
