//! The Linux kernel and nvme-cli on rockery's storage: discovery, a file system, fio that checks every byte,
//! a target that is killed and comes back, and its identify data beside those of the kernel's own target.

use std::collections::{BTreeMap, BTreeSet};

use programs::machine::until;
use programs::namespace::Process;
use programs::storage::NQN;
use programs::{Job, Machine, StoragePlace};

const SECONDS: u64 = 60;
/// Linux tries again ten seconds after a connection broke.
const RECONNECT_SECONDS: u64 = 90;

const FIO: &str = "fio --name=v --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=16 \
     --rw=randrw --bsrange=4k-128k --size=48M --io_size=16M --verify=crc32c --verify_fatal=1 --do_verify=1 \
     --output-format=terse --randseed=7";

#[test]
fn the_kernel_uses_a_disk_over_tcp_and_survives_a_restart() {
    let place = StoragePlace::new();
    let disk = place.file("disk.img").display().to_string();
    let server = place.serve(&format!("{disk} --size 64M --subsystem {NQN}"));
    let address = place.server.address();
    let found = place.nvme(&format!("discover -t tcp -a {address} -s 4420"));
    assert!(
        found.contains(NQN) && found.contains("current discovery subsystem"),
        "{found}"
    );
    place.connect("");
    let server = expect_flushed_data_after_a_kill(&place, server);
    let mut server = expect_protection_after_a_kill(&place, server);
    place.shell(FIO);
    expect_no_errors(&place);
    place.nvme(&format!("disconnect -n {NQN}"));
    server.kill().unwrap();
}

/// Kills the server, and starts another one with its state.
fn another_server(place: &StoragePlace, mut killed: Process) -> Process {
    killed.kill().expect("it is ours");
    killed.wait(SECONDS).expect("it ends");
    place.serve("")
}

/// Flushed data are there when the server is killed and another takes its place.
fn expect_flushed_data_after_a_kill(place: &StoragePlace, server: Process) -> Process {
    place.shell("mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /mnt && mount /dev/nvme0n1 /mnt");
    place.shell("dd if=/dev/urandom of=/mnt/file bs=1M count=8 2>/dev/null && sync");
    let digest = place.shell("md5sum </mnt/file");
    let server = another_server(place, server);
    place.shell("echo 3 >/proc/sys/vm/drop_caches");
    let again = || {
        let line = "timeout 5 md5sum </mnt/file";
        Ok(place.guest.shell(line)?.output == digest)
    };
    assert!(
        until(RECONNECT_SECONDS, again).expect("the guest answers"),
        "the host comes back: {}",
        place.shell("dmesg | tail")
    );
    place.shell("umount /mnt && fsck.ext4 -fn /dev/nvme0n1");
    server
}

/// A host has set a write protection; the next server keeps it.
fn expect_protection_after_a_kill(place: &StoragePlace, server: Process) -> Process {
    let expect_read_only =
        |state: &str| place.wait_until_printed("cat /sys/block/nvme0n1/ro", state);
    place.nvme("set-feature /dev/nvme0 -n 1 -f 0x84 -v 1");
    expect_read_only("1");
    let write = "nvme write /dev/nvme0n1 -s 0 -c 0 -z 4096 -d /dev/zero 2>&1 || true";
    assert!(place.shell(write).contains("Write Protected"));
    place.nvme(&format!("disconnect -n {NQN}"));
    let server = another_server(place, server);
    place.connect("");
    expect_read_only("1");
    place.nvme("set-feature /dev/nvme0 -n 1 -f 0x84 -v 0");
    expect_read_only("0");
    server
}

/// The kernel's log has neither errors nor timeouts of disks.
#[track_caller]
fn expect_no_errors(place: &StoragePlace) {
    let errors = place.shell("dmesg | grep -ciE 'i/o error|timeout' || true");
    assert_eq!(
        errors.trim(),
        "0",
        "{}",
        place.shell("dmesg | grep -iE 'i/o error|timeout'")
    );
}

#[test]
fn digests_protect_and_commands_do_what_nvme_cli_asks() {
    let place = StoragePlace::new();
    let _server = place.serve(&format!("--memory 64M --block-size 512 --subsystem {NQN}"));
    place.connect("--hdr-digest --data-digest --nr-io-queues 2 --queue-size 1024");
    assert_eq!(
        place.shell("cat /sys/class/nvme/nvme0/sqsize").trim(),
        "1023"
    );
    place.shell(FIO);
    for command in [
        "write-zeroes /dev/nvme0n1 -s 0 -c 15",
        "compare /dev/nvme0n1 -s 0 -c 0 -z 512 -d /dev/zero",
        "dsm /dev/nvme0n1 -d -s 0 -b 8",
        "verify /dev/nvme0n1 -s 0 -c 7",
        "copy /dev/nvme0n1 --sdlba=100 --blocks=7 --slbs=0",
        "flush /dev/nvme0n1",
        "resv-register /dev/nvme0n1 --nrkey=5",
        "resv-acquire /dev/nvme0n1 --crkey=5 --rtype=1",
        "resv-release /dev/nvme0n1 --crkey=5 --rtype=1",
        "smart-log /dev/nvme0",
        "error-log /dev/nvme0",
        "fw-log /dev/nvme0",
        "effects-log /dev/nvme0",
        "ana-log /dev/nvme0",
        "id-iocs /dev/nvme0",
        "list-ctrl /dev/nvme0",
    ] {
        let output = place.nvme(&format!("{command} 2>&1"));
        assert!(!output.contains("NVMe status"), "{command}: {output}");
    }

    // Changes at run time are seen at once, and a size is a size.
    place.tell(&format!("resize {NQN} 1 128M"));
    place.tell(&format!("add {NQN} --memory 8M"));
    let sees = || {
        Ok(place
            .guest
            .shell("[ -b /dev/nvme0n2 ] && cat /sys/block/nvme0n1/size")?
            .output
            .trim()
            == "262144")
    };
    assert!(
        until(SECONDS, sees).unwrap(),
        "{}",
        place.shell("ls /dev/nvme*; dmesg | tail")
    );
    place.tell(&format!("remove {NQN} 2"));
    let gone = || Ok(!place.guest.shell("[ -b /dev/nvme0n2 ]")?.succeeded());
    assert!(
        until(SECONDS, gone).unwrap(),
        "{}",
        place.shell("ls /dev/nvme*; dmesg | tail")
    );
    assert!(place.tell("status").contains("\"keep-alive-ms\": 5000"));
    place.nvme(&format!("disconnect -n {NQN}"));
}

/// rxe at one end, rockery's device at the other: capsules, READs and WRITEs by key, SEND with invalidate.
#[test]
fn the_kernel_uses_a_disk_over_rdma() {
    let place = StoragePlace::new();
    place.shell("/sbin/modprobe nvme_rdma");
    let address = place.server.address();
    let disk = place.file("disk.img").display().to_string();
    // TCP has the port too: it is how the test sees that the server is there.
    let listen = format!("--listen {address}:4420 --rdma {address}:4420");
    let _server = place.serve(&format!(
        "{disk} --size 64M --block-size 512 --subsystem {NQN} {listen}"
    ));
    let found = place.nvme(&format!("discover -t rdma -a {address} -s 4420"));
    assert!(
        found.contains("trtype:  rdma") && found.contains(NQN),
        "{found}"
    );
    place.connect_over("rdma", "--nr-io-queues 1");
    place.shell("mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /mnt && mount /dev/nvme0n1 /mnt");
    place.shell("dd if=/dev/urandom of=/mnt/file bs=1M count=4 2>/dev/null && sync");
    place.shell("umount /mnt && fsck.ext4 -fn /dev/nvme0n1");
    place.shell(FIO);
    expect_no_errors(&place);
    place.nvme(&format!("disconnect -n {NQN}"));
}

/// The commands of nvme-cli to both targets.
const QUESTIONS: &[&str] = &[
    "id-ctrl",
    "id-ns -n 1",
    "list-ns",
    "ns-descs -n 1",
    "smart-log",
    "error-log",
    "fw-log",
    "ana-log",
    "changed-ns-list-log",
    "effects-log",
];

/// Every feature of the Base, NVM and Fabrics specifications.
const FEATURES: &str = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 \
     125 126 127 128 129 130 131 132";

/// Fields in which a target has to differ from nvmet, with the reason. Fields as `QUESTION field`.
const DIFFERENT: &[(&str, &[&str])] = &[
    (
        "names of its own",
        &[
            "id-ctrl sn",
            "id-ctrl mn",
            "id-ctrl fr",
            "id-ctrl subnqn",
            "ns-descs uuid",
        ],
    ),
    (
        "controllers are numbered from a random one, so that two targets of one name differ",
        &["id-ctrl cntlid"],
    ),
    (
        "names that nvmet gives only to those that it was told",
        &["id-ns nguid", "ns-descs nguid"],
    ),
    (
        "the version that it follows: 2.0",
        &["id-ctrl ver", "id-ctrl crdt1"],
    ),
    (
        "nvmet has no limit, and takes what memory there is",
        &["id-ctrl mdts"],
    ),
    (
        "as many errors as are kept, and no arbitration to advise on",
        &["id-ctrl elpe", "id-ctrl rab"],
    ),
    (
        "commands that nvmet does not have: Compare and Write, Verify, Copy, Flush of all namespaces",
        &[
            "id-ctrl oncs",
            "id-ctrl fuses",
            "id-ctrl vwc",
            "id-ctrl ocfs",
            "id-ctrl ofcs",
            "id-ns mssrl",
            "id-ns mcl",
            "id-ns msrc",
        ],
    ),
    (
        "reservations",
        &["id-ns rescap", "get-feature 130", "get-feature 131"],
    ),
    ("one more size of blocks", &["id-ns nlbaf", "id-ns lbaf  1"]),
    ("what is discarded reads as zeros", &["id-ns dlfeat"]),
    (
        "blocks are best written and discarded by pages",
        &["id-ns npwg", "id-ns npwa", "id-ns nows"],
    ),
    ("how large it is", &["id-ns nvmcap"]),
    (
        "the health of a machine in its room, not of one at absolute zero",
        &[
            "smart-log temperature",
            "smart-log available_spare",
            "id-ctrl wctemp",
            "id-ctrl cctemp",
            "id-ctrl ps      0",
        ],
    ),
    (
        "a slot with firmware: the version",
        &["fw-log afi", "fw-log frs1"],
    ),
    (
        "features that nvmet does not have",
        &[
            "get-feature 1",
            "get-feature 2",
            "get-feature 4",
            "get-feature 5",
            "get-feature 10",
            "get-feature 14",
            "get-feature 22",
            "get-feature 25",
        ],
    ),
    (
        "the queues that the host was granted, not the most that there can be",
        &["get-feature 7"],
    ),
];

/// Answers by question and name.
fn answers(place: &StoragePlace) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut keep = |question: &str, output: &str| {
        for line in output.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let name = format!(
                "{} {}",
                question.split(' ').next().unwrap_or_default(),
                name.trim()
            );
            // Why something that is not there is refused is each target's own affair.
            let is_refused = value.trim().starts_with("NVMe status");
            all.insert(
                name,
                if is_refused { "refused" } else { value.trim() }.to_owned(),
            );
        }
    };
    for question in QUESTIONS {
        let (command, options) = question.split_once(' ').unwrap_or((question, ""));
        keep(
            question,
            &place.shell(&format!("nvme {command} /dev/nvme0 {options} 2>&1 || true")),
        );
    }
    let line = format!(
        "for f in {FEATURES}; do echo $f: $(nvme get-feature /dev/nvme0 -n 1 -f $f 2>&1 | tr '\\n' ' '); done"
    );
    keep("get-feature", &place.shell(&line));
    all
}

#[test]
fn nvme_cli_output_differs_from_the_kernels_target_only_in_listed_fields() {
    let place = StoragePlace::new();
    let _server = place.serve(&format!("--memory 16M --block-size 512 --subsystem {NQN}"));
    let own = place.guest.address();
    place.shell(
        "/sbin/modprobe nvmet_tcp; /sbin/modprobe loop; \
         dd if=/dev/zero of=/tmp/disk bs=1M count=16 2>/dev/null; \
         losetup /dev/loop0 /tmp/disk; mount -t configfs config /sys/kernel/config; \
         s=/sys/kernel/config/nvmet/subsystems/nqn.2024-01.org.example:theirs; mkdir $s; \
         echo 1 >$s/attr_allow_any_host; mkdir $s/namespaces/1; \
         echo /dev/loop0 >$s/namespaces/1/device_path; echo 1 >$s/namespaces/1/enable",
    );
    place.shell(&format!(
        "p=/sys/kernel/config/nvmet/ports/1; mkdir $p; echo {own} >$p/addr_traddr; echo tcp >$p/addr_trtype; \
         echo 4420 >$p/addr_trsvcid; echo ipv4 >$p/addr_adrfam; \
         ln -s /sys/kernel/config/nvmet/subsystems/nqn.2024-01.org.example:theirs $p/subsystems/theirs"
    ));
    let ours = place.server.address();
    let ask = |address: std::net::IpAddr, name: &str| {
        place.nvme(&format!("connect -t tcp -a {address} -s 4420 -n {name}"));
        let answers = answers(&place);
        place.nvme(&format!("disconnect -n {name}"));
        answers
    };
    let (ours, theirs) = (ask(ours, NQN), ask(own, "nqn.2024-01.org.example:theirs"));
    assert!(ours.len() > 150 && theirs.len() > 150, "{ours:?}");
    let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let is_known = |name: &str| DIFFERENT.iter().any(|(_, names)| names.contains(&name));
    let unexpected: Vec<_> = names
        .iter()
        .filter(|name| ours.get(**name) != theirs.get(**name) && !is_known(name))
        .map(|name| {
            format!(
                "{name}: theirs {:?}, ours {:?}",
                theirs.get(*name),
                ours.get(*name)
            )
        })
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    // Every field in the list still differs.
    let listed = DIFFERENT.iter().flat_map(|(_, names)| names.iter());
    let settled: Vec<_> = listed
        .filter(|name| ours.get(**name) == theirs.get(**name))
        .collect();
    assert!(settled.is_empty(), "{settled:?}");
}
