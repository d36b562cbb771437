//! A thousand SMB Direct connections of one host that never negotiate: what they cost a gateway, and whether
//! clients are served beside them and after them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use programs::machine::until;
use programs::namespace::Process;
use programs::probe::Probe;
use programs::samba::{self, SHARE, smbclient};
use programs::{Job, Machine, Namespace, Pair, Rockery, Samba};
use tempfile::TempDir;

/// How long anything may take on a busy machine.
const SECONDS: u64 = 120;
const CONNECTIONS: usize = 1000;
/// Connections of one address without a session, at most (`rockery smb` has this limit).
const ADDRESS_MAX: usize = 128;
/// The most memory in bytes, and descriptors, that these and as many half-open ones may take.
const MEMORY_MAX: u64 = 96 << 20;
const DESCRIPTORS_MAX: usize = 8 * 2 * ADDRESS_MAX;
/// Descriptors that may be left: of a connection that ended this moment, and of the log.
const DESCRIPTORS_LEFT: usize = 4;

/// The line of `/proc/ID/status` with this name, in bytes.
fn memory(process: &Process, name: &str) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("a process has memory");
    let kib: u64 = line
        .trim_start_matches(':')
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number");
    kib << 10
}

/// The files of the descriptors of a process.
fn open_files(process: &Process) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", process.id()))
        .expect("it runs")
        .flatten();
    let mut all: Vec<String> = entries
        .filter_map(|it| Some(std::fs::read_link(it.path()).ok()?.display().to_string()))
        .collect();
    all.sort();
    all
}

fn descriptors(process: &Process) -> usize {
    open_files(process).len()
}

/// `rockery smb` with its control socket.
struct Smb {
    process: Process,
    control: String,
}

impl Smb {
    fn start(place: &Namespace, folder: &TempDir, name: &str, words: &str) -> Self {
        let control = folder.path().join(name).display().to_string();
        let line = format!(
            "{} smb {words} --control {control} --log info",
            Rockery::built().word()
        );
        let argv: Vec<&str> = line.split_whitespace().collect();
        let mut process = place.start_plain(&argv).expect("it starts");
        process.expect_output("listening on ", SECONDS);
        Self { process, control }
    }

    fn connections(&self, place: &Namespace) -> usize {
        let line = format!(
            "{} serve status --control {}",
            Rockery::built().word(),
            self.control
        );
        let argv: Vec<&str> = line.split_whitespace().collect();
        let mut asked = place.start_plain(&argv).expect("it starts");
        let answer = asked
            .wait(SECONDS)
            .expect("it ends")
            .expect_success()
            .output;
        let report: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        report["connections"].as_array().expect("a list").len()
    }
}

/// Writes and reads a file through a dial on loopback; returns whether that succeeded.
fn is_served(place: &Namespace, folder: &TempDir, dial: SocketAddr) -> bool {
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::write(&from, vec![7; 300_000]).expect("our folder");
    _ = std::fs::remove_file(&to);
    let commands = format!("put {} file; get file {}", from.display(), to.display());
    let done =
        samba::run(place, &smbclient(dial, SHARE, &[], &commands), SECONDS).expect("it ends");
    done.succeeded() && std::fs::read(&to).is_ok_and(|read| read == vec![7; 300_000])
}

#[test]
fn silent_connections_cost_little_and_clients_are_served() {
    let pair = Pair::new(9000).expect("a pair");
    let (left, right) = (&pair.left, &pair.right);
    let folder = TempDir::new().expect("a folder");
    let samba = Samba::within(left, 1445, &[]).expect("Samba starts");
    let server = SocketAddr::new(left.address(), 445);
    let dial = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2445);
    let words = format!("gateway --rdma {server} --server {}", samba.address());
    let gateway = Smb::start(left, &folder, "gateway", &words);
    let words = format!("dial --listen {dial} --server {server}");
    let _near = Smb::start(left, &folder, "near", &words);
    let _far = Smb::start(right, &folder, "far", &words);
    // The resources for each peer process, such as its shared memory, are there before.
    assert!(
        is_served(right, &folder, dial) && is_served(left, &folder, dial),
        "before the flood"
    );
    assert!(until(SECONDS, || Ok(gateway.connections(left) == 0)).expect("it answers"));
    let files = open_files(&gateway.process);
    let before = (memory(&gateway.process, "VmRSS"), files.len());

    let probe =
        Probe::compile_with("cc", "silent", &["-lrdmacm", "-libverbs"]).expect("a compiler");
    let line = format!(
        "{} run -- {} {} 445 {CONNECTIONS}",
        Rockery::built().word(),
        probe.path().display(),
        left.address()
    );
    let mut flood = right
        .start_plain(&line.split_whitespace().collect::<Vec<_>>())
        .expect("it starts");
    let (mut most, mut largest, mut beside) = (0, 0, false);
    let is_over = until(SECONDS, || {
        most = most.max(descriptors(&gateway.process));
        let count = gateway.connections(left);
        largest = largest.max(count);
        if count == ADDRESS_MAX && !beside {
            beside = is_served(left, &folder, dial);
            assert!(beside, "a client of another address");
        }
        Ok(flood.output()?.contains("rejected") || flood.finished()?.is_some())
    });
    let said = flood.output().expect("its output");
    assert!(
        is_over.expect("its output") && said.contains("established "),
        "{said}"
    );
    let numbers: Vec<usize> = said
        .split(|it: char| !it.is_ascii_digit())
        .flat_map(str::parse)
        .collect();
    let [established, rejected] = numbers[..] else {
        panic!("{said}")
    };
    assert_eq!(established + rejected, CONNECTIONS, "{said}");
    assert!(established >= ADDRESS_MAX && rejected > 0, "{said}");
    assert!(
        beside,
        "at most {largest} of the silent connections at once"
    );
    // One more is the client of the other address.
    assert!(largest <= ADDRESS_MAX + 1, "{largest} connections at once");
    let peak = memory(&gateway.process, "VmHWM");
    assert!(
        peak < before.0 + MEMORY_MAX,
        "{} bytes became {peak}",
        before.0
    );
    assert!(
        most < before.1 + DESCRIPTORS_MAX,
        "{} descriptors became {most}",
        before.1
    );

    // The silent ones have 5 s to negotiate: then a client of their address is served, while their process
    // still has its ends of the connections.
    let served = until(SECONDS, || Ok(is_served(right, &folder, dial)));
    assert!(
        served.expect("smbclient ends"),
        "a client of the flood's address"
    );
    flood.kill().expect("it is ours");
    let is_released = until(SECONDS, || {
        Ok(gateway.connections(left) == 0
            && descriptors(&gateway.process) <= before.1 + DESCRIPTORS_LEFT)
    });
    let (now, count) = (open_files(&gateway.process), gateway.connections(left));
    assert!(
        is_released.expect("it runs"),
        "{count} connections; {files:#?} became {now:#?}"
    );
}
