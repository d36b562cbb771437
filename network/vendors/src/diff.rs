//! Differences between two intents.

use core::fmt;

use crate::intent::{Ecn, Intent, Schedule};
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
    let mut found = Vec::new();
    let mut compare = |what: String, from: String, to: String| {
        if from != to {
            found.push(Change { what, from, to });
        }
    };
    let trust = |intent: &Intent| format!("{:?}", intent.trust).to_lowercase();
    compare("trust".to_owned(), trust(from), trust(to));
    let class = |intent: &Intent| intent.default_class.to_string();
    compare(
        "class of packets without a trusted header".to_owned(),
        class(from),
        class(to),
    );
    for one in 0..8_u8 {
        let of = |intent: &Intent| {
            let values = (0..64_u8)
                .filter(|value| intent.trust.dscp() && intent.dscp[usize::from(*value)] == one);
            let text = ranges(values);
            if text.is_empty() {
                "none".to_owned()
            } else {
                text
            }
        };
        compare(format!("DSCP in class {one}"), of(from), of(to));
    }
    for one in 0..8_u8 {
        let of = |intent: &Intent| {
            let values = (0..8_u8)
                .filter(|value| intent.trust.pcp() && intent.pcp[usize::from(*value)] == one);
            let text = ranges(values);
            if text.is_empty() {
                "none".to_owned()
            } else {
                text
            }
        };
        compare(format!("PCP in class {one}"), of(from), of(to));
    }
    for one in 0..8 {
        let (old, new) = (&from.queues[one], &to.queues[one]);
        compare(
            format!("queue {one}"),
            schedule(old.schedule),
            schedule(new.schedule),
        );
        compare(format!("queue {one}: ECN"), ecn(old.ecn), ecn(new.ecn));
    }
    let priorities = |mask: u8| {
        if mask == 0 {
            "none".to_owned()
        } else {
            ranges(classes(mask))
        }
    };
    compare(
        "PFC sent for".to_owned(),
        priorities(from.pfc_send),
        priorities(to.pfc_send),
    );
    compare(
        "PFC obeyed for".to_owned(),
        priorities(from.pfc_obey),
        priorities(to.pfc_obey),
    );
    let bytes = |bytes: Option<u32>| {
        bytes.map_or_else(|| "automatic".to_owned(), |bytes| format!("{bytes} bytes"))
    };
    compare(
        "Xoff".to_owned(),
        bytes(from.pause.xoff),
        bytes(to.pause.xoff),
    );
    compare("Xon".to_owned(), bytes(from.pause.xon), bytes(to.pause.xon));
    compare(
        "headroom".to_owned(),
        bytes(from.pause.headroom),
        bytes(to.pause.headroom),
    );
    let on = |on: bool| if on { "on" } else { "off" }.to_owned();
    compare("DCBX".to_owned(), on(from.dcbx), on(to.dcbx));
    compare("MTU".to_owned(), from.mtu.to_string(), to.mtu.to_string());
    let names = |intent: &Intent| {
        intent
            .ports
            .iter()
            .map(|port| port.name.clone())
            .collect::<Vec<_>>()
            .join(", ")
    };
    compare("ports".to_owned(), names(from), names(to));
    if let (Some(old), Some(new)) = (&from.host, &to.host) {
        compare(
            "ToS of RDMA data".to_owned(),
            old.tos().to_string(),
            new.tos().to_string(),
        );
        compare(
            "DSCP of notifications".to_owned(),
            old.cnp_dscp.to_string(),
            new.cnp_dscp.to_string(),
        );
        let cnp = |host: &crate::intent::HostSettings| host.cnp_priority.to_string();
        compare("priority of notifications".to_owned(), cnp(old), cnp(new));
        compare(
            "priority of SMB Direct".to_owned(),
            old.smb_priority.to_string(),
            new.smb_priority.to_string(),
        );
        compare("willing".to_owned(), on(old.willing), on(new.willing));
        compare(
            "SR-IOV functions".to_owned(),
            old.functions.to_string(),
            new.functions.to_string(),
        );
    }
    found
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
