//! Texts of SONiC, read as intents.

use fabric::topology::LinkConfig;
use fabric::{Rate, Span};
use serde_json::{Map, Value};

use super::tables::Documents;
use super::{SonicConfig, SonicPort};
use crate::import_error::ImportError;
use crate::intent::{Intent, Pause, Port};
use crate::outcome::Outcomes;
use crate::path_spread::PathSpread;
use crate::profile;
use crate::text::{ReadError, classes, lines};
use crate::watchdog::PauseWatchdog;

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    read_files(&[(file, text)])
}

/// Reads the files of one switch. Their lines have numbers in turn.
pub(crate) fn read_files(files: &[(&str, &str)]) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let mut places = Vec::new();
    let mut before = 0;
    for (file, text) in files {
        lines(file, text, &[])?;
        places.push(((*file).to_owned(), before));
        before += text.lines().count();
    }
    let number = |(file, line): (&str, usize)| {
        let own = places.iter().find(|(name, _)| name == file);
        line.max(1) + own.map_or(0, |(_, before)| *before)
    };
    let failed = |error: ImportError| {
        let instead = error.instead.map(|text| format!("; {text}"));
        let what = error.what + &instead.unwrap_or_default();
        ReadError::new(&error.file, error.line.max(1), what)
    };
    let config = super::read_files(files).map_err(failed)?;
    let mut outcomes = Outcomes::of_files(places.clone());
    let at = |place: (&str, usize), why: &str| ReadError::new(place.0, number(place), why);
    for odd in &config.left {
        outcomes.within(odd.ports.clone());
        outcomes.not_understood(&at((&odd.file, odd.line), &odd.why));
    }
    outcomes.within(Vec::new());
    if is_part(&config.tables) {
        outcomes.not_understood(&ReadError::new("", 1, NO_MAPS.to_owned()));
    }
    let (intents, odd) = intents(&config);
    let documents = Documents::read(files).map_err(failed)?;
    for OddField { port, field, value } in odd {
        let place = documents.line_of(&["PORT", &port, field]);
        let what = format!("PORT {port} {field}: \"{value}\" is no number");
        outcomes.within(vec![port]);
        outcomes.not_understood(&at(place, &what));
    }
    for port in intents.iter().flat_map(|intent| &intent.ports) {
        if is_down(&config.tables, &port.name) {
            let line = number(documents.line_of(&["PORT", &port.name, "admin_status"]));
            outcomes.within(vec![port.name.clone()]);
            outcomes.down_by(line, "admin_status down");
        }
    }
    outcomes.within(Vec::new());
    Ok((intents, outcomes))
}

/// Said of a file that has a switch's buffers and nothing else of it.
const NO_MAPS: &str = "the file has no PORT_QOS_MAP, which gives ports their DSCP maps and PFC, and no \
                       PORT: it is a part of a configuration. Give its other files with it \
                       (config_db.json, qos.json, port_config.ini), or the whole, which `show \
                       runningconfiguration all` prints";

/// Whether tables are a part of a configuration, as platforms ship that of buffers: a whole one without QoS
/// has ports.
fn is_part(root: &Map<String, Value>) -> bool {
    !root.contains_key("PORT_QOS_MAP") && !root.contains_key("PORT")
}

/// A field of PORT that is no number.
pub(crate) struct OddField {
    port: String,
    field: &'static str,
    value: String,
}

/// The intents of the ports that the tables give QoS.
pub(crate) fn intents(config: &SonicConfig) -> (Vec<Intent>, Vec<OddField>) {
    let root = &config.tables;
    let table = |name: &str| root.get(name).and_then(Value::as_object);
    let named: Vec<&str> = table("PORT_QOS_MAP")
        .into_iter()
        .flat_map(Map::keys)
        .flat_map(|key| key.split(','))
        .filter(|name| *name != "global")
        .collect();
    let ports = config
        .ports
        .keys()
        .filter(|name| is_judged(root, &named, name));
    let mut odd = Vec::new();
    let intents = ports
        .map(|name| {
            // The link does not matter, because headroom that the switch computes is not used.
            let link = LinkConfig::new(Rate::from_gbps(100), Span::from_ns(10));
            let mut intent = profile::intent_of(&config.profile(name, &link));
            let port = config.ports.get(name);
            intent.pfc_send = port.map_or(0, SonicPort::pfc_send);
            intent.pfc_obey = port.map_or(0, SonicPort::pfc_obey);
            intent.dcbx = false;
            let field = |table_name: &str, key: &str, field: &str| {
                let value = table(table_name)?.get(key)?.get(field)?;
                value
                    .as_str()
                    .map(str::to_owned)
                    .or_else(|| value.as_u64().map(|number| number.to_string()))
            };
            let mut number = |field_name: &'static str| {
                let value = field("PORT", name, field_name)?;
                let number = value.parse::<u32>().ok();
                if number.is_none() {
                    odd.push(OddField {
                        port: name.clone(),
                        field: field_name,
                        value,
                    });
                }
                number
            };
            intent.mtu = number("mtu").unwrap_or(9100);
            let mbps = number("speed");
            let metres = port.and_then(|port| port.metres);
            intent.ports.push(Port {
                name: name.clone(),
                mbps,
                metres,
            });
            intent.pause = pause(root, name, intent.pfc_send);
            intent.spread = port.map_or(PathSpread::Flows, |port| port.spread);
            let watchdog = port.and_then(|port| port.watchdog);
            intent.watchdog = watchdog.map(|(detect, restore)| PauseWatchdog {
                detect_ms: Some(whole_ms(detect)),
                restore_ms: Some(whole_ms(restore)),
            });
            intent
        })
        .collect();
    (intents, odd)
}

/// Whether a port is one that carries traffic by this configuration: one with maps, and one of `PORT` that
/// is not down. A port that `PORT` does not have is none.
fn is_judged(root: &Map<String, Value>, named: &[&str], name: &str) -> bool {
    let ports = root.get("PORT").and_then(Value::as_object);
    let Some(ports) = ports.filter(|ports| !ports.is_empty()) else {
        return named.is_empty() || named.contains(&name);
    };
    ports.contains_key(name) && (named.contains(&name) || !is_down(root, name))
}

fn is_down(root: &Map<String, Value>, name: &str) -> bool {
    let entry = root.get("PORT").and_then(|ports| ports.get(name));
    let status = entry.and_then(|entry| entry.get("admin_status"));
    status.and_then(Value::as_str) == Some("down")
}

/// Milliseconds of a time that the tables have in milliseconds.
fn whole_ms(span: Span) -> u32 {
    (span.0 / Span::from_us(1000).0) as u32
}

/// The buffer profile of a port's lossless priority groups.
fn pause(root: &Map<String, Value>, port: &str, pfc: u8) -> Pause {
    let groups = root.get("BUFFER_PG").and_then(Value::as_object);
    let own = groups.into_iter().flatten().find(|(key, _)| {
        let Some((ports, range)) = key.split_once('|') else {
            return false;
        };
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let range = from.parse::<u8>().ok().zip(to.parse::<u8>().ok());
        let lossless =
            range.is_some_and(|(from, to)| classes(pfc).any(|class| (from..=to).contains(&class)));
        lossless && ports.split(',').any(|name| name == port)
    });
    let name = own
        .and_then(|(_, entry)| entry.get("profile"))
        .and_then(Value::as_str)
        .unwrap_or("NULL");
    let name = name.trim_matches(['[', ']']);
    let name = name.split_once('|').map_or(name, |(_, name)| name);
    let Some(profile) = root
        .get("BUFFER_PROFILE")
        .and_then(|profiles| profiles.get(name))
    else {
        return Pause::default();
    };
    let bytes = |field: &str| profile.get(field)?.as_str()?.parse::<u32>().ok();
    let xoff = bytes("static_th");
    let xon = xoff
        .zip(bytes("xon_offset"))
        .map(|(xoff, offset)| xoff.saturating_sub(offset));
    Pause {
        xoff,
        xon,
        headroom: bytes("xoff"),
    }
}
