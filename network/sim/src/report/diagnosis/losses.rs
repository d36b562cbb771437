//! Findings about lost packets: why a class was lossy, or lossless and yet lost packets, and links on which
//! frames are damaged.

use super::super::alike::{listed, without_place};
use super::super::{Finding, PortReport, Severity, counted};
use super::{View, class_of, finding};
use crate::world::{Flow, FlowMarks, HostConfig, Marking};
use fabric::Drop;
use fabric::topology::{End, Node};
use vendors::{LossyClass, class_list};

/// The limit of a queue whose class is lossless: the cause and the remedy.
fn queue_limit(switch: &str, class: u8) -> (String, String) {
    (
        format!("{switch}: class {class} is lossless, and its queue has a limit of its own"),
        format!("queue.{class}.limit = \"none\": pauses are what limits it"),
    )
}

/// Losses of one cause.
struct Loss {
    found: Finding,
    /// The cause without the name of the switch.
    rest: Option<String>,
    dropped: u64,
    ports: Vec<String>,
    switches: Vec<String>,
}

impl Loss {
    fn finding(self) -> Finding {
        let dropped = counted(
            self.dropped,
            "packet was dropped that arrived",
            "packets were dropped that arrived",
        );
        let cause = match self.rest {
            Some(rest) => listed(&self.switches) + &rest,
            None => self.found.cause,
        };
        Finding {
            seen: format!("{dropped} at {}", listed(&self.ports)),
            cause,
            ..self.found
        }
    }
}

impl View<'_> {
    /// Packets that switches dropped: why the class was not lossless, or was and yet lost. The same setting
    /// is one finding, however many ports and switches saw it.
    pub(super) fn losses(&self) -> Vec<Finding> {
        let mut alike: Vec<Loss> = Vec::new();
        for (number, switch) in (0_u32..).zip(&self.results.switches) {
            let name = &self.switch(number).name;
            for (port, result) in (0_u16..).zip(&switch.ports) {
                let here = self.name(End {
                    node: Node::Switch(number),
                    port,
                });
                for (why, dropped) in Drop::ALL.into_iter().zip(result.ingress.dropped) {
                    let Some(found) = self.dropped(number, port, why).filter(|_| dropped > 0)
                    else {
                        continue;
                    };
                    let rest = without_place(&found.cause, name).map(str::to_owned);
                    let is_alike = |other: &&mut Loss| match (&rest, &other.rest) {
                        (Some(own), Some(other_rest)) => {
                            own == other_rest && found.instead == other.found.instead
                        }
                        _ => other.found.cause == found.cause,
                    };
                    match alike.iter_mut().find(is_alike) {
                        Some(other) => {
                            other.dropped += dropped;
                            other.ports.push(here.clone());
                            if !other.switches.contains(name) {
                                other.switches.push(name.clone());
                            }
                        }
                        None => alike.push(Loss {
                            found,
                            rest,
                            dropped,
                            ports: vec![here.clone()],
                            switches: vec![name.clone()],
                        }),
                    }
                }
            }
        }
        alike.sort_by_key(|loss| std::cmp::Reverse(loss.dropped));
        alike.into_iter().map(Loss::finding).collect()
    }

    /// Links on which frames are damaged: no setting of a switch helps against that.
    pub(super) fn damaged(&self) -> Vec<Finding> {
        let again = self.total(|workload| workload.retransmitted);
        let severity = if again > 0 {
            Severity::Slow
        } else {
            Severity::Note
        };
        let damaged = self.report.ports.iter().filter(|port| port.fcs_errors > 0);
        let damaged: Vec<&PortReport> = damaged.collect();
        let Some(first) = damaged.first() else {
            return Vec::new();
        };
        let frames = damaged.iter().map(|port| port.fcs_errors).sum();
        let frames = counted(frames, "frame", "frames");
        let (seen, cause) = match damaged.len() {
            1 => (
                format!(
                    "{frames} from {} arrived damaged at {} (FCS errors)",
                    first.to, first.port
                ),
                format!(
                    "the error rate of the link between {} and {}",
                    first.to, first.port
                ),
            ),
            links => {
                let ends = damaged
                    .iter()
                    .map(|port| format!("{} from {}", port.port, port.to));
                let ends = listed(&ends.collect::<Vec<_>>());
                (
                    format!("{frames} arrived damaged (FCS errors) at {ends}"),
                    format!("the error rates of {links} directions of links"),
                )
            }
        };
        vec![finding(
            severity,
            seen,
            cause,
            "another cable or transceiver; what is damaged is lost in any class",
        )]
    }

    /// The reason why arriving packets are dropped at a port.
    fn dropped(&self, switch: u32, port: u16, why: Drop) -> Option<Finding> {
        let name = &self.switch(switch).name;
        let (cause, instead) = match why {
            Drop::Ingress | Drop::Egress => return self.loss(switch, port, why),
            Drop::Storm => (
                format!(
                    "{name}: the PFC watchdog drops packets for queues that were paused longer than `detect`"
                ),
                "find what pauses them: a deadlock, or a host that is slower than what arrives",
            ),
            Drop::Early => (
                format!("{name}: WRED drops packets whose senders do not take part in ECN"),
                "nic.NAME.ecn = true, or ecn.drop = false for this queue",
            ),
            Drop::HopLimit => (
                format!("{name}: packets are in a routing loop"),
                "routes without loops",
            ),
            Drop::NoRoute => (
                format!("{name}: there is no route to the destination"),
                "links that are down: see link.down",
            ),
            Drop::Lifetime => super::subnet::lifetime(name),
        };
        Some(finding(Severity::Broken, String::new(), cause, instead))
    }

    fn loss(&self, switch: u32, port: u16, why: Drop) -> Option<Finding> {
        let sender = match self.peer(switch, port).map(|end| end.node) {
            Some(Node::Host(host)) => self.host(host),
            _ => self.sender()?,
        };
        if let Some(Node::Host(host)) = self.peer(switch, port).map(|end| end.node) {
            let mut flows = self
                .experiment
                .scenario
                .flows
                .iter()
                .filter(|flow| flow.from == host)
                .peekable();
            // Programs of live hosts send without flows, and nothing is known of their connections.
            if flows.peek().is_some() && flows.all(|flow| flow.operation.is_unreliable()) {
                let cause = "this traffic is unreliable, and its senders send more than the network carries"
                    .to_owned();
                return Some(finding(
                    Severity::Note,
                    String::new(),
                    cause,
                    "nothing, if that is meant",
                ));
            }
        }
        let profile = self.profile(switch, port);
        let sender = &HostConfig {
            data: self.lost_marking(switch, port, sender),
            ..sender.clone()
        };
        let class = class_of(&profile.map, &sender.data);
        let seen = String::new();
        if profile.pfc.send >> class & 1 == 1 {
            if why == Drop::Egress {
                let own = self.switch(switch);
                let (name, port) = (&own.name, &own.ports[usize::from(port)]);
                let imported = own.imported.as_ref();
                let advice = imported.and_then(|imported| imported.why_full(name, port));
                let (cause, instead) = advice.map_or_else(
                    || queue_limit(name, class),
                    |advice| (advice.cause, advice.instead),
                );
                return Some(finding(Severity::Broken, seen, cause, instead));
            }
            return Some(self.lossless_loss(switch, port, seen, class, sender));
        }
        let (cause, instead) = self.why_lossy(switch, port, class, sender);
        Some(finding(Severity::Broken, seen, cause, instead))
    }

    /// The marks of the data that was lost behind a port: where workloads have marks of their own, those of a
    /// class in which the switch dropped packets.
    fn lost_marking(&self, switch: u32, port: u16, sender: &HostConfig) -> Marking {
        let map = &self.profile(switch, port).map;
        let lost = |marking: &Marking| {
            let class = usize::from(class_of(map, marking));
            let mut ports = self.results.switches[switch as usize].ports.iter();
            ports.any(|port| port.dropped(class, |_| true).packets > 0)
        };
        let flows = &self.experiment.scenario.flows;
        let are_usual = flows.iter().all(|flow| flow.marks == FlowMarks::default());
        if are_usual || lost(&sender.data) {
            return sender.data;
        }
        let peer = self.peer(switch, port).map(|end| end.node);
        let comes_here = |flow: &&Flow| match peer {
            Some(Node::Host(host)) => flow.from == host || flow.to == host,
            _ => true,
        };
        let marks = flows.iter().filter(comes_here);
        let mut marks = marks.map(|flow| flow.marks.of(self.host(flow.from))[0]);
        marks.find(lost).unwrap_or(sender.data)
    }

    /// The class is paused, and yet packets were lost.
    fn lossless_loss(
        &self,
        switch: u32,
        port: u16,
        seen: String,
        class: u8,
        sender: &HostConfig,
    ) -> Finding {
        let profile = self.profile(switch, port);
        let group = usize::from(profile.group_of_class[usize::from(class)]);
        let priority = profile.pfc.priority_of_group[group];
        if sender.pfc.obey >> sender.data.class & 1 == 0 || priority != sender.data.class {
            let obeyed = class_list(sender.pfc.obey);
            return finding(
                Severity::Broken,
                seen,
                format!(
                    "the switch pauses priority {priority}; the adapter sends in its priority {} \
                        and obeys pauses of: {obeyed}",
                    sender.data.class
                ),
                format!("set the adapter's pfc = [{priority}] and priority = {priority}"),
            );
        }
        let headroom = profile.groups[group].headroom_bytes;
        finding(
            Severity::Broken,
            seen,
            format!(
                "class {class} is lossless, but its headroom of {headroom} bytes is less than what \
                    arrives after a pause"
            ),
            "headroom = \"auto\", which is what 802.1Q annex N asks for with this link",
        )
    }

    /// The reason why the class of data is not a lossless one.
    fn why_lossy(
        &self,
        switch: u32,
        port: u16,
        class: u8,
        sender: &HostConfig,
    ) -> (String, String) {
        let profile = self.profile(switch, port);
        let name = &self.switch(switch).name;
        let dscp = sender.data.dscp;
        let lossless = profile.pfc.send;
        let imported = self.switch(switch).imported.as_ref();
        let lossy = LossyClass {
            port: &self.switch(switch).ports[usize::from(port)],
            class,
            dscp,
            lossless,
        };
        if let Some(advice) = imported.and_then(|imported| imported.why_lossy(name, &lossy)) {
            return (advice.cause, advice.instead);
        }
        if lossless == 0 {
            let cause =
                format!("{name}: no class is lossless, data (DSCP {dscp}) is in class {class}");
            return (cause, format!("pfc.classes = [{class}]"));
        }
        let only = class_list(lossless);
        if !profile.map.trust_dscp && sender.data.pcp.is_none() {
            let cause = format!(
                "{name}: DSCP is not trusted: data (DSCP {dscp}) falls into the default class \
                    {class}, and lossless is {only}"
            );
            return (cause, "trust = \"dscp\"".to_owned());
        }
        let marked_right = (0..64).any(|value| lossless >> profile.map.dscp[value].class & 1 == 1);
        if marked_right
            && profile.map.dscp[usize::from(dscp & 63)].class == profile.map.default.class
        {
            let cause = format!(
                "{name}: the DSCP map has no entry for {dscp}: data falls into class {class}, and \
                    lossless is {only}"
            );
            return (
                cause,
                format!("dscp = {{ {dscp} = {} }}", lossless.trailing_zeros()),
            );
        }
        let cause =
            format!("{name}: PFC is on class {only}, and data (DSCP {dscp}) is in class {class}");
        (
            cause,
            format!(
                "pfc.classes = [{class}], or map DSCP {dscp} to class \
            {}",
                lossless.trailing_zeros()
            ),
        )
    }
}
