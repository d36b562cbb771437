//! Programs on one host, which communicate through shared memory.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Exchange, Job, Machine, Namespace, Pair, Rockery, patterns, perftest};
use serde_json::Value;

const SECONDS: u64 = 60;
/// A thousand processes take five seconds on two cores that have nothing else to do.
const CHURN_SECONDS: u64 = 600;

#[test]
fn every_byte_between_two_programs_is_where_it_belongs() {
    let (alone, probe) = (
        Namespace::with_rockery(),
        Probe::compile("patterns").unwrap(),
    );
    for operation in patterns::OPERATIONS {
        patterns::expect(&alone, &alone, &probe, "", operation);
        patterns::expect(&alone, &alone, &probe, "-m 256", operation);
        patterns::expect(&alone, &alone, &probe, "-s", operation);
    }
}

/// Which method is faster is measured while a stream runs: both rates are there after the first trial.
#[test]
fn devices_show_how_a_stream_is_copied() {
    let alone = Namespace::with_rockery();
    let line = ["ib_write_bw", "-d", "rk_lo", "-s", "65536", "-D", "300"];
    let mut server = alone.start(&line).unwrap();
    alone.wait_for_listener(perftest::PORT, SECONDS).unwrap();
    let client_line = [&line[..], &["127.0.0.1"]].concat();
    let mut client = alone.start(&client_line).unwrap();
    let command = Rockery::built().path().display().to_string();
    let shown = || {
        let said = alone
            .start_plain(&[&command, "devices", "--json"])?
            .wait(SECONDS)?
            .expect_success()
            .output;
        let value: Value = serde_json::from_str(&said).expect("JSON");
        let programs = value["devices"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["programs"].as_array());
        let streams = programs
            .flatten()
            .filter_map(|it| it["streams"].as_array())
            .flatten()
            .cloned();
        Ok(streams.collect::<Vec<_>>())
    };
    let is_measured = |stream: &Value| {
        let rate = |name: &str| stream[name].as_u64().is_some_and(|rate| rate > 0);
        stream["operation"] == "WRITE"
            && stream["bytes_max"] == 65536
            && rate("rings_mb_per_s")
            && rate("kernel_mb_per_s")
            && ["rings", "kernel"].iter().any(|it| stream["method"] == *it)
    };
    let was_shown = until(SECONDS, || Ok(shown()?.iter().any(is_measured))).unwrap();
    client.kill().unwrap();
    server.kill().unwrap();
    assert!(was_shown, "{}", client.output().unwrap());
}

#[test]
fn every_kind_of_memory_can_be_registered() {
    let probe = Probe::compile_with("cc", "memory_kinds", &["-libverbs", "-pthread"]).unwrap();
    let path = probe.path().to_string_lossy();
    let huge = HugePages::allow();
    let (options, kinds) = if huge.is_some() {
        (&["-H"][..], 20)
    } else {
        (&[][..], 19)
    };
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        let alone = Namespace::alone().unwrap().with(&rockery);
        for devices in [&[][..], &["-2"]] {
            let line = [&[&*path, "-d", "rk_lo"], devices, options].concat();
            let run = alone.run(&line, SECONDS).unwrap().expect_success();
            assert_eq!(
                run.output.matches(": as it should be").count(),
                kinds,
                "{}",
                run.output
            );
        }
    }
}

/// Lets programs have huge pages while it lives.
struct HugePages {
    before: String,
}

impl HugePages {
    const SETTING: &str = "/proc/sys/vm/nr_overcommit_hugepages";
    /// 2 MiB each, on this architecture.
    const PAGES: &str = "16";

    /// None where only the real root may, and we are a user namespace's.
    fn allow() -> Option<Self> {
        let before = std::fs::read_to_string(Self::SETTING).ok()?;
        std::fs::write(Self::SETTING, Self::PAGES).ok()?;
        Some(Self { before })
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        std::fs::write(Self::SETTING, &self.before).expect("it could be written before");
    }
}

#[test]
fn atomics_of_four_programs_and_of_the_owners_processor_do_not_overlap() {
    let probe = Probe::compile_with("cc", "counter", &["-libverbs", "-pthread"]).unwrap();
    let path = probe.path().to_string_lossy();
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        let alone = Namespace::alone().unwrap().with(&rockery);
        let said = alone
            .run(&[&path, "-d", "rk_lo"], SECONDS)
            .unwrap()
            .expect_success()
            .output;
        assert!(
            said.contains("412000 counted by 4 programs and 2 threads, each once"),
            "{said}"
        );
    }
}

/// One round of the device copies a mebibyte; the next request waits for the next round. The program waits
/// for an event meanwhile, so the progress thread has to begin that round.
#[test]
fn long_requests_of_a_program_that_sleeps_are_all_executed() {
    let alone = Namespace::with_rockery();
    perftest::expect(&alone, &alone, "ib_read_bw -e -s 1048576 -n 3000");
}

/// `ROCKERY_TEST_PROCESSES` sets another number.
#[test]
fn a_thousand_processes_leak_nothing() {
    let processes = std::env::var("ROCKERY_TEST_PROCESSES").unwrap_or_else(|_| "1000".to_owned());
    let probe = Probe::compile("process_churn").unwrap();
    let path = probe.path().to_string_lossy();
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        let alone = Namespace::alone().unwrap().with(&rockery);
        let run = alone
            .run(&[&path, "-d", "rk_lo", &processes], CHURN_SECONDS)
            .unwrap();
        let said = run.expect_success().output;
        assert!(
            said.contains(&format!("{processes} processes left nothing")),
            "{said}"
        );
    }
}

/// Shared receive queues and their limit, solicited events, windows and their invalidation, XRC.
#[test]
fn srqs_xrc_memory_windows_and_solicited_events_work_between_two_programs() {
    const PORT: u16 = 18523;
    let probe = Probe::compile("srq_xrc").unwrap();
    let path = probe.path().to_string_lossy();
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        let alone = Namespace::alone().unwrap().with(&rockery);
        let ends = Exchange::run(
            &alone,
            &alone,
            &[&*path, "-d", "rk_lo"],
            "-g",
            PORT,
            SECONDS,
        )
        .unwrap();
        let ends = ends.expect_success();
        for end in [ends.server, ends.client] {
            assert_eq!(
                end.output.matches(": as it should be").count(),
                4,
                "{}",
                end.output
            );
        }
    }
}

/// The requester is on the same host, or on another one.
#[test]
fn an_xrc_domain_is_shared_by_all_processes_that_open_its_file() {
    const PORT: u16 = 18541;
    let probe = Probe::compile("domain").unwrap();
    let path = probe.path().to_string_lossy();
    let alone = Namespace::with_rockery();
    let ends = Exchange::run(
        &alone,
        &alone,
        &[&*path, "-d", "rk_lo", &*path],
        "-g",
        PORT,
        SECONDS,
    )
    .unwrap();
    let two = Pair::with_rockery(1500);
    let apart = Exchange::run(
        &two.left,
        &two.right,
        &[&*path, &*path],
        "-g",
        PORT,
        SECONDS,
    )
    .unwrap();
    for ends in [ends, apart] {
        let said = ends.expect_success().server.output;
        assert_eq!(said.matches(": as it should be").count(), 5, "{said}");
    }
}
