//! Rockery as the host: over RDMA and TCP, on its own target and on the Linux kernel's.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use programs::machine::until;
use programs::namespace::Process;
use programs::{Guest, Job, Machine, Namespace, Pair, Rockery, Segment};
use tempfile::TempDir;

const NQN: &str = "nqn.2024-01.org.example:disk";
const SECONDS: u64 = 60;
/// Bytes that are written and read: many commands, the last of them short.
const BYTES: usize = (5 << 20) + 4096 * 3;

/// Where on the disk.
const START: usize = 4096 * 3;

/// A folder with a file of bytes that all differ from their neighbours.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            folder: TempDir::new().expect("a folder"),
        };
        let mut state = 7_u32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(BYTES)
        .collect();
        std::fs::write(files.path("written"), bytes).expect("it is written");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn serve(place: &Namespace, address: IpAddr, files: &Files) -> Process {
    serve_with(place, address, files, "")
}

fn serve_with(place: &Namespace, address: IpAddr, files: &Files, words: &str) -> Process {
    let control = files.path("control").display().to_string();
    let line = format!(
        "{} serve nvme --memory 64M --subsystem {NQN} --listen {address}:4420 --rdma {address}:4420 \
         --control {control} {words}",
        Rockery::built().word()
    );
    let argv: Vec<&str> = line.split_whitespace().collect();
    let server = place.start_plain(&argv).expect("it starts");
    place.wait_for_listener(4420, SECONDS).expect("it listens");
    server
}

/// Runs `rockery nvme`, which has to succeed, as a line of shell so that files can be given.
fn nvme(place: &Namespace, line: &str) -> String {
    let line = format!("{} nvme {line}", Rockery::built().word());
    let mut job = place.start_plain(&["sh", "-c", &line]).expect("it starts");
    job.wait(SECONDS).expect("in time").expect_success().output
}

/// Finds a disk, writes it and reads it, over one transport.
fn use_a_disk(place: &Namespace, transport: &str, address: IpAddr, files: &Files) {
    let to = format!("{address}:4420 --transport {transport}");
    let found = nvme(place, &format!("discover {to}"));
    assert!(found.contains(NQN) && found.contains(transport), "{found}");
    let to = format!("{to} --subsystem {NQN}");
    let said = nvme(place, &format!("id-ctrl {to}"));
    assert!(said.contains("namespace   1"), "{said}");
    let block = if said.contains("blocks of 512 bytes") {
        512
    } else {
        4096
    };
    let (start, blocks) = (START / block, BYTES / block);
    let (written, read) = (files.path("written"), files.path("read"));
    nvme(
        place,
        &format!("write {to} --start {start} <{}", written.display()),
    );
    nvme(
        place,
        &format!(
            "read {to} --start {start} --blocks {blocks} >{}",
            read.display()
        ),
    );
    assert!(
        same(&written, &read),
        "{transport}: what was read is not what was written"
    );
}

fn same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).expect("it is there") == std::fs::read(other).expect("it is there")
}

#[test]
fn our_host_uses_our_disk_over_every_transport() {
    let pair = Pair::new(9000).expect("a pair");
    let files = Files::new();
    let address = pair.left.address();
    let mut server = serve(&pair.left, address, &files);
    for transport in ["tcp", "rdma"] {
        // Packets between two namespaces, then what has an address in common.
        use_a_disk(&pair.right, transport, address, &files);
        use_a_disk(&pair.left, transport, address, &files);
    }
    let address = pair.left.address_v6();
    let wrong = format!(
        "{} nvme discover [{address}]:4420 --transport rdma",
        Rockery::built().word()
    );
    let mut job = pair
        .right
        .start_plain(&["sh", "-c", &wrong])
        .expect("it starts");
    let finished = job.wait(SECONDS).expect("in time");
    assert!(
        finished.status != Some(0),
        "no process listens there: {}",
        finished.output
    );
    server.kill().expect("it was there");
}

/// Receives that queues have in common: fewer than they could have commands. Hosts that are killed meanwhile
/// do not
/// take any away.
#[test]
fn rdma_queues_share_their_receives() {
    let pair = Pair::new(9000).expect("a pair");
    let files = Files::new();
    let address = pair.left.address();
    let mut server = serve_with(&pair.left, address, &files, "--shared-receives 64");
    let line = format!(
        "{} nvme bench {address}:4420 --transport rdma --subsystem {NQN} --job randread:4k:64x4 --warm-up 0",
        Rockery::built().word()
    );
    let start = |seconds: &str| {
        let line = format!("{line} --seconds {seconds}");
        pair.right
            .start_plain(&line.split_whitespace().collect::<Vec<_>>())
            .expect("it starts")
    };
    for _ in 0..3 {
        let mut killed = [start("60"), start("60")];
        let mut measured = start("0.5");
        measured.wait(SECONDS).expect("in time").expect_success();
        killed
            .iter_mut()
            .for_each(|it| it.kill().expect("it was there"));
    }
    use_a_disk(&pair.right, "rdma", address, &files);
    use_a_disk(&pair.left, "rdma", address, &files);
    server.kill().expect("it was there");
}

/// As many commands at once as a queue can have: 1024 entries, of which one is always free.
#[test]
fn queues_have_1024_entries() {
    let pair = Pair::new(9000).expect("a pair");
    let files = Files::new();
    let address = pair.left.address();
    let mut server = serve(&pair.left, address, &files);
    for transport in ["tcp", "rdma"] {
        let to = format!(
            "{address}:4420 --transport {transport} --subsystem {NQN} --warm-up 0 --seconds 0.5"
        );
        let said = nvme(
            &pair.right,
            &format!("bench {to} --destroy --job randread:4k:1023 --job randwrite:4k:1023x2"),
        );
        assert!(
            said.contains("randread:4k:1023") && said.contains("randwrite:4k:1023x2"),
            "{said}"
        );
    }
    server.kill().expect("it was there");
}

/// Makes the kernel's own target in a guest: a disk in memory, on TCP and RDMA.
fn nvmet(guest: &Guest) {
    let address = guest.address();
    let line = format!(
        "/sbin/modprobe nvmet_tcp && /sbin/modprobe nvmet_rdma && /sbin/modprobe loop && \
         dd if=/dev/zero of=/tmp/disk bs=1M count=32 2>/dev/null && losetup /dev/loop0 /tmp/disk && \
         mount -t configfs config /sys/kernel/config; \
         s=/sys/kernel/config/nvmet/subsystems/{NQN}; mkdir $s && echo 1 >$s/attr_allow_any_host && \
         mkdir $s/namespaces/1 && echo /dev/loop0 >$s/namespaces/1/device_path && \
         echo 1 >$s/namespaces/1/enable && n=0 && for t in tcp rdma; do n=$((n+1)); \
         p=/sys/kernel/config/nvmet/ports/$n; mkdir $p && echo {address} >$p/addr_traddr && \
         echo $t >$p/addr_trtype && echo 4420 >$p/addr_trsvcid && echo ipv4 >$p/addr_adrfam && \
         ln -s $s $p/subsystems/disk || exit 1; done"
    );
    guest
        .shell(&line)
        .expect("the guest answers")
        .expect_success();
}

/// rxe, and the kernel's own NVMe, at the other end.
#[test]
fn our_host_uses_the_kernels_disk_over_tcp_and_rdma() {
    let segment = Segment::new(1500).expect("a segment");
    let place = segment.namespace(1).expect("a namespace");
    let guest = segment.storage_guest(11).expect("a guest");
    segment
        .introduce(&place, &guest)
        .expect("they hear each other");
    nvmet(&guest);
    let files = Files::new();
    for transport in ["tcp", "rdma"] {
        use_a_disk(&place, transport, guest.address(), &files);
        // The data on the kernel's disk are those that were written. The target goes round the guest's page
        // cache, in which `dd` left data.
        let digest = guest.shell(
            "sync; echo 3 >/proc/sys/vm/drop_caches; \
             dd if=/dev/loop0 bs=4096 skip=3 count=1283 2>/dev/null | md5sum",
        );
        let theirs = digest.expect("the guest answers").expect_success().output;
        let line = format!("md5sum <{}", files.path("written").display());
        let mut job = place.start_plain(&["sh", "-c", &line]).expect("it starts");
        assert_eq!(
            theirs,
            job.wait(SECONDS).expect("in time").output,
            "{transport}"
        );
        let clear = "dd if=/dev/zero of=/dev/loop0 bs=1M count=8 2>/dev/null; sync";
        guest
            .shell(clear)
            .expect("the guest answers")
            .expect_success();
    }
}

/// Runs a line of shell, which has to succeed.
fn shell(place: &Namespace, line: &str) -> String {
    let mut job = place.start_plain(&["sh", "-c", line]).expect("it starts");
    job.wait(SECONDS).expect("in time").expect_success().output
}

/// nbdinfo, nbdcopy and fio, which have no support for NVMe, on a disk that is reached over RDMA and TCP.
#[test]
fn nbd_clients_use_a_remote_disk() {
    let pair = Pair::new(9000).expect("a pair");
    let files = Files::new();
    let address = pair.left.address();
    let _server = serve(&pair.left, address, &files);
    let (here, written, read) = (&pair.right, files.path("written"), files.path("read"));
    let run = format!(
        "XDG_RUNTIME_DIR={} {} nvme",
        files.folder.path().display(),
        Rockery::built().word()
    );
    for transport in ["tcp", "rdma"] {
        let connect =
            format!("{run} connect {address}:4420 --transport {transport} --subsystem {NQN}");
        let uri = shell(here, &connect);
        let uri = uri.trim();
        assert!(uri.starts_with("nbd+unix://"), "{uri}");
        assert!(shell(here, &format!("{run} list")).contains(uri));
        let said = shell(here, &format!("nbdinfo '{uri}'"));
        assert!(
            said.contains("export-size: 67108864") && said.contains("can_trim: true"),
            "{said}"
        );
        let (written, read) = (written.display(), read.display());
        shell(here, &format!("nbdcopy --flush {written} '{uri}'"));
        shell(
            here,
            &format!("nbdcopy '{uri}' {read} && truncate -s {BYTES} {read}"),
        );
        assert!(
            same(&files.path("written"), &files.path("read")),
            "{transport}"
        );
        shell(
            here,
            &format!(
                "fio --name=v --ioengine=nbd --uri='{uri}' --rw=randrw --bsrange=4k-512k --size=48M \
                 --io_size=16M --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 \
                 --verify_state_save=0"
            ),
        );
        let again = format!("{connect} 2>&1; test $? != 0");
        assert!(shell(here, &again).contains("is connected already"));
        shell(here, &format!("{run} disconnect"));
        assert_eq!(shell(here, &format!("{run} list")), "");
    }
}

/// nbdinfo, qemu-img and qemu-io with what they negotiate: structured replies, block status, the name of the
/// export, FUA, and requests that are no whole blocks.
#[test]
fn nbd_clients_negotiate_all_that_they_know() {
    let (files, alone) = (Files::new(), Namespace::alone().expect("a namespace"));
    let address = IpAddr::from([127, 0, 0, 1]);
    let _server = serve(&alone, address, &files);
    let (_export, socket) = export(&alone, address, "tcp", &files);
    let socket = socket.display();
    for name in ["", "disk"] {
        let uri = format!("nbd+unix:///{name}?socket={socket}");
        let said = shell(&alone, &format!("nbdinfo '{uri}'"));
        for wanted in [
            "using structured packets",
            "base:allocation",
            "can_fua: true",
            "can_df: true",
        ] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
        let map = shell(&alone, &format!("nbdinfo --map '{uri}'"));
        assert!(map.contains("67108864") && map.contains("data"), "{map}");
        let map = shell(&alone, &format!("qemu-img map --output=json '{uri}'"));
        assert!(map.contains("\"length\": 67108864"), "{map}");
    }
    let listed = shell(
        &alone,
        &format!("nbdinfo --list 'nbd+unix:///?socket={socket}'"),
    );
    assert!(listed.contains("export=\"disk\""), "{listed}");
    shell(
        &alone,
        &format!("! nbdinfo 'nbd+unix:///other?socket={socket}'"),
    );
    let commands = "-c 'write -P 7 -f 0 8k' -c 'write -P 9 1000 3000' -c 'write -z 100 10' -c 'flush' \
                    -c 'discard 4096 5000' -c 'read -P 7 110 890' -c 'read -P 9 1000 3000' \
                    -c 'read -P 0 100 10'";
    let said = shell(
        &alone,
        &format!("qemu-io -f raw {commands} 'nbd+unix:///disk?socket={socket}'"),
    );
    assert!(!said.contains("failed"), "{said}");
}

/// The comparison that people publish, in a few seconds: every transport is there, and nothing failed.
/// Reads of a truncated backing file fail: the rate of those is no throughput, and the exit status is 1.
#[test]
fn a_measurement_with_failed_commands_fails() {
    let (files, alone) = (Files::new(), Namespace::alone().expect("a namespace"));
    let disk = std::fs::File::create(files.path("disk")).expect("a file");
    disk.set_len(16 << 20).expect("it has room");
    let control = files.path("control").display().to_string();
    let line = format!(
        "{} serve nvme {} --subsystem {NQN} --listen 127.0.0.1:4420 --control {control}",
        Rockery::built().word(),
        files.path("disk").display()
    );
    let _server = alone
        .start_plain(&line.split_whitespace().collect::<Vec<_>>())
        .expect("it starts");
    alone.wait_for_listener(4420, SECONDS).expect("it listens");
    let bench = format!(
        "{} nvme bench 127.0.0.1:4420 --subsystem {NQN} --job randread:4k:4 --seconds 0.3 --warm-up 0",
        Rockery::built().word()
    );
    let run = || {
        let mut job = alone
            .start_plain(&bench.split_whitespace().collect::<Vec<_>>())
            .expect("it starts");
        job.wait(SECONDS).expect("in time")
    };
    let whole = run().expect_success().output;
    assert!(
        whole
            .lines()
            .any(|line| line.starts_with("randread:4k:4") && line.ends_with(" 0")),
        "{whole}"
    );
    disk.set_len(0).expect("it is ours");
    let failed = run();
    assert_eq!(failed.status, Some(1), "{}", failed.output);
    assert!(
        failed
            .output
            .contains("failed, the first with: unrecovered read error"),
        "{}",
        failed.output
    );
}

/// A measurement that would write is refused before the host connects, in place of being left out.
#[test]
fn a_job_that_writes_needs_destroy() {
    let done = std::process::Command::new(Rockery::built().path())
        .args([
            "nvme",
            "bench",
            "127.0.0.1:9",
            "--job",
            "randread:4k:16",
            "--job",
            "randwrite:4k:32",
        ])
        .output()
        .expect("it was built");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(
        said.contains("randwrite:4k:32") && said.contains("--destroy"),
        "{said}"
    );
}

/// The zone of an address is an interface's name or index; other zones and forms are named in the error.
#[test]
fn targets_have_zones() {
    let connect = |target: &str| {
        let done = std::process::Command::new(Rockery::built().path())
            .args(["nvme", "id-ctrl", target])
            .output()
            .expect("it was built");
        assert!(!done.status.success());
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    for target in ["[fe80::1%lo]:9", "[fe80::1%1]:9"] {
        let said = connect(target);
        assert!(
            said.contains(&format!("the connection to {target} failed")),
            "{target}: {said}"
        );
    }
    for (target, wrong) in [
        ("[fe80::1%nosuch0]:9", "nosuch0"),
        ("fe80::1", "fe80::1"),
        ("server", "server"),
    ] {
        let said = connect(target);
        assert!(
            said.contains(wrong) && !said.contains("the connection"),
            "{target}: {said}"
        );
    }
}

#[test]
fn the_comparison_is_made_and_opens_offline() {
    let alone = Namespace::alone().expect("a namespace");
    let files = Files::new();
    let (json, page) = (files.path("bench.json"), files.path("bench.html"));
    let bench = format!(
        "{} bench nvme --quick --json {} --html {}",
        Rockery::built().word(),
        json.display(),
        page.display()
    );
    let said = shell(&alone, &bench);
    let words = [
        "local",
        "RDMA, same host",
        "RDMA over UDP",
        "TCP",
        "read SEQ1M Q8T1",
        "published: \"RDMA",
        "drift",
    ];
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
    let json = std::fs::read_to_string(json).expect("it was written");
    assert!(
        json.contains("\"errors\": 0") && !json.contains("\"per-second\": 0.0"),
        "{json}"
    );
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.matches("<svg").count() == 6 && !page.contains("src=") && !page.contains("href="));
}

/// Serves a remote disk to NBD clients, on a socket in the folder.
fn export(
    place: &Namespace,
    address: IpAddr,
    transport: &str,
    files: &Files,
) -> (Process, PathBuf) {
    let socket = files.path(&format!("{transport}.sock"));
    let line = format!(
        "{} nvme export {address}:4420 --transport {transport} --subsystem {NQN} --nbd unix:{}",
        Rockery::built().word(),
        socket.display()
    );
    let argv: Vec<&str> = line.split_whitespace().collect();
    let mut export = place.start_plain(&argv).expect("it starts");
    let is_there = until(SECONDS, || Ok(export.output()?.contains("nbd+unix")));
    assert!(is_there.expect("its output"), "{:?}", export.output());
    (export, socket)
}

/// A file system of the kernel's, on a disk that neither it nor QEMU knows to be remote: what it leaves is
/// whole and found again when it is read over the other transport.
#[test]
fn a_file_system_lies_on_a_remote_disk() {
    let pair = Pair::new(9000).expect("a pair");
    let files = Files::new();
    let address = pair.left.address();
    let _server = serve(&pair.left, address, &files);
    let (_export, socket) = export(&pair.right, address, "rdma", &files);
    let disk = format!(
        "driver=nbd,server.type=unix,server.path={}",
        socket.display()
    );
    let guest = Guest::with_disk_and_storage(&disk).expect("a guest");
    let line = |line: &str| {
        guest
            .shell(line)
            .expect("the guest answers")
            .expect_success()
            .output
    };
    line("/sbin/modprobe ext4 && mkfs.ext4 -q /dev/vda && mkdir -p /mnt && mount /dev/vda /mnt");
    line("dd if=/dev/urandom of=/mnt/file bs=1M count=8 2>/dev/null");
    line(
        "fio --name=v --directory=/mnt --size=8M --direct=1 --ioengine=libaio --iodepth=8 --rw=randrw \
         --bsrange=4k-64k --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7",
    );
    let digest = line("md5sum </mnt/file");
    line("umount /mnt && mount /dev/vda /mnt");
    assert_eq!(line("md5sum </mnt/file"), digest);
    line("umount /mnt");
    let image = files.path("image").display().to_string();
    let read =
        format!("read {address}:4420 --transport tcp --subsystem {NQN} --blocks 16384 >{image}");
    nvme(&pair.left, &read);
    shell(&pair.left, &format!("e2fsck -fn {image}"));
    let found = shell(
        &pair.left,
        &format!("debugfs -R 'cat /file' {image} 2>/dev/null | md5sum"),
    );
    assert_eq!(found, digest);
}

/// Clock ticks (10 ms) of processor time that a process took until now.
fn ticks(process: &Process) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("it runs");
    // Behind the name, which may hold anything: user and system time are the 14th and 15th field.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    behind
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum()
}

/// An NBD client that completes the handshake and then sends nothing.
fn silent_client(socket: &Path) -> UnixStream {
    let mut client = UnixStream::connect(socket).expect("it listens");
    let mut greeting = [0; 18];
    client.read_exact(&mut greeting).expect("a greeting");
    // Fixed newstyle, no zeroes behind the answer; NBD_OPT_EXPORT_NAME of no name.
    let choice = [
        &3_u32.to_be_bytes()[..],
        b"IHAVEOPT",
        &1_u32.to_be_bytes(),
        &0_u32.to_be_bytes(),
    ];
    client.write_all(&choice.concat()).expect("it is there");
    let mut answer = [0; 10];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(
        u64::from_be_bytes(answer[..8].try_into().expect("eight")),
        64 << 20
    );
    client
}

/// Target and host with connections over which nothing goes, one for each transport: neither looks for work.
#[test]
fn idle_processes_take_no_processor_time() {
    const LOOK: Duration = Duration::from_secs(3);
    /// Of 300: a timer now and then is no polling.
    const TICKS_MAX: u64 = 3;
    let pair = Pair::new(9000).expect("a pair");
    let files = Files::new();
    let address = pair.left.address();
    let server = serve(&pair.left, address, &files);
    let (tcp, tcp_socket) = export(&pair.right, address, "tcp", &files);
    let (rdma, rdma_socket) = export(&pair.right, address, "rdma", &files);
    let _clients = [tcp_socket, rdma_socket].map(|socket| silent_client(&socket));
    // The work of connecting is over.
    std::thread::sleep(Duration::from_secs(1));
    let all = [
        ("target", &server),
        ("TCP host", &tcp),
        ("RDMA host", &rdma),
    ];
    let before = all.map(|(_, process)| ticks(process));
    std::thread::sleep(LOOK);
    for ((who, process), before) in all.into_iter().zip(before) {
        let took = ticks(process) - before;
        assert!(
            took <= TICKS_MAX,
            "the {who} took {took} ticks of 10 ms in {LOOK:?}"
        );
    }
}
