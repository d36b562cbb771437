//! The reports of a target, read by independent programs: metrics by Prometheus' own library, the log by a
//! JSON parser; and `rockery top`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use buffer::Buffer;
use nvme::host::{Payload, Queue, transfer};
use programs::storage::{HOST, Server};
use server::control::CLIENTS_MAX;
use tempfile::TempDir;
use wire::nvme::Io;

const READS: u64 = 300;

/// Python, with something on its standard input.
fn python(script: &str, input: &str) -> String {
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("python3");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "package python3-prometheus-client is needed\n{input}"
    );
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
fn metrics_log_and_top_report_the_commands() {
    let folder = TempDir::new().expect("a folder");
    let words = "--memory 16M --metrics 127.0.0.1:0 --log debug --log-format json";
    let server = Server::start(folder.path(), words).expect("a server");
    let (client, mut queues) = server.connect(2, 8);
    let controller = client.controller().identified.controller_id;
    read_write_and_flush(&mut queues);
    expect_metrics(&server, controller);
    expect_top(&server, controller);
    drop((client, queues));
    expect_log_of_one_controller(&server);
}

fn read_write_and_flush(queues: &mut [Queue]) {
    for start in 0..READS {
        let payload = Payload::In(Buffer::zeroed(4096), 4096);
        queues[1]
            .call("Read", transfer(Io::Read, 1, start, 1), payload)
            .expect("a read");
    }
    let payload = Payload::Out(Buffer::zeroed(4096), 4096);
    queues[0]
        .call("Write", transfer(Io::Write, 1, 0, 1), payload)
        .expect("a write");
    queues[0]
        .call("Flush", transfer(Io::Flush, 1, 0, 1), Payload::None)
        .expect("a flush");
}

/// The metrics by HTTP, as Prometheus' library reads them; those of the control socket have as many lines.
fn expect_metrics(server: &Server, controller: u16) {
    let url = server.metrics().expect("an address");
    let curl = Command::new("curl")
        .args(["-sf", "--max-time", "20", url])
        .output()
        .expect("curl");
    let text = String::from_utf8(curl.stdout).expect("text");
    let samples = python(METRICS, &text);
    let disk = "namespace=1 operation=read subsystem=nqn.2024-01.org.example:disk";
    let queue = format!(
        "host={HOST} namespace=1 operation=read queue=2 subsystem=nqn.2024-01.org.example:disk"
    );
    for expected in [
        format!("rockery_nvme_latency_seconds_count {disk} {READS}\n"),
        format!("rockery_nvme_latency_seconds_bucket le=+Inf {disk} {READS}\n"),
        format!(
            "rockery_nvme_queue_latency_seconds_count controller={controller} {queue} {READS}\n"
        ),
        format!(
            "rockery_nvme_read_bytes_total namespace=1 subsystem=nqn.2024-01.org.example:disk {}\n",
            READS * 4096
        ),
        "rockery_nvme_connections  3\n".to_owned(),
    ] {
        assert!(samples.contains(&expected), "{expected}{samples}");
    }
    let by_control = server.ask("serve metrics").expect("metrics");
    assert_eq!(by_control.lines().count(), text.lines().count());
}

fn expect_top(server: &Server, controller: u16) {
    let top = server.ask("top --total").expect("a page");
    assert!(top.starts_with("3 connections, 1 controllers"), "{top}");
    let queue = format!("{controller}:2 namespace 1");
    assert!(
        top.contains("nqn.2024-01.org.example:disk 1\n") && top.contains(&queue),
        "{top}"
    );
    let widest = top.lines().map(str::len).max();
    assert!(widest <= Some(100), "{widest:?} columns: {top}");
    let quiet = server.ask("top --once --interval 0.1").expect("a page");
    assert!(
        quiet.contains("READ/s") && !quiet.contains("QUEUE"),
        "{quiet}"
    );
}

/// Each line of the log is JSON; the lines tell of a controller that came and ended.
fn expect_log_of_one_controller(server: &Server) {
    let script = "import sys, json\n\
               for line in sys.stdin: e = json.loads(line); print(e['level'], e['message'])";
    let said = || python(script, &server.log());
    let ended = programs::machine::until(20, || Ok(said().contains("INFO controller ended")))
        .expect("a log");
    assert!(
        ended && said().contains("INFO controller connected\nDEBUG queue connected"),
        "{}",
        said()
    );
}

/// How long a client waits for an answer or the end of its connection, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The answer to a request: nothing where the server closes the connection.
fn answer(stream: &mut (impl Read + Write), request: &str) -> String {
    let mut answer = Vec::new();
    // A connection that was closed already refuses the request or ends it with a reset.
    _ = stream.write_all(request.as_bytes());
    let mut piece = [0; 4096];
    while let Ok(bytes @ 1..) = stream.read(&mut piece) {
        answer.extend_from_slice(&piece[..bytes]);
        if answer.ends_with(b"\n") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Clients that send half a request each take all the places there are: one more client gets no answer. The
/// server closes the slow clients, and then answers again.
fn slow_clients_are_closed<S: Read + Write>(most: usize, request: &str, connect: impl Fn() -> S) {
    let (half, _) = request.split_at(request.len() / 2);
    let mut slow_clients = Vec::new();
    let is_refused = (0..10).any(|_| {
        // Again where the machine was so slow that the first ones were closed before the last one came.
        slow_clients = (0..most).map(|_| connect()).collect::<Vec<S>>();
        slow_clients
            .iter_mut()
            .for_each(|client| _ = client.write_all(half.as_bytes()));
        answer(&mut connect(), request).is_empty()
    });
    assert!(is_refused, "{most} clients leave room for more");
    for mut client in slow_clients {
        assert_eq!(
            answer(&mut client, ""),
            "",
            "half a request is not answered"
        );
    }
    let answers = || Ok(!answer(&mut connect(), request).is_empty());
    assert!(
        programs::machine::until(20, answers).expect("no error"),
        "there is no room again"
    );
}

#[test]
fn slow_clients_of_metrics_and_of_the_control_socket_are_few_and_closed() {
    let folder = TempDir::new().expect("a folder");
    let server =
        Server::start(folder.path(), "--memory 16M --metrics 127.0.0.1:0").expect("a server");
    let url = server.metrics().expect("an address");
    let address = url
        .trim_start_matches("http://")
        .trim_end_matches("/metrics")
        .to_owned();
    let connect = || {
        let stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream
    };
    // More than their memory allows: the oldest ones give way.
    let mut slow_clients: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    slow_clients
        .iter_mut()
        .for_each(|client| _ = client.write_all(b"GET /met"));
    let answers = || Ok(!answer(&mut connect(), "GET /metrics HTTP/1.1\r\n\r\n").is_empty());
    assert!(
        programs::machine::until(20, answers).expect("no error"),
        "slow clients keep another one out"
    );
    for mut client in slow_clients {
        assert_eq!(
            answer(&mut client, ""),
            "",
            "half a request is not answered"
        );
    }
    slow_clients_are_closed(CLIENTS_MAX, "{\"command\":\"status\"}\n", || {
        let stream = UnixStream::connect(server.control()).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream
    });
}
