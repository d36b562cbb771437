//! Clocks and waits of unmodified programs in a lab that is slowed down.

use programs::live;
use programs::probe::Probe;

#[test]
fn clocks_and_waits_of_programs_are_those_of_the_lab() {
    let probe = Probe::compile("clocks").expect("a compiler");
    let said = live::script_with(
        r#"
        set -e
        $R lab up -d --slow 10 $F/lab.toml
        echo "in the lab's time: $($R lab exec server -- $D/clocks 10 10 2>&1)"
        echo "in the machine's time: $($R lab exec --machine-clock server -- $D/clocks 1 10 2>&1)"
        down"#,
        300,
        &[probe.path()],
    );
    for line in [
        "in the lab's time: 47 of 47 checks passed",
        "in the machine's time: 47 of 47 checks passed",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
}

#[test]
fn programs_run_for_as_long_as_they_are_told_on_the_clock_of_the_lab() {
    let said = live::script(
        r#"
        set -e
        $R lab up -d --slow 10 $F/lab.toml
        $R lab exec server -- iperf3 -s -1 >/dev/null &
        until_it_listens 1451
        START=$(date +%s%N)
        $R lab exec sender0 -- iperf3 -c server -t 1 -J | grep -m1 -A9 '"sum_sent"'
        echo "iperf3: $((($(date +%s%N) - START) / 1000000)) ms"
        wait
        $R lab exec server -- ib_write_bw -D 1 -f 0 >/dev/null &
        until_it_listens 4853
        START=$(date +%s%N)
        $R lab exec sender0 -- ib_write_bw -D 1 -f 0 server | grep -A2 '#bytes'
        echo "ib_write_bw: $((($(date +%s%N) - START) / 1000000)) ms"
        wait
        down"#,
        300,
    );
    let took = |program: &str| -> u64 {
        let found = said
            .lines()
            .find_map(|line| line.strip_prefix(program)?.strip_prefix(": "));
        found
            .and_then(|rest| rest.strip_suffix(" ms")?.parse().ok())
            .unwrap_or_else(|| panic!("{said}"))
    };
    // A second of the lab is ten of the machine; the programs' own clocks report one.
    assert!(
        took("iperf3") >= 10_000 && took("ib_write_bw") >= 10_000,
        "{said}"
    );
    let seconds = said
        .split("\"seconds\":")
        .nth(1)
        .and_then(|rest| rest.split(',').next()?.trim().parse().ok());
    assert!(
        seconds.is_some_and(|seconds: f64| (0.9..5.0).contains(&seconds)),
        "{said}"
    );
    assert!(said.contains("left: 0 processes, 0 sockets"), "{said}");
}
