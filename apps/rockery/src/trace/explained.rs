//! The mistakes of a trace, as text and as JSON.

use ::sim::report::counted;
use ::trace::{Finding, Trace, line};
use serde_json::{Value, json};

/// A page of all mistakes.
pub(super) fn text(trace: &Trace<'_>, findings: &[Finding]) -> String {
    let processes = trace.processes().len() as u64;
    let mut page = format!(
        "{} in {} of {}\n",
        counted(findings.len() as u64, "mistake", "mistakes"),
        counted(trace.len() as u64, "event", "events"),
        counted(processes, "process", "processes")
    );
    for (number, finding) in (1..).zip(findings) {
        page += &format!("\n{number}. {}: {}\n", finding.mistake.name(), finding.what);
        let mut event = |name: &str, number: usize| {
            if let Some(event) = trace.event(number) {
                page += &format!("   {name}{}\n", line(&event, trace.begin_ns()));
            }
        };
        event("", finding.event);
        if let Some(shown_by) = finding.shown_by {
            event("seen at ", shown_by);
        }
        page += &format!("   -> {}\n", finding.mistake.remedy());
    }
    page
}

/// The event of a finding: its time, process, thread and line.
fn event(trace: &Trace<'_>, number: usize) -> Value {
    let Some(event) = trace.event(number) else {
        return Value::Null;
    };
    json!({
        "number": number,
        "at_ns": event.at_ns,
        "process": event.process,
        "thread": event.thread,
        "program": event.process_name,
        "line": line(&event, trace.begin_ns()),
    })
}

/// All mistakes as a document.
pub(super) fn json(trace: &Trace<'_>, findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        json!({
            "mistake": finding.mistake.name(),
            "what": finding.what,
            "remedy": finding.mistake.remedy(),
            "call": event(trace, finding.event),
            "shown_by": finding.shown_by.map(|number| event(trace, number)),
        })
    };
    json!({
        "events": trace.len(),
        "lost": trace.lost(),
        "mistakes": findings.iter().map(one).collect::<Vec<_>>(),
    })
}
