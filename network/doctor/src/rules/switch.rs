//! The configuration of a switch alone.

use std::collections::BTreeMap;

use vendors::LossyClass;

use super::{Consequence, Evidence, Finding, SwitchFacts, cost};
use crate::configuration_text::Line;
use crate::cost_simulation::Case;
use crate::marks::Marks;
use vendors::intent::{ECN_DEFAULT, Port, Schedule};
use vendors::routeros::first_lane;
use vendors::text::{classes, ranges};
use vendors::{Area, Dialect, Intent, Remedy};

/// Interface MTU that RoCE's largest packet needs.
const MTU_NEEDED: u32 = 4200;

/// What is asked for where no input says which packets are data.
pub(super) const ASK: &str = "--dscp D, or a fabric file, says which DSCP data has";

/// The cost where nothing says which packets are data.
pub(super) const UNKNOWN_DATA: Consequence =
    Consequence::NotSimulated("the class of data is not known");

pub(super) fn check(switch: &SwitchFacts, marks: Marks, found: &mut Vec<Finding>) {
    for intent in &switch.groups {
        let own = One {
            switch,
            intent,
            marks,
        };
        own.lossy(found);
        own.marking(found);
        own.notifications(found);
        own.rest(found);
    }
    lanes(switch, marks, found);
    old_version(switch, found);
}

pub(super) struct One<'a> {
    pub(super) switch: &'a SwitchFacts,
    pub(super) intent: &'a Intent,
    pub(super) marks: Marks,
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
        let place = self.switch.place_of(self.intent);
        Finding::new(rule, place, what, vec![seen], consequence, fix)
    }

    /// The class of data, where the DSCP of data and the map are known.
    fn class(&self) -> Option<u8> {
        let is_known = self.intent.unknown(Area::Classes).is_none();
        let dscp = self.marks.dscp.filter(|_| is_known);
        dscp.map(|dscp| self.intent.class_of_dscp(dscp))
    }

    /// Whether tagged packets of data may get into a lossless class: whether data is tagged is not known.
    fn is_reached_by_tag(&self) -> bool {
        let intent = self.intent;
        let is_decisive = match self.marks.dscp {
            Some(dscp) => self.switch.may_decide_by_tag(intent, dscp),
            None => intent.trust.pcp(),
        };
        is_decisive && intent.pcp.iter().any(|class| intent.lossless(*class))
    }

    /// The DSCP of data and, where only a tag leads to a lossless class, its priority code point: those that
    /// are known, else the first ones that are lossless here.
    fn data(&self) -> Option<(u8, Option<u8>)> {
        let own = self.intent;
        let reached = (0..64).find(|dscp| own.lossless(own.class_of_dscp(*dscp)));
        if let Some(dscp) = self.marks.dscp.or(reached) {
            return Some((dscp, None));
        }
        let tagged = (0..8).find(|pcp| own.lossless(own.pcp[usize::from(*pcp)]));
        let tagged = tagged.filter(|_| own.trust.pcp());
        // Without a trusted header all packets are in one class, whatever they are marked with.
        let one = matches!(own.trust, vendors::intent::Trust::None).then_some((0, None));
        tagged.map(|pcp| (0, Some(pcp))).or(one)
    }

    /// A DSCP for notifications where none is known: one of a strict class that is not lossless, else one
    /// that is not in the class of data.
    fn notified(&self, class: u8) -> Option<u8> {
        let own = self.intent;
        let class_of = |dscp: &u8| usize::from(own.class_of_dscp(*dscp));
        let strict = |dscp: &u8| {
            let of = class_of(dscp);
            own.queues[of].schedule == Schedule::Strict && !own.lossless(of as u8)
        };
        let other = |dscp: &u8| class_of(dscp) != usize::from(class);
        (0..64).find(strict).or_else(|| (0..64).find(other))
    }

    /// Three senders and a receiver with the marks of data, behind a switch with these settings. The adapters
    /// have the priority that is lossless here. Where nothing says which packets are data, there is no case.
    pub(super) fn case(&self, intent: &Intent) -> Option<Case> {
        let mut case = Case::incast(intent, self.gbps());
        let own = self.intent;
        let (dscp, pcp) = self.data()?;
        let class = match pcp {
            Some(pcp) => own.pcp[usize::from(pcp)],
            None => own.class_of_dscp(dscp),
        };
        let priority = match own.pfc_send {
            0 => class,
            _ if own.lossless(class) => class,
            mask => mask.trailing_zeros() as u8,
        };
        for talk in [&mut case.senders, &mut case.receiver] {
            (talk.dscp, talk.priority, talk.pfc) = (dscp, priority, 1 << (priority & 7));
            talk.pcp = pcp;
            talk.cnp_dscp = self.marks.cnp.or(self.notified(class)).unwrap_or(dscp);
            talk.cnp_priority = (0..8).rev().find(|other| *other != priority).unwrap_or(0);
        }
        Some(case)
    }

    pub(super) fn gbps(&self) -> u32 {
        self.intent
            .ports
            .iter()
            .filter_map(Port::gbps)
            .max()
            .unwrap_or(100)
            .clamp(1, 800)
    }

    /// The cost of a fault, which `change` makes of this configuration.
    pub(super) fn other(&self, change: impl Fn(&mut Case)) -> Consequence {
        self.other_at(self.gbps(), change)
    }

    /// Simulates the change on links of this speed.
    pub(super) fn other_at(&self, gbps: u32, change: impl Fn(&mut Case)) -> Consequence {
        let Some(mut fixed) = self.case(self.intent) else {
            return UNKNOWN_DATA;
        };
        fixed.gbps = gbps;
        let mut now = fixed.clone();
        change(&mut now);
        cost(&now, &fixed)
    }

    /// The cost against the same configuration with one change.
    pub(super) fn against(&self, change: impl Fn(&mut Intent)) -> Consequence {
        let mut fixed = self.intent.clone();
        change(&mut fixed);
        match self.case(self.intent).zip(self.case(&fixed)) {
            Some((now, fixed)) => cost(&now, &fixed),
            None => UNKNOWN_DATA,
        }
    }

    fn lossy(&self, found: &mut Vec<Finding>) {
        let intent = self.intent;
        if intent.unknown(Area::Pfc).is_some() {
            return;
        }
        if intent.pfc_send == 0 {
            // Without a fabric file, ports without PFC beside others with PFC may carry no RoCE.
            if self.switch.planned.is_some() || !self.switch.has_pfc_elsewhere(intent) {
                found.push(self.pfc_off());
            }
            return;
        }
        if intent.unknown(Area::Classes).is_some() || self.is_reached_by_tag() {
            return;
        }
        let is_reached = |dscp: u8| intent.lossless(intent.class_of_dscp(dscp));
        match self.marks.dscp {
            Some(dscp) if !is_reached(dscp) => found.push(self.lossy_dscp(dscp)),
            None if !(0..64).any(is_reached) => found.push(self.unreached()),
            _ => {}
        }
    }

    /// PFC is off.
    fn pfc_off(&self) -> Finding {
        let needles = ["priority-flow-control", "pfc", "no-drop", "pause"];
        let seen = self.evidence(&needles);
        let (what, consequence, fix) = match self.class().zip(self.marks.dscp) {
            Some((class, dscp)) => (
                format!("no class is lossless, and data (DSCP {dscp}) is in class {class}"),
                self.against(|fixed| (fixed.pfc_send, fixed.pfc_obey) = (1 << class, 1 << class)),
                self.fix_pfc(class),
            ),
            None => (
                "no class is lossless: PFC is off".to_owned(),
                UNKNOWN_DATA,
                format!("PFC for the class of data: {ASK}"),
            ),
        };
        self.say("switch-pfc-off", what, seen, consequence, fix)
    }

    /// The class of data is not one of the lossless ones.
    fn lossy_dscp(&self, dscp: u8) -> Finding {
        let class = self.intent.class_of_dscp(dscp);
        let wanted = self.intent.pfc_send.trailing_zeros() as u8;
        let lossless = ranges(classes(self.intent.pfc_send));
        let (rule, what) = match self.intent.trust.dscp() {
            false => (
                "switch-trust",
                format!(
                    "DSCP is not trusted: data is in class {class}, and lossless is {lossless}"
                ),
            ),
            true => (
                "switch-dscp-map",
                format!(
                    "DSCP {dscp} is mapped to class {class}, which is lossy; lossless is {lossless}"
                ),
            ),
        };
        let consequence = self.against(|fixed| {
            fixed.trust = vendors::intent::Trust::of(true, fixed.trust.pcp());
            fixed.dscp[usize::from(dscp & 63)] = wanted;
        });
        let seen = self.evidence(&["trust-l3", "map ip", "DSCP_TO_TC_MAP", "dscp", "trust"]);
        self.say(rule, what, seen, consequence, self.fix_map(dscp, wanted))
    }

    /// No packet gets into a lossless class, whatever DSCP data has.
    fn unreached(&self) -> Finding {
        let lossless = ranges(classes(self.intent.pfc_send));
        let (rule, what) = match self.intent.trust.dscp() {
            false => (
                "switch-trust",
                format!("no header is trusted that leads to class {lossless}, which is lossless"),
            ),
            true => (
                "switch-dscp-map",
                format!("no DSCP is mapped to class {lossless}, which is lossless"),
            ),
        };
        let consequence = Consequence::NotSimulated("the DSCP of data is not known");
        let seen = self.evidence(&["trust-l3", "map ip", "DSCP_TO_TC_MAP", "dscp", "trust"]);
        let fix = format!("the DSCP of data in class {lossless}: {ASK}");
        self.say(rule, what, seen, consequence, fix)
    }

    /// The line that shows a setting of these ports best, by words that it has, the best one first.
    pub(super) fn evidence(&self, needles: &[&str]) -> Evidence {
        let ports = self.intent.ports.iter().map(|port| port.name.as_str());
        quote(self.switch, self.switch.text.line_about(ports, needles))
    }

    pub(super) fn fix_map(&self, dscp: u8, class: u8) -> String {
        let trusted = self.intent.trust;
        let remedy = Remedy::MapDscp {
            dscp,
            class,
            trusted,
        };
        self.advice()
            .unwrap_or_else(|| self.switch.remedy_of(&remedy, self.intent))
    }

    /// The setting that makes the class lossy, where the reader of the system's configurations knows it.
    fn advice(&self) -> Option<String> {
        if self.switch.dialect != Dialect::RouterOs {
            return None;
        }
        let imported = self.switch.imported.as_ref()?;
        let port = &self.intent.ports.first()?.name;
        let lossless = self.intent.pfc_send;
        let lossy = LossyClass {
            port,
            class: self.class()?,
            dscp: self.marks.dscp?,
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
            .unwrap_or_else(|| self.switch.remedy_of(&remedy, self.intent))
    }

    pub(super) fn fix_ecn(&self, class: u8) -> String {
        let remedy = Remedy::MarkEcn { class };
        self.switch.remedy_of(&remedy, self.intent)
    }

    /// Lossless classes of data that do not mark.
    fn marking(&self, found: &mut Vec<Finding>) {
        let intent = self.intent;
        let is_unknown = [Area::Classes, Area::Pfc, Area::Ecn]
            .iter()
            .any(|area| intent.unknown(*area).is_some());
        if is_unknown {
            return;
        }
        // Without the DSCP of data, data may be in each lossless class.
        let all: Vec<u8> = match self.class() {
            Some(class) => vec![class],
            None => classes(intent.used()).collect(),
        };
        let lossless = all.into_iter().filter(|class| intent.lossless(*class));
        for class in lossless.filter(|class| intent.queues[usize::from(*class)].ecn.is_none()) {
            let what =
                format!("queue {class} of data does not mark (ECN): only pauses slow senders down");
            let consequence =
                self.against(|fixed| fixed.queues[usize::from(class)].ecn = Some(ECN_DEFAULT));
            let seen = self.evidence(&["ecn", "wred", "random-detect", "queue"]);
            let fix = self.fix_ecn(class);
            found.push(self.say("switch-ecn-off", what, seen, consequence, fix));
        }
    }

    /// Notifications in the class of data.
    fn notifications(&self, found: &mut Vec<Finding>) {
        let (Some(class), Some(cnp)) = (self.class(), self.marks.cnp) else {
            return;
        };
        let is_same = self.intent.class_of_dscp(cnp) == class && self.marks.dscp != Some(cnp);
        if !is_same || !self.intent.lossless(class) || self.intent.unknown(Area::Pfc).is_some() {
            return;
        }
        let what = format!(
            "notifications (DSCP {cnp}) are in class {class}, as data is: they wait behind it"
        );
        let lossy = (0..8).rev().find(|class| !self.intent.lossless(*class));
        let strict = (0..8).rev().find(|class| {
            let queue = &self.intent.queues[usize::from(*class)];
            !self.intent.lossless(*class) && queue.schedule == Schedule::Strict
        });
        // A strict class that is not lossless is for them, if there is one.
        let Some(free) = strict.or(lossy) else {
            return;
        };
        let consequence = self.against(|fixed| {
            fixed.dscp[usize::from(cnp & 63)] = free;
            fixed.queues[usize::from(free)].schedule = Schedule::Strict;
        });
        let seen = self.evidence(&[&cnp.to_string(), "dscp"]);
        let remedy = Remedy::MapDscp {
            dscp: cnp,
            class: free,
            trusted: self.intent.trust,
        };
        let fix = self.switch.remedy_of(&remedy, self.intent);
        found.push(self.say("switch-cnp-class", what, seen, consequence, fix));
    }

    /// The cost of pauses that the switch does not obey: those of a receiver whose PCIe link is slower than
    /// the network link. It is simulated as a receiver that sends no pauses.
    fn not_obeyed(&self) -> Consequence {
        let Some(mut fixed) = self.case(self.intent) else {
            return UNKNOWN_DATA;
        };
        let width =
            |lanes: &u8| 8.0 * 128.0 / 130.0 * f64::from(*lanes) < f64::from(self.gbps()) * 0.8;
        let lanes = [16, 8, 4, 2].into_iter().find(width).unwrap_or(1);
        fixed.receiver.pcie = Some((3, lanes));
        fixed.switch.pfc_obey |= fixed.switch.pfc_send;
        let mut now = fixed.clone();
        now.receiver.pfc = 0;
        cost(&now, &fixed)
    }

    fn rest(&self, found: &mut Vec<Finding>) {
        if self.intent.global_pause && self.intent.pfc_send != 0 {
            let what = "802.3x pause is on beside PFC: it stops all classes, and many devices then ignore \
             PFC";
            let consequence = Consequence::NotSimulated(
                "the simulated switch pauses classes only; it shows as pauses of notifications and \
                 everything \
                 else behind a congested port",
            );
            let seen = self.evidence(&["rx-flow-control=on", "tx-flow-control=on", "flowcontrol"]);
            let fix = self.switch.dialect.remedy(&Remedy::NoGlobalPause);
            found.push(self.say(
                "switch-global-pause",
                what.to_owned(),
                seen,
                consequence,
                fix,
            ));
        }
        let unheard = self.intent.pfc_send & !self.intent.pfc_obey;
        if unheard != 0 && self.intent.unknown(Area::Pfc).is_none() {
            let list = ranges(classes(unheard));
            let what =
                format!("pauses are sent for priority {list}, and received ones are not obeyed");
            let remedy = Remedy::ObeyPauses {
                classes: unheard,
                ports: &self.intent.ports,
            };
            let fix = self.switch.remedy_of(&remedy, self.intent);
            let seen = self.evidence(&["rx=", "rx ", "egress-rate", "pfc"]);
            found.push(self.say("switch-pfc-receive", what, seen, self.not_obeyed(), fix));
        }
        // RouterOS scripts that do not set the MTU do not show it.
        let said = ["mtu", "MTU"]
            .iter()
            .any(|word| self.switch.text.as_str().contains(word));
        if said && self.intent.mtu < MTU_NEEDED && self.intent.unknown(Area::Mtu).is_none() {
            let fits = [2048, 1024, 512]
                .into_iter()
                .find(|roce| self.intent.mtu >= roce + 80)
                .unwrap_or(256);
            let consequence = self.other(|case| {
                (case.senders.mtu, case.receiver.mtu) = (fits, fits);
            });
            let what = format!(
                "an MTU of {} carries RoCE packets of {fits} bytes; larger ones are dropped",
                self.intent.mtu
            );
            let seen = self.evidence(&["mtu"]);
            let fix = self.switch.dialect.remedy(&Remedy::Mtu);
            found.push(self.say("switch-mtu", what, seen, consequence, fix));
        }
    }
}

/// The line that shows a setting of the whole switch best.
pub(super) fn evidence_of_all(switch: &SwitchFacts, needles: &[&str]) -> Evidence {
    quote(switch, switch.text.line_about_all(needles))
}

fn quote(switch: &SwitchFacts, line: Line<'_>) -> Evidence {
    let (file, number) = switch.place_in_file(line.number);
    Evidence {
        file: file.to_owned(),
        line: number,
        text: line.text.trim().chars().take(100).collect(),
    }
}

/// The first version of RouterOS with PFC and ECN on switch chips.
const PFC_SINCE: (u32, u32) = (7, 15);

/// A version of RouterOS that has neither PFC nor ECN.
fn old_version(switch: &SwitchFacts, found: &mut Vec<Finding>) {
    let Some((major, minor)) = switch.version.filter(|version| *version < PFC_SINCE) else {
        return;
    };
    let evidence = evidence_of_all(switch, &["RouterOS"]);
    let place = format!("{} ({})", switch.file, switch.dialect.name());
    let what =
        format!("RouterOS {major}.{minor} has neither PFC nor ECN on switch chips: 7.15 has them");
    let why = "without both every class is lossy, and RDMA repeats what is lost";
    let fix = "/system package update install, then /system routerboard upgrade and a restart; \
               DCBX needs 7.17";
    let consequence = Consequence::NotSimulated(why);
    let finding = Finding::new(
        "switch-version",
        place,
        what,
        vec![evidence],
        consequence,
        fix.to_owned(),
    );
    found.push(finding);
}

/// Lanes of one port of RouterOS that are configured differently: then none of them has the setting.
fn lanes(switch: &SwitchFacts, marks: Marks, found: &mut Vec<Finding>) {
    if switch.dialect != Dialect::RouterOs {
        return;
    }
    let mut modules: BTreeMap<String, Vec<(&Intent, &Port)>> = BTreeMap::new();
    for intent in &switch.groups {
        for port in &intent.ports {
            let lanes = modules.entry(first_lane(&port.name)).or_default();
            lanes.push((intent, port));
        }
    }
    for (first, lanes) in modules {
        let differs = lanes
            .iter()
            .any(|(other, _)| !core::ptr::eq(*other, lanes[0].0));
        if !differs
            || lanes
                .iter()
                .any(|(intent, port)| is_lane_alone(intent, port))
        {
            continue;
        }
        // The lane with most settings shows what the others are without.
        let with_most = lanes
            .iter()
            .max_by_key(|(intent, _)| intent.pfc_send.count_ones());
        let intent = with_most.map_or(lanes[0].0, |(intent, _)| *intent);
        let own = One {
            switch,
            intent,
            marks,
        };
        let module = first.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let number = first[module.len()..].parse::<u8>().map_or(1, u32::from);
        let what = format!("the lanes of port {first} are configured differently");
        let fix = format!(
            "the same for {module}{number}, {module}{}, {module}{} and {module}{}",
            number + 1,
            number + 2,
            number + 3
        );
        let evidence = own.evidence(&[module]);
        // The chip applies settings to all lanes of a port, or to none.
        let consequence = own.other(|case| (case.switch.pfc_send, case.switch.pfc_obey) = (0, 0));
        found.push(own.say("switch-lanes", what, evidence, consequence, fix));
    }
}

/// The rate of one lane of the fastest ports with lanes, in Mb/s.
const LANE_MBPS_MAX: u32 = 50_000;

/// Whether a lane is a link of its own: it has the rate of one lane.
fn is_lane_alone(intent: &Intent, port: &Port) -> bool {
    let rates = intent.queues.iter().filter_map(|queue| queue.rate);
    let highest = rates.map(|rate| rate.bps).max().unwrap_or(0) / 1_000_000;
    let of_queues = u32::try_from(highest).unwrap_or(u32::MAX);
    let highest = port.mbps.unwrap_or(0).max(of_queues);
    (1..=LANE_MBPS_MAX).contains(&highest)
}
