//! 64-bit ARM: unmodified programs of Debian for that processor, in an emulated machine, over rockery as its
//! tarball has it. The emulator keeps this machine's order of memory accesses, so what a weaker order could
//! do wrong is not tested here, but by the models of `link` and by review.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use programs::{
    Arm, ArmWithRockery, Exchange, Guest, Machine, Namespace, Rockery, Segment, TempDir,
    connection, dissector, perftest,
};

/// Emulated processors are slow: enough messages to go through every kind of packet, and not more.
const FEW: &str = "-n 50";
const SECONDS: u64 = 240;
/// All of rdma-core's cases take twenty times as long as on this processor.
const CASES_SECONDS: u64 = 1800;
/// The cases that pass on x86-64.
const OF_X86: &str = include_str!("../../../../device/verbs/tests/pyverbs/expected.txt");
/// The opcode of acknowledgements, as the dissector prints it before the sequence number.
const ACKNOWLEDGEMENT: &str = "17 ";
/// Each end's options of the ping-pongs that check every byte.
const PINGPONG: [&str; 6] = ["ibv_rc_pingpong", "-c", "-g", "1", "-n", "50"];

/// One machine is booted for all, since that takes the most of the time. `ROCKERY_TEST_ARM` names another
/// distribution than Debian 13.
#[test]
fn programs_of_debian_for_arm_exchange_messages() {
    let distribution = std::env::var("ROCKERY_TEST_ARM").unwrap_or("debian-13-arm64".to_owned());
    let arm = Arm::new(&distribution).expect("a distribution for 64-bit ARM, and packages");
    let segment = Segment::new(1500).expect("a segment");
    let ours = segment.namespace(1).expect("a namespace");
    let ours = ours.with(&Rockery::built());
    let theirs = segment.arm_guest(11, &arm).expect("a guest");
    segment
        .introduce(&ours, &theirs)
        .expect("they hear each other");
    let machine = theirs.shell("uname -m").expect("a guest").output;
    assert_eq!(machine.trim(), "aarch64");
    let theirs = ArmWithRockery::new(theirs).expect("a guest without the kernel's device");
    with_this_processor(&ours, &theirs);
    on_one_machine(&theirs);
    let theirs = theirs.with_the_kernels_device();
    with_the_kernels_device(&ours, &theirs.expect("a guest with the kernel's device"));
}

/// Each operation from one machine to the other, with the number of messages that a program was asked for.
fn every_operation(server: &dyn Machine, client: &dyn Machine) {
    for program in [
        "ib_send_bw",
        "ib_write_bw",
        "ib_read_bw",
        "ib_atomic_bw",
        "ib_send_bw -c UD",
        "ib_write_bw -c UC -s 4096",
    ] {
        let rows = perftest::expect(server, client, &format!("{program} {FEW}"));
        assert_eq!(rows[0].iterations, 50, "{program}");
    }
}

/// The kernel's rxe on ARM, and rockery here.
fn with_the_kernels_device(ours: &Namespace, theirs: &Guest) {
    every_operation(ours, theirs);
    every_operation(theirs, ours);
    // The agent of a program runs without the port when the error is written, and the user of the kernel's
    // socket is root.
    let ours_there = [
        "env",
        "LD_LIBRARY_PATH=/rockery/lib/rockery",
        "ibv_devinfo",
        "-d",
        "rk_eth0",
    ];
    for _ in 0..2 {
        let said = theirs.run(&ours_there, SECONDS).expect("a guest").output;
        assert!(
            said.contains("is taken in this network namespace by a program of root (")
                && said.contains("or by the kernel's RoCE device"),
            "{said}"
        );
    }
}

/// Rockery on both, over UDP.
fn with_this_processor(ours: &Namespace, theirs: &ArmWithRockery) {
    every_operation(ours, theirs);
    every_operation(theirs, ours);
    let pingpong = [&PINGPONG[..], &["-s", "65536"]].concat();
    Exchange::run(theirs, ours, &pingpong, "-g", 18515, SECONDS)
        .expect("machines that run programs")
        .expect_success();
    rping(ours, theirs);
    rping(theirs, ours);
    captures_are_equal((ours, theirs), "client", theirs.guest());
    captures_are_equal((theirs, ours), "server", theirs.guest());
}

/// Two programs on one machine use its shared memory, and its kernel's copies between processes.
fn on_one_machine(theirs: &ArmWithRockery) {
    every_operation(theirs, theirs);
    for size in ["1", "4096", "1048576"] {
        let pingpong = [&PINGPONG[..], &["-s", size]].concat();
        Exchange::run(theirs, theirs, &pingpong, "-g", 18515, SECONDS)
            .expect("a machine that runs programs")
            .expect_success();
    }
    rping(theirs, theirs);
    let command = "/rockery/bin/rockery run -- ibv_devinfo -d rk_eth0";
    let said = theirs.guest().shell(command).expect("a guest").output;
    assert!(said.contains("PORT_ACTIVE"), "{said}");
    pyverbs(theirs);
}

/// Connections by RDMA-CM.
fn rping(server: &dyn Machine, client: &dyn Machine) {
    let address = server.address();
    let lines = [
        format!("rping -s -a {address} -C 5"),
        format!("rping -c -a {address} -C 5 -v"),
    ];
    let exchange = connection::expect((server, &lines[0]), (client, &lines[1]), SECONDS);
    let pings = exchange.client.output.matches("ping data").count();
    assert_eq!(pings, 5, "{}", exchange.client.output);
}

/// rdma-core's own tests through its Python binding: some of queue pairs' extended functions, whose places
/// in the structs differ from those of x86-64. `ROCKERY_TEST_ARM_CASES` names others by a part of their
/// names; each night all run. Those that pass on x86-64 have to pass, as far as this release of them has
/// these.
fn pyverbs(machine: &ArmWithRockery) {
    let named = std::env::var("ROCKERY_TEST_ARM_CASES");
    let cases = format!("CASES={}", named.as_deref().unwrap_or("test_qp_ex_rc_rdma"));
    let run = [
        "python3",
        "/rockery/run.py",
        "/usr/share/doc/rdma-core/tests",
    ];
    let argv = [
        &["env", &cases],
        &run[..],
        &["--dev", "rk_eth0", "--gid", "1"],
    ]
    .concat();
    let said = machine.run(&argv, CASES_SECONDS).expect("a guest");
    let said = said.expect_success().output;
    let results: BTreeMap<&str, &str> = said.lines().filter_map(result).collect();
    let of_x86: BTreeSet<&str> = OF_X86.lines().collect();
    let (ok, others): (Vec<_>, Vec<_>) = results
        .iter()
        .filter(|(case, _)| of_x86.contains(*case))
        .partition(|(_, word)| **word == "ok");
    assert!(others.is_empty(), "{others:#?}\n{said}");
    println!("{} cases pass", ok.len());
    assert!(ok.len() >= 5, "{said}");
}

/// A case and how it ended, in a line of `run.py`.
fn result(line: &str) -> Option<(&str, &str)> {
    let (word, rest) = line.split_once(' ')?;
    let is_result = ["ok", "skipped", "error", "failure"].contains(&word);
    is_result.then(|| (rest.split(' ').next().unwrap_or(rest), word))
}

/// A packet as an end has captured it: its opcode and sequence number, and all of its bytes.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Captured {
    key: String,
    bytes: String,
}

/// What one end captures as received is what the other captures as sent, byte for byte, and every message
/// that is sent comes, though not each time that it is sent: after a time in which the emulator stood still
/// it is sent again. An acknowledgement may come when its receiver has ended.
fn captures_are_equal(ends: (&dyn Machine, &dyn Machine), end_of_arm: &str, guest: &Guest) {
    let folder = TempDir::new().expect("a temporary folder");
    // The same path on both machines.
    let path = folder.path().display();
    let made = guest.shell(&format!("mkdir -p {path}")).expect("a guest");
    made.expect_success();
    let capture = format!("ROCKERY_PCAP={path}/{{end}}.pcapng");
    let mut argv = vec!["env", &capture, "ibv_rc_pingpong", "-g", "1"];
    argv.extend(["-n", "10", "-s", "3000"]);
    Exchange::run(ends.0, ends.1, &argv, "-g", 18515, SECONDS)
        .expect("machines that run programs")
        .expect_success();
    let file = |end: &str| folder.path().join(format!("{end}.pcapng"));
    fetch(guest, &file(end_of_arm));
    let packets = |end: &str, direction: u32| -> BTreeSet<Captured> {
        let filter = format!("infiniband && frame.packet_flags_direction == {direction}");
        let fields = [
            "infiniband.bth.opcode",
            "infiniband.bth.psn",
            "ip.src",
            "ip.dst",
            "udp.payload",
        ];
        let lines = dissector::fields(&file(end), &filter, &fields);
        let packet = |line: String| {
            let parts: Vec<&str> = line.split('\t').collect();
            Captured {
                key: parts[..2].join(" "),
                bytes: parts[2..].join(" "),
            }
        };
        lines.into_iter().map(packet).collect()
    };
    let messages = |packets: &BTreeSet<Captured>| -> BTreeSet<String> {
        let keys = packets.iter().map(|packet| packet.key.clone());
        keys.filter(|key| !key.starts_with(ACKNOWLEDGEMENT))
            .collect()
    };
    for (from, to) in [("server", "client"), ("client", "server")] {
        let (sent, received) = (packets(from, 2), packets(to, 1));
        // Three packets for each message of 3,000 bytes.
        assert_eq!(messages(&sent).len(), 10 * 3, "{from}: {sent:?}");
        let changed: Vec<&Captured> = received.difference(&sent).collect();
        assert!(changed.is_empty(), "from {from} to {to}: {changed:?}");
        assert_eq!(messages(&sent), messages(&received), "from {from} to {to}");
    }
}

/// Copies a file of a guest to the same path on this machine.
fn fetch(guest: &Guest, file: &Path) {
    let text = guest.shell(&format!("base64 {}", file.display()));
    let text = text.expect("a guest").expect_success().output;
    let encoded = file.with_extension("base64");
    fs::write(&encoded, text).expect("our own folder");
    let decode = "base64 -d \"$1\" >\"$2\"";
    let status = Command::new("sh")
        .args(["-c", decode, "sh"])
        .args([&encoded, file])
        .status();
    assert!(status.is_ok_and(|it| it.success()), "{}", file.display());
}
