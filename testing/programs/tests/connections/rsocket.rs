//! Sockets over RDMA, with rdma-core's own programs and with programs that use sockets only.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use programs::dissector::watch;
use programs::machine::{until, words};
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Pair, Rockery, Segment};
use tempfile::TempDir;

const SECONDS: u64 = 90;
/// The longest that a client may take that has a server.
const ATTEMPT_SECONDS: u64 = 15;
/// rdma-core's library that turns the sockets of a program into rsockets, from the package rdmacm-utils.
const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

/// Runs a client once: whether it succeeded, and what it said. A host on which no process has opened a device
/// yet does not answer, for which a client would wait for a minute.
fn attempt(client: &dyn Machine, argv: &[&str]) -> (bool, String) {
    match client.run(argv, ATTEMPT_SECONDS) {
        Ok(finished) => (finished.succeeded(), finished.output),
        Err(error) => (false, error.to_string()),
    }
}

/// Runs a program's two ends. Rsocket listeners are in no table of the kernel, so a client that was there
/// first is refused, and tries again. A server serves one client: where that one was ended, the next has a
/// server of its own.
fn exchange(
    server: &dyn Machine,
    client: &dyn Machine,
    address: IpAddr,
    program: &str,
) -> (String, String) {
    let line = format!("{program} -s {address}");
    let mut serving = server.start(&words(program)).expect("the server starts");
    let mut output = String::new();
    let done = until(SECONDS, || {
        let (succeeded, said) = attempt(client, &words(&line));
        output = said;
        let is_done = succeeded && !output.contains("refused");
        if !is_done && serving.finished()?.is_some() {
            serving = server.start(&words(program))?;
        }
        Ok(is_done)
    });
    assert!(
        done.expect("the client runs"),
        "{line}:\n{output}\nserver:\n{}",
        serving.output().unwrap_or_default()
    );
    let served = serving
        .wait(SECONDS)
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    (served.expect_success().output, output)
}

/// The same over a pair, where both ends have to print a result.
fn expect(pair: &Pair, program: &str) {
    let (server, client) = exchange(&pair.left, &pair.right, pair.left.address(), program);
    for said in [&server, &client] {
        assert!(
            said.contains("Gb/sec") && said.lines().count() >= 2,
            "{program}:\n{said}"
        );
        assert!(
            !said.contains("error") && !said.contains("failed"),
            "{program}:\n{said}"
        );
    }
}

#[test]
fn rstream_finds_every_byte_where_it_belongs() {
    for mtu in [1500, 9000] {
        let pair = Pair::with_rockery(mtu);
        for way in ["b", "n", "a"] {
            expect(
                &pair,
                &format!("rstream -T {way} -T v -S 100001 -C 20 -I 5"),
            );
            expect(&pair, &format!("rstream -T {way} -T v -S 1 -C 200 -I 2"));
        }
        expect(&pair, "rstream -T v -S 3000000 -C 4 -I 3 -B 65536");
    }
}

#[test]
fn rstream_runs_over_the_loopback() {
    let alone = Namespace::with_rockery();
    let (_, said) = exchange(
        &alone,
        &alone,
        alone.address(),
        "rstream -T v -S 65536 -C 50 -I 10",
    );
    assert!(said.contains("64k"), "{said}");
}

#[test]
fn a_port_without_a_listener_refuses_connections() {
    let alone = Namespace::with_rockery();
    let line = words("rstream -T b -s 127.0.0.1 -S 64 -C 1 -I 1");
    let refused = alone.run(&line, SECONDS).unwrap();
    assert!(
        refused.output.contains("Connection refused"),
        "{}",
        refused.output
    );
}

#[test]
fn riostream_writes_to_mapped_memory() {
    let pair = Pair::with_rockery(1500);
    for way in ["b", "n", "a"] {
        expect(
            &pair,
            &format!("riostream -T {way} -T v -S 65536 -C 20 -I 5"),
        );
    }
}

/// Options, flags, `rpoll` and `rselect`, closing by halves, connecting without blocking, mapped memory.
#[test]
fn calls_return_what_they_return_on_sockets() {
    let probe = Probe::compile_with("cc", "sockets", &["-lrdmacm", "-lpthread"]).unwrap();
    let pair = Pair::with_rockery(1500);
    let said = pair
        .left
        .run(&[&probe.path().to_string_lossy(), "10.88.0.1"], SECONDS)
        .unwrap();
    assert_eq!(
        said.expect_success().output,
        include_str!("../../probe/sockets.expected")
    );
}

/// Runs the client of `peer_killed` against a server, which the client kills, and returns what it printed.
fn with_a_killed_peer(run: &[&str], action: &str) -> String {
    let probe = Probe::compile_with("cc", "peer_killed", &["-lrdmacm"]).expect("a C compiler");
    let program = probe.path().to_string_lossy().into_owned();
    let pair = Pair::with_rockery(1500);
    let mut server = pair
        .left
        .start(&[&program, "serve", "10.88.0.1"])
        .expect("the server starts");
    assert!(
        until(SECONDS, || pair.left.awaits_requests()).expect("listeners"),
        "it does not listen"
    );
    let rockery = Rockery::built().path().to_string_lossy().into_owned();
    let argv = [
        &[rockery.as_str(), "run"][..],
        run,
        &["--", &program, action, "10.88.0.1"],
    ]
    .concat();
    let mut client = pair.right.start_plain(&argv).expect("the client starts");
    let said = client
        .wait(SECONDS)
        .expect("in time")
        .expect_success()
        .output;
    _ = server.wait(SECONDS);
    said
}

/// A connection that has ended is closed at once: what was sent and not acknowledged never will be, and the
/// queue pair's retries take 4.3 s.
#[test]
fn closing_does_not_wait_for_a_killed_peer() {
    // The client reads its counters in the files of a view.
    let said = with_a_killed_peer(&["--view", "preload"], "close");
    assert_eq!(said, "exceeded before 0 after 0\n");
}

/// A stream that is being shut down when the peer is reported gone does not wait on for acknowledgements: it
/// would until its time-out otherwise, and fail with `EAGAIN`.
#[test]
fn shutting_down_ends_when_the_peer_was_killed() {
    assert_eq!(with_a_killed_peer(&[], "shutdown"), "shut down\n");
}

/// How many datagrams the server's queue pair has received.
fn received_datagrams(server: &Namespace) -> u64 {
    let listed = server
        .call(&format!("{} devices", Rockery::built().word()))
        .expect("devices");
    let figure = |line: &str| {
        line.trim()
            .strip_prefix("received_datagrams")?
            .trim()
            .parse()
            .ok()
    };
    listed.lines().find_map(figure).unwrap_or(0)
}

/// Datagrams longer than the path MTU go by UDP, the others by RDMA once the peer's queue pair is known.
#[test]
fn udpong_sends_datagrams_and_gets_them_back() {
    for (mtu, address) in [(1500, "10.88.0.1"), (9000, "fd88::1")] {
        let pair = Pair::with_rockery(mtu);
        for way in ["b", "n", "a"] {
            let serve = format!("udpong -b {address} -T {way}");
            let mut server = pair.left.start(&words(&serve)).expect("the server starts");
            for size in [64, 1400] {
                let line = format!("udpong -s {address} -T {way} -T e -S {size} -C 200");
                let mut output = String::new();
                let done = until(SECONDS, || {
                    let (succeeded, said) = attempt(&pair.right, &words(&line));
                    output = said;
                    Ok(succeeded && output.contains("custom"))
                });
                assert!(
                    done.unwrap(),
                    "{line}:\n{output}\nserver:\n{}",
                    server.output().unwrap_or_default()
                );
                let received = received_datagrams(&pair.left);
                assert!(received >= 150, "{line}: {received} datagrams by RDMA");
            }
            server.kill().unwrap();
        }
    }
}

/// Writes a file that has no two equal parts, and returns its bytes.
fn make(path: &Path, length: u32) -> Vec<u8> {
    let bytes: Vec<u8> = (0..length)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    fs::write(path, &bytes).expect("a temporary file");
    bytes
}

#[test]
fn rcopy_copies_a_file() {
    let (pair, folder) = (Pair::with_rockery(9000), TempDir::new().unwrap());
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    let bytes = make(&source, 5_000_003);
    let mut server = pair.left.start(&["rcopy"]).unwrap();
    let argv = [
        "rcopy",
        &source.to_string_lossy(),
        &format!("{}:{}", pair.left.address(), target.display()),
    ];
    let copied = until(SECONDS, || Ok(attempt(&pair.right, &argv).0)).unwrap();
    assert!(
        copied && fs::read(&target).unwrap() == bytes,
        "{}",
        server.output().unwrap_or_default()
    );
    server.kill().unwrap();
}

/// How many segments of TCP have left a host.
fn tcp_segments(host: &Namespace) -> u64 {
    let text = host.call("cat /proc/net/snmp").expect("Linux counts");
    let tcp = text
        .lines()
        .filter(|line| line.starts_with("Tcp:"))
        .nth(1)
        .unwrap_or_default();
    tcp.split_whitespace()
        .nth(10)
        .and_then(|word| word.parse().ok())
        .expect("Linux counts segments")
}

/// Runs a client again until it has found its server, and returns its output.
fn patiently(server: &mut dyn Job, client: &Namespace, line: &str) -> String {
    let mut output = String::new();
    let done = until(SECONDS, || {
        let (succeeded, said) = attempt(client, &words(line));
        output = said;
        Ok(succeeded)
    });
    let said = server.output().unwrap_or_default();
    assert!(
        done.expect("the client runs"),
        "{line}:\n{output}\nserver:\n{said}"
    );
    output
}

/// Sockets become rsockets by rockery's own library.
fn with_sockets(mtu: u32) -> Pair {
    Pair::new(mtu)
        .expect("a pair")
        .with(&Rockery::with_sockets())
}

fn source(name: &str) -> String {
    format!("{}/probe/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn iperf3(server: &Namespace, client: &Namespace, address: IpAddr, prefix: &str) {
    let before = tcp_segments(server);
    let mut serving = server
        .start(&words(&format!("{prefix} iperf3 -s -1 -B {address}")))
        .expect("iperf3");
    let output = patiently(
        &mut *serving,
        client,
        &format!("{prefix} iperf3 -c {address} -n 50M"),
    );
    assert!(output.contains("receiver"), "{address}: {output}");
    serving
        .wait(SECONDS)
        .expect("the server ends")
        .expect_success();
    let segments = tcp_segments(server) - before;
    assert!(
        segments < 100,
        "{address}: {segments} segments went over TCP"
    );
}

#[test]
fn iperf3_runs_over_rsockets() {
    for mtu in [1500, 9000] {
        let pair = with_sockets(mtu);
        for address in [pair.left.address(), pair.left.address_v6()] {
            iperf3(&pair.left, &pair.right, address, "");
        }
    }
    let alone = Namespace::alone()
        .expect("a namespace")
        .with(&Rockery::with_sockets());
    for address in [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::from(Ipv6Addr::LOCALHOST),
    ] {
        iperf3(&alone, &alone, address, "");
    }
}

#[test]
fn rdma_cores_library_turns_sockets_into_our_rsockets() {
    let pair = Pair::with_rockery(9000);
    iperf3(
        &pair.left,
        &pair.right,
        pair.left.address(),
        &format!("env LD_PRELOAD={PRELOAD}"),
    );
}

#[test]
fn curl_downloads_from_a_server_in_c() {
    let (pair, folder) = (with_sockets(1500), TempDir::new().unwrap());
    let file = folder.path().join("file");
    let bytes = make(&file, 3_000_001);
    let probe = Probe::compile_with("cc", "serve", &[]).unwrap();
    let address = pair.left.address();
    let line = format!(
        "{} {address} 8000 {}",
        probe.path().display(),
        file.display()
    );
    let mut server = pair.left.start(&words(&line)).unwrap();
    let target = folder.path().join("downloaded");
    let line = format!(
        "curl -sS -f -o {} http://{address}:8000/file",
        target.display()
    );
    patiently(&mut *server, &pair.right, &line);
    assert!(
        fs::read(&target).unwrap() == bytes,
        "what was downloaded is not what was there"
    );
    assert!(
        !pair.left.listens(8000).unwrap(),
        "the server listens on TCP"
    );
    server.kill().unwrap();
}

/// Python's own web server; with processes of its own for its clients, both ends get the variable for forks.
#[test]
fn curl_downloads_from_a_server_in_python() {
    let (pair, folder) = (with_sockets(9000), TempDir::new().unwrap());
    let bytes = make(&folder.path().join("file"), 3_000_001);
    let web = source("web.py");
    for (kind, port) in [("thread", 8001), ("fork", 8002)] {
        let address = pair.left.address();
        let variable = if kind == "fork" {
            "RDMAV_FORK_SAFE=1"
        } else {
            "RDMAV_FORK_SAFE=0"
        };
        let shown = folder.path().display();
        let line = format!("env {variable} /usr/bin/python3 {web} {address} {port} {shown} {kind}");
        let mut server = pair.left.start(&words(&line)).unwrap();
        for _ in 0..2 {
            let target = folder.path().join("downloaded");
            let url = format!("http://{address}:{port}/file");
            let line = format!("env {variable} curl -sS -f -o {} {url}", target.display());
            patiently(&mut *server, &pair.right, &line);
            assert!(
                fs::read(&target).unwrap() == bytes,
                "{kind}: what was downloaded is not what was there"
            );
        }
        server.kill().unwrap();
    }
    let segments = tcp_segments(&pair.left);
    assert!(segments < 200, "{segments} segments went over TCP");
}

/// Twenty connections at once in one process, at both ends.
#[test]
fn programs_that_wait_with_epoll_get_every_byte() {
    let (pair, echo) = (with_sockets(1500), source("echo.py"));
    for address in [pair.left.address(), pair.left.address_v6()] {
        let line = format!("/usr/bin/python3 {echo} {address} 8003");
        let mut server = pair.left.start(&words(&line)).unwrap();
        let said = patiently(&mut *server, &pair.right, &format!("{line} 20 300000"));
        assert!(said.contains("20 clients had 300000 bytes back"), "{said}");
        server.kill().unwrap();
    }
    // A client that starts before the server listens tries TCP as well; twelve million bytes would be
    // thousands.
    let segments = tcp_segments(&pair.left);
    assert!(segments < 200, "{segments} segments went over TCP");
}

/// An idle connection is kept alive with the message that rdma-core has for it: an immediate without data.
#[test]
fn an_idle_connection_is_kept_alive() {
    const KEEP_ALIVE: &str = "e0000001";
    let (pair, echo, idle) = (with_sockets(1500), source("echo.py"), source("idle.py"));
    let address = pair.left.address();
    let mut server = pair
        .left
        .start(&words(&format!("/usr/bin/python3 {echo} {address} 8004")))
        .unwrap();
    let mut seen = watch(
        &pair.left,
        "udp dst port 4791 and inbound",
        &["infiniband.immdt"],
    )
    .unwrap();
    let line = format!("/usr/bin/python3 {idle} {address} 8004");
    // A client that starts before the server listens is refused, and ends.
    let connected = until(SECONDS, || {
        let mut client = pair.right.start(&words(&line))?;
        if !until(ATTEMPT_SECONDS, || {
            Ok(client.output()?.contains("silent") || client.finished()?.is_some())
        })? {
            return Ok(false);
        }
        if !client.output()?.starts_with("silent") {
            return Ok(false);
        }
        let kept = || Ok(seen.output()?.matches(KEEP_ALIVE).count() >= 3);
        assert!(until(SECONDS, kept)?, "{}", seen.output()?);
        client.kill()?;
        Ok(true)
    });
    assert!(connected.unwrap(), "{}", server.output().unwrap());
    seen.kill().unwrap();
    server.kill().unwrap();
}

/// rdma-core's rsockets over the kernel's device, in a guest, as the client and as the server: streams both
/// ways with every byte checked, and memory that is mapped. (Its datagrams do not get that far over RoCE:
/// `rconnect` fails by itself.)
#[test]
fn rdma_cores_rsockets_over_the_kernels_device_are_peers() {
    let segment = Segment::new(1500).unwrap();
    let ours = segment.namespace(1).unwrap().with(&Rockery::built());
    let programs = ["/usr/bin/rstream", "/usr/bin/riostream"].map(Path::new);
    let theirs = segment.guest(11, &programs).unwrap();
    segment.introduce(&ours, &theirs).unwrap();
    let ends: [[&dyn Machine; 2]; 2] = [[&ours, &theirs], [&theirs, &ours]];
    for [server, client] in ends {
        for program in [
            "rstream -T v -T b -S 5000 -C 20 -I 3",
            "riostream -T v -T b -S 5000 -C 10 -I 2",
        ] {
            let (one, other) = exchange(
                server,
                client,
                server.address(),
                &format!("/usr/bin/{program}"),
            );
            for said in [one, other] {
                assert!(
                    said.contains("Gb/sec") && !said.contains("failed"),
                    "{program}:\n{said}"
                );
            }
        }
    }
}
