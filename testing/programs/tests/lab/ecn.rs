//! ECN of the kernel's TCP and of RDMA through a marking switch of a live lab, as hosts see it.

use programs::live;

const SECONDS: u64 = 300;

/// The way to the server is slower than the one to the switch, and its queues mark early.
const FILE: &str = r#"
[[host]]
name = "server"
[[host]]
name = "client"
[[switch]]
name = "sw"
[[link]]
between = ["client", "sw"]
rate = "10Gb/s"
[[link]]
between = ["server", "sw"]
rate = "200Mb/s"
[qos.default.queue.0]
ecn = { min = "3KiB", max = "6KiB", probability = "100%" }
[qos.default.queue.3]
ecn = { min = "3KiB", max = "6KiB", probability = "100%" }
[[workload]]
from = ["client"]
to = ["server"]
messages = 1
"#;

fn script(text: &str) -> String {
    live::script(
        &format!(
            "cat >$D/slow.toml <<'FILE'{FILE}FILE\n$R lab up -d $D/slow.toml || exit 1\n{text}\ndown"
        ),
        SECONDS,
    )
}

#[test]
fn tcp_sees_the_marks_of_the_switch() {
    let said = script(
        r#"
        # The client asks for ECN, and the server's kernel agrees when it is asked.
        $R lab exec client -- ip route replace 10.0.0.0/8 dev eth0 src 10.0.0.2 features ecn || exit 1
        $R lab exec server -- iperf3 -s >/dev/null 2>&1 &
        until_it_listens 1451 || exit 1
        $R lab exec client -- iperf3 -4 -c server -t 300 >/dev/null 2>&1 &
        cat >$D/look <<'FILE'
$R lab exec client -- ss -tin dst 10.0.0.1 | grep -q "delivered_ce:[1-9]" && echo 1
FILE
        export R
        until_it_prints 1 "sh $D/look" || { $R lab exec client -- ss -tin; exit 1; }
        echo "the sender has heard of marks"
        $R lab ps | head -2"#,
    );
    for line in [
        "the sender has heard of marks",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let marked = said
        .split("marked ")
        .nth(1)
        .and_then(|rest| rest.split(',').next()?.parse().ok());
    assert!(marked.is_some_and(|marked: u64| marked > 0), "{said}");
}

#[test]
fn devices_count_congestion_notifications_of_both_ends() {
    let said = script(
        r#"
        $R lab exec server -- ib_write_bw -D 300 >/dev/null 2>&1 &
        until_it_listens 4853 || exit 1
        $R lab exec client -- ib_write_bw -D 300 server >/dev/null 2>&1 &
        cat >$D/count <<'FILE'
COUNTERS=/sys/class/infiniband/rk_eth0/ports/1/hw_counters
SENT=$($R lab exec server -- sh -c "cat $COUNTERS/np_cnp_sent")
HANDLED=$($R lab exec client -- sh -c "cat $COUNTERS/rp_cnp_handled")
[ "$SENT" -ge 10 ] && [ "$HANDLED" -ge 10 ] && echo yes
FILE
        export R
        until_it_prints yes "sh $D/count" || { sh -x $D/count; exit 1; }
        echo "both ends have counted"
        "#,
    );
    for line in ["both ends have counted", "left: 0 processes, 0 sockets"] {
        assert!(said.contains(line), "{line}: {said}");
    }
}
