//! I/Os that take too long: the host resets the controller, as Linux' NVMe over Fabrics does.

use super::{Ran, run, storage};
use sim::world::IoTimeouts;

/// All I/Os of `timeouts.toml`.
const IOS: u64 = 16 * 1000;

fn late(ran: &Ran) -> IoTimeouts {
    ran.report.stores[0].io_timeouts
}

fn completed(ran: &Ran) -> u64 {
    ran.results.flows.iter().map(|flow| flow.messages).sum()
}

#[test]
fn queues_of_milliseconds_are_nothing_to_a_host_that_waits_30_s() {
    let ran = run("nvme/timeouts.toml", &[]);
    assert_eq!(late(&ran), IoTimeouts::default());
    assert_eq!(completed(&ran), IOS);
    let longest = storage(&ran).latency_us.unwrap().max;
    assert!((1_000.0..100_000.0).contains(&longest), "{longest}");
    assert!(!sim::report::table(&ran.report).contains("timed out"));
}

#[test]
fn one_late_io_costs_all_that_are_under_way() {
    let ran = run("nvme/timeouts.toml", &[("storage.0.io-timeout", "1ms")]);
    let IoTimeouts {
        ios,
        resets,
        cancelled,
        errors,
    } = late(&ran);
    assert!(
        resets > 0 && ios >= resets && errors > ios,
        "{:?}",
        late(&ran)
    );
    // Nothing is sent again, and every I/O ends one way or the other.
    assert_eq!((cancelled, completed(&ran) + errors), (0, IOS));
    assert_eq!(storage(&ran).finished, 16);
    // All queues of a controller are reset at once: so many are under way at most.
    assert!(errors <= resets * 16 * 128, "{:?}", late(&ran));
    let finding = ran.finding("costs all of its controller's");
    assert!(finding.seen.contains("longer than 1.000ms"), "{finding:?}");
    assert!(sim::report::table(&ran.report).contains("timed out"));
}

#[test]
fn what_is_cancelled_is_sent_again_until_it_was_too_often() {
    let sets = |retries| {
        [
            ("storage.0.io-timeout", "2ms"),
            ("storage.0.max-retries", retries),
        ]
    };
    let patient = run("nvme/timeouts.toml", &sets("1000000"));
    let IoTimeouts {
        cancelled, errors, ..
    } = late(&patient);
    assert!(cancelled > 0 && errors == 0, "{:?}", late(&patient));
    assert_eq!(completed(&patient), IOS);
    // A latency is from the first request on: a cancelled I/O has waited for the timeout and the connection.
    let longest = storage(&patient).latency_us.unwrap().max;
    assert!(longest > 3_000.0, "{longest}");
    let impatient = run("nvme/timeouts.toml", &sets("0"));
    assert!(late(&impatient).errors > 0, "{:?}", late(&impatient));
}

#[test]
fn over_rdma_a_host_waits_as_long() {
    let sets = [
        ("storage.0.io-timeout", "12us"),
        ("storage.0.reconnect-delay", "1ms"),
        ("storage.0.ios", "2000"),
    ];
    for operation in ["read", "write"] {
        let sets = [&sets[..], &[("storage.0.operation", operation)]].concat();
        let ran = run("nvme/rdma.toml", &sets);
        let late = late(&ran);
        assert!(late.resets > 0 && late.cancelled == late.resets, "{late:?}");
        assert_eq!((completed(&ran), late.errors), (2000, 0), "{operation}");
        let longest = storage(&ran).latency_us.unwrap().max;
        assert!(longest > 1_012.0, "{operation}: {longest}");
    }
}
