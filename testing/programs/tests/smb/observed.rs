//! The tools of operators of an SMB gateway and dial: metrics, read by Prometheus' own library while files
//! are copied and compared with the copies; configuration files; other verbs libraries.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use programs::namespace::Process;
use programs::samba::{SHARE, smbclient};
use programs::{Job, Setup, SmbChain};

/// How long anything may take on a busy machine.
const SECONDS: u64 = 120;
/// A READ or WRITE of smbclient at most, which Samba's `smb2 max write` of the fixture is.
const REQUEST: u64 = 131_072;
/// Bytes of the file: whole requests, and one of more than 4 KiB, so that all of it goes by RDMA.
const BYTES: u64 = 40 * REQUEST + 5000;
/// How often the file is written, and read.
const COPIES: u64 = 8;
const UNSIGNED: &str = "--option=client signing=disabled";

/// Prints each sample as its name, its labels without the role, and its value.
const PARSER: &str = "
import sys
from prometheus_client.parser import text_string_to_metric_families as families
for family in families(sys.stdin.read()):
    assert family.documentation and family.type != 'unknown', family
    for sample in family.samples:
        assert sample.labels.pop('role') == sys.argv[1], sample
        labels = ','.join(f'{k}={v}' for k, v in sorted(sample.labels.items()))
        print(sample.name.removeprefix('rockery_smb_') + (':' + labels if labels else ''), int(sample.value))
";

/// The metrics of `gateway` or `dial`.
fn scrape(chain: &SmbChain, role: &str) -> BTreeMap<String, u64> {
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", PARSER, role])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let text = chain.metrics(role);
    python
        .stdin
        .take()
        .expect("a pipe")
        .write_all(text.as_bytes())
        .expect("it reads");
    let output = python.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "package python3-prometheus-client is needed\n{text}"
    );
    let output = String::from_utf8(output.stdout).expect("text");
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    output.lines().map(sample).collect()
}

#[test]
fn metrics_count_what_is_copied_while_it_is_copied() {
    let chain = SmbChain::new();
    for role in ["gateway", "dial"] {
        let idle = scrape(&chain, role);
        assert!(
            idle.len() >= 9 && idle.values().all(|value| *value == 0),
            "{role} {idle:?}"
        );
    }
    let mut copying = Copying::start(&chain);
    copying.watch();
    assert_eq!(
        std::fs::read(copying.file("to")).unwrap(),
        std::fs::read(copying.file("from")).unwrap()
    );
    chain.wait_until_idle();
    for role in ["gateway", "dial"] {
        expect_totals(&scrape(&chain, role), role);
    }
}

/// A client that writes and reads a file [`COPIES`] times. It stops half-way until the file `seen` is there.
struct Copying<'a> {
    chain: &'a SmbChain,
    client: Process,
    folder: tempfile::TempDir,
}

impl<'a> Copying<'a> {
    fn start(chain: &'a SmbChain) -> Self {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("from"), vec![0x5a; BYTES as usize]).expect("our folder");
        // smbclient runs `!` only in commands of its standard input.
        let half = format!("'put {} file' 'get file {}' ", path("from"), path("to"));
        let half = half.repeat(COPIES as usize / 2);
        let words = smbclient(chain.address(), SHARE, &[UNSIGNED], "");
        let words: Vec<String> = words[..words.len() - 2]
            .iter()
            .map(|word| format!("'{word}'"))
            .collect();
        let wait = format!("'!until [ -e {} ]; do sleep 0.1; done' ", path("seen"));
        let line = format!("printf '%s\\n' {half}{wait}{half} | {}", words.join(" "));
        let client = chain
            .namespace
            .start_plain(&["sh", "-c", &line])
            .expect("smbclient starts");
        Self {
            chain,
            client,
            folder,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Reads the metrics until the client has ended: no counter ever falls, and the connection and a part of
    /// the copies are seen in between.
    fn watch(&mut self) {
        let counters = [
            "rdma_bytes_total:operation=read",
            "rdma_bytes_total:operation=write",
        ];
        let (mut last, mut seen, mut partial) = (BTreeMap::new(), 0, 0);
        while self.client.finished().expect("its status").is_none() {
            for role in ["gateway", "dial"] {
                let now = scrape(self.chain, role);
                seen = seen.max(now["connections:session=yes"]);
                partial += u64::from((1..COPIES * BYTES).contains(&now[counters[0]]));
                for counter in counters {
                    let before = last.insert((role, counter), now[counter]).unwrap_or(0);
                    assert!(
                        before <= now[counter],
                        "{role} {counter}: {before}, then {}",
                        now[counter]
                    );
                }
            }
            if seen >= 1 && partial >= 1 {
                std::fs::write(self.file("seen"), []).expect("our folder");
            }
        }
        self.client
            .wait(SECONDS)
            .expect("it has ended")
            .expect_success();
        assert!(seen >= 1, "a connection with a session was shown");
        assert!(partial >= 1, "the copies were counted while they were made");
    }
}

/// The metrics of a server that has copied everything for one client.
fn expect_totals(done: &BTreeMap<String, u64>, role: &str) {
    for operation in ["read", "write"] {
        let value = |what: &str| done[&format!("rdma_{what}_total:operation={operation}")];
        assert_eq!(
            value("bytes"),
            COPIES * BYTES,
            "{role} {operation} {done:?}"
        );
        assert_eq!(
            value("requests"),
            COPIES * BYTES.div_ceil(REQUEST),
            "{role} {operation} {done:?}"
        );
    }
    let expected = [
        ("connections:session=yes", 0),
        ("connections:session=no", 0),
        ("ended_total", 1),
        ("refused_total", 0),
        ("data_bytes", 0),
    ];
    for (name, value) in expected {
        assert_eq!(done[name], value, "{role} {name}");
    }
}

#[test]
fn files_configure_a_gateway_and_a_dial() {
    let chain = SmbChain::with(Setup::Files);
    chain.there_and_back(&[UNSIGNED]);
    let [read, write] = chain.moved("gateway");
    assert!(read > 0 && write > 0);
    for role in ["gateway", "dial"] {
        assert_eq!(
            scrape(&chain, role)["rdma_requests_total:operation=read"],
            read,
            "{role}"
        );
    }
}

#[test]
fn a_gateway_and_a_dial_run_over_the_verbs_libraries_that_they_are_given() {
    let chain = SmbChain::with(Setup::SystemVerbs);
    chain.there_and_back(&[UNSIGNED]);
    let [read, write] = chain.moved("gateway");
    assert!(read > 0 && write > 0);
    // Both processes have rockery's library, and would not have found a device with the distribution's.
    let maps =
        std::fs::read_to_string(format!("/proc/{}/maps", chain.gateway.id())).expect("it runs");
    let libraries: Vec<&str> = maps
        .lines()
        .filter(|line| line.contains("libibverbs"))
        .collect();
    assert!(
        !libraries.is_empty() && !libraries.iter().any(|it| it.contains(" /usr/lib")),
        "{libraries:?}"
    );
    let rockery = programs::Rockery::built().path().display().to_string();
    let words =
        "smb gateway --rdma 127.0.0.1:446 --server 127.0.0.1:1445 --control none --system-verbs";
    let argv: Vec<&str> = [rockery.as_str()]
        .into_iter()
        .chain(words.split(' '))
        .collect();
    let mut without = chain.namespace.start_plain(&argv).expect("it starts");
    let refused = without.wait(SECONDS).expect("it ends");
    assert!(!refused.succeeded(), "{}", refused.output);
    assert!(
        refused
            .output
            .contains("cannot serve SMB Direct at 127.0.0.1:446"),
        "{}",
        refused.output
    );
}
