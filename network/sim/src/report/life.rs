//! The life of a queue pair: as lines of text, as JSON, and as Chrome's trace events.

use super::layout::time;
use super::units::us;
use crate::experiment::Experiment;
use crate::world::{
    Life, LifeEvent, LifePacket, LifePlace, LifeRecord, Loss, TransportHeaders, UetHeader,
};
use fabric::{Span, Time};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use wire::{Message, Syndrome};

/// The formats that a life is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeFormat {
    /// A line for each event.
    Text,
    /// A JSON document in a line for each event.
    Json,
    /// Chrome's trace events, for ui.perfetto.dev and chrome://tracing.
    Perfetto,
}

/// Writes the life of a queue pair.
///
/// # Errors
/// An error that `out` returns.
pub fn write_life(
    out: &mut impl Write,
    experiment: &Experiment,
    life: &Life,
    format: LifeFormat,
) -> io::Result<()> {
    let names = Names { experiment };
    match format {
        LifeFormat::Text => text(out, &names, life),
        LifeFormat::Json => life
            .records
            .iter()
            .try_for_each(|record| writeln!(out, "{}", Value::Object(document(&names, record)))),
        LifeFormat::Perfetto => perfetto(out, &names, life),
    }
}

/// The names of places.
struct Names<'a> {
    experiment: &'a Experiment,
}

impl Names<'_> {
    fn host(&self, host: u32) -> &str {
        let host = self.experiment.network.hosts.get(host as usize);
        host.map_or("", |host| host.name.as_str())
    }

    fn port(&self, link: u32, direction: u8) -> String {
        let network = &self.experiment.network;
        let link = network.topology.links().get(link as usize);
        link.map_or(String::new(), |link| {
            network.port_name(link.ends[usize::from(direction)])
        })
    }

    fn of(&self, place: LifePlace) -> String {
        match place {
            LifePlace::Host(host) => self.host(host).to_owned(),
            LifePlace::Port(link, direction) => self.port(link, direction),
        }
    }

    /// The other end of a port's link.
    fn peer(&self, place: LifePlace) -> String {
        match place {
            LifePlace::Host(_) => String::new(),
            LifePlace::Port(link, direction) => self.port(link, 1 - direction),
        }
    }

    /// The host or switch of a place.
    fn node(&self, place: LifePlace) -> String {
        let name = self.of(place);
        match name.rsplit_once(':') {
            Some((switch, _)) if matches!(place, LifePlace::Port(..)) => switch.to_owned(),
            _ => name,
        }
    }
}

/// A packet in words.
fn packet_text(packet: &LifePacket) -> String {
    let headers = match &packet.headers {
        TransportHeaders::Roce(headers) => headers,
        TransportHeaders::Uet(header) => return uet_text(header, packet.payload),
    };
    let psn = headers.psn.value();
    match headers.message {
        Message::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::Ack(_) => format!("ACK up to PSN {psn}"),
            Syndrome::RnrNak(_) => format!("RNR NAK of PSN {psn}"),
            Syndrome::Nak(0) => format!("NAK: PSN {psn} is missing"),
            Syndrome::Nak(code) => format!("NAK {code} of PSN {psn}"),
            Syndrome::Reserved(byte) => format!("reserved syndrome {byte} of PSN {psn}"),
        },
        Message::Congestion => "CNP".to_owned(),
        message => {
            let operation = message.operation().map_or("packet", |known| known.name());
            format!("PSN {psn} {operation} {} bytes", packet.payload)
        }
    }
}

/// Whether a message is what a receiver says about others.
const fn is_answer(message: Message) -> bool {
    matches!(message, Message::Acknowledge(_) | Message::Congestion)
}

/// A packet of Ultra Ethernet's transport in words.
fn uet_text(header: &UetHeader, payload: u32) -> String {
    match header {
        UetHeader::Data { psn, entropy, .. } => {
            format!("PSN {psn} WRITE {payload} bytes by entropy value {entropy}")
        }
        UetHeader::Ack(sack) => match sack.bitmap.count_ones() {
            0 => format!("ACK up to PSN {}", sack.cumulative),
            more => format!("ACK up to PSN {}, of {more} behind", sack.cumulative),
        },
        UetHeader::Nack { psn, .. } => format!("NACK: PSN {psn} was trimmed"),
        UetHeader::Credit { granted } => format!("credit up to {granted} bytes"),
    }
}

fn span(span: Span) -> String {
    time(us(span.0))
}

fn loss_text(loss: Loss) -> String {
    match loss {
        Loss::Damaged => "damaged on the link".to_owned(),
        Loss::Down => "the link is down".to_owned(),
        Loss::Dropped(why) => format!("dropped: {}", why.name()),
        Loss::DroppedHeaders(why) => format!("its headers were dropped: {}", why.name()),
        Loss::Adapter => "the adapter did not take it".to_owned(),
    }
}

/// What happened, without time and place.
fn what(names: &Names<'_>, record: &LifeRecord) -> String {
    let packet = record.packet.as_ref().map(packet_text).unwrap_or_default();
    match record.event {
        LifeEvent::Posted { message } => format!("posted message {message}"),
        LifeEvent::Enqueued {
            ahead_bytes,
            is_paused,
        } => {
            let paused = if is_paused { ", paused" } else { "" };
            format!("enqueued {packet} behind {ahead_bytes} bytes{paused}")
        }
        LifeEvent::Sent {
            waited,
            marked,
            again,
            ..
        } => {
            let waited = match waited {
                Some(waited) if waited.0 > 0 => format!(", waited {}", span(waited)),
                _ => String::new(),
            };
            let verb = if again { "sent again" } else { "sent" };
            let marked = if marked { ", marked here" } else { "" };
            format!("{verb} {packet}{waited}{marked}")
        }
        LifeEvent::Lost(loss) => format!("lost {packet}: {}", loss_text(loss)),
        LifeEvent::Trimmed { to_bytes } => format!("trimmed {packet} to {to_bytes} bytes"),
        LifeEvent::Arrived { marked, trimmed } => {
            let marked = if marked { ", marked" } else { "" };
            let trimmed = if trimmed { ", trimmed" } else { "" };
            format!("received {packet}{marked}{trimmed}")
        }
        LifeEvent::Completed { message } => format!("completed message {message}"),
        LifeEvent::Failed => "the queue pair failed".to_owned(),
        LifeEvent::Paused { class } => {
            format!("class {class} paused by {}", names.peer(record.place))
        }
        LifeEvent::Resumed { class, after } => format!(
            "class {class} resumed, paused for {} by {}",
            span(after),
            names.peer(record.place)
        ),
    }
}

fn text(out: &mut impl Write, names: &Names<'_>, life: &Life) -> io::Result<()> {
    let places: Vec<String> = life
        .records
        .iter()
        .map(|record| names.of(record.place))
        .collect();
    let width = places.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0);
    for (record, place) in life.records.iter().zip(&places) {
        let ns = record.at.ns();
        let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let place = fabric::columns::left(place, width);
        writeln!(
            out,
            "{seconds:>4}.{rest:09}  {place}  {}",
            what(names, record)
        )?;
    }
    match life.left_out {
        0 if life.records.is_empty() => match life.traced.psn {
            Some(psn) => writeln!(out, "no packet of the queue pair had PSN {psn}"),
            None => writeln!(out, "nothing happened to the queue pair"),
        },
        0 => Ok(()),
        more => writeln!(out, "      {more} later events are left out"),
    }
}

/// The name of an event.
const fn event_name(event: &LifeEvent) -> &'static str {
    match event {
        LifeEvent::Posted { .. } => "posted",
        LifeEvent::Enqueued { .. } => "enqueued",
        LifeEvent::Sent { again: true, .. } => "sent-again",
        LifeEvent::Sent { .. } => "sent",
        LifeEvent::Lost(_) => "lost",
        LifeEvent::Trimmed { .. } => "trimmed",
        LifeEvent::Arrived { .. } => "received",
        LifeEvent::Completed { .. } => "completed",
        LifeEvent::Failed => "failed",
        LifeEvent::Paused { .. } => "paused",
        LifeEvent::Resumed { .. } => "resumed",
    }
}

/// All that is known of an event.
fn document(names: &Names<'_>, record: &LifeRecord) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("at_us", json!(us(record.at.0)));
    put("place", json!(names.of(record.place)));
    put("event", json!(event_name(&record.event)));
    match record.event {
        LifeEvent::Posted { message } | LifeEvent::Completed { message } => {
            put("message", json!(message));
        }
        LifeEvent::Enqueued {
            ahead_bytes,
            is_paused,
        } => {
            put("ahead_bytes", json!(ahead_bytes));
            put("is_paused", json!(is_paused));
        }
        LifeEvent::Sent {
            end,
            waited,
            marked,
            ..
        } => {
            put("end_us", json!(us(end.0)));
            put("waited_us", json!(waited.map(|waited| us(waited.0))));
            put("marked", json!(marked));
        }
        LifeEvent::Lost(loss) => put("reason", json!(loss_text(loss))),
        LifeEvent::Trimmed { to_bytes } => put("to_bytes", json!(to_bytes)),
        LifeEvent::Arrived { marked, trimmed } => {
            put("marked", json!(marked));
            if trimmed {
                put("trimmed", json!(true));
            }
        }
        LifeEvent::Failed => {}
        LifeEvent::Paused { class } => {
            put("class", json!(class));
            put("by", json!(names.peer(record.place)));
        }
        LifeEvent::Resumed { class, after } => {
            put("class", json!(class));
            put("by", json!(names.peer(record.place)));
            put("paused_us", json!(us(after.0)));
        }
    }
    if let Some(packet) = &record.packet {
        put("packet", json!(packet_text(packet)));
        put("from", json!(names.host(packet.from)));
        put("psn", json!(packet.headers.psn()));
        put("bytes", json!(packet.payload));
    }
    fields
}

/// Chrome's trace events, in microseconds: a process for each host and switch, a thread for each port. A
/// packet's stay at a port is a slice from its arrival until its last bit has left, a pause is one as well;
/// a message is an asynchronous slice up to its completion; everything else is an instant.
fn perfetto(out: &mut impl Write, names: &Names<'_>, life: &Life) -> io::Result<()> {
    let mut tracks = Tracks::new(names, life);
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut is_first = true;
    let begin = std::mem::take(&mut tracks.metadata);
    let events = life.records.iter().flat_map(|record| tracks.of(record));
    for event in begin.into_iter().chain(events) {
        let comma = if is_first { "" } else { ",\n" };
        is_first = false;
        write!(out, "{comma}{event}")?;
    }
    writeln!(out, "\n]}}")
}

/// The tracks of a trace: process and thread by place.
struct Tracks<'a> {
    names: &'a Names<'a>,
    places: BTreeMap<LifePlace, [u64; 2]>,
    metadata: Vec<Value>,
}

impl<'a> Tracks<'a> {
    fn new(names: &'a Names<'a>, life: &Life) -> Self {
        let mut nodes: BTreeMap<String, u64> = BTreeMap::new();
        let mut places = BTreeMap::new();
        let mut metadata = Vec::new();
        for record in &life.records {
            if places.contains_key(&record.place) {
                continue;
            }
            let node = names.node(record.place);
            let known = nodes.len() as u64 + 1;
            let process = *nodes.entry(node.clone()).or_insert(known);
            if process == known {
                metadata.push(
                    json!({"ph": "M", "name": "process_name", "pid": process, "tid": 0,
                    "args": {"name": node}}),
                );
            }
            let thread = places.len() as u64 + 1;
            places.insert(record.place, [process, thread]);
            let name = match record.place {
                LifePlace::Host(_) => "queue pair".to_owned(),
                LifePlace::Port(..) => names.of(record.place),
            };
            metadata.push(
                json!({"ph": "M", "name": "thread_name", "pid": process, "tid": thread,
                "args": {"name": name}}),
            );
        }
        Self {
            names,
            places,
            metadata,
        }
    }

    fn of(&self, record: &LifeRecord) -> Vec<Value> {
        let name = |packet: &LifePacket| match &packet.headers {
            TransportHeaders::Uet(UetHeader::Data { psn, .. }) => format!("PSN {psn}"),
            TransportHeaders::Roce(headers) if !is_answer(headers.message) => {
                format!("PSN {}", headers.psn.value())
            }
            _ => packet_text(packet),
        };
        let name = record.packet.as_ref().map(name).unwrap_or_default();
        match record.event {
            LifeEvent::Posted { message } => vec![self.message(record, "b", message)],
            LifeEvent::Completed { message } => vec![self.message(record, "e", message)],
            LifeEvent::Sent { end, waited, .. } => {
                let arrived = Time(record.at.0 - waited.unwrap_or_default().0);
                vec![self.slice(record, &name, [arrived, end])]
            }
            LifeEvent::Enqueued { ahead_bytes, .. } => {
                vec![self.event(record, "C", "bytes ahead", &json!({"bytes": ahead_bytes}))]
            }
            LifeEvent::Resumed { class, after } => {
                let began = Time(record.at.0 - after.0);
                let name = format!("class {class} paused by {}", self.names.peer(record.place));
                vec![self.slice(record, &name, [began, record.at])]
            }
            // It is a slice when it ends.
            LifeEvent::Paused { .. } => Vec::new(),
            LifeEvent::Trimmed { .. }
            | LifeEvent::Arrived { .. }
            | LifeEvent::Lost(_)
            | LifeEvent::Failed => {
                let all = document(self.names, record);
                let text = what(self.names, record);
                let mut instant = self.event(record, "i", &text, &Value::Object(all));
                instant["s"] = json!("t");
                vec![instant]
            }
        }
    }

    fn event(&self, record: &LifeRecord, phase: &str, name: &str, arguments: &Value) -> Value {
        let [process, thread] = self.places.get(&record.place).copied().unwrap_or_default();
        json!({"ph": phase, "name": name, "cat": event_name(&record.event), "pid": process, "tid": thread,
            "ts": us(record.at.0), "args": arguments})
    }

    fn slice(&self, record: &LifeRecord, name: &str, [begin, end]: [Time; 2]) -> Value {
        let all = Value::Object(document(self.names, record));
        let mut slice = self.event(record, "X", name, &all);
        slice["ts"] = json!(us(begin.0));
        slice["dur"] = json!(us(end.0 - begin.0));
        slice
    }

    fn message(&self, record: &LifeRecord, phase: &str, message: u64) -> Value {
        let name = format!("message {message}");
        let mut event = self.event(record, phase, &name, &json!({"message": message}));
        event["id"] = json!(message);
        event["cat"] = json!("message");
        event
    }
}
