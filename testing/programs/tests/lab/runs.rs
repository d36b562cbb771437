//! `rockery lab run`: workloads of fabric files live, beside their simulation. What switches do is of model
//! time however late the machine is; figures of devices are compared where the run was valid.

use programs::live;
use serde_json::Value;

const SECONDS: u64 = 600;

/// The JSON that a script printed in one line, when it has found that nothing of the lab was left.
fn document(said: &str) -> Value {
    assert!(said.contains("left: 0 sockets"), "{said}");
    let line = said.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{said}"))).expect("JSON")
}

/// Runs a file; the document that the command prints.
fn run(file: &str, options: &str) -> Value {
    let said = live::script(
        &format!(
            r#"
        $R lab run $E/{file} --compare --json {options} >$D/report 2>$D/errors
        echo "status $?"
        cat $D/errors
        echo "left: $(grep -c rockery-lab /proc/net/unix) sockets"
        cat $D/report"#
        ),
        SECONDS,
    );
    let document = document(&said);
    // The status is that of the run's validity.
    let status = if document["valid"] == true {
        "status 0"
    } else {
        "status 1"
    };
    assert!(said.contains(status), "{said}");
    document
}

/// A figure of the live run and of the simulation.
fn figures(document: &Value, what: &str) -> (f64, f64) {
    let all = document["differences"].as_array().expect("differences");
    let found = all
        .iter()
        .find(|one| one["what"] == what)
        .unwrap_or_else(|| panic!("{what}: {all:?}"));
    (
        found["live"].as_f64().expect("a number"),
        found["simulated"].as_f64().expect("a number"),
    )
}

fn is_near(document: &Value, what: &str, part: f64) {
    let (live, simulated) = figures(document, what);
    assert!(
        (live - simulated).abs() <= part * simulated,
        "{what}: {live} live, {simulated} simulated"
    );
}

#[test]
fn without_ecn_pauses_alone_slow_senders_down() {
    let document = run("crs504/ecn-off.toml", "--slow auto --set duration=4ms");
    assert_eq!(figures(&document, "crs504: dropped"), (0.0, 0.0));
    assert_eq!(figures(&document, "crs504: marked"), (0.0, 0.0));
    assert!(
        figures(&document, "crs504: pauses sent").0 > 0.0,
        "{document}"
    );
    assert!(
        figures(&document, "storage: goodput, Gb/s").0 > 0.0,
        "{document}"
    );
    if document["valid"] == true {
        is_near(&document, "storage: goodput, Gb/s", 0.05);
        is_near(&document, "crs504: pauses sent", 0.25);
        for report in [&document["report"], &document["simulated"]] {
            assert!(
                report["findings"].to_string().contains("ECN is off"),
                "{report}"
            );
        }
    }
}

#[test]
fn a_class_without_map_entries_drops_and_one_with_them_does_not() {
    // Senders that get no processor in time send less: slower hosts are less late.
    let drops = |document: &Value| figures(document, "crs504: dropped").0 > 0.0;
    let slowed = [1000, 4000, 16_000].into_iter();
    let mut runs = slowed.map(|slow| {
        run(
            "crs504/as-written.toml",
            &format!("--slow {slow} --set duration=3ms"),
        )
    });
    let document = runs.find(drops).expect("packets are dropped");
    let findings = document["report"]["findings"].as_array().expect("findings");
    assert!(
        findings
            .iter()
            .any(|finding| finding.to_string().contains("DSCP 26")),
        "{findings:?}"
    );
    let document = run("crs504/mapped.toml", "--slow 1000 --set duration=3ms");
    assert_eq!(figures(&document, "crs504: dropped").0, 0.0, "{document}");
}

#[test]
fn packets_that_are_sprayed_arrive_out_of_order() {
    let document = run("spraying/two-paths.toml", "--slow auto --set duration=1ms");
    assert!(
        figures(&document, "ib_write_bw: swapped, %").0 > 0.0,
        "{document}"
    );
    if document["valid"] == true {
        // A live device has a window of its own in place of the adapter's and sends a tenth as fast: fewer
        // packets follow each other closely enough to be swapped.
        is_near(&document, "ib_write_bw: swapped, %", 0.5);
    }
}

#[test]
fn reads_and_sends_run_live() {
    let said = live::script(
        r#"
        cat >$D/both.toml <<FILE
        [[host]]
        name = "h"
        count = 3
        [[switch]]
        name = "sw"
        [[link]]
        between = ["h*", "sw"]
        [[workload]]
        name = "reads"
        from = ["h0"]
        to = ["h2"]
        operation = "read"
        message = "32KiB"
        messages = 5
        depth = 2
        [[workload]]
        name = "sends"
        from = ["h1"]
        to = ["h2"]
        operation = "send"
        message = "32KiB"
        messages = 5
        depth = 2
FILE
        $R lab run $D/both.toml --slow 1000 --json 2>/dev/null
        $R lab run $D/both.toml --slow 1000 --set workload.0.operation=datagram --set workload.0.message=1KiB
        echo "left: $(grep -c rockery-lab /proc/net/unix) sockets"
        "#,
        SECONDS,
    );
    let line = said.lines().find(|line| line.starts_with('{'));
    let document: Value =
        serde_json::from_str(line.unwrap_or_else(|| panic!("{said}"))).expect("JSON");
    for workload in document["report"]["workloads"]
        .as_array()
        .expect("workloads")
    {
        assert_eq!(workload["delivered_bytes"], 5 * 32768, "{workload}");
        assert_eq!(workload["bytes"], 5 * 32768, "{workload}");
    }
    assert!(said.contains("cannot run live"), "{said}");
    assert!(said.contains("left: 0 sockets"), "{said}");
}

/// The way to the receiver is down when the first message is sent, and up when it is sent again.
const DOWN: &str = r#"
[[host]]
name = "h"
count = 2
[[switch]]
name = "sw"
[[link]]
between = ["h0", "sw"]
[[link]]
between = ["h1", "sw"]
down = [{ at = "0ms", lasts = "200ms" }]
[[workload]]
from = ["h0"]
to = ["h1"]
message = "4KiB"
messages = 1
"#;

#[test]
fn ack_timeouts_are_those_that_devices_count() {
    let said = live::script(
        &format!(
            r#"
        cat >$D/down.toml <<'FILE'{DOWN}FILE
        $R lab run $D/down.toml --slow 1 --json >$D/report 2>$D/errors
        cat $D/errors
        echo "left: $(grep -c rockery-lab /proc/net/unix) sockets"
        cat $D/report"#
        ),
        SECONDS,
    );
    let document = document(&said);
    let workload = &document["report"]["workloads"][0];
    // Each timeout sends the only packet again; the last time it arrives.
    let count = |what: &str| {
        workload[what]
            .as_u64()
            .unwrap_or_else(|| panic!("{what}: {workload}"))
    };
    assert!(count("timeouts") >= 1, "{workload}");
    assert_eq!(count("timeouts"), count("retransmitted"), "{workload}");
}
