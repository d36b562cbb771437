//! Findings as a log of SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format").

use doctor::{Finding, RULES, Severity};
use serde_json::{Value, json};
use vendors::NotUnderstood;
use vendors::facts::Evidence;

use super::examined::{Device, Examined, THIS_HOST};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// The rule of lines that were not understood.
const NOT_UNDERSTOOD: &str = "not-understood";
/// The rule of settings that are understood and that no rule judges.
const NOT_JUDGED: &str = "not-judged";

/// The log of one run, which ended with this status.
pub(super) fn log(facts: &Examined, found: &[Finding], status: u8) -> Value {
    let devices = facts.devices();
    let mut results: Vec<Value> = found.iter().map(|own| result(&devices, own)).collect();
    for device in &devices {
        let of = |rule: &'static str| move |line: &NotUnderstood| of_line(rule, line);
        results.extend(device.left.iter().map(of(NOT_UNDERSTOOD)));
        results.extend(device.not_judged.iter().map(of(NOT_JUDGED)));
    }
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": driver() },
            "invocations": [invocation(facts, &devices, status)],
            "results": results,
            "columnKind": "unicodeCodePoints",
        }],
    })
}

fn driver() -> Value {
    let own = RULES
        .iter()
        .map(|entry| rule(entry.rule, entry.specification, entry.link));
    let link = "docs/doctor.md#every-line-counts";
    let lines = [
        (
            NOT_UNDERSTOOD,
            "A line of the input was not understood: what it sets is unknown",
        ),
        (
            NOT_JUDGED,
            "A setting was understood, and no rule judges it",
        ),
    ]
    .map(|(id, text)| rule(id, text, link));
    json!({
        "name": "rockery doctor",
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": own.chain(lines).collect::<Vec<_>>(),
    })
}

fn rule(id: &str, about: &str, link: &str) -> Value {
    json!({
        "id": id,
        "shortDescription": { "text": format!("{id}: {about}") },
        "help": { "text": format!("{link} of rockery's manual") },
    })
}

/// Files that could not be read are errors of the run, and areas that were not seen are notes about it.
fn invocation(facts: &Examined, devices: &[Device<'_>], status: u8) -> Value {
    let notification =
        |level: &str, text: &str| json!({ "level": level, "message": { "text": text } });
    let unread = facts.unread.iter().map(|text| notification("error", text));
    let unknown = devices
        .iter()
        .filter(|device| !device.unknown.is_empty())
        .map(|device| notification("note", &device.not_seen()));
    let unplanned = facts.unplanned.iter().map(|name| {
        let text = format!("{name}: the fabric file has nothing of this name");
        notification("note", &text)
    });
    json!({
        "executionSuccessful": facts.unread.is_empty(),
        "exitCode": status,
        "toolExecutionNotifications": unread.chain(unknown).chain(unplanned).collect::<Vec<_>>(),
    })
}

fn result(devices: &[Device<'_>], finding: &Finding) -> Value {
    let level = match finding.severity() {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let text = format!(
        "{}: {}\nConsequence: {}\nFix: {}",
        finding.place, finding.what, finding.consequence, finding.fix
    );
    let mut seen = finding.evidence.iter().map(location);
    let first = seen.next().or_else(|| {
        // A finding without a line is about its whole file.
        let device = devices.iter().find(|own| own.has(finding))?;
        Some(place_of_line(&device.file, 1, None))
    });
    let mut location = first.unwrap_or_else(|| json!({}));
    location["logicalLocations"] = json!([{ "fullyQualifiedName": finding.place }]);
    let related: Vec<Value> = seen
        .enumerate()
        .map(|(number, mut place)| {
            place["id"] = json!(number + 1);
            place
        })
        .collect();
    // Numbers of lines change with each edit of the file, and the text of a line does not.
    let line = finding
        .evidence
        .first()
        .map_or("", |seen| seen.text.as_str());
    let mut result = json!({
        "ruleId": finding.rule,
        "level": level,
        "message": { "text": text },
        "locations": [location],
        "partialFingerprints": {
            "placeAndLine/v1": format!("{} [{}] {line}", finding.place, finding.rule),
        },
    });
    if !related.is_empty() {
        result["relatedLocations"] = json!(related);
    }
    result
}

fn of_line(rule: &str, line: &NotUnderstood) -> Value {
    // A line of QoS that is not understood may be a fault.
    let is_qos = rule == NOT_UNDERSTOOD && !line.areas.is_empty();
    json!({
        "ruleId": rule,
        "level": if is_qos { "warning" } else { "note" },
        "message": { "text": line.why },
        "locations": [place_of_line(&line.file, line.line, None)],
        "partialFingerprints": { "placeAndLine/v1": format!("{} [{rule}] {}", line.file, line.why) },
    })
}

fn location(seen: &Evidence) -> Value {
    place_of_line(&seen.file, seen.line, Some(&seen.text))
}

/// The place of a line. The snapshot that this host makes of itself is in no file.
fn place_of_line(file: &str, line: usize, text: Option<&str>) -> Value {
    if file == THIS_HOST {
        return json!({});
    }
    let mut region = json!({ "startLine": line.max(1) });
    if let Some(text) = text {
        region["snippet"] = json!({ "text": text });
    }
    json!({ "physicalLocation": { "artifactLocation": artifact(file), "region": region } })
}

/// A file as a URI: below the root of the sources, or of the machine.
fn artifact(file: &str) -> Value {
    match file.strip_prefix('/') {
        Some(_) => json!({ "uri": format!("file://{}", encoded(file)) }),
        None => {
            let path = file.strip_prefix("./").unwrap_or(file);
            json!({ "uri": encoded(path), "uriBaseId": "%SRCROOT%" })
        }
    }
}

/// A path with all that RFC 3986 (2.3) reserves in percent-encoding.
fn encoded(path: &str) -> String {
    let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes()
        .map(|byte| match kept(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}
