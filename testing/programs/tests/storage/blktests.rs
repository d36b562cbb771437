//! The cases of blktests' nvme group on our target, under their numbers. blktests creates its targets with
//! nvmet in the same kernel; here the target is another process, which is configured through its control
//! socket in place of configfs. docs/design/test-methods.md lists the cases that are missing.

use std::fmt::Write as _;

use programs::machine::until;
use programs::namespace::Process;
use programs::storage::NQN;
use programs::{Job, Machine, StoragePlace, number};

const SECONDS: u64 = 120;
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Subsystems: blktests has a thousand, a target of ours at most as many.
const SUBSYSTEMS: usize = 256;
/// Namespaces: blktests has a thousand, for which a kernel under emulation takes minutes.
const NAMESPACES: u64 = 100;

/// Lines of shell on `nvme0`, whose namespace 1 is a file and 2 is memory, each of 32 MiB in blocks of 4096.
/// A line that fails is a case that fails.
const CASES: &[(&str, &str)] = &[
    (
        "004 namespaces have the UUIDs that they say",
        "d=/sys/block/nvme0n1; u=$(cat $d/uuid) && \
        [ uuid.$u = $(cat $d/wwid) ] && nvme ns-descs /dev/nvme0n1 | grep -q $u",
    ),
    (
        "005 a reset",
        "echo 1 >/sys/class/nvme/nvme0/reset_controller && $live && $look",
    ),
    (
        "008, 009 a file and memory are disks",
        "[ -b /dev/nvme0n1 ] && [ -b /dev/nvme0n2 ]",
    ),
    (
        "010 fio finds what it wrote, in memory",
        "$fio --filename=/dev/nvme0n2",
    ),
    (
        "011 fio finds what it wrote, in a file",
        "$fio --filename=/dev/nvme0n1",
    ),
    (
        "012 the same in a file system, in memory",
        "mkfs.ext4 -qF /dev/nvme0n2 && mount /dev/nvme0n2 /mnt && \
        $fio --directory=/mnt && umount /mnt && fsck.ext4 -fn /dev/nvme0n2",
    ),
    (
        "013 the same in a file system, in a file",
        "mkfs.ext4 -qF /dev/nvme0n1 && mount /dev/nvme0n1 /mnt && \
        $fio --directory=/mnt && umount /mnt && fsck.ext4 -fn /dev/nvme0n1",
    ),
    (
        "014 flush, in memory",
        "dd if=/dev/urandom of=/dev/nvme0n2 bs=64k count=64 && nvme flush /dev/nvme0n2",
    ),
    (
        "015 flush, in a file",
        "dd if=/dev/urandom of=/dev/nvme0n1 bs=64k count=64 && nvme flush /dev/nvme0n1",
    ),
    (
        "018 a read beyond the end is refused",
        "nvme read /dev/nvme0n1 -s 8192 -c 0 -z 4096 -d /tmp/x 2>&1 | \
        grep -qi 'LBA out of range'",
    ),
    (
        "019 discard, in memory",
        "nvme dsm /dev/nvme0n2 -d -s 0,10,20,30 -b 5,5,5,5",
    ),
    (
        "020 discard, in a file",
        "nvme dsm /dev/nvme0n1 -d -s 0,10,20,30 -b 5,5,5,5",
    ),
    ("021 list", "nvme list | grep -q nvme0n1"),
    (
        "022 reset of all",
        "for c in /sys/class/nvme/nvme*/reset_controller; do echo 1 >$c; done; $live && $look",
    ),
    (
        "023, 024 health",
        "nvme smart-log /dev/nvme0 -n 1 && nvme smart-log /dev/nvme0 -n 2",
    ),
    ("025 effects", "nvme effects-log /dev/nvme0"),
    (
        "026 descriptors of a namespace",
        "nvme ns-descs /dev/nvme0n1 && nvme ns-descs /dev/nvme0n2",
    ),
    ("027 a scan for namespaces", "nvme ns-rescan /dev/nvme0"),
    ("028 subsystems", "nvme list-subsys | grep -q nvme0"),
    (
        "029 reads and writes that programs make themselves",
        "for blocks in 1 2 17 128 256; do \
        dd if=/dev/urandom of=/tmp/a bs=4096 count=$blocks && \
        nvme write /dev/nvme0n1 -s 7 -c $((blocks-1)) -z $((blocks*4096)) -d /tmp/a && \
        nvme read /dev/nvme0n1 -s 7 -c $((blocks-1)) -z $((blocks*4096)) -d /tmp/b && \
        cmp /tmp/a /tmp/b || exit 1; done; rm /tmp/a /tmp/b",
    ),
    (
        "040 resets under load",
        "touch /tmp/go; (while [ -e /tmp/go ]; do \
        echo 1 >/sys/class/nvme/nvme0/reset_controller; sleep 1; done) & \
        $fio --filename=/dev/nvme0n1; s=$?; rm /tmp/go; wait; $live && [ $s = 0 ]",
    ),
    (
        "049 commands through io_uring",
        "fio --name=u --filename=/dev/ng0n1 --ioengine=io_uring_cmd \
        --cmd_type=nvme --rw=randwrite --bs=4k --size=2M --iodepth=8 --verify=crc32c --verify_fatal=1",
    ),
    (
        "053 scans under load",
        "touch /tmp/go; (while [ -e /tmp/go ]; do \
        echo 1 >/sys/class/nvme/nvme0/rescan_controller; sleep 0.1; done) & \
        $fio --filename=/dev/nvme0n1; s=$?; rm /tmp/go; wait; [ $s = 0 ]",
    ),
    (
        "054 reservations",
        "r() { nvme resv-report /dev/nvme0n1 --eds | tr -d ' '; }; \
        nvme resv-register /dev/nvme0n1 --nrkey=4 --rrega=0 && r | grep -q rkey:4 && \
        nvme resv-register /dev/nvme0n1 --crkey=4 --nrkey=5 --rrega=2 && r | grep -q rkey:5 && \
        nvme resv-register /dev/nvme0n1 --crkey=5 --rrega=1 && r | grep -q regctl:0 && \
        nvme resv-register /dev/nvme0n1 --nrkey=4 --rrega=0 && \
        nvme resv-acquire /dev/nvme0n1 --crkey=4 --rtype=1 --racqa=0 && r | grep -q rtype:1 && \
        nvme resv-acquire /dev/nvme0n1 --crkey=4 --prkey=4 --rtype=2 --racqa=1 && r | grep -q rtype:2 && \
        nvme resv-release /dev/nvme0n1 --crkey=4 --rtype=2 --rrela=0 && r | grep -q rtype:0 && \
        nvme resv-acquire /dev/nvme0n1 --crkey=4 --rtype=1 --racqa=0 && r | grep -q rtype:1 && \
        nvme resv-release /dev/nvme0n1 --crkey=4 --rrela=1 && r | grep -q regctl:0",
    ),
];

/// Definitions in the guest's shell that the lines above use. fio under emulation is slow, so it moves little
/// data.
const WORDS: &str = "live='until grep -q live /sys/class/nvme/nvme0/state; do sleep 0.1; done'; \
    look='dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct'; \
    fio='fio --name=v --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw --bsrange=4k-64k --size=8M \
    --io_size=2M --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0'";

/// Prints how long a step took.
fn timed<T>(name: &str, step: impl FnOnce() -> T) -> T {
    let began = std::time::Instant::now();
    let result = step();
    println!("{:6.1} s  {name}", began.elapsed().as_secs_f64());
    result
}

struct Target<'a> {
    place: &'a StoragePlace,
    transport: &'static str,
    address: String,
    server: Process,
}

impl<'a> Target<'a> {
    fn start(place: &'a StoragePlace, transport: &'static str) -> Self {
        let address = place.server.address().to_string();
        let disk = place.file("disk.img").display().to_string();
        let words = format!(
            "{disk} --size 32M --subsystem {NQN} --listen {address}:4420 --rdma {address}:4420"
        );
        let server = place.serve(&words);
        place.tell(&format!("add {NQN} --memory 32M --id 2"));
        place.shell(&format!("/sbin/modprobe nvme_{transport}; mkdir -p /mnt"));
        Self {
            place,
            transport,
            address,
            server,
        }
    }

    fn connect(&self, options: &str) {
        self.place.connect_over(self.transport, options);
        self.waits_for("[ -b /dev/nvme0n2 ]");
    }

    fn disconnect(&self) {
        self.place.nvme(&format!("disconnect -n {NQN}"));
    }

    fn discover(&self) -> String {
        self.place.nvme(&format!(
            "discover -t {} -a {} -s 4420",
            self.transport, self.address
        ))
    }

    /// Waits until a line of shell succeeds.
    #[track_caller]
    fn waits_for(&self, line: &str) {
        let happened = until(SECONDS, || Ok(self.place.guest.shell(line)?.succeeded()));
        assert!(
            happened.expect("the guest answers"),
            "{line}: {}",
            self.place.shell("dmesg | tail -n 20")
        );
    }

    /// Runs one case after the other; the message has all that failed.
    fn plays(&self, cases: &[(&str, &str)]) {
        let mut failed = String::new();
        for (name, line) in cases {
            // `eval`, so that the words may hold several.
            let run = |line: &str| line.replace("$live", "eval \"$live\"");
            let line = format!("{WORDS}; {}", run(line));
            let finished =
                timed(name, || self.place.guest.shell(&line)).expect("the guest answers");
            if !finished.succeeded() {
                _ = writeln!(
                    failed,
                    "{name}: status {:?}\n{}",
                    finished.status, finished.output
                );
            }
        }
        assert!(
            failed.is_empty(),
            "{failed}\n{}",
            self.place.shell("dmesg | tail -n 30")
        );
    }

    /// Namespaces and subsystems come and go, one after the other and at once.
    fn changes(&self) {
        // 030: the generation of the discovery log; 031, 038: subsystems that are gone again at once.
        let generation = |page: String| {
            page.lines()
                .find(|line| line.contains("Generation counter"))
                .map(str::to_owned)
        };
        let before = generation(self.discover());
        for round in 0..4 {
            let name = format!("nqn.2024-01.org.example:more{round}");
            self.place.tell(&format!("add-subsystem {name}"));
            self.place.tell(&format!("add {name} --memory 1M"));
            if round == 0 {
                assert!(
                    before.is_some() && generation(self.discover()) != before,
                    "030: {before:?}"
                );
            }
            let (transport, address) = (self.transport, &self.address);
            self.place.nvme(&format!(
                "connect -t {transport} -a {address} -s 4420 -n {name}"
            ));
            self.place.nvme(&format!("disconnect -n {name}"));
            self.place.tell(&format!("remove-subsystem {name}"));
        }
        // 052, 058: namespaces that come, go, and are others under the same number.
        for round in 1..4 {
            let size = round * 8;
            self.place
                .tell(&format!("add {NQN} --memory {size}M --id 3"));
            self.waits_for(&format!(
                "[ $(cat /sys/block/nvme0n3/size) = {} ]",
                size * 2048
            ));
            self.place.tell(&format!("remove {NQN} 3"));
            self.waits_for("[ ! -e /sys/block/nvme0n3 ]");
        }
        // 051: without waiting.
        for _ in 0..8 {
            self.place.tell(&format!("add {NQN} --memory 8M --id 3"));
            self.place.tell(&format!("remove {NQN} 3"));
        }
        // 055: a namespace that is gone while a program has it open.
        self.place.shell(
            "(exec 3<>/dev/nvme0n2; touch /tmp/open; until [ -e /tmp/gone ]; do sleep 0.1; done; \
            dd if=/dev/zero bs=4k count=1 oflag=direct >&3 2>&1; echo $? >/tmp/wrote) >/dev/null 2>&1 &",
        );
        self.waits_for("[ -e /tmp/open ]");
        self.place.tell(&format!("remove {NQN} 2"));
        self.waits_for("[ ! -e /sys/block/nvme0n2 ]");
        self.place.shell("touch /tmp/gone");
        self.waits_for("[ -s /tmp/wrote ] && [ $(cat /tmp/wrote) != 0 ]");
        self.place.tell(&format!("add {NQN} --memory 32M --id 2"));
        self.waits_for("[ -b /dev/nvme0n2 ]");
    }

    /// 057, 064: of two paths one after the other cannot be used, while fio writes; then neither.
    fn paths(&self) {
        let (transport, address) = (self.transport, &self.address);
        self.place.tell(&format!("listen {address}:4421"));
        self.place
            .nvme(&format!("connect -t tcp -a {address} -s 4421 -n {NQN}"));
        let argv = format!("{WORDS}; $fio --io_size=8M --filename=/dev/nvme0n1");
        let mut fio = self
            .place
            .guest
            .start(&["sh", "-c", &argv])
            .expect("it starts");
        let port = if transport == "tcp" { 1 } else { 2 };
        let way =
            |port: u32, state: &str| self.place.tell(&format!("access {NQN} {port} 1 {state}"));
        for _ in 0..3 {
            way(port, "inaccessible");
            way(port, "optimized");
            way(3, "inaccessible");
            way(3, "optimized");
        }
        fio.wait(SECONDS).expect("it ends").expect_success();
        for state in ["inaccessible", "optimized"] {
            way(port, state);
            way(3, state);
            self.place.nvme("nvm-id-ctrl /dev/nvme0");
        }
    }

    /// 060, 061: the target goes and comes back, while fio writes.
    fn restarts(&mut self) {
        let argv = format!("{WORDS}; $fio --io_size=8M --filename=/dev/nvme0n1");
        let mut fio = self
            .place
            .guest
            .start(&["sh", "-c", &argv])
            .expect("it starts");
        for _ in 0..2 {
            self.server.kill().expect("it is ours");
            self.server.wait(SECONDS).expect("it ends");
            let address = &self.address;
            self.server = self
                .place
                .serve(&format!("--listen {address}:4420 --rdma {address}:4420"));
        }
        fio.wait(SECONDS).expect("it ends").expect_success();
    }

    /// 002, 016, 017: many subsystems, and many namespaces.
    fn crowds(&self) {
        let namespaces = number("ROCKERY_TEST_NAMESPACES", NAMESPACES);
        let mut text = String::new();
        for number in 0..SUBSYSTEMS {
            _ = writeln!(
                text,
                "[[subsystem]]\nnqn = \"nqn.2024-01.org.example:crowd{number}\""
            );
            if number == 0 {
                for id in 1..=namespaces {
                    _ = writeln!(
                        text,
                        "[[subsystem.namespace]]\nid = {id}\nmemory = \"1MiB\""
                    );
                }
            }
        }
        let address = &self.address;
        _ = writeln!(text, "[[port]]\naddress = \"{address}:4430\"");
        let config = self.place.file("crowd.toml");
        std::fs::write(&config, text).expect("it is written");
        let rockery = programs::Rockery::built().path().display().to_string();
        let (config, control) = (
            config.display().to_string(),
            self.place.file("crowd").display().to_string(),
        );
        let argv = [
            &rockery,
            "serve",
            "nvme",
            "--config",
            &config,
            "--control",
            &control,
        ];
        let _server = self.place.server.start_plain(&argv).expect("it starts");
        self.place
            .server
            .wait_for_listener(4430, SECONDS)
            .expect("it listens");
        let found = self
            .place
            .nvme(&format!("discover -t tcp -a {address} -s 4430"));
        assert_eq!(
            found.matches("nqn.2024-01.org.example:crowd").count(),
            SUBSYSTEMS,
            "002: subsystems"
        );
        let first = "nqn.2024-01.org.example:crowd0";
        self.place
            .nvme(&format!("connect -t tcp -a {address} -s 4430 -n {first}"));
        self.waits_for(&format!(
            "[ $(nvme list-ns /dev/nvme0 | wc -l) = {namespaces} ]"
        ));
        self.place.nvme(&format!("disconnect -n {first}"));
    }
}

fn the_group_passes(transport: &'static str) {
    let place = timed("a guest", StoragePlace::new);
    let target = Target::start(&place, transport);
    // 003: a discovery controller that is kept alive.
    place.nvme(&format!(
        "connect -t {transport} -a {} -s 4420 -n {DISCOVERY} --keep-alive-tmo=4",
        target.address
    ));
    place.shell("sleep 5; grep live /sys/class/nvme/nvme0/state || { dmesg | tail; false; }");
    place.nvme(&format!("disconnect -n {DISCOVERY}"));
    target.connect("--reconnect-delay 1");
    target.plays(CASES);
    timed("030, 031, 038, 051, 052, 055, 058", || target.changes());
    timed("057, 064", || target.paths());
    target.disconnect();
    // 047: queues for writes alone, and queues that are polled.
    for options in [
        "--nr-write-queues 1",
        "--nr-write-queues 1 --nr-poll-queues 1",
    ] {
        target.connect(&format!("--nr-io-queues 1 {options}"));
        target.plays(&[(
            "047 queues of several kinds",
            "$fio --filename=/dev/nvme0n1",
        )]);
        target.disconnect();
    }
    no_complaints(&place);
}

/// The host's kernel has logged no complaint.
fn no_complaints(place: &StoragePlace) {
    let told = place.shell("dmesg");
    for word in ["BUG:", "WARNING:", "failed nvme_keep_alive_end_io"] {
        assert!(!told.contains(word), "{word}: {told}");
    }
}

#[test]
fn targets_go_and_come_back() {
    let place = StoragePlace::new();
    let mut target = Target::start(&place, "tcp");
    timed("002, 016, 017", || target.crowds());
    target.connect("--reconnect-delay 1 --ctrl-loss-tmo 600");
    timed("060, 061", || target.restarts());
    target.disconnect();
    no_complaints(&place);
}

#[test]
fn the_group_passes_over_tcp() {
    the_group_passes("tcp");
}

#[test]
fn the_group_passes_over_rdma() {
    the_group_passes("rdma");
}
