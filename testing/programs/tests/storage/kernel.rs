//! The Linux kernel with several paths to our storage: it discovers over every address, is notified of
//! changes, uses another path when the ANA state of one changes, and sees changed namespaces. And rockery
//! beside it in one guest, on the kernel's own block device.

use std::net::IpAddr;

use programs::machine::until;
use programs::namespace::Process;
use programs::probe::Probe;
use programs::storage::{HOST, HOST_ID, NQN};
use programs::{Machine, Rockery, StoragePlace};

const SECONDS: u64 = 60;

/// Where a host finds something, as a URI and the command line have it.
fn at(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

#[test]
fn discovery_lists_every_address_and_notifies_of_changes() {
    let place = StoragePlace::new();
    place.shell("/sbin/modprobe nvme_rdma");
    let addresses = [place.server.address(), place.server.address_v6()];
    let ports: Vec<String> = addresses
        .iter()
        .map(|it| format!("--listen {0}:4420 --rdma {0}:4420", at(*it)))
        .collect();
    let referrals = "--referral 192.0.2.7:8009 --referral [2001:db8::7]:8009";
    let _server = place.serve(&format!(
        "--memory 8M --subsystem {NQN} {} {referrals}",
        ports.join(" ")
    ));
    let more: Vec<String> = (0..10)
        .map(|number| format!("nqn.2024-01.org.example:more{number}"))
        .collect();
    for name in &more {
        place.tell(&format!("add-subsystem {name}"));
    }
    for address in addresses {
        for transport in ["tcp", "rdma"] {
            let to = format!("-t {transport} -a {address} -s 4420");
            expect_entries(&place, &to, &more);
            expect_a_disk_at(&place, &to);
        }
    }
    expect_notifications(&place, &more[0]);
}

/// The discovery service at an address lists each subsystem at each of four ports, two referrals, and itself.
fn expect_entries(place: &StoragePlace, to: &str, more: &[String]) {
    let found = place.nvme(&format!("discover {to}"));
    let entries = found.matches("Discovery Log Entry").count();
    assert_eq!(entries, 11 * 4 + 2 + 1, "{to}: {found}");
    assert_eq!(
        found.matches("discovery subsystem referral").count(),
        2,
        "{to}"
    );
    assert!(
        found.contains("192.0.2.7") && found.contains("2001:db8::7"),
        "{to}"
    );
    assert!(
        more.iter().all(|name| found.contains(name.as_str())),
        "{to}"
    );
}

/// The kernel reads what it wrote to the disk at an address.
fn expect_a_disk_at(place: &StoragePlace, to: &str) {
    place.nvme(&format!("connect {to} -n {NQN} --nr-io-queues 1"));
    place.wait_for_disk();
    place.shell("dd if=/dev/urandom of=/tmp/data bs=64k count=4 2>/dev/null");
    place.shell("dd if=/tmp/data of=/dev/nvme0n1 bs=64k oflag=direct 2>/dev/null");
    place.shell("dd if=/dev/nvme0n1 bs=64k count=4 iflag=direct 2>/dev/null | cmp - /tmp/data");
    place.nvme(&format!("disconnect -n {NQN}"));
}

/// A persistent connection is notified of each change, once it has read the log page of the one before.
fn expect_notifications(place: &StoragePlace, removed: &str) {
    let address = place.server.address();
    place.nvme(&format!("discover -t tcp -a {address} -s 4420 -p"));
    assert_eq!(
        place.shell("cat /sys/class/nvme/nvme0/cntrltype").trim(),
        "discovery"
    );
    place.shell("busybox uevent sh -c 'echo $NVME_AEN >>/tmp/aen' >/dev/null 2>&1 &");
    let changes = [
        "add-subsystem nqn.2024-01.org.example:late".to_owned(),
        format!("hosts {NQN} {HOST}"),
        format!("listen {address}:4421"),
        format!("remove-subsystem {removed}"),
    ];
    for (count, change) in (1..).zip(&changes) {
        place.tell(change);
        // Notice, discovery log page change, page 0x70.
        let told = || {
            let line = "grep -c 0x70f002 /tmp/aen";
            Ok(place.guest.shell(line)?.output.trim() == format!("{count}"))
        };
        let log = || place.shell("cat /tmp/aen; dmesg | tail");
        assert!(
            until(SECONDS, told).expect("the guest answers"),
            "{change}: {}",
            log()
        );
        // A host that reads the log page from its beginning gets a notification of the next change.
        place.nvme("get-log /dev/nvme0 --log-id=0x70 --log-len=1024 >/dev/null");
    }
    place.nvme(&format!("discover -t tcp -a {address} -s 4420 >/tmp/found"));
    let found = place.shell("cat /tmp/found");
    assert!(
        found.contains(":late")
            && found.contains("4421")
            && !found.contains(&format!("{removed}\n"))
    );
    assert!(
        !found.contains(&format!("{NQN}\n")),
        "this host may no longer use it"
    );
}

/// Two ports of one disk, by each of which the kernel has a path to it.
struct TwoPaths {
    _server: Process,
    place: StoragePlace,
}

impl TwoPaths {
    fn new() -> Self {
        let place = StoragePlace::new();
        let address = place.server.address();
        let disk = place.file("disk.img").display().to_string();
        let ports = format!("--listen {address}:4420 --listen {address}:4421");
        let _server = place.serve(&format!("{disk} --size 32M --subsystem {NQN} {ports}"));
        for port in [4420, 4421] {
            place.nvme(&format!(
                "connect -t tcp -a {address} -s {port} -n {NQN} -q {HOST} -I {HOST_ID} --nr-io-queues 1"
            ));
        }
        place.wait_for_disk();
        Self { _server, place }
    }

    /// Sets the ANA state of the namespace at a port, and waits until the kernel has it.
    #[track_caller]
    fn set(&self, port: usize, access: &str) {
        self.place.tell(&format!("access {NQN} {port} 1 {access}"));
        let file = format!(
            "/sys/class/nvme-subsystem/nvme-subsys0/nvme{0}/nvme0c{0}n1/ana_state",
            port - 1
        );
        self.place
            .wait_until_printed(&format!("cat {file}"), access);
    }
}

#[test]
fn the_kernel_uses_the_path_whose_ana_state_allows_it() {
    let paths = TwoPaths::new();
    let place = &paths.place;
    // Data written through one path are read through the other.
    paths.set(1, "inaccessible");
    place.shell("dd if=/dev/urandom of=/tmp/data bs=64k count=16 2>/dev/null");
    place.shell("timeout 60 dd if=/tmp/data of=/dev/nvme0n1 bs=64k oflag=direct 2>/dev/null");
    paths.set(1, "non-optimized");
    paths.set(2, "persistent-loss");
    place.shell(
        "timeout 60 dd if=/dev/nvme0n1 bs=64k count=16 iflag=direct 2>/dev/null | cmp - /tmp/data",
    );
    paths.set(1, "optimized");
    paths.set(2, "optimized");
    // Paths open and close under a load that checks what it reads.
    place.shell(
        "fio --name=v --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=8 --rw=randrw --bs=16k \
         --size=24M --io_size=24M --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 \
         >/tmp/fio 2>&1; echo $? >/tmp/fio.status &",
    );
    for _ in 0..2 {
        paths.set(1, "inaccessible");
        paths.set(1, "optimized");
        paths.set(2, "inaccessible");
        paths.set(2, "optimized");
    }
    // No path at all for a while: what was begun waits.
    paths.set(1, "change");
    paths.set(2, "inaccessible");
    paths.set(2, "optimized");
    paths.set(1, "optimized");
    // And one connection that ends.
    place.nvme("disconnect -d nvme1");
    expect_fio_without_errors(place);
}

/// The load in the background ends, has read what it wrote, and the kernel has reported no error.
fn expect_fio_without_errors(place: &StoragePlace) {
    let ended = || Ok(place.guest.shell("cat /tmp/fio.status")?.succeeded());
    assert!(
        until(120, ended).expect("the guest answers"),
        "fio ends: {}",
        place.shell("dmesg | tail")
    );
    assert_eq!(
        place.shell("cat /tmp/fio.status").trim(),
        "0",
        "{}",
        place.shell("tail -n 20 /tmp/fio; dmesg | tail")
    );
    assert_eq!(
        place.shell("dmesg | grep -ci 'i/o error' || true").trim(),
        "0"
    );
}

/// A server on a file that is filled with `fill`, on a port and with a control socket of its own.
fn serve_filled(place: &StoragePlace, fill: u8, port: u16, words: &str) -> Process {
    let (disk, control) = (
        place.file(&format!("{port}.img")),
        place.file(&format!("{port}.control")),
    );
    std::fs::write(&disk, vec![fill; 32 << 20]).expect("room");
    let (disk, control) = (disk.display(), control.display());
    let (rockery, address) = (
        Rockery::built().path().display().to_string(),
        place.server.address(),
    );
    let line = format!(
        "{rockery} serve nvme {disk} --listen {address}:{port} --control {control} {words}"
    );
    let server = place.server.start_line(&line);
    place
        .server
        .wait_for_listener(port, SECONDS)
        .expect("it listens");
    server
}

/// The kernel makes paths to one disk of namespaces with equal identifiers, and alternates between them.
#[test]
fn two_servers_are_two_disks_of_the_kernel_or_the_second_is_refused() {
    let place = StoragePlace::new();
    let connect = |port: u16| {
        let to = format!(
            "-t tcp -a {} -s {port} -q {HOST} -I {HOST_ID}",
            place.server.address()
        );
        place.nvme(&format!("connect-all {to}"));
    };
    // The letters of eight direct reads: one, or several that alternate.
    let letters = |disk: &str| {
        place
            .shell(&format!(
                "dd if={disk} bs=4k count=8 iflag=direct 2>/dev/null | tr -s ab"
            ))
            .trim()
            .to_owned()
    };
    let servers =
        [(b'a', 4420), (b'b', 4421)].map(|(fill, port)| serve_filled(&place, fill, port, ""));
    [4420, 4421].into_iter().for_each(connect);
    let disks = || {
        place
            .shell("ls /dev/nvme*n1 || true")
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(
        until(SECONDS, || Ok(disks().len() == 2)).expect("the guest answers"),
        "{:?}",
        disks()
    );
    let mut contents: Vec<_> = disks().iter().map(|it| letters(it)).collect();
    contents.sort();
    assert!(contents == ["a", "b"], "{}", place.nvme("list-subsys"));
    for disk in disks() {
        place.shell(&format!("mkfs.ext4 -q -F {disk} && fsck.ext4 -fn {disk}"));
    }
    place.nvme("disconnect-all");
    drop(servers);

    // With one name for both, the kernel does not take the second for a path to the disk of the first.
    let _servers = [(b'a', 4422), (b'b', 4423)]
        .map(|(fill, port)| serve_filled(&place, fill, port, &format!("--subsystem {NQN}")));
    [4422, 4423].into_iter().for_each(connect);
    let refused = || {
        Ok(place
            .guest
            .shell("dmesg | grep \"IDs don't match for shared namespace 1\"")?
            .succeeded())
    };
    assert!(
        until(SECONDS, refused).expect("the guest answers"),
        "{}",
        place.shell("dmesg | tail")
    );
    place.shell("for it in /sys/class/nvme-subsystem/*/iopolicy; do echo round-robin >$it; done");
    let [disk] = &disks()[..] else {
        panic!("{:?}", disks())
    };
    assert_eq!(letters(disk), "a", "{disk}");
}

/// The kernel's ioctls for persistent reservations, on a server without `--state`: the kernel requests
/// persistence with each registration, and sends 16 bytes with each command.
#[test]
fn the_kernels_reservation_ioctls_work_without_a_state_file() {
    let place = StoragePlace::new();
    place.bring(
        Probe::compile_with("cc", "reservation_ioctl", &[])
            .expect("a compiler")
            .path(),
    );
    let _server = place.serve_without_state(&format!("--memory 8M --subsystem {NQN}"));
    place.connect("--nr-io-queues 1");
    let call = |words: &str| {
        place
            .shell(&format!("/tmp/reservation_ioctl /dev/nvme0n1 {words}"))
            .trim()
            .to_owned()
    };
    let reports = |wanted: &[&str]| {
        let report = place.shell("nvme resv-report /dev/nvme0n1 --eds | tr -d ' '");
        assert!(
            wanted.iter().all(|it| report.contains(it)),
            "{wanted:?}: {report}"
        );
    };
    assert_eq!(call("register 0 5"), "0");
    reports(&["regctl:1", "rkey:5", "cntlid:ffff", "rtype:0", "ptpls:0"]);
    for kind in 1..=6 {
        assert_eq!(call(&format!("reserve 5 {kind}")), "0", "type {kind}");
        reports(&[&format!("rtype:{kind}"), "rcsts:1"]);
        place.shell("dd if=/dev/zero of=/dev/nvme0n1 bs=4k count=1 oflag=direct 2>/dev/null");
        assert_eq!(call(&format!("release 5 {kind}")), "0", "type {kind}");
        reports(&["rtype:0"]);
    }
    assert_eq!(call("register 5 6"), "0");
    reports(&["rkey:6"]);
    assert_ne!(call("reserve 5 1"), "0", "a key that was replaced");
    assert_eq!(call("reserve 6 1"), "0");
    for (action, kind) in [("preempt", 2), ("preempt-abort", 3)] {
        assert_eq!(call(&format!("{action} 6 {kind}")), "0", "{action}");
        reports(&["regctl:1", &format!("rtype:{kind}")]);
    }
    assert_eq!(call("clear 6 0"), "0");
    reports(&["regctl:0", "rtype:0"]);
    // A new key of 0 unregisters.
    assert_eq!(call("register 0 7"), "0");
    assert_eq!(call("register 7 0"), "0");
    reports(&["regctl:0"]);
    place.nvme(&format!("disconnect -n {NQN}"));
}

/// The flag of `open` that goes past the page cache, and Linux' name for a ring among open files.
const O_DIRECT: u32 = 0o40_000;
const RING: &str = "anon_inode:[io_uring]";

/// The open files of the server in the guest: names, flags, and the completions of each ring.
fn open_files(place: &StoragePlace) -> Vec<(String, u32, u32)> {
    let listed = place.shell(
        "p=/proc/$(pidof rockery); for fd in $p/fd/*; do f=$p/fdinfo/${fd##*/}; \
         echo $(readlink $fd) $(awk '/^flags:/ {print $2}' $f) $(awk '/^CqTail:/ {print $2}' $f); done",
    );
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, flags) = (
            words.next()?.to_owned(),
            u32::from_str_radix(words.next()?, 8).ok()?,
        );
        Some((
            name,
            flags,
            words.next().and_then(|it| it.parse().ok()).unwrap_or(0),
        ))
    };
    listed.lines().filter_map(line).collect()
}

/// The server in the guest, on a loop device: what the kernel writes through it is in the file below.
#[test]
fn a_block_device_is_served() {
    let place = StoragePlace::new();
    place.bring(Rockery::built().path());
    place.shell("/sbin/modprobe loop && truncate -s 32M /tmp/disk && losetup /dev/loop0 /tmp/disk");
    place.shell(&format!(
        "/tmp/rockery serve nvme /dev/loop0 /tmp/plain --size 32M --block-size 512 --subsystem {NQN} \
         --listen 127.0.0.1:4421 --control /tmp/control >/tmp/server 2>&1 &"
    ));
    place
        .guest
        .wait_for_listener(4421, SECONDS)
        .expect("it listens");
    place.nvme(&format!(
        "connect -t tcp -a 127.0.0.1 -s 4421 -n {NQN} --nr-io-queues 1"
    ));
    place.wait_for_disk();
    assert_eq!(place.shell("cat /sys/block/nvme0n1/size").trim(), "65536");
    place.shell("mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /mnt && mount /dev/nvme0n1 /mnt");
    place.shell(
        "dd if=/dev/urandom of=/mnt/file bs=1M count=4 2>/dev/null && md5sum </mnt/file >/tmp/sum",
    );
    place.shell("umount /mnt");
    // Past the page cache where the file system lets it, as block devices do and memory does not; by a ring.
    let open = open_files(&place);
    let is_direct = |name: &str| {
        let found = open.iter().find(|(file, ..)| file == name);
        found.map(|(_, flags, _)| flags & O_DIRECT != 0)
    };
    assert_eq!(
        (is_direct("/dev/loop0"), is_direct("/tmp/plain")),
        (Some(true), Some(false)),
        "{open:?}"
    );
    let carried = open
        .iter()
        .filter(|(name, ..)| name == RING)
        .map(|(.., tail)| tail)
        .sum::<u32>();
    assert!(carried > 100, "{open:?}");
    // A durable write reaches the device with a flush, and nothing else causes one.
    let flushes = || -> u64 {
        let stat = place.shell("cat /sys/block/loop0/stat");
        stat.split_whitespace()
            .nth(15)
            .and_then(|it| it.parse().ok())
            .expect("a count of flushes")
    };
    let mut before = flushes();
    let write = "write /dev/nvme0n1 -s 60000 -c 0 -z 512 -d /dev/zero";
    for (command, is_durable) in [(write, false), ("flush /dev/nvme0n1", true), (write, false)] {
        place.nvme(command);
        assert_eq!(flushes() > before, is_durable, "{command}");
        before = flushes();
    }
    place.nvme(&format!("{write} --force-unit-access"));
    assert!(flushes() > before, "a write with FUA");
    // Without a volatile write cache every write is durable.
    for (enabled, is_durable) in [(0, true), (1, false)] {
        place.nvme(&format!("set-feature /dev/nvme0 -f 6 -v {enabled}"));
        before = flushes();
        place.nvme(write);
        assert_eq!(flushes() > before, is_durable, "write cache {enabled}");
    }
    place.nvme(&format!("disconnect -n {NQN}"));
    // The device has it, without rockery.
    place.shell(
        "fsck.ext4 -fn /dev/loop0 && mount -o ro /dev/loop0 /mnt && md5sum </mnt/file | cmp - /tmp/sum",
    );
}
