//! An NVMe/RDMA host that violates the protocol while another host uses its disk: the result of each
//! violation, and that the other host's commands succeed.

use programs::{Job, Machine, Pair, Rockery};
use tempfile::TempDir;

const OWN: &str = "nqn.2024-01.org.example:own";
const OTHERS: &str = "nqn.2024-01.org.example:others";
const SECONDS: u64 = 120;

/// A status, or the connection's end; with receives of its own, and with receives that are shared.
const EXPECTED: &str = include_str!("protocol_violations.expected");

#[test]
fn protocol_violations_over_rdma_affect_no_other_host() {
    for words in ["", "shared-receives = 128\n"] {
        let pair = Pair::new(9000).expect("a pair");
        let folder = TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (address, rockery) = (
            pair.left.address(),
            Rockery::built().path().display().to_string(),
        );
        let config = format!(
            "[[subsystem]]\nnqn = \"{OWN}\"\n[[subsystem.namespace]]\nid = 1\nmemory = \"4MiB\"\n\
             [[subsystem]]\nnqn = \"{OTHERS}\"\n[[subsystem.namespace]]\nid = 1\nmemory = \"16MiB\"\n\
             [[port]]\naddress = \"{address}:4420\"\n\
             [[port]]\ntransport = \"rdma\"\naddress = \"{address}:4420\"\n{words}"
        );
        std::fs::write(path("config"), config).expect("a file");
        std::fs::write(path("data"), vec![0x5a; 8 << 20]).expect("a file");
        // No connection is closed by a timeout: those that are refused are refused by a limit.
        let control = path("control");
        let serve = [
            &rockery,
            "serve",
            "nvme",
            "--config",
            &path("config"),
            "--control",
            &control,
        ];
        let serve = [&serve[..], &["--connect-timeout", "600"]].concat();
        let mut server = pair.left.start_plain(&serve).expect("it starts");
        pair.left
            .wait_for_listener(4420, SECONDS)
            .expect("it listens");
        let shell = |line: &str| {
            let mut job = pair
                .right
                .start_plain(&["sh", "-c", line])
                .expect("it starts");
            job.wait(SECONDS).expect("in time").expect_success().output
        };
        let to = format!("{address}:4420 --transport rdma --subsystem {OTHERS}");
        shell(&format!("{rockery} nvme write {to} <{}", path("data")));
        // The other host reads during all of this.
        let bench = format!("exec {rockery} nvme bench {to} --job read:128k:4 --seconds 600 2>&1");
        let mut other = pair
            .right
            .start_plain(&["sh", "-c", &bench])
            .expect("it starts");
        let program = env!("CARGO_BIN_EXE_protocol_violations");
        let said = shell(&format!(
            "{rockery} run -- {program} {address}:4420 {OWN} 2>&1"
        ));
        assert_eq!(said, EXPECTED, "{words}");
        assert!(
            other.finished().expect("it is ours").is_none(),
            "{:?}",
            other.output()
        );
        assert!(
            server.finished().expect("it is ours").is_none(),
            "{:?}",
            server.output()
        );
        shell(&format!(
            "{rockery} nvme read {to} --blocks 2048 | cmp - {}",
            path("data")
        ));
        other.kill().expect("it is ours");
        server.kill().expect("it is ours");
    }
}
