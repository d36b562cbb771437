//! What a target tells of itself, read by programs that others wrote: metrics by Prometheus' own library, the
//! log by a JSON parser; and `rockery top`.

use std::process::Command;

use nvme::host::{Payload, transfer};
use programs::storage::{HOST, Server};
use rdma::Buffer;
use tempfile::TempDir;
use wire::nvme::Io;

const READS: u64 = 300;

/// Python, with something on its standard input.
fn python(script: &str, input: &str) -> String {
    use std::io::Write;
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("python3");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "package python3-prometheus-client is needed\n{input}");
    String::from_utf8(output.stdout).expect("text")
}

const METRICS: &str = "
import sys
from prometheus_client.parser import text_string_to_metric_families as families
for family in families(sys.stdin.read()):
    assert family.documentation and family.type != 'unknown', family
    for sample in family.samples:
        labels = ' '.join(f'{k}={v}' for k, v in sorted(sample.labels.items()))
        print(sample.name, labels, int(sample.value) if sample.value == int(sample.value) else sample.value)
";

#[test]
fn metrics_log_and_top_say_what_was_done() {
    let folder = TempDir::new().expect("a folder");
    let words = "--memory 16M --metrics 127.0.0.1:0 --log debug --log-format json";
    let server = Server::start(folder.path(), words).expect("a server");
    let (client, mut queues) = server.connect(2, 8);
    for start in 0..READS {
        let payload = Payload::In(Buffer::zeroed(4096), 4096);
        queues[1].call("Read", transfer(Io::Read, 1, start, 1), payload).expect("a read");
    }
    queues[0]
        .call("Write", transfer(Io::Write, 1, 0, 1), Payload::Out(Buffer::zeroed(4096), 4096))
        .expect("a write");
    queues[0].call("Flush", transfer(Io::Flush, 1, 0, 1), Payload::None).expect("a flush");

    let url = server.metrics().expect("an address");
    let curl = Command::new("curl").args(["-sf", "--max-time", "20", url]).output().expect("curl");
    let text = String::from_utf8(curl.stdout).expect("text");
    let samples = python(METRICS, &text);
    let disk = "namespace=1 operation=read subsystem=nqn.2024-01.org.example:disk";
    let queue =
        format!("host={HOST} namespace=1 operation=read queue=2 subsystem=nqn.2024-01.org.example:disk");
    for expected in [
        format!("rockery_nvme_latency_seconds_count {disk} {READS}\n"),
        format!("rockery_nvme_latency_seconds_bucket le=+Inf {disk} {READS}\n"),
        format!("rockery_nvme_queue_latency_seconds_count controller=1 {queue} {READS}\n"),
        format!(
            "rockery_nvme_read_bytes_total namespace=1 subsystem=nqn.2024-01.org.example:disk {}\n",
            READS * 4096
        ),
        "rockery_nvme_connections  3\n".to_owned(),
    ] {
        assert!(samples.contains(&expected), "{expected}{samples}");
    }
    assert_eq!(server.ask("serve metrics").expect("metrics").lines().count(), text.lines().count());

    let top = server.ask("top --total").expect("a page");
    assert!(top.starts_with("3 connections, 1 controllers"), "{top}");
    assert!(top.contains("nqn.2024-01.org.example:disk 1 ") && top.contains("1:2 namespace 1"), "{top}");
    let quiet = server.ask("top --once --interval 0.1").expect("a page");
    assert!(quiet.contains("READ/s") && !quiet.contains("QUEUE"), "{quiet}");

    drop((client, queues));
    let script =
        "import sys, json\nfor line in sys.stdin: e = json.loads(line); print(e['level'], e['message'])";
    let said = || python(script, &server.log());
    let ended = programs::machine::until(20, || Ok(said().contains("INFO controller ended"))).expect("a log");
    assert!(ended && said().contains("INFO controller connected\nDEBUG queue connected"), "{}", said());
}
