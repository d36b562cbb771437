//! Differences between two intents.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use crate::highest_rate::{HighestRate, shown as shown_rate};
use crate::intent::{Ecn, HostSettings, Intent, Schedule, WindowsSettings};
use crate::limits::times;
use crate::text::{classes, ranges};

/// One setting that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The setting: `queue 3: ECN`.
    pub what: String,
    /// Value of the setting before the change.
    pub from: String,
    /// Value of the setting after the change.
    pub to: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} → {}", self.what, self.from, self.to)
    }
}

/// The settings that differ, in the order in which a packet meets them.
pub fn changes(from: &Intent, to: &Intent) -> Vec<Change> {
    let mut changes = Changes::default();
    changes.classification(from, to);
    for class in 0..8 {
        let queues = &Sides {
            from: &from.queues[class],
            to: &to.queues[class],
        };
        changes.compare(format!("queue {class}"), queues, |queue| {
            schedule(queue.schedule)
        });
        changes.compare(
            format!("queue {class}: ECN"),
            queues,
            |queue| ecn(queue.ecn),
        );
        changes.compare(format!("queue {class}: highest rate"), queues, |queue| {
            rate(queue.rate)
        });
    }
    changes.pfc(from, to);
    let sides = &Sides { from, to };
    changes.compare("DCBX", sides, |intent| on(intent.dcbx));
    changes.compare("MTU", sides, |intent| intent.mtu.to_string());
    changes.compare("paths", sides, |intent| intent.spread.to_string());
    changes.compare("ports", sides, |intent| {
        let names = intent.ports.iter().map(|port| port.name.clone());
        names.collect::<Vec<_>>().join(", ")
    });
    if let (Some(from), Some(to)) = (&from.host, &to.host) {
        changes.host(from, to);
    }
    changes.0
}

/// The settings that differ, port by port, between a configuration and what is planned. What the planned
/// intents themselves say already does not change, even if the dialect cannot express it: `planned` and
/// `expressed` are the same groups of ports, before and after they were made to fit.
pub fn changes_by_port(now: &[Intent], planned: &[Intent], expressed: &[Intent]) -> Vec<Change> {
    let largest = |groups: &[Intent]| {
        let sizes = groups.iter().enumerate().rev();
        sizes
            .max_by_key(|(_, group)| group.ports.len())
            .map(|(index, _)| index)
    };
    let group_of = |groups: &[Intent], name: &str| {
        groups
            .iter()
            .position(|group| group.ports.iter().any(|port| port.name == name))
    };
    let names = |groups: &[Intent]| -> BTreeSet<String> {
        let ports = groups.iter().flat_map(|group| &group.ports);
        ports.map(|port| port.name.clone()).collect()
    };
    let (ours, theirs) = (names(expressed), names(now));
    let is_whole = now.len() < 2 && expressed.len() < 2;
    if is_whole || ours.is_disjoint(&theirs) {
        // Ports have other names: what most of them have is compared.
        let (Some(before), Some(after)) = (largest(now), largest(expressed)) else {
            return Vec::new();
        };
        return wanted_changes(&now[before], &planned[after], &expressed[after]);
    }
    let mut pairs: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
    for name in ours.intersection(&theirs) {
        if let (Some(before), Some(after)) = (group_of(now, name), group_of(expressed, name)) {
            pairs.entry((after, before)).or_default().push(name.clone());
        }
    }
    let is_one = pairs.len() == 1;
    let mut all = Vec::new();
    for ((after, before), ports) in pairs {
        let only = |intent: &Intent| Intent {
            ports: Vec::new(),
            ..intent.clone()
        };
        let [before, planned, after] = [&now[before], &planned[after], &expressed[after]].map(only);
        let changes = wanted_changes(&before, &planned, &after);
        all.extend(changes.into_iter().map(|change| Change {
            what: match is_one {
                true => change.what,
                false => format!("{}: {}", shown(&ports), change.what),
            },
            ..change
        }));
    }
    let missing: Vec<String> = theirs.difference(&ours).cloned().collect();
    let new: Vec<String> = ours.difference(&theirs).cloned().collect();
    if !missing.is_empty() || !new.is_empty() {
        all.push(Change {
            what: "ports".to_owned(),
            from: shown(&theirs.into_iter().collect::<Vec<_>>()),
            to: shown(&ours.into_iter().collect::<Vec<_>>()),
        });
    }
    all
}

/// The changes of one group, without those that make a setting other than it is planned.
fn wanted_changes(now: &Intent, planned: &Intent, expressed: &Intent) -> Vec<Change> {
    let wanted = changes(now, planned);
    let all = changes(now, expressed).into_iter();
    all.filter(|change| wanted.iter().any(|wanted| wanted.what == change.what))
        .collect()
}

/// Ports that one message names at most.
const PORTS_SHOWN: usize = 8;

fn shown(ports: &[String]) -> String {
    match ports {
        [] => "none".to_owned(),
        ports if ports.len() > PORTS_SHOWN => {
            format!(
                "{} and {} more",
                ports[..PORTS_SHOWN].join(", "),
                ports.len() - PORTS_SHOWN
            )
        }
        ports => ports.join(", "),
    }
}

/// What is compared, now and afterwards.
struct Sides<'a, T> {
    from: &'a T,
    to: &'a T,
}

/// Collects settings that differ.
#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    /// Compares one setting, whose text `value` makes.
    fn compare<T>(
        &mut self,
        what: impl Into<String>,
        sides: &Sides<'_, T>,
        value: impl Fn(&T) -> String,
    ) {
        let (from, to) = (value(sides.from), value(sides.to));
        if from != to {
            let what = what.into();
            self.0.push(Change { what, from, to });
        }
    }

    /// Which header field is trusted, and the class of each of its values.
    fn classification(&mut self, from: &Intent, to: &Intent) {
        let sides = &Sides { from, to };
        self.compare("trust", sides, |intent| {
            format!("{:?}", intent.trust).to_lowercase()
        });
        let default = "class of packets without a trusted header";
        self.compare(default, sides, |intent| intent.default_class.to_string());
        for class in 0..8_u8 {
            self.compare(format!("DSCP in class {class}"), sides, |intent| {
                let is_in = |value: &u8| intent.dscp[usize::from(*value)] == class;
                or_none((0..64).filter(|value| intent.trust.dscp() && is_in(value)))
            });
        }
        for class in 0..8_u8 {
            self.compare(format!("PCP in class {class}"), sides, |intent| {
                let is_in = |value: &u8| intent.pcp[usize::from(*value)] == class;
                or_none((0..8).filter(|value| intent.trust.pcp() && is_in(value)))
            });
        }
    }

    /// Priorities with PFC, and the thresholds.
    fn pfc(&mut self, from: &Intent, to: &Intent) {
        let sides = &Sides { from, to };
        self.compare("PFC sent for", sides, |intent| {
            or_none(classes(intent.pfc_send))
        });
        self.compare("PFC obeyed for", sides, |intent| {
            or_none(classes(intent.pfc_obey))
        });
        self.compare("Xoff", sides, |intent| bytes(intent.pause.xoff));
        self.compare("Xon", sides, |intent| bytes(intent.pause.xon));
        self.compare("headroom", sides, |intent| bytes(intent.pause.headroom));
        self.compare("PFC watchdog", sides, |intent| {
            intent.watchdog.map_or_else(|| "off".to_owned(), times)
        });
    }

    /// Settings that only adapters have.
    fn host(&mut self, from: &HostSettings, to: &HostSettings) {
        let sides = &Sides { from, to };
        self.compare("ToS of RDMA data", sides, |host| host.tos().to_string());
        self.compare("DSCP of notifications", sides, |host| {
            host.cnp_dscp.to_string()
        });
        self.compare("priority of notifications", sides, |host| {
            host.cnp_priority.to_string()
        });
        self.compare("priority of SMB Direct", sides, |host| {
            host.smb_priority.to_string()
        });
        self.compare("willing", sides, |host| on(host.willing));
        self.compare("packets in any order", sides, |host| on(host.out_of_order));
        self.compare("SR-IOV functions", sides, |host| host.functions.to_string());
        self.windows(&from.windows, &to.windows);
    }

    /// Settings that only Windows has.
    fn windows(&mut self, from: &WindowsSettings, to: &WindowsSettings) {
        let sides = &Sides { from, to };
        self.compare("feature SMB Direct", sides, |own| on(own.smb_direct));
        self.compare("multichannel", sides, |own| on(own.multichannel));
        self.compare("NetworkDirect", sides, |own| on(own.network_direct));
        self.compare("RDMA between subnets", sides, |own| on(own.across_subnets));
        self.compare("RDMA of the adapter", sides, |own| on(own.offered));
        self.compare("NetworkDirect technology", sides, |own| {
            own.technology.to_string()
        });
        self.compare("oldest dialect of SMB", sides, |own| {
            dialect(own.dialects.0)
        });
        self.compare("newest dialect of SMB", sides, |own| {
            dialect(own.dialects.1)
        });
        self.compare("RDMA connections of an interface", sides, |own| {
            own.connections
                .map_or_else(|| "automatic".to_owned(), |count| count.to_string())
        });
    }
}

/// Ranges of values; "none" for no values.
fn or_none(values: impl Iterator<Item = u8>) -> String {
    let text = ranges(values);
    if text.is_empty() {
        "none".to_owned()
    } else {
        text
    }
}

fn bytes(bytes: Option<u32>) -> String {
    bytes.map_or_else(|| "automatic".to_owned(), |bytes| format!("{bytes} bytes"))
}

/// A dialect as Windows writes it, which is the protocol's revision: 0x311 is 3.1.1.
fn dialect(revision: Option<u16>) -> String {
    revision.map_or_else(|| "automatic".to_owned(), |own| format!("{own:#x}"))
}

fn on(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

fn schedule(schedule: Schedule) -> String {
    match schedule {
        Schedule::Strict => "strict".to_owned(),
        Schedule::Weighted(weight) => format!("weight {weight}"),
        Schedule::Background(weight) => format!("weight {weight} below the others"),
    }
}

fn rate(rate: Option<HighestRate>) -> String {
    match rate {
        None => "none".to_owned(),
        Some(HighestRate { bps, burst: None }) => shown_rate(bps),
        Some(HighestRate {
            bps,
            burst: Some(burst),
        }) => {
            format!("{}, bursts of {burst} bytes", shown_rate(bps))
        }
    }
}

fn ecn(ecn: Option<Ecn>) -> String {
    match ecn {
        None => "off".to_owned(),
        Some(Ecn::Automatic) => "automatic".to_owned(),
        Some(Ecn::Thresholds { min, max, percent }) => format!("{min} to {max} bytes, {percent} %"),
    }
}
