//! Buffer descriptors that name memory which is not there: a token of no memory, an offset outside of it, a
//! last byte outside of it. The RDMA request fails with a remote access error. The connection ends at both
//! sides with a line in their logs, and nothing of it is left; other connections go on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use programs::machine::until;
use programs::namespace::Process;
use programs::samba::{self, SHARE, smbclient};
use programs::{Job, Rockery, SmbChain};
use tempfile::TempDir;

/// How long anything may take on a busy machine.
const SECONDS: u64 = 120;
const UNSIGNED: &str = "--option=client signing=disabled";
/// The status of a work request to memory that the peer has not opened (IBV_WC_REM_ACCESS_ERR).
const REFUSED: &str = "an RDMA request has failed with verbs status 10";
/// Requests whose descriptors are right, before those that are wrong.
const RIGHT: u32 = 5;
/// A file of 32 requests.
const FILE_BYTES: usize = 4 << 20;

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Starts the program that names wrong memory, and waits until it listens.
fn start(
    chain: &SmbChain,
    role: &str,
    listen: SocketAddr,
    server: SocketAddr,
    wrong: &str,
) -> Process {
    let (rockery, program) = (Rockery::built(), env!("CARGO_BIN_EXE_smb_wrong_keys"));
    let rockery = rockery.word();
    let line = format!("{rockery} run -- {program} {role} {listen} {server} {wrong} {RIGHT}");
    let argv: Vec<&str> = line.split_whitespace().collect();
    let mut process = chain.namespace.start_plain(&argv).expect("it starts");
    process.expect_output("listening", SECONDS);
    process
}

/// A file on this host, and what smbclient does: it writes one there, or reads another one, `file`.
fn copies(folder: &TempDir) -> [String; 2] {
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::write(&from, vec![0x5a; FILE_BYTES]).expect("our folder");
    [
        format!("put {} written", from.display()),
        format!("get file {}", to.display()),
    ]
}

fn times(log: &str, text: &str) -> usize {
    log.matches(text).count()
}

/// Copies once more than `RIGHT` requests allow: the copy fails, and the program that named wrong memory
/// prints why it ended.
fn copy_fails(chain: &SmbChain, through: SocketAddr, commands: &str, mut wrong: Process) -> String {
    let argv = smbclient(through, SHARE, &[UNSIGNED], commands);
    let copied = samba::run(&chain.namespace, &argv, SECONDS).expect("smbclient ends");
    assert!(
        copied.output.contains("NT_STATUS"),
        "{commands}: {}",
        copied.output
    );
    let said = wrong.wait(SECONDS).expect("it ends").output;
    assert!(said.contains("wrong") && said.contains("ended: "), "{said}");
    said
}

#[test]
fn a_gateway_ends_connections_whose_descriptors_are_wrong() {
    let mut chain = SmbChain::new();
    let folder = TempDir::new().expect("a folder");
    let copies = copies(&folder);
    // The file to read, and what stays of a first client.
    chain
        .smbclient(&[UNSIGNED], &copies[0].replace(" written", " file"))
        .expect_success();
    // Another client is served during all of this: 64 MiB a thousand times take longer.
    let large = folder.path().join("large");
    std::fs::File::create(&large)
        .and_then(|file| file.set_len(64 << 20))
        .expect("our folder");
    let other = format!("put {} other", large.display());
    let argv = smbclient(
        chain.address(),
        SHARE,
        &[UNSIGNED],
        &vec![other.as_str(); 1000].join(";"),
    );
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut beside = chain
        .namespace
        .start_plain(&argv)
        .expect("smbclient starts");
    assert!(until(SECONDS, || Ok(chain.connections("gateway") == 1)).expect("it answers"));
    for wrong in ["token", "offset", "end"] {
        for commands in &copies {
            let before = times(&chain.gateway.output().expect("its log"), REFUSED);
            let dial = start(&chain, "dial", loopback(3445), loopback(445), wrong);
            copy_fails(&chain, loopback(3445), commands, dial);
            let is_alone =
                until(SECONDS, || Ok(chain.connections("gateway") == 1)).expect("it answers");
            let log = chain.gateway.output().expect("its log");
            assert!(
                is_alone && times(&log, REFUSED) == before + 1,
                "{wrong}, {commands}: {log}"
            );
        }
    }
    let moved = chain.moved("gateway")[1];
    assert!(
        until(SECONDS, || Ok(chain.moved("gateway")[1] > moved)).expect("it answers"),
        "no more load"
    );
    assert!(
        beside.finished().expect("it is ours").is_none(),
        "{:?}",
        beside.output()
    );
    beside.kill().expect("it is ours");
    chain.wait_until_idle();
    chain.there_and_back(&[UNSIGNED]);
}

#[test]
fn a_dial_ends_connections_whose_server_accesses_wrong_memory() {
    let chain = SmbChain::new();
    let folder = TempDir::new().expect("a folder");
    let copies = copies(&folder);
    chain
        .smbclient(&[UNSIGNED], &copies[0].replace(" written", " file"))
        .expect_success();
    let mut dial = chain.another_dial(loopback(3445), loopback(446));
    let descriptors =
        |id: u32| std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, |entries| entries.count());
    let mut before = None;
    for wrong in ["token", "offset", "end"] {
        for commands in &copies {
            let ended = times(&dial.output().expect("its log"), "connection ended");
            let gateway = start(
                &chain,
                "gateway",
                loopback(446),
                chain.samba.address(),
                wrong,
            );
            let said = copy_fails(&chain, loopback(3445), commands, gateway);
            assert!(said.contains(REFUSED), "{wrong}, {commands}: {said}");
            let reports = until(SECONDS, || {
                Ok(times(&dial.output()?, "connection ended") > ended)
            })
            .expect("its log");
            assert!(
                reports,
                "{wrong}, {commands}: {}",
                dial.output().expect("its log")
            );
            // The first one leaves what is kept for the life of the process.
            let most = *before.get_or_insert_with(|| descriptors(dial.id()));
            let is_back = until(SECONDS, || Ok(descriptors(dial.id()) <= most)).expect("no error");
            assert!(
                is_back,
                "{most} descriptors became {}",
                descriptors(dial.id())
            );
        }
    }
    let log = dial.output().expect("its log");
    assert!(dial.finished().expect("it is ours").is_none(), "{log}");
}
