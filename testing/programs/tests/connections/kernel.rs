//! Connections by RDMA-CM between Linux's rdma_cm in a guest and rockery, in both directions.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Guest, Machine, Namespace, Rockery, Segment, connection};

/// A guest under emulation on a busy machine takes its time.
const SECONDS: u64 = 120;

/// Runs a server and its client at both ends, once each way around. `@` in a line is the server's address.
fn both_directions(ours: &Namespace, theirs: &Guest, server: &str, client: &str, said: &str) {
    let ends: [(&dyn Machine, &dyn Machine); 2] = [(ours, theirs), (theirs, ours)];
    for (serving, asking) in ends {
        for address in [serving.address(), serving.address_v6()] {
            let line = |line: &str| line.replace('@', &address.to_string());
            let exchange =
                connection::expect((serving, &line(server)), (asking, &line(client)), SECONDS);
            for (end, what) in [(exchange.server, "server"), (exchange.client, "client")] {
                let name = serving.name();
                assert!(
                    end.output.contains(said),
                    "{what} of {name}: {}",
                    end.output
                );
            }
        }
    }
}

#[test]
fn rping_checks_every_byte_between_rockery_and_the_kernel() {
    for mtu in [1500, 9000] {
        let (ours, theirs, _segment) = Segment::rockery_and_kernel(mtu, &[]);
        both_directions(
            &ours,
            &theirs,
            "rping -s -a @ -V -C 20 -S 9000",
            "rping -c -a @ -V -C 20 -S 9000",
            "",
        );
    }
}

#[test]
fn ucmatose_connects_rockery_and_the_kernel() {
    let (ours, theirs, _segment) = Segment::rockery_and_kernel(1500, &[]);
    let (server, client) = (
        "ucmatose -b @ -c 4 -C 10 -S 3000",
        "ucmatose -s @ -c 4 -C 10 -S 3000",
    );
    both_directions(&ours, &theirs, server, client, "return status 0");
}

#[test]
fn udaddy_finds_datagram_services_of_rockery_and_the_kernel() {
    let (ours, theirs, _segment) = Segment::rockery_and_kernel(1500, &[]);
    let (server, client) = (
        "udaddy -b @ -c 4 -C 10 -S 500",
        "udaddy -s @ -c 4 -C 10 -S 500",
    );
    both_directions(&ours, &theirs, server, client, "return status 0");
}

#[test]
fn endpoints_of_rockery_and_the_kernel_connect() {
    let (ours, theirs, _segment) = Segment::rockery_and_kernel(1500, &[]);
    both_directions(
        &ours,
        &theirs,
        "rdma_server -s @",
        "rdma_client -s @",
        "end 0",
    );
}

/// The kernel keeps the communication IDs of closed connections, too, and refuses their reuse: programs
/// that come one after the other never do.
#[test]
fn the_kernel_does_not_refuse_a_new_program_for_connections_of_an_earlier_one() {
    let probe = Probe::compile_with("cc", "setup", &["-lrdmacm", "-libverbs"]).unwrap();
    let segment = Segment::new(1500).expect("a segment");
    let ours = segment
        .namespace(1)
        .expect("a namespace")
        .with(&Rockery::built());
    let theirs = segment.guest(11, &[probe.path()]).expect("a guest");
    segment
        .introduce(&ours, &theirs)
        .expect("they hear each other");
    let path = probe.path().to_string_lossy();
    let mut server = theirs.start(&[&path, "listen", "10.88.0.11"]).unwrap();
    assert!(until(SECONDS, || theirs.awaits_requests()).unwrap());
    for count in ["200", "1", "200", "200"] {
        ours.run(&[&path, "connect", "10.88.0.11", count], SECONDS)
            .unwrap()
            .expect_success();
    }
    server.kill().unwrap();
}

#[test]
fn the_kernel_is_rejected_at_once_where_no_program_listens() {
    let segment = Segment::new(1500).expect("a segment");
    let ours = segment
        .namespace(1)
        .expect("a namespace")
        .with(&Rockery::built());
    let theirs = segment.storage_guest(11).expect("a guest");
    segment
        .introduce(&ours, &theirs)
        .expect("they hear each other");
    theirs
        .shell("/sbin/modprobe nvme_rdma")
        .unwrap()
        .expect_success();
    // Without a process that has the port of RoCE the kernel's requests would get an ICMP error.
    let mut other = ours.start(&["rping", "-s", "-a", "10.88.0.1"]).unwrap();
    assert!(until(SECONDS, || ours.awaits_requests()).unwrap());
    let connect = "nvme connect -t rdma -a 10.88.0.1 -s 4420 -n nqn.2024-01.org.example:disk";
    let refused = theirs.shell(connect).unwrap();
    assert!(!refused.succeeded(), "{}", refused.output);
    let said = theirs.shell("dmesg").unwrap().output;
    assert!(
        said.contains("Connect rejected: status 8 (invalid service ID)"),
        "{said}"
    );
    let rping = theirs
        .run(&["rping", "-c", "-a", "10.88.0.1", "-p", "7"], SECONDS)
        .unwrap();
    assert!(
        rping.output.contains("RDMA_CM_EVENT_REJECTED, error 8"),
        "{}",
        rping.output
    );
    let udaddy = theirs
        .run(&["udaddy", "-s", "10.88.0.1", "-c", "1"], SECONDS)
        .unwrap();
    assert!(
        udaddy.output.contains("UNREACHABLE, error: 1"),
        "{}",
        udaddy.output
    );
    other.kill().unwrap();
}

/// Lines that differ with the kernel. rdma-core's library crashes where there is nothing.
const OTHER_WITH_THE_KERNEL: [(&str, &str); 6] = [
    // It takes the peer for one on the link of that address, and reports later that it finds none there.
    (
        "no route from an address of ours: -1 ENETUNREACH",
        "no route from an address of ours: 0",
    ),
    (
        "a port in use at any address: -1 EADDRINUSE",
        "a port in use at any address: -1 EADDRNOTAVAIL",
    ),
    ("one listens: 0", "one listens: -1 EADDRINUSE"),
    ("route without address: -1 EINVAL", ""),
    ("connect without route: -1 EINVAL", ""),
    ("accept without request: -1 EINVAL", ""),
];

/// The kernel's line in place of a line.
fn with_the_kernel(line: &'static str) -> &'static str {
    OTHER_WITH_THE_KERNEL
        .iter()
        .find(|(ours, _)| *ours == line)
        .map_or(line, |(_, theirs)| theirs)
}

/// Mistakes return the errors of the manual pages: the probe prints a line for each.
#[test]
fn mistakes_return_the_same_errors_over_the_kernels_device() {
    let probe = Probe::compile_with(
        "cc",
        "cm_errors",
        &["-D_GNU_SOURCE", "-lrdmacm", "-libverbs"],
    )
    .unwrap();
    let segment = Segment::new(1500).unwrap();
    let guest = segment.guest(11, &[probe.path()]).unwrap();
    let path = probe.path().to_string_lossy();
    let argv = [&path, "10.88.0.11", "192.0.2.1", "10.88.0.77", "careful"];
    let said = guest.run(&argv, SECONDS).unwrap().expect_success().output;
    let expected = include_str!("../../probe/cm_errors.expected")
        .lines()
        .map(with_the_kernel);
    let expected: Vec<&str> = expected.filter(|line| !line.is_empty()).collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

/// What `sources` prints on a machine with the addresses and neighbours that it needs.
fn sources(machine: &dyn Machine, probe: &Probe) -> String {
    let setup = include_str!("../../probe/sources.sh");
    for line in setup.lines().filter(|line| !line.starts_with('#')) {
        let ran = machine.run(&["sh", "-c", line], SECONDS).expect("it runs");
        ran.expect_success();
    }
    let path = probe.path().to_string_lossy();
    machine
        .run(&[&path], SECONDS)
        .expect("it runs")
        .expect_success()
        .output
}

/// Programs that ask for no source get the kernel's: its address, port and device, at the same step.
#[test]
fn sources_that_nobody_asks_for_are_those_of_the_kernel() {
    let libraries = ["-D_GNU_SOURCE", "-lrdmacm", "-libverbs"];
    let probe = Probe::compile_with("cc", "sources", &libraries).unwrap();
    let segment = Segment::new(1500).unwrap();
    let ours = segment.namespace(1).unwrap().with(&Rockery::built());
    let theirs = segment.guest(11, &[probe.path()]).unwrap();
    let (ours, theirs) = (sources(&ours, &probe), sources(&theirs, &probe));
    // The machines have different first addresses.
    let theirs = theirs.replace("10.88.0.11,", "10.88.0.1,");
    let differing: Vec<_> = ours
        .lines()
        .zip(theirs.lines())
        .filter(|(own, other)| own != other)
        .collect();
    assert_eq!(differing, [], "ours beside the kernel's");
    assert_eq!(
        ours.lines().count(),
        theirs.lines().count(),
        "{ours}\n{theirs}"
    );
}
