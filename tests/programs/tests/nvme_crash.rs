//! A target that dies by SIGKILL under load, again and again: what it said is written is there when another
//! takes its place. `ROCKERY_TEST_CRASHES` says how often, `ROCKERY_TEST_SEED` which.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nvme::host::{Client, HostError, Options, Transport};
use nvme::{Nqn, host};
use programs::ledger::{BLOCK, Writer};
use programs::{Ledger, Loss, Rockery};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tempfile::TempDir;

const NQN: &str = "nqn.2024-01.org.example:disk";
/// Connections that write, each to blocks of its own.
const WRITERS: u64 = 3;
const BLOCKS: usize = 1024;
const DEPTH: u16 = 16;

/// A server, killed when it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(folder: &TempDir, options: &str) -> Self {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let size = WRITERS as usize * BLOCKS * BLOCK;
        let words = format!(
            "serve nvme {} --size {size} --subsystem {NQN} --listen 127.0.0.1:0 --control {} {options}",
            path("disk"),
            path("control"),
        );
        let mut command = Command::new(Rockery::built().path());
        command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a server");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let listens = lines.filter_map(|line| line.strip_prefix("listening on ")?.parse().ok()).next();
        Self { child, address: listens.expect("it listens") }
    }

    fn connect(&self) -> (Client, Vec<host::Queue>) {
        let name = "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5";
        let host: Nqn = name.parse().expect("a name");
        let host_id = host.to_host_id();
        let options = Options {
            transport: Transport::Tcp,
            host,
            host_id,
            digests: Default::default(),
            congestion: None,
        };
        let nqn = NQN.parse().expect("a name");
        let mut client = Client::connect(self.address, &nqn, &options).expect("it answers");
        let queues = client.queues(WRITERS as u16, DEPTH).expect("queues");
        (client, queues)
    }

    /// Kills it, and waits until nothing of it is left.
    fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Writes from all connections, until the server is killed after so many commands.
fn load(server: &mut Server, ledgers: &mut [Ledger], after: u64, seed: u64) {
    let (_client, mut queues) = server.connect();
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
    let mut ledgers: Vec<Ledger> =
        (0..WRITERS).map(|it| Ledger::new(seed, it * BLOCKS as u64, BLOCKS)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut server = Server::start(&folder, options);
    for crash in 0..crashes {
        let after = u64::from(random.next_u32() % 1500);
        load(&mut server, &mut ledgers, after, random.next_u64());
        server = Server::start(&folder, options);
        let (_client, mut queues) = server.connect();
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
