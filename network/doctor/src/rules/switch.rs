//! The configuration of a switch alone.

use vendors::{Imported, LossyClass};

use super::{CNP_DSCP, Consequence, Evidence, Finding, SwitchFacts, cost};
use crate::cost_simulation::Case;
use vendors::intent::ECN_DEFAULT;
use vendors::text::{classes, ranges};
use vendors::{Dialect, Intent, Remedy};

/// Interface MTU that RoCE's largest packet needs.
const MTU_NEEDED: u32 = 4200;

pub(super) fn check(switch: &SwitchFacts, dscp: u8, found: &mut Vec<Finding>) {
    for intent in &switch.groups {
        let own = One {
            switch,
            intent,
            dscp,
        };
        own.lossy(found);
        own.marking(found);
        own.rest(found);
    }
    lanes(switch, found);
}

pub(super) struct One<'a> {
    pub(super) switch: &'a SwitchFacts,
    pub(super) intent: &'a Intent,
    pub(super) dscp: u8,
}

impl One<'_> {
    pub(super) fn say(
        &self,
        rule: &'static str,
        what: String,
        seen: Evidence,
        consequence: Consequence,
        fix: String,
    ) -> Finding {
        let ports = self
            .intent
            .ports
            .iter()
            .map(|port| port.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let place = format!(
            "{} ({}), {ports}",
            self.switch.file,
            self.switch.dialect.name()
        );
        Finding::new(rule, place, what, vec![seen], consequence, fix)
    }

    fn class(&self) -> u8 {
        self.intent.class_of_dscp(self.dscp)
    }

    pub(super) fn gbps(&self) -> u32 {
        self.intent
            .ports
            .iter()
            .filter_map(|port| port.gbps)
            .max()
            .unwrap_or(100)
            .clamp(1, 800)
    }

    /// The cost against the same configuration with one change.
    pub(super) fn against(&self, change: impl Fn(&mut Intent)) -> Consequence {
        let mut fixed = self.intent.clone();
        change(&mut fixed);
        cost(
            &Case::incast(self.intent, self.gbps()),
            &Case::incast(&fixed, self.gbps()),
        )
    }

    fn lossy(&self, found: &mut Vec<Finding>) {
        let (class, dscp) = (self.class(), self.dscp);
        if self.intent.lossless(class) {
            return;
        }
        let wanted = match self.intent.pfc_send {
            0 => class,
            mask => mask.trailing_zeros() as u8,
        };
        let (rule, what) = match self.intent.pfc_send {
            0 => (
                "switch-pfc-off",
                format!("no class is lossless, and data (DSCP {dscp}) is in class {class}"),
            ),
            mask if !self.intent.trust.dscp() => (
                "switch-trust",
                format!(
                    "DSCP is not trusted: data is in class {class}, and lossless is {}",
                    ranges(classes(mask))
                ),
            ),
            mask => (
                "switch-dscp-map",
                format!(
                    "DSCP {dscp} is mapped to class {class}, which is lossy; lossless is {}",
                    ranges(classes(mask))
                ),
            ),
        };
        let consequence = self.against(|fixed| match fixed.pfc_send {
            0 => (fixed.pfc_send, fixed.pfc_obey) = (1 << class, 1 << class),
            _ => {
                fixed.trust = vendors::intent::Trust::of(true, fixed.trust.pcp());
                fixed.dscp[usize::from(dscp & 63)] = wanted;
            }
        });
        let fix = match rule {
            "switch-pfc-off" => self.fix_pfc(class),
            _ => self.fix_map(wanted),
        };
        let needles: &[&str] = match rule {
            "switch-pfc-off" => &["pfc", "priority-flow-control", "no-drop", "pause"],
            _ => &["trust-l3", "map ip", "DSCP_TO_TC_MAP", "dscp", "trust"],
        };
        found.push(self.say(rule, what, self.evidence(needles), consequence, fix));
    }

    /// The first line that contains one of the words, in the order of the words.
    pub(super) fn evidence(&self, needles: &[&str]) -> Evidence {
        let lines = || (1..).zip(self.switch.text.lines());
        let found = needles
            .iter()
            .find_map(|needle| lines().find(|(_, line)| line.contains(needle)));
        let (line, text) = found.or_else(|| lines().next()).unwrap_or((1, ""));
        let text = text.trim().chars().take(100).collect();
        Evidence {
            file: self.switch.file.clone(),
            line,
            text,
        }
    }

    pub(super) fn fix_map(&self, class: u8) -> String {
        let dscp = self.dscp;
        let remedy = Remedy::MapDscp { dscp, class };
        self.advice()
            .unwrap_or_else(|| self.switch.dialect.remedy(&remedy))
    }

    /// The setting that makes the class lossy, where the reader of the system's configurations knows it.
    fn advice(&self) -> Option<String> {
        if self.switch.dialect != Dialect::RouterOs {
            return None;
        }
        let imported =
            Imported::read(false, &[(&self.switch.file, self.switch.text.clone())]).ok()?;
        let port = &self.intent.ports.first()?.name;
        let lossless = self.intent.pfc_send;
        let lossy = LossyClass {
            port,
            class: self.class(),
            dscp: self.dscp,
            lossless,
        };
        let advice = imported
            .without_effect()
            .or_else(|| imported.why_lossy(&self.switch.file, &lossy))?;
        Some(format!("{}   # {}", advice.instead, advice.cause))
    }

    pub(super) fn fix_pfc(&self, class: u8) -> String {
        let remedy = Remedy::Pfc { class };
        self.advice()
            .unwrap_or_else(|| self.switch.dialect.remedy(&remedy))
    }

    pub(super) fn fix_ecn(&self, class: u8) -> String {
        self.switch.dialect.remedy(&Remedy::MarkEcn { class })
    }

    fn marking(&self, found: &mut Vec<Finding>) {
        let class = self.class();
        if !self.intent.lossless(class) {
            return;
        }
        if self.intent.queues[usize::from(class)].ecn.is_none() {
            let what =
                format!("queue {class} of data does not mark (ECN): only pauses slow senders down");
            let consequence =
                self.against(|fixed| fixed.queues[usize::from(class)].ecn = Some(ECN_DEFAULT));
            let seen = self.evidence(&["ecn", "wred", "random-detect", "queue"]);
            found.push(self.say(
                "switch-ecn-off",
                what,
                seen,
                consequence,
                self.fix_ecn(class),
            ));
        }
        let cnp = self.intent.class_of_dscp(CNP_DSCP);
        if self.dscp != CNP_DSCP && cnp == class {
            let what = format!(
                "notifications (DSCP 48) are in class {class}, as data is: they wait behind it"
            );
            let consequence = self.against(|fixed| {
                let free = (0..8)
                    .rev()
                    .find(|class| !fixed.lossless(*class))
                    .unwrap_or(6);
                fixed.dscp[usize::from(CNP_DSCP)] = free;
                fixed.queues[usize::from(free)].schedule = vendors::intent::Schedule::Strict;
            });
            let own = One {
                switch: self.switch,
                intent: self.intent,
                dscp: CNP_DSCP,
            };
            let seen = self.evidence(&["48", "dscp"]);
            found.push(self.say("switch-cnp-class", what, seen, consequence, own.fix_map(6)));
        }
    }

    /// The cost of pauses that the switch does not obey: those of a receiver whose PCIe link is slower than
    /// the network link. It is simulated as a receiver that sends no pauses.
    fn not_obeyed(&self) -> Consequence {
        let mut fixed = Case::incast(self.intent, self.gbps());
        let width =
            |lanes: &u8| 8.0 * 128.0 / 130.0 * f64::from(*lanes) < f64::from(self.gbps()) * 0.8;
        let lanes = [16, 8, 4, 2].into_iter().find(width).unwrap_or(1);
        fixed.receiver.pcie = Some((3, lanes));
        let class = self.class();
        (fixed.senders.priority, fixed.receiver.priority) = (class, class);
        (fixed.senders.pfc, fixed.receiver.pfc) = (1 << class, 1 << class);
        fixed.switch.pfc_obey |= fixed.switch.pfc_send;
        let mut now = fixed.clone();
        now.receiver.pfc = 0;
        cost(&now, &fixed)
    }

    fn rest(&self, found: &mut Vec<Finding>) {
        let unheard = self.intent.pfc_send & !self.intent.pfc_obey;
        if unheard != 0 {
            let list = ranges(classes(unheard));
            let what =
                format!("pauses are sent for priority {list}, and received ones are not obeyed");
            let remedy = Remedy::ObeyPauses { classes: &list };
            let fix = self.switch.dialect.remedy(&remedy);
            let seen = self.evidence(&["rx=", "rx ", "egress-rate", "pfc"]);
            found.push(self.say("switch-pfc-receive", what, seen, self.not_obeyed(), fix));
        }
        // RouterOS scripts that do not set the MTU do not show it.
        let said = ["mtu", "MTU"]
            .iter()
            .any(|word| self.switch.text.contains(word));
        if said && self.intent.mtu < MTU_NEEDED {
            let fits = [2048, 1024, 512]
                .into_iter()
                .find(|roce| self.intent.mtu >= roce + 80)
                .unwrap_or(256);
            let fixed = Case::incast(self.intent, self.gbps());
            let mut now = fixed.clone();
            (now.senders.mtu, now.receiver.mtu) = (fits, fits);
            let what = format!(
                "an MTU of {} carries RoCE packets of {fits} bytes; larger ones are dropped",
                self.intent.mtu
            );
            let seen = self.evidence(&["mtu"]);
            let fix = self.switch.dialect.remedy(&Remedy::Mtu);
            found.push(self.say("switch-mtu", what, seen, cost(&now, &fixed), fix));
        }
    }
}

/// Lanes of one port of RouterOS that are configured differently: then none of them has the setting.
fn lanes(switch: &SwitchFacts, found: &mut Vec<Finding>) {
    let mut seen: Vec<&str> = Vec::new();
    for intent in &switch.groups {
        for port in &intent.ports {
            if !seen.contains(&port.name.as_str()) {
                seen.push(&port.name);
                continue;
            }
            let own = One {
                switch,
                intent,
                dscp: super::DATA_DSCP,
            };
            let module = port
                .name
                .trim_end_matches(|letter: char| letter.is_ascii_digit());
            let what = format!("the lanes of port {} are configured differently", port.name);
            let fix = format!("the same for {module}1, {module}2, {module}3 and {module}4");
            let evidence = own.evidence(&[module]);
            // The chip applies settings to all lanes of a port, or to none.
            let fixed = Case::incast(intent, own.gbps());
            let mut now = fixed.clone();
            (now.switch.pfc_send, now.switch.pfc_obey) = (0, 0);
            found.push(own.say("switch-lanes", what, evidence, cost(&now, &fixed), fix));
        }
    }
}
