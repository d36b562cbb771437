//! fio's engine for RDMA: its connections, and its WRITEs, READs and SENDs.

use programs::machine::{until, words};
use programs::{Machine, Pair, connection};
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// The options of every job. fio keeps the state of a verification in a file, which goes to `folder`.
fn job(folder: &TempDir) -> String {
    format!(
        "--ioengine=rdma --port=7710 --bs=64k --aux-path={}",
        folder.path().display()
    )
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

#[test]
fn fio_moves_its_blocks_by_every_verb() {
    let (pair, folder) = (Pair::with_rockery(9000), folder());
    let job = job(&folder);
    let address = pair.left.address();
    for verb in ["write", "read", "send"] {
        // It does not wait for a receiver that is not ready: the server has a receive for every SEND.
        let server = format!("fio --name=server {job} --size=32m --rw=read --iodepth=512");
        let client = format!(
            "fio --name=client {job} --size=32m --rw=write --iodepth=8 --hostname={address} --verb={verb}"
        );
        let exchange = connection::expect((&pair.left, &server), (&pair.right, &client), SECONDS);
        assert!(
            exchange.client.output.contains("io=32.0MiB"),
            "{verb}: {}",
            exchange.client.output
        );
    }
}

/// The receiver of SENDs looks at each block: its place in the file, and the sum of its bytes. With the other
/// verbs fio has no verification: its server never looks at memory that was written, and its client does not
/// know what it reads. All blocks have a receive from the start, since looking takes time.
const VERIFYING: &str = "--size=16m --iodepth=256";

#[test]
fn fio_verifies_what_it_receives() {
    let (pair, folder) = (Pair::with_rockery(9000), folder());
    let job = job(&folder);
    let address = pair.left.address();
    for sum in ["crc32c", "sha256"] {
        let server = format!("fio --name=server {job} {VERIFYING} --rw=read --verify={sum}");
        let client = format!(
            "fio --name=client {job} --size=16m --iodepth=8 --rw=write --verify={sum} --do_verify=0 \
             --hostname={address} --verb=send"
        );
        let exchange = connection::expect((&pair.left, &server), (&pair.right, &client), SECONDS);
        let said = exchange.server.output;
        assert!(
            said.contains("io=16.0MiB") && !said.contains("verify:"),
            "{sum}: {said}"
        );
    }
}

/// That verification can fail: these blocks have no sums.
#[test]
fn fio_detects_wrong_blocks() {
    let (pair, folder) = (Pair::with_rockery(9000), folder());
    let job = job(&folder);
    let server = format!("fio --name=server {job} {VERIFYING} --rw=read --verify=crc32c");
    let client = format!(
        "fio --name=client {job} --size=16m --iodepth=8 --rw=write --hostname={} --verb=send",
        pair.left.address()
    );
    let mut server = pair.left.start(&words(&server)).expect("fio starts");
    assert!(
        until(SECONDS, || pair.left.awaits_requests()).unwrap(),
        "it listens"
    );
    let _client = pair.right.start(&words(&client)).expect("fio starts");
    let finished = server.wait(SECONDS).expect("it ends");
    assert!(
        !finished.succeeded() && finished.output.contains("bad magic header"),
        "{}",
        finished.output
    );
}
