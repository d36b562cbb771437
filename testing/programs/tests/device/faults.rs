//! Faults while programs run: the program at the other end gets the status that verbs specify, and nothing
//! leaks.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Pair, Rockery};

const PORT: u16 = 18521;
const SECONDS: u64 = 60;
/// The requester's eight timeouts of 134 ms each, on a machine that has other things to do.
const RETRIES_SECONDS: u64 = 30;
const RETRY_EXCEEDED: &str = "failed: transport retry counter exceeded\nflushed: 15\n";

struct Streams<'a> {
    server: Box<dyn Job + 'a>,
    client: Box<dyn Job + 'a>,
}

/// Starts both ends, and waits until the client runs, if it ever does.
fn start<'a>(pair: &'a Pair, probe: &Probe, how: &str, runs: bool) -> Streams<'a> {
    let (path, address) = (
        probe.path().to_string_lossy().into_owned(),
        pair.left.address().to_string(),
    );
    let words: Vec<&str> = std::iter::once(&*path).chain(how.split(' ')).collect();
    let server = pair.left.start(&words).expect("a server");
    pair.left
        .wait_for_listener(PORT, SECONDS)
        .expect("a listener");
    let mut client = pair
        .right
        .start(&[&words[..], &[&address]].concat())
        .expect("a client");
    if runs {
        client.expect_output("running", SECONDS);
    }
    Streams { server, client }
}

/// Waits for the end of a client whose output ends with `says`.
#[track_caller]
fn expect(job: &mut dyn Job, says: &str) {
    let finished = job.wait(RETRIES_SECONDS).expect("it ends").expect_success();
    assert!(finished.output.ends_with(says), "{}", finished.output);
}

/// Nothing is open any more, and a new pair of programs works at once.
#[track_caller]
fn nothing_is_left(pair: &Pair, probe: &Probe) {
    let rockery = Rockery::built();
    let listed = |line: &str| pair.left.call(line).expect("a list");
    let devices = format!("{} devices --json", rockery.path().display());
    let gone = until(SECONDS, || Ok(!listed(&devices).contains("\"pid\"")));
    assert!(gone.expect("a list"), "{}", listed(&devices));
    let mut again = start(pair, probe, "write", true);
    again.client.kill().expect("its end");
    expect(&mut *again.server, "the peer is gone\n");
}

#[test]
fn the_server_is_killed() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    for how in ["write", "send"] {
        let mut streams = start(&pair, &probe, how, true);
        streams.server.kill().unwrap();
        expect(&mut *streams.client, RETRY_EXCEEDED);
    }
    nothing_is_left(&pair, &probe);
}

#[test]
fn the_client_is_killed() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    for how in ["write", "send"] {
        let mut streams = start(&pair, &probe, how, true);
        streams.client.kill().unwrap();
        expect(&mut *streams.server, "the peer is gone\n");
    }
    nothing_is_left(&pair, &probe);
}

#[test]
fn the_link_goes_down_and_comes_back_within_the_retries() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    // 1.07 s, eight times: a loaded machine may take its time to set a link up.
    let mut streams = start(&pair, &probe, "-t 18 write", true);
    for _ in 0..3 {
        pair.left.call("ip link set eth0 down").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        pair.left.call("ip link set eth0 up").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(
            streams.client.finished().unwrap().is_none(),
            "{:?}",
            streams.client.output()
        );
    }
    streams.client.kill().unwrap();
    expect(&mut *streams.server, "the peer is gone\n");
}

#[test]
fn the_link_goes_down_for_good() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "send", true);
    pair.right.call("ip link set eth0 down").unwrap();
    expect(&mut *streams.client, RETRY_EXCEEDED);
}

#[test]
fn the_address_of_the_requester_is_removed() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "write", true);
    pair.right
        .call("ip address flush dev eth0 scope global")
        .unwrap();
    expect(&mut *streams.client, RETRY_EXCEEDED);
}

#[test]
fn the_receiver_never_posts() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "deaf", false);
    expect(
        &mut *streams.client,
        "failed: RNR retry counter exceeded\nflushed: 15\n",
    );
    expect(&mut *streams.server, "the peer is gone\n");
}

#[test]
fn a_completion_queue_overflows() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "overflow", false);
    let finished = streams.client.wait(SECONDS).unwrap().expect_success();
    assert!(
        finished.output.contains("event: CQ error\n"),
        "{}",
        finished.output
    );
    assert!(
        finished
            .output
            .contains("event: local work queue catastrophic error\n"),
        "{}",
        finished.output
    );
}

#[test]
fn the_port_is_taken() {
    let pair = Pair::with_rockery(1500);
    let holder = "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
                  s.bind(('', 4791)); print('bound', flush=True); time.sleep(60)";
    let mut holder = pair.left.start_plain(&["python3", "-c", holder]).unwrap();
    let bound = until(SECONDS, || Ok(holder.output()?.contains("bound")));
    assert!(bound.unwrap(), "{:?}", holder.output());
    let refused = pair
        .left
        .run(&["ibv_rc_pingpong", "-g", "1"], SECONDS)
        .unwrap();
    assert!(!refused.succeeded(), "{}", refused.output);
    assert!(
        refused
            .output
            .contains("UDP port 4791 is taken in this network namespace"),
        "{}",
        refused.output
    );
    holder.kill().unwrap();
}

#[test]
fn there_is_no_memory() {
    let pair = Pair::with_rockery(1500);
    // From nothing at all to enough: a failed allocation is reported to the program, and no signal ends it.
    for mebibytes in [24, 32, 40, 48, 64, 96, 160, 320] {
        let limit = format!("--as={}", mebibytes << 20);
        let program = ["prlimit", &limit, "ibv_devinfo", "-v", "-d", "rk_eth0"];
        let finished = pair.left.run(&program, SECONDS).unwrap();
        assert!(
            finished.status.is_some(),
            "{mebibytes} MiB: a signal\n{}",
            finished.output
        );
    }
}

/// The processes of a namespace whose program has this name.
fn pids(namespace: &Namespace, program: &str) -> Vec<String> {
    let all = namespace
        .call(&format!("ip netns pids {}", namespace.netns()))
        .expect("a list");
    let is_it = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.trim() == program)
    };
    all.split_whitespace()
        .filter(is_it)
        .map(str::to_owned)
        .collect()
}

/// Sends a signal to all of them.
fn signal(namespace: &Namespace, program: &str, name: &str) {
    let pids = pids(namespace, program);
    assert!(!pids.is_empty(), "{program} does not run");
    namespace
        .call(&format!("kill -{name} {}", pids.join(" ")))
        .expect("kill");
}

fn for_a_moment() {
    std::thread::sleep(std::time::Duration::from_millis(300));
}

#[test]
fn the_server_is_stopped_for_less_and_for_more_than_the_retries() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "write", true);
    for _ in 0..2 {
        signal(&pair.left, "stream", "STOP");
        for_a_moment();
        signal(&pair.left, "stream", "CONT");
        for_a_moment();
        assert!(
            streams.client.finished().unwrap().is_none(),
            "{:?}",
            streams.client.output()
        );
    }
    signal(&pair.left, "stream", "STOP");
    expect(&mut *streams.client, RETRY_EXCEEDED);
    signal(&pair.left, "stream", "CONT");
    expect(&mut *streams.server, "the peer is gone\n");
    nothing_is_left(&pair, &probe);
}

#[test]
fn the_address_of_the_responder_is_removed() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "write", true);
    pair.left
        .call("ip address flush dev eth0 scope global")
        .unwrap();
    expect(&mut *streams.client, RETRY_EXCEEDED);
}

#[test]
fn the_mtu_falls_below_what_packets_need_and_rises_again() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "write", true);
    for _ in 0..2 {
        pair.right.call("ip link set eth0 mtu 1000").unwrap();
        for_a_moment();
        pair.right.call("ip link set eth0 mtu 1500").unwrap();
        for_a_moment();
        assert!(
            streams.client.finished().unwrap().is_none(),
            "{:?}",
            streams.client.output()
        );
    }
    pair.right.call("ip link set eth0 mtu 1000").unwrap();
    expect(&mut *streams.client, RETRY_EXCEEDED);
}

#[test]
fn the_interface_is_deleted_and_made_again() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "write", true);
    pair.right.call("ip link del eth0").unwrap();
    expect(&mut *streams.client, RETRY_EXCEEDED);
    streams.server.kill().unwrap();
    pair.connect(1500).unwrap();
    nothing_is_left(&pair, &probe);
}

#[test]
fn the_agent_is_killed_while_programs_run() {
    let (pair, probe) = (Pair::with_rockery(1500), Probe::compile("stream").unwrap());
    let mut streams = start(&pair, &probe, "write", true);
    signal(&pair.left, "rockery-agent", "KILL");
    for_a_moment();
    assert!(
        streams.client.finished().unwrap().is_none(),
        "{:?}",
        streams.client.output()
    );
    let refused = pair
        .left
        .run(&["ibv_devinfo", "-d", "rk_eth0"], SECONDS)
        .unwrap();
    assert!(
        refused.output.contains("UDP port 4791 is taken"),
        "{}",
        refused.output
    );
    streams.client.kill().unwrap();
    expect(&mut *streams.server, "the peer is gone\n");
    nothing_is_left(&pair, &probe);
}

#[test]
fn there_are_no_descriptors() {
    let pair = Pair::with_rockery(1500);
    // From hardly enough to start at all to plenty.
    for limit in [4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 64] {
        let limit = format!("--nofile={limit}:");
        let program = ["prlimit", &limit, "ibv_devinfo", "-v", "-d", "rk_eth0"];
        let finished = pair.left.run(&program, SECONDS).unwrap();
        assert!(
            finished.status.is_some(),
            "{limit}: a signal\n{}",
            finished.output
        );
    }
    let program = [
        "prlimit",
        "--nofile=64:",
        "ibv_devinfo",
        "-v",
        "-d",
        "rk_eth0",
    ];
    pair.left.run(&program, SECONDS).unwrap().expect_success();
}

#[test]
fn the_disk_is_full_where_a_capture_goes() {
    let pair = Pair::with_rockery(1500);
    // 64 KiB take the first packets.
    let script = "mount -t tmpfs -o size=64k full /mnt && exec env ROCKERY_PCAP=/mnt/file \
                  ib_write_bw -s 4096 -n 1000";
    let program = |address: &str| format!("{script} {address}");
    let shell = |line: &str| ["unshare", "--mount", "sh", "-c", line].map(str::to_owned);
    let server = shell(&program(""));
    let mut server = pair
        .left
        .start(&server.each_ref().map(String::as_str))
        .unwrap();
    pair.left.wait_for_listener(18515, SECONDS).unwrap();
    let client = shell(&program(&pair.left.address().to_string()));
    let client = pair
        .right
        .run(&client.each_ref().map(String::as_str), SECONDS)
        .unwrap()
        .expect_success();
    let server = server.wait(SECONDS).unwrap().expect_success();
    for end in [server, client] {
        assert!(
            end.output
                .contains("rockery: the capture ends here: No space left"),
            "{}",
            end.output
        );
    }
}

#[test]
fn threads_go_on_while_their_program_forks() {
    let probe = Probe::compile("fork_during_open").unwrap();
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        let alone = Namespace::alone().unwrap().with(&rockery);
        let path = probe.path().to_string_lossy();
        let forks = alone
            .run(&[&path, "rk_lo", "1", "30"], SECONDS)
            .unwrap()
            .expect_success();
        assert!(forks.output.ends_with("all went on\n"), "{}", forks.output);
    }
}

/// The agent keeps the list of XRC domains. A thread that waits for it does not keep others from the device.
#[test]
fn objects_are_created_while_the_agent_is_stopped() {
    let pair = Pair::with_rockery(1500);
    let probe = Probe::compile_with("cc", "stopped_agent", &["-libverbs", "-lpthread"]).unwrap();
    let path = probe.path().to_string_lossy().into_owned();
    let finished = pair
        .left
        .run(&[&path], SECONDS)
        .expect("it ends")
        .expect_success();
    let says = "objects made while the domain was being opened: yes\ndone\n";
    assert!(finished.output.ends_with(says), "{}", finished.output);
}

/// The agent keeps the ports of connections. A thread that waits for it does not keep others from the
/// connection manager.
#[test]
fn addresses_are_resolved_while_the_agent_is_stopped() {
    let pair = Pair::with_rockery(1500);
    let libraries = ["-lrdmacm", "-libverbs", "-lpthread"];
    let probe = Probe::compile_with("cc", "stopped_listener", &libraries).unwrap();
    let path = probe.path().to_string_lossy().into_owned();
    let finished = pair
        .left
        .run(&[&path, &pair.left.address().to_string()], SECONDS)
        .expect("it ends")
        .expect_success();
    let says = "addresses resolved while a port was being bound: yes\ndone\n";
    assert!(finished.output.ends_with(says), "{}", finished.output);
}
