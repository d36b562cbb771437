//! Classes of RDMA and of the kernel's TCP that share a port of a live switch by their weights.

use programs::live;

const SECONDS: u64 = 400;
/// The greatest factor that `lab up --slow` takes.
const SLOWEST: u32 = 10_000;

/// Waits for packets that `crs504` sends to `server`, by class: until as many as the second argument says
/// have left, 1,000 of each class among them, then until 8,000 more have. Prints how many of these were of
/// class 1, and of class 3, and whether the lab kept up with its clock.
const COUNT: &str = r"
import json, subprocess, sys, time
def lab(*words):
    return json.loads(subprocess.check_output([sys.argv[1], 'lab', *words, '--json']))
def sent():
    port = next(port for port in lab('report')['ports'] if port['to'] == 'server')
    packets = {queue['class']: queue['packets'] for queue in port['queues']}
    return [packets.get(1, 0), packets.get(3, 0)]
def wait(is_enough):
    until = time.monotonic() + 300
    while not is_enough(sent()):
        assert time.monotonic() < until, sent()
        time.sleep(0.5)
    return sent()
before = wait(lambda counts: min(counts) >= 1000 and sum(counts) >= int(sys.argv[2]))
after = wait(lambda counts: sum(counts) >= sum(before) + 8000)
print('packets:', *[later - sooner for sooner, later in zip(before, after)])
print('valid:', lab('ps')['valid'])
";

/// What a lab shared.
struct Shared {
    /// Packets of storage for each one of iperf3.
    ratio: f64,
    /// Whether the lab kept up with its clock.
    is_valid: bool,
    said: String,
}

/// Storage in class 3 weighs three times as much as class 1, in which iperf3 is. The switch counts packets,
/// so segments of TCP are as long as packets of RDMA. Counted is what leaves after the first `skipped`
/// packets.
fn shared(slow: u32, options: &str, skipped: u32) -> Shared {
    let said = live::script(
        &format!(
            r#"
        cat >$D/count.py <<'FILE'{COUNT}FILE
        $R lab up -d --slow {slow} {options} $F/shares.toml || exit 1
        for number in 0 1 2; do
            $R lab exec --machine-clock server -- \
                ib_write_bw -q 4 -s 1048576 -D 300 -p 1900$number >/dev/null 2>&1 &
        done
        $R lab exec --machine-clock server -- iperf3 -s >/dev/null 2>&1 &
        for port in 4A38 4A39 4A3A 1451; do
            until_it_listens $port || exit 1
        done
        for number in 0 1 2; do
            $R lab exec --machine-clock sender$number -- \
                ib_write_bw -q 4 -s 1048576 -D 300 -p 1900$number server \
                >/dev/null 2>&1 &
        done
        $R lab exec --machine-clock bulk -- iperf3 -c server -t 300 -P 4 -M 4100 >/dev/null 2>&1 &
        python3 $D/count.py $R {skipped} || exit 1
        $R lab ps | head -3
        down"#
        ),
        SECONDS,
    );
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
    let find = |name: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(name))
            .expect("a line of it")
    };
    let counts: Vec<f64> = find("packets: ")
        .split(' ')
        .map(|count| count.parse().expect("a number"))
        .collect();
    Shared {
        ratio: counts[1] / counts[0],
        is_valid: find("valid: ") == "True",
        said,
    }
}

/// DCQCN is off: its pacing sends nothing while a program waits for a processor, and a class that is not
/// always backlogged has no share to compare.
#[test]
fn iperf3_and_storage_share_a_port_one_to_three() {
    let Shared { ratio, said, .. } = shared(1000, "--set nic.default.congestion=off", 0);
    assert!((ratio / 3.0 - 1.0).abs() <= 0.05, "{ratio}: {said}");
}

/// With DCQCN, when rates have settled. On a machine with other work senders hear late that they may send,
/// and storage leaves a part of its share to iperf3. That part is least in the slowest lab, so the test runs
/// one. Shares in a lab that did not keep up with its clock are not compared: the test runs a second lab.
#[test]
fn storage_that_dcqcn_paces_has_its_share_too() {
    let mut all = String::new();
    for _ in 0..2 {
        let Shared {
            ratio,
            is_valid,
            said,
        } = shared(SLOWEST, "", 10_000);
        let is_due = (ratio / 3.0 - 1.0).abs() <= 0.05;
        assert!(
            is_due || !is_valid && ratio > 1.0 && ratio < 3.0,
            "{ratio}: {said}"
        );
        if is_due {
            return;
        }
        all += &said;
    }
    eprintln!("not compared, because no lab kept up with its clock: {all}");
}
