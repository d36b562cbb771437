//! A target that dies by SIGKILL under load, again and again: what it said is written is there when another
//! takes its place. `ROCKERY_TEST_CRASHES` says how often, `ROCKERY_TEST_SEED` which.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nvme::host::HostError;
use programs::ledger::{BLOCK, Writer};
use programs::storage::Server;
use programs::{Ledger, Loss};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tempfile::TempDir;

/// Connections that write, each to blocks of its own.
const WRITERS: u16 = 3;
const BLOCKS: usize = 1024;
const DEPTH: u16 = 16;

fn start(folder: &TempDir, options: &str) -> Server {
    let disk = folder.path().join("disk").display().to_string();
    let size = usize::from(WRITERS) * BLOCKS * BLOCK;
    Server::start(folder.path(), &format!("{disk} --size {size} {options}")).expect("a server")
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Writes from all connections, until the server is killed after so many commands.
fn load(server: &mut Server, ledgers: &mut [Ledger], after: u64, seed: u64) {
    let (_client, mut queues) = server.connect(WRITERS, DEPTH);
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
                assert!(matches!(ended, Err(HostError::Io(_) | HostError::Terminated(None))), "{ended:?}");
            });
        }
        while completed.load(Ordering::Relaxed) < after {
            std::thread::sleep(Duration::from_micros(50));
        }
        server.kill();
    });
}

fn crash_and_look(options: &str) {
    let (crashes, seed) = (number("ROCKERY_TEST_CRASHES", 6), number("ROCKERY_TEST_SEED", 1));
    let folder = TempDir::new().expect("a folder");
    let first_blocks = (0..u64::from(WRITERS)).map(|writer| writer * BLOCKS as u64);
    let mut ledgers: Vec<Ledger> = first_blocks.map(|first| Ledger::new(seed, first, BLOCKS)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut server = start(&folder, options);
    for crash in 0..crashes {
        let after = u64::from(random.next_u32() % 1500);
        load(&mut server, &mut ledgers, after, random.next_u64());
        server = start(&folder, options);
        let (_client, mut queues) = server.connect(WRITERS, DEPTH);
        for (ledger, queue) in ledgers.iter_mut().zip(&mut queues) {
            let wrong = ledger.check(queue, 1, Loss::Process).expect("it is read");
            assert!(wrong.is_empty(), "crash {crash} of seed {seed}, after {after} commands: {wrong:?}");
        }
    }
}

#[test]
fn a_killed_target_has_all_that_completed() {
    crash_and_look("");
}

#[test]
fn a_killed_target_has_all_that_completed_with_the_page_cache() {
    crash_and_look("--cached");
}
