//! LLDP and DCBX on the links of a live lab, read by programs of others.

use programs::live;
use serde_json::Value;

const SECONDS: u64 = 300;

/// Host a takes PFC from the switch, host b insists on another priority than the switch.
const FILE: &str = r#"
[[host]]
name = "a"
nic = "willing"
[[host]]
name = "b"
[[switch]]
name = "sw"
[[link]]
between = ["a", "sw"]
[[link]]
between = ["b", "sw"]
[nic.willing]
willing = true
pfc = []
[nic.default]
pfc = [4]
[qos.default.queue.3]
weight = 5
[[workload]]
from = ["a"]
to = ["b"]
messages = 1
"#;

/// Prints for each link its ends, and what they operate with; both ends of `b` at the end.
const STATE: &str = r"
import json, sys
for link in json.load(sys.stdin)['dcbx']:
    ends = [link['adapter'], link['switch']]
    print('link', *[(end['name'], end['operational']['pfc'], end['takes_pfc']) for end in ends])
    print('heard', ends[0]['name'], [end['remote']['pfc'] if 'remote' in end else None for end in ends])
";

fn script(text: &str) -> String {
    let prepare =
        format!("cat >$D/two.toml <<'FILE'{FILE}FILE\ncat >$D/state.py <<'FILE'{STATE}FILE\n");
    live::script(&(prepare + text), SECONDS)
}

#[test]
fn ends_agree_on_pfc_or_the_report_names_them() {
    let said = script(
        r#"
        $R lab up -d --slow 10 $D/two.toml || exit 1
        $R lab ps --json | python3 $D/state.py
        $R lab show sw dcbx
        $R lab report >$D/report; grep -A2 'PFC differs' $D/report
        echo "the port is set"
        $R lab set 'qos.default.pfc.classes=[4]' || exit 1
        $R lab ps --json | python3 $D/state.py
        echo "mismatches: $($R lab report | grep -c 'PFC differs')"
        $R lab link a-sw down
        $R lab ps --json | python3 $D/state.py | grep "heard a"
        down"#,
    );
    let (before, after) = said
        .split_once("the port is set")
        .unwrap_or_else(|| panic!("{said}"));
    for line in [
        "link ('a', [3], True) ('sw:0', [3], False)",
        "heard a [[3], []]",
        "link ('b', [4], False) ('sw:1', [3], False)",
        "b and sw:1",
        "neither end is willing",
    ] {
        assert!(before.contains(line), "{line}: {said}");
    }
    let shown = before
        .lines()
        .find(|line| line.starts_with("0 "))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(
        shown.contains("a 02:00:00:00:00:01") && shown.contains("3:42%"),
        "{said}"
    );
    for line in [
        "link ('a', [4], True) ('sw:0', [4], False)",
        "link ('b', [4], False) ('sw:1', [4], False)",
        "mismatches: 0",
        "heard a [None, None]",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(after.contains(line), "{line}: {said}");
    }
}

/// A frame of a program with TTL 20 that is willing, with PFC for priority 5.
const FRAME: &str = "0180c200000e02000000000288cc02070402000000000204050565746830\
                     06020014fe060080c20b88200000000000000000000000000000000000";

#[test]
fn programs_of_a_host_hear_its_switch_and_are_heard() {
    let send = format!(
        "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((\"eth0\", 0)); \
         s.send(bytes.fromhex(\"{FRAME}\"))"
    );
    let said = script(&format!(
        r#"
        $R lab up -d --slow 10 $D/two.toml || exit 1
        $R lab pcap sw:0=$D/a.pcap && $R lab pcap sw:1=$D/b.pcap || exit 1
        $R lab exec --machine-clock a -- $R doctor lldp --interface eth0 --seconds 12 --json >$D/heard.json &
        HEARS=$!
        # Frames are heard from when the socket is open, and a new link begins with four of them.
        for round in 1 2 3; do
            sleep 2
            $R lab link a-sw down; $R lab link a-sw up
        done
        $R lab exec b -- python3 -c '{send}' || exit 1
        STATE="$R lab ps --json | python3 $D/state.py"
        until_it_prints 1 "$STATE | grep -c 'heard b .*\[5\]'" || exit 1
        echo "the program is heard"
        until_it_prints 1 "$STATE | grep -c 'heard b \[\[3\], \[4\]\]'" || exit 1
        echo "the adapter is heard again"
        wait $HEARS
        $R lab pcap sw:0=off; $R lab pcap sw:1=off
        tshark -r $D/a.pcap -V -O lldp >$D/a.txt
        for part in 'System Name = sw' 'System Name = a' 'ETS Recommendation' 'PFC for Priority 3: Enabled' \
            'Application Protocol Id: 0x12b7' 'Bandwidth for PGID 3: 42'; do
            grep -q "$part" $D/a.txt && echo "decoded: $part"
        done
        echo "taken back: $(tshark -r $D/b.pcap -Y 'lldp.time_to_live == 0' | wc -l)"
        echo "malformed: $(cat $D/*.txt | grep -c -i malformed)"
        down
        echo "heard:"; cat $D/heard.json"#
    ));
    let (said, heard) = said
        .split_once("heard:\n")
        .unwrap_or_else(|| panic!("{said}"));
    for line in [
        "the program is heard",
        "the adapter is heard again",
        "decoded: System Name = sw",
        "decoded: System Name = a",
        "decoded: ETS Recommendation",
        "decoded: PFC for Priority 3: Enabled",
        "decoded: Application Protocol Id: 0x12b7",
        "decoded: Bandwidth for PGID 3: 42",
        "taken back: 1",
        "malformed: 0",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let found: Value = serde_json::from_str(heard.trim()).unwrap_or_else(|_| panic!("{heard}"));
    // Its own frames are no neighbour's: a program receives those of the switch's port alone.
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{heard}");
    assert_eq!(
        (&found[0]["system"], &found[0]["port"]),
        (&"sw".into(), &"0".into()),
        "{heard}"
    );
    assert_eq!(
        found[0]["pfc"]["enabled"],
        serde_json::json!([3]),
        "{heard}"
    );
}
