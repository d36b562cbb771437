//! Labs whose processes are killed at random moments, and hosts that break the rules: nothing is left, and
//! only the host that breaks them is harmed.

use programs::{live, number, workspace};

/// Kills in one run of the test; `ROCKERY_TEST_KILLS` for others.
const KILLS: u64 = 20;
const SEED: u64 = 1;

#[test]
fn nothing_is_left_of_programs_hosts_and_labs_that_are_killed() {
    let (kills, seed) = (
        number("ROCKERY_TEST_KILLS", KILLS),
        number("ROCKERY_TEST_SEED", SEED),
    );
    let said = live::script(
        &format!(
            r#"
        STATE={seed}
        next() {{ STATE=$(((STATE * 1103515245 + 12345) % 2147483648)); }}
        up() {{
            $R lab up -d $F/lab.toml >/dev/null || exit 1
            CLOCK=$($R lab exec server -- sh -c 'echo $ROCKERY_LAB_CLOCK')
            LAB=$($R lab ps --json | sed 's/.*"process":\([0-9]*\).*/\1/')
        }}
        up
        for round in $(seq {kills}); do
            $R lab exec server -- ib_write_bw -D 100 >/dev/null 2>&1 &
            SERVER=$!
            until_it_listens 4853 || exit 1
            $R lab exec sender0 -- ib_write_bw -D 100 server >/dev/null 2>&1 &
            CLIENT=$!
            next
            sleep 0.$((STATE / 65536 % 10))
            next
            case $((STATE / 65536 % 3)) in
                0) kill -9 $CLIENT; KILLED=program ;;
                1)  KILLED=host
                    $R lab exec sender0 -- sh -c '
                        own=$(readlink /proc/self/ns/net)
                        for place in /proc/[0-9]*; do
                            process=${{place#/proc/}}
                            [ $process != $$ ] && [ "$(readlink $place/ns/net)" = "$own" ] && kill -9 $process
                        done' 2>/dev/null ;;
                2) kill -9 $LAB; KILLED=lab ;;
            esac
            # A server whose client was killed before it connected waits for another one.
            sleep 0.3
            kill $SERVER 2>/dev/null
            wait
            echo "killed a $KILLED"
            if [ $KILLED = lab ]; then
                until_it_prints 0 "grep -ls ROCKERY_LAB_CLOCK=$CLOCK /proc/[0-9]*/environ | wc -l" || exit 1
                until_it_prints 0 "grep -c rockery-lab /proc/net/unix" || exit 1
                up
            else
                until_it_prints 4 "$R lab ps --json | grep -o '\"devices\":0' | wc -l" || exit 1
            fi
        done
        echo "all rounds"
        down"#
        ),
        60 + kills * 30,
    );
    assert!(
        said.contains("all rounds") && said.contains("left: 0 processes, 0 sockets"),
        "{said}"
    );
    assert_eq!(said.matches("killed a").count() as u64, kills, "{said}");
}

/// Sends frames from `eth0` with the addresses of another host: its MAC address, and its IP address.
const FORGER: &str = r"
import socket, struct
own, other, server = [bytes([2, 0, 0, 0, 0, last]) for last in (2, 3, 1)]
def frame(mac, address):
    udp = struct.pack('!HHHH', 9, 9, 8, 0)
    ends = [bytes([10, 0, 0, last]) for last in (address, 1)]
    ip = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 28, 0, 0, 64, 17, 0, *ends)
    total = sum(struct.unpack('!10H', ip))
    total = (total & 0xffff) + (total >> 16)
    ip = ip[:10] + struct.pack('!H', ~total & 0xffff) + ip[12:]
    return server + mac + b'\x08\x00' + ip + udp
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
    raw.bind(('eth0', 0))
    for forged in [frame(other, 2), frame(own, 3), frame(other, 3)]:
        raw.send(forged)
    raw.send(frame(own, 2))
";

#[test]
fn frames_with_addresses_of_other_hosts_are_dropped_and_counted() {
    let said = live::script(
        &format!(
            r#"
        cat >$D/forger.py <<'FILE'{FORGER}FILE
        $R lab up -d $F/lab.toml || exit 1
        $R lab exec sender0 -- python3 $D/forger.py || exit 1
        until_it_prints 3 "$R lab metrics | sed -n 's/.*host_forged_total.*sender0.* //p'" || exit 1
        $R lab metrics | grep host_forged_total
        $R lab exec sender0 -- ping -c 1 -W 5 server >/dev/null && echo "sender0 reaches server"
        down"#
        ),
        120,
    );
    for line in [
        "host=\"sender0\"} 3",
        "host=\"sender1\"} 0",
        "sender0 reaches server",
        "left: 0 processes, 0 sockets",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[test]
fn a_host_that_scribbles_over_its_rings_harms_itself_alone() {
    let scribbler = workspace().join("testing/programs/probe/scribbler.py");
    let said = live::script_with(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        for seed in 1 2 3; do
            $R lab exec server -- ib_write_bw -n 200 -s 65536 >/dev/null &
            until_it_listens 4853 || exit 1
            $R lab exec sender0 -- python3 $D/scribbler.py $seed &
            $R lab exec sender1 -- ib_write_bw -n 200 -s 65536 server | grep -A2 '#bytes'
            wait
        done
        until_it_prints 4 "$R lab ps --json | grep -o '\"devices\":0' | wc -l" || exit 1
        $R lab exec sender0 -- ping -c 1 -W 5 server >/dev/null && echo "sender0 reaches server"
        down"#,
        240,
        &[&scribbler],
    );
    assert_eq!(said.matches("scribbled").count(), 3, "{said}");
    let measured = said
        .lines()
        .filter(|line| line.trim().starts_with("65536") && line.contains("200"));
    assert_eq!(measured.count(), 3, "{said}");
    assert!(said.contains("sender0 reaches server"), "{said}");
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
}
