//! Features of `rockery` itself: captures that Wireshark reads, the list of devices, following the interface.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use programs::machine::until;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Pair, Rockery, dissector};
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// A line that starts a program with rockery and options of our own.
fn run(options: &str, program: &str) -> Vec<String> {
    let rockery = Rockery::built();
    let line = format!("{} run {options} -- {program}", rockery.path().display());
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs a perftest program at both ends, each with its options of rockery.
fn perftest(pair: &Pair, server_options: &str, client_options: &str, program: &str) {
    perftest_in(pair, server_options, client_options, "", program);
}

/// The same, with the client's environment as `env` takes it.
fn perftest_in(
    pair: &Pair,
    server_options: &str,
    client_options: &str,
    environment: &str,
    program: &str,
) {
    let words = run(server_options, program);
    let argv: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut server = pair.left.start_plain(&argv).expect("it starts");
    pair.left
        .wait_for_listener(18515, SECONDS)
        .expect("in time");
    let words = run(
        client_options,
        &format!("env {environment} {program} {}", pair.left.address()),
    );
    let argv: Vec<&str> = words.iter().map(String::as_str).collect();
    pair.right
        .start_plain(&argv)
        .expect("it starts")
        .wait(SECONDS)
        .expect("in time")
        .expect_success();
    server.wait(SECONDS).expect("in time").expect_success();
}

#[test]
fn both_ends_capture_the_same_packets_and_wireshark_finds_no_fault_in_them() {
    let folder = TempDir::new().unwrap();
    for (number, address) in ["-x 1", "-x 2"].iter().enumerate() {
        let file = |end: &str| folder.path().join(format!("{end}{number}.pcapng"));
        let (left, right) = (file("left"), file("right"));
        let option = |path: &Path| format!("--pcap {}", path.display());
        let pair = Pair::new(1500).unwrap();
        perftest(
            &pair,
            &option(&left),
            &option(&right),
            &format!("ib_read_bw -n 8 -s 10000 {address}"),
        );
        let packets = |path: &Path, direction: u32| {
            let filter = format!("infiniband && frame.packet_flags_direction == {direction}");
            dissector::fields(
                path,
                &filter,
                &[
                    "infiniband.bth.destqp",
                    "infiniband.bth.psn",
                    "infiniband.bth.opcode",
                ],
            )
        };
        let (asked, heard) = (packets(&right, 2), packets(&left, 1));
        assert_eq!(asked.len(), 8, "a request for each READ: {asked:?}");
        assert_eq!(asked, heard);
        assert_eq!(
            packets(&left, 2).len(),
            8 * 10,
            "ten packets of response for each READ"
        );
        assert_eq!(packets(&left, 2), packets(&right, 1));
        for path in [&left, &right] {
            let bad = dissector::fields(
                path,
                "_ws.malformed || _ws.expert.severity >= 0x600000",
                &["frame.number"],
            );
            assert_eq!(bad, Vec::<String>::new(), "{}", path.display());
        }
    }
}

#[test]
fn read_responses_are_equally_long_where_the_requester_takes_that() {
    let folder = TempDir::new().unwrap();
    for (number, (environment, positions)) in [
        ("", &["16"] as &[_]),
        ("ROCKERY_RESPONSE_ONLY=0", &["13", "14", "15"]),
    ]
    .iter()
    .enumerate()
    {
        let file = folder.path().join(format!("{number}.pcapng"));
        let pair = Pair::new(1500).unwrap();
        let option = format!("--pcap {}", file.display());
        perftest_in(&pair, "", &option, environment, "ib_read_bw -n 8 -s 10000");
        let mut opcodes = dissector::fields(
            &file,
            "infiniband.bth.opcode in {13 .. 16}",
            &["infiniband.bth.opcode"],
        );
        assert_eq!(opcodes.len(), 8 * 10, "{opcodes:?}");
        opcodes.sort();
        opcodes.dedup();
        assert_eq!(opcodes, *positions);
        let bad = dissector::fields(
            &file,
            "_ws.malformed || _ws.expert.severity >= 0x600000",
            &["frame.number"],
        );
        assert_eq!(bad, Vec::<String>::new());
    }
}

#[test]
fn queue_pairs_leave_from_ports_of_their_own() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ports.pcapng");
    let pair = Pair::new(1500).unwrap();
    let option = format!("--pcap {}", file.display());
    perftest(&pair, "", &option, "ib_send_bw -q 16 -n 10 -s 64");
    let sent = "infiniband && frame.packet_flags_direction == 2";
    let mut flows = dissector::fields(&file, sent, &["infiniband.bth.destqp", "udp.srcport"]);
    flows.sort();
    flows.dedup();
    assert_eq!(flows.len(), 16, "a queue pair has one port: {flows:?}");
    let mut ports: Vec<u16> = flows
        .iter()
        .map(|flow| flow.rsplit('\t').next().unwrap().parse().unwrap())
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert!(
        ports.len() >= 4 && ports.iter().all(|&port| port >= 0xc000),
        "{ports:?}"
    );
}

#[test]
fn programs_and_their_queue_pairs_are_listed() {
    let pair = Pair::with_rockery(1500);
    let rockery = Rockery::built();
    let listed = |options: &str| {
        let line = format!("{} devices {options}", rockery.path().display());
        pair.left.call(&line).unwrap()
    };
    assert!(
        listed("").contains("rk_eth0  interface eth0, MTU 1500, path MTU 1024"),
        "{}",
        listed("")
    );
    let mut server = pair
        .left
        .start(&["ib_write_bw", "-D", "30", "-q", "3"])
        .unwrap();
    pair.left.wait_for_listener(18515, SECONDS).unwrap();
    let address = pair.left.address().to_string();
    let mut client = pair
        .right
        .start(&["ib_write_bw", "-D", "30", "-q", "3", &address])
        .unwrap();
    let mut last = String::new();
    let shown = until(SECONDS, || {
        last = listed("--json");
        Ok(last.matches("\"state\":\"RTR\"").count() == 3)
    });
    assert!(shown.unwrap(), "{last}");
    assert!(
        last.contains("\"program\":\"ib_write_bw\"") && last.contains("\"transport\":\"RC\""),
        "{last}"
    );
    assert!(
        listed("").contains("ib_write_bw (process "),
        "{}",
        listed("")
    );
    client.kill().unwrap();
    server.kill().unwrap();
    let gone = until(SECONDS, || Ok(!listed("").contains("ib_write_bw")));
    assert!(gone.unwrap(), "{}", listed(""));
}

#[test]
fn one_device_can_be_chosen_by_name_interface_and_address() {
    let pair = Pair::new(1500).unwrap();
    let address = pair.left.address().to_string();
    for name in ["rk_eth0", "eth0", &address] {
        let words = run(&format!("--device {name}"), "ibv_devices");
        let argv: Vec<&str> = words.iter().map(String::as_str).collect();
        let listed = pair
            .left
            .start_plain(&argv)
            .unwrap()
            .wait(SECONDS)
            .unwrap()
            .expect_success()
            .output;
        assert!(
            listed.contains("rk_eth0") && !listed.contains("rk_lo"),
            "{listed}"
        );
    }
    for (options, says) in [
        (
            "--device eth7",
            "no device is called eth7, and no interface that is up has that address",
        ),
        ("--device 192.0.2.1", "there are: rk_eth0, rk_lo"),
        (
            "--pcap /nonexistent/file",
            "/nonexistent/file: No such file",
        ),
        ("--congestion fast", "possible values: window, dcqcn, off"),
    ] {
        let words = run(options, "ibv_devices");
        let argv: Vec<&str> = words.iter().map(String::as_str).collect();
        let refused = pair.left.start_plain(&argv).unwrap().wait(SECONDS).unwrap();
        assert!(
            !refused.succeeded() && refused.output.contains(says),
            "{options}: {}",
            refused.output
        );
    }
}

#[test]
fn out_of_order_receive_and_dcqcn_can_be_chosen() {
    let pair = Pair::new(9000).unwrap();
    for options in [
        "--out-of-order",
        "--congestion dcqcn",
        "--congestion off --out-of-order",
    ] {
        for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
            perftest(
                &pair,
                options,
                options,
                &format!("{program} -n 200 -s 65536"),
            );
        }
    }
}

/// The events that a watcher has printed.
fn watched(job: &mut dyn Job, wanted: &[&str]) {
    let mut last = String::new();
    let seen = until(SECONDS, || {
        last = job.output()?;
        let mut rest = last.as_str();
        Ok(wanted.iter().all(|event| match rest.find(event) {
            Some(at) => {
                rest = &rest[at + event.len()..];
                true
            }
            None => false,
        }))
    });
    assert!(
        seen.expect("its output"),
        "not in this order, {wanted:?}:\n{last}"
    );
}

#[test]
fn an_open_device_follows_its_interface() {
    let pair = Pair::with_rockery(1500);
    let change = |line: &str| pair.left.call(line).unwrap();
    let gids = |left: &Namespace| {
        left.run(&["ibv_devinfo", "-v", "-d", "rk_eth0"], SECONDS)
            .unwrap()
            .expect_success()
            .output
    };
    let mut watch = pair
        .left
        .start(&["stdbuf", "-oL", "ibv_asyncwatch", "-d", "rk_eth0"])
        .unwrap();
    watched(&mut *watch, &["async event FD"]);
    change("ip addr add 192.0.2.7/24 dev eth0");
    watched(&mut *watch, &["GID_CHANGE"]);
    assert!(gids(&pair.left).contains("::ffff:192.0.2.7"));
    change("ip addr del 192.0.2.7/24 dev eth0");
    watched(&mut *watch, &["GID_CHANGE", "GID_CHANGE"]);
    change("ip link set eth0 down");
    watched(&mut *watch, &["GID_CHANGE", "GID_CHANGE", "PORT_ERR"]);
    change("ip link set eth0 up");
    watched(&mut *watch, &["PORT_ERR", "PORT_ACTIVE"]);
}

#[test]
fn attaching_to_a_multicast_group_joins_it_on_the_interface() {
    let pair = Pair::with_rockery(1500);
    let groups = || pair.left.call("ip maddress show dev eth0").unwrap();
    let probe = Probe::compile("multicast_member").unwrap();
    let path = probe.path().to_string_lossy();
    let argv = [&*path, "rk_eth0", "2", "::ffff:239.7.7.7", "ff0e::4791"];
    let mut member = pair.left.start(&argv).unwrap();
    member.expect_output("attached", SECONDS);
    assert!(
        groups().contains("239.7.7.7") && groups().contains("ff0e::4791"),
        "{}",
        groups()
    );
    member.expect_output("detached", SECONDS);
    assert!(
        !groups().contains("239.7.7.7") && !groups().contains("ff0e::4791"),
        "{}",
        groups()
    );
    member.wait(SECONDS).unwrap().expect_success();
}

#[test]
fn packets_leave_one_by_one_without_segmentation_offload() {
    let pair = Pair::with_rockery(1500);
    let program = "env ROCKERY_SEGMENTATION=0 ib_write_bw -s 65536 -n 200";
    let words = run("", program);
    let argv: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut server = pair.left.start_plain(&argv).unwrap();
    pair.left.wait_for_listener(18515, SECONDS).unwrap();
    let words = run("", &format!("{program} {}", pair.left.address()));
    let argv: Vec<&str> = words.iter().map(String::as_str).collect();
    pair.right
        .start_plain(&argv)
        .unwrap()
        .wait(SECONDS)
        .unwrap()
        .expect_success();
    server.wait(SECONDS).unwrap().expect_success();
}

/// A set-user-ID program has more rights than the user who starts it, whose variables must not direct it.
/// The dynamic linker ignores `LD_LIBRARY_PATH` there as well, so the program knows where the library is.
#[test]
fn set_user_id_programs_ignore_the_environment() {
    let (prefix, _rockery) = Rockery::built().installed();
    let libraries = prefix.path().join("lib/rockery");
    let linked = format!("-Wl,-rpath,{}", libraries.display());
    let probe = Probe::compile_with("cc", "census", &["-libverbs", &linked]).unwrap();
    let path = probe.path().to_string_lossy();
    let says = |variables: &[String]| {
        // One for each program: the agent of a device, which outlives it, has the rights of its program.
        let alone = Namespace::alone().unwrap();
        let variables = variables.iter().map(String::as_str);
        let argv: Vec<&str> = std::iter::once("env")
            .chain(variables)
            .chain([&*path])
            .collect();
        let mut program = alone.start_plain(&argv).unwrap();
        program.wait(SECONDS).unwrap().expect_success().output
    };
    let none = ["ROCKERY_DEVICES=none".to_owned()];
    assert_eq!(says(&none), "no more rights, 0 devices, 0 received\n");

    // Files that only the program's owner can write, and variables that name them.
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name);
    let written = ["ROCKERY_RECORD", "ROCKERY_PCAP", "ROCKERY_LOG_FILE"];
    let mut variables: Vec<String> = written
        .map(|name| format!("{name}={}", file(name).display()))
        .into();
    variables.push("ROCKERY_LOG=trace".to_owned());
    let lengths = || written.map(|name| fs::metadata(file(name)).map_or(0, |it| it.len()));
    // A record exists before it is written to.
    fs::write(file("ROCKERY_RECORD"), "").unwrap();
    assert_eq!(says(&variables), "no more rights, 1 devices, 1 received\n");
    assert!(!lengths().contains(&0), "{written:?}: {:?}", lengths());

    for name in written {
        fs::write(file(name), "").unwrap();
    }
    let owner = Some(65534);
    for path in [probe.path(), folder.path()] {
        chown(path, owner, None).unwrap();
    }
    for name in written {
        chown(file(name), owner, None).unwrap();
    }
    fs::set_permissions(probe.path(), Permissions::from_mode(0o4755)).unwrap();
    variables.extend(none);
    assert_eq!(says(&variables), "more rights, 1 devices, 1 received\n");
    assert_eq!(lengths(), [0; 3], "{written:?}");
}
