//! Functions of adapters (SR-IOV) in labs: each is a host of its own, behind the switch inside the adapter.

use std::sync::{Mutex, PoisonError};

use programs::live;
use serde_json::Value;

const SECONDS: u64 = 400;

/// Eight functions that send to one host, with rates of 1 to 2 to 4: by their shares of a full port, or by
/// their maximum rates.
fn eight_functions(setting: &str, unit_mbps: u64) -> (String, [u64; 8]) {
    let rates = [1, 2, 4, 1, 2, 4, 1, 4];
    let mut file = r#"
        duration = "10ms"
        [[host]]
        name = "server"
        nic = "shared"
        [[host]]
        name = "client"
        nic = "plain"
        [[switch]]
        name = "sw"
        [[link]]
        between = ["server", "sw"]
        rate = "10Gb/s"
        [[link]]
        between = ["client", "sw"]
        rate = "10Gb/s"
        [nic.plain]
        congestion = "off"
        [nic.shared]
        congestion = "off"
        pcie = { generation = 2, width = 8 }
        [nic.shared.functions]
        count = 8
    "#
    .to_owned();
    for (function, rate) in rates.into_iter().enumerate() {
        file += &format!(
            r#"
        [nic.shared.functions.vf.{function}]
        {setting} = "{}Mb/s"
        [[workload]]
        name = "{function}"
        from = ["serverv{function}"]
        to = ["client"]
        # Whole messages count: one of these is a hundredth of the smallest share.
        message = "8KiB"
        depth = 64
        "#,
            rate * unit_mbps
        );
    }
    (file, rates)
}

/// Shares are those of packets that come in time: two such labs at once have too little of two processors.
static ONE_LAB: Mutex<()> = Mutex::new(());

/// Goodput of each function, in Mb/s.
fn goodput(file: &str) -> Vec<f64> {
    let _alone = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let said = live::script(
        &format!(
            r#"
        cat >$D/eight.toml <<'FILE'
{file}
FILE
        $R lab run $D/eight.toml --slow 2000 --json 2>/dev/null
        echo "left: $(grep -c rockery-lab /proc/net/unix) sockets""#
        ),
        SECONDS,
    );
    live::expect_lines(&said, &["left: 0 sockets"]);
    let line = said.lines().find(|line| line.starts_with('{'));
    let document: Value =
        serde_json::from_str(line.unwrap_or_else(|| panic!("{said}"))).expect("JSON");
    let workloads = document["report"]["workloads"]
        .as_array()
        .expect("workloads");
    workloads
        .iter()
        .map(|one| one["goodput_bps"].as_f64().expect("a rate") / 1e6)
        .collect()
}

#[test]
fn eight_functions_share_a_full_port_by_their_rates() {
    let (file, rates) = eight_functions("min-rate", 500);
    let goodput = goodput(&file);
    let (sum, parts): (f64, u64) = (goodput.iter().sum(), rates.iter().sum());
    assert!(sum > 9_400.0, "the port is full: {goodput:?}");
    for (own, rate) in goodput.iter().zip(rates) {
        let due = sum * rate as f64 / parts as f64;
        assert!(
            (own / due - 1.0).abs() <= 0.03,
            "{own} of {due}: {goodput:?}"
        );
    }
}

#[test]
fn eight_functions_send_no_faster_than_their_maximum_rates() {
    let (file, rates) = eight_functions("max-rate", 400);
    let goodput = goodput(&file);
    for (own, rate) in goodput.iter().zip(rates) {
        // Of a frame of 4,178 bytes on the wire 4,096 are payload.
        let due = 400.0 * rate as f64 * 4096.0 / 4178.0;
        assert!(
            (own / due - 1.0).abs() <= 0.03,
            "{own} of {due}: {goodput:?}"
        );
    }
}

/// A server with six functions: 0 and 1 as they come, 2 and 3 in a VLAN, 4 trusted, 5 with its link disabled.
const SIX: &str = r#"
[[host]]
name = "server"
nic = "shared"
[[host]]
name = "client"
[[switch]]
name = "sw"
[[link]]
between = ["server", "sw"]
[[link]]
between = ["client", "sw"]
[nic.shared.pcie]
[nic.shared.functions]
count = 6
[nic.shared.functions.vf."2-3"]
vlan = 100
qos = 5
[nic.shared.functions.vf.0]
mac = "02:00:00:00:77:00"
[nic.shared.functions.vf.1]
state = "enable"
[nic.shared.functions.vf.4]
trust = true
[nic.shared.functions.vf.5]
state = "disable"
[[workload]]
from = ["server"]
to = ["client"]
messages = 1
"#;

/// `ping` tries twice, where no answer is expected. `reaches` tries until there is one: a kernel that asked
/// for an address while nothing was reachable drops the first packet after that with it, and an interface
/// that gets a carrier sends nothing before a worker of the kernel has run.
const PINGS: &str = r#"
        ping() {
            $R lab exec $1 -- ping -4 -c ${4:-2} -W 2 $2 >/dev/null && ANSWER=yes || ANSWER=no
            echo "$3$1 to $2: $ANSWER"
        }
        reaches() {
            for _ in $(seq 30); do
                ping $1 $2 "$3" 1 | grep yes && return
            done
            echo "$3$1 to $2: no"
        }
"#;

/// Runs a script with this lab, which is called `six`.
fn six(script: &str) -> String {
    let text = format!(
        r#"
        cat >$D/six.toml <<'FILE'{SIX}FILE
        {PINGS}
        $R lab up -d $D/six.toml || exit 1
        cat >$D/dropped <<'FILE'
            $R lab metrics | sed -n "s/.*function_dropped_total.*host=\"$1\",cause=\"$2\".* //p"
FILE
        {script}
        down"#
    );
    live::script(&text, SECONDS)
}

#[test]
fn a_function_is_a_device_of_its_own_behind_the_switch_of_its_adapter() {
    let said = six(r#"
        $R lab exec serverv0 -- ip link show eth0 | grep -o '02:00:00:00:77:00'
        $R lab pcap sw:0=$D/outside.pcap
        $R lab pcap server.eswitch:vf1=$D/inside.pcap
        $R lab exec serverv0 -- ib_write_bw -n 100 -s 65536 >/dev/null &
        until_it_listens 4853 serverv0 || exit 1
        $R lab exec serverv1 -- ib_write_bw -n 100 -s 65536 serverv0 | grep -A2 '#bytes'
        wait
        count() { tshark -r $D/$1.pcap -Y infiniband 2>/dev/null | wc -l; }
        # The lab writes a capture while packets pass, and the last of them a moment later.
        has_all() {
            for attempt in $(seq 100); do
                [ $(count $1) -ge 1600 ] && echo "$1: all" && return
                sleep 0.2
            done
            echo "$1: $(count $1) of 1600"
        }
        echo "outside: $(count outside)"
        has_all inside
        $R lab exec serverv0 -- ib_write_bw -n 100 -s 65536 >/dev/null &
        until_it_listens 4853 serverv0 || exit 1
        $R lab exec client -- ib_write_bw -n 100 -s 65536 serverv0 | grep -A2 '#bytes'
        wait
        has_all outside
        $R lab ps --json | grep -o '"function":{"of":"server","vf":1,"up":true'
    "#);
    let ran = said
        .lines()
        .filter(|line| line.trim().starts_with("65536") && line.contains("100"));
    assert_eq!(ran.count(), 2, "{said}");
    live::expect_lines(
        &said,
        &[
            "02:00:00:00:77:00",
            "outside: 0",
            "inside: all",
            "outside: all",
        ],
    );
    live::expect_lines(
        &said,
        &[
            "\"function\":{\"of\":\"server\",\"vf\":1,\"up\":true",
            "left: 0 processes, 0 sockets",
        ],
    );
}

#[test]
fn vlans_and_link_states_keep_functions_apart() {
    let said = six(r#"
        $R lab pcap server.eswitch:vf3=$D/tagged.pcap
        reaches serverv2 serverv3
        echo "tag: $(tshark -r $D/tagged.pcap -Y icmp -T fields -e vlan.id -e vlan.priority | head -1)"
        ping serverv2 serverv0
        # Frames that reach the port of a function in another VLAN are dropped there.
        $R lab exec serverv2 -- ip neigh replace 10.0.0.3 lladdr 02:00:00:00:77:00 dev eth0
        ping serverv2 serverv0
        # So are those of the first ping, which waited for the address.
        [ $(sh $D/dropped serverv0 vlan) -ge 2 ] && echo "those of another VLAN are dropped"
        ping serverv5 client
        $R lab link server-sw down
        ping serverv1 client
        for host in server serverv0 serverv1 serverv5; do
            echo "$host: $($R lab exec $host -- ip link show eth0 | grep -c NO-CARRIER)"
        done
        $R lab link server-sw up
        reaches serverv0 client
    "#);
    for line in [
        "serverv2 to serverv3: yes",
        "tag: 100\t5",
        "serverv2 to serverv0: no",
        "those of another VLAN are dropped",
        "serverv5 to client: no",
        "serverv1 to client: no",
        "server: 1",
        "serverv0: 1",
        "serverv1: 0",
        "serverv5: 1",
        "serverv0 to client: yes",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[test]
fn functions_of_a_running_lab_are_set_by_the_words_of_ip() {
    let said = six(r#"
        ping serverv5 client "disabled, "
        $R vf set server vf 5 state enable || exit 1
        reaches serverv5 client "enabled, "
        reaches serverv2 serverv3 "in one VLAN, "
        $R vf set --lab six server vf 3 vlan 0 qos 0 || exit 1
        ping serverv2 serverv3 "in two, "
        reaches serverv3 serverv0 "untagged, "
        $R vf set server vf 0 max_tx_rate 1000 min_tx_rate 10 trust on spoofchk off || exit 1
        $R vf show server | grep 'vf [035] '
        $R vf show --json | grep -c '"max_tx":1000'
        $R vf show $D/six.toml | grep 'vf 0 '
        reaches serverv0 serverv4 "before it moves, "
        $R vf set server vf 4 mac 02:00:00:00:99:99 || exit 1
        $R lab exec serverv4 -- ip -o link show dev eth0 | sed 's/.*link.ether \([0-9a-f:]*\).*/moved to \1/'
        reaches serverv0 serverv4 "after it moved, "
        # Either all words count, or none does.
        $R vf set server vf 1 trust on mac 02:00:00:00:99:99 2>&1 || $R vf show server | grep 'vf 1 '
        $R vf set server vf 9 trust on 2>&1
        $R lab set nic.shared.functions.vf.1.trust=true && $R vf show server | grep 'vf 1 '
    "#);
    for line in [
        "disabled, serverv5 to client: no",
        "enabled, serverv5 to client: yes",
        "in one VLAN, serverv2 to serverv3: yes",
        "in two, serverv2 to serverv3: no",
        "untagged, serverv3 to serverv0: yes",
        "max_tx_rate 1000Mbps, min_tx_rate 10Mbps, spoof checking off, link-state auto, trust on",
        "before it moves, serverv0 to serverv4: yes",
        "moved to 02:00:00:00:99:99",
        "after it moved, serverv0 to serverv4: yes",
        "have one MAC address",
        "the adapter has functions 0 to 5",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let shown = |number: &str| {
        let line = said.lines().filter(|line| line.trim().starts_with(number));
        line.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(shown("vf 5")[0].contains("link-state enable"), "{said}");
    assert!(!shown("vf 3")[0].contains("vlan"), "{said}");
    // The file is as it was.
    assert!(shown("vf 0")[1].contains("spoof checking on"), "{said}");
    let trust: Vec<bool> = shown("vf 1")
        .iter()
        .map(|line| line.contains("trust on"))
        .collect();
    assert_eq!(trust, [false, true], "{said}");
}

/// A maximum rate that is set while a program sends counts from then on.
#[test]
fn a_rate_is_set_while_a_program_sends() {
    let said = six(r#"
        $R lab exec client -- ib_write_bw -D 300 >/dev/null 2>&1 &
        until_it_listens 4853 client || exit 1
        $R lab exec serverv0 -- ib_write_bw -D 300 client >/dev/null 2>&1 &
        cat >$D/rate.py <<'FILE'
import json, subprocess, sys, time
def look():
    status = json.loads(subprocess.check_output([sys.argv[1], 'lab', 'ps', '--json']))
    host = next(host for host in status['hosts'] if host['name'] == 'serverv0')
    return status['now_ns'], host['counters']['rdma_sent']
while look()[1] < 1000:
    time.sleep(0.2)
# Packets that were fetched before are not those of the new rate.
first = look()
while look()[1] < first[1] + 500:
    time.sleep(0.2)
begin = look()
while look()[1] < begin[1] + 500:
    time.sleep(0.2)
end = look()
print('Mb/s:', round((end[1] - begin[1]) * 4096 * 8000 / (end[0] - begin[0])))
FILE
        $R vf set server vf 0 max_tx_rate 50 || exit 1
        python3 $D/rate.py $R
    "#);
    let rate = said.lines().find_map(|line| line.strip_prefix("Mb/s: "));
    let rate: u64 = rate
        .unwrap_or_else(|| panic!("{said}"))
        .parse()
        .expect("a number");
    // No more leaves than the rate allows, however slow the machine is.
    assert!((1..=52).contains(&rate), "{said}");
}

/// Sends frames from `eth0` to the host `client`: two with a MAC address that no host has, one with the IP
/// address of `server`.
const FORGER: &str = r"
import fcntl, socket, struct
with socket.socket() as any:
    SIOCGIFHWADDR = 0x8927
    own = fcntl.ioctl(any, SIOCGIFHWADDR, b'eth0'.ljust(40, b'\0'))[18:24]
last = int(socket.gethostbyname(socket.gethostname()).split('.')[3])
def frame(mac, address):
    udp = struct.pack('!HHHH', 9, 9, 8, 0)
    ends = [bytes([10, 0, 0, end]) for end in (address, 2)]
    ip = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 28, 0, 0, 64, 17, 0, *ends)
    total = sum(struct.unpack('!10H', ip))
    total = (total & 0xffff) + (total >> 16)
    ip = ip[:10] + struct.pack('!H', ~total & 0xffff) + ip[12:]
    return bytes([2, 0, 0, 0, 0, 2]) + mac + b'\x08\x00' + ip + udp
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
    raw.bind(('eth0', 0))
    nobody = bytes([2, 0, 0, 0, 0x55, 0x55])
    for forged in [frame(nobody, last), frame(nobody, last), frame(own, 1)]:
        raw.send(forged)
";

/// A tenant adds the address of the adapter's host to its own interface: its device then has that GID too.
#[test]
fn forged_gids_and_macs_of_functions_are_dropped_and_counted() {
    let said = six(&format!(
        r#"
        cat >$D/forger.py <<'FILE'{FORGER}FILE
        for function in 0 4; do
            $R lab exec serverv$function -- python3 $D/forger.py || exit 1
        done
        until_it_prints 2 "sh $D/dropped serverv0 spoofed_mac" || exit 1
        until_it_prints 1 "sh $D/dropped serverv0 spoofed_gid" || exit 1
        until_it_prints 1 "sh $D/dropped serverv4 spoofed_gid" || exit 1
        echo "of the trusted one: $(sh $D/dropped serverv4 spoofed_mac)"
        $R lab exec serverv1 -- ip addr add 10.0.0.1/8 dev eth0
        # The address that was there before stays the source of TCP.
        INDEX=$($R lab exec serverv1 -- sh -c 'cd /dev; ibv_devinfo -v' | sed -n \
            's/.*GID\[ *\([0-9]*\)\].*::ffff:10.0.0.1.*/\1/p' | tail -1)
        echo "index $INDEX"
        $R lab exec client -- ib_send_bw -c UD -n 100 -s 1024 >/dev/null 2>&1 &
        until_it_listens 4853 client || exit 1
        $R lab exec serverv1 -- ib_send_bw -c UD -x $INDEX -n 100 -s 1024 client >/dev/null 2>&1 &
        until_it_prints 100 "sh $D/dropped serverv1 spoofed_gid" || exit 1
        echo "all forged datagrams were dropped"
        # Neither end knows that nothing arrives: they end with the lab.
    "#
    ));
    live::expect_lines(
        &said,
        &[
            "of the trusted one: 0",
            "all forged datagrams were dropped",
            "left: 0 processes, 0 sockets",
        ],
    );
}
