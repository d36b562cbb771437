//! The events of a trace as text, as JSON, and as Chrome's trace events.

use std::collections::HashMap;

use ::trace::{Event, Kind, Trace};
use abi::names::{wc_status_name, wr_opcode_name};
use command::printable;
use serde_json::{Map, Value, json};

use super::Sink;
use crate::Error;

/// A line for each event.
pub(super) fn text(trace: &Trace<'_>, sink: &mut Sink) -> Result<(), Error> {
    let begin = trace.begin_ns();
    trace.events().try_for_each(|(_, event)| {
        let line = ::trace::line(&event, begin);
        sink.write(&format!("{}\n", printable::lines(&line)))
    })
}

/// The fields of an event.
fn fields(event: &Event<'_>) -> Map<String, Value> {
    let mut fields: Map<String, Value> = event
        .named()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    if !event.text.is_empty() {
        fields.insert("text".to_owned(), json!(event.text));
    }
    fields
}

/// A document for each event.
pub(super) fn json(trace: &Trace<'_>, sink: &mut Sink) -> Result<(), Error> {
    trace.events().try_for_each(|(number, event)| {
        let mut document = Map::new();
        document.insert("number".to_owned(), json!(number));
        document.insert("at_ns".to_owned(), json!(event.at_ns));
        document.insert("process".to_owned(), json!(event.process));
        document.insert("thread".to_owned(), json!(event.thread));
        document.insert("program".to_owned(), json!(event.process_name));
        document.insert("event".to_owned(), json!(event.kind.name()));
        document.extend(fields(&event));
        sink.write(&format!("{}\n", Value::Object(document)))
    })
}

/// Chrome's trace events: calls with their time, requests as asynchronous slices up to their completion, and
/// everything else as instants.
///
/// Times are in microseconds, as the format has them, from the first event on.
pub(super) fn perfetto(trace: &Trace<'_>, sink: &mut Sink) -> Result<(), Error> {
    sink.write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    let names = trace.processes().into_iter().map(|(process, name)| {
        json!({"ph": "M", "name": "process_name", "pid": process, "tid": process, "args": {"name": name}})
    });
    let mut slices = Slices::new(trace.begin_ns());
    let mut is_first = true;
    let events = trace.events().flat_map(|(_, event)| slices.of(&event));
    for event in names.chain(events) {
        let comma = if is_first { "" } else { ",\n" };
        is_first = false;
        sink.write(&format!("{comma}{event}"))?;
    }
    sink.write("\n]}\n")
}

/// A request whose completion was not polled yet: process, queue pair, whether it is a receive, and its ID.
type RequestKey = (u32, u64, bool, u64);

/// Requests that are open, each with the number of its slice.
struct Slices {
    begin_ns: u64,
    open: HashMap<RequestKey, Vec<u64>>,
    next: u64,
}

impl Slices {
    fn new(begin_ns: u64) -> Self {
        Self {
            begin_ns,
            open: HashMap::new(),
            next: 0,
        }
    }

    fn time_us(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.begin_ns) as f64 / 1e3
    }

    fn of(&mut self, event: &Event<'_>) -> Vec<Value> {
        let qpn = event.field("qpn").unwrap_or(0);
        let wr_id = event.field("wr_id").unwrap_or(0);
        let is_posted = event.field("errno") == Some(0);
        match event.kind {
            Kind::Call => vec![self.call(event)],
            Kind::Send | Kind::Receive if is_posted => {
                let is_receive = event.kind == Kind::Receive;
                let name = match is_receive {
                    true => "RECV",
                    false => wr_opcode_name(event.field("opcode").unwrap_or(u64::MAX)),
                };
                self.next += 1;
                let key = (event.process, qpn, is_receive, wr_id);
                self.open.entry(key).or_default().push(self.next);
                let (number, mut begun) = (self.next, self.instant(event, name));
                begun["ph"] = json!("b");
                begun["id"] = json!(number);
                vec![begun]
            }
            Kind::Completion => {
                let is_receive = event
                    .field("opcode")
                    .is_some_and(|opcode| opcode & 128 != 0);
                let key = (event.process, qpn, is_receive, wr_id);
                let name = wc_status_name(event.field("status").unwrap_or(u64::MAX));
                let mut all = vec![self.instant(event, &format!("completion {name}"))];
                let open = self.open.get_mut(&key).filter(|open| !open.is_empty());
                if let Some(number) = open.map(|open| open.remove(0)) {
                    let mut end = self.instant(event, name);
                    end["ph"] = json!("e");
                    end["id"] = json!(number);
                    all.push(end);
                }
                all
            }
            _ => vec![self.instant(event, event.kind.name())],
        }
    }

    fn call(&self, event: &Event<'_>) -> Value {
        json!({
            "ph": "X", "name": event.text, "cat": "call", "pid": event.process, "tid": event.thread,
            "ts": self.time_us(event.at_ns),
            "dur": event.field("duration_ns").unwrap_or(0) as f64 / 1e3,
            "args": fields(event),
        })
    }

    fn instant(&self, event: &Event<'_>, name: &str) -> Value {
        json!({
            "ph": "i", "s": "t", "name": name, "cat": event.kind.name(), "pid": event.process,
            "tid": event.thread, "ts": self.time_us(event.at_ns), "args": fields(event),
        })
    }
}
