//! Messages between two ends as a ladder diagram: a line for each queue pair, time downwards, and an arrow
//! for each request to the peer.

use std::collections::HashMap;

use ::trace::{Event, Kind, Trace};
use abi::names::{qp_state_name, wc_status_name, wr_opcode_name};

/// Rungs that a page has; a browser is slow with more.
const RUNGS_MAX: usize = 4000;
/// Height of a rung, and places of the drawing, in pixels.
const STEP: usize = 22;
const TOP: usize = 40;
const LEFT: usize = 130;
const WIDTH: usize = 1000;

/// A queue pair: process and number.
type End = (u32, u64);

/// What a rung shows.
enum Rung {
    /// A request that one end posts.
    Request { from: usize, label: String },
    /// Something at one end.
    Note { at: usize, label: String },
    /// A message that arrived at one end from the other.
    Arrival { at: usize, label: String },
}

/// The diagram that is being made.
struct Ladder<'a> {
    names: Vec<(End, String)>,
    peers: HashMap<End, u64>,
    rungs: Vec<(u64, Rung)>,
    left_out: usize,
    trace: &'a Trace<'a>,
}

/// The page of a trace.
pub(super) fn page(trace: &Trace<'_>) -> String {
    let mut ladder = Ladder {
        names: Vec::new(),
        peers: HashMap::new(),
        rungs: Vec::new(),
        left_out: 0,
        trace,
    };
    for (_, event) in trace.events() {
        ladder.add(&event);
    }
    ladder.draw()
}

impl Ladder<'_> {
    /// The column of a queue pair, which is made at its first event.
    fn column(&mut self, event: &Event<'_>) -> Option<usize> {
        let end = (event.process, event.field("qpn")?);
        let known = self.names.iter().position(|(known, _)| *known == end);
        Some(known.unwrap_or_else(|| {
            let name = format!("{} {} QP {:#x}", event.process_name, event.process, end.1);
            self.names.push((end, name));
            self.names.len() - 1
        }))
    }

    fn push(&mut self, at_ns: u64, rung: Rung) {
        match self.rungs.len() < RUNGS_MAX {
            true => self.rungs.push((at_ns, rung)),
            false => self.left_out += 1,
        }
    }

    fn add(&mut self, event: &Event<'_>) {
        let number = |name| event.field(name).unwrap_or(0);
        if !matches!(
            event.kind,
            Kind::Send | Kind::Completion | Kind::Modify | Kind::State | Kind::Receive
        ) {
            return;
        }
        let Some(at) = self.column(event) else { return };
        let failed = number("errno") != 0;
        match event.kind {
            Kind::Send if !failed => {
                let name = wr_opcode_name(number("opcode"));
                let label = format!(
                    "{name} {} B, wr_id {:#x}",
                    number("length"),
                    number("wr_id")
                );
                self.push(event.at_ns, Rung::Request { from: at, label });
            }
            Kind::Completion => {
                let status = wc_status_name(number("status"));
                let is_receive = number("opcode") & 128 != 0;
                let label = format!(
                    "{} wr_id {:#x}: {status}",
                    if is_receive { "receive" } else { "completion" },
                    number("wr_id")
                );
                let rung = match is_receive && number("status") == 0 {
                    true => Rung::Arrival { at, label },
                    false => Rung::Note { at, label },
                };
                self.push(event.at_ns, rung);
            }
            Kind::Modify => {
                if let Some(peer) = event.field("peer") {
                    self.peers.insert((event.process, number("qpn")), peer);
                }
                let to = event.field("to").map_or("attributes", qp_state_name);
                let outcome = if failed { " refused" } else { "" };
                let label = format!("{to}{outcome}");
                self.push(event.at_ns, Rung::Note { at, label });
            }
            Kind::State => {
                let label = format!("in state {}", qp_state_name(number("to")));
                self.push(event.at_ns, Rung::Note { at, label });
            }
            Kind::Receive => {
                let label = format!("receive of {} B posted", number("length"));
                self.push(event.at_ns, Rung::Note { at, label });
            }
            _ => {
                let label = "request refused".to_owned();
                self.push(event.at_ns, Rung::Note { at, label });
            }
        }
    }

    /// The column of the other end of a queue pair, if it is in the trace.
    fn other(&self, column: usize) -> Option<usize> {
        let (end, _) = self.names.get(column)?;
        let peer = self.peers.get(end)?;
        self.names.iter().position(|(other, _)| {
            other.1 == *peer && self.peers.get(other).is_none_or(|back| *back == end.1)
        })
    }

    fn x(&self, column: usize) -> usize {
        let columns = self.names.len().max(1);
        LEFT + (2 * column + 1) * (WIDTH - LEFT) / (2 * columns)
    }

    fn draw(&self) -> String {
        let height = TOP + STEP * (self.rungs.len() + 1);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Ladder diagram\">\
             <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"#1976d2\"/></marker>\
             </defs>\n"
        );
        for (column, (_, name)) in self.names.iter().enumerate() {
            let x = self.x(column);
            svg += &format!(
                "<text x=\"{x}\" y=\"16\" text-anchor=\"middle\">{}</text><line class=\"axis\" x1=\"{x}\" \
                 y1=\"24\" x2=\"{x}\" y2=\"{height}\" stroke=\"#888\"/>\n",
                report::escape(name)
            );
        }
        for (place, (at_ns, rung)) in self.rungs.iter().enumerate() {
            svg += &self.rung(TOP + STEP * place, *at_ns, rung);
        }
        svg += "</svg>\n";
        let left_out = match self.left_out {
            0 => String::new(),
            count => format!("<p>{count} later events are left out.</p>\n"),
        };
        format!(
            "{}<p class=\"soft\">Times in microseconds since the first event. An arrow is a request that was \
             posted, from its queue pair to the peer.</p>\n{svg}{left_out}</body></html>\n",
            report::head("Messages between queue pairs")
        )
    }

    fn rung(&self, y: usize, at_ns: u64, rung: &Rung) -> String {
        let at_ns = at_ns.saturating_sub(self.trace.begin_ns());
        let time = format!(
            "<text x=\"4\" y=\"{}\">{}.{:03}</text>",
            y + 4,
            at_ns / 1000,
            at_ns % 1000
        );
        let text = |x: usize, anchor: &str, label: &str| {
            format!(
                "<text x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                y.saturating_sub(3),
                report::escape(label)
            )
        };
        let drawn = match rung {
            Rung::Request { from, label } => {
                let start = self.x(*from);
                let other = self.other(*from).filter(|other| other != from);
                let end = other.map_or(start + 60, |other| self.x(other));
                format!(
                    "<line x1=\"{start}\" y1=\"{y}\" x2=\"{end}\" y2=\"{y}\" stroke=\"#1976d2\" \
                     marker-end=\"url(#tip)\"/>{}",
                    text(usize::midpoint(start, end), "middle", label)
                )
            }
            Rung::Note { at, label } | Rung::Arrival { at, label } => {
                let x = self.x(*at);
                let color = match rung {
                    Rung::Arrival { .. } => "#1976d2",
                    _ if label.contains("_ERR") || label.contains("refused") => "#c62828",
                    _ => "#888",
                };
                format!(
                    "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{color}\"/>{}",
                    text(x + 6, "start", label)
                )
            }
        };
        format!("{time}{drawn}\n")
    }
}
