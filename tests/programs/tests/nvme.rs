//! The Linux kernel and nvme-cli on rockery's storage: discovery, a file system, fio that checks every byte,
//! a
//! target that is killed and comes back, and what it says of itself beside what the kernel's own target says.

use std::collections::BTreeMap;

use programs::machine::until;
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
    let mut server = place.serve(&format!("{disk} --size 64M --subsystem {NQN}"));
    let address = place.server.address();
    let found = place.nvme(&format!("discover -t tcp -a {address} -s 4420"));
    assert!(found.contains(NQN) && found.contains("current discovery subsystem"), "{found}");

    place.connect("");
    place.shell("mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /mnt && mount /dev/nvme0n1 /mnt");
    place.shell("dd if=/dev/urandom of=/mnt/file bs=1M count=8 2>/dev/null && sync");
    let digest = place.shell("md5sum </mnt/file");

    // What was flushed is there when the server is killed and another takes its place.
    server.kill().unwrap();
    server.wait(SECONDS).unwrap();
    let mut server = place.serve("");
    place.shell("echo 3 >/proc/sys/vm/drop_caches");
    let again = || {
        let line = "timeout 5 md5sum </mnt/file";
        Ok(place.guest.shell(line)?.output == digest)
    };
    assert!(until(RECONNECT_SECONDS, again).unwrap(), "the host comes back: {}", place.shell("dmesg | tail"));
    place.shell("umount /mnt && fsck.ext4 -fn /dev/nvme0n1");

    place.shell(FIO);
    let errors = place.shell("dmesg | grep -ciE 'i/o error|timeout' || true");
    assert_eq!(errors.trim(), "0", "{}", place.shell("dmesg | grep -iE 'i/o error|timeout'"));
    place.nvme(&format!("disconnect -n {NQN}"));
    server.kill().unwrap();
}

#[test]
fn digests_protect_and_commands_do_what_nvme_cli_asks() {
    let place = StoragePlace::new();
    let _server = place.serve(&format!("--memory 64M --block-size 512 --subsystem {NQN}"));
    place.connect("--hdr-digest --data-digest --nr-io-queues 2 --queue-size 1024");
    assert_eq!(place.shell("cat /sys/class/nvme/nvme0/sqsize").trim(), "1023");
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

    // What changes at run time is seen at once, and a size is a size.
    place.tell(&format!("resize {NQN} 1 128M"));
    place.tell(&format!("add {NQN} --memory 8M"));
    let sees = || {
        Ok(place.guest.shell("[ -b /dev/nvme0n2 ] && cat /sys/block/nvme0n1/size")?.output.trim() == "262144")
    };
    assert!(until(SECONDS, sees).unwrap(), "{}", place.shell("ls /dev/nvme*; dmesg | tail"));
    place.tell(&format!("remove {NQN} 2"));
    let gone = || Ok(!place.guest.shell("[ -b /dev/nvme0n2 ]")?.succeeded());
    assert!(until(SECONDS, gone).unwrap(), "{}", place.shell("ls /dev/nvme*; dmesg | tail"));
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
    let _server = place.serve(&format!("{disk} --size 64M --block-size 512 --subsystem {NQN} {listen}"));
    let found = place.nvme(&format!("discover -t rdma -a {address} -s 4420"));
    assert!(found.contains("trtype:  rdma") && found.contains(NQN), "{found}");
    place.connect_over("rdma", "--nr-io-queues 1");
    place.shell("mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /mnt && mount /dev/nvme0n1 /mnt");
    place.shell("dd if=/dev/urandom of=/mnt/file bs=1M count=4 2>/dev/null && sync");
    place.shell("umount /mnt && fsck.ext4 -fn /dev/nvme0n1");
    place.shell(FIO);
    let errors = place.shell("dmesg | grep -ciE 'i/o error|timeout' || true");
    assert_eq!(errors.trim(), "0", "{}", place.shell("dmesg | grep -iE 'i/o error|timeout'"));
    place.nvme(&format!("disconnect -n {NQN}"));
}

/// Fields of `nvme id-ctrl` or `id-ns`, by name.
fn fields(output: &str) -> BTreeMap<String, String> {
    let parts = output.lines().filter_map(|line| line.split_once(':'));
    parts.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// What a target cannot but say differently: names and numbers of its own, the version that it follows, and
/// what it can do beyond nvmet (Copy, Verify, Abort, reservations, log pages, transfer sizes, formats). One
/// thing it cannot: `nwpc`, hosts do not set write protection.
const DIFFERENT: &[&str] = &[
    "sn",
    "mn",
    "fr",
    "rab",
    "mdts",
    "cntlid",
    "ver",
    "crdt1",
    "acl",
    "aerl",
    "frmw",
    "lpa",
    "elpe",
    "oncs",
    "fuses",
    "vwc",
    "awun",
    "awupf",
    "ocfs",
    "sgls",
    "mnan",
    "subnqn",
    "oacs",
    "wctemp",
    "cctemp",
    "nlbaf",
    "rescap",
    "dlfeat",
    "nvmcap",
    "nwpc",
    "npwg",
    "npwa",
    "nows",
    "mssrl",
    "mcl",
    "msrc",
    "nguid",
    "ps      0",
    "rwt",
    "active_power_workload",
    "nuse",
    "cntrltype",
    "lbaf  1",
    "ofcs",
];

#[test]
fn identify_differs_from_the_kernels_only_where_it_has_to() {
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
    let identify = |address: std::net::IpAddr, name: &str| {
        place.nvme(&format!("connect -t tcp -a {address} -s 4420 -n {name}"));
        let output = place.nvme("id-ctrl /dev/nvme0") + &place.nvme("id-ns /dev/nvme0 -n 1");
        place.nvme(&format!("disconnect -n {name}"));
        fields(&output)
    };
    let (ours, theirs) = (identify(ours, NQN), identify(own, "nqn.2024-01.org.example:theirs"));
    assert!(ours.len() > 90 && theirs.len() > 90, "{ours:?}");
    let differ = theirs.iter().filter(|(name, value)| ours.get(*name) != Some(value));
    let unexpected: Vec<_> = differ
        .filter(|(name, _)| !DIFFERENT.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: theirs {value}, ours {:?}", ours.get(name)))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}
