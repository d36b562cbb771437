//! `rockery plan` and `rockery doctor` as a person calls them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

fn rockery(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rockery"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_plan_is_written_and_compared_with_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let lab = repository("examples/crs504/mapped.toml");
    let (lab, out) = (lab.to_str().unwrap(), folder.path().join("planned"));
    let wanted = ["--for", "crs504=routeros@7.17", "--for", "server=mlnx@5.8"];
    let output = rockery(&[&["plan", lab, "--out", out.to_str().unwrap()], &wanted[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let script = out.join("crs504/roce.rsc");
    assert!(fs::read_to_string(&script).unwrap().contains("map ip"));
    assert!(out.join("server/rockery-roce.service").exists());
    // The script of the lab lacks the map: the plan has it, and says what that is worth.
    let running = repository("examples/crs504/roce.rsc");
    let output = rockery(&[
        "plan",
        lab,
        "--for",
        "crs504=routeros@7.17",
        "--diff",
        running.to_str().unwrap(),
    ]);
    let shown = text(&output.stdout);
    assert!(
        output.status.success() && shown.contains("DSCP in class 3: none → 26"),
        "{shown}"
    );
    assert!(
        shown.contains("Gb/s instead of") && shown.contains("packets dropped"),
        "{shown}"
    );
    let output = rockery(&[
        "plan",
        lab,
        "--for",
        "crs504=routeros@7.17",
        "--diff",
        script.to_str().unwrap(),
    ]);
    assert!(
        text(&output.stdout).contains("says what is planned"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn unknown_versions_and_names_are_refused() {
    let lab = repository("examples/crs504/lab.toml");
    for (wanted, part) in [
        ("crs504=routeros@7.30", "versions 7.15 to 7.24 are"),
        (
            "crs505=routeros@7.17",
            "has no switch \"crs505\"; there are: crs504",
        ),
        ("crs504=ios@15", "is no dialect"),
    ] {
        let output = rockery(&["plan", lab.to_str().unwrap(), "--for", wanted]);
        let error = text(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty() && error.contains(part),
            "{error}"
        );
    }
}

#[test]
fn the_script_of_the_lab_has_its_fault_with_its_cost() {
    let script = repository("examples/crs504/roce.rsc");
    // Without the DSCP of data the fault is known, and the fix asks for it.
    let output = rockery(&["doctor", "--switch", script.to_str().unwrap()]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("no DSCP is mapped to class 3, which is lossless")
            && shown.contains("--dscp D"),
        "{shown}"
    );
    let arguments = [
        "doctor",
        "--dscp",
        "26",
        "--switch",
        script.to_str().unwrap(),
    ];
    let output = rockery(&arguments);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("DSCP 26 is mapped to class 1, which is lossy")
            && shown.contains("trust-l3=keep"),
        "{shown}"
    );
    assert!(
        shown.contains("map ip add dscp=26 profile=roce-profile")
            && shown.contains("Gb/s instead of"),
        "{shown}"
    );
    assert_eq!(shown.matches("  fix ").count(), 1, "{shown}");
}

#[test]
fn statuses_tell_faults_from_files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let healthy = repository("network/doctor/tests/hosts/mlx5.txt");
    let output = rockery(&["doctor", "--host", healthy.to_str().unwrap()]);
    assert!(
        output.status.success()
            && text(&output.stdout).contains("nothing is wrong of what was seen")
    );
    let faulty = folder.path().join("faulty.txt");
    fs::write(
        &faulty,
        fs::read_to_string(&healthy)
            .unwrap()
            .replace("MaxReadReq 4096", "MaxReadReq 128"),
    )
    .unwrap();
    let output = rockery(&["doctor", "--json", "--host", faulty.to_str().unwrap()]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &found["findings"][0]["rule"]),
        (Some(1), &"pcie-read-request".into())
    );
    let garbled = folder.path().join("garbled.txt");
    fs::write(&garbled, [0xff, 0, 1, 2, b'\n']).unwrap();
    let output = rockery(&[
        "doctor",
        "--host",
        garbled.to_str().unwrap(),
        "--switch",
        garbled.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(
        error.contains(&format!("cannot read line 1 of {}", garbled.display())),
        "{error}"
    );
    assert!(
        !text(&output.stdout).contains("fix"),
        "a file that cannot be read is no finding"
    );
}

#[test]
fn a_host_without_adapters_gets_a_page() {
    let output = rockery(&["doctor"]);
    let shown = text(&output.stdout);
    assert!(
        output.status.success() || output.status.code() == Some(1),
        "{}",
        text(&output.stderr)
    );
    if !Path::new("/sys/class/infiniband").exists() {
        assert!(
            shown.contains("no RDMA adapter") && shown.contains("what RoCE they could carry:"),
            "{shown}"
        );
        assert!(
            shown.contains("Devices that rockery run gives programs"),
            "{shown}"
        );
        // Each interface that there is has a line, with what RoCE it could carry.
        for entry in fs::read_dir("/sys/class/net").unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let line = shown
                .lines()
                .find(|line| line.starts_with(&format!("  {name}: ")));
            assert!(
                name == "lo" || line.is_some_and(|line| line.contains("RoCE")),
                "{name}: {shown}"
            );
        }
        // So has each device of rockery, and the page says what these offer.
        let offers = "Each offers reliable and unreliable connections and datagrams";
        assert_eq!(
            shown.contains("path MTU"),
            shown.contains(offers),
            "{shown}"
        );
        assert!(
            shown.contains("path MTU") || shown.contains("none: no interface is up"),
            "{shown}"
        );
    }
    assert!(text(&rockery(&["doctor", "snapshot"]).stdout).contains("==> sysfs <=="));
}

#[test]
fn a_host_and_a_switch_are_compared_with_the_fabric_file_and_findings_point_to_the_manual() {
    let folder = tempfile::tempdir().unwrap();
    let lab = repository("examples/crs504/mapped.toml");
    let host = folder.path().join("server.txt");
    let snapshot = fs::read_to_string(repository("network/doctor/tests/hosts/mlx5.txt")).unwrap();
    fs::write(&host, snapshot.replace("cnp_dscp: 48", "cnp_dscp: 4")).unwrap();
    let output = rockery(&[
        "doctor",
        "--json",
        "--fabric",
        lab.to_str().unwrap(),
        "--host",
        host.to_str().unwrap(),
    ]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rules: Vec<&serde_json::Value> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| &finding["rule"])
        .collect();
    assert!(
        rules.contains(&&"host-cnp".into()) && !rules.contains(&&"cnp-dscp".into()),
        "{found:#}"
    );
    let first = &found["findings"][0];
    let rule = first["rule"].as_str().unwrap();
    assert_eq!(first["link"], format!("docs/reference/rules.md#{rule}"));
    let manual = fs::read_to_string(repository("docs/reference/rules.md")).unwrap();
    assert!(manual.contains(&format!("\n### {rule}\n")), "{rule}");
    assert!(!first["specification"].as_str().unwrap().is_empty());
}

/// The section of a rule is printed by its name, as text and as JSON; other words are files.
#[test]
fn explain_prints_the_section_of_a_rule() {
    let explained = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_rockery"))
            .arg("explain")
            .args(arguments)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (status, said) = explained(&["switch-dscp-map", "numa"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.starts_with("switch-dscp-map\n\n") && said.contains("\nnuma\n\n"),
        "{said}"
    );
    assert!(
        said.contains("Specification: RFC 2474 (the DS field)."),
        "{said}"
    );
    let (_, said) = explained(&["numa", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["rules"][0]["rule"], "numa");
    let (status, said) = explained(&["switch-dscp-mop"]);
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("switch-dscp-mop: No such file"), "{said}");
}

/// A healthy host whose adapter lost so many packets, and reads too little at once.
fn snapshot(lost: u32) -> String {
    let healthy = repository("network/doctor/tests/hosts/mlx5.txt");
    let text = fs::read_to_string(healthy)
        .unwrap()
        .replace("MaxReadReq 4096", "MaxReadReq 128");
    let counter = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err";
    format!("{text}\n==> sysfs <==\n{counter}: {lost}\n")
}

#[test]
fn chosen_findings_end_with_status_1_and_others_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().join("host.txt");
    fs::write(&host, snapshot(7)).unwrap();
    let run = |kinds: &[&str]| {
        let host = host.to_str().unwrap();
        let output = rockery(&[&["doctor", "--host", host, "--fail-on"], kinds].concat());
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    for (kinds, status) in [
        (&["warning"][..], Some(1)),
        (&["counted-losses"], Some(1)),
        (&["pfc-off", "pcie-read-request"], Some(1)),
        (&["pfc-off"], Some(0)),
    ] {
        let (own, shown) = run(kinds);
        assert_eq!(own, status, "{kinds:?}: {shown}");
        assert!(shown.contains("[counted-losses]"), "{shown}");
    }
    let (status, shown) = run(&["pfc-of"]);
    assert_eq!(status, Some(2), "{shown}");
    assert!(shown.contains("did you mean pfc-off?"), "{shown}");
}

#[test]
fn counters_are_compared_with_an_earlier_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lost: u32| {
        let path = folder.path().join(name);
        fs::write(&path, snapshot(lost)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (before, same, later) = (write("a.txt", 7), write("b.txt", 7), write("c.txt", 19));
    let shown = |host: &str| {
        let output = rockery(&["doctor", "--host", host, "--before", &before]);
        text(&output.stdout)
    };
    assert!(!shown(&same).contains("[counted-losses]"));
    assert!(
        shown(&later).contains("packet_seq_err 12, since "),
        "{}",
        shown(&later)
    );
    let output = rockery(&["doctor", "--host", &later, &same, "--before", &before]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("1 of --before, and 2 of --host"), "{error}");
}

#[test]
fn a_probe_says_on_a_terminal_whom_it_asks_and_nowhere_else() {
    let command = format!(
        "{} doctor probe 127.0.0.1 --port 0",
        env!("CARGO_BIN_EXE_rockery")
    );
    let silent = Command::new("sh").args(["-c", &command]).output().unwrap();
    let said = String::from_utf8_lossy(&silent.stderr);
    assert!(!said.contains("asking"), "{said}");
    // util-linux: gives the program a terminal, and writes what it shows.
    let mut shown = Command::new("script");
    shown.args(["--quiet", "--command", &command, "/dev/null"]);
    let shown = shown.stdin(std::process::Stdio::null()).output();
    let shown = shown.expect("script (package bsdutils) is there");
    let said = String::from_utf8_lossy(&shown.stdout);
    assert!(said.contains("rockery: asking 127.0.0.1"), "{said}");
}
