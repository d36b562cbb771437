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
        let mut process = place.start_line(&line);
        process.expect_output("listening on ", SECONDS);
        Self { process, control }
    }

    fn connections(&self, place: &Namespace) -> usize {
        let line = format!(
            "{} serve status --control {}",
            Rockery::built().word(),
            self.control
        );
        let mut asked = place.start_line(&line);
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

/// A gateway at one end of a pair, with a dial there and one at the other end.
struct FloodedGateway {
    gateway: Smb,
    _dials: [Smb; 2],
    _samba: Samba,
    pair: Pair,
    folder: TempDir,
}

const DIAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2445);

impl FloodedGateway {
    fn new() -> Self {
        let pair = Pair::new(9000).expect("a pair");
        let folder = TempDir::new().expect("a folder");
        let samba = Samba::within(&pair.left, 1445, &[]).expect("Samba starts");
        let server = SocketAddr::new(pair.left.address(), 445);
        let words = format!("gateway --rdma {server} --server {}", samba.address());
        let gateway = Smb::start(&pair.left, &folder, "gateway", &words);
        let words = format!("dial --listen {DIAL} --server {server}");
        let dials = [(&pair.left, "near"), (&pair.right, "far")]
            .map(|(place, name)| Smb::start(place, &folder, name, &words));
        Self {
            gateway,
            _dials: dials,
            _samba: samba,
            pair,
            folder,
        }
    }

    /// Whether a client of the gateway's own address is served.
    fn serves_near(&self) -> bool {
        is_served(&self.pair.left, &self.folder, DIAL)
    }

    /// Whether a client of the other address is served, from which the flood comes.
    fn serves_far(&self) -> bool {
        is_served(&self.pair.right, &self.folder, DIAL)
    }

    fn connections(&self) -> usize {
        self.gateway.connections(&self.pair.left)
    }

    /// The process that opens silent connections.
    fn flood(&self, probe: &Probe) -> Process {
        self.pair.right.start_line(&format!(
            "{} run -- {} {} 445 {CONNECTIONS}",
            Rockery::built().word(),
            probe.path().display(),
            self.pair.left.address()
        ))
    }
}

/// The most that was seen during a flood.
#[derive(Default)]
struct Most {
    descriptors: usize,
    connections: usize,
    /// A client of another address was served beside as many connections as one address may have.
    has_served_beside: bool,
}

/// Watches the gateway until the flood has opened all its connections.
fn watch(place: &FloodedGateway, flood: &mut Process) -> Most {
    let mut most = Most::default();
    let is_over = until(SECONDS, || {
        most.descriptors = most.descriptors.max(descriptors(&place.gateway.process));
        let count = place.connections();
        most.connections = most.connections.max(count);
        if count == ADDRESS_MAX && !most.has_served_beside {
            most.has_served_beside = place.serves_near();
            assert!(most.has_served_beside, "a client of another address");
        }
        Ok(flood.output()?.contains("rejected") || flood.finished()?.is_some())
    });
    assert!(is_over.expect("its output"), "{:?}", flood.output());
    most
}

/// As many connections as one address may have were established, and the others were rejected.
fn expect_rejections(flood: &mut Process) {
    let said = flood.output().expect("its output");
    assert!(said.contains("established "), "{said}");
    let numbers: Vec<usize> = said
        .split(|it: char| !it.is_ascii_digit())
        .flat_map(str::parse)
        .collect();
    let [established, rejected] = numbers[..] else {
        panic!("{said}")
    };
    assert_eq!(established + rejected, CONNECTIONS, "{said}");
    assert!(established >= ADDRESS_MAX && rejected > 0, "{said}");
}

#[test]
fn silent_connections_cost_little_and_clients_are_served() {
    let place = FloodedGateway::new();
    let process = &place.gateway.process;
    // The resources for each peer process, such as its shared memory, are there before.
    assert!(
        place.serves_far() && place.serves_near(),
        "before the flood"
    );
    assert!(until(SECONDS, || Ok(place.connections() == 0)).expect("it answers"));
    let files = open_files(process);
    let memory_before = memory(process, "VmRSS");

    let probe = Probe::compile_with("cc", "idle_connections", &["-lrdmacm", "-libverbs"])
        .expect("a compiler");
    let mut flood = place.flood(&probe);
    let most = watch(&place, &mut flood);
    expect_rejections(&mut flood);
    assert!(
        most.has_served_beside,
        "at most {} of the silent connections at once",
        most.connections
    );
    // One more is the client of the other address.
    assert!(
        most.connections <= ADDRESS_MAX + 1,
        "{} connections at once",
        most.connections
    );
    let peak = memory(process, "VmHWM");
    assert!(
        peak < memory_before + MEMORY_MAX,
        "{memory_before} bytes became {peak}"
    );
    assert!(
        most.descriptors < files.len() + DESCRIPTORS_MAX,
        "{} descriptors became {}",
        files.len(),
        most.descriptors
    );

    // The silent ones have 5 s to negotiate: then a client of their address is served, while their process
    // still has its ends of the connections.
    let served = until(SECONDS, || Ok(place.serves_far()));
    assert!(
        served.expect("smbclient ends"),
        "a client of the flood's address"
    );
    flood.kill().expect("it is ours");
    let is_released = until(SECONDS, || {
        let are_closed = descriptors(process) <= files.len() + DESCRIPTORS_LEFT;
        Ok(are_closed && place.connections() == 0)
    });
    let (now, count) = (open_files(process), place.connections());
    assert!(
        is_released.expect("it runs"),
        "{count} connections; {files:#?} became {now:#?}"
    );
}
