//! A target that is killed (SIGKILL) under load, repeatedly: all completed writes are there after a restart.
//! And a target whose machine loses power, and with it unflushed writes: all flushed writes are there.
//! `ROCKERY_TEST_CRASHES` sets the number of rounds, `ROCKERY_TEST_SEED` the first seed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nvme::host::HostError;
use programs::ledger::{BLOCK, Writer};
use programs::ports::free_port;
use programs::storage::{NQN, Server, connect};
use programs::write_log::WriteLog;
use programs::{Guest, Ledger, Loss, Machine, Rockery, number};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tempfile::TempDir;

/// Connections that write, each to blocks of its own.
const WRITERS: u16 = 3;
const BLOCKS: usize = 1024;
const DEPTH: u16 = 16;

const SIZE: usize = WRITERS as usize * BLOCKS * BLOCK;
const SECONDS: u64 = 60;
/// How many more power losses may follow until one takes writes back, and one comes after a flush.
const POWER_LOSSES_MAX: u64 = 10;

fn start(folder: &TempDir, options: &str) -> Server {
    let disk = folder.path().join("disk").display().to_string();
    Server::start(folder.path(), &format!("{disk} --size {SIZE} {options}")).expect("a server")
}

/// Writes from all connections, until the server is killed after so many commands.
fn load(address: SocketAddr, ledgers: &mut [Ledger], after: u64, seed: u64, kill: impl FnOnce()) {
    let (_client, mut queues) = connect(address, WRITERS, DEPTH);
    let completed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for ((ledger, queue), index) in ledgers.iter_mut().zip(&mut queues).zip(0..) {
            let completed = &completed;
            scope.spawn(move || {
                let mut writer = Writer::new(ledger, queue, 1, DEPTH.into(), seed ^ index << 56);
                let mut before = 0;
                let ended = writer.run(|now| {
                    completed.fetch_add(now - before, Ordering::Relaxed);
                    before = now;
                    true
                });
                assert!(
                    matches!(ended, Err(HostError::Io(_) | HostError::Terminated(None))),
                    "{ended:?}"
                );
            });
        }
        while completed.load(Ordering::Relaxed) < after {
            std::thread::sleep(Duration::from_micros(50));
        }
        kill();
    });
}

fn ledgers(seed: u64) -> Vec<Ledger> {
    let first_blocks = (0..u64::from(WRITERS)).map(|writer| writer * BLOCKS as u64);
    first_blocks
        .map(|first| Ledger::new(seed, first, BLOCKS))
        .collect()
}

#[track_caller]
fn look(server: &Server, ledgers: &mut [Ledger], loss: Loss, when: &str) {
    let (_client, mut queues) = server.connect(WRITERS, DEPTH);
    for (ledger, queue) in ledgers.iter_mut().zip(&mut queues) {
        let wrong = ledger.check_disk(queue, 1, loss).expect("it is read");
        assert!(wrong.is_empty(), "{when}: {wrong:?}");
    }
}

fn crash_and_look(options: &str) {
    let (crashes, seed) = (
        number("ROCKERY_TEST_CRASHES", 6),
        number("ROCKERY_TEST_SEED", 1),
    );
    let folder = TempDir::new().expect("a folder");
    let mut ledgers = ledgers(seed);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut server = start(&folder, options);
    for crash in 0..crashes {
        let after = u64::from(random.next_u32() % 1500);
        load(
            server.address(),
            &mut ledgers,
            after,
            random.next_u64(),
            || server.kill(),
        );
        server = start(&folder, options);
        let when = format!("crash {crash} of seed {seed}, after {after} commands");
        look(&server, &mut ledgers, Loss::Process, &when);
    }
}

#[test]
fn a_killed_target_has_all_completed_writes() {
    crash_and_look("");
}

#[test]
fn a_killed_target_with_the_page_cache_has_all_completed_writes() {
    crash_and_look("--cached");
}

/// A guest's power goes while its rockery serves its disk under load. QEMU has logged all requests to the
/// disk: data that were not flushed are lost by chance, block by block, and then everything is read. A power
/// loss when nothing waits to be flushed, or before the first flush, proves little: others follow until a
/// completed write is gone, and the disk has got a flush.
fn lose_power_and_look(options: &str) {
    let losses = number("ROCKERY_TEST_CRASHES", 6) / 6;
    let seed = number("ROCKERY_TEST_SEED", 1);
    let folder = TempDir::new().expect("a folder");
    let (disk, log) = (folder.path().join("disk"), folder.path().join("log"));
    std::fs::write(&disk, vec![0; SIZE]).expect("a disk");
    let mut ledgers = ledgers(seed);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let rockery = Rockery::built();
    let binary = rockery.path().display().to_string();
    let (mut flushes, mut loss) = (0, 0);
    while loss < losses || flushes == 0 || ledgers.iter().all(|ledger| ledger.taken_back() == 0) {
        let taken_back: u64 = ledgers.iter().map(Ledger::taken_back).sum();
        assert!(
            loss < losses + POWER_LOSSES_MAX,
            "{loss} power losses: {flushes} flushes, {taken_back} lost"
        );
        let before = std::fs::read(&disk).expect("a disk");
        std::fs::write(&log, "").expect("a log");
        let port = free_port();
        let drive = format!(
            "driver=blklogwrites,file.driver=file,file.filename={},log.driver=file,log.filename={}",
            disk.display(),
            log.display()
        );
        let guest = Guest::with_disk(port, 4420, &drive, &[rockery.path()]).expect("a guest");
        let line = format!(
            "{binary} serve nvme /dev/vda --subsystem {NQN} {options} --control /tmp/control"
        );
        let _server = guest
            .start(&line.split_whitespace().collect::<Vec<_>>())
            .expect("it starts");
        guest.wait_for_listener(4420, SECONDS).expect("it listens");
        // The emulated guest is slow.
        let after = u64::from(random.next_u32() % 400);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        load(address, &mut ledgers, after, random.next_u64(), || {
            guest.power_off().expect("it had power")
        });
        let bytes = std::fs::read(&log).expect("a log");
        let written = WriteLog::parse(&bytes).expect("QEMU's log");
        let mut kept = before;
        written.replay(&mut kept, &mut random);
        flushes += written.flushes();
        std::fs::write(&disk, kept).expect("a disk");
        let when = format!("power loss {loss} of seed {seed}, after {after} commands");
        look(&start(&folder, ""), &mut ledgers, Loss::Power, &when);
        loss += 1;
    }
}

#[test]
fn a_target_that_lost_power_has_all_flushed_writes() {
    lose_power_and_look("");
}

#[test]
fn a_target_that_lost_power_and_its_page_cache_has_all_flushed_writes() {
    lose_power_and_look("--cached");
}
