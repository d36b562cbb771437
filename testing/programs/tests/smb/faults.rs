//! Each party of SMB through SMB Direct is killed under load: the others report that, hang nowhere, keep
//! nothing, and serve on.

use programs::machine::until;
use programs::namespace::Process;
use programs::samba::{SHARE, smbclient};
use programs::{Job, SmbChain};

/// How long anything may take. A peer whose process is killed is noticed by its connection's end at once; the
/// bound is that of the keepalive, 120 s and 5 s, which would notice it otherwise.
const SECONDS: u64 = 150;

/// Requests over memory windows before the kill.
const REQUESTS: u64 = 100;
const UNSIGNED: &str = "--option=client signing=disabled";

/// The party that is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Party {
    Client,
    Dial,
    Gateway,
    Samba,
}

/// The load of the client meanwhile, over memory windows (Channel 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    Reads,
    Writes,
}

/// The resources that a process holds: open descriptors, and mappings of shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    descriptors: usize,
    shared: usize,
}

impl Held {
    fn by(id: u32) -> Self {
        let descriptors = std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count);
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
        let is_shared = |line: &&str| {
            line.split_whitespace()
                .nth(1)
                .is_some_and(|rights| rights.ends_with('s'))
        };
        Self {
            descriptors,
            shared: maps.lines().filter(is_shared).count(),
        }
    }

    /// Whether this is no more than `before`, with a little room for what an agent or a log opens meanwhile:
    /// a connection that is left holds more.
    fn is_within(self, before: Self) -> bool {
        self.descriptors <= before.descriptors + 2 && self.shared <= before.shared + 2
    }
}

/// The connections whose end a log reports.
fn ends(log: &str) -> usize {
    log.matches("INFO disconnected ").count() + log.matches("WARN connection ended ").count()
}

/// A chain with a client under load, and what its servers held and reported before.
struct Loaded {
    client: Process,
    chain: SmbChain,
    /// Samba's processes without a client.
    idle_processes: usize,
    /// What dial and gateway held without a client.
    held: [Held; 2],
    /// Connections whose end dial and gateway had reported.
    ended: [usize; 2],
    _folder: tempfile::TempDir,
}

impl Loaded {
    fn new(load: Load) -> Self {
        let mut chain = SmbChain::new();
        chain.there_and_back(&[UNSIGNED]);
        let idle_processes = chain.samba.processes().len();
        let folder = tempfile::TempDir::new().expect("a folder");
        let (large, copy) = (folder.path().join("large"), folder.path().join("copy"));
        std::fs::write(&large, vec![0x5a; 64 << 20]).expect("room");
        let put = format!("put {} large", large.display());
        chain.smbclient(&[UNSIGNED], &put).expect_success();
        chain.wait_until_idle();
        let held = held_by_servers(&chain);
        let ended =
            [&mut chain.dial, &mut chain.gateway].map(|it| ends(&it.output().expect("its log")));
        let commands = match load {
            Load::Reads => format!("get large {}", copy.display()),
            Load::Writes => put,
        };
        let client = loading_client(&chain, load, &commands);
        let loaded = Self {
            client,
            chain,
            idle_processes,
            held,
            ended,
            _folder: folder,
        };
        // Otherwise what is compared at the end would not show a connection that is left.
        let under_load = held_by_servers(&loaded.chain);
        let is_more = |(now, before): (&Held, &Held)| !now.is_within(*before);
        assert!(
            under_load.iter().zip(&held).all(is_more),
            "dial and gateway held {held:?}, and under load {under_load:?}"
        );
        loaded
    }

    /// Kills a party; the client reports an error, and the others log that the connection has ended.
    fn kill(&mut self, party: Party) {
        let chain = &mut self.chain;
        match party {
            Party::Client => self.client.kill().expect("it is ours"),
            Party::Dial => chain.dial.kill().expect("it is ours"),
            Party::Gateway => chain.gateway.kill().expect("it is ours"),
            Party::Samba => chain.samba.kill().expect("it is ours"),
        }
        let ended = self.client.wait(SECONDS).expect("smbclient ends");
        assert!(
            !ended.succeeded(),
            "{party:?} was killed, and smbclient reports no error"
        );
        for (process, ended, is_killed) in [
            (&mut chain.dial, self.ended[0], party == Party::Dial),
            (&mut chain.gateway, self.ended[1], party == Party::Gateway),
        ] {
            let reports = until(
                SECONDS,
                || Ok(is_killed || ends(&process.output()?) > ended),
            );
            assert!(
                reports.expect("its log"),
                "{party:?} was killed: {:?}",
                process.output()
            );
        }
    }

    fn restart(&mut self, party: Party) {
        match party {
            Party::Client => {}
            Party::Dial => self.chain.restart_dial(),
            Party::Gateway => self.chain.restart_gateway(),
            Party::Samba => self.chain.restart_samba(),
        }
    }

    /// The connection is gone everywhere, clients are served, and dial and gateway hold what they held.
    fn expect_nothing_left(&self, party: Party) {
        let chain = &self.chain;
        chain.wait_until_idle();
        // Samba's process of the connection ends when the gateway closes it.
        let gone = || Ok(chain.samba.processes().len() <= self.idle_processes);
        assert!(
            until(SECONDS, gone).expect("no error"),
            "{party:?}: Samba still has a connection"
        );
        chain.there_and_back(&[UNSIGNED]);
        let is_within = |(now, before): (&Held, &Held)| now.is_within(*before);
        let is_back = || Ok(held_by_servers(chain).iter().zip(&self.held).all(is_within));
        assert!(
            until(SECONDS, is_back).expect("no error"),
            "{party:?}: dial and gateway held {:?}, now {:?}",
            self.held,
            held_by_servers(chain)
        );
    }
}

/// What dial and gateway hold.
fn held_by_servers(chain: &SmbChain) -> [Held; 2] {
    [Held::by(chain.dial.id()), Held::by(chain.gateway.id())]
}

/// Starts smbclient, which repeats its commands, and waits until it has made [`REQUESTS`].
fn loading_client(chain: &SmbChain, load: Load, commands: &str) -> Process {
    let (moved, invalidated) = (chain.moved("dial"), chain.invalidated()[1]);
    let repeated = vec![commands; 1000].join("; ");
    let argv = smbclient(chain.address(), SHARE, &[UNSIGNED], &repeated);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut client = chain
        .namespace
        .start_plain(&argv)
        .expect("smbclient starts");
    let which = usize::from(load == Load::Writes);
    let is_loaded = || {
        let uses_windows = chain.invalidated()[1] > invalidated + REQUESTS;
        Ok(uses_windows && chain.moved("dial")[which] > moved[which] + REQUESTS)
    };
    assert!(
        until(SECONDS, is_loaded).expect("no error"),
        "no load: {:?}",
        client.output()
    );
    client
}

fn kill_under_load(party: Party, load: Load) {
    let mut loaded = Loaded::new(load);
    loaded.kill(party);
    loaded.restart(party);
    loaded.expect_nothing_left(party);
}

#[test]
fn a_killed_client_leaves_nothing() {
    for load in [Load::Reads, Load::Writes] {
        kill_under_load(Party::Client, load);
    }
}

#[test]
fn a_killed_dial_leaves_nothing() {
    for load in [Load::Reads, Load::Writes] {
        kill_under_load(Party::Dial, load);
    }
}

#[test]
fn a_killed_gateway_leaves_nothing() {
    for load in [Load::Reads, Load::Writes] {
        kill_under_load(Party::Gateway, load);
    }
}

#[test]
fn a_killed_samba_leaves_nothing() {
    for load in [Load::Reads, Load::Writes] {
        kill_under_load(Party::Samba, load);
    }
}

/// A session that is silent for `ROCKERY_TEST_SMB_IDLE` seconds, 2 if that is not set, is still there. After
/// 120 both ends request a message of each other, and end connections that give none.
#[test]
fn a_silent_session_stays() {
    let chain = SmbChain::new();
    let seconds: u64 =
        std::env::var("ROCKERY_TEST_SMB_IDLE").map_or(2, |it| it.parse().expect("a number"));
    let folder = tempfile::TempDir::new().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::write(&from, vec![7; 100_000]).unwrap();
    // smbclient runs `!` only in commands of its standard input, and sends nothing meanwhile.
    let client = smbclient(chain.address(), SHARE, &[], "");
    let client = client[..client.len() - 2].join(" ");
    let line = format!(
        "printf '%s\\n' 'put {} file' '!sleep {seconds} && echo slept' 'get file {}' | {client}",
        from.display(),
        to.display()
    );
    let argv = ["sh", "-c", &line].map(str::to_owned);
    let done = programs::samba::run(&chain.namespace, &argv, seconds + SECONDS)
        .unwrap()
        .expect_success();
    assert!(done.output.contains("slept"), "{}", done.output);
    assert!(!done.output.contains("NT_STATUS"), "{}", done.output);
    assert_eq!(std::fs::read(&to).unwrap(), vec![7; 100_000]);
}
