//! Findings as JSON of rockery's own: everything that was read and judged.

use doctor::{Finding, Judged, judged_host, judged_switch};
use serde_json::{Value, json};

use super::examined::{Examined, unknown, unknown_of_switch};
use crate::finding;

/// All that was read, judged and found, as one document.
pub(super) fn document(facts: &Examined, found: &[Finding]) -> Value {
    let hosts = facts
        .hosts
        .iter()
        .map(|host| (host.name.clone(), json!(unknown(host))));
    let switches = facts
        .switches
        .iter()
        .map(|switch| (switch.file.clone(), json!(unknown_of_switch(switch))));
    let unknown: serde_json::Map<String, Value> = hosts.chain(switches).collect();
    let hosts = facts
        .hosts
        .iter()
        .map(|host| (host.name.clone(), texts(judged_host(host, facts.marks))));
    let switches = facts.switches.iter().map(|switch| {
        let judged = judged_switch(switch, &facts.hosts, facts.marks);
        (switch.file.clone(), texts(judged))
    });
    let judged: serde_json::Map<String, Value> = hosts.chain(switches).collect();
    let left: Vec<Value> = facts
        .left()
        .map(|line| json!({ "file": line.file, "line": line.line, "why": line.why, "ports": line.ports }))
        .collect();
    let lines = facts.switches.iter().flat_map(|switch| &switch.not_judged);
    let not_judged: Vec<Value> = lines
        .map(|line| json!({ "file": line.file, "line": line.line, "why": line.why, "ports": line.ports }))
        .collect();
    json!({
        "findings": found.iter().map(finding::as_json).collect::<Vec<_>>(), "unread": facts.unread,
        "unknown": unknown, "not_in_fabric_file": facts.unplanned, "judged": judged,
        "not_understood": left, "not_judged": not_judged,
    })
}

fn texts(judged: Vec<Judged>) -> Value {
    judged.into_iter().map(|own| own.text).collect()
}
