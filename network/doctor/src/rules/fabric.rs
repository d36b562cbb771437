//! A switch against the fabric file: settings that differ from the plan.

use super::switch::One;
use super::{Finding, SwitchFacts};
use crate::marks::Marks;
use vendors::{Area, Change, Dialect, Intent, changes};

/// Settings that belong together.
struct Settings {
    rule: &'static str,
    /// The part of a configuration.
    of: Area,
    /// Beginnings of the names of its changes.
    begins: &'static [&'static str],
    /// Rules of the switch alone that report the same fault.
    known: &'static [&'static str],
    /// Words of a configuration line that shows it.
    needles: &'static [&'static str],
    /// Copies the planned settings.
    take: fn(&mut Intent, &Intent),
}

const AREAS: &[Settings] = &[
    Settings {
        rule: "fabric-map",
        of: Area::Classes,
        begins: &["trust", "class of", "DSCP in", "PCP in"],
        known: &["switch-dscp-map", "switch-trust", "switch-cnp-class"],
        needles: &["map ip", "DSCP_TO_TC_MAP", "dscp", "trust"],
        take: |own, planned| {
            (own.trust, own.dscp, own.pcp) = (planned.trust, planned.dscp, planned.pcp);
            own.default_class = planned.default_class;
        },
    },
    Settings {
        rule: "fabric-pfc",
        of: Area::Pfc,
        begins: &["PFC "],
        known: &["switch-pfc-off", "switch-pfc-receive"],
        needles: &["pfc_enable", "priority-flow-control", "pfc", "pause"],
        take: |own, planned| (own.pfc_send, own.pfc_obey) = (planned.pfc_send, planned.pfc_obey),
    },
    Settings {
        rule: "fabric-ecn",
        of: Area::Ecn,
        begins: &["ECN"],
        known: &["switch-ecn-off"],
        needles: &["ecn", "random-detect", "wred", "WRED"],
        take: |own, planned| {
            for (own, planned) in own.queues.iter_mut().zip(&planned.queues) {
                own.ecn = planned.ecn;
            }
        },
    },
    Settings {
        rule: "fabric-queues",
        of: Area::Queues,
        begins: &["queue"],
        known: &[],
        needles: &[
            "schedule",
            "weight",
            "bandwidth",
            "SCHEDULER",
            "egress-scheduler",
        ],
        take: |own, planned| {
            for (own, planned) in own.queues.iter_mut().zip(&planned.queues) {
                own.schedule = planned.schedule;
            }
        },
    },
    Settings {
        rule: "fabric-buffers",
        of: Area::Pfc,
        begins: &["Xoff", "Xon", "headroom"],
        known: &[],
        needles: &["pause-threshold", "xoff", "headroom", "buffer"],
        take: |own, planned| own.pause = planned.pause,
    },
    Settings {
        rule: "fabric-dcbx",
        of: Area::Pfc,
        begins: &["DCBX"],
        known: &[],
        needles: &["dcbx", "lldp"],
        take: |own, planned| own.dcbx = planned.dcbx,
    },
    Settings {
        rule: "fabric-mtu",
        of: Area::Mtu,
        begins: &["MTU"],
        known: &["switch-mtu", "shown-mtu"],
        needles: &["mtu", "MTU"],
        take: |own, planned| own.mtu = planned.mtu,
    },
];

/// The area of a change: "queue 3: ECN" is one of ECN.
fn area_of(change: &Change) -> &str {
    match change.what.ends_with(": ECN") {
        true => "ECN",
        false => &change.what,
    }
}

pub(super) fn check(switch: &SwitchFacts, found: &mut Vec<Finding>) {
    let Some(planned) = &switch.planned else {
        return;
    };
    for group in &switch.groups {
        let is_own = |own: &&Intent| {
            own.ports
                .iter()
                .any(|port| group.ports.iter().any(|other| other.name == port.name))
        };
        let own = planned
            .groups
            .iter()
            .find(is_own)
            .unwrap_or(&planned.intent);
        let wanted = Intent {
            ports: group.ports.clone(),
            ..own.clone()
        };
        // Settings that the file leaves to the device may have any value.
        let all: Vec<Change> = changes(group, &wanted)
            .into_iter()
            .filter(|change| change.to != "automatic")
            .collect();
        for area in AREAS {
            let is_own = |change: &&Change| {
                area.begins
                    .iter()
                    .any(|begin| area_of(change).starts_with(begin))
            };
            let own: Vec<&Change> = all.iter().filter(is_own).collect();
            let is_known = found.iter().any(|finding| {
                area.known.contains(&finding.rule) && finding.place.starts_with(&switch.file)
            });
            // What was not understood may say the same as the file.
            let is_unknown = group.unknown(area.of).is_some();
            if !own.is_empty() && !is_known && !is_unknown {
                found.push(differs(switch, group, &wanted, area, &own));
            }
        }
    }
}

fn differs(
    switch: &SwitchFacts,
    group: &Intent,
    wanted: &Intent,
    area: &Settings,
    own: &[&Change],
) -> Finding {
    let mut fixed = group.clone();
    (area.take)(&mut fixed, wanted);
    let one = One {
        switch,
        intent: group,
        marks: planned_marks(switch),
    };
    let consequence = one.against(|intent| intent.clone_from(&fixed));
    let said: Vec<String> = own.iter().map(|change| change.to_string()).collect();
    let what = format!("differs from the fabric file: {}", said.join("; "));
    let fix = fix(switch.dialect, group, &fixed);
    one.say(
        area.rule,
        what,
        one.evidence(area.needles),
        consequence,
        fix,
    )
}

fn planned_marks(switch: &SwitchFacts) -> Marks {
    switch
        .planned
        .as_ref()
        .map_or_else(Marks::default, |planned| planned.marks)
}

/// The lines that the planned configuration has and this one has not, each below the lines that it is within.
fn fix(dialect: Dialect, now: &Intent, fixed: &Intent) -> String {
    let (_, version) = dialect.versions();
    if dialect == Dialect::Sonic {
        return "rockery plan FILE --for SWITCH=sonic@VERSION --diff config_db.json shows and writes it"
            .to_owned();
    }
    let (old, new) = (
        dialect.write(now, version).text,
        dialect.write(fixed, version).text,
    );
    let old: Vec<&str> = old.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut within, mut text): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in new.lines() {
        within.retain(|outer| {
            indent(outer) < indent(line) || (outer.starts_with('/') && !line.starts_with('/'))
        });
        if !old.contains(&line) {
            text.append(&mut within);
            text.push(line);
        }
        within.push(line);
    }
    match text.is_empty() {
        true => "remove what the fabric file does not have: rockery plan FILE --diff shows it"
            .to_owned(),
        false => text.join("\n"),
    }
}
