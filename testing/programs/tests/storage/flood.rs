//! Floods of CM connection requests, whose source addresses can be forged: the memory and descriptors that
//! they cost a target, and leaks. Hosts that post no receives for responses.

use programs::machine::until;
use programs::namespace::Process;
use programs::probe::Probe;
use programs::storage::NQN;
use programs::{Job, Machine, Namespace, Pair, Rockery};
use tempfile::TempDir;

const SECONDS: u64 = 60;
/// Requests that are never confirmed (no RTU): far more than may be half-open at once.
const REQUESTS: usize = 600;
/// The most memory in bytes, and descriptors, that half-open connections may take.
const MEMORY_MAX: u64 = 128 << 20;
const DESCRIPTORS_MAX: usize = 4 * nvme::limits::HALF_OPEN_MAX;
/// The most that may be left of them: the allocator keeps some memory.
const MEMORY_LEFT: u64 = 32 << 20;
const DESCRIPTORS_LEFT: usize = 8;

/// What a process holds.
#[derive(Clone, Copy, Default, Debug)]
struct Held {
    /// Resident memory in bytes.
    memory: u64,
    descriptors: usize,
}

impl Held {
    fn by(process: &Process) -> Self {
        let folder = format!("/proc/{}", process.id());
        let status = std::fs::read_to_string(format!("{folder}/status")).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("a process has memory");
        let kib: u64 = line
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number");
        let descriptors = std::fs::read_dir(format!("{folder}/fd"))
            .expect("it runs")
            .count();
        Self {
            memory: kib << 10,
            descriptors,
        }
    }

    /// The larger values of both.
    fn or_more(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }
}

/// A target that serves RDMA at one end of a pair.
struct RdmaTarget {
    process: Process,
    pair: Pair,
    folder: TempDir,
}

impl RdmaTarget {
    fn start(words: &str) -> Self {
        let pair = Pair::new(9000).expect("a pair");
        let folder = TempDir::new().expect("a folder");
        let address = pair.left.address();
        let line = format!(
            "{} serve nvme --memory 16M --subsystem {NQN} --listen {address}:4420 \
             --rdma {address}:4420 --control {} {words}",
            rockery(),
            folder.path().join("control").display()
        );
        let process = pair.left.start_line(&line);
        pair.left
            .wait_for_listener(4420, SECONDS)
            .expect("it listens");
        Self {
            process,
            pair,
            folder,
        }
    }

    /// Words that name the subsystem to our host.
    fn subsystem(&self) -> String {
        let address = self.pair.left.address();
        format!("{address}:4420 --transport rdma --subsystem {NQN}")
    }

    /// A host of the target's own address connects.
    fn connect(&self) {
        let line = format!("{} nvme id-ctrl {}", rockery(), self.subsystem());
        let mut job = self.pair.left.start_line(&line);
        job.wait(SECONDS).expect("in time").expect_success();
    }

    /// The program that sends connection requests without RTU, at the other end of the pair.
    fn flood(&self, probe: &Probe) -> Process {
        let line = format!(
            "{} run -- {} {} 4420 {REQUESTS}",
            rockery(),
            probe.path().display(),
            self.pair.left.address()
        );
        self.pair.right.start_line(&line)
    }

    fn metrics(&self) -> String {
        let control = self.folder.path().join("control");
        let line = format!(
            "{} serve metrics --control {}",
            rockery(),
            control.display()
        );
        let mut job = self.pair.left.start_line(&line);
        job.wait(SECONDS).expect("in time").expect_success().output
    }
}

fn rockery() -> String {
    Rockery::built().path().display().to_string()
}

fn requests_without_rtu(words: &str) {
    let target = RdmaTarget::start(&format!("--connect-timeout 3 {words}"));
    // The resources that one connection leaves, such as shared receives, are there before.
    target.connect();
    let before = Held::by(&target.process);
    let probe =
        Probe::compile_with("cc", "half-open", &["-lrdmacm", "-libverbs"]).expect("a compiler");
    let mut flood = target.flood(&probe);
    expect_bounded_growth(&target, &mut flood, before);
    // Another host gets in while there are as many as there may be.
    target.connect();
    flood.kill().expect("it is ours");
    let mut left = Held::default();
    let is_released = until(SECONDS, || {
        left = Held::by(&target.process);
        Ok(left.memory <= before.memory + MEMORY_LEFT
            && left.descriptors <= before.descriptors + DESCRIPTORS_LEFT)
    });
    assert!(is_released.expect("it runs"), "{before:?} became {left:?}");
    target.connect();
}

/// Watches the target until the flood has sent all its requests.
fn expect_bounded_growth(target: &RdmaTarget, flood: &mut Process, before: Held) {
    let mut most = Held::default();
    let is_over = until(SECONDS, || {
        most = most.or_more(Held::by(&target.process));
        Ok(flood.output()?.contains("accepted"))
    });
    assert!(is_over.expect("its output"), "{:?}", flood.output());
    let said = flood.output().expect("its output");
    let accepted = said
        .trim()
        .rsplit(' ')
        .next()
        .and_then(|count| count.parse::<usize>().ok());
    assert!(
        accepted.is_some_and(|count| count > nvme::limits::HALF_OPEN_MAX),
        "{said}"
    );
    assert!(
        most.memory < before.memory + MEMORY_MAX,
        "{before:?} became {most:?}"
    );
    assert!(
        most.descriptors < before.descriptors + DESCRIPTORS_MAX,
        "{before:?} became {most:?}"
    );
}

#[test]
fn half_open_connections_are_few_and_forgotten() {
    requests_without_rtu("");
}

#[test]
fn half_open_connections_are_few_with_shared_receives() {
    requests_without_rtu("--shared-receives 4096");
}

/// Hosts that disconnect are not counted as broken connections.
#[test]
fn orderly_disconnections_are_counted_as_such() {
    const HOSTS: usize = 4;
    let target = RdmaTarget::start("");
    let line = format!(
        "{} nvme bench {} --job randread:4k:8x2 --seconds 0.1 --warm-up 0",
        rockery(),
        target.subsystem()
    );
    for place in [&target.pair.left, &target.pair.right] {
        for _ in 0..HOSTS {
            let mut job = place.start_line(&line);
            job.wait(SECONDS).expect("in time").expect_success();
        }
    }
    let count = |said: &str, reason: &str| {
        let label = format!("reason=\"{reason}\"}} ");
        said.lines()
            .find_map(|line| line.split_once(&label)?.1.parse::<usize>().ok())
    };
    // Each host had an admin queue and two more, which end with its controller where that is seen first.
    let is_counted = until(SECONDS, || {
        let said = target.metrics();
        let [closed, with_controller] =
            ["closed-by-host", "controller-gone"].map(|it| count(&said, it));
        Ok(closed
            .zip(with_controller)
            .is_some_and(|(one, other)| one + other == 2 * 3 * HOSTS))
    });
    let said = target.metrics();
    assert!(is_counted.expect("it answers"), "{said}");
    assert!(count(&said, "closed-by-host") >= Some(2 * HOSTS), "{said}");
    assert_eq!(count(&said, "broken"), Some(0), "{said}");
}

/// Hosts of one address whose queue pairs have no receives hold no more than the target's budget, do not
/// delay a host of another address, and are closed by the stall timer; then all memory is back.
#[test]
fn hosts_without_receives_share_one_budget_and_are_closed() {
    let alone = Namespace::with_rockery();
    let program = [env!("CARGO_BIN_EXE_rdma_overload")];
    let said = alone
        .run(&program, 4 * SECONDS)
        .expect("it runs")
        .expect_success()
        .output;
    assert_eq!(said, "within the budget: true\nstalled: 4\n");
}

/// A host that never issues RDMA READs requests none of the target's resources for them: the initiator depth
/// of its REQ is 0, and its responder resources are those that the target may use.
#[test]
fn our_host_announces_no_initiator_depth() {
    let pair = Pair::new(1500).expect("a pair");
    let probe =
        Probe::compile_with("cc", "requested", &["-lrdmacm", "-libverbs"]).expect("a compiler");
    let rockery = rockery();
    let listen = format!(
        "{rockery} run -- {} {}",
        probe.path().display(),
        pair.left.address()
    );
    let mut listener = pair.left.start_line(&listen);
    let left = || pair.left.call(&format!("{rockery} listeners"));
    assert!(
        until(SECONDS, || Ok(!left()?.is_empty())).expect("listeners"),
        "it does not listen"
    );
    let line = format!(
        "{rockery} nvme id-ctrl {}:7471 --transport rdma --subsystem {NQN}",
        pair.left.address()
    );
    let mut host = pair.right.start_line(&line);
    assert!(
        !host.wait(SECONDS).expect("in time").succeeded(),
        "it is rejected"
    );
    let said = listener
        .wait(SECONDS)
        .expect("in time")
        .expect_success()
        .output;
    // The passive side gets the values of the other side: its responder resources are our initiator depth.
    assert_eq!(said, "responder resources 0, initiator depth 16\n");
}
