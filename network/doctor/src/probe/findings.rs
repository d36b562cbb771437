//! Findings of a probe: observed faults, their cost, and their correction. A property that was not observed
//! is unknown, and never a finding.

use super::load::StreamOutcome;
use super::shares::Share;
use super::survey::{Mark, Observed, Reach, SizeLimit, marks, packet_bytes};
use crate::cost_simulation::{Case, Talk, compare};
use crate::{Consequence, Finding};
use vendors::Intent;
use vendors::facts::Evidence;
use vendors::intent::Schedule;

/// The DSCP of notifications in the simulation, and the first one that is tried besides that of data.
const CNP_DSCP: u8 = 48;

fn cost(gbps: u32, change: impl Fn(&mut Case)) -> Consequence {
    let fixed = Case::incast(&Intent::default(), gbps.clamp(1, 800));
    let mut now = fixed.clone();
    change(&mut now);
    compare(&now, &fixed).map_or(
        Consequence::NotSimulated("the settings make no network"),
        Consequence::Simulated,
    )
}

fn all(case: &mut Case, change: impl Fn(&mut Talk)) {
    change(&mut case.senders);
    change(&mut case.receiver);
}

impl Observed {
    fn evidence(&self, line: usize) -> Evidence {
        let text = self
            .log
            .get(line.wrapping_sub(1))
            .cloned()
            .unwrap_or_default();
        Evidence {
            file: self.host.clone(),
            line,
            text,
        }
    }

    fn all_evidence(&self) -> Vec<Evidence> {
        (1..=self.log.len())
            .map(|line| self.evidence(line))
            .collect()
    }

    fn say(
        &self,
        rule: &'static str,
        what: String,
        evidence: Vec<Evidence>,
        consequence: Consequence,
        fix: String,
    ) -> Finding {
        let place = match self.address.to_string() == self.host {
            true => self.host.clone(),
            false => format!("{} ({})", self.host, self.address),
        };
        Finding::new(rule, place, what, evidence, consequence, fix)
    }
}

/// Faults between this machine and a host whose links have this speed.
pub fn survey_findings(observed: &Observed, gbps: u32) -> Vec<Finding> {
    let mut found = Vec::new();
    reach(observed, &mut found);
    sizes(observed, gbps, &mut found);
    let unlike =
        |mark: &&Mark| mark.arrived >> 2 != mark.sent >> 2 || mark.returned >> 2 != mark.sent >> 2;
    for mark in observed.marks.iter().filter(unlike) {
        found.push(rewritten(observed, mark, gbps));
    }
    let bleached = |mark: &&Mark| mark.arrived & 3 == 0 || mark.returned & 3 == 0;
    if let Some(mark) = observed.marks.iter().find(bleached) {
        let way = match (mark.arrived & 3, mark.returned & 3) {
            (0, 0) => "in both directions",
            (0, _) => "on the way to it",
            _ => "on the way back from it",
        };
        let what = format!("ECN is bleached {way}: ECT(0) was sent, and Not-ECT arrives");
        let consequence = cost(gbps, |case| all(case, |talk| talk.ecn = false));
        let fix = "find the hop that clears the ECN bits: a firewall or router that sets the whole ToS byte \
                   instead of DSCP,\nor a tunnel whose ends do not copy ECN (RFC 6040)";
        let seen = vec![observed.evidence(mark.line)];
        found.push(observed.say(
            "probe-ecn-bleached",
            what,
            seen,
            consequence,
            fix.to_owned(),
        ));
    }
    found
}

fn reach(observed: &Observed, found: &mut Vec<Finding>) {
    let (rule, what, fix) = match observed.reach {
        Reach::Answered | Reach::NotSent => return,
        // A program that only listens for probes would have answered: there is no stack and no listener.
        Reach::NoStack => (
            "probe-no-stack",
            "the host is up, and nothing of RoCE listens on its UDP port 4791",
            "start the program that is to be reached (rockery run), or load the adapter's RoCE driver;\n\
             rockery doctor probe --listen answers in its place",
        ),
        Reach::Blocked => (
            "probe-port-blocked",
            "UDP port 4791 is blocked: the host answers other packets, and no REQ to queue pair 1",
            "allow UDP port 4791 in both directions, in the firewalls of both hosts and of all routers \
             between them:\nnft add rule inet filter input udp dport 4791 accept",
        ),
        Reach::Nothing => (
            "probe-host-down",
            "the host answers nothing: it is down, not routed to, or drops everything",
            "check its address, cable and route: ip route get ADDRESS",
        ),
    };
    let seen = observed.all_evidence().into_iter().take(3).collect();
    let finding = observed.say(
        rule,
        what.to_owned(),
        seen,
        Consequence::NothingArrives,
        fix.to_owned(),
    );
    found.push(finding);
}

fn sizes(observed: &Observed, gbps: u32, found: &mut Vec<Finding>) {
    let Some(limit) = observed
        .sizes
        .limit
        .filter(|limit| *limit != SizeLimit::ThisMachine)
    else {
        return;
    };
    let needed = packet_bytes(4096, observed.address);
    let largest = observed.sizes.largest;
    let works = largest.map_or("none arrives".to_owned(), |mtu| format!("{mtu} arrives"));
    let why = match limit {
        SizeLimit::Router(router, mtu) => format!("{router} has a link with MTU {mtu}"),
        _ => "longer packets vanish without an ICMP error".to_owned(),
    };
    let next = largest.map_or(256, |mtu| mtu * 2);
    let what = format!("RoCE packets of {next} bytes do not get through, {works}: {why}");
    let consequence = match largest {
        Some(mtu) => cost(gbps, |case| all(case, |talk| talk.mtu = mtu)),
        None => Consequence::NothingArrives,
    };
    let fix = format!(
        "set the MTU of all links and switch ports on the way to {needed} or more (9000 is usual), or the \
         path MTU of RoCE to what arrives"
    );
    let silent = |line: &&Evidence| line.text.contains("bytes, DF");
    let seen = observed
        .all_evidence()
        .iter()
        .filter(silent)
        .cloned()
        .collect();
    found.push(observed.say("probe-mtu", what, seen, consequence, fix));
}

fn rewritten(observed: &Observed, mark: &Mark, gbps: u32) -> Finding {
    let dscp = mark.sent >> 2;
    let (way, arrives) = match mark.arrived >> 2 == dscp {
        true => ("on the way back from it", mark.returned >> 2),
        false => ("on the way to it", mark.arrived >> 2),
    };
    let what = format!("DSCP {dscp} is rewritten {way}: it arrives as {arrives}");
    let consequence = match dscp {
        CNP_DSCP => cost(gbps, |case| all(case, |talk| talk.cnp_dscp = arrives)),
        _ => cost(gbps, |case| all(case, |talk| talk.dscp = arrives)),
    };
    let fix = format!(
        "have the switch or router that rewrites it trust DSCP on the port, and leave {} as it is",
        marks(mark.sent)
    );
    observed.say(
        "probe-dscp-rewritten",
        what,
        vec![observed.evidence(mark.line)],
        consequence,
        fix,
    )
}

/// The parameters of the load.
#[derive(Clone, Copy, Debug)]
pub struct LoadShape {
    /// Speed of the links in Gb/s, for simulations.
    pub gbps: u32,
    /// DSCP of data in the lossless class.
    pub dscp: u8,
}

/// Faults under load: `alone` are streams of one host at a time, `together` those of all hosts at once to
/// this machine.
pub fn load_findings(
    alone: &[StreamOutcome],
    together: &[StreamOutcome],
    shape: LoadShape,
) -> Vec<Finding> {
    let mut found = slow(alone, shape);
    if !together.iter().all(StreamOutcome::is_of_the_network) {
        return found;
    }
    let (lossy, lossless): (Vec<_>, Vec<_>) = together.iter().partition(|stream| stream.loses());
    let (dscp, count) = (shape.dscp, together.len());
    if !lossy.is_empty() && lossless.is_empty() {
        let what = format!(
            "the class of DSCP {dscp} loses packets of every host at {count}:1, so it is lossy"
        );
        let consequence = cost(shape.gbps, |case| {
            case.switch.dscp[usize::from(dscp & 63)] = case.switch.default_class;
            all(case, |talk| talk.dscp = dscp);
        });
        let fix = format!(
            "map DSCP {dscp} to the class with PFC on the switch ports of these hosts, and trust DSCP there; \
             rockery plan writes it,\nand rockery doctor --switch FILE finds the line"
        );
        found.push(of_load(
            "probe-lossy-class",
            "the network".to_owned(),
            what,
            &lossy,
            consequence,
            fix,
        ));
    }
    for stream in lossy.iter().filter(|_| !lossless.is_empty()) {
        let what = format!(
            "{} with DSCP {dscp} loses packets at {count}:1, and {} loses none: PFC is off at one end of \
             the link of the former",
            stream.host,
            lossless
                .iter()
                .map(|other| other.host.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        );
        let consequence = cost(shape.gbps, |case| case.senders.pfc = 0);
        let fix = "enable PFC for the priority of this DSCP at the adapter (mlnx_qos --pfc, dcb pfc)\n\
                   and at its switch port; rockery doctor on that host shows which end it is";
        let all: Vec<&StreamOutcome> = together.iter().collect();
        found.push(of_load(
            "probe-pfc-one-end",
            stream.host.clone(),
            what,
            &all,
            consequence,
            fix.to_owned(),
        ));
    }
    found
}

/// Classes that get less of a link than their share, while others get more. `streams` are those that the
/// shares were measured with.
pub fn share_findings(
    shares: &[Share],
    streams: &[StreamOutcome],
    shape: LoadShape,
) -> Vec<Finding> {
    let all: Vec<&StreamOutcome> = streams.iter().collect();
    let starved = shares.iter().filter(|share| share.is_starved());
    let finding = |share: &Share| {
        let others: Vec<String> = shares
            .iter()
            .filter(|other| other.dscp != share.dscp)
            .map(|other| format!("DSCP {}: {:.0} %", other.dscp, other.measured))
            .collect();
        let what = format!(
            "DSCP {} gets {:.0} % of what arrives instead of {:.0} %, while others send ({})",
            share.dscp,
            share.measured,
            share.expected,
            others.join(", ")
        );
        let fix = format!(
            "the queue weights of the switch port towards this machine, and its map of DSCP {}:\n\
             rockery plan writes them,\nand rockery doctor --switch FILE --fabric FILE compares them",
            share.dscp
        );
        let consequence = cost_of_shares(share, shape.gbps);
        of_load(
            "probe-share",
            "the network".to_owned(),
            what,
            &all,
            consequence,
            fix,
        )
    };
    starved.map(finding).collect()
}

/// Data in a queue of the measured weight and in one of the configured weight, beside a host that writes in
/// another class.
fn cost_of_shares(share: &Share, gbps: u32) -> Consequence {
    let case = |percent: f64| {
        let mut switch = Intent::default();
        let own = (percent.round() as u8).clamp(1, 99);
        switch.queues[3].schedule = Schedule::Weighted(own);
        switch.queues[0].schedule = Schedule::Weighted(100 - own);
        let beside = Talk {
            dscp: 0,
            priority: 0,
            pfc: 0,
            ..Talk::default()
        };
        Case {
            beside: Some(beside),
            ..Case::incast(&switch, gbps.clamp(1, 800))
        }
    };
    compare(&case(share.measured), &case(share.expected)).map_or(
        Consequence::NotSimulated("the settings make no network"),
        Consequence::Simulated,
    )
}

/// Hosts that carry less than nine tenths of the rate while no other one sends.
fn slow(alone: &[StreamOutcome], shape: LoadShape) -> Vec<Finding> {
    let judged: Vec<_> = alone
        .iter()
        .filter(|stream| stream.is_of_the_network())
        .collect();
    let slow: Vec<_> = judged
        .iter()
        .copied()
        .filter(|stream| stream.carried() < 0.9)
        .collect();
    let place = |stream: &StreamOutcome| stream.host.clone();
    let groups: Vec<(String, Vec<&StreamOutcome>)> =
        match slow.len() == judged.len() && slow.len() > 1 {
            true => vec![("this machine".to_owned(), slow)],
            false => slow
                .into_iter()
                .map(|stream| (place(stream), vec![stream]))
                .collect(),
        };
    let mut found = Vec::new();
    for (place, streams) in groups {
        let Some(stream) = streams.first() else {
            continue;
        };
        let rate = f64::from(stream.order.kbps) / 1000.0;
        let carried = stream.carried();
        let what = format!(
            "carries {:.1} of {rate:.1} Mb/s while no other host sends: a PCIe slot with fewer lanes or of a \
             lower speed, or a link in a slower mode, does that",
            rate * carried
        );
        // PCIe 3.0 has 7.9 Gb/s a lane: the width that comes nearest.
        let gbps = f64::from(shape.gbps) * carried;
        let width = [1_u8, 2, 4, 8, 16]
            .into_iter()
            .min_by_key(|width| (f64::from(*width) * 7.9 - gbps).abs() as u32);
        let consequence = cost(shape.gbps, |case| match place == "this machine" {
            true => case.receiver.pcie = width.map(|width| (3, width)),
            false => {
                case.count = 1;
                case.senders.pcie = width.map(|width| (3, width));
            }
        });
        let fix = "rockery doctor on that host compares slot, card and link: lspci -vv (LnkCap, LnkSta), \
                   ethtool IF";
        found.push(of_load(
            "probe-slow-host",
            place,
            what,
            &streams,
            consequence,
            fix.to_owned(),
        ));
    }
    found
}

fn of_load(
    rule: &'static str,
    place: String,
    what: String,
    streams: &[&StreamOutcome],
    consequence: Consequence,
    fix: String,
) -> Finding {
    let seen = |(line, stream): (usize, &&StreamOutcome)| Evidence {
        file: "load".to_owned(),
        line,
        text: stream.line(),
    };
    let evidence = (1..).zip(streams).map(seen).collect();
    Finding::new(rule, place, what, evidence, consequence, fix)
}
