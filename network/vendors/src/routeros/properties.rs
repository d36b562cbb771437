//! The properties of a menu's entries: as `find` sees them, and as `add` and `set` change them.

use super::config::MapEntry;
use super::entries::{Entry, Refusal, entry, yes_or_no};
use super::script::ScriptCommand;
use super::{
    PfcProfile, QosProfile, QueueSchedule, RouterOsPort, Threshold, TrustMode, TxManager, TxQueue,
};
use units::{Bandwidth, Quantity};

/// Entries of one menu at most, a limit of the chips.
const ENTRIES_MAX: usize = 1024;

pub(super) fn profile_entry(index: usize, own: &QosProfile) -> Entry {
    entry([
        ("name", own.name.clone()),
        ("pcp", own.pcp.to_string()),
        ("dscp", own.dscp.to_string()),
        ("traffic-class", own.traffic_class.to_string()),
        ("default", yes_or_no(index == 0)),
        ("disabled", yes_or_no(own.disabled)),
    ])
}

pub(super) fn map_entry(own: &MapEntry, is_ip: bool) -> Entry {
    let values = own.values.iter().copied();
    entry([
        (
            if is_ip { "dscp" } else { "pcp" },
            crate::text::ranges(values),
        ),
        ("profile", own.profile.clone()),
        ("map", "default".to_owned()),
        ("disabled", yes_or_no(own.disabled)),
        ("dei-only", yes_or_no(own.dei_only)),
    ])
}

pub(super) fn pfc_entry(index: usize, own: &PfcProfile) -> Entry {
    let classes = crate::text::classes(own.traffic_classes);
    entry([
        ("name", own.name.clone()),
        ("traffic-class", crate::text::ranges(classes)),
        ("rx", yes_or_no(own.rx)),
        ("tx", yes_or_no(own.tx)),
        ("default", yes_or_no(index == 0)),
        ("disabled", yes_or_no(own.disabled)),
    ])
}

pub(super) fn set_profile(
    own: &mut QosProfile,
    properties: &[(String, String)],
) -> Result<(), Refusal> {
    for (name, value) in properties {
        match name.as_str() {
            "numbers" | "color" | "comment" => {}
            "name" => own.name.clone_from(value),
            "automap" => own.automap = yes(value)?,
            "disabled" => own.disabled = yes(value)?,
            "pcp" => (own.pcp, own.names.1) = (number(value, 7)?, true),
            "dscp" => (own.dscp, own.names.0) = (number(value, 63)?, true),
            "traffic-class" => own.traffic_class = number(value, 7)?,
            other => {
                let known = ["name", "pcp", "dscp", "traffic-class", "color"];
                return Err(no_property(other, &known));
            }
        }
    }
    Ok(())
}

pub(super) fn set_map(
    own: &mut MapEntry,
    properties: &[(String, String)],
    is_ip: bool,
) -> Result<(), Refusal> {
    let key = if is_ip { "dscp" } else { "pcp" };
    for (name, value) in properties {
        match name.as_str() {
            "map" if value == "default" => {}
            "map" => return Err(refuse("only the map \"default\" is known", None)),
            "profile" => own.profile.clone_from(value),
            "dei-only" => own.dei_only = yes(value)?,
            "disabled" => own.disabled = yes(value)?,
            "numbers" | "comment" => {}
            name if name == key => own.values = list(value, if is_ip { 63 } else { 7 })?,
            other => return Err(no_property(other, &[key, "profile", "map"])),
        }
    }
    Ok(())
}

pub(super) fn set_manager(
    own: &mut TxManager,
    properties: &[(String, String)],
) -> Result<(), Refusal> {
    for (name, value) in properties {
        match name.as_str() {
            "numbers" | "comment" => {}
            "name" => own.name.clone_from(value),
            "ecn" => own.ecn = yes(value)?,
            "queue-buffers" => {
                let each = buffers(value)?.map(|bytes| bytes / 8);
                own.queues.iter_mut().for_each(|queue| queue.buffers = each);
            }
            other => return Err(no_property(other, &["name", "ecn", "queue-buffers"])),
        }
    }
    Ok(())
}

pub(super) fn set_pfc(
    own: &mut PfcProfile,
    properties: &[(String, String)],
) -> Result<(), Refusal> {
    for (name, value) in properties {
        match name.as_str() {
            "numbers" | "comment" => {}
            "name" => own.name.clone_from(value),
            "disabled" => own.disabled = yes(value)?,
            "traffic-class" => {
                let classes = list(value, 7)?;
                own.traffic_classes = classes.iter().fold(0, |mask, class| mask | 1 << class);
            }
            "rx" => own.rx = yes(value)?,
            "tx" => own.tx = yes(value)?,
            "pause-threshold" => own.pause_threshold = threshold(value)?,
            "resume-threshold" => own.resume_threshold = threshold(value)?,
            other => {
                let known = [
                    "name",
                    "traffic-class",
                    "rx",
                    "tx",
                    "pause-threshold",
                    "resume-threshold",
                ];
                return Err(no_property(other, &known));
            }
        }
    }
    Ok(())
}

pub(super) const fn schedule_name(schedule: QueueSchedule) -> &'static str {
    match schedule {
        QueueSchedule::Strict => "strict-priority",
        QueueSchedule::High => "high-priority-group",
        QueueSchedule::Low => "low-priority-group",
    }
}

pub(super) fn is_digit(text: &str) -> bool {
    matches!(text.as_bytes(), [b'0'..=b'7'])
}

pub(super) fn set_queue(queue: &mut TxQueue, name: &str, value: &str) -> Result<(), Refusal> {
    match name {
        "numbers" | "comment" => {}
        "schedule" => {
            queue.schedule = match value {
                "strict-priority" => QueueSchedule::Strict,
                "high-priority-group" => QueueSchedule::High,
                "low-priority-group" => QueueSchedule::Low,
                _ => {
                    return Err(not_a(
                        value,
                        "strict-priority, high-priority-group or low-priority-group",
                    ));
                }
            }
        }
        "weight" => queue.weight = number(value, 255)?,
        "queue-buffers" => queue.buffers = buffers(value)?,
        "use-shared-buffers" => queue.shared = yes(value)?,
        "wred" => queue.wred = yes(value)?,
        "ecn" => queue.ecn = yes(value)?,
        // Which of the shared pools the queue uses, before 7.23. One pool is simulated.
        "shared-pool-index" => {
            number(value, 7)?;
        }
        other => {
            let known = [
                "schedule",
                "weight",
                "queue-buffers",
                "use-shared-buffers",
                "wred",
                "ecn",
            ];
            return Err(no_property(other, &known));
        }
    }
    Ok(())
}

/// Bits per second of a rate. Without a unit it is in bits per second, as scripts have it.
fn bits_per_second(value: &str) -> Option<u64> {
    let unit = match value.strip_suffix(['k', 'K']) {
        Some(number) => format!("{number}kb/s"),
        None if value.bytes().all(|digit| digit.is_ascii_digit()) => format!("{value}b/s"),
        None => value.replacen("kbps", "kb/s", 1),
    };
    Bandwidth::parse(&unit).map(|rate| rate.0.bps())
}

pub(super) fn set_port(port: &mut RouterOsPort, name: &str, value: &str) -> Result<(), Refusal> {
    let trust = || match value {
        "ignore" => Ok(TrustMode::Ignore),
        "trust" => Ok(TrustMode::Trust),
        "keep" => Ok(TrustMode::Keep),
        _ => Err(not_a(value, "ignore, trust or keep")),
    };
    match name {
        "numbers" | "comment" => {}
        // Without a value, a property has the value of a new switch.
        "profile" | "trust-l2" | "trust-l3" | "tx-manager" | "pfc" if value.is_empty() => {
            let new = RouterOsPort::default();
            match name {
                "profile" => port.profile = new.profile,
                "trust-l2" => port.trust_l2 = new.trust_l2,
                "trust-l3" => port.trust_l3 = new.trust_l3,
                "tx-manager" => port.tx_manager = new.tx_manager,
                _ => port.pfc = new.pfc,
            }
        }
        "profile" => port.profile = value.to_owned(),
        "map" if value == "default" => {}
        "map" => return Err(refuse("only the map \"default\" is known", None)),
        "trust-l2" => port.trust_l2 = trust()?,
        "trust-l3" => port.trust_l3 = trust()?,
        "tx-manager" => port.tx_manager = value.to_owned(),
        "pfc" => port.pfc = value.to_owned(),
        name => {
            let queue = name
                .strip_prefix("egress-rate-queue")
                .and_then(|queue| queue.parse::<usize>().ok());
            let Some(rate) = queue.and_then(|queue| port.egress_rates.get_mut(queue)) else {
                let known = [
                    "profile",
                    "trust-l2",
                    "trust-l3",
                    "tx-manager",
                    "pfc",
                    "egress-rate-queue3",
                ];
                return Err(no_property(name, &known));
            };
            *rate = match value {
                "" => None,
                // The queue has a rate, which is not limited.
                "0" => Some(0),
                value => {
                    Some(bits_per_second(value).ok_or_else(|| not_a(value, "a rate: 100.0Gbps"))?)
                }
            };
        }
    }
    Ok(())
}

pub(super) fn new_name(command: &ScriptCommand, entries: &[Entry]) -> Result<String, Refusal> {
    let name = command
        .properties
        .iter()
        .find(|(name, _)| name == "name")
        .map(|(_, value)| value.clone());
    let name = name.ok_or_else(|| refuse("add needs name=NAME", None))?;
    if entries.iter().any(|own| own.get("name") == Some(&name)) {
        return Err(refuse(
            &format!("there is an entry \"{name}\" already"),
            Some("set it"),
        ));
    }
    Ok(name)
}

pub(super) fn room(count: usize) -> Result<(), Refusal> {
    if count < ENTRIES_MAX {
        Ok(())
    } else {
        Err(refuse("the chip has no room for more entries", None))
    }
}

pub(super) fn refuse(what: &str, instead: Option<&str>) -> Refusal {
    (what.to_owned(), instead.map(str::to_owned))
}

pub(super) fn not_a(value: &str, grammar: &str) -> Refusal {
    (
        format!("\"{value}\" is not understood"),
        Some(format!("write {grammar}")),
    )
}

pub(super) fn no_property(name: &str, known: &[&str]) -> Refusal {
    let instead = match crate::text::nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("there are {}", known.join(", ")),
    };
    (
        format!("there is no property \"{name}\" here"),
        Some(instead),
    )
}

pub(super) fn yes(value: &str) -> Result<bool, Refusal> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(not_a(value, "yes or no")),
    }
}

pub(super) fn number(value: &str, max: u8) -> Result<u8, Refusal> {
    let found = value.parse().ok().filter(|number| *number <= max);
    found.ok_or_else(|| not_a(value, &format!("a number from 0 to {max}")))
}

/// Numbers and ranges, such as `1,3-4`.
pub(super) fn list(value: &str, max: u8) -> Result<Vec<u8>, Refusal> {
    let mut values = Vec::new();
    for part in value.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        values.extend(number(from, max)?..=number(to, max)?);
    }
    Ok(values)
}

/// `auto`, a percentage of the shared pool, or bytes.
pub(super) fn threshold(value: &str) -> Result<Option<Threshold>, Refusal> {
    match value.strip_suffix('%') {
        Some(percent) => Ok(Some(Threshold::Percent(number(percent, 100)?))),
        None => Ok(buffers(value)?.map(Threshold::Bytes)),
    }
}

/// `auto`, a percentage of the packet memory, or bytes.
pub(super) fn buffers(value: &str) -> Result<Option<u32>, Refusal> {
    if value == "auto" {
        return Ok(None);
    }
    if let Some(percent) = value.strip_suffix('%') {
        let percent = number(percent, 100)?;
        return Ok(Some(
            (u64::from(super::model::MEMORY_BYTES) * u64::from(percent) / 100) as u32,
        ));
    }
    let plain = value.parse::<u64>().ok();
    let with_unit = || units::Size::parse(value).map(|size| size.0);
    let bytes = plain
        .or_else(with_unit)
        .and_then(|bytes| u32::try_from(bytes).ok());
    bytes
        .map(Some)
        .ok_or_else(|| not_a(value, "auto, a percentage, or bytes such as 256KiB"))
}
