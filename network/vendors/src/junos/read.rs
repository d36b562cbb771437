//! Texts of Junos, read as intents.

use super::interfaces::{Interfaces, Link, References};
use super::model::{Classifier, ForwardingClass, Model, Profile, Watchdog};
use super::settings::{Setting, settings};
use crate::intent::{Ecn, Intent, Pause, Port, Queue, Schedule, Trust};
use crate::outcome::{Area, Outcomes};
use crate::path_spread::PathSpread;
use crate::text::{ReadError, number, shortened};

/// Statements of the first level that do not concern the treatment of traffic classes.
const OTHERS: &[&str] = &[
    "access",
    "bridge-domains",
    "chassis",
    "dynamic-profiles",
    "event-options",
    "igmp-snooping-options",
    "jsrc",
    "multicast-snooping-options",
    "multi-chassis",
    "poe",
    "policy-options",
    "routing-instances",
    "routing-options",
    "security",
    "services",
    "snmp",
    "switch-options",
    "system",
    "version",
    "virtual-chassis",
    "vlans",
];

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let (settings, outcomes) = settings(file, text)?;
    let mut reading = Reading {
        file,
        model: Model::default(),
        interfaces: Interfaces::default(),
        spread: Spread::default(),
        outcomes,
    };
    // Names of code points are read first, wherever they are in the text.
    let is_alias = |setting: &&Setting<'_>| setting.words.get(1) == Some(&"code-point-aliases");
    for setting in settings.iter().filter(is_alias) {
        reading.take(setting);
    }
    for setting in settings.iter().filter(|setting| !is_alias(setting)) {
        reading.take(setting);
    }
    let mut found = Vec::new();
    for (name, references, link) in reading.interfaces.ports() {
        reading.outcomes.within(vec![name.clone()]);
        found.push(reading.intent(&name, &references, &link));
        reading.outcomes.within(Vec::new());
    }
    Ok((found, reading.outcomes))
}

/// How the switch spreads packets over paths (`ecmp-dlb`).
#[derive(Default)]
struct Spread {
    by: PathSpread,
    /// Whether filters choose the packets: no type of frame is balanced by itself.
    is_selective: bool,
}

struct Reading<'a> {
    file: &'a str,
    model: Model<'a>,
    interfaces: Interfaces<'a>,
    spread: Spread,
    outcomes: Outcomes,
}

impl<'a> Reading<'a> {
    fn take(&mut self, setting: &Setting<'a>) {
        match self.one(setting) {
            Ok(true) => self.outcomes.applied(setting.line),
            Ok(false) => self.outcomes.irrelevant(setting.line),
            Err(error) => self.outcomes.not_understood(&error),
        }
    }

    /// Reads a setting; whether it matters.
    fn one(&mut self, setting: &Setting<'a>) -> Result<bool, ReadError> {
        let file = self.file;
        match setting.words.as_slice() {
            ["class-of-service", "interfaces", ..] => {
                self.interfaces.take(file, setting).map(|()| true)
            }
            ["class-of-service", ..] => self.model.take(file, setting),
            ["interfaces", ..] => self.interfaces.link(file, setting),
            ["protocols", "dcbx", "interface", name] => {
                self.interfaces.dcbx(name);
                Ok(true)
            }
            ["protocols", "dcbx", rest @ ..] if rest.contains(&"disable") => {
                Err(setting.wrong(file, "DCBX that is disabled in parts is not read"))
            }
            ["protocols", ..] => Ok(false),
            [
                "forwarding-options",
                "enhanced-hash-key",
                "ecmp-dlb",
                rest @ ..,
            ] => self.spread(setting, rest),
            ["forwarding-options", ..] => Ok(false),
            [
                "firewall",
                ..,
                "then",
                "forwarding-class" | "dscp" | "loss-priority",
                _,
            ] => Err(setting.wrong(file, "a filter that classifies packets is not read")),
            ["firewall", ..] => Ok(false),
            [first, ..] if OTHERS.contains(first) => Ok(false),
            _ => Err(setting.wrong(file, "this statement is not known")),
        }
    }

    fn spread(&mut self, setting: &Setting<'a>, rest: &[&str]) -> Result<bool, ReadError> {
        let own = &mut self.spread;
        match rest {
            ["per-packet"] => own.by = PathSpread::Packets,
            ["assigned-flow"] => own.by = PathSpread::Flows,
            ["flowlet", "inactivity-interval", us] => {
                let us = number(self.file, setting.line, us, 0..=u32::MAX)?;
                own.by = PathSpread::Flowlets(Some(us));
            }
            ["flowlet", ..] => {
                if !matches!(own.by, PathSpread::Flowlets(_)) {
                    own.by = PathSpread::Flowlets(None);
                }
            }
            ["ether-type", "none"] => own.is_selective = true,
            ["ether-type" | "sampling-rate", ..] => {}
            _ => return Err(setting.wrong(self.file, "this mode of ecmp-dlb is not known")),
        }
        Ok(true)
    }

    /// Says that an object that a port refers to is not in the text, or is not read.
    fn missing(&mut self, line: usize, intent: &mut Intent, what: String, areas: &[Area]) {
        let error = ReadError::new(self.file, line, what.clone());
        self.outcomes.not_understood(&error);
        areas
            .iter()
            .for_each(|area| intent.forget(*area, what.clone()));
    }

    fn intent(&mut self, name: &str, references: &References<'a>, link: &Link) -> Intent {
        let queues = self.model.class_of_queue();
        let mut intent = Intent {
            default_class: queues[0],
            mtu: link.mtu,
            dcbx: link.dcbx,
            global_pause: link.global_pause,
            spread: self.spread.by,
            ports: vec![Port {
                name: name.to_owned(),
                mbps: None,
                metres: None,
            }],
            ..Intent::nothing()
        };
        if self.spread.is_selective && self.spread.by != PathSpread::Flows {
            intent.forget(Area::Paths, "filters choose the packets that are balanced");
        }
        self.classify(references, &mut intent);
        self.schedule(references, &mut intent);
        self.pauses(references, &mut intent);
        self.rewrites(references, &mut intent);
        intent
    }

    /// The class of an intent for a forwarding class; none for one of multicast.
    fn class_of(&self, class: &ForwardingClass) -> Option<u8> {
        self.model
            .class_of_queue()
            .get(usize::from(class.queue))
            .copied()
    }

    fn classify(&mut self, references: &References<'a>, intent: &mut Intent) {
        (intent.dscp, intent.pcp) = ([intent.default_class; 64], [intent.default_class; 8]);
        if references.dscp.is_none() && references.pcp.is_none() {
            intent.forget(
                Area::Classes,
                "the port has no classifier: that of Junos decides",
            );
        }
        let (mut by_dscp, mut by_pcp) = (false, false);
        for (is_dscp, reference) in [(true, references.dscp), (false, references.pcp)] {
            let Some((line, name)) = reference else {
                continue;
            };
            let all = if is_dscp {
                &self.model.dscp
            } else {
                &self.model.pcp
            };
            let Some(classifier) = all.get(name).cloned() else {
                let what = format!("there is no classifier \"{}\"", shortened(name));
                self.missing(line, intent, what, &[Area::Classes]);
                continue;
            };
            match is_dscp {
                true => by_dscp = true,
                false => by_pcp = true,
            }
            self.of_classifier(line, &classifier, is_dscp, intent);
        }
        intent.trust = Trust::of(by_dscp, by_pcp);
    }

    fn of_classifier(
        &mut self,
        line: usize,
        classifier: &Classifier<'a>,
        is_dscp: bool,
        intent: &mut Intent,
    ) {
        let count = if is_dscp { 64 } else { 8 };
        let mut is_listed = [false; 64];
        for (name, point) in &classifier.entries {
            let Some(class) = self.model.classes.get(name).copied() else {
                let what = format!("there is no forwarding class \"{}\"", shortened(name));
                self.missing(line, intent, what, &[Area::Classes]);
                continue;
            };
            is_listed[usize::from(point & 63)] = true;
            let Some(class) = self.class_of(&class) else {
                continue;
            };
            let map = if is_dscp {
                &mut intent.dscp[..]
            } else {
                &mut intent.pcp[..]
            };
            if let Some(entry) = map.get_mut(usize::from(*point)) {
                *entry = class;
            }
        }
        if classifier.imports && is_listed[..count].contains(&false) {
            let what = "code points that are not listed have the class of the imported classifier";
            intent.forget(Area::Classes, what);
        }
    }

    fn schedule(&mut self, references: &References<'a>, intent: &mut Intent) {
        let Some((line, name)) = references.map else {
            intent.forget(
                Area::Queues,
                "the port has no scheduler map: that of Junos decides",
            );
            return;
        };
        let Some(map) = self.model.maps.get(name).cloned() else {
            let what = format!("there is no scheduler map \"{}\"", shortened(name));
            self.missing(line, intent, what, &[Area::Queues, Area::Ecn]);
            return;
        };
        for (class, scheduler) in map {
            let class = self.model.classes.get(class).copied();
            let Some(scheduler) = self.model.schedulers.get(scheduler).copied() else {
                let what = format!("there is no scheduler \"{}\"", shortened(scheduler));
                self.missing(line, intent, what, &[Area::Queues, Area::Ecn]);
                continue;
            };
            let Some(class) = class.and_then(|class| self.class_of(&class)) else {
                continue;
            };
            intent.queues[usize::from(class)] = Queue {
                schedule: match scheduler.is_strict {
                    true => Schedule::Strict,
                    false => Schedule::Weighted(scheduler.percent.unwrap_or(1).max(1)),
                },
                // Thresholds are percents of the queue's memory, whose size is not in the text.
                ecn: (scheduler.marks && scheduler.has_profile).then_some(Ecn::Automatic),
                rate: scheduler.rate,
            };
        }
    }

    fn pauses(&mut self, references: &References<'a>, intent: &mut Intent) {
        let Some((line, name)) = references.profile else {
            return;
        };
        let Some(profile) = self.model.profiles.get(name).cloned() else {
            let what = format!(
                "there is no congestion-notification-profile \"{}\"",
                shortened(name)
            );
            self.missing(line, intent, what, &[Area::Pfc]);
            return;
        };
        let lossless: Vec<ForwardingClass> = self
            .model
            .classes
            .values()
            .copied()
            .filter(|class| class.is_lossless && class.queue < 8)
            .collect();
        for class in &lossless {
            let Some(own) = self.class_of(class) else {
                continue;
            };
            let by_dscp = profile
                .dscp
                .iter()
                .any(|dscp| intent.dscp[usize::from(dscp & 63)] == own);
            let by_pcp = profile.pcp.contains(&class.priority.unwrap_or(class.queue));
            intent.pfc_send |= u8::from(by_dscp || by_pcp) << own;
        }
        intent.pfc_obey = self.obeyed(line, &profile, intent);
        if intent.pfc_send != 0 {
            // Nothing of the buffer is for lossless classes, or for what arrives after a pause.
            let nothing = [self.model.lossless, self.model.headroom].contains(&Some(0));
            intent.pause = Pause {
                headroom: nothing.then_some(0),
                ..Pause::default()
            };
        }
        let is_on = intent.pfc_send | intent.pfc_obey != 0;
        intent.watchdog = profile
            .watchdog
            .filter(|_| is_on)
            .and_then(Watchdog::running);
    }

    /// Priorities whose pauses are obeyed. Without an output part those are 3 and 4, at the queues of these
    /// numbers.
    fn obeyed(&mut self, line: usize, profile: &Profile, intent: &mut Intent) -> u8 {
        let classes = self.model.class_of_queue();
        let Some(stops) = &profile.stops else {
            let usual = [3_u8, 4]
                .into_iter()
                .filter(|queue| classes[usize::from(*queue)] == *queue);
            return usual.fold(0, |mask, queue| mask | 1 << queue);
        };
        let mut mask = 0;
        for (priority, queue) in stops {
            match classes.get(usize::from(*queue)) {
                Some(class) if class == priority => mask |= 1 << class,
                Some(_) => {
                    let what = format!(
                        "pauses of priority {priority} stop queue {queue}, whose class has another \
                         pfc-priority"
                    );
                    self.missing(line, intent, what, &[Area::Pfc]);
                }
                // Queues of multicast do not carry RoCE.
                None => {}
            }
        }
        mask
    }

    /// Marks that packets leave with: other ones than they came with are named.
    fn rewrites(&mut self, references: &References<'a>, intent: &mut Intent) {
        let Some((line, name)) = references.rewrite else {
            return;
        };
        let Some(rules) = self.model.rewrites.get(name).cloned() else {
            let what = format!("there are no rewrite-rules \"{}\"", shortened(name));
            self.missing(line, intent, what, &[Area::Classes]);
            return;
        };
        for (name, dscp) in rules {
            let class = self.model.classes.get(name).copied();
            let Some(class) = class.and_then(|class| self.class_of(&class)) else {
                continue;
            };
            // Best effort has no mark that a next switch needs.
            let others = intent.dscp_of(class).any(|own| own != dscp);
            if class == intent.default_class || !others || !intent.trust.dscp() {
                continue;
            }
            let what = format!(
                "packets of class \"{}\" leave with DSCP {dscp}, whatever they came with: what the next \
                 switch does with them is not judged",
                shortened(name)
            );
            self.missing(line, intent, what, &[]);
        }
    }
}
