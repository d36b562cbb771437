//! 64-bit ARM: unmodified programs of Debian for that processor, in an emulated machine, over rockery's
//! libraries as packages have them. The emulator keeps this machine's order of memory accesses, so what a
//! weaker order could do wrong is not tested here, but by the models of `link` and by review.

use programs::{
    Arm, ArmWithRockery, Exchange, Guest, Machine, Namespace, Rockery, Segment, perftest,
};

/// Emulated processors are slow: enough messages to go through every kind of packet, and not more.
const FEW: &str = "-n 50";
const SECONDS: u64 = 120;

/// A namespace with the device of rockery, and a guest of 64-bit ARM with the kernel's, which reach each
/// other. The values are dropped in this order. `ROCKERY_TEST_ARM` names another distribution.
fn this_processor_and_arm() -> (Namespace, Guest, (Segment, Arm)) {
    let distribution = std::env::var("ROCKERY_TEST_ARM").unwrap_or("debian-13-arm64".to_owned());
    let arm = Arm::new(&distribution).expect("a distribution for 64-bit ARM, and libraries");
    let segment = Segment::new(1500).expect("a segment");
    let ours = segment.namespace(1).expect("a namespace");
    let ours = ours.with(&Rockery::built());
    let theirs = segment.arm_guest(11, &arm).expect("a guest");
    segment
        .introduce(&ours, &theirs)
        .expect("they hear each other");
    let machine = theirs.shell("uname -m").expect("a guest").output;
    assert_eq!(machine.trim(), "aarch64");
    (ours, theirs, (segment, arm))
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

#[test]
fn programs_on_arm_and_on_this_processor_exchange_messages() {
    let (ours, theirs, _place) = this_processor_and_arm();
    let theirs = ArmWithRockery::new(theirs).expect("a guest without the kernel's device");
    every_operation(&ours, &theirs);
    every_operation(&theirs, &ours);
    // Both ends check every byte.
    let pingpong = [
        "ibv_rc_pingpong",
        "-c",
        "-g",
        "1",
        "-n",
        "50",
        "-s",
        "65536",
    ];
    Exchange::run(&theirs, &ours, &pingpong, "-g", 18515, SECONDS)
        .expect("machines that run programs")
        .expect_success();
}

/// Two programs on one machine use its shared memory, and its kernel's copies between processes.
#[test]
fn programs_on_one_arm_machine_exchange_messages() {
    let (_ours, theirs, _place) = this_processor_and_arm();
    let theirs = ArmWithRockery::new(theirs).expect("a guest without the kernel's device");
    every_operation(&theirs, &theirs);
    for size in ["1", "4096", "1048576"] {
        let pingpong = ["ibv_rc_pingpong", "-c", "-g", "1", "-n", "50", "-s", size];
        Exchange::run(&theirs, &theirs, &pingpong, "-g", 18515, SECONDS)
            .expect("a machine that runs programs")
            .expect_success();
    }
}

#[test]
fn the_kernels_device_on_arm_exchanges_messages_with_rockery() {
    let (ours, theirs, _place) = this_processor_and_arm();
    every_operation(&ours, &theirs);
    every_operation(&theirs, &ours);
    // The agent of a program runs without the port when the error is written, and the user of the kernel's
    // socket is root.
    let ours_there = [
        "env",
        "LD_LIBRARY_PATH=/rockery",
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
