//! perftest's programs over rockery: each operation and transport, and the options that people use.

use programs::{Job, Machine, Namespace, Pair, perftest};

/// Every program with a transport that it takes. Few messages: what counts is that all kinds pass.
const MATRIX: &[&str] = &[
    "ib_send_bw",
    "ib_send_bw -c UC",
    "ib_send_bw -c UD",
    "ib_write_bw",
    "ib_write_bw -c UC",
    "ib_read_bw",
    "ib_atomic_bw",
    "ib_send_lat",
    "ib_send_lat -c UC",
    "ib_send_lat -c UD",
    "ib_write_lat",
    "ib_write_lat -c UC",
    "ib_read_lat",
    "ib_atomic_lat",
];

fn whole_matrix(server: &dyn Machine, client: &dyn Machine) {
    for line in MATRIX {
        let rows = perftest::expect(server, client, &format!("{line} -n 200"));
        assert_eq!(rows[0].iterations, 200, "{line}");
    }
}

#[test]
fn every_program_and_transport_runs_at_mtu_1500() {
    let pair = Pair::with_rockery(1500);
    whole_matrix(&pair.left, &pair.right);
}

#[test]
fn every_program_and_transport_runs_at_mtu_9000() {
    let pair = Pair::with_rockery(9000);
    whole_matrix(&pair.left, &pair.right);
}

#[test]
fn every_program_and_transport_runs_over_the_loopback() {
    let alone = Namespace::with_rockery();
    whole_matrix(&alone, &alone);
}

#[test]
fn sizes_from_two_bytes_to_eight_mebibytes_pass() {
    let pair = Pair::with_rockery(9000);
    for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        let rows = perftest::expect(&pair.left, &pair.right, &format!("{program} -a -n 10"));
        let sizes: Vec<u64> = rows.iter().map(|row| row.bytes).collect();
        assert_eq!(
            sizes,
            (1..=23).map(|power| 1 << power).collect::<Vec<u64>>(),
            "{program}"
        );
    }
}

#[test]
fn completions_wake_programs_that_sleep() {
    let pair = Pair::with_rockery(1500);
    for program in ["ib_send_bw", "ib_send_lat"] {
        perftest::expect(&pair.left, &pair.right, &format!("{program} -e -n 200"));
    }
}

#[test]
fn inline_data_and_lists_of_work_requests_are_sent() {
    let pair = Pair::with_rockery(1500);
    perftest::expect(&pair.left, &pair.right, "ib_send_lat -s 64 -I 64 -n 200");
    perftest::expect(&pair.left, &pair.right, "ib_write_bw -s 64 -I 64 -n 200");
    perftest::expect(&pair.left, &pair.right, "ib_send_bw -s 64 -l 16 -n 320");
    perftest::expect(&pair.left, &pair.right, "ib_write_bw -s 64 -l 16 -n 320");
}

#[test]
fn eight_queue_pairs_work_at_once() {
    let pair = Pair::with_rockery(9000);
    perftest::expect(&pair.left, &pair.right, "ib_write_bw -q 8 -s 4096 -n 200");
    perftest::expect(&pair.left, &pair.right, "ib_send_bw -q 8 -s 4096 -n 200");
}

#[test]
fn both_directions_work_at_once() {
    let pair = Pair::with_rockery(9000);
    for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        perftest::expect(
            &pair.left,
            &pair.right,
            &format!("{program} -b -s 4096 -n 200"),
        );
    }
}

/// With `-z` the client ends as soon as it has the server's last message, without destroying its queue pair.
/// An adapter has acknowledged the message by then, and the server waits for that.
#[test]
fn a_message_is_acknowledged_though_its_receiver_ends_at_once() {
    let (pair, alone) = (Pair::with_rockery(1500), loopback());
    for _ in 0..4 {
        perftest::expect(&pair.left, &pair.right, "ib_write_bw -z -n 100");
        perftest::expect(&alone, &alone, "ib_write_bw -z -n 100");
    }
}

/// An unreliable transport does not repeat lost packets, and perftest waits for them for ever: neither end
/// may stop receiving while it sends.
#[test]
fn unreliable_transports_lose_nothing_when_both_ends_send_all_sizes() {
    let pair = Pair::with_rockery(1500);
    for (line, sizes) in [
        ("ib_send_bw -c UC -a -b -n 5", 23),
        ("ib_send_bw -c UD -a -b -n 100", 10),
    ] {
        assert_eq!(
            perftest::expect(&pair.left, &pair.right, line).len(),
            sizes,
            "{line}"
        );
    }
    perftest::expect(
        &pair.left,
        &pair.right,
        "ib_send_bw -c UC -s 65536 -b -n 500",
    );
}

/// Bandwidth programs with each transport that they take, and the options that they take there: perftest has
/// no events for WRITE, and inline data goes where payload does.
const BANDWIDTH: &[(&str, &[&str])] = &[
    (
        "ib_send_bw -s 32",
        &["-b -q 8 -l 8", "-e -q 8", "-I 32 -l 8"],
    ),
    (
        "ib_send_bw -c UC -s 32",
        &["-b -q 8 -l 8", "-e -q 8", "-I 32 -l 8"],
    ),
    (
        "ib_send_bw -c UD -s 32",
        &["-b -q 8 -l 8", "-e -q 8", "-I 32 -l 8"],
    ),
    ("ib_send_bw -c XRC -s 32", &["-b -q 8", "-l 8"]),
    ("ib_write_bw -s 32", &["-b -q 8 -l 8", "-I 32 -q 8"]),
    ("ib_write_bw -c UC -s 32", &["-b -q 8 -l 8", "-I 32 -q 8"]),
    ("ib_write_bw -c XRC -s 32", &["-b -q 8"]),
    ("ib_read_bw -s 32", &["-b -q 8 -l 8", "-e -q 8"]),
    ("ib_read_bw -c XRC -s 32", &["-b -q 8"]),
    ("ib_atomic_bw", &["-b -q 8", "-e -q 8"]),
];

/// The same for latency: only SEND can wait for events, and a READ has nothing to put inline.
const LATENCY: &[(&str, &[&str])] = &[
    ("ib_send_lat -s 32", &["-e", "-I 32"]),
    ("ib_send_lat -c UC -s 32", &["-e", "-I 32"]),
    ("ib_send_lat -c UD -s 32", &["-e", "-I 32"]),
    ("ib_send_lat -c XRC -s 32", &[""]),
    ("ib_write_lat -s 32", &["-I 32"]),
    ("ib_write_lat -c UC -s 32", &["-I 32"]),
    ("ib_write_lat -c XRC -s 32", &[""]),
    ("ib_read_lat -c XRC -s 32", &[""]),
];

fn all_options(server: &dyn Machine, client: &dyn Machine) {
    for (line, options) in BANDWIDTH.iter().chain(LATENCY) {
        for option in *options {
            perftest::expect(server, client, &format!("{line} {option} -n 80"));
        }
    }
}

#[test]
fn options_go_with_every_program_and_transport_at_mtu_1500() {
    let pair = Pair::with_rockery(1500);
    all_options(&pair.left, &pair.right);
}

fn loopback() -> Namespace {
    Namespace::with_rockery()
}

#[test]
fn options_go_with_every_program_and_transport_on_one_host() {
    let alone = loopback();
    all_options(&alone, &alone);
}

#[test]
fn every_latency_program_passes_all_its_sizes() {
    let pair = Pair::with_rockery(1500);
    for program in ["ib_send_lat", "ib_write_lat", "ib_read_lat"] {
        assert_eq!(
            perftest::expect(&pair.left, &pair.right, &format!("{program} -a -n 5")).len(),
            23
        );
    }
}

/// Every program with each transport.
const EVERY: &[&str] = &[
    "ib_send_bw",
    "ib_send_bw -c UC",
    "ib_send_bw -c UD",
    "ib_send_bw -c XRC",
    "ib_write_bw",
    "ib_write_bw -c UC",
    "ib_write_bw -c XRC",
    "ib_read_bw",
    "ib_read_bw -c XRC",
    "ib_atomic_bw",
    "ib_atomic_bw -c XRC",
    "ib_send_lat",
    "ib_send_lat -c UC",
    "ib_send_lat -c UD",
    "ib_send_lat -c XRC",
    "ib_write_lat",
    "ib_write_lat -c UC",
    "ib_write_lat -c XRC",
    "ib_read_lat",
    "ib_read_lat -c XRC",
    "ib_atomic_lat",
    "ib_atomic_lat -c XRC",
];

/// Sizes that a program takes from two bytes on, each twice the one before: a datagram is one packet, an
/// atomic has one size.
fn sizes_of(line: &str) -> usize {
    match line {
        _ if line.contains("atomic") => 1,
        _ if line.contains("UD") => 12,
        _ => 23,
    }
}

/// `ROCKERY_TEST_SIZES=all` runs them with all sizes, for each of which perftest measures the processor's
/// clock for a quarter of a second.
fn every_program(options: &str, all_sizes: bool) {
    let alone = loopback();
    for line in EVERY {
        let (sizes, count) = match (sizes_of(line), all_sizes) {
            (1, _) => ("", 1),
            (count, true) => (" -a", count),
            (12, false) => (" -s 4096", 1),
            (_, false) => (" -s 65536", 1),
        };
        let rows = perftest::expect(&alone, &alone, &format!("{line}{sizes} -n 20{options}"));
        assert_eq!(rows.len(), count, "{line}");
    }
}

#[test]
fn every_program_and_transport_passes_on_one_host_with_private_and_shared_memory() {
    let all_sizes = std::env::var("ROCKERY_TEST_SIZES").is_ok_and(|sizes| sizes == "all");
    let name = format!("/dev/shm/rockery-perftest-{}-{{end}}", std::process::id());
    let files = ["server", "client"].map(|end| name.replace("{end}", end));
    for file in &files {
        std::fs::File::create(file)
            .and_then(|file| file.set_len(64 << 20))
            .unwrap();
    }
    every_program(&format!(" --mmap={name}"), all_sizes);
    // Otherwise others show the same.
    if all_sizes {
        every_program("", all_sizes);
    }
    files
        .iter()
        .for_each(|file| std::fs::remove_file(file).unwrap());
}

/// Lost packets are sent again after an ACK timeout, which would not show here: so there is none
/// (`-u 0`), and other processes use the processors meanwhile.
#[test]
fn no_ack_timeout_is_needed_on_one_host() {
    let alone = loopback();
    let mut others: Vec<_> = (0..6)
        .map(|_| {
            alone
                .start_plain(&["sh", "-c", "while :; do :; done"])
                .unwrap()
        })
        .collect();
    for _ in 0..3 {
        for transport in ["RC", "XRC"] {
            perftest::expect(
                &alone,
                &alone,
                &format!("ib_send_bw -c {transport} -s 32 -b -q 8 -n 800 -u 0"),
            );
            perftest::expect(
                &alone,
                &alone,
                &format!("ib_write_bw -c {transport} -q 8 -n 80 -u 0"),
            );
        }
    }
    others.iter_mut().for_each(|other| other.kill().unwrap());
}
