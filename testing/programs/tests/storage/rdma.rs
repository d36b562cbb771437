//! Hosts over RDMA whose data the target has to fetch, and hosts that do not authenticate: each program has
//! hosts and target in one process.

use programs::probe::Probe;
use programs::{Machine, Namespace};

const SECONDS: u64 = 600;
/// Addresses of hosts that do not authenticate; none is that of the well-behaved host.
const ATTACKERS: [&str; 4] = ["10.77.0.1", "10.77.0.2", "10.77.0.3", "10.77.0.4"];

/// Every change that revokes rights, while each kind of command waits at each place: the command does not
/// reach the medium when the change has returned.
#[test]
fn changes_of_rights_are_barriers_for_commands_over_rdma() {
    let alone = Namespace::with_rockery();
    let program = [env!("CARGO_BIN_EXE_rdma_barriers")];
    let done = alone.run(&program, SECONDS).expect("it runs");
    let said = done.expect_success().output;
    let (held, all) = said
        .trim()
        .strip_suffix(" held")
        .and_then(|counts| counts.split_once(" of "))
        .expect("two counts");
    assert_eq!(held, all);
    assert!(all.parse::<usize>().is_ok_and(|all| all > 400), "{said}");
}

/// Pairs that succeed, that fail, and whose connections end: all memory and locks are given back.
#[test]
fn compare_and_write_over_rdma_gives_back_its_memory() {
    let alone = Namespace::with_rockery();
    let program = [env!("CARGO_BIN_EXE_rdma_pairs")];
    let done = alone.run(&program, SECONDS).expect("it runs");
    let said = done.expect_success().output;
    assert!(said.ends_with(": nothing is in use\n"), "{said}");
}

/// At each step of a connection.
#[test]
fn unauthenticated_hosts_over_rdma_stay_within_the_budget_and_keep_no_host_out() {
    let alone = Namespace::with_rockery();
    for address in ATTACKERS {
        let line = format!("ip address add {address}/32 dev lo");
        alone.call(&line).expect("an address");
    }
    let probe =
        Probe::compile_with("cc", "half-open", &["-lrdmacm", "-libverbs"]).expect("a compiler");
    let half_open = probe.path().display().to_string();
    let program = [env!("CARGO_BIN_EXE_rdma_unauthenticated"), &half_open];
    let done = alone.run(&[&program[..], &ATTACKERS].concat(), SECONDS);
    let said = done.expect("it runs").expect_success().output;
    let steps = said
        .lines()
        .filter(|line| line.ends_with(": within the limits; a host connects"));
    assert_eq!(steps.count(), 9, "{said}");
}
