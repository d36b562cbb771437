//! Differences between two intents.

use core::fmt;

use crate::intent::{Ecn, HostSettings, Intent, Schedule};
use crate::text::{classes, ranges};

/// One setting that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The setting: `queue 3: ECN`.
    pub what: String,
    /// Its value now.
    pub from: String,
    /// Its value afterwards.
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
    }
    changes.pfc(from, to);
    let sides = &Sides { from, to };
    changes.compare("DCBX", sides, |intent| on(intent.dcbx));
    changes.compare("MTU", sides, |intent| intent.mtu.to_string());
    changes.compare("ports", sides, |intent| {
        let names = intent.ports.iter().map(|port| port.name.clone());
        names.collect::<Vec<_>>().join(", ")
    });
    if let (Some(from), Some(to)) = (&from.host, &to.host) {
        changes.host(from, to);
    }
    changes.0
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
        self.compare("SR-IOV functions", sides, |host| host.functions.to_string());
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

fn ecn(ecn: Option<Ecn>) -> String {
    match ecn {
        None => "off".to_owned(),
        Some(Ecn::Automatic) => "automatic".to_owned(),
        Some(Ecn::Thresholds { min, max, percent }) => format!("{min} to {max} bytes, {percent} %"),
    }
}
