//! `rockery doctor probe --mesh` on three hosts at the same time, and `rockery doctor matrix` of what they
//! print: a fault in a router between them is found in the pairs that it is in.

use std::fs;
use std::net::IpAddr;
use std::process::Command;

use programs::namespace::Process;
use programs::{Job, Namespace, Rockery};
use serde_json::Value;
use tempfile::TempDir;

const SECONDS: u64 = 120;

/// Three hosts, each on a network of its own, and the router between them.
struct Star {
    router: Namespace,
    hosts: Vec<Namespace>,
}

fn address(network: u8, host: u8) -> IpAddr {
    IpAddr::from([10, 78, network, host])
}

impl Star {
    fn new() -> Self {
        let none = IpAddr::from([0_u16; 8]);
        let namespace = |address| Namespace::new(address, none).expect("a namespace");
        let router = namespace(address(1, 1));
        let hosts: Vec<Namespace> = (1..=3)
            .map(|network| namespace(address(network, 2)))
            .collect();
        for (network, host) in (1..).zip(&hosts) {
            let (peer, gateway, side) =
                (host.netns(), address(network, 1), format!("side{network}"));
            for line in [
                format!("ip link add {side} type veth peer name eth0 netns {peer}"),
                format!("ip link set {side} mtu 9000 up"),
                format!("ip address add {gateway}/24 dev {side}"),
            ] {
                router.call(&line).expect("a link of the router");
            }
            for line in [
                "ip link set eth0 mtu 9000 up".to_owned(),
                format!("ip address add {}/24 dev eth0", address(network, 2)),
                format!("ip route add default via {gateway}"),
            ] {
                host.call(&line).expect("a link of a host");
            }
        }
        router
            .call("sysctl -qw net.ipv4.ip_forward=1")
            .expect("a router");
        Self { router, hosts }
    }

    fn rule(&self, rule: &str) {
        for line in [
            "nft add table ip middle".to_owned(),
            "nft add chain ip middle through { type filter hook forward priority 0 ; }".to_owned(),
            format!("nft add rule ip middle through {rule}"),
        ] {
            self.router.call(&line).expect("nft of package nftables");
        }
    }

    /// The matrix of some hosts, and its status: the files of the others are not given to it.
    fn matrix(&self, given: &[usize]) -> (Value, Option<i32>) {
        let rockery = Rockery::built().path().display().to_string();
        let names: Vec<String> = (1..=3)
            .map(|network| address(network, 2).to_string())
            .collect();
        let start = |host: &Namespace| {
            let words = [&*rockery, "doctor", "probe", "--mesh", "--json"];
            let names = names.iter().map(String::as_str);
            host.start_plain(&words.into_iter().chain(names).collect::<Vec<_>>())
                .expect("it starts")
        };
        let mut started: Vec<Process> = self.hosts.iter().map(start).collect();
        let folder = TempDir::new().expect("a temporary folder");
        let mut files = Vec::new();
        for (index, process) in started.iter_mut().enumerate() {
            let output = process.wait(SECONDS).expect("in time").output;
            let (from, to) = (output.find("{\n"), output.rfind('}'));
            let (Some(from), Some(to)) = (from, to) else {
                panic!("no JSON: {output}")
            };
            let file = folder.path().join(format!("{index}.json"));
            fs::write(&file, &output[from..=to]).expect("our own folder");
            files.push(file);
        }
        let files = given.iter().map(|index| &files[*index]);
        let output = Command::new(&rockery)
            .args(["doctor", "matrix", "--json"])
            .args(files)
            .output()
            .expect("rockery");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}")),
            output.status.code(),
        )
    }
}

#[test]
fn three_hosts_ask_each_other_and_a_fault_of_one_of_them_is_named() {
    let star = Star::new();
    let (page, status) = star.matrix(&[0, 1, 2]);
    assert_eq!(
        (page["faults"].as_array().map(Vec::len), status),
        (Some(0), Some(0)),
        "{page:#}"
    );
    assert_eq!(
        page["unknown"].as_array().map(Vec::len),
        Some(0),
        "every pair was seen: {page:#}"
    );
    let pairs = page["pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), 6, "{page:#}");
    assert!(
        pairs
            .iter()
            .all(|pair| pair["roce"] == "answers" && pair["payload"] == 4096),
        "{page:#}"
    );
    // Packets to the third host have lost their ECN bits, and packets from it have not.
    star.rule("oifname side3 ip ecn set not-ect");
    let (page, status) = star.matrix(&[0, 1, 2]);
    assert_eq!(status, Some(1), "{page:#}");
    let fault = &page["faults"][0];
    assert_eq!(fault["rule"], "probe-ecn-bleached", "{page:#}");
    // Answers to the third host lose them as well, so that each of its pairs has the fault.
    assert_eq!(
        fault["whereabouts"]["hosts"],
        serde_json::json!([address(3, 2).to_string()]),
        "{page:#}"
    );
    assert_eq!(fault["pairs"].as_array().map(Vec::len), Some(4), "{page:#}");
    let (page, _) = star.matrix(&[0]);
    assert_eq!(
        page["unknown"].as_array().map(Vec::len),
        Some(4),
        "two hosts said nothing: {page:#}"
    );
}
