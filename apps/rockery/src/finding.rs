//! Findings as programs and people read them.

use doctor::{Consequence, Finding};
use serde_json::{Value, json};

/// Findings for a person: those that say the same of several places as one.
pub(crate) fn as_text(found: &[Finding]) -> String {
    let all = doctor::alike(found);
    all.iter().map(|finding| format!("{finding}\n")).collect()
}

/// A finding with its evidence, its consequence and its fix.
pub(crate) fn as_json(finding: &Finding) -> Value {
    let seen: Vec<Value> = finding
        .evidence
        .iter()
        .map(|seen| json!({ "file": seen.file, "line": seen.line, "text": seen.text }))
        .collect();
    let simulated = match finding.consequence {
        Consequence::Simulated(cost) | Consequence::AfterReboot(cost) => {
            let outcome = |outcome: doctor::cost_simulation::Outcome| {
                json!({
                    "gbps": outcome.gbps, "p99_us": outcome.p99_us,
                    "dropped": outcome.dropped, "pauses": outcome.pauses,
                })
            };
            json!({ "now": outcome(cost.now), "fixed": outcome(cost.fixed) })
        }
        _ => Value::Null,
    };
    json!({
        "rule": finding.rule, "place": finding.place, "what": finding.what, "seen": seen,
        "consequence": finding.consequence.to_string(), "simulated": simulated,
        "fix": finding.fix, "link": finding.link, "specification": finding.specification,
    })
}
