//! Intents, written for SONiC: what fits, and the text.

use serde_json::{Map, Value, json};

use super::adaptive;
use super::config::BURST_BYTES;
use crate::intent::{Ecn, Fit, Intent, Pause, Port, Schedule};
use crate::limits::within;
use crate::path_spread::PathSpread;
use crate::text::classes;
use crate::watchdog::PauseWatchdog;

/// The name of every map and profile that is written.
const NAME: &str = "ROCKERY";

/// The largest rate of a scheduler in bits per second.
const RATE_MAX: u64 = 8_000_000_000_000;

/// How often the watchdog looks: its shortest interval, which every detection time allows.
const POLL_INTERVAL_MS: u32 = 100;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    if intent.default_class != 0 {
        fit.add_note("packets without a trusted header are in class 0");
        intent.default_class = 0;
    }
    fit.no_remark(intent);
    fit.one_group(intent, 100);
    fit.thresholds(intent, 1);
    fit.symmetric_pfc(intent);
    if intent.dcbx {
        fit.add_note("DCBX is not configured in config_db.json");
        intent.dcbx = false;
    }
    fit.mtu(intent);
    for (class, queue) in intent.queues.iter_mut().enumerate() {
        let Some(rate) = &mut queue.rate else {
            continue;
        };
        fit.step(class, rate, 8, RATE_MAX);
        rate.burst.get_or_insert(BURST_BYTES);
    }
    fit.watchdog(intent, |wanted| PauseWatchdog {
        detect_ms: within(wanted.detect_ms, 100..=5000),
        restore_ms: within(wanted.restore_ms, 100..=60_000),
    });
    if intent.spread == PathSpread::Flowlets(None) {
        intent.spread = PathSpread::Flowlets(Some(adaptive::GAP_DEFAULT_US));
    }
    fit.flowlet_gap(intent, adaptive::GAP_US);
    let pause = &mut intent.pause;
    if pause.xon.is_some() && pause.xoff.is_none_or(|xoff| pause.xon > Some(xoff)) {
        fit.add_note("Xon is written as a distance below Xoff, and needs it");
        pause.xon = None;
    }
    if pause.headroom.is_none() && (pause.xoff.is_some() || pause.headroom == Some(0)) {
        fit.add_note("Xoff is written with headroom only: both are left to the switch");
        *pause = Pause::default();
    }
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut root = Map::new();
    let names: Vec<&str> = intent.ports.iter().map(|port| port.name.as_str()).collect();
    root.insert("PORT".to_owned(), ports(intent));
    let lengths = intent
        .ports
        .iter()
        .filter_map(|port| Some((port.name.clone(), json!(format!("{}m", port.metres?)))));
    let lengths: Map<String, Value> = lengths.collect();
    if !lengths.is_empty() {
        root.insert("CABLE_LENGTH".to_owned(), json!({ "AZURE": lengths }));
    }
    maps(&mut root, intent, &names);
    schedulers(&mut root, intent, &names);
    buffers(&mut root, intent, &names);
    watchdogs(&mut root, intent, &names);
    adaptive::write(&mut root, intent.spread, &names);
    serde_json::to_string_pretty(&Value::Object(root)).unwrap_or_default() + "\n"
}

/// Configurations of groups of ports as one.
pub(crate) fn joined(texts: &[String]) -> String {
    let mut whole = Value::Null;
    for text in texts {
        merge(&mut whole, serde_json::from_str(text).unwrap_or_default());
    }
    serde_json::to_string_pretty(&whole).unwrap_or_default() + "\n"
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn ports(intent: &Intent) -> Value {
    let port = |port: &Port| {
        let mut fields = Map::new();
        fields.insert("mtu".to_owned(), json!(intent.mtu.to_string()));
        if let Some(mbps) = port.mbps {
            fields.insert("speed".to_owned(), json!(mbps.to_string()));
        }
        (port.name.clone(), Value::Object(fields))
    };
    Value::Object(intent.ports.iter().map(port).collect())
}

fn maps(root: &mut Map<String, Value>, intent: &Intent, names: &[&str]) {
    let map = |values: &[u8]| {
        let entries = values
            .iter()
            .enumerate()
            .map(|(value, class)| (value.to_string(), json!(class.to_string())));
        json!({ NAME: Value::Object(entries.collect()) })
    };
    let identity = [0, 1, 2, 3, 4, 5, 6, 7];
    let mut port = Map::new();
    if intent.trust.dscp() {
        root.insert("DSCP_TO_TC_MAP".to_owned(), map(&intent.dscp));
        port.insert("dscp_to_tc_map".to_owned(), json!(NAME));
    }
    if intent.trust.pcp() {
        root.insert("DOT1P_TO_TC_MAP".to_owned(), map(&intent.pcp));
        port.insert("dot1p_to_tc_map".to_owned(), json!(NAME));
    }
    root.insert("TC_TO_QUEUE_MAP".to_owned(), map(&identity));
    port.insert("tc_to_queue_map".to_owned(), json!(NAME));
    // Lossless classes have priority groups of their own, and the others share group 0.
    let group = |class: u8| if intent.lossless(class) { class } else { 0 };
    root.insert(
        "TC_TO_PRIORITY_GROUP_MAP".to_owned(),
        map(&identity.map(group)),
    );
    port.insert("tc_to_pg_map".to_owned(), json!(NAME));
    if intent.pfc_send != 0 {
        root.insert("MAP_PFC_PRIORITY_TO_QUEUE".to_owned(), map(&identity));
        port.insert("pfc_to_queue_map".to_owned(), json!(NAME));
        let enabled: Vec<String> = classes(intent.pfc_send)
            .map(|class| class.to_string())
            .collect();
        port.insert("pfc_enable".to_owned(), json!(enabled.join(",")));
        if intent.watchdog.is_some() {
            port.insert("pfcwd_sw_enable".to_owned(), json!(enabled.join(",")));
        }
    }
    let entries = names
        .iter()
        .map(|name| ((*name).to_owned(), Value::Object(port.clone())));
    root.insert("PORT_QOS_MAP".to_owned(), Value::Object(entries.collect()));
}

fn schedulers(root: &mut Map<String, Value>, intent: &Intent, names: &[&str]) {
    let (mut schedulers, mut profiles, mut queues) = (Map::new(), Map::new(), Map::new());
    for (class, queue) in intent.queues.iter().enumerate() {
        let name = format!("{NAME}_{class}");
        let schedule = match queue.schedule {
            Schedule::Strict => json!({ "type": "STRICT" }),
            Schedule::Weighted(weight) | Schedule::Background(weight) => {
                json!({ "type": "DWRR", "weight": weight.to_string() })
            }
        };
        let mut schedule = schedule;
        if let (Some(rate), Some(fields)) = (queue.rate, schedule.as_object_mut()) {
            // Bytes per second.
            fields.insert("meter_type".to_owned(), json!("bytes"));
            fields.insert("pir".to_owned(), json!((rate.bps / 8).to_string()));
            let burst = rate.burst.unwrap_or(BURST_BYTES);
            fields.insert("pbs".to_owned(), json!(burst.to_string()));
        }
        schedulers.insert(name.clone(), schedule);
        let mut fields = Map::new();
        fields.insert("scheduler".to_owned(), json!(name));
        if let Some(Ecn::Thresholds { min, max, percent }) = queue.ecn {
            let mut profile = Map::new();
            profile.insert("ecn".to_owned(), json!("ecn_all"));
            for colour in ["green", "yellow", "red"] {
                profile.insert(format!("wred_{colour}_enable"), json!("true"));
                profile.insert(format!("{colour}_min_threshold"), json!(min.to_string()));
                profile.insert(format!("{colour}_max_threshold"), json!(max.to_string()));
                profile.insert(
                    format!("{colour}_drop_probability"),
                    json!(percent.to_string()),
                );
            }
            profiles.insert(name.clone(), Value::Object(profile));
            fields.insert("wred_profile".to_owned(), json!(name));
        }
        for port in names {
            queues.insert(format!("{port}|{class}"), Value::Object(fields.clone()));
        }
    }
    root.insert("SCHEDULER".to_owned(), Value::Object(schedulers));
    if !profiles.is_empty() {
        root.insert("WRED_PROFILE".to_owned(), Value::Object(profiles));
    }
    root.insert("QUEUE".to_owned(), Value::Object(queues));
}

/// The watchdog of each port with lossless classes.
fn watchdogs(root: &mut Map<String, Value>, intent: &Intent, names: &[&str]) {
    let Some(watchdog) = intent.watchdog else {
        return;
    };
    let interval = json!({ "POLL_INTERVAL": POLL_INTERVAL_MS.to_string() });
    let mut entries = Map::from_iter([("GLOBAL".to_owned(), interval)]);
    for name in names {
        let mut fields = Map::from_iter([("action".to_owned(), json!("drop"))]);
        for (field, time) in [
            ("detection_time", watchdog.detect_ms),
            ("restoration_time", watchdog.restore_ms),
        ] {
            fields.extend(time.map(|ms| (field.to_owned(), json!(ms.to_string()))));
        }
        entries.insert((*name).to_owned(), Value::Object(fields));
    }
    root.insert("PFC_WD".to_owned(), Value::Object(entries));
}

fn buffers(root: &mut Map<String, Value>, intent: &Intent, names: &[&str]) {
    if intent.pfc_send == 0 {
        return;
    }
    let mut profile = "NULL";
    if let Some(headroom) = intent.pause.headroom {
        profile = "ROCKERY_LOSSLESS";
        let mut fields = Map::new();
        let mut set = |name: &str, value: String| {
            fields.insert(name.to_owned(), json!(value));
        };
        set("pool", "ingress_lossless_pool".to_owned());
        set("size", headroom.to_string());
        set("xoff", headroom.to_string());
        match intent.pause.xoff {
            Some(xoff) => set("static_th", xoff.to_string()),
            None => set("dynamic_th", "0".to_owned()),
        }
        if let (Some(xoff), Some(xon)) = (intent.pause.xoff, intent.pause.xon) {
            set("xon_offset", (xoff - xon).to_string());
        }
        root.insert(
            "BUFFER_PROFILE".to_owned(),
            json!({ profile: Value::Object(fields) }),
        );
    }
    let keys = names
        .iter()
        .flat_map(|name| classes(intent.pfc_send).map(move |class| format!("{name}|{class}")));
    let groups: Map<String, Value> = keys
        .map(|key| (key, json!({ "profile": profile })))
        .collect();
    root.insert("BUFFER_PG".to_owned(), Value::Object(groups));
}
