//! An NVMe/RDMA host that violates the protocol while another host uses its disk: the result of each
//! violation, and that the other host's commands succeed.

use programs::namespace::Process;
use programs::{Job, Machine, Pair, Rockery};
use tempfile::TempDir;

const OWN: &str = "nqn.2024-01.org.example:own";
const OTHERS: &str = "nqn.2024-01.org.example:others";
const SECONDS: u64 = 120;

/// A status, or the connection's end; with receives of its own, and with receives that are shared.
const EXPECTED: &str = include_str!("protocol_violations.expected");

/// A server with a subsystem for the host that violates the protocol, and one for another host.
struct SharedTarget {
    server: Process,
    pair: Pair,
    folder: TempDir,
}

impl SharedTarget {
    /// Starts the server, with these lines about the RDMA port.
    fn new(lines: &str) -> Self {
        let pair = Pair::new(9000).expect("a pair");
        let folder = TempDir::new().expect("a folder");
        let address = pair.left.address();
        let text = format!(
            "[[subsystem]]\nnqn = \"{OWN}\"\n[[subsystem.namespace]]\nid = 1\nmemory = \"4MiB\"\n\
             [[subsystem]]\nnqn = \"{OTHERS}\"\n[[subsystem.namespace]]\nid = 1\nmemory = \"16MiB\"\n\
             [[port]]\naddress = \"{address}:4420\"\n\
             [[port]]\ntransport = \"rdma\"\naddress = \"{address}:4420\"\n{lines}"
        );
        let (config, control) = (folder.path().join("config"), folder.path().join("control"));
        std::fs::write(&config, text).expect("a file");
        // No connection is closed by a timeout: those that are refused are refused by a limit.
        let server = pair.left.start_line(&format!(
            "{} serve nvme --config {} --control {} --connect-timeout 600",
            rockery(),
            config.display(),
            control.display()
        ));
        pair.left
            .wait_for_listener(4420, SECONDS)
            .expect("it listens");
        Self {
            server,
            pair,
            folder,
        }
    }

    /// Starts a line of shell at the hosts' end.
    fn start(&self, line: &str) -> Process {
        self.pair
            .right
            .start_plain(&["sh", "-c", line])
            .expect("it starts")
    }

    fn shell(&self, line: &str) -> String {
        let mut job = self.start(line);
        job.wait(SECONDS).expect("in time").expect_success().output
    }
}

fn rockery() -> String {
    Rockery::built().path().display().to_string()
}

#[test]
fn protocol_violations_over_rdma_affect_no_other_host() {
    let (rockery, program) = (rockery(), env!("CARGO_BIN_EXE_protocol_violations"));
    for lines in ["", "shared-receives = 128\n"] {
        let mut place = SharedTarget::new(lines);
        let address = place.pair.left.address();
        let file = place.folder.path().join("data");
        std::fs::write(&file, vec![0x5a; 8 << 20]).expect("a file");
        let data = file.display();
        let to = format!("{address}:4420 --transport rdma --subsystem {OTHERS}");
        place.shell(&format!("{rockery} nvme write {to} <{data}"));
        // The other host reads during all of this.
        let mut other = place.start(&format!(
            "exec {rockery} nvme bench {to} --job read:128k:4 --seconds 600 2>&1"
        ));
        let said = place.shell(&format!(
            "{rockery} run -- {program} {address}:4420 {OWN} 2>&1"
        ));
        assert_eq!(said, EXPECTED, "{lines}");
        for process in [&mut other, &mut place.server] {
            assert!(
                process.finished().expect("it is ours").is_none(),
                "{:?}",
                process.output()
            );
        }
        place.shell(&format!(
            "{rockery} nvme read {to} --blocks 2048 | cmp - {data}"
        ));
        other.kill().expect("it is ours");
        place.server.kill().expect("it is ours");
    }
}
