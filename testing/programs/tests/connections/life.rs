//! Connections that are opened and closed, and ends that are killed: the events at the other end, and leaks.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Pair, Rockery};

const SECONDS: u64 = 60;

fn compile(name: &str) -> Probe {
    Probe::compile_with("cc", name, &["-lrdmacm", "-libverbs"]).expect("a probe")
}

fn start<'a>(machine: &'a Namespace, line: &str) -> Box<dyn Job + 'a> {
    machine
        .start(&line.split(' ').collect::<Vec<_>>())
        .expect("it starts")
}

/// A server keeps the communication IDs of closed connections in time-wait; a new program has other ones.
#[test]
fn a_new_program_is_not_refused_for_connections_of_an_earlier_one() {
    let (pair, probe) = (Pair::with_rockery(1500), compile("setup"));
    let path = probe.path().to_string_lossy();
    let mut server = pair.left.start(&[&path, "listen", "10.88.0.1"]).unwrap();
    assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
    for count in ["1000", "1", "1500", "1", "1", "1000"] {
        pair.right
            .run(&[&path, "connect", "10.88.0.1", count], SECONDS)
            .unwrap()
            .expect_success();
    }
    server.kill().unwrap();
}

/// A process that is killed, and the event at the other end: the process at each end, the state that it
/// reaches, and which end is killed.
struct Death {
    space: &'static str,
    serve: &'static str,
    ask: &'static str,
    server_dies: bool,
    heard: &'static str,
}

const fn death(
    space: &'static str,
    serve: &'static str,
    ask: &'static str,
    server_dies: bool,
    heard: &'static str,
) -> Death {
    Death {
        space,
        serve,
        ask,
        server_dies,
        heard,
    }
}

const DEATHS: [Death; 15] = [
    // The REQ was sent, and waits at the listener, or at the program.
    death("tcp", "listen", "connect", true, "REJECTED 28"),
    death("tcp", "listen", "connect", false, "nothing waits"),
    death("tcp", "request", "connect", true, "REJECTED 28"),
    // Nothing is reported of a request that the program has not accepted: accepting it fails.
    death("tcp", "request", "connect", false, "CONNECT_REQUEST 0"),
    // The REP was sent, and the RTU was not.
    death("tcp", "accept", "reply", true, "REJECTED 28"),
    death("tcp", "accept", "reply", false, "REJECTED 28"),
    death("tcp", "established", "established", true, "DISCONNECTED 0"),
    death("tcp", "established", "established", false, "DISCONNECTED 0"),
    // The DREQ was sent, and the program at the other end has not answered.
    death("tcp", "established", "part", true, "DISCONNECTED 0"),
    death("tcp", "part", "established", false, "DISCONNECTED 0"),
    // Time-wait: the survivor's goes on to its end.
    death("tcp", "established answer", "part", true, "TIMEWAIT_EXIT 0"),
    death(
        "tcp",
        "established answer",
        "part",
        false,
        "TIMEWAIT_EXIT 0",
    ),
    // The SIDR_REQ was sent.
    death("udp", "listen", "connect", true, "UNREACHABLE 2"),
    death("udp", "request", "connect", true, "UNREACHABLE 2"),
    // Datagrams have no connection: no process gets an event.
    death("udp", "request", "connect", false, "CONNECT_REQUEST 0"),
];

#[test]
fn the_surviving_end_gets_an_event_in_every_connection_state() {
    let (pair, probe) = (Pair::with_rockery(1500), compile("connection_stages"));
    let path = probe.path().to_string_lossy();
    for Death {
        space,
        serve,
        ask,
        server_dies,
        heard,
    } in DEATHS
    {
        let line = |role: &str, stage: &str| format!("{path} {role} 10.88.0.1 {space} {stage}");
        let (serve, ask) = (line("serve", serve), line("ask", ask));
        let mut server = start(&pair.left, &serve);
        assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
        let mut client = start(&pair.right, &ask);
        server.expect_output("there\n", SECONDS);
        client.expect_output("there\n", SECONDS);
        if serve.ends_with("answer") {
            client.expect_output("DISCONNECTED 0\n", SECONDS);
        }
        let (dies, lives) = if server_dies {
            (&mut server, &mut client)
        } else {
            (&mut client, &mut server)
        };
        dies.kill().unwrap();
        let in_time = until(SECONDS, || Ok(lives.output()?.contains(heard))).unwrap();
        assert!(
            in_time,
            "{serve} / {ask}: {heard} is not in\n{}",
            lives.output().unwrap()
        );
        lives.kill().unwrap();
        assert!(until(SECONDS, || Ok(!pair.left.awaits_requests()?)).unwrap());
    }
}

/// The DREQ on behalf of a dead process is repeated until it is answered: here the network is down at first.
#[test]
fn the_dreq_of_a_dead_process_is_repeated_until_answered() {
    let (pair, probe) = (Pair::with_rockery(1500), compile("connection_stages"));
    let path = probe.path().to_string_lossy();
    let mut server = pair
        .left
        .start(&[&path, "serve", "10.88.0.1", "tcp", "established"])
        .unwrap();
    assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
    let mut client = pair
        .right
        .start(&[&path, "ask", "10.88.0.1", "tcp", "established"])
        .unwrap();
    server.expect_output("there\n", SECONDS);
    pair.right.call("ip link set eth0 down").unwrap();
    client.kill().unwrap();
    client.wait(SECONDS).unwrap();
    // The first DREQ is lost by now: the agent sends it as soon as the program's descriptors are closed.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!server.output().unwrap().contains("DISCONNECTED"));
    pair.right.call("ip link set eth0 up").unwrap();
    server.expect_output("DISCONNECTED 0\n", SECONDS);
    server.kill().unwrap();
}

/// The resources that `cm_churn` reports, each time: the numbers behind a word.
fn numbers(output: &str, word: &str) -> Vec<u64> {
    let lines = output
        .lines()
        .filter(|line| line.starts_with("none is open"));
    let behind = lines.filter_map(|line| Some(line.split_once(word)?.1));
    behind
        .filter_map(|rest| {
            rest.split_whitespace()
                .next()?
                .trim_end_matches(',')
                .parse()
                .ok()
        })
        .collect()
}

/// Connections at a time, and how often.
const AT_ONCE: usize = 10_000;
const ROUNDS: usize = 3;

/// Nothing that is counted grows from one round to the next. Memory does while there is more time-wait than
/// there was before, and not when connections have come at a steady rate for a while.
fn assert_no_leak(name: &str, output: &str) {
    for what in [
        ": descriptors ",
        " mappings ",
        "agent's descriptors ",
        " names ",
    ] {
        let [warm, .., last] = numbers(output, what)[..] else {
            panic!("{name}: {output}")
        };
        assert_eq!(warm, last, "{what} of {name}:\n{output}");
    }
    for what in [" KiB ", " its KiB "] {
        let memory = numbers(output, what);
        let (first, steady, last) = (memory[0], memory[ROUNDS + 1], memory[memory.len() - 1]);
        assert!(
            last <= first + first / 4 + 1024,
            "{what} of {name}:\n{output}"
        );
        assert!(last <= steady + 512, "{what} of {name}:\n{output}");
    }
}

/// Ten thousand at once, again and again, and then a thousand a second (`ROCKERY_TEST_CONNECTING=600` for
/// ten minutes).
#[test]
fn ten_thousand_connections_leak_nothing() {
    let seconds =
        std::env::var("ROCKERY_TEST_CONNECTING").map_or(5, |text| text.parse().expect("seconds"));
    let (pair, probe) = (Pair::with_rockery(1500), compile("cm_churn"));
    let path = probe.path().to_string_lossy();
    let mut server = start(&pair.left, &format!("{path} serve 10.88.0.1"));
    assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
    let line = format!("{path} ask 10.88.0.1 {AT_ONCE} {ROUNDS} 1000 {seconds}");
    let mut client = start(&pair.right, &line);
    client.expect_output(&format!("{AT_ONCE} are open\n"), SECONDS);
    let said = client
        .wait(seconds + 3 * SECONDS)
        .unwrap()
        .expect_success()
        .output;
    let all = || Ok(server.output()?.matches("none is open").count() > ROUNDS + 1);
    assert!(until(SECONDS, all).unwrap(), "{}", server.output().unwrap());
    assert_no_leak("the client", &said);
    assert_no_leak("the server", &server.output().unwrap());
    let mut listed = String::new();
    let none_is_left = until(SECONDS, || {
        listed = pair
            .left
            .call(&format!("{} devices --json", Rockery::built().word()))?;
        Ok(listed.contains("\"program\":\"cm_churn\"")
            && listed.contains("\"queue_pairs_total\":0"))
    });
    assert!(none_is_left.unwrap(), "{listed}");
    server.kill().unwrap();
}

#[test]
fn every_id_reports_the_removal_of_its_device() {
    let (pair, probe) = (Pair::with_rockery(1500), compile("removal"));
    let mut program = start(&pair.left, &format!("{} 10.88.0.1", probe.path().display()));
    program.expect_output("ready\n", SECONDS);
    pair.left.call("ip link delete eth0").unwrap();
    let said = program.wait(SECONDS).unwrap().expect_success().output;
    let told = "the active side is told\nthe passive side is told\nthe listener is told\n\
                an id that is only bound is told\na listener at any address goes on\n\
                the device says so itself\n\
                all is given back\n";
    assert!(said.ends_with(told), "{said}");
}

/// As with cards: what is connected stays so when a cable is out for a while.
#[test]
fn connections_survive_a_link_that_is_down() {
    let (pair, probe) = (Pair::with_rockery(1500), compile("connection_stages"));
    let path = probe.path().to_string_lossy();
    let mut server = start(
        &pair.left,
        &format!("{path} serve 10.88.0.1 tcp established"),
    );
    assert!(until(SECONDS, || pair.left.awaits_requests()).unwrap());
    let mut client = start(
        &pair.right,
        &format!("{path} ask 10.88.0.1 tcp established"),
    );
    server.expect_output("there\n", SECONDS);
    client.expect_output("there\n", SECONDS);
    pair.left.call("ip link set eth0 down").unwrap();
    assert!(
        until(SECONDS, || Ok(!pair
            .right
            .call("ip link show eth0")?
            .contains("state UP")))
        .unwrap()
    );
    // Programs are notified of links in the same way as this probe: give them a moment.
    std::thread::sleep(std::time::Duration::from_millis(500));
    pair.left.call("ip link set eth0 up").unwrap();
    let carried = || Ok(pair.right.call("ping -c 1 -W 1 10.88.0.1").is_ok());
    assert!(until(SECONDS, carried).unwrap());
    for job in [&mut server, &mut client] {
        let said = job.output().unwrap();
        assert!(
            !said.contains("DISCONNECTED") && !said.contains("REMOVAL"),
            "{said}"
        );
    }
    // And each is still notified of the other's end.
    client.kill().unwrap();
    server.expect_output("DISCONNECTED 0\n", SECONDS);
    server.kill().unwrap();
}

/// Hosts that are not there, and one where no program has opened a device.
#[test]
fn a_silent_peer_is_reported_as_unreachable() {
    let probe = Probe::compile_with(
        "cc",
        "unanswered",
        &["-D_GNU_SOURCE", "-lrdmacm", "-libverbs"],
    )
    .unwrap();
    let pair = Pair::with_rockery(1500);
    // No host has the second address; its neighbour entry keeps address resolution from finding that out.
    let neighbour = "ip neigh add 10.88.0.77 lladdr 02:00:00:00:00:77 dev eth0 nud permanent";
    pair.left.call(neighbour).unwrap();
    for address in ["10.88.0.2", "10.88.0.77"] {
        let line = format!(
            "env ROCKERY_CM_RESPONSE_TIMEOUT=13 {} {address}",
            probe.path().display()
        );
        let said = start(&pair.left, &line)
            .wait(SECONDS)
            .unwrap()
            .expect_success()
            .output;
        let expected = "connections: RDMA_CM_EVENT_UNREACHABLE -ETIMEDOUT\n\
                        datagrams: RDMA_CM_EVENT_UNREACHABLE -ETIMEDOUT\n\
                        a call that waits: -1 ETIMEDOUT\n";
        assert_eq!(said, expected, "{address}");
    }
}

/// Each process has connections of its own; a child of a fork leaves its parent's alone.
#[test]
fn a_forked_child_makes_its_own_connections() {
    let (pair, probe) = (
        Pair::with_rockery(1500),
        Probe::compile_with("cc", "fork", &FORK_OPTIONS).unwrap(),
    );
    let mut program = start(&pair.left, &format!("{} 10.88.0.1", probe.path().display()));
    let said = program.wait(SECONDS).unwrap().expect_success().output;
    let child = "the parent's connection, of a child: ENODEV\na child connected and parted\n";
    assert_eq!(said, child.repeat(3) + "the parent did, too\n");
}

const FORK_OPTIONS: [&str; 4] = ["-D_GNU_SOURCE", "-lrdmacm", "-libverbs", "-pthread"];

/// One queue pair 1 at each host, and eight servers and eight clients that use it at once.
#[test]
fn many_processes_share_queue_pair_1() {
    let pair = Pair::with_rockery(1500);
    let port = |number: usize| 7200 + number;
    let server = |number| {
        start(
            &pair.left,
            &format!("rping -s -a 10.88.0.1 -p {} -V -C 50", port(number)),
        )
    };
    let mut servers: Vec<_> = (0..8).map(server).collect();
    let rockery = Rockery::built();
    let listeners = || {
        pair.left
            .call(&format!("{} listeners", rockery.path().display()))
    };
    assert!(until(SECONDS, || Ok(listeners()?.lines().count() == 8)).unwrap());
    let client = |number| {
        start(
            &pair.right,
            &format!("rping -c -a 10.88.0.1 -p {} -V -C 50", port(number)),
        )
    };
    let mut clients: Vec<_> = (0..8).map(client).collect();
    for job in clients.iter_mut().chain(&mut servers) {
        job.wait(SECONDS).unwrap().expect_success();
    }
}
