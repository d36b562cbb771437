//! `rockery doctor lldp` on an interface, and generated configurations read by programs of others.

use std::process::Command;

use programs::machine::until;
use programs::{Job, Pair, Rockery};
use serde_json::Value;

/// A frame of port swp1 of switch leaf1: chassis, port, time to live, system name, and PFC for priority 3.
const FRAME: &str = "0180c200000e02000000000188cc02070402000000000104050573777031060200780a056c65616631\
                     fe060080c20b08080000000000000000000000000000";

const SECONDS: u64 = 60;

#[test]
fn a_switch_is_heard_on_an_interface() {
    let pair = Pair::new(1500).expect("a link");
    let rockery = Rockery::built().path().display().to_string();
    let listen = [
        &*rockery,
        "doctor",
        "lldp",
        "--interface",
        "eth0",
        "--seconds",
        "6",
        "--json",
    ];
    let mut listening = pair.left.start_plain(&listen).expect("it starts");
    let send = format!(
        "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0)); \
         s.send(bytes.fromhex('{FRAME}'))"
    );
    let mut finished = None;
    let ended = until(SECONDS, || {
        // Again and again, as a switch does: the socket may not be open yet.
        pair.right
            .start_plain(&["python3", "-c", &send])?
            .wait(SECONDS)?
            .expect_success();
        finished = listening.finished()?;
        Ok(finished.is_some())
    });
    assert!(ended.expect("a link"), "the time is over");
    let said = finished.expect("it ended").expect_success().output;
    let found: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{said}");
    assert_eq!(
        (&found[0]["system"], &found[0]["port"]),
        (&"leaf1".into(), &"swp1".into()),
        "{said}"
    );
    assert_eq!(found[0]["pfc"]["enabled"], serde_json::json!([3]), "{said}");
}

#[test]
fn without_the_right_to_listen_the_error_says_what_to_do() {
    let pair = Pair::new(1500).expect("a link");
    let (_prefix, rockery) = Rockery::built().installed();
    let rockery = rockery.display().to_string();
    let nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--bounding-set=-all",
    ];
    let listen = [&*rockery, "doctor", "lldp", "--interface", "eth0"];
    let mut job = pair
        .left
        .start_plain(&[&nobody[..], &listen].concat())
        .expect("setpriv");
    let finished = job.wait(SECONDS).expect("in time");
    assert_eq!(finished.status, Some(2), "{}", finished.output);
    assert!(
        finished.output.contains("needs CAP_NET_RAW"),
        "{}",
        finished.output
    );
}

#[test]
fn jq_reads_what_is_written_for_sonic() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = programs::workspace().join("examples/crs504/mapped.toml");
    let mut plan = Command::new(Rockery::built().path());
    plan.arg("plan")
        .arg(&file)
        .args(["--for", "crs504=sonic@202411", "--out"])
        .arg(out.path());
    let written = plan.output().expect("rockery");
    assert!(
        written.status.success(),
        "{}",
        String::from_utf8_lossy(&written.stderr)
    );
    let file = out.path().join("crs504/config_db.json");
    // Data with DSCP 26 is in the traffic class of the queue and priority with PFC.
    let filter = "[.DSCP_TO_TC_MAP[][\"26\"], \
                  (.PORT_QOS_MAP[].pfc_enable | split(\",\")[])] | unique | join(\" \")";
    let read = Command::new("jq")
        .args(["-er", filter])
        .arg(&file)
        .output()
        .expect("jq of package jq");
    let said = String::from_utf8_lossy(&[read.stdout, read.stderr].concat()).into_owned();
    assert_eq!(
        (read.status.code(), said.trim()),
        (Some(0), "3"),
        "{}",
        file.display()
    );
}
