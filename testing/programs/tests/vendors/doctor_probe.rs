//! `rockery doctor probe` names the fault of a network: six networks with one hidden fault each, and the same
//! networks without it. Faults of marks, size and reachability are in a router between two namespaces, those
//! that show under load in a live lab, whose switch has real queues and pauses.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use programs::machine::until;
use programs::namespace::Process;
use programs::{Job, Namespace, Rockery};
use serde_json::Value;
use tempfile::TempDir;

const SECONDS: u64 = 120;

/// Two hosts on two networks, and the router between them.
struct Routed {
    asking: Namespace,
    router: Namespace,
    asked: Namespace,
}

fn address(network: u8, host: u8) -> IpAddr {
    IpAddr::from([10, 77, network, host])
}

impl Routed {
    /// With MTU 9000 at both hosts; the router's link to the asked host has this MTU.
    fn new(mtu: u32) -> Self {
        let none = IpAddr::from([0_u16; 8]);
        let namespace = |address| Namespace::new(address, none).expect("a namespace");
        let routed = Self {
            asking: namespace(address(1, 2)),
            router: namespace(address(1, 1)),
            asked: namespace(address(2, 2)),
        };
        for (host, network, own_mtu) in [(&routed.asking, 1, 9000), (&routed.asked, 2, mtu)] {
            let (peer, gateway) = (host.netns(), address(network, 1));
            let side = format!("side{network}");
            for line in [
                format!("ip link add {side} type veth peer name eth0 netns {peer}"),
                format!("ip link set {side} mtu {own_mtu} up"),
                format!("ip address add {gateway}/24 dev {side}"),
            ] {
                routed.router.call(&line).expect("a link of the router");
            }
            for line in [
                "ip link set eth0 mtu 9000 up".to_owned(),
                format!("ip address add {}/24 dev eth0", address(network, 2)),
                format!("ip route add default via {gateway}"),
            ] {
                host.call(&line).expect("a link of a host");
            }
        }
        routed
            .router
            .call("sysctl -qw net.ipv4.ip_forward=1")
            .expect("a router");
        routed
    }

    /// A rule for packets that the router forwards.
    fn rule(&self, rule: &str) -> &Self {
        for line in [
            "nft add table ip middle".to_owned(),
            "nft add chain ip middle through { type filter hook forward priority 0 ; }".to_owned(),
            format!("nft add rule ip middle through {rule}"),
        ] {
            self.router.call(&line).expect("nft of package nftables");
        }
        self
    }

    /// Lets the asked host answer probes.
    fn listening(&self) -> Process {
        let rockery = Rockery::built();
        let path = rockery.path().display().to_string();
        let mut listener = self
            .asked
            .start_plain(&[&path, "doctor", "probe", "--listen"])
            .expect("it starts");
        listener.expect_output("answering", SECONDS);
        listener
    }

    /// The output of a probe of the asked host, and the rules of its findings.
    fn probe(&self) -> (Value, Vec<String>) {
        let rockery = Rockery::built();
        let path = rockery.path().display().to_string();
        let asked = address(2, 2).to_string();
        let argv = [&*path, "doctor", "probe", "--json", &*asked];
        let mut probe = self.asking.start_plain(&argv).expect("it starts");
        let output = probe.wait(SECONDS).expect("in time").output;
        page(&output)
    }
}

/// The JSON of a probe, and the rules of its findings.
fn page(output: &str) -> (Value, Vec<String>) {
    let end = output
        .rfind('}')
        .unwrap_or_else(|| panic!("no JSON: {output}"));
    let start = output
        .find('{')
        .unwrap_or_else(|| panic!("no JSON: {output}"));
    let page: Value =
        serde_json::from_str(&output[start..=end]).unwrap_or_else(|_| panic!("{output}"));
    let rules = page["findings"].as_array().expect("findings").iter();
    let rules = rules
        .map(|finding| finding["rule"].as_str().expect("a rule").to_owned())
        .collect();
    (page, rules)
}

#[test]
fn nothing_is_found_in_a_network_without_fault() {
    let routed = Routed::new(9000);
    let _listener = routed.listening();
    let (page, rules) = routed.probe();
    let host = &page["hosts"][0];
    assert!(rules.is_empty(), "{page:#}");
    assert_eq!(
        (&host["roce"], &host["payload"], &host["hops"]),
        (&"answers".into(), &4096.into(), &1.into())
    );
    assert_eq!(host["marks"].as_array().map(Vec::len), Some(3), "{page:#}");
    assert!(
        host["marks"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|mark| mark["sent"] == mark["arrived"])
    );
}

#[test]
fn bleached_ecn_is_named() {
    let routed = Routed::new(9000);
    let _listener = routed.listening();
    routed.rule("ip ecn set not-ect");
    let (page, rules) = routed.probe();
    assert_eq!(rules, ["probe-ecn-bleached"], "{page:#}");
    assert!(
        page["findings"][0]["what"]
            .as_str()
            .expect("text")
            .contains("in both directions"),
        "{page:#}"
    );
}

#[test]
fn ecn_that_is_bleached_on_one_way_and_a_rewritten_dscp_are_named() {
    let routed = Routed::new(9000);
    let _listener = routed.listening();
    routed
        .rule("oifname side2 ip ecn set not-ect")
        .rule("iifname side1 ip dscp 26 ip dscp set 0");
    let (page, rules) = routed.probe();
    assert_eq!(
        rules,
        ["probe-dscp-rewritten", "probe-ecn-bleached"],
        "{page:#}"
    );
    let what = |index: usize| page["findings"][index]["what"].as_str().expect("text");
    assert!(
        what(0).contains("DSCP 26 is rewritten on the way to it: it arrives as 0"),
        "{page:#}"
    );
    assert!(what(1).contains("on the way to it"), "{page:#}");
}

#[test]
fn a_small_mtu_in_the_middle_is_named_with_its_router() {
    let routed = Routed::new(1500);
    let _listener = routed.listening();
    let (page, rules) = routed.probe();
    assert_eq!(
        (rules, &page["hosts"][0]["payload"]),
        (vec!["probe-mtu".to_owned()], &1024.into()),
        "{page:#}"
    );
    assert!(
        page["findings"][0]["what"]
            .as_str()
            .expect("text")
            .contains("10.77.1.1 has a link with MTU 1500")
    );
}

#[test]
fn a_small_mtu_that_no_icmp_reports_is_named_and_needs_no_cooperation() {
    let routed = Routed::new(9000);
    // A switch drops packets that are too long, without an ICMP error.
    routed.rule("ip length > 1500 drop");
    let (page, rules) = routed.probe();
    // No program of the host answers: its kernel reports closed ports.
    assert_eq!(rules, ["probe-no-stack", "probe-mtu"], "{page:#}");
    let host = &page["hosts"][0];
    assert_eq!(
        (&host["payload"], &host["cooperates"]),
        (&1024.into(), &false.into()),
        "{page:#}"
    );
    assert_eq!(
        host["marks"],
        Value::Array(Vec::new()),
        "marks are unknown: {page:#}"
    );
    assert!(
        page["findings"][1]["what"]
            .as_str()
            .expect("text")
            .contains("vanish"),
        "{page:#}"
    );
}

#[test]
fn a_blocked_port_is_told_from_a_host_that_is_down() {
    let routed = Routed::new(9000);
    let listener = routed.listening();
    routed.rule("udp dport 4791 drop");
    let (page, rules) = routed.probe();
    assert_eq!(rules, ["probe-port-blocked"], "{page:#}");
    drop(listener);
    routed
        .asked
        .call("ip link set eth0 down")
        .expect("a host that is down");
    let (page, rules) = routed.probe();
    assert_eq!(rules, ["probe-host-down"], "{page:#}");
}

#[test]
fn a_rockery_device_answers_like_any_roce_stack() {
    let routed = Routed::new(9000);
    let rockery = Rockery::built();
    let path = rockery.path().display().to_string();
    let serving = [&*path, "run", "--", "ib_send_bw", "--rdma_cm"];
    let _server = routed.asked.start_plain(&serving).expect("perftest");
    let listens = || Ok(!routed.asked.call(&format!("{path} listeners"))?.is_empty());
    assert!(
        until(SECONDS, listens).expect("rockery listeners"),
        "perftest does not listen"
    );
    let (page, rules) = routed.probe();
    assert!(rules.is_empty(), "{page:#}");
    let host = &page["hosts"][0];
    assert_eq!(
        (&host["roce"], &host["cooperates"]),
        (&"answers".into(), &false.into()),
        "{page:#}"
    );
}

/// A lab with three hosts: two that send, and one that requests it. Links have 50 Mb/s of the wall clock.
struct LoadedLab {
    rockery: String,
    folder: TempDir,
    name: String,
    listeners: Vec<Child>,
}

/// Probes of a test at most, of four seconds for each load.
const PROBES: u32 = 5;

/// Whether a sender was late with a tenth of its packets.
fn is_late(page: &Value) -> bool {
    let number = |load: &Value, field: &str| load[field].as_u64().unwrap_or(0);
    let mut loads = page["load"].as_array().into_iter().flatten();
    loads.any(|load| 10 * number(load, "late") > number(load, "due"))
}

const SWITCH: &str = "
title = \"probe\"
duration = \"1ms\"
[[host]]
name = \"monitor\"
[[host]]
name = \"first\"
[[host]]
name = \"second\"
NIC_OF_SECOND
[[switch]]
name = \"middle\"
[[link]]
between = [\"monitor\", \"middle\"]
rate = \"50Gb/s\"
length = \"3m\"
[[link]]
between = [\"first\", \"middle\"]
rate = \"50Gb/s\"
length = \"3m\"
[[link]]
between = [\"second\", \"middle\"]
rate = \"RATE_OF_SECOND\"
length = \"3m\"
[[workload]]
name = \"load\"
pattern = \"each\"
from = [\"first\", \"second\"]
to = [\"monitor\"]
message = \"1MiB\"
[nic.default]
dscp = 26
priority = 3
pfc = [3]
[nic.deaf]
dscp = 26
priority = 3
pfc = []
[qos.default]
buffer = \"1MiB\"
trust = \"dscp\"
default-class = 0
dscp = { DSCP_MAP }
pfc.classes = [3]
";

impl LoadedLab {
    fn new(name: &str, nic: &str, rate: &str, map: &str) -> Self {
        Self::with_queues(name, nic, rate, map, "")
    }

    /// With tables of queues beside.
    fn with_queues(name: &str, nic: &str, rate: &str, map: &str, queues: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("lab.toml");
        let text = SWITCH
            .replace("NIC_OF_SECOND", nic)
            .replace("RATE_OF_SECOND", rate);
        fs::write(&file, text.replace("DSCP_MAP", map) + queues).expect("our own folder");
        let rockery = Rockery::built().path().display().to_string();
        let name = format!("probe-{name}-{}", std::process::id());
        let mut lab = Self {
            rockery,
            folder,
            name,
            listeners: Vec::new(),
        };
        let file = file.display().to_string();
        lab.call(&[
            "lab",
            "up",
            "-d",
            "--slow",
            "1000",
            "--name",
            &lab.name.clone(),
            &file,
        ]);
        for host in ["first", "second"] {
            lab.listen(host);
        }
        lab
    }

    fn call(&self, words: &[&str]) -> String {
        let output = Command::new(&self.rockery)
            .args(words)
            .output()
            .expect("rockery");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        said
    }

    fn listen(&mut self, host: &str) {
        let out = self.folder.path().join(host);
        let file = fs::File::create(&out).expect("our own folder");
        let words = [
            "lab",
            "exec",
            "--machine-clock",
            "--lab",
            &self.name,
            host,
            "--",
            &self.rockery,
            "doctor",
            "probe",
        ];
        let options = ["--listen", "--load", "100Mb/s", "--from", "monitor"];
        let started = Command::new(&self.rockery)
            .args([&words[..], &options].concat())
            .stdin(Stdio::null())
            .stdout(file)
            .spawn();
        self.listeners.push(started.expect("rockery"));
        let is_ready = || {
            Ok(fs::read_to_string(Path::new(&out))
                .unwrap_or_default()
                .contains("answering"))
        };
        assert!(
            until(SECONDS, is_ready).expect("its output"),
            "{host} does not listen"
        );
    }

    /// The output of a probe of both hosts with load, and the rules of its findings.
    fn probe(&self) -> (Value, Vec<String>) {
        self.probe_with(&[])
    }

    /// Once more where the machine had no time for the senders: rules do not judge what was sent late.
    fn probe_with(&self, more: &[&str]) -> (Value, Vec<String>) {
        let mut found = self.probe_once(more);
        for _ in 1..PROBES {
            if !is_late(&found.0) {
                break;
            }
            found = self.probe_once(more);
        }
        found
    }

    fn probe_once(&self, more: &[&str]) -> (Value, Vec<String>) {
        let words = [
            "lab",
            "exec",
            "--machine-clock",
            "--lab",
            &self.name,
            "monitor",
            "--",
            &self.rockery,
            "doctor",
            "probe",
        ];
        let options = [
            "--json",
            "--load",
            "40Mb/s",
            "--seconds",
            "4",
            "first",
            "second",
        ];
        let output = Command::new(&self.rockery)
            .args([&words[..], &options, more].concat())
            .output();
        let output = output.expect("rockery");
        page(&String::from_utf8_lossy(
            &[output.stdout, output.stderr].concat(),
        ))
    }
}

impl Drop for LoadedLab {
    fn drop(&mut self) {
        _ = Command::new(&self.rockery)
            .args(["lab", "down", &self.name])
            .output();
        for listener in &mut self.listeners {
            _ = listener.wait();
        }
    }
}

const FULL: &str = "50Gb/s";
const MAPPED: &str = "\"26\" = 3";

#[test]
fn a_lossless_class_loses_nothing_under_load() {
    let (page, rules) = LoadedLab::new("healthy", "", FULL, MAPPED).probe();
    assert!(rules.is_empty(), "{page:#}");
    let loads = page["load"].as_array().expect("loads");
    assert_eq!(loads.len(), 4, "{page:#}");
    assert!(
        loads
            .iter()
            .all(|load| load["lost"] == 0 && load["sent"].as_u64() > Some(0)),
        "{page:#}"
    );
    let held_back = loads[2..]
        .iter()
        .filter_map(|load| load["held_back"].as_u64())
        .sum::<u64>();
    assert!(held_back > 0, "senders were paused: {page:#}");
}

#[test]
fn a_dscp_without_lossless_class_is_named() {
    let (page, rules) = LoadedLab::new("unmapped", "", FULL, "\"48\" = 6").probe();
    assert_eq!(rules, ["probe-lossy-class"], "{page:#}");
}

#[test]
fn pfc_that_is_off_at_one_end_is_named_with_its_host() {
    let (page, rules) = LoadedLab::new("deaf", "nic = \"deaf\"", FULL, MAPPED).probe();
    assert_eq!(rules, ["probe-pfc-one-end"], "{page:#}");
    assert!(page["findings"][0]["place"] == "second", "{page:#}");
}

#[test]
fn a_host_at_half_speed_is_named() {
    // Slots of live hosts are not simulated: the port has the rate that half of the lanes leave.
    let (page, rules) = LoadedLab::new("slot", "", "25Gb/s", MAPPED).probe();
    assert_eq!(rules, ["probe-slow-host"], "{page:#}");
    let finding = &page["findings"][0];
    assert!(
        finding["place"] == "second"
            && finding["what"]
                .as_str()
                .expect("text")
                .contains("PCIe slot")
    );
}

/// Tables of queues: class 3 for data, class 0 for the rest.
fn queues(data: &str, rest: &str) -> String {
    format!("[qos.default.queue.3]\n{data}\n[qos.default.queue.0]\n{rest}\n")
}

#[test]
fn classes_that_share_as_the_fabric_file_says_have_no_finding() {
    let queues = queues("weight = 60", "weight = 40");
    let lab = LoadedLab::with_queues("shares", "", FULL, MAPPED, &queues);
    let file = lab.folder.path().join("lab.toml").display().to_string();
    let (page, rules) = lab.probe_with(&["--fabric", &file, "--as", "monitor"]);
    assert!(rules.is_empty(), "{page:#}");
    let shares = page["shares"].as_array().expect("shares");
    assert_eq!(shares.len(), 2, "{page:#}");
    for (share, (dscp, expected)) in shares.iter().zip([(26, 60.0), (0, 40.0)]) {
        assert_eq!(
            (&share["dscp"], share["expected"].as_f64()),
            (&dscp.into(), Some(expected)),
            "{page:#}"
        );
        let measured = share["measured"].as_f64().expect("a number");
        assert!(
            (measured - expected).abs() < 10.0 && share["limited"] == true,
            "{:#}",
            page["shares"]
        );
    }
}

#[test]
fn a_class_below_a_strict_one_is_starved_and_named() {
    let queues = queues("level = 0", "level = 1");
    let lab = LoadedLab::with_queues("starved", "", FULL, MAPPED, &queues);
    let (page, rules) = lab.probe_with(&["--expect-share", "26=50,0=50"]);
    assert_eq!(rules, ["probe-share"], "{page:#}");
    let what = page["findings"][0]["what"].as_str().expect("text");
    assert!(
        what.starts_with("DSCP 26 gets ") && what.contains("instead of 50 %"),
        "{page:#}"
    );
    // The same switch does what a file with its weights expects.
    let file = lab.folder.path().join("lab.toml").display().to_string();
    let (page, rules) = lab.probe_with(&["--fabric", &file, "--as", "monitor"]);
    assert!(rules.is_empty(), "{page:#}");
}
