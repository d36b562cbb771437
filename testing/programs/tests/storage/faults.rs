//! Networks that drop, reorder, duplicate and corrupt frames, links that go down and targets that are killed,
//! while our host writes: all acknowledged writes are there, after every round and at the end.
//! `ROCKERY_TEST_FAULTS` sets the number of rounds.

use std::path::Path;
use std::time::Duration;

use programs::machine::until;
use programs::namespace::Process;
use programs::storage::NQN;
use programs::{Faults, Impaired, Job, Machine, Rockery, number};
use tempfile::TempDir;

const SECONDS: u64 = 60;
/// As the program's own blocks.
const SIZE: usize = 512 * 4096;
/// Of a thousand frames. The MTU is small, so that a write is many of them.
const BAD: Faults = Faults {
    lost: 2,
    reordered: 10,
    doubled: 5,
    damaged: 1,
};

fn serve(place: &Impaired, folder: &Path) -> Process {
    let address = place.left.address();
    let path = |name: &str| folder.join(name).display().to_string();
    let line = format!(
        "{} serve nvme {} --size {SIZE} --subsystem {NQN} --listen {address}:4420 --rdma {address}:4420 \
         --control {}",
        Rockery::built().word(),
        path("disk"),
        path("control"),
    );
    let argv: Vec<&str> = line.split_whitespace().collect();
    let mut server = place.left.start_plain(&argv).expect("it starts");
    let listens = place.left.wait_for_listener(4420, SECONDS);
    assert!(listens.is_ok(), "{listens:?}: {:?}", server.output());
    server
}

fn count(writer: &mut dyn Job, word: &str) -> usize {
    writer
        .output()
        .expect("its output")
        .lines()
        .filter(|line| line.starts_with(word))
        .count()
}

/// Waits until the writer has printed a word so many times.
#[track_caller]
fn wait_for(writer: &mut dyn Job, word: &str, least: usize) {
    let said = until(SECONDS, || Ok(count(writer, word) >= least));
    assert!(
        said.expect("its output"),
        "no {word}: {:?}",
        writer.output()
    );
}

/// Waits until all that was written has been found once more.
#[track_caller]
fn wait_for_round(writer: &mut dyn Job) {
    // One may end now that was nearly over before.
    let least = count(writer, "round") + 2;
    wait_for(writer, "round", least);
}

fn a_bad_network_loses_nothing(transport: &str) {
    let mut place = Impaired::new(1500).expect("a bad wire");
    place.right = place.right.with(&Rockery::by_packets());
    let folder = TempDir::new().expect("a folder");
    let stop = folder.path().join("stop");
    let mut server = serve(&place, folder.path());
    let to = format!("{}:4420", place.left.address());
    let argv = [
        env!("CARGO_BIN_EXE_storage-writer"),
        &to,
        transport,
        &stop.display().to_string(),
    ];
    let mut writer = place.right.start(&argv).expect("a writer");
    wait_for_round(&mut *writer);
    let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
    let rounds = number("ROCKERY_TEST_FAULTS", 1);
    for seed in 1..=rounds {
        place.treat(seed, BAD).expect("a wire");
        wait_for_round(&mut *writer);
        // Too short to be noticed but by what is missing.
        place
            .left
            .call("ip link set eth0 down")
            .expect("it goes down");
        pause(300);
        place.left.call("ip link set eth0 up").expect("it comes up");
        // The kernel reports it up to a second later, and a server finds no device before.
        let is_up = || Ok(place.left.call("cat /sys/class/net/eth0/operstate")?.trim() == "up");
        assert!(
            until(SECONDS, is_up).expect("its state"),
            "it does not come up"
        );
        wait_for_round(&mut *writer);
        // In the middle of a round, whenever that is.
        pause(50 * (seed % 10));
        let connections = count(&mut *writer, "connected");
        server.kill().expect("it is ours");
        server.wait(SECONDS).expect("it ends");
        server = serve(&place, folder.path());
        wait_for(&mut *writer, "connected", connections + 1);
        wait_for_round(&mut *writer);
    }
    std::fs::write(&stop, "").expect("it is written");
    let said = writer
        .wait(SECONDS)
        .expect("it stops")
        .expect_success()
        .output;
    assert!(
        said.matches("disconnected").count() as u64 >= rounds,
        "{said}"
    );
    server.kill().expect("it is ours");
}

#[test]
fn a_bad_network_loses_nothing_over_tcp() {
    a_bad_network_loses_nothing("tcp");
}

#[test]
fn a_bad_network_loses_nothing_over_rdma() {
    a_bad_network_loses_nothing("rdma");
}
