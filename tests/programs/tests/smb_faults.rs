//! Each party of SMB through SMB Direct is killed under load: the others report that, hang nowhere, keep
//! nothing, and serve on.

use programs::machine::until;
use programs::samba::{SHARE, smbclient};
use programs::{Job, SmbChain};

/// How long anything may take. A peer whose process is killed is noticed by its connection's end at once; the
/// bound is that of the keepalive, 120 s and 5 s, which would notice it otherwise.
const SECONDS: u64 = 150;

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Party {
    Client,
    Dial,
    Gateway,
    Samba,
}

/// The number of a process's open descriptors.
fn descriptors(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count)
}

fn kill_under_load(party: Party) {
    let mut chain = SmbChain::new();
    chain.there_and_back(&[]);
    let idle_processes = chain.samba.processes().len();
    let settled = |chain: &SmbChain| (descriptors(chain.dial.id()), descriptors(chain.gateway.id()));
    let before = settled(&chain);
    let folder = tempfile::TempDir::new().expect("a folder");
    let large = folder.path().join("large");
    std::fs::write(&large, vec![0x5a; 64 << 20]).expect("room");
    let put = format!("put {} large", large.display());
    let argv = smbclient(chain.address(), SHARE, &[], &vec![put.as_str(); 1000].join("; "));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let namespace = programs::Namespace::netns(&chain.namespace).to_owned();
    let mut client = std::process::Command::new("ip")
        .args(["netns", "exec", &namespace])
        .args(&argv)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("smbclient is installed");
    let written = chain.samba.share().join("large");
    let is_loaded = || Ok(written.metadata().is_ok_and(|it| it.len() > 1 << 20));
    assert!(until(SECONDS, is_loaded).expect("no error"), "no load");
    match party {
        Party::Client => client.kill().expect("it is ours"),
        Party::Dial => chain.dial.kill().expect("it is ours"),
        Party::Gateway => chain.gateway.kill().expect("it is ours"),
        Party::Samba => chain.samba.kill().expect("it is ours"),
    }
    let ended = until(SECONDS, || Ok(client.try_wait().is_ok_and(|it| it.is_some()))).expect("no error");
    assert!(ended, "{party:?} was killed, and smbclient does not end");
    let status = client.wait().expect("it is ours");
    assert!(!status.success(), "{party:?} was killed, and smbclient reports no error");
    match party {
        Party::Client => {}
        Party::Dial => chain.restart_dial(),
        Party::Gateway => chain.restart_gateway(),
        Party::Samba => chain.restart_samba(),
    }
    chain.wait_until_idle();
    // Samba's process of the connection ends when the gateway closes it.
    let gone = || Ok(chain.samba.processes().len() <= idle_processes);
    assert!(until(SECONDS, gone).expect("no error"), "{party:?}: Samba still has a connection");
    chain.there_and_back(&[]);
    // A little room for what an agent or a log opens meanwhile; a leak of a connection takes more.
    let back = || {
        let now = settled(&chain);
        Ok(now.0 <= before.0 + 2 && now.1 <= before.1 + 2)
    };
    let is_back = until(SECONDS, back).expect("no error");
    assert!(is_back, "{party:?}: descriptors of dial and gateway {before:?}, now {:?}", settled(&chain));
}

#[test]
fn a_killed_client_leaves_nothing() {
    kill_under_load(Party::Client);
}

#[test]
fn a_killed_dial_leaves_nothing() {
    kill_under_load(Party::Dial);
}

#[test]
fn a_killed_gateway_leaves_nothing() {
    kill_under_load(Party::Gateway);
}

#[test]
fn a_killed_samba_leaves_nothing() {
    kill_under_load(Party::Samba);
}

/// A session that is silent for `ROCKERY_TEST_SMB_IDLE` seconds, 2 if that is not set, is still there. After
/// 120 both ends ask each other for a message, and end connections that give none.
#[test]
fn a_silent_session_stays() {
    let chain = SmbChain::new();
    let seconds: u64 = std::env::var("ROCKERY_TEST_SMB_IDLE").map_or(2, |it| it.parse().expect("a number"));
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
    let done = programs::samba::run(&chain.namespace, &argv, seconds + SECONDS).unwrap().expect_success();
    assert!(done.output.contains("slept"), "{}", done.output);
    assert!(!done.output.contains("NT_STATUS"), "{}", done.output);
    assert_eq!(std::fs::read(&to).unwrap(), vec![7; 100_000]);
}
