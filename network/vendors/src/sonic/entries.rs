//! Checks of entries against SONiC's schema (sonic-net, `sonic-yang-models`): a field or a port that the
//! schema or the file does not have is ignored by the switch, so the setting that was meant is not there.

use serde_json::{Map, Value};

/// Fields of the tables whose entries are read, by the name of the table.
const FIELDS: &[(&str, &[&str])] = &[
    ("QUEUE", &["scheduler", "wred_profile"]),
    (
        "SCHEDULER",
        &[
            "type",
            "weight",
            "priority",
            "meter_type",
            "cir",
            "cbs",
            "pir",
            "pbs",
        ],
    ),
    (
        "WRED_PROFILE",
        &[
            "ecn",
            "wred_green_enable",
            "wred_yellow_enable",
            "wred_red_enable",
            "green_min_threshold",
            "green_max_threshold",
            "green_drop_probability",
            "yellow_min_threshold",
            "yellow_max_threshold",
            "yellow_drop_probability",
            "red_min_threshold",
            "red_max_threshold",
            "red_drop_probability",
        ],
    ),
    (
        "BUFFER_POOL",
        &["type", "mode", "size", "xoff", "percentage"],
    ),
    (
        "BUFFER_PROFILE",
        &[
            "pool",
            "size",
            "xon",
            "xon_offset",
            "xoff",
            "dynamic_th",
            "static_th",
            "headroom_type",
            "packet_discard_action",
        ],
    ),
    ("BUFFER_PG", &["profile"]),
    ("BUFFER_QUEUE", &["profile"]),
    (
        "PFC_WD",
        &[
            "action",
            "detection_time",
            "restoration_time",
            "pfc_stat_history",
            "POLL_INTERVAL",
            "BIG_RED_SWITCH",
        ],
    ),
    ("PORT_QOS_MAP", &[]),
];

/// Fields of `PORT` that are read. It has many others.
const OF_PORT: &[&str] = &["mtu", "speed", "admin_status", "pfc_asym"];

/// Keys in the place of a port that are none: settings of the whole switch, and the processor's queues.
const NO_PORTS: &[&str] = &["global", "GLOBAL", "CPU"];

/// Something that the switch ignores.
pub(super) struct Ignored {
    /// The keys that lead to it.
    pub(super) path: Vec<String>,
    /// The port that it concerns; all where it is empty.
    pub(super) port: String,
    pub(super) what: String,
    /// The name that was meant.
    pub(super) instead: Option<String>,
}

/// Finds entries, fields and ports that are not as the schema has them.
pub(super) fn ignored(root: &Map<String, Value>) -> Vec<Ignored> {
    let mut found = Vec::new();
    for (table, fields) in FIELDS {
        let entries = match root.get(*table) {
            None => continue,
            Some(Value::Object(entries)) => entries,
            Some(_) => {
                found.push(no_object(root, &[table]));
                continue;
            }
        };
        for (key, entry) in entries {
            found.extend(unknown_ports(root, table, key, entry));
            match entry {
                Value::Object(entry) => {
                    found.extend(odd_fields(root, table, key, fields, entry));
                }
                _ => found.push(no_object(root, &[table, key])),
            }
        }
    }
    found.extend(odd_ports(root));
    found.extend(odd_lengths(root));
    found
}

/// The ports and the range of a key of queues. In a chassis the names of the card and of its chip come first
/// (`card|Asic0|Ethernet0|3`), and ports of other cards are none of this switch.
pub(super) fn ports_and_range<'k>(
    root: &Map<String, Value>,
    key: &'k str,
) -> Option<(&'k str, &'k str)> {
    let parts: Vec<&str> = key.split('|').collect();
    let [card, _, ports, range] = *parts.as_slice() else {
        return key.split_once('|');
    };
    let own = root.get("DEVICE_METADATA")?.get("localhost")?;
    let own = own.get("hostname").and_then(Value::as_str)?;
    own.eq_ignore_ascii_case(card).then_some((ports, range))
}

/// Ports of a key, without those of the whole switch. Only these tables have ports in their keys.
fn ports_of<'a>(
    root: &Map<String, Value>,
    table: &str,
    key: &'a str,
) -> impl Iterator<Item = &'a str> {
    let has_queues = matches!(table, "QUEUE" | "BUFFER_PG" | "BUFFER_QUEUE");
    let has_ports = has_queues || matches!(table, "PORT_QOS_MAP" | "PFC_WD");
    let ports = match has_queues {
        true if !key.contains('|') => key,
        true => ports_and_range(root, key).map_or("", |(ports, _)| ports),
        false => key,
    };
    let ports = ports
        .split(',')
        .filter(move |port| has_ports && !port.is_empty());
    ports.filter(|port| !NO_PORTS.contains(port))
}

/// Ports of a key that the table `PORT` does not have.
fn unknown_ports(root: &Map<String, Value>, table: &str, key: &str, entry: &Value) -> Vec<Ignored> {
    let Some(known) = root.get("PORT").and_then(Value::as_object) else {
        return Vec::new();
    };
    let fields = entry.as_object().into_iter().flat_map(Map::keys);
    let fields: Vec<&str> = fields.map(String::as_str).collect();
    let unknown =
        ports_of(root, table, key).filter(|port| !known.is_empty() && !known.contains_key(*port));
    unknown
        .map(|port| {
            let mut names = known.keys();
            let same = names.find(|name| name.eq_ignore_ascii_case(port.trim()));
            let near = || crate::text::nearest(port, known.keys().map(String::as_str));
            let meant = same.map(String::as_str).or_else(near);
            Ignored {
                path: vec![table.to_owned(), key.to_owned()],
                port: same.map_or(port, |name| name).to_owned(),
                what: format!("PORT has no entry \"{port}\" ({})", fields.join(", ")),
                instead: meant.map(|meant| format!("did you mean \"{meant}\"?")),
            }
        })
        .collect()
}

/// Fields that the table does not have, and values that are no text.
fn odd_fields(
    root: &Map<String, Value>,
    table: &str,
    key: &str,
    fields: &[&str],
    entry: &Map<String, Value>,
) -> Vec<Ignored> {
    let mut found = Vec::new();
    for (field, value) in entry {
        let path = || vec![table.to_owned(), key.to_owned(), field.clone()];
        let (what, instead) = match value {
            Value::Array(_) | Value::Object(_) | Value::Null => {
                let what = format!("{value} is no text, and the switch ignores the field");
                (what, None)
            }
            // The fields of maps are read where they are used.
            _ if fields.is_empty() || fields.contains(&field.as_str()) => continue,
            _ => {
                let meant = crate::text::nearest(field, fields.iter().copied());
                let instead = meant.map(|meant| format!("did you mean {meant}?"));
                ("there is no such field".to_owned(), instead)
            }
        };
        for port in each_port(root, table, key) {
            found.push(Ignored {
                path: path(),
                port,
                what: what.clone(),
                instead: instead.clone(),
            });
        }
    }
    found
}

/// The ports of a key, or none in particular.
fn each_port(root: &Map<String, Value>, table: &str, key: &str) -> Vec<String> {
    let ports: Vec<String> = ports_of(root, table, key).map(str::to_owned).collect();
    match ports.is_empty() {
        true => vec![String::new()],
        false => ports,
    }
}

fn no_object(root: &Map<String, Value>, path: &[&str]) -> Ignored {
    let concerned = match path {
        ["QUEUE", ..] => ": scheduler and wred_profile are unknown",
        ["PORT_QOS_MAP", ..] => ": pfc_enable and dscp_to_tc_map are unknown",
        _ => "",
    };
    let port = match path {
        [table, key] => each_port(root, table, key).remove(0),
        _ => String::new(),
    };
    Ignored {
        path: path.iter().map(|&key| key.to_owned()).collect(),
        port,
        what: format!("fields in braces were expected{concerned}"),
        instead: None,
    }
}

/// Fields of `PORT` that are nearly those that are read.
fn odd_ports(root: &Map<String, Value>) -> Vec<Ignored> {
    let ports = root.get("PORT").and_then(Value::as_object);
    let mut found = Vec::new();
    for (port, entry) in ports.into_iter().flatten() {
        let names = entry.as_object().into_iter().flat_map(Map::keys);
        for field in names.filter(|field| !OF_PORT.contains(&field.as_str())) {
            let near =
                |own: &&&str| strsim::damerau_levenshtein(&field.to_ascii_lowercase(), own) <= 1;
            let Some(meant) = OF_PORT.iter().find(near) else {
                continue;
            };
            found.push(Ignored {
                path: vec!["PORT".to_owned(), port.clone(), field.clone()],
                port: port.clone(),
                what: "there is no such field".to_owned(),
                instead: Some(format!("did you mean {meant}?")),
            });
        }
    }
    found
}

/// The length of a cable in metres: `40m`.
pub(super) fn metres(text: &str) -> Option<u32> {
    text.strip_suffix('m')?.parse().ok()
}

/// Lengths of cables that are none.
fn odd_lengths(root: &Map<String, Value>) -> Vec<Ignored> {
    let tables = root.get("CABLE_LENGTH").and_then(Value::as_object);
    let mut found = Vec::new();
    for (key, ports) in tables.into_iter().flatten() {
        for (port, length) in ports.as_object().into_iter().flatten() {
            if length.as_str().and_then(metres).is_some() {
                continue;
            }
            found.push(Ignored {
                path: vec!["CABLE_LENGTH".to_owned(), key.clone(), port.clone()],
                port: port.clone(),
                what: format!(
                    "{length} is no length such as \"40m\": the buffer of its headroom is unknown"
                ),
                instead: None,
            });
        }
    }
    found
}
