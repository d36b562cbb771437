//! Disks below a target that fail or are full: commands end with an error status, and earlier flushed writes
//! are there. And fio's own verification across targets that are killed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use buffer::Buffer;
use nvme::host::{HostError, Payload, Queue, transfer};
use programs::machine::until;
use programs::ports::free_port;
use programs::storage::{NQN, Server, connect};
use programs::{Guest, Job, Machine, Rockery, StoragePlace};
use tempfile::TempDir;
use wire::nvme::{Command as NvmeCommand, Io, Status};

const SECONDS: u64 = 60;
const BLOCK: usize = 4096;
const SIZE: usize = 16 << 20;
/// The block that cannot be read, and the one that cannot be written.
const UNREADABLE: u64 = 256;
const UNWRITABLE: u64 = 512;
const SECTORS: u64 = BLOCK as u64 / 512;
const FORCE_UNIT_ACCESS: u32 = 1 << 30;

fn finish(queue: &mut Queue, command: NvmeCommand, payload: Payload) -> Status {
    match queue.call("a command", command, payload) {
        Ok(_) => Status::SUCCESS,
        Err(HostError::Status { status, .. }) => status.plain(),
        Err(error) => panic!("{error}"),
    }
}

fn call(queue: &mut Queue, io: Io, start: u64, blocks: u32) -> Status {
    let length = blocks as usize * BLOCK;
    let payload = match io {
        Io::Read => Payload::In(Buffer::zeroed(length), length),
        Io::Write | Io::Compare => Payload::Out(Buffer::zeroed(length), length),
        _ => Payload::None,
    };
    finish(queue, transfer(io, 1, start, blocks), payload)
}

fn write_durably(queue: &mut Queue, start: u64) -> Status {
    let mut command = transfer(Io::Write, 1, start, 1);
    command.cdw12 |= FORCE_UNIT_ACCESS;
    finish(queue, command, Payload::Out(Buffer::zeroed(BLOCK), BLOCK))
}

/// A guest's rockery serves a disk for which QEMU answers EIO (blkdebug) to the requests of `faults`.
fn with_faults(faults: &[(&str, Option<u64>)], options: &str, check: impl FnOnce(&mut [Queue])) {
    let folder = TempDir::new().expect("a folder");
    let disk = folder.path().join("disk");
    fs::write(&disk, vec![0; SIZE]).expect("a disk");
    let mut drive = format!(
        "driver=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={}",
        disk.display()
    );
    for (number, (kind, block)) in faults.iter().enumerate() {
        let rule = format!("file.inject-error.{number}");
        drive += &format!(",{rule}.event=none,{rule}.iotype={kind},{rule}.errno=5,{rule}.once=off");
        drive += &block.map_or(String::new(), |block| {
            format!(",{rule}.sector={}", block * SECTORS)
        });
    }
    let rockery = Rockery::built();
    let binary = rockery.path().display().to_string();
    let port = free_port();
    let guest = Guest::with_disk(port, 4420, &drive, &[rockery.path()]).expect("a guest");
    let line =
        format!("{binary} serve nvme /dev/vda --subsystem {NQN} {options} --control /tmp/control");
    let _server = guest
        .start(&line.split_whitespace().collect::<Vec<_>>())
        .expect("it starts");
    guest.wait_for_listener(4420, SECONDS).expect("it listens");
    let (_client, mut queues) = connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), 2, 8);
    check(&mut queues);
}

const BAD_BLOCKS: [(&str, Option<u64>); 3] = [
    ("read", Some(UNREADABLE)),
    ("write", Some(UNWRITABLE)),
    ("write-zeroes", Some(UNWRITABLE)),
];

#[test]
fn reads_and_writes_that_the_disk_fails_end_with_a_media_error() {
    with_faults(&BAD_BLOCKS, "", |queues| {
        let queue = &mut queues[0];
        for (start, blocks) in [
            (UNREADABLE, 1),
            (UNREADABLE - 3, 8),
            (UNREADABLE - 200, 256),
        ] {
            assert_eq!(
                call(queue, Io::Read, start, blocks),
                Status::UNRECOVERED_READ,
                "{start}"
            );
        }
        for io in [Io::Compare, Io::Verify] {
            assert_eq!(
                call(queue, io, UNREADABLE, 1),
                Status::UNRECOVERED_READ,
                "{io:?}"
            );
        }
        for (start, blocks) in [
            (UNWRITABLE, 1),
            (UNWRITABLE - 3, 8),
            (UNWRITABLE - 200, 256),
        ] {
            assert_eq!(
                call(queue, Io::Write, start, blocks),
                Status::WRITE_FAULT,
                "{start}"
            );
        }
        assert_eq!(
            call(queue, Io::WriteZeroes, UNWRITABLE - 4, 8),
            Status::WRITE_FAULT
        );
        assert_eq!(write_durably(queue, UNWRITABLE), Status::WRITE_FAULT);
        // Beside them, nothing is wrong.
        for start in [
            0,
            UNREADABLE - 1,
            UNREADABLE + 1,
            UNWRITABLE - 1,
            UNWRITABLE + 1,
        ] {
            assert_eq!(call(queue, Io::Write, start, 1), Status::SUCCESS, "{start}");
            assert_eq!(call(queue, Io::Read, start, 1), Status::SUCCESS, "{start}");
        }
        assert_eq!(write_durably(queue, 0), Status::SUCCESS);
        assert_eq!(call(queue, Io::Flush, 0, 1), Status::SUCCESS);
    });
}

/// A write that the page cache accepted and cannot write back fails every flush from then on, on every queue:
/// the kernel reports it once.
#[test]
fn a_lost_page_cache_write_fails_every_later_flush() {
    with_faults(&BAD_BLOCKS, "--cached", |queues| {
        assert_eq!(
            call(&mut queues[0], Io::Read, UNREADABLE, 1),
            Status::UNRECOVERED_READ
        );
        assert_eq!(call(&mut queues[1], Io::Flush, 0, 1), Status::SUCCESS);
        assert_eq!(
            call(&mut queues[1], Io::Write, UNWRITABLE, 1),
            Status::SUCCESS,
            "the page cache took it"
        );
        for queue in queues {
            for _ in 0..2 {
                assert_eq!(call(queue, Io::Flush, 0, 1), Status::WRITE_FAULT);
                assert_eq!(write_durably(queue, 0), Status::WRITE_FAULT);
            }
            assert_eq!(call(queue, Io::Read, 0, 1), Status::SUCCESS);
        }
    });
}

#[test]
fn a_flush_that_the_disk_refuses_fails_and_so_do_those_after_it() {
    with_faults(&[("flush", None)], "", |queues| {
        for queue in queues {
            assert_eq!(call(queue, Io::Write, 0, 1), Status::SUCCESS);
            assert_eq!(call(queue, Io::Flush, 0, 1), Status::WRITE_FAULT);
            assert_eq!(write_durably(queue, 0), Status::WRITE_FAULT);
        }
    });
}

/// A state file on a file system that is full, mounted for these processes alone.
const FULL: &str = r#"
set -e
mkdir full
mount -t tmpfs -o size=64k none full
serve() {
    : >out # The background shell empties it later than the loop below reads it.
    "$ROCKERY" serve nvme "$PWD/disk" --size 16M --subsystem "$NQN" --listen 127.0.0.1:0 \
        --control control --state full/state >out 2>&1 &
    server=$!
    i=0; until grep -q listening out || [ $i = 600 ]; do i=$((i + 1)); sleep 0.1; done
    grep -q listening out || { cat out; exit 1; }
}
serve
trap 'kill -9 $server' EXIT
dd if=/dev/zero of=full/filler bs=512 2>/dev/null && exit 1
if "$ROCKERY" serve add "$NQN" "$PWD/other" --size 16M --control control >said 2>&1; then exit 1; fi
grep -q 'No space left' said || { cat said; exit 1; }
if "$ROCKERY" serve resize "$NQN" 1 32M --control control; then exit 1; fi
"$ROCKERY" serve status --control control >status
grep -q '"id": 1,' status && grep -q '"bytes": 16777216' status
if grep -q '"id": 2,' status; then cat status; exit 1; fi
kill -9 $server; wait $server || true
serve
"$ROCKERY" serve status --control control | grep -q '"bytes": 16777216'
rm full/filler
"$ROCKERY" serve add "$NQN" "$PWD/other" --size 16M --control control
kill -9 $server; wait $server || true
serve
"$ROCKERY" serve status --control control | grep -q '"id": 2,'
"#;

#[test]
fn a_change_that_the_state_file_has_no_room_for_is_refused_and_a_restart_works() {
    let folder = TempDir::new().expect("a folder");
    let mut script = Command::new("unshare");
    script
        .args(["--mount", "sh", "-c", FULL])
        .current_dir(folder.path());
    let done = script
        .env("ROCKERY", Rockery::built().path())
        .env("NQN", NQN)
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success(), "{said}");
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A disk as an NBD export at a socket.
fn export(server: &Server, socket: &Path) -> Ended {
    let address = server.address().to_string();
    let mut export = Command::new(Rockery::built().path());
    export.args(["nvme", "export", &address, "--subsystem", NQN, "--nbd"]);
    export
        .arg(format!("unix:{}", socket.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let export = Ended(export.spawn().expect("it was built"));
    assert!(until(SECONDS, || Ok(socket.exists())).expect("no error"));
    export
}

/// Jobs of fio, each with a connection and a write in flight. fio 3.33 takes every write as completed
/// that was issued more than a queue depth before the last one, which holds for a depth of 1 only: writes
/// complete in any order.
const JOBS: usize = 16;

/// fio writes through NBD, notes what was completed, and has the target killed in the middle; then it
/// verifies by its notes all that was completed.
#[test]
fn fio_verifies_all_writes_that_a_killed_target_had_completed() {
    for options in ["", "--cached"] {
        let folder = TempDir::new().expect("a folder");
        let (disk, socket) = (folder.path().join("disk"), folder.path().join("nbd.sock"));
        let words = format!("{} --size 64M {options}", disk.display());
        let fio = |more: &[&str]| {
            let mut fio = Command::new("fio");
            fio.args([
                "--name=v",
                "--ioengine=nbd",
                "--rw=randwrite",
                "--bs=4k",
                "--size=3M",
                "--offset_increment=3M",
            ]);
            fio.arg(format!("--numjobs={JOBS}"));
            fio.args([
                "--iodepth=1",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--randseed=7",
            ]);
            fio.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()))
                .args(more);
            let done = fio
                .current_dir(folder.path())
                .output()
                .expect("it is installed");
            let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            (done.status.success(), said)
        };
        let mut server = Server::start(folder.path(), &words).expect("it starts");
        let first = export(&server, &socket);
        let kill = format!("--trigger=kill -9 {}", server.id());
        // Half of it in three seconds; what was written by then is verified, however much it is.
        let (_, said) = fio(&["--rate=512k", "--do_verify=0", "--trigger-timeout=3", &kill]);
        for job in 0..JOBS {
            let state = folder.path().join(format!("local-v-{job}-verify.state"));
            assert!(state.exists(), "job {job}: {said}");
        }
        server.kill();
        drop(first);

        let server = Server::start(folder.path(), &words).expect("it starts again");
        fs::remove_file(&socket).expect("a stale socket");
        let _second = export(&server, &socket);
        let load = [
            "--verify_only=1",
            "--verify_state_load=1",
            "--verify_state_save=0",
        ];
        let (verified, said) = fio(&[&load[..], &["--output-format=terse"]].concat());
        assert!(verified, "{options}: {said}");
        // The fifth field of the terse output, the first of reads, is KiB.
        let verified: Vec<u64> = said
            .lines()
            .filter(|line| line.starts_with("3;"))
            .filter_map(|line| line.split(';').nth(5)?.parse().ok())
            .collect();
        assert!(
            verified.len() == JOBS && verified.iter().all(|kib| *kib > 0),
            "nothing was verified: {verified:?}: {said}"
        );
    }
}

/// The kernel's own host, under fio: a target that is killed again and again is only slow.
#[test]
fn fio_on_the_kernels_disk_verifies_across_killed_targets() {
    let place = StoragePlace::new();
    let disk = place.file("disk.img").display().to_string();
    let mut server = place.serve(&format!("{disk} --size 64M --subsystem {NQN}"));
    place.connect("--reconnect-delay 1 --nr-io-queues 2");
    place.shell(
        "(fio --name=v --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite \
         --bsrange=4k-64k --size=32M --rate=4m --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 \
         --fsync=64 >/tmp/fio 2>&1; echo $? >/tmp/fio.status) </dev/null >/dev/null 2>&1 & echo started",
    );
    for _ in 0..3 {
        let written = place.shell(
            "cut -d' ' -f7 /sys/block/nvme0n1/stat || awk '{print $7}' /sys/block/nvme0n1/stat",
        );
        let grown = || {
            let now = place
                .guest
                .shell("cut -d' ' -f7 /sys/block/nvme0n1/stat")?
                .output;
            Ok(now != written || place.guest.shell("test -e /tmp/fio.status")?.succeeded())
        };
        assert!(
            until(SECONDS, grown).expect("the guest answers"),
            "{}",
            place.shell("dmesg | tail")
        );
        server.kill().expect("it is ours");
        server.wait(SECONDS).expect("it ends");
        server = place.serve("");
    }
    let ended = || Ok(place.guest.shell("test -s /tmp/fio.status")?.succeeded());
    assert!(
        until(3 * SECONDS, ended).expect("the guest answers"),
        "{}",
        place.shell("dmesg | tail; cat /tmp/fio")
    );
    assert_eq!(
        place.shell("cat /tmp/fio.status").trim(),
        "0",
        "{}",
        place.shell("cat /tmp/fio; dmesg | tail")
    );
    place.nvme(&format!("disconnect -n {NQN}"));
    server.kill().expect("it is ours");
}
